"""The version: the one place that says it."""

__version__ = "3.0.0"
