"""What example programs of the original import: progress lines, summaries, closures, queues, moves of nested data."""

import re
import sys
import threading
import types
import unittest

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.test import test_utils as xtu
from torch_xla.utils.closures import AsyncClosureHandler, ClosureHandler
from torch_xla.utils.keyd_queue import KeydQueue, Queue


# ---- Lines and summaries ----
class Summary:
    def __init__(self, logdir):
        self.logdir, self.scalars, self.ended = logdir, {}, []

    def add_scalar(self, name, value, step):
        self.scalars[name] = (value, step)

    def flush(self):
        self.ended.append("flush")

    def close(self):
        self.ended.append("close")


@pytest.fixture
def summary(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=Summary))
    return xtu.get_summary_writer("logs")


def test_training_lines(device, capsys, summary):
    loss = torch.tensor(0.125, device=device)
    xtu.print_training_update(device, 20, loss, 12.345, 10.0, epoch=2, summary_writer=summary)
    line = capsys.readouterr().out
    words = (
        r"\| Training Device=xla:0/0 Epoch=2 Step=20 Loss=0.12500 Rate=12.3[45] GlobalRate=10.00 Time=\d\d:\d\d:\d\d\n"
    )
    assert re.fullmatch(words, line)
    assert summary.scalars["examples/sec"] == (12.345, None) and summary.scalars["average_examples/sec"] == (10.0, None)
    xtu.print_training_update("xla:1", 1, 2.0, 3, 4)
    assert capsys.readouterr().out.startswith("| Training Device=xla:1/0 Step=1 Loss=2.00000 Rate=3.00 ")


def test_test_lines(capsys):
    xtu.print_test_update("xla:0", 98.765, epoch=1)
    xtu.print_test_update("xla:0", None, step=7)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("| Test Device=xla:0/0 Epoch=1 Accuracy=98.7") and " Time=" in first
    assert second.startswith("| Test Device=xla:0/0 Step=7 Time=")


def test_summaries(device, summary):
    assert summary.logdir == "logs" and summary.scalars["TensorboardStartTimestamp"][1] == 0
    torch.nonzero(torch.ones(2, device=device))
    torch_xla.sync()
    xtu.write_to_summary(summary, 5, {"accuracy": 0.5}, write_xla_metrics=True)
    assert summary.scalars["accuracy"] == (0.5, 5)
    assert summary.scalars["MarkStep__Value"][0] >= 1
    assert summary.scalars["aten_ops_sum"][0] >= summary.scalars["aten::nonzero__Value"][0] >= 1
    xtu.close_summary_writer(summary)
    assert summary.ended == ["flush", "close"]


def test_no_summary():
    assert xtu.get_summary_writer(None) is None
    xtu.write_to_summary(None, 1, {"x": 1.0}, write_xla_metrics=True)
    xtu.close_summary_writer(None)


def test_now():
    assert re.fullmatch(r"\d\d:\d\d:\d\d", xtu.now()) and re.fullmatch(r"\d{4}", xtu.now("%Y"))


def test_tests_in_processes_of_their_own():
    source = """
        import os, unittest
        import torch_xla.test.test_utils as xtu
        class T(unittest.TestCase):
            @xtu.mp_test
            def test_apart(self):
                assert os.getpid() != parent
            @xtu.mp_test
            def test_fails(self):
                raise SystemExit(3)
        parent = os.getpid()
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(T).run(result)
        print(result.testsRun, [t._testMethodName for t, _ in result.failures], len(result.errors))
    """
    import subprocess
    import textwrap

    out = subprocess.run([sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=120)
    assert out.stdout == "2 ['test_fails'] 0\n", out.stderr
    assert xtu.mp_test(lambda: None)() == 0
    assert issubclass(unittest.TestCase, object)


# ---- Closures ----
def test_closures_run_in_order_elsewhere():
    seen = []
    handler = AsyncClosureHandler()
    handler.run_all([lambda i=i: seen.append((i, threading.get_ident())) for i in range(3)])
    done = threading.Event()
    handler.run(done.set)
    assert done.wait(30)
    assert [i for i, _ in seen] == [0, 1, 2] and {thread for _, thread in seen} != {threading.get_ident()}
    with pytest.raises(TypeError, match="abstract"):
        ClosureHandler()


def test_a_closure_that_fails_is_told_once():
    handler = AsyncClosureHandler()
    handler.run(lambda: 1 / 0)
    done = threading.Event()
    handler._pool.submit(done.set)
    assert done.wait(30)
    ran = threading.Event()
    with pytest.raises(RuntimeError, match="an asynchronous closure has failed") as raised:
        handler.run(ran.set)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    handler.run(ran.set)
    assert ran.wait(30)


def test_closures_that_wait_are_few(monkeypatch):
    with pytest.raises(ValueError, match="max_queue_size is 0"):
        AsyncClosureHandler(0)
    monkeypatch.setenv("XLA_MAX_ASYNC_QUEUE", "1")
    handler = AsyncClosureHandler(50)
    gate, second = threading.Event(), threading.Event()
    handler.run(lambda: gate.wait(30))
    blocked = threading.Thread(target=handler.run, args=(second.set,))
    blocked.start()
    assert not second.is_set() and blocked.is_alive()
    gate.set()
    assert second.wait(30)
    blocked.join(30)


def test_asynchronous_step_closures(device):
    done, x = threading.Event(), torch.ones(2, device=device)
    seen = []

    def look(t):
        seen.append(t.sum().item())
        done.set()

    xm.add_step_closure(look, (x + 1,), run_async=True)
    torch_xla.sync()
    assert done.wait(30) and seen == [4]
    failed = threading.Event()

    def fail():
        failed.set()
        raise ValueError("late")

    xm.add_step_closure(fail, run_async=True)
    torch_xla.sync()
    assert failed.wait(30)
    with pytest.raises(RuntimeError, match="asynchronous closure has failed") as raised:
        for _ in range(1000):
            torch_xla.sync()
            threading.Event().wait(0.01)
    assert str(raised.value.__cause__) == "late"


# ---- Queues ----
def in_thread(function, *args) -> tuple[threading.Thread, list]:
    results: list = []
    thread = threading.Thread(target=lambda: results.append(function(*args)), daemon=True)
    thread.start()
    return thread, results


def test_a_queue_is_in_order_and_of_limited_length():
    queue = Queue(maxsize=2)
    assert queue.max_size() == 2
    queue.put(1)
    queue.put(2)
    writer, _ = in_thread(queue.put, 3)
    assert [queue.get() for _ in range(3)] == [1, 2, 3]
    writer.join(30)
    reader, got = in_thread(queue.get)
    queue.put(4)
    reader.join(30)
    assert got == [4]
    queue.put(5)
    queue.close_write()
    assert queue.get() == 5 and queue.get() is None


def test_a_closed_queue_drops_what_comes():
    queue = Queue(maxsize=1)
    queue.put(1)
    writer, _ = in_thread(queue.put, 2)
    queue.close()
    writer.join(30)
    assert not writer.is_alive()
    queue.put(3)
    assert queue.get() == 1 and queue.get() is None


def test_a_queue_by_key():
    queue = KeydQueue(maxsize=1)
    queue.put("a", 1)
    reader, got = in_thread(queue.get, "b")
    queue.put("b", 2)  # full, but awaited
    reader.join(30)
    assert got == [2] and queue.get("a") == 1
    reader, got = in_thread(queue.get, "c")
    queue.close()
    reader.join(30)
    assert got == [None]
    queue.put("d", 1)
    assert queue.get("d") is None


# ---- Nested data ----
def test_an_arena_moves_all_at_once(device):
    shared = torch.ones(2)
    data = {"a": [shared, (torch.zeros(3), 5)], "b": {"c": shared}, "d": "text"}
    calls = []

    def convert(tensors):
        calls.append(len(tensors))
        return torch_xla._XLAC._xla_tensors_from_aten(tensors, [str(device)] * len(tensors))

    moved = xm.ToXlaTensorArena(convert, lambda value: type(value) is torch.Tensor).transform(data)
    with pytest.raises(ValueError, match="there are 1 tensors for 0 devices"):
        torch_xla._XLAC._xla_tensors_from_aten([shared], [])
    assert calls == [2] and moved["d"] == "text" and moved["a"][1][1] == 5
    assert moved["a"][0] is moved["b"]["c"] and moved["a"][0].device == device
    assert moved["a"][1][0].tolist() == [0, 0, 0] and data["a"][0] is shared
    assert xm.ToXlaTensorArena(convert, lambda value: False).transform([1]) == [1] and calls == [2]
    with pytest.raises(ValueError, match="convert_fn gave 0 values for 1"):
        xm.ToXlaTensorArena(lambda tensors: [], lambda value: type(value) is torch.Tensor).transform(shared)


@pytest.mark.parametrize("text, parsed", [("TPU:3", ("TPU", 3)), ("CPU:0", ("CPU", 0)), ("xla:0", None), ("TPU", None)])
def test_names_of_hardware(text, parsed):
    assert xm.parse_xla_device(text) == parsed
