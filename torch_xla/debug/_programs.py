"""What the compiler of a device that is not there says of programs: memory, cost, the optimized program."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .. import _XLAC
from ..experimental import plugins
from ._collectives import Collective, count_collectives
from ._hlo import Module


def _gigabytes(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**28 else f"{count / 2**20:.2f} MiB"


@dataclass
class ProgramReport:
    """What the compiler says of one program. Sizes are in bytes, on one device; -1: the plugin does not say.

    Attributes:
        target: the hardware that it is compiled for.
        device: the number of the device.
        num_devices: over which it runs, a partition on each: from `device` on.
        line: the user's line of its last operation.
        operations: of the program as the compiler got it.
        seconds: how long the compile took; 0 for a program from the disk.
        error: the plugin's error, with the user's line; empty if it compiled.
        argument_bytes, output_bytes, aliased_bytes, scratch_bytes, code_bytes, peak_bytes: its memory; aliased are
            outputs that take an argument's memory.
        memory_bytes: of the device; 0 if that is not known.
        costs: the plugin's figures by its own names; empty if it has none.
        format: of `optimized`: "hlo", "hlo_with_config" or the plugin's own.
        read_optimized: gives `optimized`.
    """

    target: str
    device: int
    num_devices: int
    line: str
    operations: int
    seconds: float
    error: str
    argument_bytes: int
    output_bytes: int
    aliased_bytes: int
    scratch_bytes: int
    code_bytes: int
    peak_bytes: int
    memory_bytes: int
    clock_hz: float
    format: str
    costs: dict[str, float] = field(repr=False)
    read_optimized: Callable[[], bytes] = field(repr=False)

    @property
    def optimized(self) -> bytes:
        """The bytes of the optimized program; empty if the plugin gives none."""
        return self.read_optimized()

    @property
    def flops(self) -> float | None:
        """Operations of floats, as the plugin counts them. None if it does not."""
        return self.costs.get("flops")

    @property
    def bytes_accessed(self) -> float | None:
        """Bytes that its operations read and write. None if the plugin does not count them."""
        return self.costs.get("bytes accessed")

    @property
    def needed_bytes(self) -> int | None:
        """The device's memory that a run needs. None if the plugin does not say."""
        if self.argument_bytes < 0:
            return None
        return self.argument_bytes + self.output_bytes - self.aliased_bytes + self.scratch_bytes

    @property
    def fits(self) -> bool | None:
        """Whether a run fits into the device's memory. None if that is not known."""
        if self.error:
            return False if "RESOURCE_EXHAUSTED" in self.error else None
        if self.needed_bytes is None or not self.memory_bytes:
            return None
        return self.needed_bytes <= self.memory_bytes

    @functools.cached_property
    def _module(self) -> Module | None:
        optimized = self.optimized if self.format in ("hlo", "hlo_with_config") else b""
        return Module(optimized, self.format == "hlo_with_config") if optimized else None

    @property
    def cycles(self) -> int | None:
        """The compiler's estimate for a run: the sum over its instructions. None if it estimates none."""
        return self._module.cycles() if self._module else None

    @property
    def run_seconds(self) -> float | None:
        """The estimated time of a run: `cycles` at the device's clock. None if one of the two is not known."""
        return self.cycles / self.clock_hz if self.cycles is not None and self.clock_hz else None

    @functools.cached_property
    def collectives(self) -> list[Collective] | None:
        """Operations between devices in a run, by kind. None if the plugin gives no optimized program of XLA's."""
        return count_collectives(self._module) if self._module else None

    def text(self) -> str:
        """The optimized program, an instruction a line, with estimated cycles and the user's lines.

        Raises RuntimeError if the plugin gives none, or in a form that is not XLA's.
        """
        if self._module:
            return self._module.text()
        optimized = self.optimized
        if optimized and b"\0" not in optimized:
            return optimized.decode("utf-8", "replace")
        raise RuntimeError(f"the plugin gave no optimized program that can be shown (format {self.format!r})")

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        place = f", at {self.line}" if self.line else ""
        how = f"compiled in {self.seconds:.1f} s" if self.seconds else "from the disk"
        how = "refused" if self.error else how
        devices = f" on {self.num_devices} devices" if self.num_devices > 1 else ""
        yield f"xla:{self.device} {self.target}: {self.operations} operations{devices}, {how}{place}"
        if self.error:
            yield from (f"  {line}" for line in self.error.splitlines())
            return
        if self.needed_bytes is not None:
            yield f"  memory: {_gigabytes(self.needed_bytes)}{self._of_the_device()}"
            parts = {
                "arguments": self.argument_bytes,
                "outputs": self.output_bytes,
                "of these in arguments' memory": self.aliased_bytes,
                "temporaries": self.scratch_bytes,
            }
            yield f"    {', '.join(f'{name} {_gigabytes(count)}' for name, count in parts.items())}"
        if self.collectives:
            counts = (f"{each.count} {each.kind} of {_gigabytes(each.bytes)}" for each in self.collectives)
            yield f"  between devices: {', '.join(counts)}"
        if self.flops is not None:
            yield f"  work: {self.flops / 1e9:.3g} GFLOP, {_gigabytes(int(self.bytes_accessed or 0))} read and written"
        if self.cycles is not None:
            time = f", {self.run_seconds * 1e3:.3g} ms at {self.clock_hz / 1e9:.3g} GHz" if self.run_seconds else ""
            yield f"  a run: {self.cycles:,} estimated cycles{time}"

    def _of_the_device(self) -> str:
        if not self.memory_bytes:
            return ""
        return f" of {_gigabytes(self.memory_bytes)}: {'fits' if self.fits else 'does not fit'}"


def read_reports() -> list[ProgramReport]:
    """The reports that C++ keeps, in the order of the compiles."""
    reports = _XLAC._program_reports()
    if not reports:
        return []
    target = _XLAC._env_text("XLA_COMPILE_ONLY")
    found = plugins.chosen_compile_target(target)
    clock = found.clock_hz if found else 0.0
    return [ProgramReport(target=target, clock_hz=clock, **report) for report in reports]
