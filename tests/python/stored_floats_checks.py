"""Checks of a device that stores floats in narrower types; test_stored_floats.py runs them with the variables set."""

import copy
import io
import os

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.utils.checkpoint import checkpoint

USE = os.environ.get("XLA_USE_BF16") == "1"
STORED = {torch.float32: torch.bfloat16, torch.float64: torch.bfloat16 if USE else torch.float32}
ULP = 2**-7  # of bfloat16, relative


def rounded(x):
    """The tensor as the device stores it; what is no float32 and no float64 stays."""
    return x.to(STORED[x.dtype]).to(x.dtype) if isinstance(x, torch.Tensor) and x.dtype in STORED else x


class Rounding(TorchDispatchMode):
    """The model: eager operations, each result rounded."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func._schema.is_mutable:
            for tensor, argument in zip(args, func._schema.arguments, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    tree_map(lambda t: t.copy_(rounded(t)) if isinstance(t, torch.Tensor) else t, tensor)
            return out
        is_view = any(result.alias_info is not None for result in func._schema.returns)
        return out if is_view else tree_map(rounded, out)


def assert_like_model(function, *inputs, rtol=ULP, atol=1e-3):
    """The function gives, on the device and in the model, results of one type that agree and that are stored whole."""
    inputs = [rounded(x) for x in inputs]
    with Rounding():
        expected = function(*[x.clone() for x in inputs])
    actual = function(*[x.to("xla") for x in inputs])
    for a, e in zip(*[x if isinstance(x, (list, tuple)) else [x] for x in (actual, expected)], strict=True):
        assert a.dtype == e.dtype
        a = a.cpu()
        assert torch.equal(a.nan_to_num(), rounded(a).nan_to_num())
        torch.testing.assert_close(a, e, rtol=rtol, atol=atol, equal_nan=True)


def normal(*sizes, dtype=torch.float32, seed=0):
    return torch.randn(*sizes, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def test_types_that_tensors_report():
    for dtype in STORED:
        x = torch.ones(3, dtype=dtype, device="xla")
        assert x.dtype == (x + 1).dtype == (x * 0.1).cpu().dtype == x.sum().dtype == dtype
        assert (x.element_size(), x.untyped_storage().nbytes()) == (dtype.itemsize, 3 * dtype.itemsize)
    f32, f64 = torch.ones(2, device="xla"), torch.ones(2, dtype=torch.float64, device="xla")
    assert (f32 + f64).dtype == torch.float64
    assert (f32 + torch.ones(2, dtype=torch.bfloat16, device="xla")).dtype == torch.float32


def test_values_are_rounded_where_they_are_stored():
    fine = [1 + 2**-10, 1 + 2**-9 + 2**-12, 0.1, 3.0e38, float("inf"), -0.0]
    for dtype, stored in STORED.items():
        x = torch.tensor(fine, dtype=dtype)
        assert torch.equal(x.to("xla").cpu(), x.to(stored).to(dtype))
        assert (
            torch_xla._XLAC._get_xla_tensor_shape_type(x.to("xla"))
            == {torch.bfloat16: "bf16", torch.float32: "f32"}[stored]
        )
        assert torch.equal(torch.tensor(fine, dtype=dtype, device="xla").cpu(), x.to(stored).to(dtype))
        assert (
            torch.full((2,), 0.1, dtype=dtype, device="xla").tolist()
            == rounded(torch.full((2,), 0.1, dtype=dtype)).tolist()
        )
        assert torch.tensor(0.1, dtype=dtype, device="xla").item() == rounded(torch.tensor(0.1, dtype=dtype)).item()
        y = torch.ones(3, dtype=dtype, device="xla")
        assert (y * 0.1).cpu().tolist() == rounded(torch.full((3,), 0.1, dtype=dtype)).tolist()
        big = torch.arange(0, 600, dtype=dtype, device="xla")
        assert torch.equal(big.cpu(), rounded(torch.arange(0, 600, dtype=dtype)))
    assert torch.full((1,), 0.1, device="xla").item() != torch.full((1,), 0.1).item()


def test_each_result_is_rounded_within_one_program():
    x = torch.full((4,), 256.0, device="xla")
    assert ((x + 1) - 256).tolist() == [0.0] * 4
    assert ((x.cpu().to("xla") + 1.5) - 256).tolist() == [2.0] * 4


def test_other_types_are_untouched():
    for x in (
        torch.tensor([2**40 + 1, -3]),
        torch.tensor([2**31 - 1], dtype=torch.int32),
        torch.tensor([True, False]),
        torch.tensor([1 + 2**-10, 65504.0], dtype=torch.float16),
        torch.tensor([1.0, 0.1], dtype=torch.bfloat16),
        torch.tensor([1 + 2**-20 + 1j]),
    ):
        assert torch.equal(x.to("xla").cpu(), x)
        assert (x.to("xla") + x.to("xla")).cpu().dtype == x.dtype
    assert torch.equal((torch.tensor([2**40 + 1]).to("xla") + 1).cpu(), torch.tensor([2**40 + 2]))


CASES = {
    "pointwise": lambda x, y: torch.sigmoid(x * y + 0.3) - torch.where(x > 0, x, y.exp()),
    "float64": lambda x, y: (x.double() * y + 1.5, (x.double() / 3).float(), x.double().mean()),
    "reduction": lambda x, y: (x.sum(0), y.mean(), x.std(1), torch.logsumexp(y, 1), x.amax(0), x.var(), x.norm()),
    "matmul": lambda x, y: (x @ y, torch.addmm(x, y, x, beta=0.5), torch.bmm(x.unsqueeze(0), y.unsqueeze(0)), x @ y[0]),
    "softmax": lambda x, y: (torch.softmax(x, 1), torch.log_softmax(y, 0)),
    "norm": lambda x, y: (
        torch.nn.functional.layer_norm(x, (16,)),
        torch.nn.functional.batch_norm(x, None, None, y[0], y[1], training=True),
        torch.nn.functional.group_norm(x, 4),
    ),
    "conv": lambda x, y: torch.conv2d(x.view(1, 4, 8, 8), y[:, :9].reshape(4, 4, 3, 3), y[0, :4], padding=1),
    "pool": lambda x, y: (
        torch.max_pool2d(x.view(1, 4, 8, 8), 2),
        torch.nn.functional.avg_pool2d(y.view(1, 4, 8, 8), 2),
        torch.nn.functional.interpolate(x.view(1, 4, 8, 8), scale_factor=2, mode="bilinear"),
    ),
    "index": lambda x, y: (
        x[torch.tensor([3, 1], device=x.device)],
        x.index_select(1, torch.tensor([0, 5], device=x.device)),
        x.index_add(0, torch.tensor([0, 0, 1], device=x.device), y[:3]),
        x.scatter_add(0, torch.zeros(2, 16, dtype=torch.long, device=x.device), y),
        x.masked_fill(y > 0, 0.1),
        torch.nn.functional.embedding(torch.tensor([[1, 2]], device=x.device), x),
    ),
    "join": lambda x, y: (
        torch.cat([x, y]),
        torch.stack([x, y]),
        x.flip(0),
        y.roll(3, 1),
        torch.nn.functional.pad(x, (1, 2)),
    ),
    "order": lambda x, y: (x.sort(1)[0], x.topk(3)[0], x.max(0)[0], y.median(), x.cumsum(1), y.cummax(0)[0]),
    "linalg": lambda x, y: (torch.linalg.inv(x @ x.T + 20 * torch.eye(16, device=x.device)), torch.linalg.det(x / 4)),
    "complex": lambda x, y: (
        torch.complex(x, y).abs(),
        torch.fft.rfft(x).real * 3,
        torch.fft.irfft(torch.complex(x, y)),
    ),
    "special": lambda x, y: (torch.special.i0e(x), torch.lgamma(y), torch.erfinv(x / 8)),
    "loss": lambda x, y: (
        torch.nn.functional.cross_entropy(x, torch.arange(16, device=x.device)),
        torch.nn.functional.smooth_l1_loss(x, y),
        torch.nn.functional.binary_cross_entropy_with_logits(x, torch.sigmoid(y)),
    ),
    "attention": lambda x, y: torch.nn.functional.scaled_dot_product_attention(
        *[t.view(1, 2, 8, 16) for t in (x, y, x)]
    ),
    "without a row": lambda x, y: (torch.nanquantile(x, 0.25), torch.cov(x)),
    "numbers": lambda x, y: (
        x * torch.tensor(0.3),
        torch.add(x, y, alpha=0.3),
        x.clamp(-0.3, 0.7),
        x**3,
        2 / (y.abs() + 1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operations(name):
    wide = (
        0.04
        if name in ("linalg", "without a row", "attention", "norm", "loss", "reduction", "matmul", "special")
        else 1e-2
    )
    assert_like_model(CASES[name], normal(16, 16), normal(16, 16, seed=1), rtol=2 * ULP, atol=wide)


def test_views_and_writes_in_place():
    def writes(x, y):
        base = x.clone()
        base[1:3].mul_(0.3)
        base.t()[0].add_(y[0])
        base[:, ::2] = 0.7
        base.view(-1)[5:9].copy_(y.view(-1)[:4])
        base.add_(y, alpha=0.1)
        torch.add(x, y, out=base[2:4].new_empty(16, 16))
        return base, base[3], base.t().reshape(-1)

    assert_like_model(writes, normal(16, 16), normal(16, 16, seed=1), rtol=2 * ULP, atol=1e-2)


def test_bits_are_those_of_the_reported_type():
    x = torch.tensor([1.0, 0.1])
    assert torch.equal(x.to("xla").view(torch.int32).cpu(), rounded(x).view(torch.int32))
    assert torch.equal((x.to("xla") * 3).view(torch.int32).cpu(), rounded(rounded(x) * 3).view(torch.int32))
    bits = torch.tensor([0x3F800001, 0x3DCCCCCD], dtype=torch.int32)
    assert torch.equal((bits.to("xla").view(torch.float32) * 2).cpu(), rounded(rounded(bits.view(torch.float32)) * 2))
    float8 = torch.tensor([1.5, -2.0]).to(torch.float8_e5m2)
    storage = x.to("xla").untyped_storage()
    storage.resize_(16)
    assert torch.tensor([], device="xla").set_(storage, 0, (4,)).tolist() == [*rounded(x).tolist(), 0.0, 0.0]
    assert torch.equal(float8.to("xla").cpu().float(), float8.float())


def test_gradients():
    def gradients(x, w):
        x, w = x.requires_grad_(), w.requires_grad_()
        torch.nn.functional.gelu(x @ w).pow(2).mean().backward()
        return x.grad, w.grad

    assert_like_model(gradients, normal(16, 16), normal(16, 16, seed=1), rtol=4 * ULP, atol=2e-3)
    x = normal(4, 4).to("xla").requires_grad_()
    checkpoint(torch.sin, x).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), rounded(x.detach().cpu()).cos(), rtol=2 * ULP, atol=1e-3)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, foreach=False),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    """Parameters and their state are float32 to the program and rounded on the device, and follow the model's."""
    torch.manual_seed(0)
    eager = torch.nn.Linear(8, 8)
    with torch.no_grad():
        for p in eager.parameters():
            p.copy_(rounded(p))
    model = copy.deepcopy(eager).to("xla")
    for m in (eager, model):
        optimizer = OPTIMIZERS[name](m.parameters())
        for step in range(3):
            x = rounded(normal(4, 8, seed=step))
            if m is eager:
                with Rounding():
                    m(x).square().mean().backward()
                    optimizer.step()
            else:
                m(x.to("xla")).square().mean().backward()
                optimizer.step()
            optimizer.zero_grad()
        for state in optimizer.state.values():
            for key, value in state.items():
                assert key == "step" or torch.equal(value.cpu(), rounded(value.cpu()))
                assert key == "step" or value.dtype == torch.float32
    for p, e in zip(model.parameters(), eager.parameters(), strict=True):
        assert p.dtype == torch.float32
        torch.testing.assert_close(p.cpu(), e, rtol=2 * ULP, atol=4e-3)


def test_random_numbers():
    torch.manual_seed(3)
    u = torch.rand(100_000, device="xla")
    torch.manual_seed(3)
    assert torch.equal(u, torch.rand(100_000, device="xla"))
    u = u.cpu()
    assert torch.equal(u, rounded(u))
    assert 0 <= u.min() and u.max() < 1  # 1 - 2^-24 would round to 1
    assert abs(u.mean() - 0.5) < 0.01
    n = torch.randn(100_000, device="xla").cpu()
    assert torch.equal(n, rounded(n))
    assert abs(n.std() - 1) < 0.02
    kept = torch.nn.functional.dropout(torch.ones(10_000, device="xla"), 0.3).cpu()
    assert set(kept.tolist()) == {0.0, rounded(torch.tensor(1 / 0.7)).item()}
    assert abs((kept > 0).float().mean() - 0.7) < 0.03
    double = torch.rand(1000, dtype=torch.float64, device="xla").cpu()
    assert torch.equal(double, rounded(double))
    assert torch.randperm(300, device="xla").sort()[0].tolist() == list(range(300))


def test_saving_and_loading(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)).to("xla")
    model(normal(4, 8).to("xla"))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, map_location="cpu")
    assert state["0.weight"].dtype == torch.float32
    assert all(torch.equal(v, rounded(v)) for v in state.values())
    cpu = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    cpu.load_state_dict(state)
    again = copy.deepcopy(cpu).to("xla")
    for key, value in again.state_dict().items():
        assert torch.equal(value.cpu(), state[key])
    xm.save(model.state_dict(), tmp_path / "state.pt")
    for key, value in torch.load(tmp_path / "state.pt").items():
        assert torch.equal(value, state[key])
    assert "0.1001" in repr(torch.full((1,), 0.1, device="xla"))
    assert torch.equal(torch.from_dlpack(model[0].weight.detach()), state["0.weight"])


def test_memory_is_halved():
    torch_xla.sync(wait=True)
    before = xm.get_memory_info("xla:0")["bytes_used"]
    kept = [torch.ones(1 << 20).to("xla"), torch.ones(1 << 20, device="xla") + 1]
    torch_xla.sync(wait=True)
    used = xm.get_memory_info("xla:0")["bytes_used"] - before
    assert used == pytest.approx(len(kept) * 2 * (1 << 20), rel=0.1)


def test_scaled_gradients():
    """GradScaler's numbers are float32 on the device, and powers of two stay whole."""
    scaler = torch_xla.amp.GradScaler(init_scale=2.0**16)
    p = torch.nn.Parameter(torch.ones(4, device="xla"))
    optimizer = torch.optim.SGD([p], lr=0.5)
    scaler.scale((p * 2).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.0] * 4
    assert scaler.get_scale() == 2.0**16


def test_loops_compute_on_float32():
    """A body's values are whole; what the loop takes and gives is rounded."""
    from torch_xla.experimental.scan import scan

    steps = torch.full((64, 3), 2.0**-9)
    carry, sums = scan(lambda c, x: (c + x, c + x), torch.ones(3, device="xla"), steps.to("xla"))
    assert carry.dtype == torch.float32
    assert carry.tolist() == [1.125] * 3  # which 1 + 2^-9 in bfloat16 never reaches
    assert torch.equal(sums.cpu(), (1 + steps.cumsum(0)).bfloat16().float())


def test_what_came_before_an_error_has_happened():
    x, index = torch.ones(3, device="xla"), torch.tensor([9], device="xla")
    torch_xla.sync(wait=True)
    x.add_(2.0**-12)  # less than the narrower type tells from one
    y = x.double() * 3
    bad = x[index]
    x.mul_(2)
    with pytest.raises(IndexError):
        bad.cpu()
    assert x.tolist() == [1.0] * 3
    assert y.tolist() == [3.0] * 3
