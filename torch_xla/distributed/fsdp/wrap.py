"""Policies that choose the submodules FSDP wraps: PyTorch's own, with the original's name for the number of
parameters."""

from collections.abc import Callable, Iterable

import torch
from torch.distributed.fsdp import wrap as _wrap
from torch.distributed.fsdp.wrap import always_wrap_policy

__all__ = [
    "always_wrap_policy",
    "lambda_auto_wrap_policy",
    "recursive_wrap",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
]

# A policy is asked twice for each module: whether to look at its children (`recurse`), and whether to wrap the module
# itself. `unwrapped_params` is the number of elements of its parameters that are not wrapped yet.


def lambda_auto_wrap_policy(
    module: torch.nn.Module, recurse: bool, unwrapped_params: int, lambda_fn: Callable[[torch.nn.Module], bool]
) -> bool:
    """Wraps the modules for which `lambda_fn` is true."""
    return _wrap.lambda_auto_wrap_policy(module, recurse, unwrapped_params, lambda_fn)


def transformer_auto_wrap_policy(
    module: torch.nn.Module, recurse: bool, unwrapped_params: int, transformer_layer_cls: Iterable[type]
) -> bool:
    """Wraps the modules of these classes."""
    return _wrap.transformer_auto_wrap_policy(module, recurse, unwrapped_params, set(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: torch.nn.Module,
    recurse: bool,
    unwrapped_params: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: Iterable[type] | None = None,
    exclude_wrap_modules: Iterable[type] | None = None,
) -> bool:
    """Wraps modules with at least `min_num_params` elements.

    Args:
        force_leaf_modules: classes whose children are not looked at; None is {nn.MultiheadAttention}.
        exclude_wrap_modules: classes that are not wrapped; None is {nn.ModuleList, nn.ModuleDict}.
    """
    leaves, excluded = (None if c is None else set(c) for c in (force_leaf_modules, exclude_wrap_modules))
    return _wrap.size_based_auto_wrap_policy(
        module, recurse, unwrapped_params, min_num_params, force_leaf_modules=leaves, exclude_wrap_modules=excluded
    )


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = _wrap.size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = _wrap.size_based_auto_wrap_policy.FORCE_LEAF_MODULES


def recursive_wrap(
    module: torch.nn.Module,
    auto_wrap_policy: Callable[..., bool],
    wrapper_cls: Callable[..., torch.nn.Module],
    ignored_modules: Iterable[torch.nn.Module],
    ignored_params: Iterable[torch.nn.Parameter],
    only_wrap_children: bool = False,
    **kwargs,
) -> tuple[torch.nn.Module, int]:
    """Wraps those submodules that the policy names, children before their parents.

    Args:
        wrapper_cls: called with a module and `kwargs`.
        ignored_modules, ignored_params: are neither wrapped nor counted.
        only_wrap_children: leave `module` itself.

    Returns the module or its wrapper, and the number of wrapped elements.
    """

    def policy(module: torch.nn.Module, recurse: bool, nonwrapped_numel: int) -> bool:
        return auto_wrap_policy(module=module, recurse=recurse, unwrapped_params=nonwrapped_numel)

    ignored = set(ignored_modules), set(ignored_params)
    return _wrap._recursive_wrap(module, policy, wrapper_cls, *ignored, only_wrap_children, **kwargs)
