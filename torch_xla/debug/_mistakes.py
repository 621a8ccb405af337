"""The mistakes of explain(), each with its advice."""

from dataclasses import dataclass, field

# An event must happen this often in the loop to be a mistake.
OFTEN = 3


@dataclass
class Finding:
    """One mistake and its place.

    Attributes:
        cause: its short name, one of the keys of `ADVICE`.
        what: the finding, a sentence.
        line: the user's line, as "train.py:12 in step"; empty if unknown.
        other_line: a second related line: of the earlier compile, or of the value's move back.
        count: how often it happened.
        seconds: the user's thread's time that it took, if measured.
        steps: numbers of the steps that have it.
        devices: numbers of the devices.
    """

    cause: str
    what: str
    line: str
    other_line: str = ""
    count: int = 1
    seconds: float = 0.0
    steps: list[int] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)

    @property
    def advice(self) -> str:
        """What to change in the program."""
        return ADVICE[self.cause]


ADVICE = {
    "forgotten sync": "call torch_xla.sync() at the end of each turn of the loop (optimizer.step() does it by itself "
    "unless XLA_AUTO_SYNC=0 or set_auto_sync(False)): then one turn is one program, compiled once",
    "growing list": "keep what a step works on of one size: read the values (.item(), .tolist()) or add them up in "
    "one tensor (total += loss.detach()) instead of in a Python list that each step goes through again",
    "changing batch": "make all batches equal: drop_last=True in the DataLoader, or pad the last batch; other sizes "
    "are compiled once each",
    "changing shape": "pad to one size, or to a few sizes: torch_xla.experimental.bucketing.bucketed() does it for a "
    "function; a program is compiled for each shape",
    "shape from data": "keep the shape: torch.where, a product with the mask, or a sum over it instead of an index by "
    "a mask, nonzero, masked_select or unique, whose result is as long as the values say",
    "changing dropout": "keep p fixed, or change it rarely: it is part of the program. To change it in each step, "
    "draw the mask yourself: x * (torch.rand_like(x) >= p) / (1 - p) takes p as a number of each run",
    "changing constant": "keep the argument fixed, or give it as a tensor (index_select by a tensor instead of a "
    "slice from another place): Python numbers that are dims, slices or flags are part of the program",
    "branch on a tensor": "let the device choose: torch.where(condition, a, b), or clamp; or decide on a value that "
    "Python already has",
    "item in the loop": "keep the value on the device (total += loss.detach()) and read it once after the loop, or "
    "only every some steps",
    "print in the loop": "print every some steps, or let it happen when the step has run: "
    "xm.add_step_closure(print, args=(loss,))",
    "copy in the loop": "keep the tensor on the device, and copy once after the loop",
    "read in the loop": "keep the value on the device, and read it once after the loop",
    "mixed devices": "keep all parts of the model and all tensors of the step on one device: a value that leaves the "
    "device cuts the step in two, and the device waits for the CPU",
    "same values moved": "move it to the device once, before the loop",
    "new optimizer": "make the optimizer once, before the loop: a new one has lost its state (momentum, averages) and "
    "makes it again in each step",
    "fallback": "use an operation that the device has (docs/operators.md), or move the call out of the loop: on the "
    "CPU it cuts the step in two",
    "replicated": "use an operation that torch.distributed.tensor can spread, or mark its operands so that no process "
    "needs another one's part",
    "changing operations": "let each step record the same operations: choose by torch.where instead of Python's if, "
    "run loops a fixed number of turns",
    "other values kept": "keep the same tensors from step to step: each set of tensors that live at a sync is one "
    "program more",
    "changing inputs": "give each step inputs of the same kind: dtype, memory order, and which of them are the same "
    "tensor are part of the program",
}
