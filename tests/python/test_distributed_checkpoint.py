"""Checkpoints of a run by their steps (torch_xla.experimental.distributed_checkpoint)."""

import os
import signal
import time

import pytest
import sharded
import torch
from torch import nn

import torch_xla.distributed.xla_multiprocessing as xmp
from torch_xla.experimental.distributed_checkpoint import (
    _preemption,
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


def test_a_checkpoint_that_was_not_finished_is_none(device, tmp_path, monkeypatch):
    checkpoints = manager_of(tmp_path)
    checkpoints.save(10, state_of(device, 10))
    monkeypatch.setattr(manager.dcp, "save", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        checkpoints.save(10, state_of(device, 11))
    assert checkpoints.all_steps() == []


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


def test_a_signal_saves_the_next_step(device, tmp_path, monkeypatch):
    monkeypatch.setattr(_preemption, "_is_watching", False)
    before = signal.getsignal(signal.SIGTERM)
    try:
        checkpoints = manager_of(tmp_path, chkpt_on_preemption=True)
        assert not checkpoints.save(1, state_of(device, 1)) and not checkpoints.reached_preemption(1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert checkpoints.save(2, state_of(device, 2)) and checkpoints.reached_preemption(2)
        assert checkpoints.all_steps() == [2]
    finally:
        signal.signal(signal.SIGTERM, before)
        _preemption._asked.clear()


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
    xmp.spawn(sharded.saves_steps, (str(tmp_path),), 2)
