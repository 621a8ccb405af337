"""Arguments stand at the positions and have the names that they have in the original: original_signatures.txt."""

import importlib
import inspect
from pathlib import Path

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.profiler as xp
import torch_xla.distributed.parallel_loader as pl
from torch_xla.core.functions import SyncBatchNorm
from torch_xla.experimental.distributed_checkpoint import SPMDLoadPlanner, SPMDSavePlanner

LINES = Path(__file__).with_name("original_signatures.txt").read_text().splitlines()
SIGNATURES = [line.split() for line in LINES if not line.startswith("#")]
PLACED = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD


def difference(path: str, theirs: list[str]) -> str | None:
    """What is not as in the original; None if all is."""
    module, name = path.split(":")
    thing, owner = importlib.import_module(module), None
    for part in name.split("."):
        thing, owner = getattr(thing, part), thing
    ours = list(inspect.signature(thing).parameters.values())
    static = isinstance(owner, type) and not isinstance(inspect.getattr_static(owner, part), staticmethod | classmethod)
    ours = ours[1:] if static else ours
    placed = [p.name for p in ours if p.kind in PLACED]
    kinds = {p.kind for p in ours}
    names = [each.rstrip("=") for each in theirs if each != "**"]
    if placed[: len(names)] != names and (placed or inspect.Parameter.VAR_POSITIONAL not in kinds):
        return f"{path} takes {placed}, and the original {names}"
    needed = {p.name for p in ours if p.kind in PLACED and p.default is p.empty}
    if more := needed - {each for each in theirs if not each.endswith("=")}:
        return f"{path} needs {sorted(more)}, which the original does not"
    if "**" in theirs and inspect.Parameter.VAR_KEYWORD not in kinds:
        return f"{path} takes no other names"
    return None


def test_positions_of_arguments():
    assert len(SIGNATURES) > 350
    assert [found for path, *theirs in SIGNATURES if (found := difference(path, theirs))] == []


def test_what_differs_is_found():
    path = "torch_xla.core.xla_model:get_xla_supported_devices"
    assert "takes ['max_devices', 'devkind']" in difference(path, ["devkind=", "max_devices="])
    path = "torch_xla.utils.utils:as_list"
    assert "needs ['t']" in difference(path, ["t="]) and "no other names" in difference(path, ["t", "**"])


# ---- What these arguments do ----
def test_devices_of_a_kind_in_both_orders(device):
    kind, names = xm.xla_device_hw(device), [str(each) for each in torch_xla.devices()]
    assert xm.get_xla_supported_devices() == xm.get_xla_supported_devices(kind) == names
    assert xm.get_xla_supported_devices(1) == xm.get_xla_supported_devices(kind, 1) == names[:1]
    assert xm.get_xla_supported_devices(devkind=kind, max_devices=0) == xm.get_xla_supported_devices(1, "TPU") == []
    assert xm.xla_replication_devices() == torch_xla.real_devices()


def test_batches_of_an_execution_by_position(device, monkeypatch):
    batches = [torch.full((2,), float(i)) for i in range(4)]
    loader = pl.ParallelLoader(batches, [device], 0, 2)
    assert loader.batches_per_execution == 2
    syncs = []
    monkeypatch.setattr(pl.PerDeviceLoader, "_sync", lambda self: syncs.append(self._batches))
    assert [x[0].item() for x in pl.PerDeviceLoader(loader, torch.device(device))] == [0, 1, 2, 3]
    assert syncs == [2, 4, 4]  # the last one at the end


def test_planners_of_checkpoints():
    planner = SPMDSavePlanner()
    planner.set_up_planner({"x": torch.ones(2)}, True)
    assert planner.is_coordinator
    planner.set_up_planner(state_dict={"x": torch.ones(2)}, storage_meta=None, is_coordinator=False)
    assert not planner.is_coordinator
    plan = object()
    assert SPMDLoadPlanner().finish_plan(central_plan=plan) is plan


def test_batch_norm_of_a_batch_by_name(device):
    x = torch.randn(4, 3, 2, 2)
    got = SyncBatchNorm(3).to(device)(batch=x.to(device))
    torch.testing.assert_close(got.cpu(), torch.nn.BatchNorm2d(3)(x))


def test_a_trace_after_a_delay(monkeypatch):
    calls = []
    monkeypatch.setattr(xp, "_write_trace", lambda *args: calls.append(("trace", *args)))
    monkeypatch.setattr(xp.time, "sleep", lambda seconds: calls.append(("sleep", seconds)))
    xp.trace("localhost:1", "folder", 200, 1, 2, 1, 500, 60, 5)
    assert calls == [("sleep", 0.5), ("trace", "localhost:1", "folder", 200, 60)]
    with pytest.raises(TypeError, match="missing a required argument: 'logdir'"):
        xp.trace_detached("localhost:1")
