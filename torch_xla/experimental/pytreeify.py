"""pytreeify: an autograd.Function of nested tensors: autograd itself finds no tensors in dicts and lists."""

from torch.autograd import Function
from torch.utils import _pytree as pytree


class _Call:
    """State of one call for its backward: the nesting of its inputs, then of its outputs."""

    def __init__(self, inputs: pytree.TreeSpec):
        self.inputs = inputs
        self.outputs: pytree.TreeSpec | None = None


def _run_forward(cls: type[Function], ctx, inputs: tuple):
    if cls.setup_context is Function.setup_context:
        return cls.forward(ctx, *inputs)
    outputs = cls.forward(*inputs)
    cls.setup_context(ctx, inputs, outputs)
    return outputs


def _run_backward(cls: type[Function], ctx, call: _Call, gradients: tuple) -> list:
    """The gradient of each leaf of the inputs."""
    nested = pytree.tree_unflatten(gradients, call.outputs)
    of_inputs = cls.backward(ctx, *(nested if isinstance(nested, tuple) else (nested,)))
    leaves, spec = pytree.tree_flatten(of_inputs)
    if spec != call.inputs:
        raise RuntimeError(
            f"{cls.__name__}.backward should give gradients nested like the inputs, {call.inputs}, but gave {spec}"
        )
    return leaves


def pytreeify(cls: type[Function]) -> type[Function]:
    """Decorator that lets an autograd.Function take and return pytrees: tensor leaves have gradients.

    Args:
        cls: its `forward` takes and returns any pytrees of tensors and other values (with `ctx` first, or with a
            `setup_context` beside it). Its `backward` takes gradients nested like the outputs, one argument each if
            these are a tuple, and returns a tuple nested like the inputs, with None for no gradient.
            `ctx.needs_input_grad` has an entry for each leaf of the inputs.

    Returns `cls`, with another `apply`. Raises TypeError for anything but an autograd.Function; the backward raises
    RuntimeError if the gradients are not nested like the inputs.
    """
    if not (isinstance(cls, type) and issubclass(cls, Function)):
        raise TypeError(f"pytreeify is for subclasses of torch.autograd.Function, but got {cls}")

    def forward(ctx, *leaves_and_call):
        *leaves, ctx.call = leaves_and_call
        outputs = _run_forward(cls, ctx, pytree.tree_unflatten(leaves, ctx.call.inputs))
        flat, ctx.call.outputs = pytree.tree_flatten(outputs)
        return tuple(flat)

    def backward(ctx, *gradients):
        return *_run_backward(cls, ctx, ctx.call, gradients), None

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    flat_function = type(cls.__name__, (Function,), methods)

    def apply(*inputs):
        leaves, spec = pytree.tree_flatten(inputs)
        call = _Call(spec)
        return pytree.tree_unflatten(flat_function.apply(*leaves, call), call.outputs)

    cls.apply = staticmethod(apply)
    return cls
