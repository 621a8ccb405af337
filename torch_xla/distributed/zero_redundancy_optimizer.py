"""An optimizer with its state spread over the replicas (ZeRO, stage 1)."""

from collections.abc import Callable, Iterator

import torch

from .. import _auto_sync
from .. import runtime as _runtime
from ..core import xla_model


class _Shards:
    """Parameters of one dtype: each replica owns a part of each, an equal share of its rows (of dim 0).

    Args:
        parameters: of one dtype.
        dtype: of the parts and the optimizer's computation.
        sum_dtype: of the gradients' sum over the replicas.
        groups: as for collectives.
        count, own: the number of replicas that share them, and this replica's number among these.
    """

    def __init__(self, parameters: list, dtype: torch.dtype, sum_dtype: torch.dtype, groups, count: int, own: int):
        self._parameters, self._dtype, self._sum_dtype = parameters, dtype, sum_dtype
        self._groups, self._count, self._own = groups, count, own
        self.parts = [
            torch.nn.Parameter(self._rows(p.detach())[own].to(dtype).clone(), requires_grad=p.requires_grad)
            for p in parameters
        ]

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Each parameter and this replica's part of it."""
        return zip(self._parameters, self.parts)

    def _rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """The parts of all replicas, of shape [replicas, rows of a part, ...]. The last rows are padded with 0."""
        tensor = tensor.reshape(1) if tensor.dim() == 0 else tensor
        rows = -(-tensor.shape[0] // self._count)
        missing = [0, 0] * (tensor.dim() - 1) + [0, rows * self._count - tensor.shape[0]]
        return torch.nn.functional.pad(tensor, missing).reshape(self._count, rows, *tensor.shape[1:])

    def take_gradients(self) -> None:
        """Gives the parts the averages of the replicas' gradients, by one reduce_scatter; without a gradient, None."""
        gradients = [getattr(part, "main_grad", parameter.grad) for parameter, part in self]
        changed = [(part, g) for part, g in zip(self.parts, gradients) if g is not None]
        for part in self.parts:
            part.grad = None
        if changed:
            rows = [self._rows(g).to(self._sum_dtype).reshape(self._count, -1) for _, g in changed]
            joined = torch.cat(rows, dim=1)
            own = xla_model.reduce_scatter("sum", joined, 1 / self._count, 0, self._count, self._groups)
            for (part, _), gradient in zip(changed, own[0].split([r.shape[1] for r in rows])):
                part.grad = gradient.view(part.shape).to(self._dtype)

    def take_parameters(self) -> None:
        """Overwrites the parts by the parameters."""
        for parameter, part in self:
            part.copy_(self._rows(parameter)[self._own])

    def give_parameters(self, only_changed: bool) -> None:
        """Overwrites the parameters, or only those with a gradient in their part, by all replicas' parts, with one
        all_gather.
        """
        given = [(parameter, part) for parameter, part in self if part.grad is not None or not only_changed]
        if given:
            own = torch.cat([part.reshape(-1) for _, part in given]).to(given[0][0].dtype)
            columns = xla_model.all_gather(own.unsqueeze(0), 0, self._groups).split(
                [p.numel() for _, p in given], dim=1
            )
            for (parameter, part), rows in zip(given, columns):
                rows = rows.reshape(-1, *part.shape[1:])
                parameter.copy_(rows[0] if parameter.dim() == 0 else rows[: parameter.shape[0]])


class ZeroRedundancyOptimizer(torch.optim.Optimizer):
    """Averages the gradients, updates this replica's part of each parameter, and gives all replicas all parts.

    Each replica keeps 1 / replicas of the optimizer's state. Use `step()`, not xm.optimizer_step, which would average
    again. A parameter without a gradient stays as it is, and must have none on all replicas.

    Args:
        params: as for an optimizer; tensors on the device.
        optimizer_class: of the optimizer of the parts.
        optimizer_dtype: dtype of its computation; by default float32, or the parameter's own if that is wider.
        grad_clipping: clip the gradients' norm over all parameters to `max_norm`, by default to 1.
        max_norm: that norm.
        sharding_groups: numbers of the replicas that share the state; None is one group of all.
        grad_norm_groups: groups that also sum the norm's squares, if a model is spread over replicas.
        lazy_init: init_zero() makes the state; call it before the first step.
        use_grad_acc_hook: gradients are summed up over backward passes in `optimizer_dtype`, in the parameter's
            `main_grad`; its `grad` stays None.
        save_master_weights: state_dict() has the parts too, in their own dtype.
        higher_cc_precision: gradients are summed over the replicas in `optimizer_dtype`, not in their own.
        pin_layout, bucket_cap_mb_all_gather, bucket_cap_mb_reduce_scatter: accepted for the original's sake; the
            tensors of a dtype go in one transfer.
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
        grad_norm_groups: list | None = None,
        lazy_init: bool = False,
        bucket_cap_mb_all_gather: int = 0,
        bucket_cap_mb_reduce_scatter: int = 0,
        use_grad_acc_hook: bool = False,
        save_master_weights: bool = False,
        higher_cc_precision: bool = False,
        **defaults,
    ):
        super().__init__(params, defaults)
        self._optimizer_class, self._dtype = optimizer_class, optimizer_dtype
        self._max_norm = (1.0 if max_norm is None else max_norm) if grad_clipping else None
        self._groups, self._norm_groups = sharding_groups, grad_norm_groups
        self._sums_up, self._saves_weights, self._is_precise = (
            use_grad_acc_hook,
            save_master_weights,
            higher_cc_precision,
        )
        self._grad_norm: torch.Tensor | None = None
        self._shards: list[_Shards] = []
        if not lazy_init:
            self.init_zero()

    def init_zero(self) -> None:
        """Takes this replica's part of each parameter, and makes the optimizer of the parts."""
        ranks = list(range(_runtime.world_size()))
        members = next((g for g in self._groups or [ranks] if _runtime.global_ordinal() in g), ranks)
        own = members.index(_runtime.global_ordinal())
        self._shards.clear()
        groups = []
        for group in self.param_groups:
            parts = {}
            for dtype in dict.fromkeys(p.dtype for p in group["params"]):
                same = [p for p in group["params"] if p.dtype == dtype]
                part_dtype = self._dtype or torch.promote_types(dtype, torch.float32)
                sum_dtype = part_dtype if self._is_precise else dtype
                self._shards.append(_Shards(same, part_dtype, sum_dtype, self._groups, len(members), own))
                parts.update(self._shards[-1])
            options = {name: value for name, value in group.items() if name != "params"}
            groups.append({**options, "params": [parts[p] for p in group["params"]]})
            for parameter, part in parts.items() if self._sums_up else ():
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(_sum_up_in(part))
        self.base_optimizer = self._optimizer_class(groups, **self.defaults)
        _auto_sync.exempt(self.base_optimizer)

    @property
    def grad_norm(self) -> torch.Tensor | None:
        """The norm of all gradients before the last step clipped them; None without clipping."""
        return self._grad_norm

    @torch.no_grad()
    def step(self, closure: Callable | None = None, **kwargs):
        """One step. Returns the closure's result. Raises RuntimeError if init_zero() has not been called.

        Args:
            closure: computes the loss again, with gradients.
            kwargs: for the parts' optimizer's step.
        """
        if not self._shards:
            raise RuntimeError("ZeroRedundancyOptimizer(lazy_init=True): call init_zero() before the first step")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for shards in self._shards:
            shards.take_gradients()
        if self._max_norm is not None:
            self._clip()
        self._take_options()
        self.base_optimizer.step(**kwargs)
        for shards in self._shards:
            shards.give_parameters(only_changed=True)
        return loss

    def _take_options(self) -> None:
        """Schedulers write into this optimizer's groups."""
        for base, group in zip(self.base_optimizer.param_groups, self.param_groups):
            base.update({name: value for name, value in group.items() if name != "params"})

    def _clip(self) -> None:
        gradients = [part.grad for shards in self._shards for part in shards.parts if part.grad is not None]
        if not gradients:
            return
        squares = torch.stack([g.float().square().sum() for g in gradients]).sum()
        squares = xla_model.all_reduce("sum", squares, groups=self._groups)
        if self._norm_groups is not None:
            squares = xla_model.all_reduce("sum", squares, groups=self._norm_groups)
        self._grad_norm = squares.sqrt()
        factor = (self._max_norm / (self._grad_norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.dtype))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As any optimizer's; sums of use_grad_acc_hook become 0."""
        super().zero_grad(set_to_none)
        for shards in self._shards:
            for part in shards.parts:
                if hasattr(part, "main_grad"):
                    part.main_grad.zero_()

    def state_dict(self) -> dict:
        """The groups' options, and by the parameters' numbers: the state of this replica's parts ("base_state"), their
        whole shapes ("shape_info") and, if wanted, the parts ("sharded_master_weights").
        """
        parameters = [p for group in self.param_groups for p in group["params"]]
        parts = [p for group in self.base_optimizer.param_groups for p in group["params"]]
        state = super().state_dict()
        state["base_state"] = self.base_optimizer.state_dict()["state"]
        state["shape_info"] = {number: p.shape for number, p in enumerate(parameters)}
        if self._saves_weights:
            state["sharded_master_weights"] = {number: part.detach() for number, part in enumerate(parts)}
        return state

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict) -> None:
        """Loads a state_dict() of this replica, from a run with as many replicas.

        Its parts set the parameters; without parts in it, the parts follow the parameters.
        """
        state = {name: state_dict[name] for name in ("state", "param_groups")}
        super().load_state_dict(state)
        options = self.base_optimizer.state_dict()["param_groups"]
        self.base_optimizer.load_state_dict({"state": state_dict["base_state"], "param_groups": options})
        self._take_options()
        parts = [p for group in self.base_optimizer.param_groups for p in group["params"]]
        for number, weights in state_dict.get("sharded_master_weights", {}).items():
            parts[number].copy_(weights)
        for shards in self._shards:
            if "sharded_master_weights" in state_dict:
                shards.give_parameters(only_changed=False)
            else:
                shards.take_parameters()


def _sum_up_in(part: torch.Tensor) -> Callable:
    """A hook that adds a parameter's gradient to `main_grad` of the part and of the parameter."""

    def add(parameter: torch.Tensor) -> None:
        if not hasattr(part, "main_grad"):
            part.main_grad = parameter.main_grad = torch.zeros_like(parameter, dtype=part.dtype, requires_grad=False)
        part.main_grad.add_(parameter.grad)
        parameter.grad = None

    return add
