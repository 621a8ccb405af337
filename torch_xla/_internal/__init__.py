"""What the original keeps here and libraries ask for: `tpu`."""
