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
TWO_DEVICES = {"CPU_NUM_DEVICES": "2", "PJRT_DEVICE": "CPU"}
ON_PLUGINS = 5  # of a chunk without --whole, as each is compiled for long


def chunks():
    for name, kind in KINDS.items():
        for first in range(0, kind.programs if kind.devices == 1 else 0, CHUNK):
            yield pytest.param(name, first, id=f"{name}-{first}")


@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("name,first", list(chunks()))
@pytest.mark.filterwarnings("ignore")
def test_programs_agree_with_eager(name, first, fusion, request):
    on_plugin = os.environ.get("PJRT_DEVICE", "CPU") != "CPU"
    if on_plugin and KINDS[name].raises:
        pytest.skip("programs of plugins cannot raise")
    programs = ON_PLUGINS if on_plugin and not request.config.option.whole else min(CHUNK, KINDS[name].programs)
    torch_xla._XLAC._set_fusion(fusion)
    try:
        for seed in range(first, first + programs):
            difference = check(KINDS[name], seed)
            assert difference is None, difference
    finally:
        torch_xla._XLAC._set_fusion(True)


def test_programs_over_two_devices_agree_with_eager():
    names = ",".join(name for name, kind in KINDS.items() if kind.devices > 1)
    command = [sys.executable, "-m", "tests.fuzz.check", "--kinds", names, "--programs", "30"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, **TWO_DEVICES})
    assert done.returncode == 0, done.stdout + done.stderr


def test_programs_from_disk_agree_with_themselves():
    command = [sys.executable, "-m", "tests.fuzz.check", "--disk", "--programs", "4"]
    embedded = {**os.environ, "PJRT_DEVICE": "CPU"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=embedded)
    assert done.returncode == 0, done.stdout + done.stderr
    compiled, restored = map(int, re.findall(r"(?:UncachedCompile|PersistentCacheHit): (\d+)", done.stdout))
    assert restored > compiled // 2 > 0  # the others have the structure of one before them
