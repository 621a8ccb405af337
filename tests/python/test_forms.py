"""The functional, in-place and out= forms of the rows agree with CPU eager.

Inputs are strided, 0-d and empty tensors and pairs of dtypes.
Where eager raises an exception, the device raises one of the same class.
"""

import itertools

import pytest
import torch
from eager import check

import torch_xla
import torch_xla.debug.metrics as met

aten = torch.ops.aten
UNARY = """
abs neg sign sgn ceil floor trunc round frac bitwise_not exp exp2 expm1 log log2 log10 log1p sqrt rsqrt
reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid sinc deg2rad rad2deg
logical_not isnan isinf isposinf isneginf nan_to_num logit relu silu mish gelu hardswish hardsigmoid hardtanh
leaky_relu elu softplus hardshrink softshrink
""".split()
BINARY = """
add.Tensor sub.Tensor mul.Tensor div.Tensor floor_divide remainder.Tensor fmod.Tensor maximum minimum fmax
fmin atan2 hypot copysign.Tensor heaviside xlogy.Tensor logaddexp pow.Tensor_Tensor eq.Tensor ne.Tensor
lt.Tensor le.Tensor gt.Tensor ge.Tensor logical_and logical_or logical_xor bitwise_and.Tensor
bitwise_or.Tensor bitwise_xor.Tensor bitwise_left_shift.Tensor bitwise_right_shift.Tensor clamp_min.Tensor
clamp_max.Tensor
""".split()
NUMBER = """
add.Scalar sub.Scalar mul.Scalar div.Scalar floor_divide.Scalar remainder.Scalar fmod.Scalar eq.Scalar
lt.Scalar ge.Scalar pow.Tensor_Scalar bitwise_and.Scalar bitwise_left_shift.Tensor_Scalar clamp_min clamp_max
""".split()
REDUCTIONS = """
sum.dim_IntList mean.dim amax amin any.dim all.dim prod.dim_int var.correction std.correction logsumexp argmax
argmin nansum count_nonzero.dim_IntList cumsum cumprod
""".split()
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
WORDS = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "b",
}


def overload(name):
    base, _, kind = name.partition(".")
    return getattr(getattr(aten, base), kind or "default")


def values(dtype, shape, seed=0):
    """Numbers of both signs where the type has them, none of them zero."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randint(1, 5, shape, generator=generator)
    sign = torch.randint(0, 2, shape, generator=generator) * 2 - 1
    if dtype == torch.bool:
        return whole > 2
    if dtype == torch.uint8:
        return whole.to(dtype)
    return (whole * sign / (1 if not dtype.is_floating_point else 4)).to(dtype)


LAYOUTS = {
    "dense": lambda t: t,
    "transposed": lambda t: t.t(),
    "sliced": lambda t: t[:, 1::2],
    "flipped_row": lambda t: t[2],
    "scalar": lambda t: t[0, 0],
    "empty": lambda t: t[:0],
    "expanded": lambda t: t[:1].expand(4, t.size(1)),
}


def views(dtype, layout, device, seed=0):
    return LAYOUTS[layout](values(dtype, (4, 6), seed).to(device))


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    op, inplace = overload(name), getattr(torch.Tensor, name + "_", None)
    for dtype in DTYPES:
        for layout in LAYOUTS:
            check(lambda d: op(views(dtype, layout, d)), f"{name} {WORDS[dtype]} {layout}")
        if inplace:
            for layout in LAYOUTS.keys() - {"expanded"}:
                check(lambda d: written(inplace, dtype, layout, d), f"{name}_ {WORDS[dtype]} {layout}")
    torch_xla.sync()


def written(inplace, dtype, layout, device, *others):
    """The whole tensor after a view of it was written."""
    whole = values(dtype, (4, 6)).to(device)
    inplace(LAYOUTS[layout](whole), *others)
    return whole


def attention(device, key_dims, **options):
    query, key = torch.ones(2, 4, 5, 8, device=device), torch.ones(key_dims, device=device)
    return aten._scaled_dot_product_flash_attention_for_cpu(query, key, key, **options)


def out_form(name):
    base = name.partition(".")[0]
    packet = getattr(aten, base)
    functional = overload(name)
    wanted = [a.name for a in functional._schema.arguments]
    for other in packet.overloads():
        arguments = getattr(packet, other)._schema.arguments
        if [a.name for a in arguments if not a.is_out] == wanted and any(a.is_out for a in arguments):
            return getattr(packet, other)
    return None


def into(op, dtype, shape, device, arguments):
    out = torch.ones(shape, dtype=dtype, device=device)
    op(*arguments, out=out)
    return out


@pytest.mark.parametrize("name", [n for n in UNARY + BINARY if out_form(n)])
def test_out(name):
    op = out_form(name)
    count = 2 if name in BINARY else 1
    for dtype, out_dtype in itertools.product([torch.float32, torch.int64, torch.bool], [*DTYPES, torch.float64]):
        for shape in ((4, 6), (0,)):
            check(
                lambda d: into(op, out_dtype, shape, d, [values(dtype, (4, 6), i).to(d) for i in range(count)]),
                f"{name} {WORDS[dtype]} out={WORDS[out_dtype]}{shape}",
            )


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    op = overload(name)
    for a, b in itertools.product(DTYPES, DTYPES):
        same = (("dense", "dense"), ("transposed", "transposed"), ("dense", "flipped_row"), ("empty", "empty"))
        for x, y in same if a == b else (("dense", "scalar"), ("scalar", "dense")):
            check(lambda d: op(views(a, x, d), views(b, y, d, 1)), f"{name} {WORDS[a]} {x}, {WORDS[b]} {y}")
    inplace = getattr(torch.Tensor, name.partition(".")[0] + "_", None)
    for a, b in itertools.product(DTYPES, DTYPES) if inplace else []:
        for layout in ("sliced", "scalar", "expanded") if a == b else ("dense",):
            check(
                lambda d: written(inplace, a, layout, d, views(b, layout, d, 1)),
                f"{name}_ {WORDS[a]} {WORDS[b]} {layout}",
            )


@pytest.mark.parametrize("name", NUMBER)
def test_number(name):
    op = overload(name)
    inplace = getattr(torch.Tensor, name.partition(".")[0] + "_", None)
    for dtype, number in itertools.product(DTYPES, (2, 0, -1, 1.5, True)):
        for layout in ("dense", "scalar", "empty"):
            check(lambda d: op(views(dtype, layout, d), number), f"{name} {WORDS[dtype]} {layout} {number}")
        if inplace:
            check(lambda d: written(inplace, dtype, "sliced", d, number), f"{name}_ {WORDS[dtype]} {number}")


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name):
    op = overload(name)
    listed = "int[" in str(next(a for a in op._schema.arguments if a.name == "dim").type) or "List" in str(
        op._schema.arguments[1].type
    )
    for dtype, layout in itertools.product(DTYPES, LAYOUTS):
        for dim in (0, -1, 1, 5):
            check(
                lambda d: op(views(dtype, layout, d), [dim] if listed else dim), f"{name} {WORDS[dtype]} {layout} {dim}"
            )
    torch_xla.sync()


CALLS = {
    "div_rounding_none": lambda d: torch.div(
        views(torch.int64, "dense", d), views(torch.int64, "dense", d, 1), rounding_mode=None
    ),
    "div_rounding_wrong": lambda d: torch.div(views(torch.float32, "dense", d), 2, rounding_mode="up"),
    "div_trunc_by_zero": lambda d: torch.div(
        views(torch.int64, "dense", d), torch.zeros(6, dtype=torch.int64, device=d), rounding_mode="trunc"
    ),
    "conv_stride_0": lambda d: torch.conv2d(
        torch.ones(1, 2, 5, 5, device=d), torch.ones(3, 2, 3, 3, device=d), stride=0
    ),
    "conv_bias_size": lambda d: torch.conv2d(
        torch.ones(1, 2, 5, 5, device=d), torch.ones(3, 2, 3, 3, device=d), torch.ones(4, device=d)
    ),
    "conv_without_input_channels": lambda d: torch.conv1d(
        torch.zeros(1, 0, 4, device=d), torch.zeros(2, 0, 2, device=d)
    ),
    "conv_without_rows": lambda d: torch.conv2d(torch.zeros(1, 3, 0, 4, device=d), torch.zeros(2, 3, 1, 1, device=d)),
    "conv_without_images": lambda d: torch.conv2d(torch.zeros(0, 3, 5, 4, device=d), torch.zeros(2, 3, 2, 1, device=d)),
    "conv_transpose_negative": lambda d: torch.conv_transpose2d(
        torch.ones(1, 2, 1, 1, device=d), torch.ones(2, 3, 1, 1, device=d), padding=3
    ),
    "im2col_stride_0": lambda d: torch.nn.functional.unfold(torch.ones(1, 2, 5, 5, device=d), 2, stride=0),
    "col2im_kernel_0": lambda d: torch.nn.functional.fold(torch.ones(1, 8, 4, device=d), 3, 0),
    "adaptive_negative": lambda d: aten._adaptive_avg_pool2d(torch.ones(1, 2, 5, 5, device=d), [-1, -1]),
    "nearest_negative": lambda d: aten.upsample_nearest2d(torch.ones(1, 2, 5, 5, device=d), [-1, -1]),
    "reflection_too_far": lambda d: torch.nn.functional.pad(torch.ones(1, 2, 5, device=d), (7, 0), mode="reflect"),
    "huber_delta_0": lambda d: torch.nn.functional.huber_loss(
        torch.ones(3, device=d), torch.ones(3, device=d), delta=0
    ),
    "smooth_l1_negative_beta": lambda d: torch.nn.functional.smooth_l1_loss(
        torch.ones(3, device=d), torch.zeros(3, device=d), beta=-1
    ),
    "index_shapes": lambda d: torch.ones(4, 6, device=d)[
        torch.tensor([0, 1], device=d), torch.tensor([0, 1, 2], device=d)
    ],
    "index_put_values": lambda d: torch.ones(4, 6, device=d).index_put_(
        (torch.tensor([0, 1], device=d),), torch.ones(5, device=d)
    ),
    "index_put_dtype": lambda d: torch.ones(4, device=d).index_put_(
        (torch.tensor([0, 1], device=d),), torch.ones(2, device=d).long()
    ),
    "index_put_mask": lambda d: torch.ones(4, 6, device=d).index_put_(
        (torch.ones(3, device=d).bool(),), torch.ones((), device=d)
    ),
    "index_put_by_numbers": lambda d: torch.ones(4, device=d).index_put_(
        (torch.ones(4, device=d),), torch.ones((), device=d)
    ),
    "index_put_mask_values": lambda d: torch.ones(4, 6, device=d).index_put_(
        (torch.ones(4, device=d).bool(), torch.zeros(4, dtype=torch.long, device=d)), torch.ones(3, device=d)
    ),
    "index_put_0d_mask": lambda d: torch.ones(4, 6, device=d).index_put_(
        (torch.ones((), device=d).bool(), torch.tensor([1], device=d)), torch.zeros(6, device=d)
    ),
    "rnn_layer_mode": lambda d: torch.mkldnn_rnn_layer(
        *(torch.ones(s, device=d) for s in ((2, 1, 3), (12, 3), (12, 4), 12, 12, (1, 4), (1, 4))),
        *(False, [], 3, 4, 1, True, False, False, False),
    ),
    "attention_dropout": lambda d: attention(d, (2, 4, 5, 8), dropout_p=0.5),
    "attention_key_size": lambda d: attention(d, (2, 4, 5, 7)),
    "attention_mask_size": lambda d: attention(d, (2, 4, 5, 8), attn_mask=torch.ones(4, 5, device=d)),
    "glu_backward_size": lambda d: aten.glu_backward(torch.ones(4, 2, device=d), torch.ones(4, 6, device=d), 1),
    "glu_backward_dtype": lambda d: aten.glu_backward(
        torch.ones(4, 3, dtype=torch.int64, device=d), torch.ones(4, 6, device=d), 1
    ),
    "prelu_backward_size": lambda d: aten._prelu_kernel_backward(
        torch.ones(4, 3, device=d), torch.ones(4, 6, device=d), torch.ones(6, device=d)
    ),
    "prelu_backward_dtype": lambda d: aten._prelu_kernel_backward(
        torch.ones(4, 6, device=d), torch.ones(4, 6, device=d), torch.ones(6, device=d).double()
    ),
    "convolution_backward_groups": lambda d: aten.convolution_backward(
        *(torch.ones(s, device=d) for s in ((1, 2, 3), (1, 2, 5), (2, 2, 3))),
        *([2], [1], [0], [1], False, [0], 0, [True, True, True]),
    ),
    "embedding_backward_size": lambda d: aten.embedding_dense_backward(
        torch.ones((), device=d), torch.ones(3, dtype=torch.int64, device=d), 4, -1, False
    ),
    "scatter_reduction": lambda d: torch.ones(4, device=d).scatter_reduce(
        0, torch.tensor([0, 1], device=d), torch.ones(2, device=d), "me"
    ),
    "scatter_dtype": lambda d: torch.ones(4, device=d).scatter(
        0, torch.tensor([0, 1], device=d), torch.ones(2, device=d).long()
    ),
    "gather_size": lambda d: torch.ones(4, 2, device=d).gather(0, torch.zeros(1, 3, device=d).long()),
    "gather_dtype": lambda d: torch.ones(4, 2, device=d).gather(0, torch.zeros(1, 2, device=d)),
    "index_add_size": lambda d: torch.ones(4, 2, device=d).index_add(
        0, torch.tensor([0, 1], device=d), torch.ones(3, 2, device=d)
    ),
    "take_dtype": lambda d: torch.ones(4, device=d).take(torch.tensor([1, 2], dtype=torch.int32, device=d)),
    "nll_target_dtype": lambda d: torch.nn.functional.nll_loss(
        torch.ones(3, 4, device=d), torch.zeros(3, dtype=torch.int32, device=d)
    ),
    "mm_dtypes": lambda d: torch.ones(2, 2, device=d) @ torch.ones(2, 2, device=d).double(),
    "cat_dtypes": lambda d: torch.cat(
        [torch.ones(2, device=d), torch.ones(3, device=d).long(), torch.ones(1, device=d).double()]
    ),
    "clamp_without_bounds": lambda d: torch.clamp(torch.ones(2, device=d)),
    "batch_norm_empty": lambda d: torch.nn.BatchNorm1d(3).to(d)(torch.ones(0, 3, device=d)),
    "batch_norm_channels": lambda d: torch.nn.BatchNorm1d(3).to(d)(torch.ones(4, 5, device=d)),
    "dtype_view_of_pending": lambda d: torch.ones(4, device=d).int() + (torch.ones(4, device=d) + 1).view(torch.int32),
    "conjugate": lambda d: torch.view_as_real((views(torch.float32, "dense", d) * (1 + 2j)).conj().resolve_conj()),
    "imaginary_part": lambda d: (views(torch.float32, "dense", d) * (1 + 2j)).conj().imag + 1,
    "complex_part_written": lambda d: torch.view_as_real(
        (torch.ones(4, device=d) * 1j).index_fill_(0, torch.tensor([1], device=d), 2j)
    ),
    "unsigned_64": lambda d: torch.arange(4, device=d).to(torch.uint64).cpu().to(torch.int64),
}


@pytest.mark.parametrize("name", CALLS)
def test_call(name):
    check(CALLS[name], name)


def mask(device, *true, count=4):
    return torch.tensor([i in true for i in range(count)]).to(device)


# Writes into a [4, 6, 5] tensor: the indices, and the dims of the values.
MASKED_WRITES = {
    "mask_first": (lambda d: (mask(d, 0, 2, 3), torch.tensor([5, 0, -1], device=d)), [3, 5]),
    "mask_last": (lambda d: (torch.tensor([1, 2], device=d), mask(d, 1, 4, count=6)), [2, 1]),
    "number": (lambda d: (mask(d, 0, 2, 3), torch.tensor(2, device=d)), []),
    "values_count": (lambda d: (mask(d, 0, 2, 3), torch.tensor([2], device=d)), [3, 1]),
    "single_true": (lambda d: (mask(d, 2), torch.tensor([5, 0, 3], device=d)), [3, 5]),
    "none_true": (lambda d: (mask(d), torch.tensor([5], device=d)), [5]),
    "none_true_no_values": (lambda d: (mask(d), torch.tensor([5], device=d)), [0, 5]),
    "whole_dim_first": (lambda d: (slice(None), mask(d, 1, 4, count=6), torch.tensor([0, 3], device=d)), [4, 2]),
    "whole_dim_between": (lambda d: (mask(d, 0, 3), slice(None), torch.tensor([[0], [3]], device=d)), [2, 2, 6]),
    "whole_dim_only": (lambda d: (slice(None), mask(d, 1, 4, count=6)), [2, 5]),
    "two_dims": (lambda d: ((torch.arange(24) % 5 == 0).view(4, 6).to(d), torch.tensor([0, 1, 2, 3, 4], device=d)), []),
    "two_masks": (lambda d: (mask(d, 0, 2, 3), mask(d, 1, 2, 4, count=6)), [3, 5]),
    "two_masks_one_true": (lambda d: (mask(d, 3), mask(d, 1, 2, 4, count=6)), []),
    "two_masks_single": (lambda d: (mask(d, 3), mask(d, 2, count=6)), []),
    "bytes": (lambda d: (mask(d, 0, 2).byte(), torch.tensor([1, 2], device=d)), [2, 1]),
}


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("name", MASKED_WRITES)
def test_write_by_masks(name):
    def assigned(device, dtype):
        x = values(dtype, (4, 6, 5)).to(device)
        x[indices(device)] = values(dtype, dims, 1).to(device)
        return x

    def accumulated(device, dtype):
        whole = tuple(None if i == slice(None) else i for i in indices(device))
        return aten.index_put(values(dtype, (4, 6, 5)).to(device), whole, values(dtype, dims, 1).to(device), True)

    indices, dims = MASKED_WRITES[name]
    before = met.counter_value("aten::_index_put_impl_")
    for dtype in (torch.float32, torch.int64, torch.bool):
        check(lambda d: assigned(d, dtype), f"{name} {WORDS[dtype]}")
        check(lambda d: accumulated(d, dtype), f"{name} {WORDS[dtype]} accumulated")
    assert met.counter_value("aten::_index_put_impl_") == before


def placed(device, dims, strides):
    """A zero tensor whose memory has gaps, or elements that overlap."""
    x = torch.empty_strided(dims, strides, device=device)
    x.as_strided((1 + sum((n - 1) * s for n, s in zip(dims, strides, strict=True)),), (1,)).zero_()
    return x


UNUSUAL = {
    "overlapping": lambda d: placed(d, (3, 3), (2, 1)),
    "skewed": lambda d: placed(d, (3, 2), (2, 3)),
    "gaps": lambda d: placed(d, (2, 1, 3), (9, 77, 2)),
    "expanded": lambda d: torch.zeros(1, 6, device=d).expand(4, 6),
    "diagonal": lambda d: torch.zeros(4, 4, device=d).as_strided((4,), (5,)),
    "windows": lambda d: torch.zeros(8, device=d).unfold(0, 3, 2),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_memory(name):
    def filled(device):
        x = UNUSUAL[name](device)
        x.as_strided((2, 2), (3, 1), 1).copy_(torch.arange(1.0, 5.0).view(2, 2).to(device))
        x.select(0, 1).fill_(7)
        return x, x + 1, x.clone().t() * 2

    def added(device):
        x = UNUSUAL[name](device)
        return x.select(0, 1).add_(1), x.as_strided((3,), (2,)).mul_(0).add_(2), x

    check(filled, f"{name} filled")
    check(added, f"{name} added")
    check(lambda d: UNUSUAL[name](d).as_strided((9, 9), (9, 9)), f"{name} outside")


def test_a_window_larger_than_its_image_is_refused_with_all_its_sizes(device):
    with pytest.raises(RuntimeError, match=r"\(8 x 6\)\. Kernel size: \(9 x 3\)"):
        torch.conv2d(torch.ones(1, 2, 6, 6, device=device), torch.ones(3, 2, 9, 3, device=device), padding=(1, 0))


@pytest.mark.parametrize("groups, stride, padding, dilation", [(1, 1, 0, 1), (2, 2, 1, 1), (1, 1, 2, 2), (4, 3, 1, 1)])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_of_integers(dims, groups, stride, padding, dilation):
    x = torch.randint(-(2**40), 2**40, (2, 4, *(7, 6, 5)[:dims]), generator=torch.Generator().manual_seed(0))
    weight = torch.randint(-9, 9, (4, 4 // groups, *(3, 2, 3)[:dims]), generator=torch.Generator().manual_seed(1))
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    for name in (f"conv{dims}d", f"conv_transpose{dims}d"):
        convolve = getattr(torch.nn.functional, name)
        check(lambda d, convolve=convolve: convolve(x.to(d), weight.to(d), torch.arange(4).to(d), **settings), name)


@pytest.mark.checks_values
def test_cross_entropy_refuses_what_is_no_probability():
    check(
        lambda d: torch.nn.functional.binary_cross_entropy(torch.full((3,), 2.0, device=d), torch.ones(3, device=d)),
        "bce",
    )


def test_dropout_keeps_nan(device):
    x = torch.full((64,), float("nan"), device=device)
    assert torch.nn.functional.dropout(x, 0.5).isnan().all()


def test_nll_backward_of_byte_target(device):
    results = []
    for where in ("cpu", device):
        x = torch.arange(800.0).reshape(4, 200).to(where).requires_grad_()
        target = torch.tensor([0, 156, 199, 3], dtype=torch.uint8).to(where)
        torch.nn.functional.nll_loss(x.log_softmax(1), target).backward()
        results.append(x.grad.cpu())
    torch.testing.assert_close(results[1], results[0])
