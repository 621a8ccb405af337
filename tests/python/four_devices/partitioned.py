"""Programs over the devices of a plugin: values, memory, training. test_several_devices.py runs this file."""

import copy
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla.experimental.scan import scan

xr.use_spmd()
N = xr.global_runtime_device_count()
MESHES = {4: [(4,), (1, 4), (2, 2), (4, 1)], 8: [(8,), (1, 8), (2, 4), (4, 2), (2, 2, 2)]}[N]


@pytest.fixture
def mesh():
    return xs.Mesh(range(N), (2, N // 2), ("data", "fsdp"))


# ---- Random programs ----
def any_mesh(rng: random.Random, order) -> xs.Mesh:
    return xs.Mesh(order, rng.choice(MESHES))


def any_spec(rng: random.Random, mesh: xs.Mesh, rank: int) -> tuple:
    """Each axis of the mesh at one dim, or at none."""
    dims = [[] for _ in range(rank)]
    axes = list(range(len(mesh.mesh_shape)))
    rng.shuffle(axes)
    for axis in axes:
        if rank and rng.random() < 0.8:
            rng.choice(dims).append(axis)
    return tuple(None if not axes else axes[0] if len(axes) == 1 else tuple(axes) for axes in dims)


def products(x, w, b, mark):
    hidden = mark(x @ w + b[: w.shape[1]])
    return mark(F.gelu(hidden)).softmax(-1)


def views(x, w, b, mark):
    parts = torch.cat([x, mark(x.flip(0))], 1).transpose(0, 1)
    return mark(parts[1:].reshape(-1)) * 2 + mark(w.t()).sum() * b[0]


def reductions(x, w, b, mark):
    y = mark(x.square().mean(1, keepdim=True)) + b[0]
    return F.layer_norm(mark(w), w.shape[1:]).sum(1) @ w * y.amax() + x.cumsum(0).sum()


def lookups(x, w, b, mark):
    rows = torch.arange(x.shape[0], device=x.device) % w.shape[0]
    return mark(F.embedding(rows, mark(w))) + b[rows % b.shape[0]].unsqueeze(1)


def in_place(x, w, b, mark):
    y = mark(x * 2)
    y.add_(1)
    y[:, :1] *= 3
    return mark(y).clone().clamp_(-1, 5) + b[0]


PROGRAMS = [products, views, reductions, lookups, in_place]


@pytest.mark.parametrize("seed", [*range(40), 97, 102, 112])
def test_random_programs(seed, device):
    """Values and gradients are those of the unmarked program on the CPU, for any sizes."""
    rng = random.Random(seed)
    program = PROGRAMS[seed % len(PROGRAMS)]
    torch.manual_seed(seed)
    n, m, k = (rng.randint(1, 11) for _ in range(3))
    inputs = [torch.randn(*shape, dtype=torch.float64) for shape in ((n, m), (m, k), (max(m, k, 2),))]
    expected = [t.clone().requires_grad_() for t in inputs]
    program(*expected, lambda t: t).sin().sum().backward()
    actual = [t.to(device).requires_grad_() for t in inputs]
    order = list(range(N))
    if seed % 3 == 0:
        rng.shuffle(order)
    for t in actual:
        if rng.random() < 0.7:
            mesh = any_mesh(rng, order)
            xs.mark_sharding(t, mesh, any_spec(rng, mesh, t.dim()))

    def mark(t):
        if rng.random() < 0.7:
            mesh = any_mesh(rng, order)
            xs.annotate_custom_sharding(t, mesh, any_spec(rng, mesh, t.dim()))
        return t

    result = program(*actual, mark)
    result.sin().sum().backward()
    torch_xla.sync()
    for ours, theirs in zip(actual, expected):
        torch.testing.assert_close(ours.cpu().detach(), theirs.detach(), rtol=1e-9, atol=1e-9)
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-9, atol=1e-9)


# ---- Where values are ----
def test_uploads_go_in_tiles(device):
    mesh = xs.Mesh(range(N), (N,), ("all",))
    before = xm.get_memory_info(device)["bytes_used"]
    x = torch.randn(N * 1000, 10).to(device)
    assert xm.get_memory_info(device)["bytes_used"] == before  # no device has it yet
    assert torch_xla._XLAC._get_xla_sharding_spec(x) == ""
    text = torch_xla._XLAC._get_xla_tensor_debug_info(x)
    assert "Device: SPMD:0\n" in text and "XLAData: None" in text
    assert f"Tensor on host: with size [{N * 1000}, 10]" in text and "ShardingSpec: None" in text
    uploads = met.counter_value("VirtualDeviceUsage") or 0
    xs.mark_sharding(x, mesh, ("all", None))
    text = torch_xla._XLAC._get_xla_tensor_debug_info(x)
    assert "Tensor on host: None" in text and "xla::device_data" in text and f"NumShards: {N}" in text
    assert met.counter_value("VirtualDeviceUsage") == uploads + 1
    assert xm.get_memory_info(device)["bytes_used"] - before == 1000 * 10 * 4
    y = x * 2
    assert xs.sharding_spec(y) == ""  # nobody has asked for it
    torch_xla.sync(wait=True)
    assert xs.sharding_spec(y) == xs.sharding_spec(x)  # the compiler chose it
    assert xm.get_memory_info(device)["bytes_used"] - before == 2 * 1000 * 10 * 4


def test_unmarked_values_are_whole(device):
    x = torch.ones(3).to(device) + 1
    torch_xla.sync()
    assert xs.sharding_spec(x) == "{replicated}" and x.tolist() == [2, 2, 2]


def test_marks_are_in_the_program(device, mesh):
    x = torch.ones(8, 8).to(device)
    xs.mark_sharding(x, mesh, ("data", None))
    y = x + 1
    xs.mark_sharding(y, mesh, (None, ("fsdp", "data")))
    text = xm.get_stablehlo([y])
    assert f'sdy.mesh @mesh = <["axis_0"=2, "axis_1"={N // 2}]>' in text
    assert '#sharding0 = #sdy.sharding<@mesh, [{"axis_0"}, {}]>' in text
    assert '#sharding1 = #sdy.sharding<@mesh, [{}, {"axis_1", "axis_0"}]>' in text
    assert "sdy.sharding = #sharding0" in text and "sdy.sharding_constraint" in text
    assert f"mhlo.num_partitions = {N}" in text
    assert y.sum().item() == 128


def test_saved_graphs_end_with_the_shardings_of_results(run_python, tmp_path):
    program = """
        import torch, torch_xla
        import torch_xla.distributed.spmd as xs
        import torch_xla.runtime as xr
        xr.use_spmd()
        n = xr.global_runtime_device_count()
        x = torch.ones(8, n).to("xla")
        xs.mark_sharding(x, xs.Mesh(range(n), (1, n)), (0, 1))
        y = x + 1
        torch_xla.sync()
    """
    for form, has_shardings in (("hlo", True), ("text", False)):
        file = tmp_path / form
        run_python(program, XLA_SAVE_TENSORS_FILE=str(file), XLA_SAVE_TENSORS_FMT=form)
        tiles = f"{{devices=[1,{N}]{','.join(map(str, range(N)))}}}"
        lines = f"#OUTPUT_SHARDING_BEGIN\nf32[8,{N}] {tiles}\n#OUTPUT_SHARDING_END\n\n"
        assert file.with_suffix(".0").read_text().endswith(lines) == has_shardings


def test_gradients_are_cut_as_their_weights(device, mesh):
    """Also where they live longer than a step, as in sums over several batches."""
    linear = nn.Linear(16, 32, bias=False).to(device)
    x = torch.randn(8, 16)
    for _ in range(2):  # a second mark adds no second hook
        xs.mark_sharding(linear.weight, mesh, ("fsdp", "data"))
    for _ in range(2):
        linear(xs.mark_sharding(x.to(device), mesh, ("data", None)).global_tensor).sum().backward()
        torch_xla.sync()
        assert xs.sharding_spec(linear.weight.grad) == xs.sharding_spec(linear.weight)
    assert len(linear.weight._post_accumulate_grad_hooks) == 1
    torch.testing.assert_close(linear.weight.grad.cpu(), 2 * x.sum(0).expand(32, 16))
    xs.clear_sharding(linear.weight)
    linear.weight.grad = None
    linear(x.to(device)).sum().backward()
    assert xs.sharding_spec(linear.weight.grad) == ""


def test_meshes_of_other_orders(device):
    """The devices of a program's meshes are in one order."""
    values = torch.arange(64.0).view(8, 8)
    turned = list(reversed(range(N)))
    x = values.to(device)
    xs.mark_sharding(x, xs.Mesh(turned, (2, N // 2)), (1, 0))
    y = xs.mark_sharding(x + 1, xs.Mesh(turned, (N, 1)), (0, None))
    torch_xla.sync()
    assert y.tolist() == (values + 1).tolist()
    assert xs.sharding_spec(y) == f"{{devices=[{N},1]{','.join(map(str, turned))}}}"
    assert [shard.data[0, 0].item() for shard in y.local_shards] == [1 + 64 // N * i for i in turned]
    with pytest.raises(NotImplementedError, match="use meshes with one order of device_ids"):
        shuffled = [1, 0, *range(2, N)]
        xs.annotate_custom_sharding(y, xs.Mesh(shuffled, (N, 1)), (0, None))
        torch_xla.sync(wait=True)


def test_loops_steps_and_graphs(device, mesh):
    """scan, torch.compile and replayed steps on sharded values."""
    values = torch.randn(8, 16)
    rows = values.to(device).requires_grad_()
    xs.mark_sharding(rows, mesh, (None, "fsdp"))

    def turn(carry, row):
        carry = torch.sin(carry + row)
        return carry, carry

    _, found = scan(turn, torch.zeros(16, device=device), rows)
    found.sum().backward()
    expected = values.clone().requires_grad_()
    carry, turns = torch.zeros(16), []
    for row in expected:
        carry, _ = turn(carry, row)
        turns.append(carry)
    torch.stack(turns).sum().backward()
    torch.testing.assert_close(found.detach().cpu(), torch.stack(turns).detach())
    torch.testing.assert_close(rows.grad.cpu(), expected.grad)
    assert xs.sharding_spec(found) == xs.sharding_spec(rows)

    layer = nn.Linear(16, 16)
    sharded = copy.deepcopy(layer).to(device)
    xs.mark_sharding(sharded.weight, mesh, ("fsdp", None))
    marked = xs.sharding_spec(sharded.weight)
    torch.testing.assert_close(torch.compile(sharded, backend="openxla")(rows).cpu(), layer(values))
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1, momentum=0.9) for part in (layer, sharded)]

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    replayed = torch_xla.compile(lambda x: step(sharded, optimizers[1], x), replay=True)
    for _ in range(4):
        x = torch.randn(8, 16)
        torch.testing.assert_close(replayed(x.to(device)).cpu(), step(layer, optimizers[0], x))
    torch.testing.assert_close(sharded.weight.cpu(), layer.weight)
    assert xs.sharding_spec(sharded.weight) == marked


def test_loaded_values_take_the_mark(device, mesh):
    layer = nn.Linear(16, 16).to(device)
    xs.mark_sharding(layer.weight, mesh, ("fsdp", None))
    state = {name: value.cpu() + 1 for name, value in layer.state_dict().items()}
    layer.load_state_dict(state)
    assert layer.weight.cpu().equal(state["weight"])
    tiles, devices = torch_xla._XLAC._find_sharding(layer.weight)
    assert tiles == [N // 2, 1] and sorted(devices) == list(range(N))


def test_each_device_has_its_share(device):
    """Of parameters, gradients and states."""
    mesh = xs.Mesh(range(N), (N,), ("fsdp",))
    torch_xla.sync(wait=True)
    before = [xm.get_memory_info(f"xla:{number}")["bytes_used"] for number in range(N)]
    model = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(8)]).to(device)
    mark_parameters(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        x = torch.randn(8, 256).to(device)
        xs.mark_sharding(x, mesh, ("fsdp", None))
        model(x).square().mean().backward()
        optimizer.step()
    torch_xla.sync(wait=True)
    whole = 4 * sum(p.numel() * p.element_size() for p in model.parameters())
    held = [xm.get_memory_info(f"xla:{number}")["bytes_used"] - start for number, start in enumerate(before)]
    assert max(held) / whole <= 1.02 / N, [share / whole for share in held]


def test_what_is_refused(device, run_python):
    with pytest.raises(RuntimeError, match="put the tensor on xla:0"):
        torch.ones(2).to("xla:1")
    out = run_python(
        """
        import torch, torch_xla, torch_xla.runtime as xr, torch_xla.distributed.spmd as xs
        earlier = torch.arange(8.0).to("xla") + 1  # on one device
        torch_xla.sync(wait=True)
        xr.use_spmd()
        mesh = xs.get_1d_mesh("all")
        xs.mark_sharding(earlier, mesh, ("all",))
        print((earlier * 2).tolist(), xs.sharding_spec(earlier))
        """
    )
    assert out.startswith("[2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0] {devices=[")


# ---- Training ----
def steps(model, optimizer, batches, prepare=lambda t: t) -> list[float]:
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(prepare(x)).flatten(0, -2), prepare(y).flatten())
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    return losses


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True) for _ in range(2))
        self.head = nn.Linear(16, 32)

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def mark_parameters(model, mesh) -> None:
    for parameter in model.parameters():
        xs.mark_sharding(parameter, mesh, ("fsdp", *[None] * (parameter.dim() - 1)))


@pytest.mark.parametrize("kind", ["mlp", "transformer"])
def test_training_is_that_of_the_cpu(kind, device, mesh):
    torch.manual_seed(0)
    if kind == "mlp":
        expected = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 24), nn.ReLU(), nn.Linear(24, 8))
        batches = [(torch.randn(16, 12), torch.randint(8, (16,))) for _ in range(10)]
    else:
        expected = Transformer()
        batches = [(torch.randint(32, (8, 6)), torch.randint(32, (8, 6))) for _ in range(10)]
    model = copy.deepcopy(expected).to(device)
    mark_parameters(model, mesh)
    marks = [xs.sharding_spec(p) for p in model.parameters()]

    def prepare(t):
        t = t.to(device)
        xs.mark_sharding(t, mesh, ("data", *[None] * (t.dim() - 1)))
        return t

    theirs = steps(expected, torch.optim.AdamW(expected.parameters(), lr=0.01), batches)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    ours = steps(model, optimizer, batches, prepare)
    np.testing.assert_allclose(ours, theirs, rtol=2e-4)
    assert [xs.sharding_spec(p) for p in model.parameters()] == marks
    for parameter, mark in zip(model.parameters(), marks):  # the state follows the parameter
        assert xs.sharding_spec(optimizer.state[parameter]["exp_avg"]) == mark
