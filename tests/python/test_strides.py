"""New results lie in memory as eager's do: strides of operations, of advanced indexing and of out tensors."""

import copy
import itertools

import pytest
import torch
from eager import check, strides
from torch.nn import functional as F

import torch_xla

PLACES = torch.tensor([2, 0])


def lay_out(device):
    """4-D tensors of three rows at least in many memory orders."""
    base = (torch.arange(3 * 4 * 6 * 8.0) % 7 - 3).reshape(3, 4, 6, 8).to(device)
    yield "contiguous", base
    yield "permuted", base.permute(3, 1, 2, 0)
    yield "channels_last", base.contiguous(memory_format=torch.channels_last)
    yield "narrow", base.permute(0, 3, 1, 2)[:, 1:5]
    yield "step", base.permute(0, 3, 1, 2)[:, ::2]
    yield "expanded", base[:, :1].expand(3, 4, 6, 8)
    yield "expanded_and_permuted", base.permute(1, 0, 3, 2)[:, :1].expand(4, 3, 8, 6)


def places(x):
    return PLACES.to(x.device)


OPERATIONS = {
    "masked_fill": lambda x: x.masked_fill(x > 0, 3),
    "masked_fill_by_tensor": lambda x: x.masked_fill(x > 0, torch.ones((), device=x.device)),
    "where": lambda x: torch.where(x > 0, x, 1),
    "where_of_expanded": lambda x: torch.where((x > 0)[:, :1].expand_as(x), x, 0.0),
    "complex_index": lambda x: (x + 0j)[torch.stack([places(x)] * 3).T],
    "complex_pad": lambda x: F.pad(x + 0j, (1, 1, 1, 1), mode="reflect"),
    "mixed": lambda x: x.bfloat16() + x,
    "beside_complex": lambda x: x[:1].expand_as(x) + x.transpose(0, 3).contiguous().transpose(0, 3) * 1j,
    "rsub": lambda x: torch.rsub(x, x.contiguous()),
    "power_of_number": lambda x: 2**x,
    "power": lambda x: x**2,
    "sort": lambda x: x.sort(stable=True, dim=1).values,
    "order": lambda x: x.sort(stable=True, dim=1).indices,
    "roll": lambda x: x.roll(1, 1),
    "roll_two": lambda x: x.roll((1, 1), (1, 2)),
    "roll_flat": lambda x: x.roll(1),
    "flip": lambda x: x.flip(1),
    "glu": lambda x: F.glu(x, 2),
    "prelu": lambda x: F.prelu(x, x.new_ones(1)),
    "dropout": lambda x: F.dropout(x, 0.5),
    "mse_loss": lambda x: F.mse_loss(x, x.cos(), reduction="none"),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x.cos(), reduction="none"),
    "huber_loss": lambda x: F.huber_loss(x, x.cos(), reduction="none"),
    "mean_loss": lambda x: F.mse_loss(x, x.cos()),
    "cross_entropy": lambda x: F.binary_cross_entropy(x.sigmoid(), x.cos().abs(), reduction="none"),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "fake_quantize": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127),
    "fake_quantize_channels": lambda x: torch.fake_quantize_per_channel_affine(
        x, x.new_ones(x.shape[1]), x.new_zeros(x.shape[1], dtype=torch.int32), 1, -128, 127
    ),
    "group_norm": lambda x: F.group_norm(x, 1),
    "index_fill": lambda x: x.index_fill(1, places(x), 2),
    "index_put": lambda x: x.index_put((places(x),), torch.ones((), device=x.device)),
    "index_add": lambda x: x.index_add(0, places(x), x[:2]),
    "index_select": lambda x: x.index_select(1, places(x)),
    "scatter": lambda x: x.scatter(1, torch.zeros_like(x, dtype=torch.int64), 2),
    "cumsum": lambda x: x.cumsum(1),
    "softmax": lambda x: x.softmax(1),
    "cat": lambda x: torch.cat([x, x], 1),
    "pad": lambda x: F.pad(x, (1, -1, 0, 1)),
    "pad_takes_away": lambda x: F.pad(x, (-1, 0, 0, -1)),
    "pad_of_nothing": lambda x: F.pad(x, (0, 0)),
    "erfinv": lambda x: x.tanh().erfinv(),
    "lgamma": lambda x: x.lgamma(),
    "channel_shuffle": lambda x: F.channel_shuffle(x, x.shape[1]),
    "bicubic": lambda x: F.interpolate(x, size=(9, 9), mode="bicubic"),
    "fft": lambda x: torch.fft.fft(x, dim=1),
    "fftn": lambda x: torch.fft.fftn(x + 0j, dim=(2, 0, 1)),
    "all_of_fftn": torch.fft.fftn,
    "ifft2": torch.fft.ifft2,
    "rfft2": torch.fft.rfft2,
    "rfftn": torch.fft.rfftn,
    "rfftn_of_two": lambda x: torch.fft.rfftn(x, dim=(1, 0)),
    "irfftn": lambda x: torch.fft.irfftn(x + 0j),
    "hfft2": lambda x: torch.fft.hfft2(x + 0j, dim=(0, 2)),
}

INDICES = {
    "first": lambda i: (i,),
    "last": lambda i: (..., i),
    "middle": lambda i: (slice(None), i),
    "int32": lambda i: (slice(None), i.int()),
    "two": lambda i: (slice(None), i, i),
    "broadcast": lambda i: (i[:, None], i),
    "broadcast_int32": lambda i: (i[:, None].int(), i.int()),
    "permuted": lambda i: (slice(None), torch.stack([i, i, i]).T),
    "one": lambda i: (slice(None), i[:1]),
    "apart": lambda i: (i, slice(None), i),
    "matrices_apart": lambda i: (slice(None), torch.stack([i, i]), slice(None), i),
    "beside_none": lambda i: (None, 1, i),
    "all": lambda i: (i, i, i, i),
}


def check_strides(function, device):
    for (layout, x), (_, y) in zip(lay_out("cpu"), lay_out(device)):
        assert strides(function(y)) == strides(function(x)), layout


def test_the_batch_norm_of_one_channel_is_row_major(device):
    """In eager it is: its memory has both orders."""
    for d in ("cpu", device):
        x = torch.randn(2, 8, 8, 1).permute(0, 3, 1, 2).to(d)
        assert F.conv2d(F.batch_norm(x, None, None, training=True), x[:1, :, :3, :3]).is_contiguous()


@pytest.mark.parametrize("function", OPERATIONS.values(), ids=OPERATIONS)
def test_results(device, function):
    check_strides(function, device)


# Indices have no gradient; of group norm's PyTorch makes the operands contiguous on all devices but the CPU.
@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - {"order", "group_norm"}))
def test_gradients(device, name):
    def gradient(x):
        x = x.detach().requires_grad_()
        y = OPERATIONS[name](x)
        return torch.autograd.grad(y, x, torch.ones_like(y))[0]

    check_strides(gradient, device)


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_advanced_indexing(device, index):
    check_strides(lambda x: x[index(places(x))], device)


FACTORS = {
    "svd": lambda x: torch.linalg.svd(x, full_matrices=False),
    "all of svd": torch.linalg.svd,
    "eig": lambda x: torch.linalg.eig(x[..., :2, :2]),
    "geqrf": torch.geqrf,
    "qr": torch.linalg.qr,
    "eigh": lambda x: torch.linalg.eigh(x[..., :2, :2]),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors_of_matrices(device, name):
    x = torch.linspace(-1, 1, 24).sin()
    for dims in ((4, 6), (6, 4), (2, 4, 3)):
        expected, actual = (FACTORS[name](x.reshape(dims).to(d)) for d in ("cpu", device))
        assert [strides(t) for t in actual] == [strides(t) for t in expected], dims
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(a.cpu().abs(), b.abs(), rtol=1e-4, atol=1e-4)
    u, out = torch.linalg.svd(x.reshape(4, 6).to(device)).U, torch.empty(0, device=device)
    torch.linalg.svd(
        x.reshape(4, 6).to(device), out=(out, torch.empty(0, device=device), torch.empty(0, device=device))
    )
    assert strides(out) == strides(u)


MATRICES = {  # of strides that are not row-major
    "factor": lambda a, b: torch.linalg.cholesky(a @ a.mT + torch.eye(len(a), device=a.device)),
    "solution": torch.linalg.solve,
    "transposed": lambda a, b: (a * 2).mT,
    "of_transposed": lambda a, b: a.mT * 2,
    "step": lambda a, b: torch.stack([a, b], -1)[..., 0],
    "row_major": lambda a, b: torch.linalg.solve(a, b).contiguous(),
}
DETERMINANTS = {
    "det": torch.linalg.det,
    "slogdet": lambda a: torch.linalg.slogdet(a)[1],
    "logdet": lambda a: torch.logdet(a @ a.mT),
    "batch": lambda a: torch.linalg.det(torch.stack([a, a.mT], -1).permute(2, 1, 0)).prod(),
    "solve": lambda a: torch.linalg.solve(a, a.cos()).sin().sum(),
    "solve_right": lambda a: torch.linalg.solve(a, a.cos()[:2], left=False).sin().sum(),
    "solve_vector": lambda a: torch.linalg.solve(a, a.cos()[1]).sin().sum(),
    "solve_vectors": lambda a: torch.linalg.solve(a.expand(3, 5, 5), a.cos()[:3]).sin().sum(),
}


# ATen's gradients ask the order of the matrix to know what the forward has factored.
@pytest.mark.parametrize("runs_before", [False, True])
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("name", DETERMINANTS)
def test_gradients_of_factored_matrices(device, name, matrix, runs_before):
    torch.manual_seed(0)
    a, b = torch.randn(5, 5, dtype=torch.float64), torch.randn(5, 5, dtype=torch.float64)

    def program(d):
        x = MATRICES[matrix](a.to(d), b.to(d)).detach().requires_grad_()
        if runs_before:
            with torch.no_grad():
                x.mul_(1.5)
            torch_xla.sync()
        value = DETERMINANTS[name](x)
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        return value, first, torch.autograd.grad(first.square().sum(), x)

    check(program, tolerance=1e-7)


def test_gradient_penalty_of_normalized_weights(device):
    """ATen's kernel of weight_norm's gradient takes a gradient in any order for row-major."""
    torch.manual_seed(0)
    values = torch.randn(4, 4, 3), torch.rand(4, 1, 1), torch.randn(2, 4, 11)

    def program(d):
        v, g, x = (t.detach().to(d).requires_grad_() for t in values)
        (slope,) = torch.autograd.grad(torch.conv1d(x, torch._weight_norm(v, g, 0)).sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), (v, g))

    check(program)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_normalized_weights_of_16_bits(device, dtype):
    """ATen's kernel gives float32 norms, which its gradient wants."""
    torch.manual_seed(0)
    eager = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4)).to(dtype)
    ours = copy.deepcopy(eager).to(device)
    for model, d in ((eager, "cpu"), (ours, device)):
        model(torch.ones(2, 3, dtype=dtype, device=d)).sum().backward()
    for expected, actual in zip(eager.parameters(), ours.parameters()):
        torch.testing.assert_close(actual.grad.cpu(), expected.grad)


def test_products_with_packed_weights_of_a_transposed_matrix(device):
    weight, scales = torch.randint(-9, 9, (6, 32), dtype=torch.int8), torch.rand(6)
    a = torch.randn(32, 4)
    expected = torch._weight_int8pack_mm(a.t().contiguous(), weight, scales)
    actual = torch._weight_int8pack_mm(a.to(device).t().contiguous(), weight.to(device), scales.to(device))
    torch.testing.assert_close(actual.cpu(), expected)


def test_factors_follow_the_order_of_the_matrix(device):
    torch.manual_seed(0)
    a = torch.randn(2, 4, 4)
    for x in (a, a.mT.contiguous().mT, a + 1j, (a + 1j).mT.contiguous().mT):
        for function in (
            torch._linalg_det,
            torch._linalg_slogdet,
            lambda x: torch._linalg_solve_ex(x, x[..., :2].cos()),
        ):
            for actual, expected in zip(function(x.to(device)), function(x), strict=True):
                torch.testing.assert_close(actual.cpu(), expected)
                assert strides(actual) == strides(expected)


# A dense tensor of one image is channels-last whatever its first stride, and its results have the stride of one.
def test_one_image(device):
    orders = [
        ((1, 8, 4, 4), (8, 1, 32, 8)),
        ((1, 4, 6), (1, 1, 4)),
        ((4, 1, 6), (1, 2, 4)),
        ((2, 1, 4, 4), (16, 1, 4, 1)),
    ]
    for shape, order in [*orders, ((1, 2), (1, 1)), ((2, 1, 3), (3, 1, 1)), ((1, 5, 1), (2, 1, 7))]:
        for function in (
            torch.exp,
            lambda x: x + x,
            lambda x: torch.where(x.bool(), x, x),
            lambda x: x * 2,
            lambda x: x > 0,
            lambda x: torch.where(x > 0, x, 0.0),
            lambda x: 2 - x,
            lambda x: x.pow(2),
            lambda x: x.clamp(0, 1),
            lambda x: torch.lerp(x, x, 0.5),
            lambda x: torch.add(x, x, alpha=2),
            torch.clone,
        ):
            actual, expected = (function(torch.empty_strided(shape, order, device=d).fill_(1)) for d in (device, "cpu"))
            assert actual.stride() == expected.stride(), (shape, order)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3), (0, 1, 3, 2), (0, 3, 1, 2), (0, 2, 3, 1)])
@pytest.mark.parametrize("keys", [None, (0, 1, 3, 2)])
def test_attention(device, order, keys):
    def attend(d):
        q, k = (torch.linspace(-1, 1, 2 * 3 * 4 * 5).sin().to(d) for _ in range(2))

        def seen(x, order):
            lies = [(2, 3, 4, 5)[i] for i in order]
            return x.view(lies).permute([order.index(i) for i in range(4)])

        return F.scaled_dot_product_attention(seen(q, order), *[seen(k, keys or order)] * 2)

    check(attend, order=True)


POOLS = {
    "max": lambda x, rank: getattr(F, f"max_pool{rank}d")(x, 2),
    "mean": lambda x, rank: getattr(F, f"avg_pool{rank}d")(x, 2),
    "adaptive_mean": lambda x, rank: getattr(F, f"adaptive_avg_pool{rank}d")(x, 3),
    "adaptive_max": lambda x, rank: getattr(F, f"adaptive_max_pool{rank}d")(x, 3),
    "prelu": lambda x, rank: F.prelu(x, torch.full((3,), 0.3, device=x.device)),
}


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("pool", POOLS)
def test_pools_and_their_gradients(device, pool, rank):
    formats = (torch.contiguous_format, torch.channels_last if rank == 2 else torch.channels_last_3d)
    base = torch.linspace(-1, 1, 2 * 3 * 6**rank).sin().view(2, 3, *[6] * rank)
    for x_format, gradient_format in itertools.product(formats, formats):

        def program(d, x_format=x_format, gradient_format=gradient_format):
            x = base.contiguous(memory_format=x_format).to(d).requires_grad_()
            y = POOLS[pool](x, rank)
            gradient = y.detach().cos().contiguous(memory_format=gradient_format)
            return y, torch.autograd.grad(y, x, gradient)

        check(program, order=True)


SEARCHES = {
    "lstsq": lambda x: torch.linalg.lstsq(x, x[..., :2]).solution,
    "nonzero": lambda x: (x > 0).nonzero(),
    "nonzero_of_one_dim": lambda x: (x.flatten() > 0).nonzero(),
    "nonzero_of_none": lambda x: (x > 9).nonzero(),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_results_of_the_cpu(device, name):
    torch.manual_seed(0)
    for dims in ((6, 4), (2, 6, 4), (4, 4), (3, 5)):
        x = torch.randn(dims)
        expected, actual = SEARCHES[name](x), SEARCHES[name](x.to(device))
        assert actual.stride() == expected.stride(), dims
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(actual.contiguous().cpu() * 2, expected * 2, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("name", ["conv2d", "conv3d", "conv_transpose3d", "dilated"])
def test_convolutions_in_the_format_of_their_kernel(device, name, images, dtype):
    rank = 2 if name == "conv2d" else 3
    form = torch.channels_last if rank == 2 else torch.channels_last_3d
    torch.manual_seed(0)
    x = torch.randn(images, 4, *(5, 6, 7)[:rank], dtype=dtype)
    weight = torch.randn(4, 4, *(2, 3, 3)[:rank], dtype=dtype)
    function = F.conv3d if name == "dilated" else getattr(F, name)
    for formats in ((form, torch.contiguous_format), (torch.contiguous_format, form), (form, form)):

        def program(d, formats=formats):
            operands = [t.to(d, memory_format=f).requires_grad_() for t, f in zip((x, weight), formats, strict=True)]
            y = function(*operands, dilation=2 if name == "dilated" else 1)
            return y, torch.autograd.grad(y, operands, torch.ones_like(y))

        check(program, str(formats), tolerance=1e-4, order=True)


STATES = {
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "channels_last_later": lambda x: (x + 0).to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(0, 3) * 2,
    "with_dims_of_one": lambda x: x[:1].permute(0, 2, 3, 1) * 2,
}


@pytest.mark.parametrize("fails", [False, pytest.param(True, id="a step fails", marks=pytest.mark.checks_values)])
@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_values_that_live_over_steps_in_another_order(device, state, fails):
    """As images and weights in channels_last do: read, written in part, added to, shared, saved."""

    def steps(d):
        x = torch.arange(3 * 4 * 5 * 6.0).reshape(3, 4, 5, 6).sin().to(d)
        y = state(x)
        torch_xla.sync()
        kept = [y.clone(), y.contiguous(), y * 1, y.detach()]
        for step in range(3):
            y = y * 0.5 + step
            y[..., 1:3].add_(1)
            y.mul_(1.5)
            if fails and d != "cpu":
                bad = y.flatten()[torch.tensor([10**6], device=d)]
                with pytest.raises(IndexError):
                    bad.cpu()
            torch_xla.sync()
            kept += [y.clone(), y.sum(0), y[0], y.view_as(y), y.permute(3, 0, 1, 2).exp()]
        kept[0].zero_()
        kept[1].add_(kept[2])
        return [x, y, *kept]

    check(steps, order=True)


def test_a_replayed_step_keeps_the_order_of_its_state(device):
    def train(d, **kwargs):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Conv2d(8, 4, 3))
        model = model.to(d).to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        images = torch.randn(2, 3, 9, 9).to(d).to(memory_format=torch.channels_last)

        def step():
            optimizer.zero_grad()
            loss = model(images).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = torch_xla.compile(step, **kwargs) if kwargs else step
        losses = [float(run()) for _ in range(6)]
        return losses, [strides(p) for p in model.parameters()]

    expected = train("cpu")
    for actual in (train(device), train(device, replay=True)):
        assert actual[0] == pytest.approx(expected[0], rel=1e-4)
        assert actual[1] == expected[1]


def test_a_converted_operand_has_places_of_its_own(device):
    def add(d):
        a, b = torch.ones(1, 3, dtype=torch.uint8, device=d), torch.ones(3, 2, dtype=torch.int16, device=d)
        return [f(a.expand(2, 3), b.T) for f in (torch.add, torch.atan2, torch.eq, torch.logical_and)]

    assert [strides(t) for t in add(device)] == [strides(t) for t in add("cpu")]


OUTS = {
    "pointwise": (lambda x, out: torch.sqrt(x, out=out), torch.float32),
    "other_dtype": (lambda x, out: torch.ge(x, 2, out=out), torch.float64),
    "power": (lambda x, out: torch.pow(x, x.double(), out=out), torch.float32),
    "cat": (lambda x, out: torch.cat([x, x], out=out), torch.float32),
    "sum": (lambda x, out: torch.sum(x, 1, out=out), torch.float32),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("size", [0, 2])
@pytest.mark.parametrize("function,dtype", OUTS.values(), ids=OUTS)
def test_resized_outs(device, function, dtype, size):
    check_strides(lambda x: function(x, torch.empty(size, dtype=dtype, device=x.device)), device)


def test_elements_are_looked_for_in_any_order_of_memory(device):
    x, among = torch.arange(12).view(3, 4), torch.arange(0, 24, 2).view(4, 3)
    for place in (lambda t: t.to(device).t(), lambda t: t.t().to(device)):
        assert torch.isin(x.to(device), place(among)).tolist() == torch.isin(x, among).tolist()
