"""Arguments that eager refuses are refused with the same class of error, and those that it takes give its values.

Numbers out of a type's range, factors, memory in common, sizes that overflow, tensors without elements.
"""

import itertools

import pytest
import torch
from eager import check
from torch.nn import functional

aten = torch.ops.aten
NUMBERS = [
    300,
    -1,
    -129,
    255,
    256,
    -300,
    70000,
    1e6,
    -0.5,
    1e39,
    float("inf"),
    float("nan"),
    3.7,
    2**31,
    2**63,
    -(2**40),
    True,
]
DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
]


def zeros(device, *shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype, device=device)


def whole(device, *values):
    return torch.tensor(values, dtype=torch.long, device=device)


def ramp(device, *shape):
    return (torch.arange(float(torch.Size(shape).numel())).reshape(shape) / 4).to(device)


def written(x, index, value):
    x[index] = value
    return x


def mask(x):
    return torch.tensor([True, False, True], device=x.device)


TAKES_NUMBER = {
    "fill_": lambda x, v: x.fill_(v),
    "fill_one": lambda x, v: x[:1].clone().fill_(v),
    "fill_none": lambda x, v: x[:0].fill_(v),
    "fill_tensor": lambda x, v: x.fill_(torch.tensor(v, device=x.device)),
    "full": lambda x, v: torch.full((3,), v, dtype=x.dtype, device=x.device),
    "full_like": lambda x, v: torch.full_like(x, v),
    "scalar_tensor": lambda x, v: torch.scalar_tensor(v, dtype=x.dtype, device=x.device),
    "masked_fill": lambda x, v: x.masked_fill(mask(x), v),
    "masked_fill_": lambda x, v: x.masked_fill_(mask(x), v),
    "masked_fill_tensor": lambda x, v: x.masked_fill(mask(x), torch.tensor(v, device=x.device)),
    "masked_fill_number": lambda x, v: x.masked_fill(mask(x), torch.tensor(v)),
    "set_one": lambda x, v: written(x, 1, v),
    "set_slice": lambda x, v: written(x, slice(1, 3), v),
    "set_mask": lambda x, v: written(x, mask(x), v),
    "set_index": lambda x, v: written(x, whole(x.device, 1), v),
    "set_tensor": lambda x, v: written(x, 1, torch.tensor(v, device=x.device)),
    "where": lambda x, v: torch.where(mask(x), x, v),
    "clamp": lambda x, v: x.clamp(min=v),
    "clamp_": lambda x, v: x.clamp_(max=v),
    "add": lambda x, v: x + v,
    "compare": lambda x, v: x > v,
    "add_alpha": lambda x, v: torch.add(x, x, alpha=v),
    "add_number_alpha": lambda x, v: torch.add(x, 2, alpha=v),
    "sub_alpha_": lambda x, v: x.sub_(x, alpha=v),
    "rsub_alpha": lambda x, v: torch.rsub(x, 2, alpha=v),
    "addcmul": lambda x, v: torch.addcmul(x, x, x, value=v),
    "addcdiv": lambda x, v: torch.addcdiv(x, x, x + 1, value=v),
    "lerp": lambda x, v: torch.lerp(x, x, v),
    "threshold": lambda x, v: functional.threshold(x, 0, v),
    "hardtanh": lambda x, v: functional.hardtanh(x, -1, v),
    "hardtanh_from_zero": lambda x, v: functional.hardtanh(x, 0, v),
    "softshrink": lambda x, v: functional.softshrink(x, v),
    "hardshrink": lambda x, v: functional.hardshrink(x, v),
    "leaky_relu": lambda x, v: functional.leaky_relu(x, v),
    "leaky_relu_backward": lambda x, v: aten.leaky_relu_backward(x, x, v, True),
    "elu_backward": lambda x, v: aten.elu_backward(x, v, 1, 1, True, x),
    "pad": lambda x, v: functional.pad(x, (1, 0), value=v),
    "pow": lambda x, v: (x + 1) ** v,
    "floor_divide": lambda x, v: x // v,
}


@pytest.mark.parametrize("call", TAKES_NUMBER.values(), ids=TAKES_NUMBER)
def test_number_in_the_range_of_the_type(device, call):
    for dtype, number in itertools.product(DTYPES, NUMBERS):
        check(lambda d: call(zeros(d, 3, dtype=dtype), number), f"{number} {dtype}")


FACTORS = {
    "addmm": lambda x, **factor: torch.addmm(x, x, x, **factor),
    "addmv": lambda x, **factor: torch.addmv(x[0], x, x[0], **factor),
    "addr": lambda x, **factor: torch.addr(x, x[0], x[0], **factor),
    "addbmm": lambda x, **factor: torch.addbmm(x, x[None], x[None], **factor),
    "baddbmm": lambda x, **factor: torch.baddbmm(x[None], x[None], x[None], **factor),
}


@pytest.mark.parametrize("call", FACTORS.values(), ids=FACTORS)
def test_fractional_factor_of_whole_numbers(device, call):
    for name, factor, dtype in itertools.product(("alpha", "beta"), (1.5, 2, 2.0), (torch.int32, torch.float32)):
        check(lambda d: call(torch.ones(2, 2, dtype=dtype, device=d), **{name: factor}), f"{name}={factor} {dtype}")


def test_fractional_factor_of_index_add(device):
    for factor, dtype in itertools.product((1.5, 2), (torch.int32, torch.float32)):
        check(
            lambda d: zeros(d, 2, dtype=dtype).index_add(
                0, whole(d, 0, 1), torch.ones(2, dtype=dtype, device=d), alpha=factor
            ),
            f"{factor} {dtype}",
        )


OVERLAPPING = {
    "expanded": lambda d: zeros(d, 1, 3).expand(3, 3),
    "windows": lambda d: zeros(d, 5).as_strided((3, 3), (1, 1)),
    "interleaved": lambda d: zeros(d, 9).as_strided((2, 3), (3, 2)),
}
WRITES = {
    "index_fill_": lambda x: x.index_fill_(0, whole(x.device, 0), 5),
    "index_add_": lambda x: x.index_add_(0, whole(x.device, 0), ramp(x.device, 1, 3)),
    "index_copy_": lambda x: x.index_copy_(0, whole(x.device, 0), ramp(x.device, 1, 3)),
    "index_reduce_": lambda x: x.index_reduce_(0, whole(x.device, 0), ramp(x.device, 1, 3), "amax"),
    "index_put_": lambda x: x.index_put_((whole(x.device, 0),), ramp(x.device, 3)),
    "index_put_accumulate": lambda x: x.index_put_((whole(x.device, 0),), ramp(x.device, 3), accumulate=True),
    "scatter_": lambda x: x.scatter_(0, whole(x.device, 0, 0, 0)[None], ramp(x.device, 1, 3)),
    "scatter_number": lambda x: x.scatter_(0, whole(x.device, 0, 0, 0)[None], 2.0),
    "scatter_add_": lambda x: x.scatter_add_(0, whole(x.device, 0, 0, 0)[None], ramp(x.device, 1, 3)),
    "scatter_reduce_": lambda x: x.scatter_reduce_(0, whole(x.device, 0, 0, 0)[None], ramp(x.device, 1, 3), "sum"),
    "masked_fill_": lambda x: x.masked_fill_(ramp(x.device, 1, 3) > 0, 3),
    "add_": lambda x: x.add_(3),
    "clamp_": lambda x: x.clamp_(1, 2),
    "tril_": lambda x: x.tril_(),
    "cumsum_": lambda x: x.cumsum_(0),
    "bernoulli_": lambda x: x.bernoulli_(1.0),
    "add_out": lambda x: torch.add(ramp(x.device, *x.shape), 1, out=x),
    "cat_out": lambda x: torch.cat([ramp(x.device, 1, 3)] * x.size(0), out=x),
    "index_select_out": lambda x: torch.index_select(
        ramp(x.device, 4, 3), 0, torch.arange(x.size(0), device=x.device), out=x
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_write_where_elements_may_share_memory(device, write):
    for make in OVERLAPPING.values():
        check(lambda d: write(make(d)), "write")


def halves(device, call):
    """Of one vector, its first and last two thirds."""
    x = ramp(device, 6)
    return call(x[:4], x[2:], torch.arange(4, device=device))


IN_COMMON = {
    "index_add_": lambda a, b, i: a.index_add_(0, i, b),
    "index_copy_": lambda a, b, i: a.index_copy_(0, i, b),
    "scatter_": lambda a, b, i: a.scatter_(0, i, b),
    "scatter_add_": lambda a, b, i: a.scatter_add_(0, i, b),
    "index_put_": lambda a, b, i: a.index_put_((i,), b),
    "add_": lambda a, b, i: a.add_(b),
    "same_index_add_": lambda a, b, i: a.index_add_(0, i, a),
    "same_scatter_": lambda a, b, i: a.scatter_(0, i, a),
    "index_as_self": lambda a, b, i: i.index_fill_(0, i, 2),
    "index_as_source": lambda a, b, i: i.index_add_(0, i, i),
    "gather_into_index": lambda a, b, i: torch.gather(i.clone(), 0, i, out=i),
    "take_into_index": lambda a, b, i: torch.take(i.clone(), i, out=i),
    "cumsum_into_self": lambda a, b, i: torch.cumsum(a, 0, out=a),
    "sort_into_self": lambda a, b, i: torch.sort(a, descending=True, out=(a, i)),
    "sort_indices_into_self": lambda a, b, i: torch.sort(i, out=(torch.empty_like(i), i)),
    "topk_into_self": lambda a, b, i: torch.topk(a, 4, out=(a, i)),
    "cummax_into_self": lambda a, b, i: torch.cummax(a, 0, out=(a, i)),
    "kthvalue_into_self": lambda a, b, i: torch.kthvalue(a, 2, out=(a, i)),
    "sort_outs_exchanged": lambda a, b, i: torch.sort(a, out=(i, a.clone())),
}


@pytest.mark.parametrize("call", IN_COMMON.values(), ids=IN_COMMON)
def test_operands_in_the_memory_that_is_written(device, call):
    check(lambda d: halves(d, call), "call")


BIG = 2**31
TOO_LARGE = {
    "add": lambda d: zeros(d, 1, 1).expand(BIG, 1) + zeros(d, 1, 1).expand(1, BIG),
    "add_over_2_64": lambda d: zeros(d, 1, 1).expand(2 * BIG, 1) + zeros(d, 1, 1).expand(1, 2 * BIG),
    "compare": lambda d: zeros(d, 1, 1).expand(BIG, 1) > zeros(d, 1, 1).expand(1, 4 * BIG),
    "out": lambda d: torch.add(zeros(d, 1, 1).expand(BIG, 1), zeros(d, 1, 1).expand(1, 4 * BIG), out=zeros(d, 0)),
    "expand": lambda d: zeros(d, 1, 1).expand(2**32, 2**32),
    "full": lambda d: torch.full((BIG, 4 * BIG), 1.0, device=d),
    "randn": lambda d: torch.randn(BIG, 4 * BIG, device=d),
    "cat": lambda d: torch.cat([zeros(d, 1).expand(2**62)] * 2),
    "repeat": lambda d: zeros(d, 4).repeat(2**61, 2**10),
    "pad": lambda d: functional.pad(zeros(d, 2), (2**62, 2**62)),
    "mm": lambda d: zeros(d, 1, 1).expand(BIG, 1) @ zeros(d, 1, 1).expand(1, BIG),
    "outer": lambda d: torch.outer(zeros(d, 1).expand(BIG), zeros(d, 1).expand(BIG)),
    "gather": lambda d: zeros(d, 4)[torch.zeros(1, 1, dtype=torch.long, device=d).expand(BIG, 4 * BIG)],
    "as_strided": lambda d: zeros(d, 4).as_strided((2**32, 2**32), (1, 1)),
    "as_strided_span": lambda d: zeros(d, 4).as_strided((2, 2), (2**62, 2**62)),
    "as_strided_offset": lambda d: zeros(d, 4).as_strided((2,), (1,), 2**62),
    "empty_strided": lambda d: torch.empty_strided((4, 4), (2**61, 1), device=d),
    "resize_": lambda d: zeros(d, 2).resize_(BIG, 4 * BIG),
    "interpolate": lambda d: functional.interpolate(zeros(d, 1, 1, 2, 2), size=(2**33, 2**33)),
}


@pytest.mark.parametrize("call", TOO_LARGE.values(), ids=TOO_LARGE)
def test_size_that_overflows(device, call):
    with pytest.raises(RuntimeError):
        call("cpu")
    with pytest.raises(RuntimeError):
        call(device)
    assert (ramp(device, 2) + 1).tolist() == [1, 1.25]  # the trace is as it was


def test_large_view_of_little_memory(device):
    check(lambda d: ramp(d, 1, 1).expand(BIG, BIG)[5, 7], "expand")
    check(lambda d: ramp(d, 4).as_strided((BIG, BIG), (0, 0))[5, 7], "as_strided")


REFUSED = {  # when they are called or, where the values tell, when they are read
    "interpolate to nothing": lambda d: functional.interpolate(zeros(d, 1, 2, 4, 4), size=(3, 0)),
    "interpolate nothing": lambda d: functional.interpolate(zeros(d, 1, 2, 4, 0), size=(3, 3), mode="bilinear"),
    "bincount of floats": lambda d: torch.bincount(ramp(d, 3)),
    "bincount of bools": lambda d: torch.bincount(ramp(d, 3) > 0),
    "baddbmm of matrices": lambda d: torch.baddbmm(zeros(d, 2, 2), zeros(d, 2, 2), zeros(d, 2, 2)),
    "baddbmm of one matrix": lambda d: torch.baddbmm(zeros(d, 2, 2, 2), zeros(d, 2, 2, 2), zeros(d, 2, 2)),
    "addbmm of matrices": lambda d: torch.addbmm(zeros(d, 2, 2), zeros(d, 2, 2), zeros(d, 2, 2, 2)),
    "cholesky": lambda d: torch.cholesky(-torch.eye(3, device=d)).cpu(),
    "cholesky of a batch": lambda d: torch.cholesky(zeros(d, 2, 3, 3)).sum().item(),
    "divided by zero": lambda d: (whole(d, 3, 4) // whole(d, 2, 0)).cpu(),
    "number by zero": lambda d: (7 // whole(d, 2, 0)).tolist(),
    "remainder of zero": lambda d: (whole(d, 3, 4) % whole(d, 2, 0)).tolist(),
    "remainder of a number by zero": lambda d: (7 % whole(d, 2, 0)).tolist(),
    "fmod of zero": lambda d: torch.fmod(whole(d, 3, 4), whole(d, 2, 0)).tolist(),
    "truncated by zero": lambda d: torch.div(whole(d, 3, 4), whole(d, 2, 0), rounding_mode="trunc").tolist(),
    "bools divided": lambda d: torch.div(ramp(d, 3) > 0, ramp(d, 3) > -1, rounding_mode="trunc").tolist(),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_refused_with_eagers_class(device, call):
    with pytest.raises(Exception) as expected:
        call("cpu")
    with pytest.raises(expected.type):
        call(device)


EMPTY = {
    "index": lambda d: zeros(d, 0, 3)[whole(d, 0)],
    "index_put": lambda d: zeros(d, 0, 3).index_put_((whole(d, 0),), torch.tensor(1.0, device=d)),
    "index_put_other_dim": lambda d: zeros(d, 3, 0).index_put_((whole(d, 9),), torch.tensor(1.0, device=d)),
    "index_select": lambda d: zeros(d, 3, 0).index_select(0, whole(d, 5)),
    "embedding": lambda d: functional.embedding(whole(d, 7), zeros(d, 3, 0)),
    "index_fill": lambda d: zeros(d, 0, 3).index_fill(0, whole(d, 0), 1),
    "index_copy": lambda d: zeros(d, 0, 3).index_copy(0, whole(d, 0), zeros(d, 1, 3)),
    "scatter": lambda d: zeros(d, 0, 3).scatter(0, zeros(d, 1, 3, dtype=torch.long), 1),
    "scatter_add": lambda d: zeros(d, 0, 3).scatter_add(0, zeros(d, 1, 3, dtype=torch.long), zeros(d, 1, 3)),
    "no_indices": lambda d: zeros(d, 0, 3)[whole(d)],
    "cumsum_of_booleans": lambda d: zeros(d, 0, 3, dtype=torch.bool).cumsum_(0),
    "pixel_unshuffle": lambda d: functional.pixel_unshuffle(zeros(d, 0, 1, 4, 4), 2),
    "pixel_unshuffle_channels": lambda d: functional.pixel_unshuffle(zeros(d, 1, 0, 4, 4), 2),
    "pixel_shuffle": lambda d: functional.pixel_shuffle(zeros(d, 0, 4, 2, 2), 2),
    "adaptive_avg_pool": lambda d: functional.adaptive_avg_pool2d(zeros(d, 1, 2, 4, 4), (0, 2)),
    "adaptive_max_pool": lambda d: functional.adaptive_max_pool2d(zeros(d, 1, 2, 4, 4), (0, 2)),
    "adaptive_avg_pool_1d": lambda d: functional.adaptive_avg_pool1d(zeros(d, 1, 2, 4), 0),
    "adaptive_max_pool_batch": lambda d: functional.adaptive_max_pool2d(zeros(d, 0, 2, 4, 4), (2, 2)),
}


@pytest.mark.parametrize("call", EMPTY.values(), ids=EMPTY)
def test_tensor_without_elements(device, call):
    check(call, "call")


REFUSED = {
    "set_negative_stride": lambda d: zeros(d, 0).set_(zeros(d, 6).untyped_storage(), 2, (2,), (-1,)),
    "set_negative_offset": lambda d: zeros(d, 0).set_(zeros(d, 6).untyped_storage(), -2, (2,), (1,)),
    "set_negative_size": lambda d: zeros(d, 0).set_(zeros(d, 6).untyped_storage(), 2, (-2,), (1,)),
    "as_strided_negative": lambda d: zeros(d, 6).as_strided((2,), (-1,), 3),
    "index_copy_by_int32": lambda d: zeros(d, 3).index_copy(0, whole(d, 1).int(), zeros(d, 1)),
    "index_select_of_no_rows": lambda d: zeros(d, 0, 3).index_select(0, whole(d, 0, 0)),
    "index_select_out_of_no_rows": lambda d: torch.index_select(zeros(d, 0, 3), 0, whole(d, 0, 0), out=zeros(d, 0)),
    "amax_out_dtype": lambda d: torch.amax(zeros(d, 0, 3), 0, out=zeros(d, 3, dtype=torch.bool)),
    "complex_minus_bool": lambda d: ramp(d, 2) * 1j - (ramp(d, 2) > 0),
    "complex_minus_true": lambda d: (ramp(d, 2) * 1j).sub_(True),
    "pads_that_cut_more_than_there_is": lambda d: functional.pad(zeros(d, 2, 1), (-2, 3)),
}


# Eager reads what it has just resized.
@pytest.mark.parametrize("function", [torch.sum, torch.amax, torch.logsumexp, torch.mean, torch.prod, torch.nansum])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_reduction_into_its_operand(device, function):
    y, other = ramp(device, 4, 4) + 1, ramp(device, 3) * 2
    expected = function(y.cpu(), 0)
    function(y, 0, out=y)
    torch.testing.assert_close(y.cpu(), expected)
    assert other.tolist() == (ramp("cpu", 3) * 2).tolist()


TYPES = {
    "bools added up": lambda d: (ramp(d, 3) > 0).cumsum(0, dtype=torch.bool),
    "bools multiplied up": lambda d: torch.cumprod(ramp(d, 3) > 0, 0, dtype=torch.bool),
    "float by complex matrices": lambda d: ramp(d, 2, 2) @ (ramp(d, 2, 2) * 1j),
    "matrices of two complex types": lambda d: (ramp(d, 2, 2) * 1j) @ (ramp(d, 2, 2).double() * 1j),
    "complex matrices by a vector": lambda d: torch.mv(ramp(d, 2, 2) * 1j, ramp(d, 2)),
    "complex vectors": lambda d: torch.dot(ramp(d, 2) * 1j, ramp(d, 2)),
    "common divisors of floats": lambda d: torch.gcd(whole(d, 3), ramp(d, 1)),
    "next to a complex number": lambda d: torch.nextafter(ramp(d, 2), ramp(d, 2) * 1j),
    "parts of two types": lambda d: torch.complex(ramp(d, 2), ramp(d, 2).double()),
    "softmax of complex": lambda d: torch.softmax(ramp(d, 2) * 1j, 0),
    "true minus complex": lambda d: True - ramp(d, 2) * 1j,
    "cubic samples of a volume": lambda d: functional.grid_sample(
        zeros(d, 1, 1, 2, 2, 2), zeros(d, 1, 2, 2, 2, 3), mode="bicubic", align_corners=True
    ),
    "a complex value by an index": lambda d: zeros(d, 3).__setitem__(whole(d, 2), ramp(d, 2) * 1j),
    "a value by an index of complex": lambda d: (zeros(d, 3) * 1j).__setitem__(whole(d, 2), ramp(d, 2)),
    "values of complex that do not fit": lambda d: (zeros(d, 3, 2) * 1j).index_put_((whole(d, 2),), ramp(d, 3, 2) * 1j),
    "a sum of complex products that does not fit": lambda d: torch.addmm(
        ramp(d, 4) * 1j, ramp(d, 2, 4) * 1j, ramp(d, 4, 1) * 1j
    ),
    "a number by a mask of bytes": lambda d: zeros(d, 3).__setitem__(whole(d, 1, 0, 1).to(torch.uint8), 1.0),
    "bools on the diagonal": lambda d: torch.trace(ramp(d, 2, 2) > 0),
    "bytes among bools": lambda d: torch.isin(zeros(d, 2, dtype=torch.uint8), ramp(d, 3) > 0),
    "bools among bools": lambda d: torch.isin(ramp(d, 2) > 0, ramp(d, 3) > 0),
    "where bools belong": lambda d: torch.bucketize(ramp(d, 2) > 0, ramp(d, 3) > 0),
    "complex numbers without nan": lambda d: (ramp(d, 2) * 1j).nansum(),
    "means of bools": lambda d: (ramp(d, 2) > 0).scatter_reduce(0, whole(d, 0, 1), ramp(d, 2) > 0, "mean"),
    "bools rounded down": lambda d: torch.div(ramp(d, 2) > 0, True, rounding_mode="floor"),
    "a dilated convolution of whole numbers": lambda d: functional.conv1d(
        whole(d, 1, 2, 3)[None].int(), whole(d, 1, 2)[None, None].int(), dilation=2
    ),
    "a convolution of bools": lambda d: functional.conv1d(ramp(d, 1, 3) > 0, ramp(d, 1, 1, 2) > 0),
    "a transposed convolution of whole numbers": lambda d: functional.conv_transpose1d(
        whole(d, 1, 2, 3)[None].int(), whole(d, 1, 2)[None, None].int()
    ),
    "means of a volume of halves": lambda d: functional.avg_pool3d(zeros(d, 1, 2, 2, 2, dtype=torch.float16), 2),
    "norms by no power": lambda d: ramp(d, 2, 2).renorm(0, 0, 1),
    "spaced bools": lambda d: torch.linspace(0, 2, 3, dtype=torch.bool, device=d),
    "spaced up to nan": lambda d: torch.linspace(0, float("nan"), 3, dtype=torch.int32, device=d),
}


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize("call", TYPES.values(), ids=TYPES)
def test_types_are_refused_at_the_call(device, call):
    with pytest.raises((RuntimeError, NotImplementedError)) as expected:
        call("cpu")
    with pytest.raises(expected.type):
        call(device)


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_refused_as_in_eager(device, call):
    with pytest.raises(RuntimeError) as expected:
        call("cpu")
    with pytest.raises(RuntimeError) as told:
        call(device)
    assert told.type is expected.type


OVERLAPS = {
    "add": lambda x, i: x[1:].add_(x[:-1]),
    "out": lambda x, i: torch.add(x[1:], 1, out=x[:-1]),
    "index_add": lambda x, i: x.index_add_(0, i, x[:2]),
    "index_put": lambda x, i: x.__setitem__(i, x[:2]),
    "scatter_add": lambda x, i: x.scatter_add_(0, i[None, :1], x[1:]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("call", OVERLAPS.values(), ids=OVERLAPS)
def test_what_is_written_lies_apart_from_what_is_read(device, call, dtype):
    for d in ("cpu", device):
        with pytest.raises(RuntimeError, match="single memory location"):
            call(torch.ones(3, 3, dtype=dtype, device=d), torch.tensor([0, 1], device=d))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_an_out_tensor_gets_its_size_once(device):
    def written(d):
        a, o = torch.ones(2, device=d, requires_grad=True), torch.empty(0, device=d)
        with torch.no_grad():
            torch.mul(ramp(d, 3), 2, out=a)
        torch.mul(ramp(d, 3), 2, out=o)
        return a.detach(), o, torch.tensor([a._version, o._version])

    for actual, expected in zip(written(device), written("cpu")):
        assert torch.equal(actual.cpu(), expected)


def test_lbfgs_on_one_number(device):
    def steps(d):
        x = torch.tensor(3.0, device=d, requires_grad=True)
        optimizer = torch.optim.LBFGS([x], lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
        seen = []

        def closure():
            optimizer.zero_grad()
            loss = (x - 1) ** 4 + x**2
            loss.backward()
            return loss

        for _ in range(5):
            seen += [optimizer.step(closure).detach(), x.detach().clone()]
        return seen

    check(steps, "steps")


OVERLAPS = {
    "wider": lambda b: torch.neg(b[1:3], out=b),
    "wider, from the same place": lambda b: torch.exp(b[:1], out=b),
    "of one number": lambda b: torch.neg(b[0], out=b[:2]),
    "shifted": lambda b: torch.add(b[:2], 1, out=b[1:3]),
    "where": lambda b: torch.where(b[:2] > 0, b[:2], b[2:], out=b),
}


@pytest.mark.parametrize("call", OVERLAPS.values(), ids=OVERLAPS)
def test_out_that_overlaps_an_operand_is_refused_and_keeps_its_size(call, device):
    for place in ("cpu", device):
        b = torch.arange(4.0, device=place)
        with pytest.raises(RuntimeError, match="single memory location"):
            call(b)
        assert b.tolist() == [0, 1, 2, 3]


def test_out_beside_an_operand_in_one_memory_is_written(device):
    for place in ("cpu", device):
        b = torch.arange(4.0, device=place)
        torch.add(b[:2], 1, out=b[2:])
        assert b.tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize(
    "bounds", [(-3e38, 3e38), (float("-inf"), 0.0), (0.0, float("inf")), (0.0, 1e39), (0.0, float("nan"))]
)
def test_ranges_beyond_float_are_refused(bounds, device):
    for place in ("cpu", device):
        with pytest.raises(RuntimeError, match=r"out of bounds|expects"):
            torch.empty(3, device=place).uniform_(*bounds)
