"""Replicas that call one function of a test after the other, in processes that stay: to start them takes seconds."""

import queue

import torch

import torch_xla.debug.metrics as met
import torch_xla.distributed.xla_multiprocessing as xmp


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
            context = torch.multiprocessing.get_context("spawn")
            queues = [context.SimpleQueue() for _ in range(size)], context.Queue()
            self._runs[size] = *queues, xmp.spawn(serve, queues, size, join=False)
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
