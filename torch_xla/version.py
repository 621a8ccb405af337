"""The version, defined only here."""

__version__ = "3.0.0"
