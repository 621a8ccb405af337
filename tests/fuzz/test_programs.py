"""1,000 random programs give CPU eager's values, dtypes, shapes, strides and errors, with fusion on and off."""

import pytest
import torch

import torch_xla
from tests.fuzz import programs

CHUNK = 50
PROGRAMS = 1000


def compare(expected, actual, seed):
    assert len(expected) == len(actual), f"program {seed}"
    for a, b in zip(expected, actual, strict=True):
        if isinstance(a, type):
            assert a is b, f"program {seed}: {b} instead of {a}"
            continue
        assert a[:3] == b[:3], f"program {seed}"
        torch.testing.assert_close(b[3], a[3], equal_nan=True, rtol=1.3e-6 if a[0] == torch.float32 else None,
                                   atol=1e-5 if a[0] == torch.float32 else None, msg=lambda m: f"program {seed}: {m}")


@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_programs_agree_with_eager(first, fusion):
    torch_xla._XLAC._set_fusion(fusion)
    try:
        for seed in range(first, first + CHUNK):
            compare(programs.run(seed, "cpu", 25), programs.run(seed, "xla", 25, torch_xla.sync), seed)
    finally:
        torch_xla._XLAC._set_fusion(True)
