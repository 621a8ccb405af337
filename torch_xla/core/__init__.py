"""The classic API: torch_xla.core.xla_model."""
