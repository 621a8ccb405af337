"""A step that the device takes or skips."""

import torch


def _state_tensors(optimizer: torch.optim.Optimizer) -> dict:
    """The tensors that a step writes, by role: the parameters and their state."""
    tensors = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    for parameter, state in optimizer.state.items():
        tensors.update({(id(parameter), key): t for key, t in state.items() if isinstance(t, torch.Tensor)})
    return tensors


class SyncFree:
    """Gives an optimizer's step() the argument `found_inf`."""

    def step(self, closure=None, found_inf: torch.Tensor | None = None):
        """One step.

        Args:
            closure: as for the optimizer of that name in torch.optim.
            found_inf: a tensor of one number; if it is not 0, parameters and state stay as they are.
        """
        if found_inf is None:
            return super().step(closure)
        with torch.no_grad():
            before = {key: tensor.clone() for key, tensor in _state_tensors(self).items()}
        loss = super().step(closure)
        with torch.no_grad():
            for key, tensor in _state_tensors(self).items():
                old = before.get(key, torch.zeros_like(tensor))
                keep = found_inf.to(tensor.device).reshape(()) != 0
                tensor.copy_(torch.where(keep, old, tensor))
        return loss


class CountingSyncFree(SyncFree):
    """Makes the optimizer count its steps on the device, as only the device knows the skipped ones."""

    def __init__(self, *args, capturable: bool = True, **kwargs):
        super().__init__(*args, capturable=capturable, **kwargs)
