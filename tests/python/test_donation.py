"""Memory that a user gives away: the next step that takes a marked tensor may write over it."""

import gc

import pytest
import torch

import torch_xla
import torch_xla.debug.metrics as met
from torch_xla.utils.buffer_donor_context import alias_with_buffer_donor_config

_XLAC = torch_xla._XLAC


def make(device, size=8):
    x = torch.arange(float(size)).to(device)
    torch_xla.sync(wait=True)
    return x


def test_a_step_takes_what_is_marked(device):
    x = make(device)
    met.clear_all()
    assert torch.ops.xla.dynamo_set_buffer_donor_(x, True) is not None and _XLAC._get_buffer_donation(x)
    assert met.counter_value("XlaSetBufferDonation") == 1
    y = x + 1
    torch_xla.sync(wait=True)
    assert met.metric_data("InputOutputAliasCount")[1] == 1
    assert y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert _XLAC._is_placecholder(x) and not _XLAC._get_buffer_donation(x)
    with pytest.raises(RuntimeError, match="memory was given away by _set_buffer_donation"):
        x.tolist()
    x.fill_(3)
    assert x.sum().item() == 24 and not _XLAC._is_placecholder(x)


def test_the_memory_is_reused(device):
    x = make(device, 1 << 20)
    before = torch.xla.memory_allocated()
    _XLAC._set_buffer_donation(x, True)
    y = x * 2
    torch_xla.sync(wait=True)
    assert torch.xla.memory_allocated() - before < 1 << 20
    assert y[-1].item() == 2 * ((1 << 20) - 1)


def test_views_are_given_away_too(device):
    x = make(device)
    part = x[2:]
    _XLAC._set_buffer_donation(part, True)
    y = x + 1
    torch_xla.sync()
    with pytest.raises(RuntimeError, match="given away"):
        part.sum().item()
    assert y[0].item() == 1


def test_what_keeps_a_tensor(device):
    x = make(device)
    assert not _XLAC._set_buffer_donation(x + 1, True), "a value that is pending"
    assert _XLAC._set_buffer_donation(x, True)
    torch_xla.sync()  # takes nothing
    assert _XLAC._get_buffer_donation(x)
    assert (x + 1)[0].item() == 1, "a read in the middle of a step"
    assert x.tolist()[1] == 1
    assert _XLAC._set_buffer_donation(x, False)
    y = x + 1
    torch_xla.sync()
    assert x[1].item() + 1 == y[1].item()


def test_reads_take_marked_memory_when_told_so(device):
    assert not _XLAC._xla_get_enable_alias_with_buffer_donor_config()
    with alias_with_buffer_donor_config() as before:
        x = make(device)
        _XLAC._set_buffer_donation(x, True)
        assert not before and (x + 1)[0].item() == 1 and _XLAC._is_placecholder(x)
        with alias_with_buffer_donor_config(False) as before:
            assert before and not _XLAC._xla_get_enable_alias_with_buffer_donor_config()
    assert not _XLAC._xla_get_enable_alias_with_buffer_donor_config()


def test_a_tensor_that_is_written_keeps_its_new_value(device):
    x = make(device)
    _XLAC._set_buffer_donation(x, True)
    for _ in range(3):
        x += 1
        torch_xla.sync()
    assert x.tolist() == [3, 4, 5, 6, 7, 8, 9, 10]


def test_marks_of_tensors_that_are_gone_hold_no_memory(device):
    before = torch.xla.memory_allocated()
    x = make(device, 1 << 20)
    _XLAC._set_buffer_donation(x, True)
    del x
    gc.collect()
    y = make(device) + 1
    torch_xla.sync(wait=True)
    assert torch.xla.memory_allocated() - before < 1 << 20 and y[0].item() == 1


def test_tensors_of_other_devices_are_refused():
    with pytest.raises(ValueError, match="expected a tensor on the device xla, but got one on cpu"):
        _XLAC._set_buffer_donation(torch.ones(2), True)
    x = torch.ones(2)
    assert torch.ops.xla.dynamo_set_buffer_donor_(x, True).tolist() == [1, 1]
