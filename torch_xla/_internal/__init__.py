"""Modules of the original that others import: `tpu` (libraries), `pjrt` (its tests)."""
