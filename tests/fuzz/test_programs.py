"""1,000 random programs give CPU eager's values, types, strides, gradients and errors, with fusion on and off."""

import pytest

import torch_xla
from tests.fuzz import programs

CHUNK = 50
PROGRAMS = 1000
STEPS = 25


def find_difference(lines: list[str]) -> str | None:
    """What differs between the CPU and the device, or None."""
    return programs.find_difference(programs.run(lines, "cpu"), programs.run(lines, "xla", torch_xla.sync))


@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
@pytest.mark.filterwarnings("ignore")
def test_programs_agree_with_eager(first, fusion):
    torch_xla._XLAC._set_fusion(fusion)
    try:
        for seed in range(first, first + CHUNK):
            lines = programs.generate(seed, STEPS)
            if find_difference(lines):
                lines = programs.shrink(lines, lambda some: find_difference(some) is not None)
                pytest.fail(f"program {seed}: {find_difference(lines)}\n" + "\n".join(lines))
    finally:
        torch_xla._XLAC._set_fusion(True)
