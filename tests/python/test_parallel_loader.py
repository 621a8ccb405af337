"""Loaders that move batches to the device on a thread of their own."""

import copy
import gc
import itertools
import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl
import torch_xla.utils.utils as xu


def make_loader(**kwargs) -> DataLoader:
    return DataLoader(TensorDataset(torch.arange(10.0), torch.arange(10)), batch_size=4, **kwargs)


def count_syncs() -> int:
    return met.counter_value("MarkStep") or 0


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_are_on_the_device(device, num_workers):
    loader = pl.MpDeviceLoader(make_loader(num_workers=num_workers), device)
    assert len(loader) == len(iter(loader)) == 3
    for _ in range(2):
        batches = list(loader)
        assert all(t.device == device for batch in batches for t in batch)
        assert torch.cat([x.cpu() for x, _ in batches]).tolist() == list(range(10))
        assert batches[0][1].dtype == torch.int64


def test_a_shuffle_is_that_of_the_plain_loader(device):
    torch.manual_seed(3)
    expected = [x.tolist() for x, _ in make_loader(shuffle=True)]
    torch.manual_seed(3)
    assert [x.tolist() for x, _ in pl.MpDeviceLoader(make_loader(shuffle=True), device)] == expected


def test_synthetic_data_ends(device):
    """iter() of the iterator of SampleGenerator starts again."""
    loader = pl.MpDeviceLoader(xu.SampleGenerator((torch.ones(2), torch.zeros(2)), sample_count=3), device)
    for _ in range(2):
        assert [[t.tolist() for t in batch] for batch in itertools.islice(loader, 9)] == [[[1, 1], [0, 0]]] * 3


def test_nested_batches(device):
    batch = {"x": [torch.ones(2)], "name": "a", "there": torch.zeros(1, device=device)}
    (moved,) = pl.MpDeviceLoader([batch], device)
    assert moved["x"][0].device == device and moved["name"] == "a" and moved["there"] is batch["there"]
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])
    (moved,) = pl.MpDeviceLoader([packed], device)
    assert moved.data.device == device and moved.batch_sizes.device.type == "cpu"


@pytest.mark.parametrize(
    "data", [xu.SampleGenerator((torch.ones(2),), 3), xu.FnDataGenerator(lambda x: 2 * x, 2, torch.ones, [2], 3)]
)
def test_generators_end(device, data):
    """Their iterators start again when they are asked for one."""
    loader = pl.MpDeviceLoader(data, device)
    for _ in range(2):
        assert len(list(loader)) == 3


def test_attributes(device):
    loader = pl.MpDeviceLoader(make_loader(), device, batches_per_execution=2)
    assert loader._device == device and loader._parallel_loader_kwargs == {"batches_per_execution": 2}
    assert loader.batch_size == 4 and len(loader.dataset) == 10
    assert copy.copy(loader)._loader is loader._loader
    with pytest.raises(AttributeError, match="nothing"):
        _ = loader.nothing


@pytest.mark.parametrize("every", [1, 2, 4, 10])
def test_a_sync_after_each_step(device, every):
    before = count_syncs()
    seen = [count_syncs() - before for _ in pl.MpDeviceLoader(range(6), device, batches_per_execution=every)]
    assert seen == [step // every for step in range(6)]
    assert count_syncs() - before == 6 // every + 1


def test_errors_come_with_their_batch(device):
    def batches():
        yield torch.ones(1)
        yield torch.ones(1)
        raise KeyError("third")

    seen = []
    with pytest.raises(KeyError, match="third"):
        for batch in pl.MpDeviceLoader(batches(), device):
            seen.append(batch.item())
    assert seen == [1, 1]


def test_it_reads_ahead_but_not_without_limit(device):
    read = []

    def batches():
        for i in range(100):
            read.append(i)
            yield torch.tensor(i)

    loader = iter(pl.MpDeviceLoader(batches(), device, loader_prefetch_size=2, device_prefetch_size=3))
    next(loader)
    deadline = time.monotonic() + 30
    while len(read) < 7 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(read) == 7  # the one that was given, five that wait, one in the thread's hand


def test_a_loop_that_ends_early_leaves_no_thread(device):
    def loader_threads():
        return [t for t in threading.enumerate() if t.name == "xla-loader"]

    for _ in pl.MpDeviceLoader((torch.ones(1) for _ in range(1000)), device):
        break
    closed = iter(pl.MpDeviceLoader((torch.ones(1) for _ in range(1000)), device))
    next(closed)
    closed.close()
    gc.collect()
    deadline = time.monotonic() + 30
    while loader_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not loader_threads()


def test_what_does_not_fit_is_refused(device):
    with pytest.raises(ValueError, match="a loader needs a device"):
        pl.ParallelLoader([], [])
    with pytest.raises(ValueError, match="batches_per_execution is 0"):
        pl.ParallelLoader([], [device], batches_per_execution=0)
    with pytest.raises(ValueError, match="not among the loader's devices"):
        pl.ParallelLoader([], [device]).per_device_loader("cpu")


def test_training(device):
    parameter = torch.nn.Parameter(torch.zeros(1, device=device))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for x, _ in pl.MpDeviceLoader(make_loader(), device):
        optimizer.zero_grad()
        (parameter * x.sum()).sum().backward()
        optimizer.step()
    torch.testing.assert_close(parameter.detach().cpu(), torch.tensor([-4.5]))
