"""What the processes of a run do in the tests of meshes over processes: each function takes its number first."""

import copy
import io

import pytest
import torch
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from marked_programs import check
from replicas_lost import until_told
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemReader

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla.distributed.spmd._spread_tensor import SpreadTensor
from torch_xla.experimental.scan_layers import scan_layers
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel
from torch_xla.utils.checkpoint import checkpoint


def mesh_of(*shape: int, names: str = "") -> xs.Mesh:
    xr.use_spmd()
    return xs.Mesh(range(xr.process_count()), shape, tuple(names) or None)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def local_bytes(tensors) -> int:
    """Bytes of this process's parts."""
    parts = (t.placed().to_local() if isinstance(t, SpreadTensor) else t for t in tensors)
    return sum(part.numel() * part.element_size() for part in parts)


# ---- Marks and values ----
def marks(rank: int) -> None:
    """A marked tensor is the same object, holds its part, and reads as the whole."""
    mesh = mesh_of(2, 2, names="ab")
    whole = numbers(8, 6)
    x = whole.to("xla")
    marked = xs.mark_sharding(x, mesh, ("a", "b"))
    assert marked is x and isinstance(x, xs.XLAShardedTensor) and x.shape == (8, 6)
    assert x.sharding_spec == xs.sharding_spec(x) == "{devices=[2,2]0,1,2,3}"
    assert x.sharding_type == xs.ShardingType.TILED
    assert x.placed().to_local().shape == (4, 3)
    (shard,) = x.local_shards
    rows, columns = slice(rank // 2 * 4, rank // 2 * 4 + 4, 1), slice(rank % 2 * 3, rank % 2 * 3 + 3, 1)
    assert shard.indices == [rows, columns] and shard.data.equal(whole[rows, columns])
    assert shard.shard_device == f"CPU:{rank}" and shard.replica_id == 0
    assert x.cpu().equal(whole) and x.tolist() == whole.tolist() and x[1, 2].item() == whole[1, 2]
    assert repr(whole)[7:40] in repr(x) and f"{x.sum():.3f}" == f"{whole.sum():.3f}"
    assert xs.sharding_spec(x + 1) == x.sharding_spec and xs.sharding_spec(x.t()) == "{devices=[2,2]0,2,1,3}"
    y = xs.mark_sharding(whole.to("xla"), mesh, (("a", "b"), None))
    assert y.placed().to_local().shape == (2, 6) and y.sharding_spec == "{devices=[4,1]0,1,2,3}"
    xs.annotate_custom_sharding(y, mesh, (None, None))
    assert y.sharding_spec == "{replicated}" and y.cpu().equal(whole)
    with pytest.raises(RuntimeError, match=r"the tensor is sharded as \{devices=\[2,2\]0,1,2,3\}: call clear_sharding"):
        xs.mark_sharding(x, mesh, (None, "a"))
    assert xs.clear_sharding(x) is x and type(x) is torch.Tensor and x.cpu().equal(whole) and not xs.sharding_spec(x)
    z = xs.mark_sharding(whole.to("xla"), mesh, (None, "b"))
    (shard,) = z.local_shards
    shard.data += 1
    z.load_local_shards_([shard])
    assert z.cpu().equal(whole + 1)
    assert xs.shard_as([whole.to("xla")], [z])[0][0].sharding_spec == z.sharding_spec


def uneven_parts(rank: int) -> None:
    """Dims that the axes do not divide, and that are smaller than them."""
    mesh = mesh_of(4)
    for size in (1, 2, 3, 5, 6, 7, 9):
        whole = numbers(size, 3)
        x = xs.mark_sharding(whole.to("xla"), mesh, (0, None))
        (shard,) = x.local_shards
        assert shard.unpadded_data.equal(whole[tuple(shard.indices)]) and shard.data.shape[0] == -(-size // 4)
        assert x.cpu().equal(whole) and x.sum().item() == pytest.approx(whole.sum().item(), rel=1e-5)
        torch.testing.assert_close(x.amax(0).cpu(), whole.amax(0))
        torch.testing.assert_close(x.mean().cpu(), whole.mean())


def parameters(rank: int) -> None:
    """A mark in place keeps the Parameter, its attributes, its gradient, and an optimizer that is older."""
    mesh = mesh_of(4, names="a")
    plain = nn.Linear(8, 12)
    layer = copy.deepcopy(plain).to("xla")
    weight = layer.weight
    weight.partition = "rows"
    optimizers = [torch.optim.AdamW(each.parameters(), lr=0.1) for each in (plain, layer)]

    def step() -> None:
        for each, optimizer in zip((plain, layer), optimizers):
            each(numbers(4, 8).to(each.weight.device)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    step()
    layer(numbers(4, 8).to("xla")).sum().backward()
    plain(numbers(4, 8)).sum().backward()
    torch_xla.sync()
    xs.mark_sharding(layer.weight, mesh, ("a", None))
    assert layer.weight is weight and isinstance(weight, nn.Parameter) and weight.partition == "rows"
    assert weight.is_leaf and weight.requires_grad and next(layer.parameters()) is weight
    step()
    step()
    for tensor in (weight, optimizers[1].state[weight]["exp_avg"]):
        assert tensor.placed().to_local().shape == (3, 8)
    for ours, theirs in zip(layer.parameters(), plain.parameters()):
        torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), rtol=1e-4, atol=1e-5)
    layer(numbers(4, 8).to("xla")).sum().backward()
    assert weight.grad.placed().to_local().shape == (3, 8)
    copied = copy.deepcopy(layer)
    assert isinstance(copied.weight, nn.Parameter) and copied.weight.placed().to_local().shape == (3, 8)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["weight"].cpu().equal(weight.cpu()) and type(loaded["weight"]) is torch.Tensor
    layer.load_state_dict({name: value * 0 for name, value in loaded.items()})
    assert layer.weight is weight and not weight.cpu().any() and weight.placed().to_local().shape == (3, 8)
    layer.to(torch.float64)
    assert layer.weight.dtype == torch.float64 and layer.weight.placed().to_local().shape == (3, 8)


def views_and_writes(rank: int) -> None:
    """Writes through views that need other processes' parts, writes of plain tensors, other meshes."""
    mesh, other = mesh_of(4), mesh_of(2, 2)
    expected = numbers(8, 8)
    x = xs.mark_sharding(expected.to("xla"), mesh, (0, None))
    for t in (x, expected):
        row, block = t[3], t[2:7, 1:3]
        row.fill_(7)
        block += row[:2] * 1
        t.t()[0].zero_()
        t[:, 4] = t[:, 5]
        row.add_(1)
    assert x.cpu().equal(expected)
    row = x[6]
    x.mul_(2)
    assert row.cpu().equal(expected[6] * 2) and x.placed().to_local().shape == (2, 8)
    plain = torch.zeros(8, 8, device="xla")
    plain.add_(x)
    assert type(plain) is torch.Tensor and plain.cpu().equal(expected * 2)
    plain.copy_(x)
    y = xs.mark_sharding(plain.clone(), other, (0, 1))
    assert (x + y).cpu().equal(expected * 4) and (y @ x).shape == (8, 8)
    x.copy_(expected)
    assert x.cpu().equal(expected) and x.placed().to_local().shape == (2, 8)
    on_cpu = torch.empty(8, 8)
    on_cpu.copy_(x)
    assert on_cpu.equal(expected) and x.equal(x.clone()) and x[x > 1].cpu().equal(expected[expected > 1])
    x.data = expected.to("xla") + 1
    assert x.cpu().equal(expected + 1)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        x + expected
    with pytest.raises(RuntimeError, match="resize_ cannot change the memory of a tensor over processes"):
        x.resize_(4)
    row = x[6]
    assert row.unsqueeze_(0).shape == (1, 8) and x.t_().shape == (8, 8) and x.cpu().equal((expected + 1).t())
    row.zero_()
    assert not x[:, 6].any() and x[:, 5].any() and not row.any()


def random_numbers(rank: int) -> None:
    """They are those of one process, whatever the marks."""
    mesh = mesh_of(4)

    def draw(x) -> list[torch.Tensor]:
        torch.manual_seed(5)
        dropped = F.dropout(x, 0.3)
        return [t.cpu() for t in (dropped, torch.rand_like(x), x.clone().normal_(), torch.randn(4, device="xla"))]

    whole = numbers(10, 6).to("xla")
    for ours, theirs in zip(draw(xs.mark_sharding(whole.clone(), mesh, (0, None))), draw(whole)):
        torch.testing.assert_close(ours, theirs)


def read_by_one(rank: int) -> None:
    """A loss is whole on each process: one may read it alone."""
    mesh = mesh_of(4)
    x = xs.mark_sharding(numbers(8, 4).to("xla").requires_grad_(), mesh, (0, None))
    loss = x.square().mean()
    loss.backward()
    if rank == 1:
        assert loss.item() == pytest.approx(numbers(8, 4).square().mean().item(), rel=1e-5)
    torch_xla.sync()
    xm.rendezvous("read by one")


def random_programs(rank: int, seeds) -> None:
    xr.use_spmd()
    for seed in seeds:
        check(seed, xr.process_count())


# ---- Training ----
class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    """Embedding, two blocks, tied head."""

    def __init__(self, words: int = 50, width: int = 16):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Parameter(torch.randn(12, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.embed(tokens) + self.place[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embed.weight)


def mark_transformer(model: Transformer, mesh: xs.Mesh) -> None:
    """As torchprime does: products by fsdp x tensor, the embedding too."""
    xs.mark_sharding(model.embed.weight, mesh, ("t", "f"))
    for block in model.blocks:
        for layer in (block.qkv, block.up):
            xs.mark_sharding(layer.weight, mesh, ("t", "f"))
        for layer in (block.out, block.down):
            xs.mark_sharding(layer.weight, mesh, ("f", "t"))


def losses_of(model, optimizer, batches, loss_of) -> list[float]:
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_training(model, mark, loss_of, batches, mark_batch, optimizer) -> nn.Module:
    """Losses and parameters of 10 steps against CPU eager. Returns the marked model."""
    marked = copy.deepcopy(model).to("xla")
    mark(marked)
    expected = losses_of(model, optimizer(model.parameters()), batches, loss_of)
    stepped = optimizer(marked.parameters())
    actual = losses_of(marked, stepped, [mark_batch(batch) for batch in batches], loss_of)
    assert actual == pytest.approx(expected, rel=1e-4, abs=1e-4)
    for (name, ours), theirs in zip(marked.named_parameters(), model.parameters()):
        torch.testing.assert_close(
            ours.detach().cpu(), theirs.detach(), rtol=2e-3, atol=2e-4, msg=lambda m, name=name: f"{name}: {m}"
        )
    for parameter in marked.parameters():
        if isinstance(parameter, SpreadTensor):
            for t in (parameter.grad, *(s for s in stepped.state[parameter].values() if s.shape == parameter.shape)):
                assert t.placed().placements == parameter.placed().placements
    return marked


def train_mlp(rank: int, grid: tuple[int, ...]) -> None:
    """Data x fsdp x tensor, some parameters unmarked."""
    torch.manual_seed(0)
    mesh = mesh_of(*grid, names="dft")
    model = nn.Sequential(
        nn.Linear(10, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 5)
    )
    batches = [(numbers(16, 10, seed=i), torch.arange(16) % 5) for i in range(10)]

    def mark(model) -> None:
        xs.mark_sharding(model[0].weight, mesh, (("f", "t"), None))
        xs.mark_sharding(model[0].bias, mesh, ("t",))
        xs.mark_sharding(model[3].weight, mesh, ("f", "t"))
        xs.mark_sharding(model[5].weight, mesh, (None, ("t", "f")))

    def mark_batch(batch):
        x, y = (t.to("xla") for t in batch)
        return xs.mark_sharding(x, mesh, (("d", "f"), None)), xs.mark_sharding(y, mesh, (("d", "f"),))

    def loss_of(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1])

    for optimizer in (
        lambda p: torch.optim.AdamW(p, lr=0.01),
        lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    ):
        check_training(copy.deepcopy(model), mark, loss_of, batches, mark_batch, optimizer)


def train_transformer(rank: int, grid: tuple[int, ...]) -> None:
    """Embedding, attention, layer norm, cross entropy."""
    torch.manual_seed(0)
    mesh = mesh_of(*grid, names="dft")
    model = Transformer()
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randint(50, (8, 13), generator=generator) for _ in range(10)]

    def loss_of(model, tokens):
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def mark_batch(tokens):
        return xs.mark_sharding(tokens.to("xla"), mesh, (("d", "f"), None))

    check_training(
        model,
        lambda model: mark_transformer(model, mesh),
        loss_of,
        batches,
        mark_batch,
        lambda p: torch.optim.AdamW(p, lr=3e-3, eps=1e-4),  # the gradients of the keys' biases are zero
    )


def parts_of_steps(rank: int) -> None:
    """Autocast, torch.compile, checkpoints, scan_layers and barriers on marked layers: gradients of the plain ones."""
    mesh = mesh_of(2, 2, names="df")
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(16, 16) for _ in range(3)))
    x = numbers(8, 16)

    def autocast(model, x):
        with torch.autocast(x.device.type, torch.bfloat16):
            return model(x).float()

    def barrier(model, x):
        return xs.apply_backward_optimization_barrier(copy.copy(model))(x)

    def plain(model, x):
        return model(x)

    for ours, theirs, tolerance in (
        (autocast, autocast, 0.02),
        (lambda model, x: torch.compile(model, backend="openxla")(x), plain, 1e-5),
        (lambda model, x: checkpoint(model, x, use_reentrant=False), plain, 1e-5),
        (scan_layers, plain, 1e-5),
        (barrier, plain, 1e-5),
    ):
        marked = copy.deepcopy(layers).to("xla")
        for layer in marked:
            xs.mark_sharding(layer.weight, mesh, ("f", None))
        ours(marked, xs.mark_sharding(x.to("xla"), mesh, ("d", None))).square().mean().backward()
        layers.zero_grad()
        theirs(layers, x).square().mean().backward()
        for parameter, expected in zip(marked.parameters(), layers.parameters()):
            torch.testing.assert_close(parameter.grad.cpu(), expected.grad, rtol=tolerance, atol=tolerance / 10)
        assert all(layer.weight.grad.placed().placements == layer.weight.placed().placements for layer in marked)
        torch.optim.SGD(marked.parameters(), lr=0.1).step()


def fsdp_by_marks(rank: int) -> None:
    """SpmdFullyShardedDataParallel: values, and the bytes of parameters, gradients and states in each process."""
    torch.manual_seed(0)
    mesh = mesh_of(4, 1, names="fm")
    mesh = xs.Mesh(range(4), (4, 1), ("fsdp", "model"))
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64))
    whole = sum(p.numel() * 4 for p in model.parameters())
    batches = [(numbers(8, 64, seed=i), numbers(8, 64, seed=i + 1)) for i in range(3)]
    wrapped = []

    def loss_of(model, batch):
        return (model(batch[0]) - batch[1]).square().mean()

    def mark(model) -> None:
        wrapped.append(SpmdFullyShardedDataParallel(model, mesh=mesh))
        optimizer = torch.optim.AdamW(wrapped[0].parameters(), lr=0.01)
        expected = torch.optim.AdamW(plain.parameters(), lr=0.01)
        for batch in batches:
            marked = [xs.mark_sharding(t.to("xla"), mesh, ("fsdp", None)) for t in batch]
            optimizer.zero_grad()
            losses = loss_of(wrapped[0], marked), loss_of(plain, batch)
            for loss, stepped in zip(losses, (optimizer, expected)):
                stepped.zero_grad()
                loss.backward()
                stepped.step()
            assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-4)
        states = [s for state in optimizer.state.values() for s in state.values() if s.dim()]
        own = [*wrapped[0].parameters(), *(p.grad for p in wrapped[0].parameters()), *states]
        assert local_bytes(own) <= 0.26 * 4 * whole
        del losses, loss, marked
        torch_xla.sync(wait=True)
        assert xm.get_memory_info()["bytes_used"] <= 0.35 * 4 * whole

    plain = copy.deepcopy(model)
    mark(model.to("xla"))


def checkpoints(rank: int, path: str) -> None:
    """A checkpoint of one mesh is read by another one, and by a process alone. Each process writes its part."""
    mesh, other = mesh_of(4), mesh_of(2, 2)
    whole = numbers(6, 8)
    saved = {"x": xs.mark_sharding(whole.to("xla"), mesh, (0, None)), "plain": whole.to("xla")}
    dcp.save(saved, checkpoint_id=path)
    loaded = {"x": xs.mark_sharding(torch.zeros(6, 8).to("xla"), other, (1, 0)), "plain": torch.zeros(6, 8)}
    dcp.load(loaded, checkpoint_id=path)
    assert loaded["x"].cpu().equal(whole) and loaded["plain"].equal(whole)
    assert loaded["x"].placed().to_local().shape == (3, 4)
    assert len(FileSystemReader(path).read_metadata().state_dict_metadata["x"].chunks) == 4


def loaders(rank: int) -> None:
    """Batches by input_sharding: the whole batch in each process, or each process's part."""
    mesh = mesh_of(2, 2, names="ab")
    batches = [numbers(8, 6, seed=i) for i in range(3)]
    whole = pl.MpDeviceLoader(batches, "xla", input_sharding=xs.ShardingSpec(mesh, ("a", "b")))
    for batch, expected in zip(whole, batches, strict=True):
        assert batch.placed().to_local().shape == (4, 3) and batch.cpu().equal(expected)
    parts = [batch.chunk(2)[rank // 2] for batch in batches]
    spec = xs.ShardingSpec(mesh, ("a", "b"), minibatch=True)
    for batch, expected in zip(pl.MpDeviceLoader(parts, "xla", input_sharding=spec), batches, strict=True):
        assert batch.placed().to_local().shape == (4, 3) and batch.cpu().equal(expected)
    parts = [{"x": batch.chunk(4)[rank]} for batch in batches]
    spec = {"x": xs.ShardingSpec(mesh, (("a", "b"), None), minibatch=True)}
    for batch, expected in zip(pl.MpDeviceLoader(parts, "xla", input_sharding=spec), batches, strict=True):
        assert batch["x"].placed().to_local().shape == (2, 6) and batch["x"].cpu().equal(expected)


def manual_sharding(rank: int) -> None:
    """A program that says what each process does with its part."""
    mesh = mesh_of(4, names="a")
    whole = numbers(8, 4)
    x = whole.to("xla").requires_grad_()
    part = xs.enable_manual_sharding(x, ("a", None), mesh=mesh)
    assert type(part) is torch.Tensor and part.detach().cpu().equal(whole.chunk(4)[rank])
    joined = xs.disable_manual_sharding(part * (rank + 1), ("a", None), (8, 4), mesh=mesh)
    factors = torch.arange(1, 5).repeat_interleave(2)[:, None]
    assert joined.shape == (8, 4) and joined.detach().cpu().equal(whole * factors)
    joined.sum().backward()
    assert x.grad.cpu().equal(factors.expand(8, 4).float())
    for call, match in (
        (lambda: xs.enable_manual_sharding(x[:5], ("a", None), mesh=mesh), "cannot be cut into"),
        (lambda: xs.disable_manual_sharding(part, ("a", None), (12, 4), mesh=mesh), "has no part of shape"),
    ):
        with pytest.raises(ValueError, match=match):
            call()


def explained(rank: int) -> None:
    """explain() names the line and the operation that each process computes whole."""
    mesh = mesh_of(4)
    torch_xla.debug.forget()
    x = xs.mark_sharding(numbers(8, 4).to("xla"), mesh, (0, None))
    for _ in range(4):
        y = x[:, :2].renorm(2, 0, 1.0)  # no rule
        torch_xla.sync()
    torch.testing.assert_close(y.cpu(), numbers(8, 4)[:, :2].renorm(2, 0, 1.0))
    report = torch_xla.debug.explain()
    assert {event.name for event in report.replicated} == {"aten::renorm"}
    (finding,) = (each for each in report.findings if each.cause == "replicated")
    assert "over_processes.py:" in finding.line and "aten::renorm cannot be spread" in finding.what
    assert "Ran on the whole values in each process" in str(report)


def trains_for_ever(rank: int, path: str) -> None:
    """Marked training until another process is lost; says what it was told."""
    mesh = mesh_of(4, names="a")
    model = nn.Linear(8, 8).to("xla")
    xs.mark_sharding(model.weight, mesh, ("a", None))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(number: int) -> None:
        model(xs.mark_sharding(torch.ones(8, 8).to("xla"), mesh, ("a", None))).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        model.weight.sum().item()

    until_told(rank, path, step)
