"""Callbacks and events that wait for the data of a tensor."""

import threading

import pytest
import torch

import torch_xla
from torch_xla import _XLAC
from torch_xla.experimental.callback import on_ready_callback, on_ready_event


@pytest.fixture
def thread_errors(monkeypatch) -> list:
    """What threads end by."""
    errors = []
    monkeypatch.setattr(threading, "excepthook", lambda args: errors.append(args.exc_value))
    return errors


def wait_for_callbacks() -> None:
    for thread in threading.enumerate():
        if thread.name == "xla-ready-callback":
            thread.join(60)


def info(tensor: torch.Tensor) -> str:
    return _XLAC._get_xla_tensor_debug_info(tensor)


def test_a_callback_gets_the_tensor_with_its_data(device):
    x = torch.randn(100, 100).to(device)
    y, seen = x @ x, []
    on_ready_callback(y, lambda t: seen.append((t, info(t), threading.current_thread())))
    assert "IR: None" in info(y), "it runs"
    wait_for_callbacks()
    ((tensor, text, thread),) = seen
    assert tensor is y and "State: ready" in text and thread is not threading.current_thread()
    torch.testing.assert_close(y.cpu(), x.cpu() @ x.cpu())


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x + 1, lambda x: x.t()[1:], lambda x: x[:0]])
def test_events(device, make):
    assert on_ready_event(make(torch.ones(3, 4, device=device))).wait(60)


def test_the_value_of_now_is_waited_for(device):
    x = torch.ones(3, device=device)
    event = on_ready_event(x)
    x += 1  # is recorded after it
    assert event.wait(60) and "IR: f32[3]{0} aten::add" in info(x)
    assert x.tolist() == [2, 2, 2]


def test_what_a_callback_raises_is_told(device, thread_errors):
    on_ready_callback(torch.ones(3, device=device), lambda _: {}["missing"])
    wait_for_callbacks()
    assert [type(error) for error in thread_errors] == [KeyError]


@pytest.mark.checks_values
def test_a_run_that_fails(device, thread_errors):
    slow = torch.ones(2000, 2000, device=device) @ torch.ones(2000, 2000, device=device)
    x = torch.arange(5.0, device=device)[(slow[:1, 0] - 1993).long()]  # the call is over when it fails
    assert on_ready_event(x).wait(60)
    wait_for_callbacks()
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        x.tolist()
    assert [type(error) for error in thread_errors] == [IndexError]
    torch_xla.sync(wait=True)


def test_tensors_of_other_devices_are_refused():
    with pytest.raises(ValueError, match="expected a tensor on the device xla, but got one on cpu"):
        on_ready_event(torch.ones(2))
