"""Pinned host memory: who is told that a tensor is pinned, and loaders that pin their batches."""

import collections

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

Pair = collections.namedtuple("Pair", "x y")


class Nested(Dataset):
    """Samples of all kinds of containers."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int):
        x = torch.full((2,), float(index))
        return {"pair": Pair(x, x + 1), "list": [x, index], "name": "s"}


class Own:
    """A batch that says itself how it is pinned."""

    def __init__(self, samples):
        self.x = torch.stack([sample[0] for sample in samples])

    def pin_memory(self):
        """Called by the loader."""
        self.x = self.x.pin_memory()
        return self


def test_a_pinned_tensor_is_a_copy_of_the_same_values():
    x = torch.arange(6.0).view(2, 3).t()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned() and torch.equal(pinned, x) and pinned.pin_memory() is pinned
    assert pinned.stride() == x.stride() and pinned.device.type == "cpu"
    x.zero_()
    assert pinned.sum().item() == 15
    assert pinned[1:].is_pinned() and pinned.numpy().shape == (3, 2)
    assert pinned.untyped_storage().is_pinned() and not pinned.clone().is_pinned()


@pytest.mark.parametrize("make", [torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn])
def test_factories_pin(make):
    assert make(3, pin_memory=True).is_pinned()
    assert torch.zeros_like(torch.ones(2), pin_memory=True).is_pinned()
    assert torch.tensor([1.0], pin_memory=True).is_pinned()


def test_memory_is_unpinned_when_it_is_freed():
    x = torch.empty(1000, pin_memory=True)
    address = x.data_ptr()
    del x
    for _ in range(100):
        y = torch.empty(1000)
        assert y.data_ptr() != address or not y.is_pinned()


def test_pinned_memory_moves_to_the_device_and_back(device):
    x = torch.arange(5.0).pin_memory()
    moved = x.to(device, non_blocking=True)
    x.zero_()
    assert moved.tolist() == [0, 1, 2, 3, 4]
    assert x.copy_(moved, non_blocking=True).is_pinned()
    torch.xla.synchronize()
    assert x.tolist() == [0, 1, 2, 3, 4]
    assert not moved.is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        moved.pin_memory()
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(2, device=device, pin_memory=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_pins_every_container(device, workers):
    for batch in DataLoader(Nested(), batch_size=2, pin_memory=True, num_workers=workers):
        tensors = [*batch["pair"], *batch["list"]]
        assert isinstance(batch["pair"], Pair) and batch["name"] == ["s", "s"]
        assert all(x.is_pinned() for x in tensors)
        assert tensors[0].to(device, non_blocking=True).sum().item() == tensors[0].sum().item()


def test_a_loader_pins_what_pins_itself():
    data = TensorDataset(torch.arange(4.0))
    for batch in DataLoader(data, batch_size=2, pin_memory=True, collate_fn=Own):
        assert isinstance(batch, Own) and batch.x.is_pinned()


def test_the_loaders_name_of_the_device_is_taken():
    loader = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, pin_memory=True, pin_memory_device="xla")
    with pytest.warns(UserWarning, match="pin_memory_device is deprecated"):
        assert all(batch.is_pinned() for (batch,) in loader)


def test_saved_tensors_wait_in_pinned_memory(device):
    x = torch.arange(3.0, device=device, requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True, device_type="xla"):
        y = (x * x).exp()
    packed = y.grad_fn._raw_saved_result
    y.sum().backward()
    expected = torch.arange(3.0, requires_grad=True)
    (expected * expected).exp().sum().backward()
    assert packed is not None
    torch.testing.assert_close(x.grad.cpu(), expected.grad)
