"""Streams and events: a device runs in one order, whatever stream is current, and events tell true times."""

import threading
import time

import pytest
import torch

import torch_xla


def heavy(x: torch.Tensor, times: int = 4) -> torch.Tensor:
    for _ in range(times):
        x = x @ x * 1e-3
    return x


# ---- Classes ----
def test_streams_and_events_have_the_classes_of_the_module(device):
    stream = torch.xla.Stream()
    event = stream.record_event()
    for each in (stream, torch.xla.current_stream(), torch.xla.default_stream(), torch.accelerator.current_stream()):
        assert isinstance(each, torch.Stream) and isinstance(each, torch.xla.Stream) and each.device == device
    assert not isinstance(3, torch.xla.Stream)
    for each in (event, torch.xla.Event(), torch.Event("xla"), torch.Event(), stream.record_event(torch.xla.Event())):
        assert isinstance(each, torch.Event) and isinstance(each, torch.xla.Event) and each.device.type == "xla"
    assert not isinstance(stream, torch.xla.Event) and not isinstance(event, torch.xla.Stream)
    assert torch.xla.Stream(device=0).device == torch.xla.Stream(device="xla:0").device == device
    assert torch.xla.Stream(priority=-1) != torch.xla.Stream(priority=-1)
    with pytest.raises(ValueError, match="expected an xla device, but got cpu"):
        torch.xla.Stream("cpu")
    with pytest.raises(RuntimeError, match="device index 99 does not exist"):
        torch.xla.Stream(99)


def test_a_stream_is_itself_again_by_its_numbers(device):
    stream = torch.xla.Stream()
    again = torch.xla.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    assert again == stream and hash(again) == hash(stream)


# ---- Which one is current ----
def test_the_current_stream_belongs_to_the_thread(device):
    mine, seen = torch.xla.Stream(), []
    torch.xla.set_stream(mine)
    thread = threading.Thread(target=lambda: seen.append(torch.xla.current_stream()))
    thread.start()
    thread.join()
    assert torch.xla.current_stream() == torch.accelerator.current_stream() == mine
    torch.xla.set_stream(torch.xla.default_stream())
    assert seen == [torch.xla.default_stream()] == [torch.xla.current_stream()]


@pytest.mark.parametrize("enter", [torch.xla.stream, torch.xla.StreamContext, lambda stream: stream])
def test_contexts_nest_and_restore(device, enter):
    a, b = torch.xla.Stream(), torch.xla.Stream()
    assert a != torch.xla.default_stream()
    with enter(a):
        with pytest.raises(KeyError), enter(b):
            assert torch.xla.current_stream() == b
            raise KeyError
        assert torch.xla.current_stream() == a
    assert torch.xla.current_stream() == torch.xla.default_stream()


def test_no_stream_changes_nothing(device):
    with torch.xla.stream(None):
        assert torch.xla.current_stream() == torch.xla.default_stream()


# ---- Order ----
def test_streams_see_each_others_work_without_waiting(device):
    other = torch.xla.Stream()
    x = torch.arange(4.0, device=device)
    for _ in range(5):
        with torch.xla.stream(other):
            x.add_(1)
        x.mul_(2)
    expected = torch.arange(4.0)
    for _ in range(5):
        expected = (expected + 1) * 2
    assert x.tolist() == expected.tolist()


def test_the_side_stream_pattern_of_loaders(device, compiles):
    side, batches = torch.xla.Stream(), [torch.full((3,), float(index)) for index in range(4)]
    total, following = torch.zeros(3, device=device), None
    for index in range(5):
        current = following
        if index < 4:
            with torch.xla.stream(side):
                following = batches[index].pin_memory().to(device, non_blocking=True)
        torch.xla.current_stream().wait_stream(side)
        if current is not None:
            current.record_stream(torch.xla.current_stream())
            total += current
    assert compiles.value == 0  # waiting for streams runs nothing
    assert total.tolist() == [6, 6, 6]


def test_waits_run_nothing_and_synchronize_runs_all(device, compiles):
    a, b = torch.xla.Stream(), torch.xla.Stream()
    with torch.xla.stream(a):
        x = torch.arange(3.0, device=device).cosh() + 11
        event = a.record_event()
    b.wait_event(event)
    event.wait(b)
    event.wait()
    b.wait_stream(a)
    x.record_stream(b)
    assert compiles.value == 0
    while not event.query():  # which runs it
        pass
    event.record()
    event.synchronize()
    b.synchronize()
    assert a.query() and b.query() and event.query()
    torch.testing.assert_close(x.cpu(), torch.arange(3.0).cosh() + 11)
    assert compiles.value == 1


def test_query_is_false_while_the_device_runs_and_true_afterwards(device):
    x = torch.randn(700, 700, device=device)
    torch_xla.sync(wait=True)
    y = heavy(x, 10)
    stream = torch.xla.current_stream()
    first = stream.query()
    deadline = time.monotonic() + 60
    while not stream.query():
        assert time.monotonic() < deadline
    assert not first and y.shape == (700, 700)


# ---- Times ----
def test_elapsed_times_are_those_of_the_runs(device):
    x = torch.randn(512, 512, device=device)
    heavy(x, 8), heavy(x, 1)
    torch_xla.sync(wait=True)
    marks = [torch.xla.Event(enable_timing=True) for _ in range(3)]
    assert marks[0].query()
    begin = time.perf_counter()
    marks[0].record()
    y = heavy(x, 8)
    marks[1].record()
    z = heavy(x, 1)
    marks[2].record()
    torch.xla.synchronize()
    wall = (time.perf_counter() - begin) * 1e3
    long, short = marks[0].elapsed_time(marks[1]), marks[1].elapsed_time(marks[2])
    assert 0 < short < long and all(mark.query() for mark in marks)
    assert long + short <= wall * 1.01 + 1
    assert marks[0].elapsed_time(marks[2]) == pytest.approx(long + short)
    assert marks[1].elapsed_time(marks[0]) == pytest.approx(-long)
    del y, z


def test_a_pause_of_the_program_is_in_the_time(device):
    start, end = torch.xla.Event(enable_timing=True), torch.xla.Event(enable_timing=True)
    start.record()
    time.sleep(0.05)
    end.record()
    end.synchronize()
    assert 45 < start.elapsed_time(end) < 5000


def test_events_that_tell_no_times_say_so(device):
    start, end = torch.xla.Event(enable_timing=True), torch.xla.Event(enable_timing=True)
    with pytest.raises((RuntimeError, ValueError), match=r"record|timing"):
        start.elapsed_time(end)
    plain = torch.xla.Event()
    plain.record()
    start.record()
    with pytest.raises((RuntimeError, ValueError), match="timing"):
        plain.elapsed_time(start)


def test_a_later_record_replaces_an_earlier_one(device):
    a, b = torch.xla.Event(enable_timing=True), torch.xla.Event(enable_timing=True)
    b.record()
    a.record()
    b.record()
    torch.xla.synchronize()
    assert a.elapsed_time(b) >= 0


# ---- torch.accelerator ----
def test_the_accelerator_is_the_device(device):
    acc = torch.accelerator
    assert acc.current_accelerator() == acc.current_accelerator(check_available=True) == torch.device("xla")
    assert acc.is_available() and acc.device_count() == torch.xla.device_count()
    assert acc.current_device_index() == 0
    acc.set_device_index("xla:0")
    acc.set_device_index(0)
    with acc.device_index(0), acc.device_index(None):
        assert acc.current_device_index() == 0
    with pytest.raises(RuntimeError, match="device index 99 does not exist"):
        acc.set_device_index(99)
    with pytest.raises(ValueError, match="cpu doesn't match"):
        acc.synchronize("cpu")
    assert torch.float32 in acc.get_device_capability("xla:0")["supported_dtypes"]


def test_the_accelerators_streams_are_the_devices(device):
    stream = torch.Stream()
    assert stream.device == device
    torch.accelerator.set_stream(stream)
    assert torch.xla.current_stream() == torch.accelerator.current_stream("xla:0") == stream
    torch.accelerator.set_stream(torch.xla.default_stream())
    x = torch.ones(2, device=device) + 1
    event = torch.Event(enable_timing=True)
    event.record()
    torch.accelerator.synchronize()
    torch.accelerator.synchronize(device)
    assert event.query() and x.tolist() == [2, 2]


def test_the_accelerators_memory_is_the_devices(device):
    acc = torch.accelerator
    x = torch.ones(1 << 20, device=device) + 1
    torch_xla.sync(wait=True)
    assert acc.memory_allocated() == torch.xla.memory_allocated() >= 4 << 20
    assert acc.max_memory_allocated() == torch.xla.max_memory_allocated() >= acc.memory_allocated(device)
    assert acc.memory_reserved() <= acc.max_memory_reserved("xla:0")
    free, total = acc.get_memory_info()
    assert (free, total) == torch.xla.mem_get_info() and 0 < free < total
    assert acc.memory_stats(0) == torch.xla.memory_stats()
    acc.reset_peak_memory_stats()
    acc.reset_accumulated_memory_stats()
    acc.empty_cache()
    acc.empty_host_cache()
    assert x[0].item() == 2


# ---- Errors of runs ----
def record_and_synchronize():
    event = torch.xla.Event()
    event.record()
    event.synchronize()


WAITS = {
    "torch.xla": torch.xla.synchronize,
    "torch.accelerator": torch.accelerator.synchronize,
    "stream": lambda: torch.xla.current_stream().synchronize(),
    "event": record_and_synchronize,
}


@pytest.mark.parametrize("way", WAITS)
def test_every_wait_raises_the_class_of_the_runs_error(device, way):
    large = torch.ones(2_000_000, 1, device=device)
    index = torch.tensor([0, 99], device=device)
    torch_xla.sync(wait=True)
    y = large @ large.t()
    with pytest.raises(torch.OutOfMemoryError, match="can't allocate memory"):
        WAITS[way]()
    del y
    y = torch.nn.functional.embedding(index, torch.ones(4, 2, device=device))
    with pytest.raises(IndexError):
        WAITS[way]()
    del y
    torch.xla.synchronize()
    assert (index + 1).tolist() == [1, 100]
