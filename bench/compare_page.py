"""The page of compare.py: what was measured as tables and a plot, and what became slower.

What was measured is, by program and by implementation: `ms`, the median of a step by the number of busy processes;
`first_s`, the first step; `peak_mb`, the most resident memory; `host_ms`, a step until the caller goes on (this
device's); `flops` and `bytes` of a step (eager's); `check`, a weighted sum of the result after three steps. Of one that
made no first step in time there is `gave_up` alone, a text.
"""

import argparse
from pathlib import Path

from pages import load, load_line, machine, processor
from workloads import WORKLOADS

HEAD = """
# Performance beside the peers

Warm processes in turns, medians of one step; all with settings of malloc that keep memory. eager: PyTorch's on the CPU
(ResNet-18's in channels-last order); inductor: `torch.compile(model)` on the CPU; jax: the whole step under one
`jax.jit`. `replay`: this device's whole step, recorded once ([how](replay.md)). The limit: what products and
convolutions of a step would take at the speed of one large product, and parameters, states, inputs and result at the
speed of memory (caches are faster). Recording: until the caller of a step goes on. Written by `bench/compare.py`, a
part for each kind of processor; what grows with sizes is in [growth.md](growth.md).
""".strip().splitlines()

# Of the weighted sum of the result after three steps, relative to eager's; bfloat16 and deep networks that train drift.
TOLERANCE = 2e-2

OWN = ("xla", "replay")  # implementations that are this device's

# What the numbers of a column "xla / eager" are.
RATIO = "This device's time / the peer's: below 1 this device is faster"


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


def rows(workload: str, results: dict[str, dict], options: argparse.Namespace) -> list[str]:
    """The cells of one program: quiet time, ratios, the limit, first step, memory, remarks."""
    found, remarks = split(results)
    ours, eager = found["xla"], found.get("eager", {})
    limit = limit_ms(eager, options)
    quiet = ours["ms"][str(options.busy[0])]
    title = WORKLOADS[workload].__doc__.split("\n")[0].rstrip(".") if workload in WORKLOADS else workload
    cells = [title, _cell(quiet, ".3g")]
    for impl in own(options):
        cells += [_cell(ratio(found, peer, options.busy[0], impl)) for peer in peers(options)]
    told = limit if limit and limit > 0.01 * quiet else None  # else the step is bounded by its calls
    cells += [_cell(told, ".2g"), _cell(told and quiet / told, ".1f")]
    cells += [" / ".join(f"{found[impl]['host_ms']:.2g}" for impl in own(options) if impl in found)]
    cells += [" / ".join(f"{found[impl]['first_s']:.2g}" for impl in options.impls if impl in found)]
    cells += [" / ".join(f"{found[impl]['peak_mb']:.0f}" for impl in options.impls if impl in found)]
    apart = {
        impl: abs(result["check"] - ours["check"]) / max(abs(ours["check"]), 1e-6) for impl, result in found.items()
    }
    remarks += [f"**{impl} differs: {value:.1e}**" for impl, value in apart.items() if value > TOLERANCE]
    return [*cells, ", ".join(remarks)]


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
    headings = ["program", "xla ms"]
    headings += [f"{impl} / {peer}" for impl in own(options) for peer in peers(options)]
    headings += ["limit ms", "x limit", f"recording ms ({' / '.join(own(options))})"]
    headings += [f"first step s ({' / '.join(options.impls)})", f"peak MB ({' / '.join(options.impls)})", ""]
    lines = [
        f"## {machine()}",
        "",
        f"{load_line(before, load())} {options.rounds} rounds of {options.seconds:g} s.",
        f"One large product: {options.peak_flops / 1e9:.0f} GFLOP/s. Memory: {options.peak_bytes / 1e9:.1f} GB/s.",
        "",
        f"### {RATIO}",
        "",
        *table(headings, [rows(name, found, options) for name, found in measured.items()]),
    ]
    if options.page:
        lines += ["", f"![Time divided by each peer's]({plot_path(options.page).name})"]
    if options.busy[1:]:
        counts = [f"{impl}, {busy} busy" for busy in options.busy[1:] for impl in [*options.impls, "xla / eager"]]
        lines += [
            "",
            "### Beside busy processes",
            "",
            "How many times its own quiet time a step takes beside processes that compute without end; `xla / eager`:",
            "this device's time divided by eager's in the same load, below 1 this device is faster",
            "([why](decisions/0016-teams-sleep-on-a-busy-machine.md)).",
            "",
            *table(["program", *counts], [busy_rows(name, found, options) for name, found in measured.items()]),
        ]
    return lines


def plot_path(page: Path) -> Path:
    """Where the plot of this machine's part lies, beside the page."""
    return page.with_name(f"{page.stem}_{processor().lower().replace(' ', '_')}.svg")


def plot(measured: dict[str, dict], options: argparse.Namespace) -> None:
    """Bars of this device's time divided by each peer's, quiet."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "torch_xla"  # the same file for the same numbers
    figure, axes = pyplot.subplots(figsize=(8, 0.45 * len(measured) + 1.2))
    height = 0.8 / max(1, len(peers(options)))
    for i, peer in enumerate(peers(options)):
        values = [ratio(found, peer, options.busy[0]) or float("nan") for found in measured.values()]
        axes.barh([y + i * height for y in range(len(measured))], values, height, label=f"x {peer}")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks([y + 0.4 - height / 2 for y in range(len(measured))], list(measured))
    axes.invert_yaxis()
    axes.set_xlabel("time of a step divided by the peer's: left of 1 this device is faster")
    axes.legend()
    figure.savefig(plot_path(options.page), bbox_inches="tight", metadata={"Date": None})


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
