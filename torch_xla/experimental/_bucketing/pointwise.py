"""Rules of elementwise functions, and of queries about a tensor."""

from collections.abc import Callable, Sequence

import torch

from .extents import describe, Extent, is_padded, PaddedSize, plain
from .run import is_in_place, leaves_of, Run, takes_sizes, with_leaves

_OPERATORS = """
add sub mul truediv div mod floordiv pow and or xor lshift rshift
""".split()

# Tensors of equal or broadcast dims in, tensors of these dims out. Random draws for padding are not used.
_POINTWISE = """
abs absolute acos acosh add addcdiv addcmul alpha_dropout angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh
asin asinh atan atan2 atanh bernoulli bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
bitwise_xor ceil celu clamp clamp_max clamp_min clip clone complex conj conj_physical contiguous copy copysign cos
cosh deg2rad digamma div divide dropout elu entr eq erf erfc erfcx erfinv exp exp2 expit expm1 fill fix float_power
floor floor_divide fmax fmin fmod frac ge gelu greater greater_equal gt hardshrink hardsigmoid hardswish hardtanh
heaviside hypot i0 i0e i1 i1e imag isclose isfinite isinf isnan isneginf isposinf isreal ldexp le leaky_relu lerp less
less_equal lgamma log log10 log1p log2 log_ndtr logaddexp logaddexp2 logical_and logical_not logical_or logical_xor
logit logsigmoid lt masked_fill maximum minimum mish mul multiply nan_to_num ndtr ndtri ne neg negative nextafter
normal not_equal polar positive pow rad2deg real reciprocal relu relu6 remainder round rrelu rsqrt rsub selu sgn
sigmoid sign signbit silu sin sinc sinh softplus softshrink softsign sqrt square sub subtract tan tanh tanhshrink
threshold true_divide trunc uniform where xlog1py xlogy zero
__abs__ __invert__ __neg__ __pos__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__
""".split()

# Their results have the dims of the first operand.
_LIKE_FIRST = """
bfloat16 bool byte cpu data detach double empty_like float full_like half int long ones_like rand_like randint_like
randn_like short to type type_as zeros_like
""".split()

# Their results do not depend on the padding, or are settings of the tensor.
_TELLING = """
device dtype layout requires_grad requires_grad_ is_leaf grad_fn dim ndim ndimension is_floating_point is_complex
is_signed is_sparse is_quantized is_nested is_mkldnn is_cuda is_xla is_cpu is_meta is_conj is_neg is_contiguous
is_inference itemsize element_size get_device retain_grad retains_grad result_type can_cast is_same_size
__repr__ __format__ __hash__
""".split()

# Python code of PyTorch; the functions that it calls have rules.
_BODIES = """
multi_head_attention_forward normalize
""".split()


def check_write(run: Run, func: Callable, written: torch.Tensor, dims: Sequence[Extent]) -> None:
    """Refuses to write values of these dims into a tensor with other padding, or with memory that other tensors see."""
    base = written._base
    if run.dims_of(written) != tuple(dims) or (run.is_padded(written) and base is not None and not run.is_padded(base)):
        raise run.error(func, f"writing {describe(dims)} into the memory of a tensor without this padding")


@takes_sizes
def pointwise(run: Run, func: Callable, *args, **kwargs):
    """Padding stays in place. A PaddedSize among the operands is a number: the true size."""
    tensors = [leaf for leaf in leaves_of((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    dims = run.broadcast(func, [run.dims_of(t) for t in tensors])
    if is_in_place(func):
        check_write(run, func, args[0], dims)

    def with_true_size(value):
        return run.count([value.extent], tensors[0].device) if isinstance(value, PaddedSize) else value

    args, kwargs = with_leaves((args, kwargs), with_true_size)
    return run.mark_all(func(*args, **kwargs), dims)


def _like_first(run: Run, func: Callable, input: torch.Tensor, *args, **kwargs):
    return run.mark_all(func(input, *args, **kwargs), run.dims_of(input))


def telling(run: Run, func: Callable, *args, **kwargs):
    """Calls the query as it is."""
    return func(*args, **kwargs)


def _body(run: Run, func: Callable, *args, **kwargs):
    return run.run_body(func, *args, **kwargs)


def _shape(run: Run, func: Callable, input: torch.Tensor):
    return run.shape_of(input)


def _size(run: Run, func: Callable, input: torch.Tensor, dim: int | None = None):
    return run.shape_of(input) if dim is None else run.shape_of(input)[dim]


def _numel(run: Run, func: Callable, input: torch.Tensor):
    return run.shape_of(input).numel()


def _len(run: Run, func: Callable, input: torch.Tensor):
    if is_padded(run.dims_of(input)[0]):
        raise run.error(func, "the length of a padded dim, which would be a plain number")
    return len(input)


def _grad(run: Run, func: Callable, input: torch.Tensor):
    grad = func(input)
    return None if grad is None else run.mark(grad, run.dims_of(input))


def _tuple_of(tensors) -> tuple:
    return (tensors,) if tensors is None or isinstance(tensors, torch.Tensor) else tuple(tensors)


def _cut_gradients(run: Run, outputs: tuple, gradients) -> list[torch.Tensor | None]:
    """The gradients of outputs, without padding."""
    given = _tuple_of(gradients) if gradients is not None else (None,) * len(outputs)
    cut = []
    for output, gradient in zip(outputs, given, strict=True):
        dims = run.dims_of(output)
        cut.append(gradient if gradient is None else run.mark(run.filled(run.mark(gradient, dims), 0), dims))
    return cut


# The gradient is computed within the mode, for functions that it calls again (checkpoints).


def _backward(run: Run, func: Callable, tensors, grad_tensors=None, *args, **kwargs):
    outputs = _tuple_of(tensors)
    gradients = _cut_gradients(run, outputs, grad_tensors)
    return run.run_body(torch.autograd.backward, outputs, gradients, *args, **kwargs)


def _backward_of_one(run: Run, func: Callable, input: torch.Tensor, gradient=None, *args, **kwargs):
    return _backward(run, func, input, gradient, *args, **kwargs)


def _autograd_grad(run: Run, func: Callable, outputs, inputs, grad_outputs=None, *args, **kwargs):
    outputs, inputs = _tuple_of(outputs), _tuple_of(inputs)
    gradients = _cut_gradients(run, outputs, grad_outputs)
    grads = run.run_body(torch.autograd.grad, outputs, inputs, gradients, *args, **kwargs)
    return tuple(None if g is None else run.mark(g, run.dims_of(t)) for t, g in zip(inputs, grads, strict=True))


def _one_hot(run: Run, func: Callable, input: torch.Tensor, num_classes: int = -1):
    result = func(input, num_classes)
    return run.mark(result, (*run.dims_of(input), plain(result.shape[-1])))


RULES = {
    **dict.fromkeys(_POINTWISE, pointwise),
    **{f"__{prefix}{name}__": pointwise for name in _OPERATORS for prefix in ("", "r", "i")},
    **dict.fromkeys(_LIKE_FIRST, _like_first),
    **dict.fromkeys(_TELLING, telling),
    **dict.fromkeys(_BODIES, _body),
    "torch.Tensor.requires_grad.__set__": telling,
    "shape": _shape,
    "size": _size,
    "numel": _numel,
    "nelement": _numel,
    "__len__": _len,
    "grad": _grad,
    "backward": _backward_of_one,
    "torch.autograd.backward": _backward,
    "torch.autograd.grad": _autograd_grad,
    "one_hot": _one_hot,
}
