"""torch.nn.DataParallel: replicas on all devices of the process. test_several_devices.py runs this file with two."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import comm, data_parallel
from torch.nn.parallel.scatter_gather import gather, scatter


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def losses(model: nn.Module, batches) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for batch in batches:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_training_agrees_with_one_module(device):
    torch.manual_seed(1)
    batches = [torch.randn(6, 4) for _ in range(4)]
    model = nn.DataParallel(make_model().to(device))
    assert model.device_ids == list(range(torch.xla.device_count())) and model.src_device_obj == device
    assert losses(model, batches) == pytest.approx(losses(make_model(), batches), rel=1e-4)
    assert next(iter(model.state_dict())) == "module.0.weight"


def test_batches_may_be_smaller_than_devices_and_of_any_container(device):
    class Total(nn.Module):
        """The sum of what is in a container."""

        def forward(self, batch):
            return (batch["x"] + batch["pair"][1]).sum(1, keepdim=True)

    model = nn.DataParallel(Total().to(device))
    for size in (1, 3, 8):
        x = torch.arange(2.0 * size).view(size, 2)
        result = model({"x": x, "pair": (x, x + 1)})
        assert result.device == device and result.tolist() == (2 * x + 1).sum(1, keepdim=True).tolist()
    assert data_parallel(nn.Linear(2, 1).to(device), torch.ones(5, 2)).shape == (5, 1)


def test_the_error_of_a_replica_is_raised(device):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        nn.DataParallel(make_model().to(device))(torch.ones(6, 3))


def test_copies_among_devices(device):
    ids = list(range(torch.xla.device_count()))
    x = torch.arange(12.0).view(6, 2)
    parts = comm.scatter(x, ids)
    assert [part.device.index for part in parts] == ids and torch.equal(comm.gather(parts, destination="cpu"), x)
    assert comm.gather(parts).device == device
    sizes = [6 - len(ids) + 1] + [1] * (len(ids) - 1)
    assert [part.shape[0] for part in comm.scatter(x.to(device), ids, chunk_sizes=sizes)] == sizes
    out = [torch.empty(size, 2, device=torch.device("xla", index)) for size, index in zip(sizes, ids)]
    assert torch.equal(comm.gather(comm.scatter(x, out=out), out=torch.empty(6, 2)), x)
    copies = comm.broadcast(x.to(device), ids)
    assert all(torch.equal(copy.cpu(), x) for copy in comm.broadcast(x.to(device), out=[c.clone() for c in copies]))
    for tensors in comm.broadcast_coalesced([x.to(device), torch.ones(3, device=device)], ids):
        assert torch.equal(tensors[0].cpu(), x) and tensors[1].tolist() == [1, 1, 1]
    assert torch.equal(comm.reduce_add(list(copies), 0).cpu(), x * len(ids))


def test_gradients_pass_scatter_and_gather(device):
    x = torch.arange(6.0, requires_grad=True)
    (gather(scatter(x, list(range(torch.xla.device_count()))), 0) * torch.arange(6.0, device=device)).sum().backward()
    assert x.grad.tolist() == [0, 1, 2, 3, 4, 5]
