"""The page of compare.py: what was measured as tables and a plot, and what became slower.

What was measured is, by program and by implementation: `ms`, the median of a step by the number of busy processes;
`first_s`, the first step; `peak_mb`, the most resident memory; `host_ms`, a step until the caller goes on (this
device's); `flops` and `bytes` of a step (eager's); `check`, a weighted sum of the result after three steps. Of one that
made no first step in time there is `gave_up` alone, a text.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from pages import load, load_line, machine, processor
from workloads import WORKLOADS

HEAD = """
# Performance beside the peers

For readers who want the figures behind [the overview](performance_at_a_glance.md). A part for each kind of processor,
written by `bench/compare.py`; what grows with sizes is in [growth.md](growth.md).

Warm processes take turns; the figures are medians of one step. All run with settings of malloc that keep memory.

- xla: this device, recorded in each step. replay: this device's whole step, recorded once ([how](replay.md)).
- eager: PyTorch's on the CPU, ResNet-18's in channels-last order. inductor: `torch.compile(model)` on the CPU.
- jax: the whole step under one `jax.jit`.
- The limit: what products and convolutions of a step would take at the speed of one large product, and parameters,
  states, inputs and result at the speed of memory. Caches are faster.
- Recording: until the caller of a step goes on.
""".strip().splitlines()

# Of the weighted sum of the result after three steps, relative to eager's; bfloat16 and deep networks that train drift.
TOLERANCE = 2e-2

LONG_NAMES = {"inductor": "torch.compile", "jax": "JAX"}  # of peers, in pictures

OWN = ("xla", "replay")  # implementations that are this device's

# What the numbers of a column "xla / eager" are.
RATIO = "This device's time divided by the peer's: below 1 this device is faster"


def ratio(found: dict[str, dict], peer: str, busy: int, impl: str = "xla") -> float | None:
    """An implementation's time as a part of a peer's, or None if one of them was not measured."""
    both = "ms" in found.get(impl, {}) and "ms" in found.get(peer, {})
    return found[impl]["ms"][str(busy)] / found[peer]["ms"][str(busy)] if both else None


def _cell(value: float | None, form: str = ".2f") -> str:
    return "" if value is None else format(value, form)


def split(results: dict[str, dict]) -> tuple[dict[str, dict], list[str]]:
    """The measurements, and the texts of implementations that gave up."""
    found = {impl: result for impl, result in results.items() if "ms" in result}
    return found, [result["gave_up"] for result in results.values() if "gave_up" in result]


def own(options: argparse.Namespace) -> list[str]:
    """The implementations that are this device's."""
    return [impl for impl in options.impls if impl in OWN]


def peers(options: argparse.Namespace) -> list[str]:
    """The implementations that are others'."""
    return [impl for impl in options.impls if impl not in OWN]


def limit_ms(eager: dict, options: argparse.Namespace) -> float | None:
    """What the products and convolutions of a step and the memory that it reads and writes would take alone."""
    if "flops" not in eager:
        return None
    return (eager["flops"] / options.peak_flops + eager["bytes"] / options.peak_bytes) * 1e3


def title_of(workload: str) -> str:
    """The first line of the program's docstring."""
    return WORKLOADS[workload].__doc__.split("\n")[0].rstrip(".") if workload in WORKLOADS else workload


def step_cells(results: dict[str, dict], options: argparse.Namespace) -> list[str]:
    """The quiet time of a step, its ratio to each peer's, remarks."""
    found, remarks = split(results)
    ours = found["xla"]
    apart = {
        impl: abs(result["check"] - ours["check"]) / max(abs(ours["check"]), 1e-6) for impl, result in found.items()
    }
    remarks += [f"**{impl} differs: {value:.1e}**" for impl, value in apart.items() if value > TOLERANCE]
    ratios = [_cell(ratio(found, peer, options.busy[0])) for peer in peers(options)]
    return [_cell(ours["ms"][str(options.busy[0])], ".3g"), *ratios, ", ".join(remarks)]


def replay_cells(results: dict[str, dict], options: argparse.Namespace) -> list[str]:
    """The ratios of the replayed step."""
    return [_cell(ratio(split(results)[0], peer, options.busy[0], "replay")) for peer in peers(options)]


def limit_cells(results: dict[str, dict], options: argparse.Namespace) -> list[str]:
    """The limit, the step's time as its multiple, the time of recording."""
    found, _ = split(results)
    quiet, limit = found["xla"]["ms"][str(options.busy[0])], limit_ms(found.get("eager", {}), options)
    shown = limit if limit and limit > 0.01 * quiet else None  # else the step is bounded by its calls
    recording = [f"{found[impl]['host_ms']:.2g}" if impl in found else "" for impl in own(options)]
    return [_cell(shown, ".2g"), _cell(shown and quiet / shown, ".1f"), *recording]


def first_cells(results: dict[str, dict], options: argparse.Namespace) -> list[str]:
    """The first step of each implementation."""
    found, _ = split(results)
    return [f"{found[impl]['first_s']:.2g}" if impl in found else "" for impl in options.impls]


def memory_cells(results: dict[str, dict], options: argparse.Namespace) -> list[str]:
    """The most resident memory of each implementation."""
    found, _ = split(results)
    return [f"{found[impl]['peak_mb']:.0f}" if impl in found else "" for impl in options.impls]


def topics(options: argparse.Namespace) -> list[tuple[str, str, list[str], Callable]]:
    """The tables: a title, a sentence, the headings after the program's, and the function that gives the cells."""
    tables = [
        ("A step", f"{RATIO}.", ["xla ms", *(f"xla / {peer}" for peer in peers(options)), "remarks"], step_cells),
        (
            "The limit and recording",
            "In ms; the second column is the step's time as a multiple of the limit.",
            ["limit", "x limit", *(f"recording, {impl}" for impl in own(options))],
            limit_cells,
        ),
        ("The first step", "In seconds, compiling included.", list(options.impls), first_cells),
        ("Memory", "The most resident memory of the process, in MB.", list(options.impls), memory_cells),
    ]
    if "replay" in options.impls:
        headings = [f"replay / {peer}" for peer in peers(options)]
        tables.insert(1, ("A step, recorded once", f"{RATIO}.", headings, replay_cells))
    return tables


def busy_rows(workload: str, results: dict[str, dict], options: argparse.Namespace) -> list[str]:
    """The cells of one program beside busy processes: how many times each implementation's quiet time it takes."""
    found, _ = split(results)
    cells = [workload]
    for busy in options.busy[1:]:
        for impl in options.impls:
            times = found[impl]["ms"] if impl in found else None
            cells.append(_cell(times and times[str(busy)] / times[str(options.busy[0])], ".1f"))
        cells.append(_cell(ratio(found, "eager", busy) if "eager" in found else None))
    return cells


def table(headings: list[str], lines: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    return ["| " + " | ".join(cells) + " |" for cells in (headings, ["---"] * len(headings), *lines)]


def page(measured: dict[str, dict], options: argparse.Namespace, before: float) -> list[str]:
    """The lines of this machine's part of the page."""
    lines = [
        f"## {machine()}",
        "",
        f"{load_line(before, load())} {options.rounds} rounds of {options.seconds:g} s.",
        f"One large product: {options.peak_flops / 1e9:.0f} GFLOP/s. Memory: {options.peak_bytes / 1e9:.1f} GB/s.",
    ]
    if options.page:
        lines += ["", f"![Time divided by each peer's]({plot_path(options.page).name})"]
    for title, sentence, headings, cells_of in topics(options):
        body = [[title_of(name), *cells_of(found, options)] for name, found in measured.items()]
        lines += ["", f"### {title}", "", sentence, "", *table(["program", *headings], body)]
    if options.busy[1:]:
        counts = [f"{impl}, {busy} busy" for busy in options.busy[1:] for impl in [*options.impls, "xla / eager"]]
        lines += [
            "",
            "### Beside busy processes",
            "",
            "How many times its own quiet time a step takes beside processes that compute without end. `xla / eager`",
            "is this device's time divided by eager's in the same load; below 1 this device is faster",
            "([why](decisions/threads.md#teams-sleep-on-a-busy-machine)).",
            "",
            *table(["program", *counts], [busy_rows(name, found, options) for name, found in measured.items()]),
        ]
    return lines


def plot_path(page: Path) -> Path:
    """Where the plot of this machine's part lies, beside the page."""
    return page.with_name(f"{page.stem}_{processor().lower().replace(' ', '_')}.svg")


def plot(measured: dict[str, dict], options: argparse.Namespace) -> None:
    """Bars of this device's time divided by each peer's, quiet."""
    ratios = {
        peer: [ratio(split(found)[0], peer, options.busy[0]) for found in measured.values()] for peer in peers(options)
    }
    draw_bars(plot_path(options.page), list(measured), ratios)


def draw_bars(path: Path, names: list[str], ratios: dict[str, list[float | None]]) -> None:
    """Bars from 1 to each peer's ratio, on a logarithmic axis; the number stands beside its bar."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "torch_xla"  # the same file for the same numbers
    figure, axes = pyplot.subplots(figsize=(7, 0.5 * len(names) + 1.2))
    axes.set_xscale("log", base=2)
    height = 0.8 / max(1, len(ratios))
    for i, (peer, values) in enumerate(ratios.items()):
        places = [(y + i * height, value) for y, value in enumerate(values) if value]
        widths = [value - 1 for _, value in places]
        bars = axes.barh([y for y, _ in places], widths, height, left=1, label=f"beside {LONG_NAMES.get(peer, peer)}")
        axes.bar_label(bars, [f"{value:.2f}" for _, value in places], fontsize=7, padding=2)
    axes.axvline(1, color="black", linewidth=1)
    axes.margins(x=0.12)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks([y + 0.4 - height / 2 for y in range(len(names))], names)
    axes.invert_yaxis()
    axes.set_xlabel("time of a step divided by the peer's: left of 1 this device is faster")
    axes.legend(loc="lower right")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)


def slower(measured: dict[str, dict], baseline: dict[str, dict]) -> list[str]:
    """What takes longer, beside eager in the same run, than in the run of the baseline."""
    lines = []
    for name, found in measured.items():
        if "eager" in found and "eager" in baseline.get(name, {}):
            for busy in set(found["xla"]["ms"]) & set(baseline[name]["xla"]["ms"]):
                now, before = ratio(found, "eager", int(busy)), ratio(baseline[name], "eager", int(busy))
                if now > 1.1 * before:
                    lines.append(f"{name}, {busy} busy processes: {now:.2f} x eager, in the baseline {before:.2f}")
    return lines
