"""The backend `xla` of torch.distributed by its first name: importing either module registers it."""

from ..distributed.xla_backend import ProcessGroupXla

__all__ = ["ProcessGroupXla"]
