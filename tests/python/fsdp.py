"""What the replicas of a run do in the tests of XlaFullyShardedDataParallel."""

import copy
import functools
import os

import pytest
import torch
import torch.distributed as dist
from replicas_training import batch_of, IS_ONE_PROGRAM
from sharded import adam, batches_of, check_same, fallbacks, Net, programs, sgd, train, trained, whole
from torch import nn
from torch.distributed.tensor import DTensor

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla import _peers
from torch_xla.distributed.fsdp import checkpoint_module
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
from torch_xla.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy


def by_size(least: int):
    return functools.partial(size_based_auto_wrap_policy, min_num_params=least)


def nested(make=Net, **options) -> FSDP:
    """A module within a module; the outer one has a weight that two of its layers share."""
    model = make()
    model.block[2] = FSDP(model.block[2], **options)
    return FSDP(model, **options)


def wrapped_within(model: FSDP) -> list[str]:
    return [name for name, each in model.named_modules() if isinstance(each, FSDP) and name]


# ---- Values ----
def forms(rank: int, size: int) -> None:
    """Each way to wrap against a run of one process."""
    inner = "_fsdp_wrapped_module.block.2"

    def checkpointed(module, **options):
        assert "auto_wrap_policy" not in options
        return FSDP(checkpoint_module(module), **options)

    made = {
        "flat": (lambda: FSDP(Net()), []),
        "nested": (nested, [inner]),
        "on the device": (lambda: FSDP(Net().to("xla")), []),
        "kept": (lambda: nested(reshard_after_forward=False), [inner]),
        "resharded": (lambda: nested(disable_reshard_on_root=False), [inner]),
        "accepted": (lambda: nested(flatten_parameters=True, shard_param_on_dim_0=True, coalesce_all_gather_ops=True,
                                    pin_layout_in_collective_ops=False, reduce_scatter_bucket_size_mb=3,
                                    optimization_barrier_in_forward=False, optimization_barrier_in_backward=False,
                                    _shard_size_multiple=1, _use_xla_patched_linear=False, _debug_msg="accepted",
                                    _debug_dummy_all_gather_op=True),
                     [inner]),
        "by size": (lambda: FSDP(Net(), auto_wrap_policy=by_size(100)), [inner]),
        "by class": (
            lambda: FSDP(
                Net(),
                auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.LayerNorm}),
                auto_wrapper_callable=checkpointed,
            ),
            [inner + ".1"],
        ),
        "checkpointed": (lambda: FSDP(checkpoint_module(Net())), []),
    }  # fmt: skip
    expected, _ = trained(adam)
    for name, (make, within) in made.items():
        model = make()
        assert wrapped_within(model) == within, name
        counts: list[int] = []
        train(model, adam(model.parameters()), batches_of(rank, size), after=lambda c=counts: c.append(programs()))
        check_same(model, expected)
        assert not IS_ONE_PROGRAM or counts[3] - counts[2] == 1, (name, counts)
        for parameter in model.parameters():
            assert parameter.to_local().numel() <= -(-parameter.shape[0] // size) * parameter[0].numel()


def norms(rank: int, size: int) -> None:
    """clip_grad_norm_ of several norms."""
    for p in (1.0, 2.0, float("inf")):
        expected, model = Net(), nested()
        for module, (x, y) in ((expected, batch_of(0)), (model, batches_of(rank, size)(0))):
            nn.functional.cross_entropy(module(x), y).backward()
        theirs, ours = nn.utils.clip_grad_norm_(expected.parameters(), 0.1, p), model.clip_grad_norm_(0.1, p)
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)
        for mine, wanted in zip(model.parameters(), expected.parameters()):
            torch.testing.assert_close(whole(mine.grad), wanted.grad, rtol=1e-5, atol=1e-6)
    assert FSDP(nn.Linear(2, 2)).clip_grad_norm_(1.0).item() == 0


def parts_of_a_batch(rank: int, size: int) -> None:
    """Without sending until the second part of a batch, and with sums for means."""
    expected, model = Net(), nested()
    model.set_gradient_divide_factors(0.5, 2.0, recursive=True)
    x, y = batches_of(2 * rank, 2 * size)(0)
    with model.no_sync(), model.no_sync():
        nn.functional.cross_entropy(model(x), y, reduction="sum").backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    x, y = batches_of(2 * rank + 1, 2 * size)(0)
    nn.functional.cross_entropy(model(x), y, reduction="sum").backward()
    x, y = batch_of(0)
    nn.functional.cross_entropy(expected(x), y, reduction="sum").backward()
    for ours, theirs in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(whole(ours.grad), theirs.grad, rtol=1e-5, atol=1e-5)
    for pre, post, factor in ((1.0, 1.0, size), (2.0, 3.0, 6)):
        model = FSDP(nn.Linear(1, 1, bias=False))
        model.set_gradient_divide_factors(pre, post, recursive=False)
        model(torch.full((1, 1), rank + 1.0, device="xla")).sum().backward()
        assert whole(model.weight.grad).item() == pytest.approx(sum(range(size + 1)) / factor)


def pairs(rank: int, size: int) -> None:
    """Two groups that train apart, each on its own part of the batches."""
    groups = [[0, 2], [1, 3]] if size == 4 else [[0, 1]]
    own = next(i for i, group in enumerate(groups) if rank in group)
    options = {"sharding_groups": groups, "sharding_rank": groups[own].index(rank), "sharding_world_size": 2}
    expected = Net()
    train_unclipped(expected, lambda step: tuple(t.chunk(len(groups))[own] for t in batch_of(step)))
    model = nested(**options)
    assert (model.rank, model.world_size) == (options["sharding_rank"], 2)
    train_unclipped(model, lambda step: batches_of(2 * own + model.rank, size)(step))
    check_same(model, expected)
    assert model.get_shard_metadata()["world_size"] == 2
    if size == 4:
        norm = model.clip_grad_norm_(1e9, groups=groups).item()
        assert norm == pytest.approx(nn.utils.clip_grad_norm_(expected.parameters(), 1e9).item(), rel=1e-4)
    for wrong, match in (
        ({"sharding_rank": None}, "need sharding_rank and sharding_world_size"),
        ({"sharding_groups": [[0]]}, "do not hold each of"),
        ({"sharding_world_size": 3}, "not all of sharding_world_size=3"),
        ({"sharding_rank": 1 - model.rank}, f"not the place of replica {rank}"),
    ):
        with pytest.raises(ValueError, match=match):
            FSDP(nn.Linear(2, 2), **{**options, **wrong})


def train_unclipped(model, batches) -> None:
    optimizer = sgd(model.parameters())
    for step in range(3):
        optimizer.zero_grad()
        x, y = batches(step)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


# ---- What options do ----
def times_of_gathering(rank: int, size: int) -> None:
    """Which parameters are whole after a forward."""
    x = torch.ones(2, 6, device="xla")
    for options, is_kept in (
        ({}, (True, False)),
        ({"reshard_after_forward": False}, (True, True)),
        ({"disable_reshard_on_root": False}, (False, False)),
    ):
        model = nested(**options)
        out = model(x)
        kept = [not isinstance(p, DTensor) for p in (model.first.weight, model.block[2][0].weight)]
        assert tuple(kept) == is_kept, (options, kept)
        out.sum().backward()
        assert all(isinstance(p, DTensor) for p in model.parameters())
        with torch.no_grad():
            model(x)
        assert all(isinstance(p, DTensor) for p in model.parameters())


def times_of_running(rank: int, size: int) -> None:
    """What sharding runs, and what a backward does at its end."""
    for runs in (True, False):
        module = nn.Linear(4, 4)
        FSDP(nn.Linear(4, 4), execute_sharding_on_init=False)  # meets the others
        torch_xla.sync()
        before = programs()
        model = FSDP(module, execute_sharding_on_init=runs)
        assert programs() - before == (runs and size > 1) or not IS_ONE_PROGRAM  # alone there is nothing to cut
        torch_xla.sync()
    for ends in (True, False):
        model = nested(sync_on_finalization=ends)
        for _ in range(2):
            out = model(torch.ones(2, 6, device="xla"))
            before = programs()
            out.sum().backward()
            assert programs() - before == ends or not IS_ONE_PROGRAM
            assert all(p.grad is not None for p in model.parameters())


class Doubling(nn.Module):
    """Has buffers of several kinds."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.register_buffer("scale", torch.full((1,), 2.0, dtype=torch.float64))

    def forward(self, x):
        return self.norm(self.linear(x)) * self.scale


def types(rank: int, size: int) -> None:
    """Dtypes of computing, of buffers and of gradients on the way."""
    seen: list = []
    model = nested(compute_dtype=torch.bfloat16, fp32_reduce_scatter=True)
    model.last.register_forward_hook(lambda module, args, out: seen.extend([args[0], module.weight, out]))
    expected, _ = trained(sgd)
    train(model, sgd(model.parameters()), batches_of(rank, size))
    assert {t.dtype for t in seen} == {torch.bfloat16}
    assert {t.dtype for p in model.parameters() for t in (p, p.grad)} == {torch.float32}
    check_same(model, expected, 1e-2)
    with pytest.raises(AssertionError):  # and it is not float32 that was computed in
        check_same(model, expected)
    for in_float32 in (True, False):  # a sum that bfloat16 does not hold
        model = FSDP(nn.Linear(1, 1, bias=False), compute_dtype=torch.bfloat16, fp32_reduce_scatter=in_float32)
        model(torch.full((1, 1), 1.0 if rank == 0 else 2.0**-9, device="xla")).sum().backward()
        exact = (1 + (size - 1) * 2.0**-9) / size
        assert (whole(model.weight.grad).item() == exact) == (in_float32 or size == 1)
    for options, buffers in (
        ({}, [torch.float32, torch.float64]),
        ({"compute_dtype": torch.bfloat16}, [torch.bfloat16] * 2),
        ({"compute_dtype": torch.bfloat16, "buffer_dtype": torch.float32}, [torch.float32] * 2),
    ):
        model = FSDP(nn.Sequential(FSDP(Doubling(), **options), nn.Linear(8, 1)), buffer_dtype=torch.float16)
        assert [model[0].norm.running_mean.dtype, model[0].scale.dtype] == buffers
        assert model[0].norm.num_batches_tracked.dtype == torch.int64


class Filled(nn.Module):
    """Says how its parameters begin."""

    def __init__(self, device):
        super().__init__()
        self.first, self.second = (nn.Linear(3, 3, bias=False, device=device) for _ in range(2))

    def forward(self, x):
        return self.second(self.first(x))

    def reset_parameters(self):
        self.first.weight.fill_(1.0)
        self.second.weight.fill_(2.0)


def of_meta(rank: int, size: int) -> None:
    """Modules without values get them before they are wrapped."""

    def fill(module):
        module.to_empty(device="xla")
        nn.init.constant_(module.weight, 3.0)

    model = FSDP(Filled("meta"))
    assert [whole(p).unique().tolist() for p in model.parameters()] == [[1], [2]]
    filled = FSDP(Filled("meta"), auto_wrap_policy=by_size(1), param_init_fn=fill)
    assert len(wrapped_within(filled)) == 2
    assert [whole(p).unique().tolist() for p in filled.parameters()] == [[3], [3]]
    with pytest.raises(ValueError, match="Sequential is on the device meta: give it reset_parameters"):
        FSDP(nn.Sequential(nn.Linear(2, 2, device="meta")))


def bad_calls(rank: int, size: int) -> None:
    """Errors, the same on all replicas."""
    model = nested()
    for call, error, match in (
        (lambda: FSDP(model), RuntimeError, "wrapped by FSDP already"),
        (lambda: FSDP(nn.ModuleList([nn.Linear(2, 2)])), RuntimeError, "ModuleList has none"),
        (lambda: FSDP(nn.Linear(2, 2), compute_dtype=torch.float64), ValueError, "compute_dtype must be one of"),
        (lambda: FSDP(nn.Linear(2, 2), buffer_dtype=torch.int8), ValueError, "buffer_dtype must be one of"),
        (
            lambda: FSDP(nn.Sequential(model), auto_wrap_policy=by_size(1)),
            ValueError,
            "none is wrapped by FSDP already",
        ),
        (lambda: FSDP(nn.Linear(2, 2), cpu_offload=True), TypeError, "cpu_offload"),
        (lambda: copy.deepcopy(model), AssertionError, "does not support deepcopy"),
        (lambda: model.what_nobody_has, AttributeError, "what_nobody_has"),
    ):
        with pytest.raises(error, match=match):
            call()
    model(torch.ones(2, 6, device="xla"))
    inner = model.block[2]
    with pytest.raises(RuntimeError, match="outermost module of FSDP"):
        inner.clip_grad_norm_(1.0)
    with pytest.raises(RuntimeError, match="outermost module of FSDP"), inner.no_sync():
        pass
    if size > 1:
        model = FSDP(nn.Linear(8, 8))
        model(torch.ones(2, 8, device="xla")).sum().backward()
        with pytest.raises(NotImplementedError, match=r"xla\.all_reduce"):  # and averages nothing twice
            xm.optimizer_step(sgd(model.parameters()))
    xr.use_spmd()
    with pytest.raises(RuntimeError, match=r"after xr.use_spmd\(\) a mesh has none"):
        FSDP(nn.Linear(2, 2))
    del os.environ["XLA_USE_SPMD"]


def against_one_process(rank: int, size: int) -> None:
    _peers._IDLE_SECONDS = 1e6  # programs are counted, however slow this machine is
    works = [forms, norms, parts_of_a_batch, times_of_gathering, times_of_running, types, of_meta, bad_calls]
    for work in works + [pairs] * (size > 1):
        work(rank, size)
        assert not fallbacks(), (work, fallbacks())
    dist.destroy_process_group()


# ---- Checkpoints ----
class Normed(Net):
    """With buffers that all replicas have alike, as they do not change."""

    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.arange(4) / 3)

    def forward(self, x):
        return super().forward(x) + self.shift


def make_saved(**options) -> FSDP:
    return nested(Normed, buffer_dtype=torch.bfloat16, **options)


def saves(rank: int, path: str) -> None:
    """Trains a while, and saves this replica's part of it."""
    model = make_saved()
    optimizer = adam(model.parameters())
    train(model, optimizer, batches_of(rank, xr.world_size()), range(2))
    state = {
        "model": model.state_dict(),
        "shard_metadata": model.get_shard_metadata(),
        "optimizer": optimizer.state_dict(),
    }
    names = [name for name, _ in model.get_original_names_and_sharded_parameters()]
    assert names == [name for name, _ in Normed().named_parameters()]
    xm.save(state, f"{path}/part-{rank}.pth", master_only=False)
    torch.save(model.module.tied.weight.full_tensor().cpu(), f"{path}/tied.pt")
    dist.destroy_process_group()


def goes_on(rank: int, path: str) -> None:
    """Loads what was saved, trains on, and compares with a run that nothing interrupted."""
    model = make_saved()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    optimizer = adam(model.parameters())
    state = torch.load(f"{path}/part-{rank}.pth")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    train(model, optimizer, batches_of(rank, xr.world_size()), range(2, 4))
    expected = trained_normed(range(4))
    check_same(model, expected)
    with pytest.raises(RuntimeError, match=r"weight"):
        model.load_state_dict({name: whole(value) for name, value in state["model"].items()})
    dist.destroy_process_group()


def trained_normed(steps: range) -> nn.Module:
    """Of one process."""
    expected = Normed()
    expected.shift = expected.shift.to(torch.bfloat16)
    train(expected, adam(expected.parameters()), batch_of, steps)
    return expected
