"""Saves a run's state every so many steps, at once or beside the steps that follow, and brings it back."""

import collections
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter
from torch.utils import _pytree as pytree

from ... import _api
from . import _preemption
from ._step_folders import StepFolders
from .planners import SPMDLoadPlanner, SPMDSavePlanner


def _on_cpu(state_dict: dict) -> dict:
    """A copy of the nest, with copies of its tensors on the CPU."""
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().to("cpu", copy=True), state_dict)


class CheckpointManager:
    """Checkpoints of the run in one place, by the numbers of their steps.

    A run of several processes calls each method in all of them, after torch.distributed.init_process_group().

    Args:
        path: a directory, or a URL that fsspec knows, which all processes share.
        save_interval: save() and save_async() save the steps that are a multiple of it.
        max_to_keep: once there are more, those that were finished first are deleted; 0 or less keeps all.
        max_pending_async: save_async() waits while as many checkpoints are being written.
        num_of_threads: how many threads of each process write a checkpoint, a file each.
        process_group: for meetings of the processes, with a backend for the CPU; by default a new one of gloo.
        chkpt_on_preemption: SIGTERM does not end the process, but the next step is saved whatever its number, and
            reached_preemption() says so.

    Raises ValueError for an interval, a max_pending_async or a num_of_threads under 1, RuntimeError on another thread
    than the main one, unless chkpt_on_preemption is off.
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
        self._group = process_group
        if process_group is None and dist.is_available() and dist.is_initialized():
            self._group = dist.new_group(backend="gloo")
        self._writer = ThreadPoolExecutor(1, "xla-checkpoint")
        self._pending: collections.deque[Future] = collections.deque()
        self._watches = chkpt_on_preemption
        if chkpt_on_preemption:
            _preemption.watch()

    def _is_first(self) -> bool:
        return self._group is None or dist.get_rank(self._group) == 0

    def _meet(self) -> None:
        if self._group is not None:
            dist.barrier(self._group)

    def _processes(self) -> dict:
        """Who writes and reads a checkpoint, for torch.distributed.checkpoint."""
        return {"process_group": self._group, "no_dist": self._group is None}

    def should_save(self, step: int) -> bool:
        """Whether save(step) saves: a multiple of the interval, or SIGTERM has come."""
        return step % self._save_interval == 0 or self.reached_preemption(step)

    def reached_preemption(self, step: int) -> bool:
        """Whether SIGTERM has come, to any of the processes. The processes ask together, once a step."""
        del step
        if not self._watches:
            return False
        asked = torch.tensor(int(_preemption.was_asked()))
        if self._group is not None:
            dist.all_reduce(asked, dist.ReduceOp.MAX, self._group)
        return bool(asked)

    def save(self, step: int, state_dict: dict, force: bool = False) -> bool:
        """Saves the state if it is time to, or force is set. Returns whether it did."""
        if not force and not self.should_save(step):
            return False
        self.join()
        self._save(step, state_dict)
        return True

    def save_async(self, step: int, state_dict: dict, force: bool = False) -> bool:
        """As save(), but it comes back once the state is copied to the CPU's memory, and a thread writes it.

        Raises what writing an earlier checkpoint has raised.
        """
        if not force and not self.should_save(step):
            return False
        while len(self._pending) >= self._max_pending:
            self._pending.popleft().result()
        self._pending.append(self._writer.submit(self._save, step, _on_cpu(state_dict)))
        return True

    def _save(self, step: int, state_dict: dict) -> None:
        if self._is_first():
            self._folders.begin(step)
        self._meet()
        writer = FsspecWriter(self._folders.path_of(step), thread_count=self._num_of_threads)
        dcp.save(state_dict, storage_writer=writer, planner=SPMDSavePlanner(), **self._processes())
        if self._is_first():
            self._folders.finish(step)
            self._delete_old()
        self._meet()

    def _delete_old(self) -> None:
        steps = self._folders.steps()
        for step in steps[: -self._max_to_keep] if self._max_to_keep > 0 else ():
            self._folders.delete(step)

    def restore(self, step: int, state_dict: dict) -> None:
        """Loads the checkpoint of a step into the tensors of the nest, in place, and into its other values.

        Raises ValueError if there is none, and what torch.distributed.checkpoint.load() raises.
        """
        self.join()
        if step not in self._folders.steps():
            raise ValueError(f"there is no checkpoint of step {step}, but of {self.all_steps()}")
        dcp.load(state_dict, checkpoint_id=self._folders.path_of(step), planner=SPMDLoadPlanner(), **self._processes())
        _api.sync()

    def all_steps(self) -> list[int]:
        """The steps of the checkpoints that are whole, from the smallest one."""
        return sorted(self._folders.steps())

    def join(self) -> None:
        """Waits until what save_async() has begun is written. Raises what that has raised."""
        while self._pending:
            self._pending.popleft().result()
