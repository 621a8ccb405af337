"""What the original keeps here and others ask for: `tpu` (libraries), `pjrt` (its tests)."""
