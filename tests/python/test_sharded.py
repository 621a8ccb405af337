"""torch.distributed's ways to spread tensors over processes: functional collectives, DTensor, FSDP2, checkpoints."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sharded
from replica_pool import spawn


@pytest.mark.parametrize("size", [2, 4])
def test_values_are_those_of_one_process(size):
    spawn(sharded.against_one_process, (size,), size)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """What four replicas saved."""
    path = str(tmp_path_factory.mktemp("saved"))
    spawn(sharded.saves, (path,), 4)
    return path


@pytest.mark.parametrize("size, kind", [(2, "whole"), (1, "async")])
def test_a_checkpoint_of_four_is_loaded_by_fewer(size, kind, checkpoint):
    spawn(sharded.goes_on, (checkpoint, kind), size)


@pytest.mark.parametrize(
    "page, name, saves",
    [
        ("replicas.md", "fully_shard(model", "saved/*.distcp"),
        ("replicas.md", "XlaFullyShardedDataParallel", "model-*.pth"),
        ("sharding.md", "xmp.spawn", None),
    ],
)
def test_the_programs_of_the_documents(page, name, saves, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    (program,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.S) if name in block]
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "program.py"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr
    assert saves is None or len(list(tmp_path.glob(saves))) == 2
