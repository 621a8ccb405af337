"""Operations of the user's own: each method of xla_builder.Op against torch, in values and types."""

import re

import pytest
import torch
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_builder as xb
import torch_xla.core.xla_op_registry as xor
from torch_xla import _XLAC
from torch_xla.core.xla_builder import Op, Type


def call(device, fn, *tensors, **kwargs):
    results = xor.register("own", fn)(*(t.to(device) for t in tensors), **kwargs)
    return tuple(r.cpu() for r in results) if isinstance(results, tuple) else results.cpu()


def scalar_of(op, value):
    return Op.scalar(op.builder(), value, op.shape().dtype)


A, B = torch.arange(12.0).reshape(3, 4).sin(), torch.arange(12.0).reshape(3, 4).cos() + 1.5
N, M = torch.tensor([7, -7, 5]), torch.tensor([2, 2, 3])
P = torch.tensor([True, False, True])

CASES = [
    (lambda a, b: a + b - a * b / b, (A, B), B),
    (lambda a, b: a @ b.transpose((1, 0)), (A, B), A @ B.t()),
    (lambda a, b: a / b, (N, M), torch.tensor([3, -3, 1])),
    (lambda a, b: a % b, (N, M), torch.tensor([1, -1, 2])),
    (lambda a, b: (a & b) | (a ^ b), (N, M), N | M),
    (lambda a, b: (a << b) >> b, (N, M), N),
    (lambda a, b: b**a, (A, B), B**A),
    (lambda a, b: -a.max(b) + a.min(b), (A, B), torch.minimum(A, B) - torch.maximum(A, B)),
    (lambda a, b: a.atan2(b), (A, B), torch.atan2(A, B)),
    (lambda a: ~a, (P,), ~P),
    (lambda a, b: (a > b).select(a, b), (A, B - 1), torch.maximum(A, B - 1)),
    (lambda a, b: Op.tuple(((a == b), (a != b), (a <= b), (a < b), (a >= b))), (N, M), None),
    (
        lambda a: a.sin().cos().exp().sqrt().tanh().rsqrt().log1p(),
        (A,),
        A.sin().cos().exp().sqrt().tanh().rsqrt().log1p(),
    ),
    (
        lambda a: a.tan() + a.erf() + a.erfc() + a.expm1() + a.sinh() + a.cosh(),
        (A,),
        A.tan() + A.erf() + A.erfc() + A.expm1() + A.sinh() + A.cosh(),
    ),
    (
        lambda a: a.asin() + a.acos() + a.atan() + a.erfinf(),
        (A / 2,),
        (A / 2).asin() + (A / 2).acos() + (A / 2).atan() + (A / 2).erfinv(),
    ),
    (lambda a: a.reshape((4, 3), dimensions=(1, 0)), (A,), A.t().reshape(4, 3)),
    (lambda a: a.reshape((2, 1), inferred_dimension=1), (A,), A.reshape(2, 6)),
    (lambda a: a.broadcast((2,)), (N,), N.expand(2, 3)),
    (lambda a: a.broadcast_in_dim((3, 2), (0,)), (N,), N[:, None].expand(3, 2)),
    (lambda a: a.slice((1, 0), (3, 4), (1, 2)), (A,), A[1:3, 0:4:2]),
    (lambda a: a.slice_in_dim(1, 4, 1, 2), (A,), A[:, 1:4:2]),
    (lambda a: Op.tuple((a.floor(), a.ceil())), (A,), (A.floor(), A.ceil())),
    (lambda a: a.rev((1,)), (A,), A.flip(1)),
    (lambda a, v: a.pad(v, ((1, 2, 0), (-1, 0, 1))), (A, torch.tensor(9.0)), None),
    (lambda a: a.cast(Type.BF16), (A,), A.bfloat16()),
    (lambda a: a.bitcast(Type.S32), (A,), A.view(torch.int32)),
    (lambda a: a.clamp(scalar_of(a, -0.5), scalar_of(a, 0.5)), (A,), A.clamp(-0.5, 0.5)),
    (lambda a: a.ones_like() + a.zeros_like() + a.scalar_like(2), (A,), torch.full_like(A, 3)),
    (lambda a: a.get_dimension_size(1), (A,), torch.tensor(4, dtype=torch.int32)),
    (lambda a, b: Op.concat_in_dim((a, b), 1), (A, B), torch.cat([A, B], 1)),
    (
        lambda a: Op.iota(a.builder(), xb.mkshape(Type.S32, (2, 3)), 1),
        (A,),
        torch.arange(3, dtype=torch.int32).expand(2, 3),
    ),
    (lambda a: a + Op.constant(a.builder(), torch.ones(4)), (A,), A + 1),
    (lambda a: a * Op.one(a.builder(), Type.F32) + Op.zero(a.builder(), Type.F32), (A,), A),
    (lambda a: a.reduce(scalar_of(a, 1), lambda x, y: x + y, (1,)), (A,), A.sum(1) + 1),
    (lambda a: a.reduce_all(scalar_of(a, -9), lambda x, y: x.max(y)), (A,), A.max()),
    (lambda a, b: Op.map((a, b), lambda x, y: x * y, (0, 1)), (A, B), A * B),
    (lambda a, b: Op.call(lambda x, y: x - y, (a, b)), (A, B), A - B),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_method(device, case):
    fn, operands, want = CASES[case]
    got = call(device, fn, *operands)
    if case == 11:
        want = (N == M, N != M, N <= M, N < M, N >= M)
    elif want is None:
        want = torch.full((6, 6), 9.0)
        want[1:4, 1::2] = A[:, 1:]
    torch.testing.assert_close(got, want)


# ---- Convolutions, windows ----
X, W = torch.randn(2, 4, 7, 6), torch.randn(6, 4, 3, 2)


@pytest.mark.parametrize(
    "fn, tensors, want",
    [
        (lambda x, w: x.conv(w, (2, 1)), (X, W), lambda: F.conv2d(X, W, stride=(2, 1))),
        (
            lambda x, w: x.conv_with_general_padding(w, (1, 1), ((1, 1), (0, 2))),
            (X, W),
            lambda: F.conv2d(F.pad(X, (0, 2, 1, 1)), W),
        ),
        (
            lambda x, w: x.conv(w, (1, 2), feature_group_count=2, padding="same"),
            (X, W[:, :2]),
            lambda: F.conv2d(F.pad(X, (0, 0, 1, 1)), W[:, :2], stride=(1, 2), groups=2),
        ),
        (
            lambda x, w: x.conv_with_general_padding(w, (1, 1), ((-1, 0), (0, -2))),
            (X, W),
            lambda: F.conv2d(X[:, :, 1:, :-2], W),
        ),
        (
            lambda x, w: x.conv_with_general_dimensions(w, (1, 1), 0, 3, 2, 3, 0, 3, (1, 2), (0, 1), (1, 2)),
            (X.permute(0, 2, 3, 1), W.permute(2, 3, 1, 0)),
            lambda: F.conv2d(X, W).permute(0, 2, 3, 1),
        ),
        (
            lambda x, w: x.conv_general(w, (1, 1), ((1, 1), (1, 1)), 1, 0, 1, 0, 1, 0, (2, 3), (2, 3), (2, 3)),
            (X.transpose(0, 1), W),
            lambda: F.conv2d(X, W, padding=1).transpose(0, 1),
        ),
        (
            lambda x, w: x.conv_general_dilated(
                w, (1, 1), ((2, 2), (1, 1)), (2, 1), (1, 2), 0, 1, 1, 0, 0, 1, (2, 3), (2, 3), (2, 3)
            ),
            (X, W),
            lambda: F.conv2d(
                F.pad(torch.stack([X, X * 0], 3).flatten(2, 3)[:, :, :-1], (1, 1, 2, 2)), W, dilation=(1, 2)
            ),
        ),
        (
            lambda x, w: x.conv(w, (1, 1), batch_group_count=2),
            (X, W),
            lambda: torch.cat([F.conv2d(X[:1], W[:3]), F.conv2d(X[1:], W[3:])], 1),
        ),
        (lambda x, w: x.conv(w, (2,)), (X[..., 0], W[..., 0]), lambda: F.conv1d(X[..., 0], W[..., 0], stride=2)),
        (lambda x, w: x.conv(w, ()), (X[..., 0, 0], W[..., 0, 0]), lambda: X[..., 0, 0] @ W[..., 0, 0].t()),
        (
            lambda x, w: x.conv(w, (1, 1)),
            (X.mul(9).int(), W.mul(9).int()),
            lambda: F.conv2d(X.mul(9).int().double(), W.mul(9).int().double()).int(),
        ),
    ],
)
def test_convolutions(device, fn, tensors, want):
    torch.testing.assert_close(call(device, fn, *tensors), want(), rtol=1e-4, atol=1e-4)


def test_a_convolution_of_four_dims_of_space(device):
    with pytest.raises(NotImplementedError, match="three dims of space at most, but got 4"):
        call(device, lambda x: x.conv(x, (1, 1, 1, 1)), torch.ones(1, 1, 1, 1, 1, 1))


def largest(a, b):
    return a.max(b)


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_reductions_of_windows(device, padding):
    def sums(x):
        return x.reduce_window(scalar_of(x, 0), lambda a, b: a + b, (1, 1, 3, 2), (1, 1, 2, 2), padding)

    def pooled(x):
        return x.max_pool((1, 1, 3, 2), (1, 1, 2, 2), 0, 1, (2, 3), padding)

    whole = F.pad(X, (0, 0, 1, 1)) if padding == "same" else X
    want = F.avg_pool2d(whole, (3, 2), 2, divisor_override=1)
    torch.testing.assert_close(call(device, sums, X), want)
    lowest = F.pad(X, (0, 0, 1, 1), value=-torch.inf) if padding == "same" else X
    assert torch.equal(call(device, pooled, X), F.max_pool2d(lowest, (3, 2), 2))
    counts = X.mul(50).to(torch.int32)
    assert torch.equal(
        call(device, pooled, counts), F.max_pool2d(lowest.mul(50).clamp(-1e9), (3, 2), 2).to(torch.int32)
    )


def test_a_padding_that_is_not_known(device):
    with pytest.raises(ValueError, match="'full' is not known; it can be 'valid' or 'same'"):
        call(device, lambda x: x.max_pool((2,), (1,), 0, 0, (0,), "full"), torch.ones(4))


@pytest.mark.parametrize("pads", ["valid", ((0, 0), (0, 0), (1, 1), (0, 1))])
def test_scatters_to_what_windows_select(device, pads):
    x = X.clone().requires_grad_()
    padded = F.pad(x, (0, 1, 1, 1), value=-torch.inf) if pads != "valid" else x
    pooled = F.max_pool2d(padded, (3, 2), (2, 1))
    source = torch.randn_like(pooled)
    pooled.backward(source)

    def fn(x, source):
        windows = (1, 1, 3, 2), (1, 1, 2, 1)
        return x.select_and_scatter(
            source, scalar_of(x, 0), *windows, lambda a, b: a >= b, lambda a, b: a + b, padding=pads
        )

    torch.testing.assert_close(call(device, fn, X, source), x.grad)


def test_select_and_scatter_by_other_functions(device):
    x, source = torch.tensor([3.0, 1, 2, 1, 5]), torch.tensor([7.0, -2])

    def fn(x, source):
        return x.select_and_scatter_with_general_padding(
            source, scalar_of(x, 1), (3,), (2,), lambda a, b: a <= b, largest, ((0, 0),)
        )

    assert call(device, fn, x, source).tolist() == [1, 7, 1, 1, 1]  # of equal ones the first; 1 is more than -2


# ---- Indices, order, bits ----
@pytest.mark.parametrize(
    "tensors, numbers, want",
    [
        ((A, torch.tensor([2, 0, 9])), ((1,), (0,), (0,), 1), lambda: A[[2, 0, 2]]),
        ((A, torch.tensor([[1], [-3]])), ((0,), (1,), (1,), 1), lambda: A[:, [1, 0]]),
        ((A, torch.tensor([[2, 3], [0, 1]])), ((), (0, 1), (0, 1), 1), lambda: A[[2, 0], [3, 1]]),
        ((A, torch.tensor([[2, 0], [3, 1]])), ((), (0, 1), (0, 1), 0), lambda: A[[2, 0], [3, 1]]),
    ],
)
def test_gather(device, tensors, numbers, want):
    assert torch.equal(call(device, lambda x, i: x.gather(i, *numbers), *tensors), want())


def test_gathered_windows(device):
    def fn(x, i):
        return x.gather(i, (1, 2), (), (0, 1), 1, slice_sizes=(2, 3))

    got = call(device, fn, A, torch.tensor([[0, 1], [5, 5]]))
    assert torch.equal(got, torch.stack([A[0:2, 1:4], A[1:3, 1:4]]))


def test_scatter(device):
    rows, updates = torch.tensor([[1], [0], [1], [7]]), torch.randn(4, 4)

    def fn(computation):
        return lambda x, i, u: x.scatter(i, u, computation, (1,), (0,), (0,), 1)

    want = A.index_add(0, rows[:3, 0], updates[:3])
    torch.testing.assert_close(call(device, fn(lambda a, b: a + b), A, rows, updates), want)
    want = A.scatter_reduce(0, rows[:3].expand(3, 4), updates[:3], "amax")
    assert torch.equal(call(device, fn(largest), A, rows, updates), want)
    want = A.clone()
    want[1], want[0] = updates[2], updates[1]
    assert torch.equal(call(device, fn(lambda old, new: new), A, rows, updates), want)


def test_scatter_of_windows_and_computations(device):
    add = xb.create_computation("add", lambda a, b: a + b, [xb.mkshape(Type.F32, ())] * 2)

    def fn(x, i, u):
        return x.scatter(i, u, add, (0, 1), (), (0, 1), 0)

    want = A.clone()
    want[1:3, 2:4] += B[:2, :2]
    torch.testing.assert_close(call(device, fn, A, torch.tensor([1, 2]), B[:2, :2]), want)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_sort(device, dim):
    keys, values = torch.randint(0, 5, (11, 9)), torch.randn(11, 9)

    def fn(k, v):
        return Op.sort((k, v), lambda a0, b0, a1, b1: a0 > b0, dim)

    want, order = torch.sort(keys, dim=-1 if dim is None else dim, descending=True, stable=True)
    got, moved = call(device, fn, keys, values)
    assert torch.equal(got, want) and torch.equal(moved, values.gather(-1 if dim is None else dim, order))
    assert torch.equal(
        call(device, lambda v: Op.sort((v,), lambda a, b: a < b, dim), values),
        values.sort(-1 if dim is None else dim)[0],
    )


@pytest.mark.parametrize("count", [0, 1, 2])
def test_sort_of_few(device, count):
    few = torch.tensor([2.0, 1.0][:count])
    assert torch.equal(call(device, lambda v: Op.sort((v,), lambda a, b: a < b), few), few.sort()[0])


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_leading_zeros(device, dtype):
    bits = torch.iinfo(dtype).bits
    numbers = [0, 1, 2, 3, 100, torch.iinfo(dtype).max] + [-1, -100] * dtype.is_signed
    want = [0 if n < 0 else bits - n.bit_length() for n in numbers]
    got = call(device, lambda x: x.clz(), torch.tensor(numbers, dtype=dtype))
    assert got.dtype == dtype and got.tolist() == want
    with pytest.raises(TypeError, match=r"bits of integers, but got torch\.float32"):
        call(device, lambda x: x.clz(), torch.ones(2))


def test_sizes_that_programs_call_dynamic(device):
    shape = xb.mkshape(Type.F32, (2, 3), (True, False))
    assert shape.is_dynamic() and shape.dynamic_dimensions == (True, False) and shape.sizes == (2, 3)
    assert not xb.mkshape(Type.F32, (2, 3)).is_dynamic()
    assert torch.equal(call(device, lambda x: x.dynamic_reshape((4, 3)), A), A.reshape(4, 3))
    with pytest.raises(NotImplementedError, match="no size that is set by a value"):
        call(device, lambda x: x.set_dimension_size(scalar_of(x, 1), 0), A)


def test_dynamic_slices_are_moved_inside(device):
    x, update = torch.arange(12).reshape(3, 4), -torch.ones(2, 2, dtype=torch.int64)
    for row, col in ((0, 1), (2, 3), (-5, 9)):
        starts = (torch.tensor(row), torch.tensor(col))
        r, c = min(max(row, 0), 1), min(max(col, 0), 2)
        got = call(device, lambda a, i, j: a.dynamic_slice((i, j), (2, 2)), x, *starts)
        assert torch.equal(got, x[r : r + 2, c : c + 2])
        want = x.clone()
        want[r : r + 2, c : c + 2] = update
        assert torch.equal(call(device, lambda a, u, i, j: a.dynamic_update_slice(u, (i, j)), x, update, *starts), want)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_triangular_solve(device, lower, transpose):
    a = torch.randn(3, 3).tril() + 3 * torch.eye(3) if lower else torch.randn(3, 3).triu() + 3 * torch.eye(3)
    b = torch.randn(3, 2)
    x = call(device, lambda a, b: a.triangualr_solve(b, True, lower, False, transpose), a, b)  # codespell:ignore
    torch.testing.assert_close((a.t() if transpose else a) @ x, b)


@pytest.mark.parametrize(("k0", "want"), [(0.1, A + B), (0.9, A - B)])
def test_conditional(device, k0, want):
    def fn(k, a, b, k0=None):
        return (k > scalar_of(k, k0)).mkconditional((a, b), lambda a, b: a + b, lambda a, b: a - b)

    torch.testing.assert_close(call(device, fn, torch.tensor(0.2), A, B, k0=k0), want)


def test_while(device):
    def fn(a, b, limit=None):
        def body(count, a, b):
            return Op.tuple((count + scalar_of(count, 1), a + b, b))

        zero = Op.scalar(a.builder(), 0, Type.S32)
        return Op.mkwhile((zero, a, b), lambda count, a, b: count < scalar_of(count, limit), body).get_tuple_element(1)

    torch.testing.assert_close(call(device, fn, A, B, limit=10), A + 10 * B)


def test_an_operation_with_a_gradient(device, compiles):
    forward = xor.register("square", lambda x: x * x)
    backward = xor.register("square_backward", lambda g, x: g * x * x.scalar_like(2))

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, g):
            return backward(g, *ctx.saved_tensors)

    x = torch.arange(3.0, device=device, requires_grad=True)
    torch_xla.sync()
    compiles.reset()
    y = Square.apply(x)
    y.sum().backward()
    torch_xla.sync()
    assert compiles.value == 1
    assert y.tolist() == [0, 1, 4]
    assert x.grad.tolist() == [0, 2, 4]


def test_computations(device):
    a = torch.ones(2, device=device)
    computation = xb.create_computation("twice", lambda x: Op.tuple([x + x]), [xb.tensor_shape(a)])
    assert torch_xla._XLAC._xla_user_computation("xla::_op_twice", [a], computation)[0].tolist() == [2, 2]
    with pytest.raises(ValueError, match=r"takes .*2.* but got .*3"):
        computation([torch.ones(3, device=device)])


def test_types():
    for name, dtype in xb._XLA_PT_TYPE_MAP.items():
        assert Op.to_torch_type(name) == dtype
        assert Op.from_torch_type(dtype) == name
    shape = xb.mkshape(Type.F32, (2, 3))
    assert (shape.rank, shape.sizes, shape.dtype, shape.as_scalar().sizes) == (2, (2, 3), "f32", ())
    assert xb.Shape.create(Type.F32, [2, 3]).shape == shape.shape
    assert Op.scalar(xb.create_builder("numbers"), 2, Type.S32).op.tolist() == 2


def test_refused_operands(device):
    add = xor.register("add", lambda a, b: a + b)
    with pytest.raises(TypeError, match="one type, but got f32 and s64"):
        add(torch.ones(2, device=device), torch.ones(2, dtype=torch.int64, device=device))
    with pytest.raises(ValueError, match="xla device is wanted, but got cpu"):
        add(torch.ones(2), torch.ones(2))
    with pytest.raises(ValueError, match="2 dims needs as many"):
        xor.register("pad", lambda a, v: a.pad(v, ((0, 0, 0),)))(
            torch.ones(2, 2, device=device), torch.ones((), device=device)
        )


# ---- Functions of the original's bindings ----
@pytest.mark.parametrize(
    "shapes, numbers, equation",
    [
        (((2, 3), (3, 4)), (([1], [0]), ()), "ij,jk->ik"),
        (((5, 2, 3), (4, 3)), (([-1], [-1]), ()), "bij,kj->bik"),
        (((5, 2, 3), (5, 3, 4)), (([2], [1]), ([0], [0])), "bij,bjk->bik"),
        (((2, 3, 5), (3, 5, 2)), (([1, 0], [0, 2]), ([2], [1])), "ijb,jbi->b"),
        (((2,), (3,)), (([], []), ()), "i,j->ij"),
    ],
)
def test_dot_general(device, shapes, numbers, equation):
    a, b = (torch.randn(shape) for shape in shapes)
    product = _XLAC._xla_dot_general(a.to(device), b.to(device), numbers)
    assert torch.allclose(product.cpu(), torch.einsum(equation, a, b), atol=1e-5)


def test_dot_general_of_bytes_sums_in_the_wanted_type(device):
    a, b = torch.full((2, 300), 100, dtype=torch.int8), torch.full((300, 4), -100, dtype=torch.int8)
    wanted = torch.full((2, 4), -3_000_000, dtype=torch.int32)
    numbers = (([1], [0]), ())
    product = _XLAC._xla_dot_general(a.to(device), b.to(device), numbers, preferred_element_type=torch.int32)
    assert product.dtype == torch.int32 and torch.equal(product.cpu(), wanted)
    with pytest.raises(RuntimeError, match="size 4 for operand 1 which does not broadcast"):
        _XLAC._xla_dot_general(a.to(device), b[:4].to(device), numbers)


def test_the_size_of_a_dim_as_a_number_of_the_device(device):
    found = torch.nonzero(torch.tensor([0, 3, 0, 5, 6], device=device))
    size = _XLAC._get_xla_tensor_dimension_size(found, 0)
    assert size.device.type == "xla" and size.dtype == torch.int32 and size.item() == 3
    with pytest.raises(IndexError):
        _XLAC._get_xla_tensor_dimension_size(found, 2)


def test_git_revisions():
    revisions = _XLAC._get_git_revs()
    assert set(revisions) == {"xla", "torch"} and re.fullmatch("[0-9a-f]{40}|", revisions["xla"])
    assert revisions["torch"] == torch.version.git_version
