"""Files of safetensors: saved from the device and loaded to it."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
from torch import nn

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.uint8, torch.bool]


def state(device) -> dict[str, torch.Tensor]:
    """Tensors of all kinds; those of a device are pending."""
    made = {str(dtype): torch.arange(6).view(2, 3).add(1).to(dtype).to(device) for dtype in DTYPES}
    return made | {"scalar": torch.tensor(2.5, device=device) * 2, "empty": torch.zeros(0, 3, device=device)}


def assert_same(loaded: dict, expected: dict, device: str) -> None:
    assert loaded.keys() == expected.keys()
    for name, tensor in loaded.items():
        assert tensor.device.type == device and tensor.dtype == expected[name].dtype
        assert tensor.shape == expected[name].shape and torch.equal(tensor.cpu(), expected[name].cpu())


@pytest.mark.parametrize("target", ["cpu", "xla", "xla:0"])
@pytest.mark.parametrize("source", ["cpu", "xla"])
def test_a_file_goes_to_any_device(device, tmp_path, source, target):
    path = tmp_path / "state.safetensors"
    save_file(state(source), path, metadata={"step": "3"})
    assert_same(load_file(path, device=target), state("cpu"), target[:3])


def test_a_file_from_the_device_is_the_file_from_the_cpu(device, tmp_path):
    assert save(state(device)) == save(state("cpu"))
    assert_same(load(save(state(device))), state("cpu"), "cpu")


def test_parts_of_a_file_come_to_the_device(device, tmp_path):
    path = tmp_path / "x.safetensors"
    x = torch.arange(20.0).view(4, 5)
    save_file({"x": x.to(device) * 2}, path, metadata={"form": "pt"})
    with safe_open(path, framework="pt", device="xla:0") as file:
        assert file.metadata() == {"form": "pt"} and list(file.keys()) == ["x"]
        part = file.get_slice("x")[1:3, ::1]
        whole = file.get_tensor("x")
    assert part.device == whole.device == device
    assert torch.equal(part.cpu(), x[1:3] * 2) and torch.equal(whole.cpu(), x * 2)
    whole.add_(1)  # a copy of the file's memory
    assert torch.equal(load_file(path)["x"], x * 2)


def test_shared_memory_is_refused_as_of_the_cpu(device, tmp_path):
    for where in ("cpu", device):
        x = torch.arange(6.0, device=where)
        with pytest.raises(RuntimeError, match="share memory"):
            save_file({"x": x, "view": x.view(2, 3)}, tmp_path / "x.safetensors")
        with pytest.raises(ValueError, match="non contiguous"):
            save_file({"t": x.view(2, 3).t()}, tmp_path / "x.safetensors")
        halves = {"a": x[:3], "b": x[3:]}
        save_file(halves, tmp_path / "halves.safetensors")
        assert load_file(tmp_path / "halves.safetensors")["b"].tolist() == [3, 4, 5]


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.out = nn.Linear(3, 5)
        self.out.weight = self.embed.weight


def test_models_with_ties(device, tmp_path):
    model, other = Tied().to(device), Tied().to(device)
    path = str(tmp_path / "model.safetensors")
    save_model(model, path)
    assert load_model(other, path, device="xla") == (set(), [])
    assert other.out.weight is other.embed.weight and other.out.weight.device == device
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(model.parameters(), other.parameters()))
    cpu = Tied()
    load_model(cpu, path)
    assert torch.equal(cpu.out.bias, model.out.bias.cpu())


def test_a_device_that_does_not_exist(device, tmp_path):
    save_file({"x": torch.ones(2)}, tmp_path / "x.safetensors")
    with pytest.raises(RuntimeError, match="device index 99 does not exist"):
        load_file(tmp_path / "x.safetensors", device="xla:99")
