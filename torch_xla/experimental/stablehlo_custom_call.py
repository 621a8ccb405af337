"""Custom calls: operations that a plugin's compiler knows by name; and memory placement of tensors.

Placement moves nothing: a placed tensor stays in the device's memory, on plugins as well.
"""

from collections.abc import Mapping, Sequence

import torch

from .. import _XLAC


def stablehlo_custom_call(
    args: Sequence[torch.Tensor],
    call_target: str,
    output_shapes: Sequence[Sequence[int]],
    output_dtypes: Sequence[torch.dtype],
    has_side_effect: bool = False,
    backend_config: str = "",
    api_version: int = 0,
    frontend_attributes: Mapping[str, str] | None = None,
) -> torch.Tensor | list[torch.Tensor]:
    """Records one `stablehlo.custom_call`. Its results have no gradient.

    Args:
        args: operands, on one device `xla`; none: the current device.
        call_target: the name that the plugin's compiler knows.
        output_shapes, output_dtypes: of each result.
        has_side_effect: the compiler must not leave the call out. A call whose results nobody needs is not run anyway.
        backend_config: text for the compiler; an MLIR dictionary with api_version 4.
        api_version: as XLA numbers them, 0 to 4; 0: unspecified.
        frontend_attributes: `mhlo.frontend_attributes` of the call.

    Returns the result, or a list of several. Raises ValueError for other devices and numbers that do not fit, TypeError
    for other types. The embedded engine has no kernels for custom calls: NotImplementedError when the program runs.
    """
    if not 0 <= api_version <= 4:
        raise ValueError(f"the api_version of the custom call {call_target} is from 0 to 4, but got {api_version}")
    attributes = dict(frontend_attributes or {})
    if not all(isinstance(text, str) for item in attributes.items() for text in item):
        raise TypeError(f"frontend attributes of the custom call {call_target} are str, but got {attributes}")
    results = _XLAC._xla_custom_call(
        list(args),
        call_target,
        [list(map(int, shape)) for shape in output_shapes],
        list(output_dtypes),
        has_side_effect,
        backend_config,
        api_version,
        attributes,
    )
    return results[0] if len(results) == 1 else results


def extract_custom_call_outputs_shape_dtype(n: torch.fx.Node) -> tuple[list[torch.Size], list[torch.dtype]]:
    """Shapes and dtypes of a node's values in a graph of torch.export, as stablehlo_custom_call() takes them.

    Raises ValueError for a node with a value that is no tensor, or that has no recorded value.
    """
    value = n.meta.get("val")
    values = list(value) if isinstance(value, tuple | list) else [value]
    if not all(isinstance(v, torch.Tensor) for v in values):
        raise ValueError(f"the values of the node {n.name} are not tensors: {value!r}")
    return [v.shape for v in values], [v.dtype for v in values]


@torch.library.custom_op("xla::place_to_host", mutates_args=())
def place_to_host(t: torch.Tensor) -> torch.Tensor:
    """The same tensor as a new one, with its gradient: `torch.ops.xla.place_to_host`, which graphs keep.

    It frees no memory of the device. To keep a tensor in the host's memory, use `tensor.cpu()`.
    """
    return t.clone()


@torch.library.custom_op("xla::place_to_device", mutates_args=())
def place_to_device(t: torch.Tensor) -> torch.Tensor:
    """As place_to_host(), for the way back."""
    return t.clone()


for _place in (place_to_host, place_to_device):
    _place.register_fake(torch.empty_like)
    _place.register_autograd(lambda _, gradient: gradient)
