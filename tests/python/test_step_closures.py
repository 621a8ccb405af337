"""xm.add_step_closure: what runs after a step, on this thread or on another one."""

import threading
import time

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm


def test_they_run_once_after_the_next_sync(device):
    seen = []
    x = torch.ones(2, device=device)
    xm.add_step_closure(lambda t: seen.append(t.sum().item()), args=(x + 1,))
    xm.add_step_closure(seen.append, args=("second",))
    assert seen == []
    torch_xla.sync()
    torch_xla.sync()
    assert seen == [4, "second"]


def test_an_error_is_raised_by_the_sync():
    def fail():
        raise ValueError("from a closure")

    xm.add_step_closure(fail)
    with pytest.raises(ValueError, match="from a closure"):
        torch_xla.sync()
    torch_xla.sync()


def test_those_of_another_thread_of_the_device_run_too(device):
    seen = []
    thread = threading.Thread(target=lambda: xm.add_step_closure(lambda: seen.append(threading.get_ident())))
    thread.start()
    thread.join()
    torch_xla.sync()
    assert seen == [threading.get_ident()]


def test_those_of_a_thread_wait_for_its_own_sync(device):
    """Another thread's sync would read values in the middle of the step that computes them."""
    seen, added, may_go = [], threading.Event(), threading.Event()

    def train():
        for run_async in (False, True):
            xm.add_step_closure(lambda: seen.append(threading.get_ident()), run_async=run_async)
        added.set()
        may_go.wait(60)
        torch_xla.sync()
        seen.append("own")

    thread = threading.Thread(target=train)
    thread.start()
    added.wait(60)
    torch_xla.sync()
    assert seen == []
    may_go.set()
    thread.join()
    assert thread.ident in seen and "own" in seen and threading.get_ident() not in seen


def test_what_an_ended_thread_has_added_fails_for_the_next_sync():
    failed = threading.Event()

    def fail():
        failed.set()
        raise ValueError("from another thread")

    thread = threading.Thread(target=xm.add_step_closure, args=(fail,), kwargs={"run_async": True})
    thread.start()
    thread.join()
    torch_xla.sync()
    assert failed.wait(60)
    with pytest.raises(RuntimeError, match="asynchronous closure has failed"):
        for _ in range(10_000):  # the closure ends a moment after it has failed
            torch_xla.sync()
    torch_xla.sync()


def test_asynchronous_ones_do_not_hold_up_the_step(device):
    may_go, done, seen = threading.Event(), threading.Event(), []

    def report(number, t):
        may_go.wait(60)
        seen.append((number, t.sum().item(), threading.get_ident()))

    for number in range(3):
        xm.add_step_closure(report, args=(number, torch.ones(2, device=device) + number), run_async=True)
        torch_xla.sync()
    xm.add_step_closure(done.set, run_async=True)
    torch_xla.sync()
    assert seen == []
    may_go.set()
    assert done.wait(60)
    assert [(number, total) for number, total, _ in seen] == [(0, 2), (1, 4), (2, 6)]
    assert threading.get_ident() not in {thread for _, _, thread in seen}


def test_an_error_of_an_asynchronous_one_is_raised_by_a_later_sync(device):
    failed = threading.Event()

    def fail():
        failed.set()
        raise ValueError("from another thread")

    seen = []
    xm.add_step_closure(fail, run_async=True)
    torch_xla.sync()
    assert failed.wait(60)
    with pytest.raises(RuntimeError, match="asynchronous closure has failed") as raised:
        for _ in range(10_000):  # the closure ends a moment after it has failed
            torch_xla.sync()
    assert "from another thread" in str(raised.value.__cause__)
    done = threading.Event()
    xm.add_step_closure(done.set, run_async=True)
    xm.add_step_closure(seen.append, args=("goes on",))
    torch_xla.sync()
    assert done.wait(60) and seen == ["goes on"]


def test_the_step_waits_where_very_many_have_not_ended(device):
    """100 may wait: a loop that is faster than its closures does not keep tensors without end."""
    may_go, added = threading.Event(), []

    def add_many():
        for number in range(101):
            xm.add_step_closure(may_go.wait, args=(60,), run_async=True)
            torch_xla.sync()
            added.append(number)

    thread = threading.Thread(target=add_many)
    thread.start()
    while len(added) < 100 and thread.is_alive():
        time.sleep(0.01)
    thread.join(timeout=0.3)
    assert thread.is_alive() and len(added) == 100
    may_go.set()
    thread.join(timeout=60)
    assert len(added) == 101
