"""Compares the memory that single operations take at their peak with eager's.

    python bench/memory.py --page docs/operator_costs.md
    python bench/memory.py --only sort,argmax --sizes 24,27

Each operation runs in a process of its own, on small operands first and then on one of 2^SIZE numbers. What counts is
the most memory that is resident during the last call, above what was before its operand was made: operand, temporaries
and results.
"""

import gc
import multiprocessing
import sys

import torch
from pages import machine, make_parser, OPERATIONS, show_part
from rich.progress import track

import torch_xla

LIMIT = 1.2
SIZES = (27,)
SLACK = 8 << 20  # bytes that the code of a few kernels may take
MB = 1 << 20

F32, I8 = torch.float32, torch.int8
_FLOATS = (F32,)
_BOTH = (F32, I8)


def _rows(x):
    return x.view(64, -1)


# By name: what is computed, and of which types. Results are kept until the peak is read.
CASES = {
    "sum": (lambda x: x.sum(), _BOTH),
    "prod": (lambda x: x.prod(), _FLOATS),
    "mean of rows": (lambda x: _rows(x).mean(-1), _FLOATS),
    "max": (lambda x: x.max(), _BOTH),
    "aminmax": (lambda x: torch.aminmax(x), _BOTH),
    "argmax": (lambda x: x.argmax(), _BOTH),
    "argmin of two rows": (lambda x: x.view(2, -1).argmin(), _BOTH),
    "argmax, dim 0": (lambda x: x.view(-1, 4).argmax(0), _BOTH),
    "argmax, last dim": (lambda x: _rows(x).argmax(-1), _BOTH),
    "max with positions": (lambda x: x.max(0), _BOTH),
    "min with positions, dim 0": (lambda x: x.view(-1, 2).min(0), _BOTH),
    "any": (lambda x: (x > 3).any(), _BOTH),
    "all": (lambda x: x.all(), _BOTH),
    "count_nonzero": (lambda x: x.count_nonzero(), _BOTH),
    "nansum": (lambda x: x.nansum(), _FLOATS),
    "std": (lambda x: x.std(), _FLOATS),
    "var_mean": (lambda x: torch.var_mean(x), _FLOATS),
    "norm": (lambda x: x.norm(), _FLOATS),
    "norm, order 3": (lambda x: torch.linalg.vector_norm(x, 3), _FLOATS),
    "logsumexp": (lambda x: x.logsumexp(0), _FLOATS),
    "softmax": (lambda x: x.softmax(0), _FLOATS),
    "log_softmax of rows": (lambda x: _rows(x).log_softmax(-1), _FLOATS),
    "cumsum": (lambda x: x.cumsum(0), _BOTH),
    "cumprod": (lambda x: x.cumprod(0), _FLOATS),
    "cummax": (lambda x: x.cummax(0), _BOTH),
    "logcumsumexp": (lambda x: x.logcumsumexp(0), _FLOATS),
    "sort": (lambda x: x.sort(), _BOTH),
    "sort, stable": (lambda x: x.sort(stable=True), _BOTH),
    "sort, values": (lambda x: x.sort().values, _BOTH),
    "sort of rows": (lambda x: _rows(x).sort(), _FLOATS),
    "argsort": (lambda x: x.argsort(), _BOTH),
    "msort": (lambda x: x.msort(), _FLOATS),
    "topk": (lambda x: x.topk(10), _BOTH),
    "topk of rows": (lambda x: _rows(x).topk(10), _FLOATS),
    "kthvalue": (lambda x: x.kthvalue(100), _BOTH),
    "median": (lambda x: x.median(), _BOTH),
    "median with positions": (lambda x: x.median(0), _FLOATS),
    "nanmedian": (lambda x: x.nanmedian(), _FLOATS),
    "mode": (lambda x: _rows(x).mode(-1), _BOTH),
    "quantile": (lambda x: x[: 1 << 24].quantile(0.3), _FLOATS),
    "unique": (lambda x: x.unique(), _BOTH),
    "unique with inverse": (lambda x: x.unique(return_inverse=True, return_counts=True), _BOTH),
    "unique_consecutive": (lambda x: x.unique_consecutive(), _BOTH),
    "histc": (lambda x: x.histc(100, -4, 4), _FLOATS),
    "histogram": (lambda x: x.histogram(100), _FLOATS),
    "bincount": (lambda x: x.abs_().bincount(), (I8,)),
    "searchsorted": (lambda x: torch.searchsorted(torch.linspace(-3, 3, 100, device=x.device), x), _FLOATS),
    "bucketize": (lambda x: torch.bucketize(x, torch.linspace(-3, 3, 100, device=x.device)), _FLOATS),
    "isin": (lambda x: torch.isin(x, x[:10]), _BOTH),
    "nonzero": (lambda x: (x > 2).nonzero(), _FLOATS),
    "masked_select": (lambda x: x.masked_select(x > 0), _FLOATS),
    "flip": (lambda x: x.flip(0), _BOTH),
    "roll": (lambda x: x.roll(7), _BOTH),
    "cat": (lambda x: torch.cat([x, x]), _BOTH),
    "diff": (lambda x: x.diff(), _FLOATS),
    "dist": (lambda x: x.dist(x.flip(0)), _FLOATS),
    "cov": (lambda x: x.view(4, -1).cov(), _FLOATS),
    "trapezoid": (lambda x: torch.trapezoid(x), _FLOATS),
}


def _resident(name: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def _operand(size: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        x = torch.empty(size, dtype=dtype).normal_(generator=generator)
    else:
        x = torch.empty(size, dtype=dtype).random_(-100, 100, generator=generator)
    return x.to(device)


def _wait(device: str) -> None:
    if device == "xla":
        torch_xla.sync(wait=True)


def _measure(name: str, size: int, dtype: torch.dtype, device: str, pipe) -> None:
    compute = CASES[name][0]
    (torch.rand(1 << 20, device=device) * 2 + 1).log().sum().item()  # brings the compiler
    small = _operand(1 << 18, dtype, device)
    for _ in range(3):
        compute(small)
        _wait(device)
    del small
    gc.collect()
    before = _resident("VmRSS")
    x = _operand(1 << size, dtype, device)
    _wait(device)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # the peak starts again
    result = compute(x)
    _wait(device)
    pipe.send(_resident("VmHWM") - before)
    del result


def measure(name: str, size: int, dtype: torch.dtype, device: str) -> int | None:
    """Bytes at the peak, in a process of its own; None if that ended without an answer."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measure, args=(name, size, dtype, device, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        return None
    finally:
        process.join()


def page(rows) -> list[str]:
    """The lines of this part of the page."""
    above = sum(xla > LIMIT * cpu + SLACK for *_, cpu, xla in rows)
    lines = [
        f"## Memory, {machine()}",
        "",
        "The most memory that is resident during one operation: its operand, temporaries and results, in a process of",
        "its own (`bench/memory.py`).",
        "",
        f"{len(rows)} cases, {above} of them above {LIMIT} of eager's and {SLACK // MB} MB more. The compiler is warm;",
        "what it takes for the kernels of one program counts.",
        "",
        "| operation | type | numbers | eager, MB | here, MB | here / eager |",
        "|---|---|---|---|---|---|",
    ]
    for name, dtype, size, cpu, xla in sorted(rows, key=lambda row: -row[4] / row[3]):
        kind = str(dtype).removeprefix("torch.")
        lines.append(f"| {name} | {kind} | 2^{size} | {cpu / MB:.0f} | {xla / MB:.0f} | {xla / cpu:.2f} |")
    return lines


def main():
    """Measures and prints the page."""
    parser = make_parser(__doc__)
    parser.add_argument("--only", default="", help="beginnings of operations' names, by commas")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="powers of two, by commas")
    options = parser.parse_args()
    wanted = tuple(options.only.split(","))
    cases = [
        (name, dtype, size)
        for size in map(int, options.sizes.split(","))
        for name, (_, dtypes) in CASES.items()
        for dtype in dtypes
        if name.startswith(wanted)
    ]
    rows = []
    for name, dtype, size in track(cases, disable=not sys.stderr.isatty()):
        cpu, xla = (measure(name, size, dtype, device) for device in ("cpu", "xla"))
        if cpu is None or xla is None:
            print(f"{name} of {dtype}: no answer (eager {cpu}, here {xla})", file=sys.stderr, flush=True)
        else:
            rows.append((name, dtype, size, cpu, xla))
    show_part(OPERATIONS, page(rows), options.page)


if __name__ == "__main__":
    main()
