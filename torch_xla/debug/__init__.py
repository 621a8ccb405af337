"""Metrics: what compiled, what ran, what fell back."""
