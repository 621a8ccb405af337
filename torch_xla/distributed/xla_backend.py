"""The backend `xla` of torch.distributed: collectives of `xla` tensors, recorded as operations of the graph.

Importing this module registers it, and `init_method="xla://"`, which finds the other processes of this run.
"""

import contextlib
import contextvars
import functools
import itertools
import types
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist

from .. import _auto_sync, _device_module, _world
from ._works import Receiving, Recorded

_numbers = itertools.count()  # numbers of groups, in the order of their making in all processes
_rendezvous = itertools.count()  # numbers of default groups, made by all processes
_REDUCTIONS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "sum",
    dist.ReduceOp.PRODUCT: "mul",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.BAND: "and",
    dist.ReduceOp.BOR: "or",
    dist.ReduceOp.BXOR: "xor",
    dist.ReduceOp.PREMUL_SUM: "sum",
}


# Whether this thread's caller reads results of collectives at once, and passes no pending operands to them.
_reads_at_once: contextvars.ContextVar[bool] = contextvars.ContextVar("reads_at_once", default=False)


@contextlib.contextmanager
def _reading_at_once() -> Iterator[None]:
    token = _reads_at_once.set(True)
    try:
        yield
    finally:
        _reads_at_once.reset(token)


def _write(outputs, results) -> Recorded:
    outputs = list(outputs)
    with torch.no_grad():
        for output, result in zip(outputs, results):
            output.copy_(result.view_as(output))
    return Recorded(outputs)


class ProcessGroupXla(dist.ProcessGroup):
    """A group of processes. All must record the same collectives in the same order.

    Collectives of CPU tensors run at once, over gloo.

    Args:
        timeout: not used: XLA_COLLECTIVE_TIMEOUT says how long a replica waits.
        ranks: the members' numbers in the default group.

    Raises ValueError for unknown reductions.
    """

    def __init__(self, prefix_store, rank: int, size: int, timeout=None, ranks: Sequence[int] | None = None):
        super().__init__(rank, size)
        self._public_name = self._description = ""
        # Names for torch.ops.xla, by type of device: calls that run at once must not meet queued ones.
        self._groups: dict[str, str] = {}
        # By process and tag: receives that are not recorded yet.
        self._receiving: dict[tuple[int, int], list[tuple[Receiving, list[torch.Tensor]]]] = {}
        if size > 1:
            process, number = _world.process(), next(_numbers)
            run = (process, ranks or range(size)) if process.size > 1 else None
            for device in ("cpu", "xla"):
                name = f"group {number} of {device}"
                self._groups[device] = _world.make_group(name, dist.PrefixStore(device, prefix_store), rank, size, run)

    @property
    def _device_types(self) -> list[torch.device]:
        """The device types of its tensors."""
        return [torch.device("cpu"), torch.device("xla")]

    def _get_backend(self, device) -> "ProcessGroupXla":
        """The backend of a device's collectives: this object. (The base class knows only C++ backends.)"""
        return self

    def getBackendName(self) -> str:
        """The name."""
        return "xla"

    def setGroupName(self, name: str) -> None:
        """Sets the name by which functional collectives find the group."""
        self._public_name = name

    def getGroupName(self) -> str:
        """That name."""
        return self._public_name

    def setGroupDesc(self, description: str) -> None:
        """Sets the description of the group."""
        self._description = description

    def getGroupDesc(self) -> str:
        """The description of the group."""
        return self._description

    # ---- Each takes a tensor and returns this process's result ----
    def _record(self, operation: Callable, tensor: torch.Tensor, *arguments) -> torch.Tensor:
        """Records the operation. Those of CPU tensors, and of tensors that are read at once, run at once."""
        if self.size() == 1:
            return tensor
        device, at_once = tensor.device, _reads_at_once.get()
        tensor = tensor.cpu() if at_once else tensor
        # In a region that syncs at its end no other replica reads earlier.
        if tensor.device.type == "cpu" and not (at_once and _auto_sync.is_held(device.index)):
            _world.run_collectives()
        return operation(tensor, *arguments, self._groups[tensor.device.type]).to(device)

    def _reduce(self, operation: Callable, tensor: torch.Tensor, op, *arguments) -> torch.Tensor:
        if op == dist.ReduceOp.PREMUL_SUM:
            tensor = tensor * op.__getstate__()[1]
        result = self._record(operation, tensor, self._reduction(op), *arguments)
        return result / self.size() if op == dist.ReduceOp.AVG else result

    def _all_reduce(self, tensor: torch.Tensor, op) -> torch.Tensor:
        return self._reduce(torch.ops.xla.all_reduce, tensor, op)

    @staticmethod
    def _reduction(op) -> str:
        reduction = next((name for known, name in _REDUCTIONS.items() if op == known), None)
        if reduction is None:
            raise ValueError(f"the backend xla has no reduction {op}")
        return reduction

    def _gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """The gathered tensor, of shape [processes, ...]."""
        return self._record(torch.ops.xla.all_gather, tensor.unsqueeze(0), self.size())

    def _exchange(self, rows: torch.Tensor, received: list[int], sent: list[int]) -> torch.Tensor:
        return self._record(torch.ops.xla.all_to_all, rows, received, sent)

    def _reduce_scatter(self, rows: torch.Tensor, op) -> torch.Tensor:
        """This process's n rows of [processes * n, ...], reduced over all processes."""
        return self._reduce(torch.ops.xla.reduce_scatter, rows, op, self.size())

    # ---- Methods for torch.distributed ----
    def allreduce(self, tensors, all_reduce_options=None):
        """Overwrites the tensors by their reductions."""
        op = dist.ReduceOp.SUM if all_reduce_options is None else all_reduce_options.reduceOp
        return _write(tensors, [self._all_reduce(t, op) for t in tensors])

    allreduce_coalesced = allreduce

    def reduce(self, tensors, opts):
        """Overwrites the tensors of the root by their reductions."""
        results = [self._all_reduce(t, opts.reduceOp) for t in tensors]
        return _write(tensors, results) if self.rank() == opts.rootRank else Recorded(tensors)

    def broadcast(self, tensors, opts):
        """Overwrites the tensors by those of the root."""
        return _write(tensors, [self._record(torch.ops.xla.broadcast, t, opts.rootRank) for t in tensors])

    def allgather(self, output_tensors_list, input_tensors, opts=None):
        """Each list of outputs gets the processes' inputs."""
        for outputs, tensor in zip(output_tensors_list, input_tensors):
            _write(outputs, self._gather(tensor))
        return Recorded(output_tensors_list)

    def gather(self, output_tensors_list, input_tensor_list, opts):
        """As allgather(), of the root only."""
        for i, tensor in enumerate(input_tensor_list):
            gathered = self._gather(tensor)
            if self.rank() == opts.rootRank:
                _write(output_tensors_list[i], gathered)
        return Recorded(output_tensors_list)

    def scatter(self, output_tensor_list, input_tensors_list, opts):
        """Each output gets this process's part of the root's input."""
        for i, output in enumerate(output_tensor_list):
            is_root = self.rank() == opts.rootRank
            parts = torch.stack(list(input_tensors_list[i])) if is_root else output.new_zeros([0, *output.shape])
            received = [int(rank == opts.rootRank) for rank in range(self.size())]
            _write([output], [self._exchange(parts, received, [int(is_root)] * self.size())])
        return Recorded(output_tensor_list)

    def reduce_scatter(self, output_tensors, input_tensors_list, opts):
        """Each output gets this process's part of the reduced inputs: the parts or, as in the original, one tensor of
        all of them."""
        for output, inputs in zip(output_tensors, input_tensors_list):
            rows = inputs[0] if len(inputs) == 1 else torch.stack(list(inputs))
            if rows.dim() == 0 or rows.shape[0] % self.size() or rows.numel() != output.numel() * self.size():
                wanted = f"{self.size()} tensors of shape {list(output.shape)}, or one of all of them"
                got = ", ".join(str(list(tensor.shape)) for tensor in inputs)
                raise ValueError(f"reduce_scatter got tensors of shapes {got} when it should get {wanted}")
            _write([output], [self._reduce_scatter(rows, opts.reduceOp).view(output.shape)])
        return Recorded(output_tensors)

    def _allgather_base(self, output, input, opts=None):
        return _write([output], [self._gather(input)])

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        """Each output gets the processes' inputs, one after the other."""
        return _write(outputs, [self._gather(t) for t in inputs])

    def _reduce_scatter_base(self, output, input, opts):
        return _write([output], [self._reduce_scatter(input.view(self.size(), -1), opts.reduceOp)])

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts):
        """Each output gets this process's part of the reduced input."""
        return _write(outputs, [self._reduce_scatter(t.view(self.size(), -1), opts.reduceOp) for t in inputs])

    def alltoall_base(self, output, input, output_split_sizes, input_split_sizes, opts=None):
        """Exchanges rows by the counts in the lists; empty lists stand for equal parts."""
        received = list(output_split_sizes) or [output.size(0) // self.size()] * self.size()
        sent = list(input_split_sizes) or [input.size(0) // self.size()] * self.size()
        return _write([output], [self._exchange(input, received, sent)])

    def alltoall(self, output_tensor_list, input_tensor_list, opts=None):
        """Exchanges tensors, one with each process."""
        flat = torch.cat([t.reshape(-1) for t in input_tensor_list])
        received, sent = [t.numel() for t in output_tensor_list], [t.numel() for t in input_tensor_list]
        return _write(output_tensor_list, self._exchange(flat, received, sent).split(received))

    def send(self, tensors, dst_rank: int, tag: int = 0):
        """Sends to a process. It runs at its place in the program, which does not wait for the receipt."""
        for tensor in tensors:
            self._record(torch.ops.xla.send, tensor, dst_rank, tag)
        return Recorded(tensors)

    def recv(self, out_tensors, src_rank: int, tag: int = 0):
        """Overwrites the tensors by the ones that a process sends; recorded when the program waits for the result."""
        work = Receiving(out_tensors, functools.partial(self._receive, (src_rank, tag)))
        self._receiving.setdefault((src_rank, tag), []).append((work, out_tensors))
        return work

    def _receive(self, source: tuple[int, int], until: Receiving | None = None) -> None:
        """Records the receives of one process and tag up to this one, by default all, in the order of their calls."""
        waiting = self._receiving[source]
        last = next((i for i, (work, _) in enumerate(waiting) if work is until), -1 if until else len(waiting) - 1)
        for _, tensors in waiting[: last + 1]:
            _write(tensors, [self._record(torch.ops.xla.recv, t, *source) for t in tensors])
        del waiting[: last + 1]

    def barrier(self, opts=None):
        """Waits until all processes have come here and their recorded operations have run."""
        self._all_reduce(torch.zeros(1, device="xla"), dist.ReduceOp.SUM).cpu()
        return Recorded([])

    def shutdown(self) -> None:
        """Waits until recorded operations have run and sends are received, and leaves the group."""
        if self.size() > 1:
            for source in list(self._receiving):
                self._receive(source)
            _device_module.synchronize()
            for name in self._groups.values():
                _world.finish_sends(name)
                _world.remove_group(name)

    def _start_coalescing(self, device) -> None:
        """Calls up to _end_coalescing() may become one transfer; they are one program anyway."""

    def _end_coalescing(self, device) -> Recorded:
        return Recorded([])

    # C++ calls the names above, Python these.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    all_to_all_single = alltoall_base
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced


def _keep_from_dynamo() -> None:
    """Keeps torch.compile from tracing the group's methods and their callees: C++ calls them while it traces (DDP)."""
    skip = torch._C._dynamo.eval_frame._FrameAction.SKIP
    strategy = torch._C._dynamo.eval_frame._FrameExecStrategy(skip, skip)
    for method in vars(ProcessGroupXla).values():
        if isinstance(method, types.FunctionType):
            torch._C._dynamo.eval_frame.set_code_exec_strategy(method.__code__, strategy)


_keep_from_dynamo()
# DistributedDataParallel's second step sends the order of its buckets, outside of the trace.
dist.Reducer._rebuild_buckets = _reading_at_once()(dist.Reducer._rebuild_buckets)


def _create(options, _) -> ProcessGroupXla:
    return ProcessGroupXla(options.store, options.group_rank, options.group_size, ranks=options.global_ranks_in_group)


def _meet(url: str, timeout=None, **kwargs):
    """The rendezvous `xla://`."""
    process = _world.process()
    if process.size > 1:  # a destroyed group has left its keys in the store
        store = dist.PrefixStore(f"rendezvous/{next(_rendezvous)}", process.store)
    else:
        store = dist.HashStore()
    yield store, process.rank, process.size


if "xla" not in dist.Backend.backend_list:
    dist.Backend.register_backend("xla", _create, extended_api=True, devices=["xla"])
    dist.register_rendezvous_handler("xla", _meet)
    # From 2.15 on PyTorch attaches a flight recorder to groups, which needs a C++ backend.
    getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set()).add("xla")


def join() -> None:
    """Makes the process group of all replicas of the run, unless there is one."""
    if not dist.is_initialized():
        dist.init_process_group("xla", init_method="xla://")
