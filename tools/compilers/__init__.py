"""Accelerators' compilers from wheels, and what they say about this device's programs: `make test-compilers`."""
