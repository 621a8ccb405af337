"""Random programs give CPU eager's values, types, strides, gradients and errors; from disk the same to the last bit."""

import os
import re
import subprocess
import sys

import pytest

import torch_xla
from tests.fuzz.check import check
from tests.fuzz.kinds import KINDS

CHUNK = 50
PROGRAMS = {"views": 1000}  # of the other kinds
OTHERS = 100
ON_PLUGINS = 5  # of a chunk without --whole, as each is compiled for long


def chunks():
    for name in KINDS:
        for first in range(0, PROGRAMS.get(name, OTHERS), CHUNK):
            yield pytest.param(name, first, id=f"{name}-{first}")


@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("name,first", list(chunks()))
@pytest.mark.filterwarnings("ignore")
def test_programs_agree_with_eager(name, first, fusion, request):
    on_plugin = os.environ.get("PJRT_DEVICE", "CPU") != "CPU"
    programs = ON_PLUGINS if on_plugin and not request.config.option.whole else CHUNK
    torch_xla._XLAC._set_fusion(fusion)
    try:
        for seed in range(first, first + programs):
            difference = check(KINDS[name], seed)
            assert difference is None, difference
    finally:
        torch_xla._XLAC._set_fusion(True)


def test_programs_from_disk_agree_with_themselves():
    command = [sys.executable, "-m", "tests.fuzz.check", "--disk", "--programs", "4"]
    embedded = {**os.environ, "PJRT_DEVICE": "CPU"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=embedded)
    assert done.returncode == 0, done.stdout + done.stderr
    compiled, restored = map(int, re.findall(r"(?:UncachedCompile|PersistentCacheHit): (\d+)", done.stdout))
    assert restored > compiled // 2 > 0  # the others have the structure of one before them
