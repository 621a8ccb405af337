"""Training on several devices by threads, and loaders that feed several devices."""

from pathlib import Path

import pytest
import torch
from test_several_devices import TWO
from torch import nn

import torch_xla.core.xla_model as xm
import torch_xla.distributed.data_parallel as dp
import torch_xla.distributed.parallel_loader as pl

PROGRAM = """
    import torch, torch.nn as nn, torch.optim as optim, torch_xla
    import torch_xla.core.xla_model as xm, torch_xla.runtime as xr
    import torch_xla.debug.metrics as met
    import torch_xla.distributed.data_parallel as dp
    torch.manual_seed(0)
    class Net(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4), nn.LogSoftmax(1))
    batches = [(torch.randn(8, 6), torch.randint(4, (8,))) for _ in range(7)]
"""


def test_the_loop_of_the_seeds(run_python):
    out = run_python(
        PROGRAM
        + """
    devices = xm.get_xla_supported_devices()
    model_parallel = dp.DataParallel(Net, device_ids=devices)
    def train_loop_fn(model, loader, device, context):
        loss_fn = nn.NLLLoss()
        optimizer = context.getattr_or("optimizer", lambda: optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        model.train()
        steps = 0
        for _, (data, target) in loader:
            optimizer.zero_grad()
            output = model(data)
            loss = loss_fn(output, target)
            loss.backward()
            xm.optimizer_step(optimizer)
            steps += 1
            assert data.device == device and xr.world_size() == 2 and xr.global_ordinal() == device.index
        return steps, loss.device.index
    for epoch in range(3):
        print(model_parallel(train_loop_fn, batches))
    first, second = ([p.cpu() for p in model.parameters()] for model in model_parallel.models)
    print(all(torch.equal(a, b) for a, b in zip(first, second)), model_parallel.devices, xr.world_size())
    def sums(model, loader, device, context, factor=1):
        return xm.all_reduce("sum", torch.full((2,), factor * (device.index + 1.0), device=device)).tolist()
    print(model_parallel(sums, batches, factor=2), xm.all_reduce("sum", torch.ones(1, device="xla")).item())
    print([xr.global_ordinal()], [n for n in met.counter_names() if n.startswith("aten::") and "local_scalar" not in n])
    """,
        **TWO,
    )
    lines = out.splitlines()
    assert lines[:3] == ["[(3, 0), (3, 1)]"] * 3
    assert lines[3] == "True ['xla:0', 'xla:1'] 1"
    assert lines[4] == "[[6.0, 6.0], [6.0, 6.0]] 1.0" and lines[5] == "[0] []"


def test_the_average_is_that_of_the_joined_batch(run_python):
    out = run_python(
        PROGRAM
        + """
    net = Net()
    expected = Net()
    expected.load_state_dict(net.state_dict())
    def loop(model, loader, device, context):
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        for data, target in loader:
            optimizer.zero_grad()
            nn.functional.nll_loss(model(data), target).backward()
            xm.optimizer_step(optimizer)
    models = dp.DataParallel(net, numbered=False)
    models(loop, batches)
    optimizer = optim.SGD(expected.parameters(), lr=0.1)
    for i in range(0, 6, 2):
        optimizer.zero_grad()
        data, target = (torch.cat(parts) for parts in zip(*batches[i : i + 2]))
        nn.functional.nll_loss(expected(data), target).backward()
        optimizer.step()
    for p, q in zip(models.models[1].parameters(), expected.parameters()):
        torch.testing.assert_close(p.cpu(), q, rtol=1e-5, atol=1e-5)
    print("equal")
    """,
        **TWO,
    )
    assert out == "equal\n"


def test_an_exception_of_one_loop(run_python):
    out = run_python(
        PROGRAM
        + """
    import threading
    def loop(model, loader, device, context):
        for number, _ in loader:
            if device.index == 1 and number == 1:
                raise KeyError("of one loop")
            xm.all_reduce("sum", torch.ones(2, device=device)).cpu()
    models = dp.DataParallel(Net)
    try:
        models(loop, batches)
    except KeyError as error:
        print(error)
    print(models(lambda model, loader, device, context: len(list(loader)), batches))
    import replicas
    told = []
    def meet(model, loader, device, context):
        xm.all_reduce("sum", torch.ones(2, device=device)).cpu()
        told.append(set(address[:9] for address in replicas.listening_addresses(["self"])))
        if device.index == 0:
            try:
                xm.rendezvous("never")
            except RuntimeError as error:
                told.append(str(error))
    models(meet, batches)
    print(told[1:])
    """,
        XLA_COLLECTIVE_TIMEOUT="100",
        PYTHONPATH=str(Path(__file__).parent),
        **TWO,
    )
    lost = "replica 1 has ended or does not answer; replicas [1] did not come to the meeting 'never'"
    assert out == f"'of one loop'\n[3, 3]\n{[{'0100007F:'}, lost]}\n"


def test_on_the_cpu_by_pytorch_itself():
    model_parallel = dp.DataParallel(lambda: nn.Linear(2, 1), device_ids=[])
    assert model_parallel.devices == ["cpu"]

    def loop(model, loader, device, context):
        context.seen = context.getattr_or("seen", 0) + 1
        return [(i, model(x).device.type, device.type, context.seen) for i, (x,) in loader]

    batches = [(torch.ones(1, 2),)] * 2
    assert model_parallel(loop, batches) == [[(0, "cpu", "cpu", 1), (1, "cpu", "cpu", 1)]]
    assert model_parallel(loop, batches)[0][0][3] == 2


def test_on_one_device(device):
    model_parallel = dp.DataParallel(nn.Linear(2, 1), device_ids=[device])

    def loop(model, loader, device, context):
        return [model(x).shape for _, (x,) in loader]

    assert model_parallel(loop, [(torch.ones(3, 2),)] * 2) == [[(3, 1), (3, 1)]]


# ---- Loaders ----
def test_a_loader_of_two_devices(run_python):
    out = run_python(
        """
    import torch, torch_xla, torch_xla.distributed.parallel_loader as pl
    devices = torch_xla.devices()
    loader = pl.ParallelLoader([torch.full((2,), float(i)) for i in range(7)], devices)
    for turn in range(2):
        first, second = (loader.per_device_loader(device) for device in devices)
        print([(t.device.index, t[0].item()) for t in first], [(t.device.index, t[0].item()) for t in second])
    first = iter(loader.per_device_loader(devices[0]))
    next(first)
    loader.close()
    print(len(loader.per_device_loader(devices[1])))
    """,
        **TWO,
    )
    line = "[(0, 0.0), (0, 2.0), (0, 4.0)] [(1, 1.0), (1, 3.0), (1, 5.0)]"
    assert out.splitlines() == [line, line, "3"]


def test_batches_of_one_size(device):
    batches = [torch.ones(4, 2), torch.ones(4, 2), torch.ones(3, 2), torch.ones(4, 2)]
    loader = pl.ParallelLoader(batches, [device], fixed_batch_size=True)
    assert [len(t) for t in loader.per_device_loader(device)] == [4, 4]
    loader = pl.ParallelLoader(loader=[t.T for t in batches], devices=[device], batchdim=1, fixed_batch_size=True)
    assert [t.size(1) for t in loader.per_device_loader(device)] == [4, 4]
    with pytest.raises(ValueError, match="needs a device"):
        pl.ParallelLoader([], [])
    with pytest.raises(ValueError, match="cpu_loader is missing"):
        pl.ParallelLoader(devices=[device])
    assert xm.get_xla_supported_devices()


def test_threads_as_the_original_starts_them(run_python):
    out = run_python(
        """
    import torch, torch_xla
    import torch_xla.core.xla_model as xm, torch_xla.runtime as xr
    from torch_xla._internal import pjrt, tpu
    seen = {}
    def work(number, factor):
        total = xm.all_reduce("sum", torch.full((2,), factor * (number + 1.0), device="xla")).tolist()
        seen[number] = (torch_xla.device().index, xr.global_ordinal(), xr.world_size(), total)
    pjrt.spawn_threads(work, (10,))
    print(sorted(seen.items()), xr.world_size())
    def fails(number):
        raise KeyError(number)
    try:
        pjrt.spawn_threads(fails)
    except KeyError as error:
        print("KeyError", error.args[0] in (0, 1))
    first = []
    print(pjrt._run_thread_per_device(0, 1, xr.global_ordinal, lambda *place: first.append(place)), first)
    print(tpu.num_expected_global_devices(), tpu.num_tpu_workers(), tpu.num_logical_cores_per_chip())
    """,
        **TWO,
        PJRT_DEVICE="CPU",
    )
    lines = out.splitlines()
    assert lines[0] == "[(0, (0, 0, 2, [30.0, 30.0])), (1, (1, 1, 2, [30.0, 30.0]))] 1"
    assert lines[1:] == ["KeyError True", "{0: 0, 1: 1} [(0, 1)]", "2 1 1"]
