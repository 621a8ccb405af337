"""What the original keeps here: `plugins`."""
