"""The state of an optimizer before its first step."""

import torch

from ...distributed.spmd.xla_sharded_tensor import find_sharding, set_sharding


def prime_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Makes the state of the optimizer's first step, for loading a checkpoint into it.

    Parameters and their gradients stay as they are; state of its parameter's size is sharded like the parameter.
    Returns the optimizer. Raises the errors of its step without a closure.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    before = [(p.detach().clone(), p.grad) for p in parameters]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    with torch.no_grad():
        for p, (value, grad) in zip(parameters, before):
            p.copy_(value)
            p.grad = grad
    for p in parameters:
        sharding = find_sharding(p)
        for value in optimizer.state.get(p, {}).values() if sharding else ():
            if isinstance(value, torch.Tensor) and value.shape == p.shape:
                set_sharding(value, sharding)
    return optimizer
