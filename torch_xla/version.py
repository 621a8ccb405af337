"""The version: the one place that says it. It follows torch: 2.13.x serves torch 2.13."""

__version__ = "2.13.0"
