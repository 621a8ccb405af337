"""Operations without a row run on the CPU with the memory of their operands, and write only what they should."""

import pytest
import torch

import torch_xla.debug.metrics as met


def test_out_that_is_an_operand_spares_its_copies(device):
    met.clear_all()
    x = torch.tensor([2, 1, 3], dtype=torch.uint8, device=device)
    copy = x.clone()  # shares the memory until one of them is written
    copy.pow_(torch.tensor([3, 1, 2], device=device))  # int64 into uint8 has no row
    assert copy.tolist() == [8, 1, 9]
    assert x.tolist() == [2, 1, 3]
    assert "aten::pow" in met.executed_fallback_ops()


def test_operand_that_overlaps_the_written_tensor(device):
    for place in ("cpu", device):
        x = torch.ones(4, 1, dtype=torch.bool, device=place)
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            x.add_(x[:1], alpha=2)


def test_results_without_elements_keep_type_and_place(device):
    values = torch.tensor([3.0, 1.0, 3.0])
    ours, theirs = torch._unique2(values.to(device)), torch._unique2(values)
    for got, wanted in zip(ours, theirs, strict=True):
        assert got.device.type == "xla" and got.dtype == wanted.dtype
        assert torch.equal(got.cpu(), wanted)


@pytest.mark.parametrize("mask", [torch.tensor([True, False, True]), torch.tensor([1, 0, 1], dtype=torch.uint8)])
def test_elements_under_a_mask(device, mask):
    x = torch.arange(6.0).reshape(3, 2)
    assert torch.equal(x.to(device)[mask.to(device)].cpu(), x[mask])
