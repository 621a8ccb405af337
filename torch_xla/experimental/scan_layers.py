"""scan_layers: layers of equal structure one after the other, as one loop over their joined weights."""

import copy
import weakref
from collections.abc import Callable, Iterable

import torch

from .scan import scan

# By partition function and first layer: a copy of the layer and its function, the key of scan()'s cache.
_ONE_LAYER_CACHE: dict[tuple[int, int], Callable] = {}


def _places_of(layer: torch.nn.Module) -> dict[str, list[tuple[dict, str]]]:
    """For each name of _tensors_of() the dicts of the modules that hold the tensor, and its key there."""
    places: dict[int, list[tuple[dict, str]]] = {}
    for module in layer.modules():
        for held in (module._parameters, module._buffers):
            for key, tensor in held.items():
                places.setdefault(id(tensor), []).append((held, key))
    return {name: places[id(tensor)] for name, tensor in _tensors_of(layer).items()}


def _make_function(layer: torch.nn.Module) -> Callable:
    """The function that runs one layer with its weights in place of the copy's."""
    example = copy.deepcopy(layer)
    places = _places_of(example)

    def run_layer(carry, tensors):
        # They stay after the call: the gradient's recording may call a part of the layer once more (checkpoint()).
        for name, tensor in tensors.items():
            for held, key in places[name]:
                held[key] = tensor
        return example(*(carry if isinstance(carry, tuple) else (carry,))), None

    return run_layer


def _function_of(layer: torch.nn.Module, partition_fn: Callable | None, is_layer_pure: bool) -> Callable:
    if not is_layer_pure:
        return _make_function(layer)
    key = (id(partition_fn), id(layer))
    if key not in _ONE_LAYER_CACHE:
        _ONE_LAYER_CACHE[key] = _make_function(layer)
        weakref.finalize(layer, _ONE_LAYER_CACHE.pop, key, None)  # another layer may get the number
    return _ONE_LAYER_CACHE[key]


def _tensors_of(layer: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(layer.named_parameters()), **dict(layer.named_buffers())}


def _check_same_structure(first: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    if first.keys() != other.keys():
        raise ValueError(f"the layers have mismatched keys: {sorted(first)} and {sorted(other)}")
    for name, tensor in first.items():
        if tensor.shape != other[name].shape:
            raise ValueError(f"Shape mismatch of '{name}': {tuple(tensor.shape)} and {tuple(other[name].shape)}")


def scan_layers(
    layers: Iterable[torch.nn.Module], input_data, partition_fn: Callable | None = None, is_layer_pure: bool = False
):
    """The result of torch.nn.Sequential(*layers)(input_data), with one layer's program in a loop.

    Args:
        layers: modules with the same computation, and weights with equal names and shapes; only the first one's code
            runs. Their weights are joined at each call and get gradients. They must not write into their buffers.
        input_data: a tensor, or a tuple of tensors that each layer takes as arguments and returns.
        partition_fn: as for scan(): chooses the values that the forward saves.
        is_layer_pure: the first layer is recorded once, not at each call.

    Returns the last layer's output, or `input_data` without layers. Raises ValueError for layers with weights of
    different names or shapes.
    """
    layers = list(layers)
    if not layers:
        return input_data
    tensors = [_tensors_of(layer) for layer in layers]
    for other in tensors[1:]:
        _check_same_structure(tensors[0], other)
    joined = {name: torch.stack([t[name] for t in tensors]) for name in tensors[0]}
    function = _function_of(layers[0], partition_fn, is_layer_pure)
    return scan(function, input_data, joined, partition_fn, is_layer_pure)[0]
