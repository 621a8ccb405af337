"""Meshes over the processes of a run (torch_xla.distributed.spmd)."""

import signal

import over_processes
import pytest
from test_processes import end_one

pytestmark = pytest.mark.skipif(
    "os.environ.get('PJRT_DEVICE', 'CPU') != 'CPU'", reason="processes with plugins have no common mesh yet"
)


@pytest.mark.parametrize(
    "work",
    [
        over_processes.marks,
        over_processes.uneven_parts,
        over_processes.parameters,
        over_processes.views_and_writes,
        over_processes.random_numbers,
        over_processes.read_by_one,
        over_processes.parts_of_steps,
        over_processes.fsdp_by_marks,
        over_processes.loaders,
        over_processes.manual_sharding,
        over_processes.explained,
    ],
)
def test_over_four_processes(pool, work):
    pool(work, size=4)


def test_checkpoints(pool, tmp_path):
    pool(over_processes.checkpoints, str(tmp_path), size=4)


@pytest.mark.parametrize("size, seeds", [(2, range(6)), (4, range(6, 12))])
def test_random_programs(pool, size, seeds):
    pool(over_processes.random_programs, seeds, size=size)


@pytest.mark.parametrize("size, grid", [(2, (1, 2, 1)), (4, (1, 2, 2)), (4, (2, 2, 1))])
@pytest.mark.parametrize("train", [over_processes.train_mlp, over_processes.train_transformer])
def test_training(pool, train, size, grid):
    pool(train, grid, size=size)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_process_is_named(how, tmp_path, monkeypatch):
    told = end_one(over_processes.trains_for_ever, how, tmp_path / "said", monkeypatch)
    assert all("replica 2 has ended or does not answer" in text for text in told), told
