"""Weights that a program keeps in packed form only: less memory, the same bits for all readers and writers."""

import copy
import threading

import pytest
import torch
from torch import nn

WIDTH = 256


def make_model() -> nn.Sequential:
    """Two products of bfloat16 and the weights of a convolution."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(32, 64, 3, 1, 1), nn.Flatten(2), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)]
    return nn.Sequential(*layers).bfloat16().eval()


@pytest.fixture
def packed(device):
    """A model after some runs, its eager twin, its input and its first result."""
    eager = make_model()
    model, x = copy.deepcopy(eager).to(device), torch.randn(2, 32, 16, 16).bfloat16().to(device)
    with torch.no_grad():
        results = [model(x).cpu() for _ in range(4)]
    assert all(torch.equal(result, results[0]) for result in results)
    return model, eager, x, results[0]


def assert_same(model: nn.Module, eager: nn.Module) -> None:
    for name, weight in model.state_dict().items():
        assert torch.equal(weight.cpu(), eager.state_dict()[name]), name


def test_weights_are_read(packed, tmp_path):
    model, eager, x, first = packed
    assert_same(model, eager)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    loaded = torch.load(tmp_path / "weights.pt", map_location="cpu")
    assert all(torch.equal(loaded[name], weight) for name, weight in eager.state_dict().items())
    with torch.no_grad():
        assert torch.equal(model(x).cpu(), first)


def test_another_program_reads_them(packed):
    model, eager, x, first = packed
    for weight, expected in zip(model.parameters(), eager.parameters()):
        assert torch.equal(weight.detach()[1:].neg().cpu(), expected.detach()[1:].neg())
    with torch.no_grad():
        assert torch.equal(model(x).cpu(), first)


def test_they_are_written(packed):
    model, eager, x, first = packed
    with torch.no_grad():
        for weight, expected in zip(model.parameters(), eager.parameters()):
            weight[:1] = 0
            expected[:1] = 0
            weight.mul_(2)
            expected.mul_(2)
        changed = [model(x).cpu() for _ in range(4)]
    assert_same(model, eager)
    assert not torch.equal(changed[0], first) and all(torch.equal(result, changed[0]) for result in changed)


@pytest.mark.parametrize("rows", [192, 193, 197, 200, 784])
def test_rests_of_rows(device, rows):
    """Rows beyond those that oneDNN has code for; 784: more than a few."""
    torch.manual_seed(rows)
    eager = nn.Sequential(nn.Linear(384, 512), nn.Linear(512, 384, bias=False)).eval()
    model, x = copy.deepcopy(eager).to(device), torch.randn(rows, 384)
    with torch.no_grad():
        results = [model(x.to(device)).cpu() for _ in range(4)]
        assert all(torch.equal(result, results[0]) for result in results)
        torch.testing.assert_close(results[0], eager(x))
    assert_same(model, eager)


def test_a_copy_and_a_gradient(packed):
    model, eager, x, _ = packed
    twin = copy.deepcopy(model)
    model(x).float().sum().backward()
    eager(x.cpu()).float().sum().backward()
    for weight, expected in zip(model.parameters(), eager.parameters()):
        torch.testing.assert_close(weight.grad.cpu(), expected.grad, rtol=5e-2, atol=0.5)
    assert_same(twin, eager)
    assert_same(model, eager)


def test_threads_read_them_at_once(packed):
    model, eager, x, first = packed
    wrong = []

    def read() -> None:
        try:
            assert_same(model, eager)
        except AssertionError as error:
            wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    with torch.no_grad():
        results = [model(x).cpu() for _ in range(4)]
    for thread in threads:
        thread.join()
    assert not wrong and all(torch.equal(result, first) for result in results)


def test_inference_holds_one_copy(run_python):
    out = run_python("""
        import torch, torch_xla
        from torch import nn
        def resident():
            with open("/proc/self/status") as file:
                return next(int(line.split()[1]) >> 10 for line in file if line.startswith("VmRSS"))
        small = nn.Linear(64, 64).bfloat16().to("xla")
        x = torch.randn(24, 2048, dtype=torch.bfloat16, device="xla")
        with torch.no_grad():
            for _ in range(4):
                small(x[:, :64]).sum().item()
            before = resident()
            model = nn.Sequential(*(nn.Linear(2048, 2048, bias=False) for _ in range(16))).bfloat16().to("xla")
            first = model(x).cpu()
            for _ in range(5):
                assert torch.equal(model(x).cpu(), first)
        print(resident() - before)
    """)
    weights = 16 * 2048 * 2048 * 2 >> 20
    assert int(out) < 1.4 * weights
