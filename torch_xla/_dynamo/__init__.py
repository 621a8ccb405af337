"""torch.compile on the device: a graph is recorded once, and each call appends it to the trace as a whole.

Operations before and after it are part of the same program: forward, backward and optimizer run as one.
"""

import logging
import operator
from collections.abc import Callable, Iterable

import torch
from torch import fx
from torch.utils import _python_dispatch

from .. import _api, _XLAC
from .._torch_release import STORAGE_EXCHANGES

_log = logging.getLogger(__name__)

# Lists of sizes kept for a graph with dynamic shapes, each with its recorded nodes.
_MOST_REGIONS = 64

_PLAIN = {torch.Tensor, torch.nn.Parameter}


class RecordedGraph:
    """A graph of ATen operations on tensors of one device, called with a list of its arguments, which it clears.

    The first call for each list of numbers among the arguments (sizes, where shapes are dynamic), with and without
    autocast, records the graph's operations; later ones append the recorded operations, with new random numbers. A
    graph is recorded by each call, as without torch.compile, if it needs values while it is recorded (`.item()`, an
    operation that runs on the CPU), has collectives, takes tensors of the CPU or generators (a checkpoint repeats draws
    with these), holds tensors of the device, which may be written between calls, or if a TorchDispatchMode is on that
    shall see the operations (`shows_operations`). In eager mode a call is a program by itself.
    """

    def __init__(self, graph: fx.GraphModule, shows_operations: bool = True):
        self._shows_operations = shows_operations
        self._boxed_call = True  # tells AOTAutograd to pass a list; wrappers copy it
        self._graph = graph
        self._regions = {}  # by the numbers among the arguments and autocast's type; None: not to be recorded once
        self._run_alone = _api.compile(self._run)

    def __call__(self, args: list):
        return self._run(args) if _XLAC._lazy() else self._run_alone(args)

    def _run(self, args: list):
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        # A mode of AOTAutograd in which this runs refuses ATen's operations on subclasses. Inductor's graphs have none.
        if not _PLAIN.issuperset(map(type, tensors)):
            with torch._C.DisableTorchFunctionSubclass():
                args[:] = [a.as_subclass(torch.Tensor) if isinstance(a, torch.Tensor) else a for a in args]
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
        numbers = tuple(a for a in args if not isinstance(a, torch.Tensor))
        form = numbers, autocast_type()
        if self._shows_operations and torch._C._len_torch_dispatch_stack() and _is_watched():
            region = None
        elif form in self._regions:
            region = self._regions[form]
        else:
            region = _record(self._graph, args, tensors)
            if len(self._regions) < _MOST_REGIONS:
                self._regions[form] = region
        if region is None:
            result = self._graph(*args)
            args.clear()
            return result
        args.clear()
        return region(tensors)


class _Region:
    """A recorded graph with its results that are not tensors."""

    def __init__(self, recorded, results, is_single: bool):
        self._recorded = recorded
        self._is_single = is_single
        # Mostly there are none, and then the list of the tensors is the result.
        self._others = None if all(isinstance(r, torch.Tensor) for r in results) else without_tensors(results)

    def __call__(self, tensors: list):
        results = self._recorded.record(tensors)
        if self._others is not None:
            results = with_tensors(self._others, results)
        return results[0] if self._is_single else results


def _record(graph: fx.GraphModule, args: list, tensors: list) -> _Region | None:
    """The region of a call with these arguments; None if each call has to record the graph itself."""
    device = tensors[0].device if tensors else None
    if any(isinstance(a, torch.Generator) for a in args):  # a region draws from the default generator
        return None
    if device is None or device.type != "xla" or any(t.device != device or not is_plain(t) for t in tensors):
        return None
    if any(t.device.type == "xla" for t in _held_tensors(graph)) or _changes_storages(graph):
        return None
    capture = _XLAC._Capture(device.index)
    # Each call draws: the device's generator, which other threads use meanwhile, stays as it is.
    generator = _XLAC._set_own_generator(device.index, torch.Generator(device))
    try:
        stand_ins = [capture.add_argument_like(t) for t in tensors]
        results = graph(*with_tensors(without_tensors(args), stand_ins))
        is_single = not isinstance(results, tuple | list)
        results = [results] if is_single else list(results)
        recorded = _XLAC._Region(capture, stand_ins, [r for r in results if isinstance(r, torch.Tensor)])
        return _Region(recorded, results, is_single)
    except (RuntimeError, TypeError) as error:  # the operations raise it again when they run alone
        _log.debug("a graph of torch.compile is recorded by each call: %s", error)
        return None
    finally:
        _XLAC._set_own_generator(device.index, generator)
        capture.end()


def without_tensors(values: Iterable) -> list[tuple | None]:
    """The values, each in a tuple; None in the place of a tensor."""
    return [None if isinstance(v, torch.Tensor) else (v,) for v in values]


def with_tensors(others: list[tuple | None], tensors: Iterable[torch.Tensor]) -> list:
    """The inverse of without_tensors(), with these tensors in the places of the old ones."""
    given = iter(tensors)
    return [next(given) if other is None else other[0] for other in others]


def _is_watched() -> bool:
    """Whether a TorchDispatchMode other than AOTAutograd's own is on: it must see the operations."""
    modes = _python_dispatch._get_current_dispatch_mode_stack()
    return not all(type(mode).__module__.startswith("torch._functorch.") for mode in modes)


def autocast_type() -> torch.dtype | None:
    """The dtype of autocast on the device now; None: off."""
    return torch.get_autocast_dtype("xla") if torch.is_autocast_enabled("xla") else None


def is_plain(t: torch.Tensor) -> bool:
    """Whether it is a plain tensor: no subclass, no value of a transform of torch.func."""
    return type(t) in _PLAIN and not torch._C._functorch.is_functorch_wrapped_tensor(t)


def _held_tensors(graph: fx.GraphModule) -> list[torch.Tensor]:
    """The graph's tensors from its own attributes."""
    names = [node.target for node in graph.graph.nodes if node.op == "get_attr"]
    held = [operator.attrgetter(name)(graph) for name in names]
    return [t for t in held if isinstance(t, torch.Tensor)]


def _changes_storages(graph: fx.GraphModule) -> bool:
    """Whether it gives an argument another storage (`x.data = y`)."""
    return any(getattr(n.target, "overloadpacket", None) in STORAGE_EXCHANGES for n in graph.graph.nodes)


def compile_graph(graph: fx.GraphModule, example_inputs: list):
    """The backend of torch.compile for graphs on the device: AOTAutograd, then a RecordedGraph for each direction."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(fw_compiler=_record_graph, keep_inference_input_mutations=True)(graph, example_inputs)


def record_function(function: Callable) -> Callable:
    """A function of tensors that calls `function` only at its first call; later calls append its recorded operations
    and those of its gradient. Tensors of other shapes or dtypes need another one.
    """
    from torch._functorch.aot_autograd import aot_function

    return aot_function(function, _record_graph, keep_inference_input_mutations=True, enable_log=False)


def _record_graph(graph: fx.GraphModule, _) -> RecordedGraph:
    return RecordedGraph(graph)


def _is_on_device(graph: fx.GraphModule, inputs: list) -> bool:
    """Whether a graph from dynamo has values on the device."""
    values = [*inputs, *(node.meta.get("example_value") for node in graph.graph.nodes)]
    return any(isinstance(v, torch.Tensor) and v.device.type == "xla" for v in values)


def install() -> None:
    """Makes torch.compile's default backend pass graphs of the device to compile_graph(), all others to inductor."""
    inductor = torch._TorchCompileInductorWrapper
    compile_with_inductor = inductor.__call__

    def __call__(self, model_, inputs_, **kwargs):
        if _is_on_device(model_, inputs_):
            return compile_graph(model_, inputs_)
        return compile_with_inductor(self, model_, inputs_, **kwargs)

    inductor.__call__ = __call__
