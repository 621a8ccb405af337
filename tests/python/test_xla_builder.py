"""Operations of the user's own: each method of xla_builder.Op against torch, in values and types."""

import re

import pytest
import torch

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
