"""Saves a run's state at an interval of steps, at once or beside later steps, and restores it."""

import contextlib
import operator
from concurrent.futures import ThreadPoolExecutor

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.stateful import Stateful

from ... import _api
from . import _preemption
from ._helpers import _sharded_cpu_state_dict
from ._pending import PendingSaves
from ._processes import make_groups, Processes
from ._step_folders import StepFolders
from ._writer import StepWriter
from .planners import SPMDLoadPlanner, SPMDSavePlanner


def _plain(state_dict: dict) -> dict:
    """The nest with states in place of its modules, optimizers and the like."""
    return {name: value.state_dict() if isinstance(value, Stateful) else value for name, value in state_dict.items()}


def _number_of(step: int) -> int:
    number = operator.index(step)
    if number < 0:
        raise ValueError(f"a step is numbered from 0, but got {number}")
    return number


class CheckpointManager:
    """Checkpoints of the run in one place, by the numbers of their steps.

    A run of several processes calls each method in all of them, after torch.distributed.init_process_group(). If a
    process fails, all raise RuntimeError with its rank and error.

    A step that is saved again keeps its older checkpoint until the new one is complete. An error of save_async() is
    raised by the next save(), save_async() or restore() that does something, or by join(); by all_steps() as well. An
    error left at the end of the process is written to stderr. docs/sharding.md has an example, and the files.

    Args:
        path: a directory, or a URL that fsspec knows, which all processes share.
        save_interval: save() and save_async() save the steps that are a multiple of it.
        max_to_keep: if there are more, the oldest are deleted; 0 or less keeps all.
        max_pending_async: save_async() waits while this many checkpoints are being written.
        num_of_threads: writing threads of each process, a file each.
        process_group: for meetings of the processes, with a backend for the CPU; by default a new one of gloo.
        chkpt_on_preemption: SIGTERM does not end the process: the next step is saved, with any number, and
            reached_preemption() returns True.

    Raises ValueError for an interval, a max_pending_async or a num_of_threads under 1, RuntimeError outside of the main
    thread, unless chkpt_on_preemption is off.
    """

    def __init__(
        self,
        path: str,
        save_interval: int,
        max_to_keep: int | None = -1,
        max_pending_async: int = 1,
        num_of_threads: int = 1,
        process_group: dist.ProcessGroup | None = None,
        chkpt_on_preemption: bool = True,
    ):
        numbers = {
            "save_interval": save_interval,
            "max_pending_async": max_pending_async,
            "num_of_threads": num_of_threads,
        }
        for name, number in numbers.items():
            if number < 1:
                raise ValueError(f"{name} is at least 1, but is {number}")
        self._folders = StepFolders(path)
        self._save_interval = save_interval
        self._max_to_keep = max_to_keep or 0
        self._max_pending = max_pending_async
        self._num_of_threads = num_of_threads
        here, in_thread = make_groups(process_group)
        self._processes, self._writing_processes = Processes(here), Processes(in_thread)
        self._writer = ThreadPoolExecutor(1, "xla-checkpoint")
        self._pending = PendingSaves()
        self._watches = chkpt_on_preemption
        if chkpt_on_preemption:
            _preemption.watch()

    def should_save(self, step: int) -> bool:
        """Whether save(step) saves: a multiple of the interval, or SIGTERM has come."""
        return step % self._save_interval == 0 or self.reached_preemption(step)

    def reached_preemption(self, step: int) -> bool:
        """Whether SIGTERM has come, to any of the processes. The processes ask together, once a step."""
        del step
        if not self._watches:
            return False
        return self._processes.any(_preemption.was_asked())

    def save(self, step: int, state_dict: dict, force: bool = False) -> bool:
        """Saves the state if should_save() or force. Returns whether it did.

        Raises ValueError for a step under 0, and the error of a failed save or deletion.
        """
        step = _number_of(step)
        if not force and not self.should_save(step):
            return False
        self.join()
        state = self._processes.do(f"taking the state of step {step}", lambda: _plain(state_dict))
        self._save(step, state, self._processes)
        return True

    def save_async(self, step: int, state_dict: dict, force: bool = False) -> bool:
        """As save(), but returns once the state is copied to the CPU's memory, and a thread writes it.

        Raises errors of the copy and of writing an earlier checkpoint.
        """
        step = _number_of(step)
        if not force and not self.should_save(step):
            return False
        self._pending.wait(at_most=self._max_pending - 1)
        state = self._processes.do(
            f"copying the state of step {step}", lambda: _sharded_cpu_state_dict(_plain(state_dict))
        )
        self._pending.add(step, self._writer.submit(self._save, step, state, self._writing_processes))
        return True

    def _save(self, step: int, state: dict, processes: Processes) -> None:
        what = f"saving step {step}"
        processes.do_first(what, lambda: self._folders.begin(step))
        writer = processes.do(what, lambda: StepWriter(self._folders.path_of(step), self._num_of_threads))
        write = {"storage_writer": writer, "planner": SPMDSavePlanner(), **processes.options()}
        try:
            processes.do(what, lambda: dcp.save(state, **write))
        except BaseException:
            with contextlib.suppress(OSError):  # the rest only takes space
                if processes.is_first:
                    self._folders.discard(step, writer.save_id)
            raise
        processes.do_first(what, lambda: self._folders.finish(step, writer.save_id))
        processes.do_first(f"step {step} is saved, but deleting older ones", lambda: self._delete_old(step))

    def _delete_old(self, finished: int) -> None:
        """Keeps the step that was just finished, at any place."""
        steps = [step for step in self._folders.steps() if step != finished]
        count = len(steps) + 1 - self._max_to_keep if self._max_to_keep > 0 else 0
        for step in steps[: max(count, 0)]:
            self._folders.delete(step)

    def restore(self, step: int, state_dict: dict) -> None:
        """Loads the checkpoint of a step into the tensors of the nest, in place, and into its other values.

        Raises ValueError if there is none, and errors of torch.distributed.checkpoint.load(); after these the state may
        hold a part of the checkpoint.
        """
        step = _number_of(step)
        self.join()
        what = f"restoring step {step}"
        steps = self._processes.do_first(what, self._folders.steps)
        if step not in steps:
            raise ValueError(f"there is no checkpoint of step {step}, but of {sorted(steps)}")
        state = self._processes.do(what, lambda: _plain(state_dict))
        self._processes.do(what, lambda: self._load(step, state))
        self._processes.do(what, lambda: self._put_back(state_dict, state))
        _api.sync()

    def _load(self, step: int, state: dict) -> None:
        number = self._folders.find_number(step)
        path = self._folders.path_of(step)
        try:
            dcp.load(state, checkpoint_id=path, planner=SPMDLoadPlanner(), **self._processes.options())
        except (Exception, CheckpointException) as error:
            if number is not None and self._folders.find_number(step) == number:
                raise
            raise RuntimeError(
                f"the checkpoint of step {step} was deleted or replaced while it was read: restore another one"
            ) from error

    def _put_back(self, state_dict: dict, loaded: dict) -> None:
        for name, value in loaded.items():
            if isinstance(state_dict[name], Stateful):
                state_dict[name].load_state_dict(value)
            else:
                state_dict[name] = value

    def all_steps(self) -> list[int]:
        """The steps with complete checkpoints, in ascending order.

        Raises an error of writing a checkpoint; join() raises it again.
        """
        self._pending.check()
        return sorted(self._folders.steps())

    def join(self) -> None:
        """Waits until all checkpoints of save_async() are written. Raises their errors."""
        self._pending.wait()
