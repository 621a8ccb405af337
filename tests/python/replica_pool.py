"""Replicas in processes that start fast, and a pool of such processes that stays from test to test."""

import multiprocessing
import os
import queue

import torch_xla.debug.metrics as met
import torch_xla.distributed.xla_multiprocessing as xmp

# A server of Python's multiprocessing imports these once and forks itself for each process.
START = multiprocessing.get_context("forkserver")
START.set_forkserver_preload(
    """
    pytest torch_xla.distributed.xla_multiprocessing torch_xla.experimental.distributed_checkpoint
    torch.distributed.fsdp torch.distributed.tensor.parallel
    """.split()
)


def spawn(function, args: tuple = (), nprocs: int = 2, join: bool = True):
    """xmp.spawn() in processes that need not import torch_xla: they start in milliseconds."""
    return xmp.spawn(with_environment, (dict(os.environ), function, args), nprocs, join, start_method="forkserver")


def with_environment(index: int, environment: dict, function, args: tuple) -> None:
    """Calls the function in the environment of the process that asked for it: the server's may be older."""
    os.environ.update(environment)
    function(index, *args)


def serve(index: int, calls: list, answers) -> None:
    """What a replica does: the calls that come, each with the replica's number before its arguments."""
    while (call := calls[index].get()) is not None:
        function, args = call
        met.clear_all()
        function(index, *args)
        answers.put(index)


class Pool:
    """Runs of a few processes by their number, made when they are first wanted; a call that fails ends its run."""

    def __init__(self):
        self._runs = {}

    def __call__(self, function, *args, size: int = 2) -> None:
        """Calls the function in each replica of a run of `size`, as xmp.spawn() does."""
        if size not in self._runs:
            queues = [START.SimpleQueue() for _ in range(size)], START.Queue()
            self._runs[size] = *queues, spawn(serve, queues, size, join=False)
        calls, answers, run = self._runs[size]
        for each in calls:
            each.put((function, args))
        missing = size
        try:
            while missing:
                try:
                    answers.get(timeout=0.1)
                    missing -= 1
                except queue.Empty:
                    assert not run.join(0), "the replicas have ended"
        except BaseException:
            del self._runs[size]
            for process in run.processes:
                process.kill()
            raise

    def close(self) -> None:
        """Ends the processes and waits for them."""
        for calls, _, run in self._runs.values():
            for each in calls:
                each.put(None)
            while not run.join():
                pass
