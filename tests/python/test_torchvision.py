"""Operations of another library than ATen, by the stand-in for torchvision in tests/cpp/torchvision_standin.cpp."""

from pathlib import Path

import pytest
import torch
from test_ops import count_fallbacks, EMBEDDED

import torch_xla
import torch_xla.debug.metrics as met

LIBRARY = Path(__file__).resolve().parents[2] / "build/release/tests/cpp/libtorchvision_standin.so"
ROIS = torch.tensor([[0, 0, 0, 7, 7], [1, 2, 2, 6, 5.0]])


@pytest.fixture(scope="module")
def roi_align():
    if not LIBRARY.exists():
        pytest.skip("the stand-in comes with the C++ tests, which are not built")
    torch.ops.load_library(str(LIBRARY))

    def align(x, rois):
        return torch.ops.torchvision.roi_align(x, rois, 1.0, 2, 2, -1, False)

    return align


@torch.no_grad()
def test_a_call_is_part_of_the_program(device, roi_align):
    x = torch.arange(2 * 3 * 8 * 8.0).reshape(2, 3, 8, 8)
    expected = roi_align(x * 2, ROIS) + 1
    x, rois = x.to(device), ROIS.to(device)
    torch_xla.sync()
    before, runs = count_fallbacks(), met.counter_value("ExecuteComputation") or 0
    actual = roi_align(x * 2, rois) + 1
    torch_xla.sync()
    assert torch.equal(actual.cpu(), expected)
    if EMBEDDED:
        assert count_fallbacks() == before and met.counter_value("ExecuteComputation") == runs + 1


@torch.no_grad()
def test_what_the_library_refuses(device, roi_align):
    x = torch.ones(1, 1, 4, 4, device=device)
    with pytest.raises(RuntimeError, match="rois must have shape"):
        roi_align(x, ROIS.to(device)[:, :4])
    assert roi_align(x, ROIS.to(device)[:0]).shape == (0, 1, 2, 2)
