"""Each Python block of README and docs runs as it stands, in a process of its own.

A block that begins with "# goes on from the block above" runs behind that one. Blocks that need more than this
environment are run by another test, or by none for a stated reason: OTHERS.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/decisions/*.md"))]
GOES_ON = "# goes on from the block above\n"

# By a page and the start of a line of the block: the test that runs it, or why nothing does.
OTHERS = {
    ("README.md", "from transformers import"): "tests/libraries/programs/transformers_readme.py",
    ("changing_shapes.md", "for length in range(100, 199):"): "tests/python/test_changing_shapes.py",
    ("changing_shapes.md", "step = bucketed("): "tests/python/test_bucketing.py",
    ("compile_only.md", ""): "its output is of one model, with the compiler of TPUs",
    ("explain.md", ""): "tests/python/test_explain.py",
    ("replicas.md", "    fully_shard("): "tests/python/test_sharded.py",
    ("replicas.md", "from torch_xla.distributed.fsdp"): "tests/python/test_sharded.py",
    ("stablehlo.md", "import jax"): "tests/libraries/programs/jax_stablehlo.py",
    ("vendors.md", ""): "tests/python/test_vendors.py",
}
# By the start of a line: the module without which the block is left out.
NEEDS = {"with torch.no_grad(), torch_xla.experimental.compile_only(": "libtpu"}


def blocks_of(text: str) -> list[str]:
    """The Python blocks of a page; one that goes on has those before it in front."""
    blocks = []
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        blocks.append(blocks[-1] + block if block.startswith(GOES_ON) else block)
    return blocks


def find_other(page: str, block: str) -> str | None:
    """Who else runs a block, or why nothing does."""
    lines = block.splitlines()
    found = [why for (name, start), why in OTHERS.items() if name == page and any(x.startswith(start) for x in lines)]
    return found[0] if found else None


ALL = [(page.name, block) for page in PAGES for block in blocks_of(page.read_text(encoding="utf-8"))]
RUN = [(page, number, block) for number, (page, block) in enumerate(ALL) if find_other(page, block) is None]


@pytest.mark.parametrize("block", [pytest.param(block, id=f"{page}-{number}") for page, number, block in RUN])
def test_a_block_runs(block, tmp_path, users_environment):
    for start, module in NEEDS.items():
        if start in block and not importlib.util.find_spec(module):
            pytest.skip(f"no {module} is installed")
    (tmp_path / "program.py").write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=users_environment,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"


def test_others_are_there():
    for (name, start), why in OTHERS.items():
        blocks = [block for page, block in ALL if page == name]
        assert any(line.startswith(start) for block in blocks for line in block.splitlines()), (name, start)
        if why.startswith("tests/"):
            assert name in (ROOT / why).read_text(encoding="utf-8"), f"{why} does not name {name}"


def test_a_block_that_goes_on_follows_its_first():
    text = f"```python\na\n```\ntext\n```python\n{GOES_ON}b\n```\n```python\nc\n```\n"
    assert blocks_of(text) == ["a\n", f"a\n{GOES_ON}b\n", "c\n"]
