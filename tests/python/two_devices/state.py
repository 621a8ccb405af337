"""What two devices hold: models in training, random states, memory, files.

test_several_devices.py runs this file, in a process that has two devices.
"""

import copy
import gc
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from shared import DEVICES, pending, same
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla import _XLAC

A = torch.arange(4.0).reshape(2, 2)


# ---- Training ----
class TwoParts(nn.Module):
    """A model whose halves lie on two devices."""

    def __init__(self, first: str, second: str):
        super().__init__()
        self.first = nn.Linear(4, 8).to(first)
        self.second = nn.Linear(8, 2).to(second)

    def forward(self, x):
        hidden = torch.tanh(self.first(x.to(self.first.weight.device)))
        return self.second(hidden.to(self.second.weight.device))


def train(first: str, second: str, make_optimizer) -> tuple[list[torch.Tensor], list[float]]:
    torch.manual_seed(1)
    model = TwoParts("cpu", "cpu")
    model.first.to(first)
    model.second.to(second)
    optimizer = make_optimizer(model.parameters())
    x, y = torch.randn(6, 4), torch.randn(6, 2)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y.to(second))
        loss.backward()
        for p in model.parameters():
            assert p.grad.device == p.device
        optimizer.step()
        if first != "cpu":
            assert not pending(first) and not pending(second)
        losses.append(loss.item())
    return [p.detach().cpu() for p in model.parameters()], losses


@pytest.mark.parametrize("foreach", [False, True])
def test_a_model_on_two_devices_trains(foreach, compiles):
    def make_optimizer(params):
        return torch.optim.Adam(params, lr=0.05, foreach=foreach)

    weights, losses = train("xla:0", "xla:1", make_optimizer)
    expected, expected_losses = train("cpu", "cpu", make_optimizer)
    for got, want in zip(weights, expected):
        torch.testing.assert_close(got, want)
    assert losses == pytest.approx(expected_losses, rel=1e-4)
    compiles.reset()
    train("xla:0", "xla:1", make_optimizer)
    assert compiles.value == 0


def test_gradients_meet_on_the_device_of_their_leaf():
    x = torch.arange(3.0, device="xla:0", requires_grad=True)
    y = (x * 2).sum() + (x.to("xla:1") ** 2).sum().to("xla:0")
    y.backward()
    same(x.grad, 2 + 2 * torch.arange(3.0), "xla:0")


def test_autograd_with_threads_for_each_device():
    torch._C._set_multithreading_enabled(True)
    try:
        test_gradients_meet_on_the_device_of_their_leaf()
    finally:
        torch._C._set_multithreading_enabled(False)


def test_a_module_moves_between_devices():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model.append(model[0])  # tied
    x = torch.randn(5, 3)
    model.train()
    expected = copy.deepcopy(model)(x)
    weight = model[0].weight
    for name in (*DEVICES, "xla:0"):
        model.to(name)
        assert model[0].weight is weight is model[2].weight and str(weight.device) == name
        same(copy.deepcopy(model)(x.to(name)).detach(), expected.detach(), name)


def test_storages_of_two_devices_stay_apart():
    a, b = A.to("xla:0"), A.to("xla:1")
    assert a.untyped_storage().device == torch.device("xla:0") and b.untyped_storage().device == torch.device("xla:1")
    with pytest.raises(RuntimeError, match="devices"):
        a.set_(b.untyped_storage())
    b.untyped_storage().resize_(64)
    same(b, A, "xla:1")
    same(copy.deepcopy(b), A, "xla:1")
    same(b.clone(), A, "xla:1")


# ---- Random numbers ----
def draw(device: str) -> list[float]:
    return torch.rand(4, device=device).tolist()


def test_a_seed_of_all_devices_and_of_one():
    for seed_all in (torch.manual_seed, torch.xla.manual_seed_all):
        seed_all(5)
        assert draw("xla:0") == draw("xla:1")
    torch.manual_seed(5)
    first = draw("xla:0")
    torch.manual_seed(5)
    with torch.xla.device(1):
        torch.xla.manual_seed(6)
    assert draw("xla:0") == first != draw("xla:1")
    torch_xla.manual_seed(5, "xla:1")
    xm.set_rng_state(5, "xla:0")
    assert draw("xla:0") == draw("xla:1") == first


def test_random_states_by_device():
    draw("xla:1")
    states = torch.xla.get_rng_state_all()
    number = xm.get_rng_state("xla:1")
    assert len(states) == len(torch.xla.default_generators) == 2 and not torch.equal(*states)
    drawn = draw("xla:0"), draw("xla:1")
    torch.xla.set_rng_state_all(states)
    assert (draw("xla:0"), draw("xla:1")) == drawn
    xm.set_rng_state(number, "xla:1")
    assert draw("xla:1") == drawn[1]
    with xm.fork_rng("xla:1"):
        inside = draw("xla:1")
    assert draw("xla:1") == inside
    with torch.random.fork_rng([1], device_type="xla"):
        inside = draw("xla:1")
    assert draw("xla:1") == inside


def test_generators_by_device():
    made = torch.Generator(device="xla:1").manual_seed(3)
    assert made.device == torch.device("xla:1")
    x = torch.rand(3, generator=made, device="xla:1")
    assert str(x.device) == "xla:1"
    assert torch.xla.default_generators[1].device == torch.device("xla:1")
    with torch.xla.device(1):
        assert torch.Generator(device="xla").device == torch.device("xla:1")
    torch.xla.default_generators[1].manual_seed(3)
    assert torch.rand(3, device="xla:1").tolist() == x.tolist()


# ---- Memory ----
def test_memory_figures_by_device():
    torch.xla.empty_cache()
    before = [torch.xla.memory_allocated(index) for index in range(2)]
    x = torch.ones(1 << 18).to("xla:1")
    assert torch.xla.memory_allocated(1) - before[1] >= x.nbytes
    assert torch.xla.memory_allocated("xla:0") == before[0]
    info = [xm.get_memory_info(name) for name in DEVICES]
    assert info[1]["bytes_used"] == torch.xla.memory_allocated(1) and info[0]["bytes_used"] == before[0]
    assert info[0]["bytes_limit"] == info[1]["bytes_limit"] > 0
    assert torch.xla.max_memory_allocated(1) >= torch.xla.memory_allocated(1)
    assert torch.xla.memory_reserved(1) >= torch.xla.memory_allocated(1)
    with torch.xla.device(1):
        assert torch.xla.memory_allocated() == torch.accelerator.memory_allocated() == info[1]["bytes_used"]
    del x
    assert torch.xla.memory_allocated(1) == before[1]


def test_peaks_start_again_on_one_device():
    for name in DEVICES:
        torch.ones(1 << 18).to(name)
    peaks = [torch.xla.max_memory_allocated(index) for index in range(2)]
    torch.xla.reset_peak_memory_stats(1)
    assert torch.xla.max_memory_allocated(0) == peaks[0]
    assert torch.xla.max_memory_allocated(1) == torch.xla.memory_allocated(1) < peaks[1]


def test_memory_that_a_program_takes_is_its_devices():
    x = torch.randn(64, 64, device="xla:1")
    torch.xla.synchronize(1)
    before = torch.xla.memory_allocated(0)
    peak = torch.xla.max_memory_allocated(0)
    y = torch.linalg.inv(F.conv2d(x[None, None], x[None, None, :3, :3], padding=1)[0, 0] @ x).cpu()
    assert torch.isfinite(y).all()
    assert torch.xla.memory_allocated(0) == before and torch.xla.max_memory_allocated(0) == peak


# ---- Files ----
def save(data) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(data, file)
    file.seek(0)
    return file


def test_files_keep_the_device():
    x = torch.arange(6.0).reshape(2, 3)
    for name in DEVICES:
        same(torch.load(save(x.to(name))), x, name)
        same(pickle.loads(pickle.dumps(x.to(name).t())), x.t(), name)
        same(torch.load(save(nn.Parameter(x.to(name)))).detach(), x, name)
    same(torch.load(save(x), map_location="xla:1"), x, "xla:1")
    same(torch.load(save(x.to("xla:1")), map_location="xla:0"), x, "xla:0")
    same(torch.load(save(x.to("xla:0")), map_location={"xla:0": "xla:1"}), x, "xla:1")
    same(torch.load(save(x.to("xla:1")), map_location="cpu"), x, "cpu")
    with torch.xla.device(1):
        same(torch.load(save(x), map_location="xla"), x, "xla:1")


def test_a_state_of_a_model_on_two_devices():
    model, other = TwoParts(*DEVICES), TwoParts("cpu", "cpu")
    state = torch.load(save(model.state_dict()))
    assert {str(t.device) for t in state.values()} == set(DEVICES)
    other.load_state_dict(state)
    for got, want in zip(other.parameters(), model.parameters()):
        torch.testing.assert_close(got.detach(), want.detach().cpu())
    file = io.BytesIO()
    xm.save(model.state_dict(), file)
    file.seek(0)
    assert {str(t.device) for t in torch.load(file).values()} == {"cpu"}


def test_sparse_tensors_by_device():
    x = torch.eye(3).to_sparse().to("xla:1")
    assert str(x.device) == str(x._values().device) == "xla:1"
    same(x.to_dense(), torch.eye(3), "xla:1")
    same((x @ torch.ones(3, 2, device="xla:1")), torch.ones(3, 2), "xla:1")
    same(x.to("xla:0").to_dense(), torch.eye(3), "xla:0")


def test_compiled_functions_by_device():
    for backend in ("inductor", "aot_eager"):
        double = torch.compile(lambda x: torch.sin(x) * 2, backend=backend)
        add = torch.compile(lambda x, y: x.to("xla:1") + y, backend=backend)
        for _ in range(2):
            for name in DEVICES:
                same(double(A.to(name)), torch.sin(A) * 2, name)
            same(add(A.to("xla:0"), A.to("xla:1")), A * 2, "xla:1")


def test_nothing_is_left_behind():
    def work():
        for name in DEVICES:
            (A.to(name) + 1).to(DEVICES[name == "xla:0"]).sum().item()

    work()
    gc.disable()  # what earlier tests have left goes at no moment of its own
    try:
        before = _XLAC._live_cells(), _XLAC._live_nodes()
        for _ in range(5):
            work()
        assert (_XLAC._live_cells(), _XLAC._live_nodes()) == before
    finally:
        gc.enable()


# ---- What PyTorch asks of the module, on the device that is not current ----
def test_a_compiled_checkpoint_repeats_its_dropout_on_the_second_device():
    def drop(x):
        return checkpoint(lambda x: F.dropout(x, 0.5), x, use_reentrant=False)

    compiled = torch.compile(drop, backend="aot_eager", fullgraph=True)
    state = torch.xla.get_rng_state(0)
    for _ in range(2):
        x = torch.ones(64, device="xla:1", requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        assert torch.equal(y.detach().cpu(), x.grad.cpu()) and 0 < (y == 0).sum() < 64
    assert torch.equal(torch.xla.get_rng_state(0), state)


def test_generators_and_memory_by_device():
    first, second = torch.xla.default_generators
    assert (first.device, second.device) == tuple(torch.device(name) for name in DEVICES)
    torch.xla.manual_seed_all(5)
    kept = second.graphsafe_get_state()
    second.graphsafe_set_state(torch.Generator("xla:1").manual_seed(6))
    drawn = torch.rand(3, device="xla:1").tolist()
    second.graphsafe_set_state(kept)
    torch.xla.set_rng_state(torch.Generator("xla:0").manual_seed(6).get_state(), "xla:0")
    assert torch.rand(3, device="xla:0").tolist() == drawn != torch.rand(3, device="xla:1").tolist()
    held = torch.ones(1 << 20, device="xla:1") + 1
    torch.xla.synchronize(1)
    stats = torch.xla.memory_stats(1)
    assert stats["allocated_bytes.all.current"] == torch.xla.memory_allocated("xla:1") >= 4 << 20
    assert torch.xla.memory_summary(1).startswith("memory of xla:1")
    assert torch.xla.memory_allocated(0) < 4 << 20 and held[0].item() == 2


def test_files_of_safetensors_by_device(tmp_path):
    x = torch.arange(4.0)
    save_file({"x": x.to("xla:1")}, tmp_path / "x.safetensors")
    for name in DEVICES:
        same(load_file(tmp_path / "x.safetensors", device=name)["x"], x, name)
