"""The backend `xla` of torch.distributed, for a group of one process.

Importing this module registers it. Each collective gives what the only member gets.
"""

import torch
import torch.distributed as dist


class _Done(dist.Work):
    """Work that has ended."""

    def __init__(self, tensors):
        super().__init__()
        self._future: torch.futures.Future = torch.futures.Future()
        self._future.set_result(tensors)

    def wait(self, timeout=None) -> bool:
        """True."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True

    def get_future(self):
        """A future that holds the result."""
        return self._future


def _copy(outputs, inputs) -> _Done:
    for output, input in zip(outputs, inputs):
        output.copy_(input.view_as(output))
    return _Done(outputs)


class ProcessGroupXla(dist.ProcessGroup):
    """A group of one process. Raises ValueError for more."""

    def __init__(self, prefix_store, rank: int, size: int, timeout):
        if size != 1:
            raise ValueError(f"the backend xla was asked for {size} processes, and a run has 1")
        super().__init__(rank, size)

    def getBackendName(self) -> str:
        """The name."""
        return "xla"

    def allreduce(self, tensors, opts=None):
        """The tensors as they are."""
        return _Done(tensors)

    broadcast = reduce = allreduce_coalesced = allreduce

    def allgather(self, output_tensors, input_tensors, opts=None):
        """Each list of outputs gets its input."""
        return _copy([outputs[0] for outputs in output_tensors], input_tensors)

    gather = allgather

    def scatter(self, output_tensors, input_tensors, opts=None):
        """Each output gets the only part of its input."""
        return _copy(output_tensors, [inputs[0] for inputs in input_tensors])

    reduce_scatter = scatter

    def _allgather_base(self, output, input, opts=None):
        return _copy([output], [input])

    _reduce_scatter_base = _allgather_base

    def alltoall_base(self, output, input, output_split_sizes=None, input_split_sizes=None, opts=None):
        """The output gets the input."""
        return _copy([output], [input])

    def alltoall(self, output_tensors, input_tensors, opts=None):
        """Each output gets its input."""
        return _copy(output_tensors, input_tensors)

    def barrier(self, opts=None):
        """Nobody to wait for."""
        return _Done([])


def _create(prefix_store, rank: int, size: int, timeout) -> ProcessGroupXla:
    return ProcessGroupXla(prefix_store, rank, size, timeout)


if "xla" not in dist.Backend.backend_list:
    dist.Backend.register_backend("xla", _create, devices=["xla"])
