"""An optimizer whose state is spread over the replicas (ZeRO, stage 1)."""

from collections.abc import Callable

import torch

from .. import _auto_sync
from .. import runtime as _runtime
from ..core import xla_model


class _Shards:
    """The parameters of one dtype, flattened: each replica owns an equal part of each of them.

    Args:
        parameters: of one dtype.
        dtype: of the parts, in which the optimizer computes.
        groups: as for collectives.
    """

    def __init__(self, parameters: list[torch.Tensor], dtype: torch.dtype, groups: list | None, count: int, own: int):
        self._parameters, self._dtype, self._groups, self._count = parameters, dtype, groups, count
        self._sizes = [-(-p.numel() // count) for p in parameters]
        with torch.no_grad():
            rows = self._rows([p.detach() for p in parameters])[own]
            self.parts = [torch.nn.Parameter(part.to(dtype).clone()) for part in rows.split(self._sizes)]

    def _rows(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        """Of shape [replicas, sum of the parts]: row i is what replica i owns. The last parts are filled up with 0."""
        padded = [
            torch.nn.functional.pad(t.reshape(-1), (0, size * self._count - t.numel()))
            for t, size in zip(tensors, self._sizes)
        ]
        return torch.cat([t.view(self._count, -1) for t in padded], dim=1)

    def take_gradients(self) -> None:
        """Gives the parts the averages of the replicas' gradients, by one reduce_scatter."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        rows = self._rows(gradients)
        own = xla_model.reduce_scatter("sum", rows, 1 / self._count, 0, self._count, self._groups)
        for part, gradient in zip(self.parts, own[0].split(self._sizes)):
            part.grad = gradient.to(self._dtype)

    def give_parameters(self) -> None:
        """Overwrites the parameters by all replicas' parts, by one all_gather."""
        own = torch.cat([part.detach() for part in self.parts]).to(self._parameters[0].dtype)
        rows = xla_model.all_gather(own.unsqueeze(0), 0, self._groups)
        for parameter, part in zip(self._parameters, rows.split(self._sizes, dim=1)):
            parameter.copy_(part.reshape(-1)[: parameter.numel()].view(parameter.shape))


class ZeroRedundancyOptimizer(torch.optim.Optimizer):
    """Averages the gradients, updates this replica's part of each parameter, and gives everybody all parts.

    Each replica keeps 1 / replicas of the optimizer's state. Use `step()`, not xm.optimizer_step, which would average
    once more.

    Args:
        params: as for an optimizer; tensors on the device.
        optimizer_class: of the optimizer of the parts.
        optimizer_dtype: in which it computes; by default each parameter's own.
        grad_clipping: clip the gradients' norm over all parameters to `max_norm`, by default to 1.
        max_norm: that norm.
        pin_layout, lazy_init: accepted for the original's sake.
        sharding_groups: numbers of the replicas that share the state; None is one group of all.
        defaults: for optimizer_class.
    """

    def __init__(
        self,
        params,
        optimizer_class: type[torch.optim.Optimizer],
        optimizer_dtype: torch.dtype | None = None,
        grad_clipping: bool = True,
        max_norm: float | None = None,
        pin_layout: bool = True,
        sharding_groups: list | None = None,
        lazy_init: bool = False,
        **defaults,
    ):
        super().__init__(params, defaults)
        self._max_norm = (1.0 if max_norm is None else max_norm) if grad_clipping else None
        self._groups = sharding_groups
        self._grad_norm: torch.Tensor | None = None
        ranks = list(range(_runtime.world_size()))
        members = next((g for g in sharding_groups or [ranks] if _runtime.global_ordinal() in g), ranks)
        own = members.index(_runtime.global_ordinal())
        self._shards: list[_Shards] = []
        groups = []
        for group in self.param_groups:
            shards = []
            for dtype in dict.fromkeys(p.dtype for p in group["params"]):
                same = [p for p in group["params"] if p.dtype == dtype]
                shards.append(_Shards(same, optimizer_dtype or dtype, sharding_groups, len(members), own))
            options = {name: value for name, value in group.items() if name != "params"}
            groups.append({**options, "params": [part for shard in shards for part in shard.parts]})
            self._shards += shards
        self.base_optimizer = optimizer_class(groups, **defaults)
        _auto_sync.exempt(self.base_optimizer)

    @property
    def grad_norm(self) -> torch.Tensor | None:
        """The norm of all gradients before the last step clipped them; None without clipping."""
        return self._grad_norm

    @torch.no_grad()
    def step(self, closure: Callable | None = None, **kwargs):
        """One step. Returns what the closure returns.

        Args:
            closure: computes the loss anew, with gradients.
            kwargs: for the step of the parts' optimizer.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for shards in self._shards:
            shards.take_gradients()
        if self._max_norm is not None:
            self._clip()
        for base, group in zip(self.base_optimizer.param_groups, self.param_groups):
            base.update({name: value for name, value in group.items() if name != "params"})  # schedulers write here
        self.base_optimizer.step(**kwargs)
        for shards in self._shards:
            shards.give_parameters()
        return loss

    def _clip(self) -> None:
        gradients = [part.grad for shards in self._shards for part in shards.parts]
        squares = torch.stack([g.float().square().sum() for g in gradients]).sum()
        self._grad_norm = xla_model.all_reduce("sum", squares, groups=self._groups).sqrt()
        factor = (self._max_norm / (self._grad_norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.dtype))

    def state_dict(self) -> dict:
        """The groups' options, and under "base" the state of this replica's parts."""
        return {**super().state_dict(), "base": self.base_optimizer.state_dict()}

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes what state_dict() gave on this replica, in a run of as many. The parts follow the parameters."""
        state = dict(state_dict)
        self.base_optimizer.load_state_dict(state.pop("base"))
        super().load_state_dict(state)
