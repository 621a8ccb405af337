"""How replicas train in the tests of processes. Each function takes the replica's number."""

import copy
import functools
import os

import torch
import torch.distributed as dist
from replicas import in_group
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer as OfTorch

import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_backend
import torch_xla.runtime as xr
from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer

IS_ONE_PROGRAM = os.environ.get("PJRT_DEVICE", "CPU") == "CPU"


def make_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))


def batch_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 6, generator=generator), torch.randint(4, (8,), generator=generator)


def part_of(rank: int, step: int) -> tuple[torch.Tensor, ...]:
    """This replica's part of a batch, on the device."""
    return tuple(t.chunk(xr.world_size())[rank].to("xla") for t in batch_of(step))


def compute_gradients(model: nn.Module, optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()


def parameters_of(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().cpu() for p in model.parameters()]


def train(model: nn.Module, batches, steps: int, lr: float = 0.1) -> list[torch.Tensor]:
    """Parameters after the steps. `batches(step)` gives a batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for step in range(steps):
        compute_gradients(model, optimizer, *batches(step))
        xm.optimizer_step(optimizer, barrier=True)
    return parameters_of(model)


def half_batches(rank: int, path: str) -> None:
    """Trains on this replica's half of each batch; a step is one program. Saves the parameters."""
    batches = functools.partial(part_of, rank)
    model = make_model().to("xla")
    train(model, batches, 3)
    before = met.counter_value("ExecuteComputation"), xr.get_num_cached_compilation_graph()
    parameters = train(model, batches, 5)
    if IS_ONE_PROGRAM:
        assert met.counter_value("ExecuteComputation") - before[0] <= 5 + len(parameters)
        assert xr.get_num_cached_compilation_graph() - before[1] <= 2
    assert not [name for name in met.counter_names() if name.startswith("aten::")]
    torch.save(parameters, f"{path}.{rank}")


def starts_early(rank: int, path: str) -> None:
    """The sums of gradients start in the middle of the backward and are waited for behind it; `path` has the steps."""
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.ones(4, 512, device="xla")
    xm.broadcast_master_param(model)
    torch_xla.sync(wait=True)
    xm.rendezvous("made")
    if rank == 1:
        xm.rendezvous("compiled")
    model(x).square().sum().backward()
    xm.optimizer_step(optimizer, barrier=True)
    if rank == 0:
        with open(path) as file:
            steps = file.read().split("[torch_xla] steps\n")[-1]
        last_product = steps.rindex("aten::mm of")
        assert [steps.count(f"{how}xla::all_reduce of") for how in ("start ", "wait for ", "")] == [3, 3, 7]
        assert steps.index("start xla::all_reduce of") < steps.rindex("start xla::all_reduce of") < last_product
        assert last_product < steps.index("wait for xla::all_reduce of")
        xm.rendezvous("compiled")
    assert torch.isfinite(model[0].weight).all()


def profiles_sums(rank: int, folder: str) -> None:
    """Writes a trace of a training step whose sums of gradients go on beside its other steps."""
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        model(torch.ones(4, 512, device="xla")).square().sum().backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync(wait=True)

    step()
    with torch.profiler.profile() as profiler:
        step()
    profiler.export_chrome_trace(os.path.join(folder, f"{rank}.json"))


@in_group
def batch_norm(rank: int) -> None:
    """SyncBatchNorm, this package's and PyTorch's, over parts of a batch is BatchNorm over the whole one."""
    for make, dtype in (
        (xf.SyncBatchNorm, torch.float32),
        *((nn.SyncBatchNorm, t) for t in (torch.float32, torch.bfloat16)),
    ):
        torch.manual_seed(0)
        whole = torch.randn(8, 3, 4, 4).to(dtype)
        expected_norm, norm = nn.BatchNorm2d(3), make(3).to("xla")
        expected_input = whole.float().clone().requires_grad_()
        slopes = torch.randn(8, 3, 4, 4)
        expected_norm(expected_input).backward(slopes)
        x = whole.chunk(xr.world_size())[rank].to("xla").requires_grad_()
        out = norm(x)
        assert out.dtype == dtype
        out.backward(slopes.chunk(xr.world_size())[rank].to("xla", dtype))
        part = expected_input.grad.chunk(xr.world_size())[rank]
        tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.02}
        torch.testing.assert_close(x.grad.float().cpu(), part, **tolerance)
        torch.testing.assert_close(norm.running_var.cpu(), expected_norm.running_var)
        torch.testing.assert_close(norm.running_mean.cpu(), expected_norm.running_mean)
        gradient = norm.weight.grad.clone()
        dist.all_reduce(gradient)
        torch.testing.assert_close(gradient.cpu(), expected_norm.weight.grad, **tolerance)


def loader(rank: int, path: str) -> None:
    """The training of the seeds, with a loader, as written."""
    model = make_model().to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [batch_of(2 * step + rank) for step in range(4)]
    for data, target in pl.ParallelLoader(batches, [xm.xla_device()]).per_device_loader(xm.xla_device()):
        compute_gradients(model, optimizer, data, target)
        xm.optimizer_step(optimizer)
    torch.save(parameters_of(model), f"{path}.{rank}")


@in_group
def distributed_data_parallel(rank: int, path: str, compile: bool) -> None:
    """DDP over the backend xla."""
    model = nn.parallel.DistributedDataParallel(make_model().to("xla"), gradient_as_bucket_view=True)
    model = torch.compile(model) if compile else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        compute_gradients(model, optimizer, *part_of(rank, step))
        optimizer.step()
    torch.save(parameters_of(model), f"{path}.{rank}")


@in_group
def rebuilds_buckets(rank: int, path: str) -> None:
    """DDP's second step puts its buckets in another order, within a step that is one program. Of two models the second
    finds collectives of the first in the trace."""
    models = [nn.parallel.DistributedDataParallel(make_model().to("xla"), bucket_cap_mb=1e-3) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]

    def step(x, y):
        for model, optimizer in zip(models, optimizers):
            compute_gradients(model, optimizer, x, y)
            optimizer.step()

    for number in range(4):
        x, y = part_of(rank, number)
        torch_xla.sync()
        before = met.counter_value("ExecuteComputation") or 0
        torch_xla.compile(step, full_graph=IS_ONE_PROGRAM)(x, y)
        runs = met.counter_value("ExecuteComputation") - before
        assert runs == 1 or not IS_ONE_PROGRAM, (number, runs)

    def reads(x, y):
        step(x, y)
        return models[0].module[0].weight.sum().item()

    try:
        torch_xla.compile(reads, full_graph=True)(x, y)
        raise AssertionError("a value was read")
    except RuntimeError as error:
        assert "Unexpected execution" in str(error)
    assert all(torch.equal(*pair) for pair in zip(*(model.parameters() for model in models)))
    torch.save(parameters_of(models[1]), f"{path}.{rank}")


@in_group
def zero_redundancy(rank: int, path: str) -> None:
    """Optimizers whose state is spread: this package's, and PyTorch's over the backend xla."""
    trained = {}
    for name in ("ours", "clipped", "torch"):
        model = make_model().to("xla")
        parameters = list(model.parameters())
        if name == "torch":
            optimizer = OfTorch(parameters, torch.optim.Adam, lr=0.01)
        else:
            optimizer = ZeroRedundancyOptimizer(
                parameters, torch.optim.Adam, grad_clipping=name == "clipped", max_norm=0.1, lr=0.01
            )
        for step in range(4):
            compute_gradients(model, optimizer, *part_of(rank, step))
            if name == "torch":
                xm.reduce_gradients(optimizer)
            optimizer.step()
        trained[name] = parameters_of(model)
        if name == "ours":  # a step is one program
            runs = met.counter_value("ExecuteComputation")
            optimizer.step()
            assert not IS_ONE_PROGRAM or met.counter_value("ExecuteComputation") == runs + 1
        if name == "clipped":
            assert optimizer.grad_norm.item() > 0.1
            part = optimizer.base_optimizer.state[optimizer.base_optimizer.param_groups[0]["params"][0]]["exp_avg"]
            assert part.numel() == 6 * 16 / 2
            saved = optimizer.state_dict()
            optimizer.load_state_dict(saved)
            assert optimizer.state_dict()["base_state"].keys() == saved["base_state"].keys()
    torch.save(trained, f"{path}.{rank}")


def odd_model() -> nn.Module:
    """Rows that two replicas cannot share evenly, a number, and a parameter that nobody uses."""
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    model.scale = nn.Parameter(torch.tensor(0.5))
    model.unused = nn.Parameter(torch.ones(4))
    return model


def train_odd(model: nn.Module, optimizer, steps: int, rank: int | None = None) -> None:
    """Steps of two backward passes each, over the batches of one replica of two, or over those of both."""
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(2):
            x = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(10 * step + part))
            x = x if rank is None else x[rank].to("xla")
            (model(x) * model.scale).square().mean().backward()
        optimizer.step()


SPREAD = {
    "plain": {},
    "summed": {"use_grad_acc_hook": True},
    "late": {"lazy_init": True, "higher_cc_precision": True},
    "clipped": {"grad_clipping": True, "max_norm": 0.05, "grad_norm_groups": [[0], [1]]},
}


def spread_state(rank: int, path: str) -> None:
    """Options of the optimizer whose state is spread, what it saves, and what becomes of it."""

    def make(model, **options):
        options = {"grad_clipping": False, "save_master_weights": True, "lr": 0.05, "weight_decay": 0.1, **options}
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **options)

    trained = {}
    for name, options in SPREAD.items():
        model = odd_model().to("xla")
        optimizer = make(model, **options)
        if name == "late":
            try:
                optimizer.step()
                raise AssertionError("a step before init_zero()")
            except RuntimeError as error:
                assert "call init_zero() before the first step" in str(error)
            optimizer.init_zero()
        train_odd(model, optimizer, 3, rank)
        assert name != "summed" or (model.weight.grad is None and model.weight.main_grad.shape == (3, 5))
        trained[name] = parameters_of(model)
    saved = optimizer.state_dict()
    assert saved["shape_info"] == {0: (3, 5), 1: (3,), 2: (), 3: (4,)}
    assert saved["base_state"][0]["exp_avg"].shape == (2, 5) and 3 not in saved["base_state"]
    saved = copy.deepcopy(saved)
    other = nn.Linear(5, 3).to("xla")
    other.scale, other.unused = nn.Parameter(torch.zeros((), device="xla")), nn.Parameter(torch.zeros(4, device="xla"))
    again = make(other, **options)
    again.load_state_dict(saved)  # with the parts
    trained["loaded"] = parameters_of(other)
    other.load_state_dict({name: p.detach() + 1 for name, p in model.state_dict().items()})
    model.load_state_dict(other.state_dict())
    del saved["sharded_master_weights"]
    again.load_state_dict(saved)
    optimizer.load_state_dict(copy.deepcopy(saved))
    for each, its in ((model, optimizer), (other, again)):
        train_odd(each, its, 1, rank)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))
    torch.save(trained, f"{path}.{rank}")
