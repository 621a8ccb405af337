"""Moving, copying, saving and loading keep values, Parameter objects and ties."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import torch_xla.core.xla_model as xm
from torch_xla.utils import serialization


class Tied(nn.Module):
    """Two layers that share one weight."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return self.out(self.embed(x)) * self.scale


def test_to_keeps_parameter_objects_and_ties(device):
    model = Tied()
    weight = model.embed.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.to(device)
    assert model.embed.weight is weight
    assert model.out.weight is weight
    assert weight.device == device
    assert weight.is_leaf and weight.requires_grad
    assert optimizer.param_groups[0]["params"][0] is weight
    model.cpu()
    assert model.embed.weight is weight and weight.device.type == "cpu"


def test_to_and_back_keeps_values_dtypes_and_strides(device):
    for value in (torch.randn(3, 4), torch.arange(5), torch.tensor(True), torch.randn(4, 3).t(), torch.empty(0, 2)):
        moved = value.to(device)
        assert (moved.shape, moved.dtype, moved.stride()) == (value.shape, value.dtype, value.stride())
        assert torch.equal(moved.cpu(), value)


def test_upload_is_a_copy(device):
    value = torch.ones(4)
    moved = value.to(device, non_blocking=True)
    value.fill_(7)
    assert moved.tolist() == [1, 1, 1, 1]


def test_deepcopy_keeps_ties_and_is_independent(device):
    model = Tied().to(device)
    clone = copy.deepcopy(model)
    assert clone.embed.weight is clone.out.weight
    assert clone.embed.weight is not model.embed.weight
    before = model.embed.weight.detach().cpu()
    with torch.no_grad():
        clone.embed.weight.add_(1)
    torch.testing.assert_close(model.embed.weight.detach().cpu(), before)
    torch.testing.assert_close(clone.embed.weight.detach().cpu(), before + 1)


def test_deepcopy_of_a_tensor(device):
    x = torch.randn(3, device=device)
    y = copy.deepcopy(x)
    assert y.device == device
    assert torch.equal(x.cpu(), y.cpu())


@pytest.mark.parametrize("weights_only", [True, False])
def test_save_and_load_of_device_tensors(device, weights_only):
    file = io.BytesIO()
    state = {"x": torch.randn(2, 3, device=device), "step": 3, "p": nn.Parameter(torch.ones(2, device=device))}
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=weights_only)
    assert loaded["x"].device == device and loaded["step"] == 3
    assert torch.equal(loaded["x"].cpu(), state["x"].cpu())
    assert isinstance(loaded["p"], nn.Parameter) and loaded["p"].requires_grad


def test_map_location(device):
    file = io.BytesIO()
    torch.save({"x": torch.arange(4.0)}, file)
    file.seek(0)
    loaded = torch.load(file, map_location="xla")
    assert loaded["x"].device == device
    assert loaded["x"].tolist() == [0, 1, 2, 3]


def test_state_dict_of_a_model_and_an_optimizer(device):
    model = Tied().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.arange(3, device=device)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file)
    other = Tied().to(device)
    other.load_state_dict(loaded["model"])
    again = torch.optim.Adam(other.parameters())
    again.load_state_dict(loaded["optimizer"])
    torch.testing.assert_close(other.out.weight.cpu(), model.out.weight.cpu())


def test_pickle(device):
    x = torch.randn(3, device=device)
    y = pickle.loads(pickle.dumps(x))
    assert y.device == device and torch.equal(x.cpu(), y.cpu())


def test_xm_save_writes_cpu_tensors(device, tmp_path):
    path = tmp_path / "x.pt"
    xm.save({"x": torch.ones(2, device=device), "n": [torch.zeros(1, device=device)]}, path)
    loaded = torch.load(path)
    assert loaded["x"].device.type == loaded["n"][0].device.type == "cpu"


def test_one_file_per_tensor(device, tmp_path):
    path = str(tmp_path / "state")
    serialization.save({"x": torch.ones(2, device=device), "y": [1, torch.zeros(3)]}, path)
    loaded = serialization.load(path)
    assert torch.equal(loaded["x"], torch.ones(2))
    assert loaded["y"][0] == 1 and loaded["y"][1].shape == (3,)


def test_print_shows_values_and_device(device):
    assert repr(torch.tensor([1.0, 2.0], device=device)) == "tensor([1., 2.], device='xla:0')"
    assert repr(torch.tensor(3, device=device)) == "tensor(3, device='xla:0')"
    assert f"{torch.tensor(1.5, device=device):.2f}" == "1.50"
