"""XlaFullyShardedDataParallel: values, each option, checkpoints of the replicas and their joining."""

import shutil
import subprocess
import sys

import fsdp
import interrupted
import pytest
import replica_pool
import torch
from torch import nn

from torch_xla.distributed.fsdp import consolidate_sharded_model_checkpoints, consolidate_sharded_state_dicts, wrap


@pytest.mark.parametrize("size", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_values_are_those_of_one_process(size):
    start = replica_pool.spawn if size > 1 else torch.multiprocessing.spawn  # a process of its own for one, too
    start(fsdp.against_one_process, (size,), size)


# ---- Checkpoints ----
@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What two replicas saved."""
    path = tmp_path_factory.mktemp("saved")
    replica_pool.spawn(fsdp.saves, (str(path),), 2)
    return path


def check_joined(state) -> None:
    expected = fsdp.trained_normed(range(2))
    assert list(state) == list(expected.state_dict())
    model = fsdp.Normed()
    model.load_state_dict(state)
    fsdp.check_same(model, expected)
    assert state["shift"].dtype == torch.float32  # the buffer's own, not that of the run
    torch.testing.assert_close(state["shift"], fsdp.Normed().shift.bfloat16().float())


def test_parts_are_joined(saved):
    state, path = consolidate_sharded_model_checkpoints(f"{saved}/part-")
    assert path == f"{saved}/part-_consolidated.pth"
    check_joined(state)
    check_joined(torch.load(path)["model"])
    check_joined(consolidate_sharded_model_checkpoints(f"{saved}/part-")[0])  # what was joined is no part
    (saved / "part-_consolidated.pth").unlink()
    assert consolidate_sharded_model_checkpoints(f"{saved}/part-", save_model=False)[1] is None
    assert not (saved / "part-_consolidated.pth").exists()


@pytest.mark.parametrize("kind", interrupted.KINDS)
def test_an_interrupted_joining_leaves_what_was_there(saved, tmp_path, kind):
    for rank in range(2):
        shutil.copy(saved / f"part-{rank}.pth", tmp_path)
    parts = [torch.load(tmp_path / f"part-{rank}.pth") for rank in range(2)]

    def save(value: int) -> None:
        torch.save(value, tmp_path / "number")
        with torch.no_grad():
            for part in parts:
                for tensor in part["model"].values():
                    tensor.fill_(value)
        for rank, part in enumerate(parts):
            torch.save(part, tmp_path / f"part-{rank}.pth")
        consolidate_sharded_model_checkpoints(f"{tmp_path}/part-")

    def load() -> int:
        state = torch.load(tmp_path / "part-_consolidated.pth")["model"]
        (value,) = {number for tensor in state.values() for number in tensor.unique().tolist()}
        return int(value)

    interrupted.check_interrupted_saves(kind, tmp_path, save, load, least=3)


def test_parts_are_joined_by_a_command(saved, tmp_path):
    path = tmp_path / "whole.pth"
    command = [sys.executable, "-m", "torch_xla.distributed.fsdp.consolidate_sharded_ckpts"]
    subprocess.run([*command, "--ckpt_prefix", f"{saved}/part-", "--save_path", path], check=True, timeout=120)
    check_joined(torch.load(path)["model"])


def test_a_run_goes_on(saved):
    replica_pool.spawn(fsdp.goes_on, (str(saved),), 2)


def test_parts_that_do_not_belong_together(saved, tmp_path):
    with pytest.raises(FileNotFoundError, match="no file matches"):
        consolidate_sharded_model_checkpoints(f"{tmp_path}/part-")
    shutil.copy(saved / "part-1.pth", tmp_path)
    with pytest.raises(ValueError, match=r"files of the replicas \[1\] when it should match one of each of 2"):
        consolidate_sharded_model_checkpoints(f"{tmp_path}/part-")
    shutil.copy(saved / "part-1.pth", tmp_path / "part-0.pth")
    with pytest.raises(ValueError, match=r"files of the replicas \[1, 1\]"):
        consolidate_sharded_model_checkpoints(f"{tmp_path}/part-")
    torch.save({"model": {}}, tmp_path / "part-2.pth")
    with pytest.raises(ValueError, match=r"part-2.pth is no part of a model"):
        consolidate_sharded_model_checkpoints(f"{tmp_path}/part-")
    parts = [torch.load(saved / f"part-{rank}.pth", map_location="cpu") for rank in range(2)]
    metadata, states = parts[0]["shard_metadata"], [part["model"] for part in parts]
    with pytest.raises(ValueError, match="got 1 state dicts of 2 replicas"):
        consolidate_sharded_state_dicts(states[:1], metadata)
    with pytest.raises(ValueError, match=r"the parts of .*weight make \[10, 6\] when they should make \[9, 6\]"):
        consolidate_sharded_state_dicts([states[0], states[0]], metadata)
    plain = [{name: torch.zeros(2) for name in state} for state in states]
    with pytest.raises(ValueError, match="is a Tensor when it should be a DTensor in parts along dim 0"):
        consolidate_sharded_state_dicts(plain, metadata)


# ---- Policies ----
class Wrapped(nn.Module):
    def __init__(self, module, note=None):
        super().__init__()
        self.inner, self.note = module, note


def names_of_wrapped(module) -> list[str]:
    return [name for name, each in module.named_modules() if isinstance(each, Wrapped)]


def test_policies():
    def wrapped_by(policy, **arguments) -> tuple[list[str], int]:
        model = nn.Sequential(
            nn.Linear(4, 4), nn.ModuleList([nn.Linear(8, 8)]), nn.MultiheadAttention(8, 2), nn.Sequential(nn.Tanh())
        )
        module, count = wrap.recursive_wrap(
            model, lambda **asked: policy(**asked, **arguments), Wrapped, [model[3]], [], only_wrap_children=True
        )
        return names_of_wrapped(module), count

    assert wrapped_by(wrap.transformer_auto_wrap_policy, transformer_layer_cls=[nn.Linear])[0] == [
        "0",
        "1.0",
        "2.out_proj",
    ]
    assert wrapped_by(wrap.lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, nn.ModuleList)) == (["1"], 72)
    by_size = wrap.size_based_auto_wrap_policy
    assert wrapped_by(by_size, min_num_params=70) == (["1.0"], 72)
    assert wrapped_by(by_size, min_num_params=73) == ([], 0)
    assert wrapped_by(by_size, min_num_params=70, force_leaf_modules=[nn.ModuleList]) == (
        ["2", "2.inner.out_proj"],
        288,
    )
    assert wrapped_by(by_size, min_num_params=70, exclude_wrap_modules=[nn.Linear]) == (["1"], 72)
    assert wrapped_by(by_size) == ([], 0)
    assert wrap.size_based_auto_wrap_policy.FORCE_LEAF_MODULES == {nn.MultiheadAttention}
    assert wrap.size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES == {nn.ModuleList, nn.ModuleDict}


def test_what_wraps_gets_the_options():
    module, count = wrap.recursive_wrap(
        nn.Sequential(nn.Linear(2, 2)), wrap.always_wrap_policy, Wrapped, [], [], only_wrap_children=True, note=7
    )
    assert count == 6 and isinstance(module, nn.Sequential) and module[0].note == 7
