"""Checkpoints of a run by their steps (torch_xla.experimental.distributed_checkpoint)."""

import os
import shutil
import signal
import threading
import time

import interrupted
import numpy as np
import pytest
import sharded
import torch
from replica_pool import spawn
from torch import nn
from torch.distributed.checkpoint import filesystem

from torch_xla.experimental.distributed_checkpoint import (
    _preemption,
    _writer,
    CheckpointManager,
    manager,
    prime_optimizer,
    SPMDLoadPlanner,
    SPMDSavePlanner,
)


def state_of(device, value: float) -> dict:
    model = nn.Linear(3, 2).to(device)
    nn.init.constant_(model.weight, value)
    return {"model": model.state_dict(), "step": int(value)}


def manager_of(path, **options) -> CheckpointManager:
    return CheckpointManager(str(path), **{"save_interval": 10, "chkpt_on_preemption": False, **options})


def test_steps_are_saved_and_restored(device, tmp_path):
    checkpoints = manager_of(tmp_path / "run")
    assert checkpoints.all_steps() == []
    assert [checkpoints.save(step, state_of(device, step)) for step in range(9, 22)].count(True) == 2
    assert checkpoints.save(23, state_of(device, 23), force=True) and checkpoints.all_steps() == [10, 20, 23]
    state = state_of(device, 0)
    weight = state["model"]["weight"]
    manager_of(tmp_path / "run").restore(20, state)
    assert state["step"] == 20 and weight.tolist() == [[20.0] * 3] * 2 and weight.device == device
    with pytest.raises(ValueError, match=r"no checkpoint of step 11, but of \[10, 20, 23\]"):
        checkpoints.restore(11, state)


def test_each_thread_writes_a_file(device, tmp_path):
    checkpoints = manager_of(tmp_path, num_of_threads=2)
    checkpoints.save(10, state_of(device, 10))
    assert len([name for name in os.listdir(tmp_path / "10") if name.endswith(".distcp")]) == 2
    state = state_of(device, 0)
    checkpoints.restore(10, state)
    assert state["model"]["weight"].tolist() == [[10.0] * 3] * 2


def test_old_ones_are_deleted_in_the_order_in_which_they_were_written(device, tmp_path):
    checkpoints = manager_of(tmp_path, max_to_keep=2)
    for step in (10, 20, 30, 10):
        assert checkpoints.save(step, state_of(device, step))
    assert checkpoints.all_steps() == [10, 30]
    checkpoints = manager_of(tmp_path, max_to_keep=2)
    checkpoints.save(20, state_of(device, 20))
    assert checkpoints.all_steps() == [10, 20] and sorted(os.listdir(tmp_path)) == ["10", "20"]


def restored(path, step: int, **options) -> int:
    """The value of the state that the step has, by a manager that a process has made after another one."""
    state = state_of("cpu", 0)
    manager_of(path, **options).restore(step, state)
    assert state["model"]["weight"].unique().tolist() == [state["step"]]
    return state["step"]


def test_a_checkpoint_that_was_not_finished_is_none(device, tmp_path, monkeypatch):
    checkpoints = manager_of(tmp_path)
    checkpoints.save(10, state_of(device, 10))
    monkeypatch.setattr(manager.dcp, "save", lambda *args, **kwargs: 1 / 0)
    for step in (10, 20):
        with pytest.raises(ZeroDivisionError):
            checkpoints.save(step, state_of(device, 11))
    assert checkpoints.all_steps() == [10] and restored(tmp_path, 10) == 10


@pytest.mark.parametrize("text", ["", "12 o'clock", "9" * 5000, None])
def test_what_cannot_be_read_is_no_checkpoint(device, tmp_path, text):
    checkpoints = manager_of(tmp_path)
    for step in (10, 20):
        checkpoints.save(step, state_of(device, step))
    (tmp_path / "20" / "finished").unlink()
    if text is None:
        (tmp_path / "20" / "finished").mkdir()
    else:
        (tmp_path / "20" / "finished").write_text(text)
    for name in ("007", "\u0663", "-3"):  # numbers of no step
        (tmp_path / name).mkdir()
        (tmp_path / name / "finished").write_text("1")
    assert checkpoints.all_steps() == [10] and restored(tmp_path, 10) == 10
    with pytest.raises(ValueError, match=r"no checkpoint of step 20, but of \[10\]"):
        checkpoints.restore(20, state_of(device, 0))
    checkpoints.save(30, state_of(device, 30))
    assert checkpoints.all_steps() == [10, 30]
    if text is not None:
        checkpoints.save(20, state_of(device, 21))
        assert checkpoints.all_steps() == [10, 20, 30] and restored(tmp_path, 20) == 21


def test_the_order_does_not_depend_on_the_clock(device, tmp_path, monkeypatch):
    checkpoints = manager_of(tmp_path, max_to_keep=2)
    for step in (10, 20):
        checkpoints.save(step, state_of(device, step))
        (tmp_path / str(step) / "finished").write_text(str(time.time_ns()))  # as earlier versions wrote it
    monkeypatch.setattr(time, "time_ns", lambda: 5)
    for step in (30, 40, 10):
        checkpoints.save(step, state_of(device, step))
    assert checkpoints.all_steps() == [10, 40]


@pytest.mark.parametrize("keep", [1, 2])
def test_what_was_just_finished_is_never_deleted(device, tmp_path, keep):
    checkpoints = manager_of(tmp_path, max_to_keep=keep)
    for step in (10, 20):
        checkpoints.save(step, state_of(device, step))
    for step in checkpoints.all_steps():
        (tmp_path / str(step) / "finished").write_text(str(10**30))
    checkpoints.save(30, state_of(device, 30))
    assert 30 in checkpoints.all_steps() and len(checkpoints.all_steps()) == keep


def test_a_checkpoint_that_is_half_deleted_is_none(device, tmp_path, monkeypatch):
    checkpoints = manager_of(tmp_path, max_to_keep=1)
    checkpoints.save(10, state_of(device, 10))
    monkeypatch.setattr(shutil, "rmtree", sharded.fail)
    with pytest.raises(OSError, match="no storage"):
        checkpoints.save(20, state_of(device, 20))
    assert (tmp_path / "10").exists() and checkpoints.all_steps() == [20]


def test_a_thread_that_cannot_write_is_seen(device, tmp_path, monkeypatch):
    write = _writer._write_files_from_queue

    def write_on_the_first(**options):
        if threading.current_thread() is not threading.main_thread():
            raise OSError("no storage")
        write(**options)

    checkpoints = manager_of(tmp_path, num_of_threads=2)
    monkeypatch.setattr(_writer, "_write_files_from_queue", write_on_the_first)
    monkeypatch.setattr(filesystem, "_write_files_from_queue", write_on_the_first)
    with pytest.raises(OSError, match="no storage"):
        checkpoints.save(10, state_of(device, 10))
    assert checkpoints.all_steps() == [] and os.listdir(tmp_path) == []


def test_a_checkpoint_that_is_deleted_while_it_is_read(device, tmp_path, monkeypatch):
    checkpoints = manager_of(tmp_path)
    checkpoints.save(10, state_of(device, 10))
    read = filesystem.FileSystemReader.read_data

    def read_late(*args):
        shutil.rmtree(tmp_path / "10")
        return read(*args)

    monkeypatch.setattr(filesystem.FileSystemReader, "read_data", read_late)
    with pytest.raises(RuntimeError, match="step 10 was deleted or replaced while it was read"):
        manager_of(tmp_path).restore(10, state_of(device, 0))


def test_readers_see_whole_checkpoints_beside_a_writer(device, tmp_path):
    """A step that is saved again and again: a reader gets one of them, or an error that says why not."""
    is_done = threading.Event()
    checkpoints = manager_of(tmp_path, max_to_keep=1, save_interval=1)
    checkpoints.save(0, state_of("cpu", 1))

    def write() -> None:
        for value in range(2, 40):
            checkpoints.save(value % 2, state_of("cpu", value))
        is_done.set()

    writer = threading.Thread(target=write)
    writer.start()
    count = 0
    while not is_done.is_set():
        for step in manager_of(tmp_path).all_steps():
            try:
                count += restored(tmp_path, step) > 0
            except RuntimeError as error:
                assert "deleted or replaced while it was read" in str(error)
            except ValueError as error:
                assert "no checkpoint of step" in str(error)
    writer.join()
    assert restored(tmp_path, 1) == 39


@pytest.mark.parametrize("kind", interrupted.KINDS)
@pytest.mark.parametrize("way", ["save", "save_async"])
@pytest.mark.parametrize("same_step", [True, False])
def test_a_save_that_is_interrupted(tmp_path, kind, way, same_step):
    options = {"save_interval": 1, "max_to_keep": 1}

    def save(value: int) -> None:
        checkpoints = manager_of(tmp_path, **options)
        getattr(checkpoints, way)(7 if same_step else value, state_of("cpu", value))
        checkpoints.join()

    def load() -> int:
        return restored(tmp_path, manager_of(tmp_path, **options).all_steps()[-1], **options)

    leaves = kind == "killed" and not same_step  # the folder of the step, until it is saved
    interrupted.check_interrupted_saves(kind, tmp_path, save, load, least=8, leaves=leaves)


@pytest.mark.parametrize("step, error", [(-1, ValueError), (1.0, TypeError), ("10", TypeError)])
def test_what_is_no_step(device, tmp_path, step, error):
    checkpoints = manager_of(tmp_path)
    for act in (checkpoints.save, checkpoints.save_async, checkpoints.restore):
        with pytest.raises(error):
            act(step, state_of(device, 1))


def test_modules_are_saved_as_they_were(device, tmp_path, monkeypatch):
    """What has a state_dict() is asked for it before the steps go on; so are arrays copied."""
    checkpoints, is_changed = manager_of(tmp_path), threading.Event()
    save = manager.dcp.save
    monkeypatch.setattr(manager.dcp, "save", lambda *args, **kwargs: (is_changed.wait(), save(*args, **kwargs)))
    model, array = nn.Linear(2, 2).to(device), np.ones(3)
    nn.init.constant_(model.weight, 1)
    checkpoints.save_async(10, {"model": model, "array": array})
    nn.init.constant_(model.weight, 2)
    array.fill(2)
    is_changed.set()
    checkpoints.join()
    again = nn.Linear(2, 2).to(device)
    state = {"model": again, "array": np.zeros(3)}
    checkpoints.restore(10, state)
    assert again.weight.tolist() == [[1, 1], [1, 1]] and state["array"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("act", ["save", "save_async", "restore", "join"])
def test_an_error_beside_the_steps_is_raised_by_the_next_call(device, tmp_path, monkeypatch, act):
    checkpoints, state = manager_of(tmp_path), state_of(device, 1)
    checkpoints.save(10, state)
    with monkeypatch.context() as patch:
        patch.setattr(manager.dcp, "save", sharded.fail)
        checkpoints.save_async(20, state)
        checkpoints._writer.submit(int).result()  # it has tried
        for _ in range(2):
            with pytest.raises(OSError, match="no storage"):
                checkpoints.all_steps()
    with pytest.raises(OSError, match="no storage"):
        getattr(checkpoints, act)(*(() if act == "join" else (10, state)))
    assert checkpoints.all_steps() == [10]
    checkpoints.save(20, state)


UNJOINED = """
    import torch, torch_xla
    from torch_xla.experimental.distributed_checkpoint import CheckpointManager, manager
    def fail(*args, **kwargs):
        raise OSError("no storage")
    manager.dcp.save = fail
    CheckpointManager({path!r}, 1).save_async(3, {{"x": torch.ones(2)}})
"""


def test_an_error_that_nobody_asked_for_is_written_at_the_end(run_python, tmp_path):
    text = run_python(UNJOINED.format(path=str(tmp_path)))
    assert "torch_xla: the checkpoint of step 3 was not saved" in text and "OSError: no storage" in text


def test_what_is_saved_beside_the_steps_is_the_state_of_its_step(device, tmp_path, monkeypatch):
    checkpoints = manager_of(tmp_path, max_pending_async=2)
    save = manager.dcp.save
    monkeypatch.setattr(manager.dcp, "save", lambda *args, **kwargs: (time.sleep(0.2), save(*args, **kwargs)))
    state = state_of(device, 10)
    assert checkpoints.save_async(10, state) and not checkpoints.save_async(11, state)
    state["model"]["weight"].fill_(7)
    assert checkpoints.all_steps() == []
    checkpoints.join()
    assert checkpoints.all_steps() == [10]
    checkpoints.restore(10, state)
    assert state["model"]["weight"].tolist() == [[10.0] * 3] * 2
    monkeypatch.setattr(manager.dcp, "save", lambda *args, **kwargs: 1 / 0)
    checkpoints.save_async(20, state)
    with pytest.raises(ZeroDivisionError):
        checkpoints.join()


def test_a_signal_saves_the_next_step(device, tmp_path):
    _preemption._stop_watching()  # of another test
    before = signal.getsignal(signal.SIGTERM)
    try:
        checkpoints = manager_of(tmp_path, chkpt_on_preemption=True)
        assert not checkpoints.save(1, state_of(device, 1)) and not checkpoints.reached_preemption(1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert checkpoints.save(2, state_of(device, 2)) and checkpoints.reached_preemption(2)
        assert checkpoints.all_steps() == [2]
    finally:
        _preemption._stop_watching()
    assert signal.getsignal(signal.SIGTERM) == before and not _preemption.was_asked()


def test_planners(device, tmp_path):
    manager.dcp.save(state_of(device, 3), checkpoint_id=str(tmp_path), planner=SPMDSavePlanner())
    state = state_of(device, 0)
    manager.dcp.load(state, checkpoint_id=str(tmp_path), planner=SPMDLoadPlanner())
    assert state["model"]["weight"].tolist() == [[3.0] * 3] * 2 and state["step"] == 3


def test_a_url(device):
    checkpoints = manager_of("memory://checkpoints/run")
    checkpoints.save(10, state_of(device, 10))
    state = state_of(device, 0)
    checkpoints.restore(10, state)
    assert state["step"] == 10 and checkpoints.all_steps() == [10]


@pytest.mark.parametrize("options", [{"save_interval": 0}, {"max_pending_async": 0}, {"num_of_threads": 0}])
def test_numbers_that_make_no_sense(tmp_path, options):
    with pytest.raises(ValueError, match="at least 1"):
        manager_of(tmp_path, **options)


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.RMSprop, torch.optim.SGD])
def test_training_goes_on_as_if_it_had_not_ended(device, tmp_path, make):
    def train(model, optimizer, steps):
        for step in steps:
            torch.manual_seed(step)
            optimizer.zero_grad()
            model(torch.randn(4, 3).to(device)).square().mean().backward()
            optimizer.step()

    def start():
        torch.manual_seed(0)
        model = nn.Linear(3, 2).to(device)
        return model, make(model.parameters(), lr=0.1)

    model, optimizer = start()
    train(model, optimizer, range(3))
    manager_of(tmp_path).save(10, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    train(model, optimizer, range(3, 6))
    again, other = start()
    state = {"model": again.state_dict(), "optimizer": prime_optimizer(other).state_dict()}
    manager_of(tmp_path).restore(10, state)
    other.load_state_dict(state["optimizer"])
    train(again, other, range(3, 6))
    assert again.weight.equal(model.weight) and again.bias.equal(model.bias)


def test_several_processes(tmp_path):
    spawn(sharded.saves_together, (str(tmp_path),))
