"""Helpers that programs for the original import."""
