"""How the time of a step grows with batch, length, layers and parameters, beside the peers: compare.py over many sizes.

    python bench/growth.py --impls xla,eager,inductor --page docs/growth.md

Two parts. Series: one size of a program grows, all else stays. Combinations: each kind of program at batch 1, 4 and 64,
depth 2 and 24, in inference and training, in float32 and under bfloat16 autocast. --only takes one of the parts.
"""

import itertools
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import compare
from compare_page import RATIO, ratio, split, table, TOLERANCE
from pages import load, load_line, machine, make_parser, show


@dataclass(frozen=True)
class Series:
    """A program whose one size grows."""

    title: str
    program: str
    size: str
    values: tuple[int, ...]

    def text(self, value: int) -> str:
        """The program of one value; see workloads.find."""
        return f"{self.program} {self.size}={value}"


SERIES = (
    Series("MLP 784-512-512-10, training", "mlp", "batch", (1, 4, 16, 64, 256, 1024)),
    Series("GPT of 6 layers of 128, 64 tokens, training", "gpt layers=6 width=128 length=64", "batch", (1, 4, 16, 64)),
    Series(
        "GPT of 2 layers of 128, training, batch 2", "gpt layers=2 width=128 batch=2", "length", (16, 64, 256, 1024)
    ),
    Series("GPT of 128, 64 tokens, training, batch 1", "gpt width=128 length=64 batch=1", "layers", (1, 4, 16, 48)),
    Series(
        "GPT of 128, 64 tokens, inference, batch 1", "gpt width=128 length=64 batch=1 train=0", "layers", (1, 4, 16, 48)
    ),
    Series("Adam, tensors of 64 x 64", "adam", "tensors", (10, 50, 200, 1000)),
)
KINDS = {"MLP of 512": "mlp", "residual blocks of 32": "residual", "GPT of 128, 64 tokens": "gpt width=128 length=64"}
MODES = {"inference": "train=0", "training": "train=1"}
DTYPES = {"float32": "bf16=0", "bfloat16": "bf16=1"}
BATCHES, DEPTHS = (1, 4, 64), (2, 24)


def combination(kind: str, mode: str, dtype: str, batch: int, layers: int) -> str:
    """The program of a cell; see workloads.find."""
    return f"{KINDS[kind]} {MODES[mode]} {DTYPES[dtype]} batch={batch} layers={layers}"


def list_combinations() -> list[tuple[tuple[str, str, str], list[str]]]:
    """Rows of the table of combinations: kind, mode and dtype, and the programs of its cells."""
    cells = list(itertools.product(DEPTHS, BATCHES))
    rows = itertools.product(KINDS, MODES, DTYPES)
    return [(row, [combination(*row, batch, layers) for layers, batch in cells]) for row in rows]


def combination_text(results: dict[str, dict]) -> str:
    """A cell: this device's time as a part of the fastest peer's, and in ms."""
    found, _ = split(results)
    if "xla" not in found:
        return "**gave up**"
    best = max((ratio(found, peer, 0) for peer in found if peer != "xla"), default=None)
    mark = "**differs** " if is_apart(found) else ""
    return f"{mark}{'no peer' if best is None else f'{best:.2f}'} ({found['xla']['ms']['0']:.3g})"


def is_apart(results: dict[str, dict]) -> bool:
    """Whether a peer's result after three steps differs from this device's."""
    found, _ = split(results)
    checks = [result["check"] for result in found.values()]
    return max(checks) - min(checks) > TOLERANCE * max(1e-2, *map(abs, checks))


def series_lines(series: Series, measured: dict[str, dict]) -> list[str]:
    """The table of a series."""
    lines, notes = [], []
    for value in series.values:
        found, remarks = split(measured[series.text(value)])
        notes += [f"- {series.size} {value}: {remark}" for remark in remarks]
        if "xla" not in found:
            lines.append([f"{value}", *[""] * 6])
            continue
        ours = found["xla"]
        peers = [impl for impl in found if impl != "xla"]
        notes += [f"- {series.size} {value}: **differs**"] if is_apart(found) else []
        times = ", ".join(f"{impl} {found[impl]['ms']['0']:.3g}" for impl in peers)
        ratios = ", ".join(f"{ratio(found, impl, 0):.2f}" for impl in peers)
        cells = [f"{value}", f"{ours['ms']['0']:.3g}", times, ratios, f"{ours['host_ms']:.2g}"]
        memory = " / ".join(f"{found[impl]['peak_mb']:.0f}" for impl in ("xla", *peers))
        lines.append([*cells, f"{ours['first_s']:.2g}", memory])
    headings = [series.size, "xla ms", "peers' ms", "xla / each peer", "recording ms", "first step s", "peak MB"]
    return [f"### {series.title}", "", *table(headings, lines), "", *notes, *[""] * bool(notes)]


def combination_lines(measured: dict[str, dict]) -> list[str]:
    """The table of combinations: the time as a part of the fastest peer's, and the time."""
    lines = [
        [", ".join(row), *(combination_text(measured[program]) for program in programs)]
        for row, programs in list_combinations()
    ]
    headings = [f"{layers} layers, batch {batch}" for layers, batch in itertools.product(DEPTHS, BATCHES)]
    return [
        "## Combinations",
        "",
        f"{RATIO}, here the fastest one's, and in brackets the time of a step in ms.",
        "No peer: each of them made no first step in time.",
        "",
        *table(["program", *headings], lines),
        "",
    ]


def page(measured: dict[str, dict], options, before: float) -> list[str]:
    """The lines of the page."""
    lines = [
        "# How steps grow",
        "",
        "For readers who want to know where this device gains or loses as a program grows.",
        "",
        f"{machine()}. {load_line(before, load())}",
        f"Warm processes in turns, {options.rounds} rounds of {options.seconds:g} s, medians of one step; all with",
        f"settings of malloc that keep memory. Peers: {', '.join(options.impls[1:])}. Recording: until the caller",
        "of a step goes on. The programs are those of `bench/workloads.py`; written by `bench/growth.py`.",
        "",
    ]
    if "combinations" in options.only:
        lines += combination_lines(measured)
    if "series" in options.only:
        plotted = [f"![Times of a step]({options.page.with_suffix('.svg').name})", ""] if options.page else []
        lines += [
            "## Series",
            "",
            f"{RATIO}.",
            "",
            *plotted,
            *(line for series in SERIES for line in series_lines(series, measured)),
        ]
    return lines[:-1]


def plot(measured: dict[str, dict], options) -> None:
    """The series, beside the page: time over size, both axes logarithmic."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "torch_xla"  # the same file for the same numbers
    height = -(-len(SERIES) // 3)
    figure, axes = pyplot.subplots(height, 3, figsize=(11, 3 * height), layout="constrained", squeeze=False)
    for series, axis in zip(SERIES, axes.flat):
        for impl in options.impls:
            found = [(value, split(measured[series.text(value)])[0].get(impl)) for value in series.values]
            points = [(value, result["ms"]["0"]) for value, result in found if result]
            axis.loglog(*zip(*points), marker="o", markersize=3, label=impl)
        axis.set_title(series.title, fontsize=8)
        axis.set_xlabel(series.size, fontsize=8)
        axis.set_ylabel("ms", fontsize=8)
    axes.flat[0].legend(fontsize=8)
    figure.savefig(options.page.with_suffix(".svg"), metadata={"Date": None})


def read_options():
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--impls", default="xla,eager", help="xla first, then of eager, inductor; default: %(default)s")
    parser.add_argument("--only", default="series,combinations", help="parts; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn")
    parser.add_argument("--patience", type=float, default=120, help="seconds for the first steps; default: %(default)s")
    parser.add_argument(
        "--values", type=Path, help="JSON of what was measured, from which a run goes on that was stopped"
    )
    options = parser.parse_args()
    options.impls, options.only, options.busy = options.impls.split(","), options.only.split(","), [0]
    options.threads = len(os.sched_getaffinity(0))
    if options.impls[0] != "xla" or set(options.impls) - {"xla", "eager", "inductor"}:
        parser.error(f"--impls {','.join(options.impls)}: wanted is xla first, then of eager, inductor")
    if set(options.only) - {"series", "combinations"}:
        parser.error(f"--only {','.join(options.only)}: there are series, combinations")
    return options


def measure(programs: list[str], options) -> dict[str, dict]:
    """What was measured, by program."""
    known = options.values and options.values.exists()
    measured = json.loads(options.values.read_text(encoding="utf-8")) if known else {}
    for i, program in enumerate(programs):
        if program not in measured:
            print(f"{i + 1} of {len(programs)}: {program}", file=sys.stderr, flush=True)
            measured[program] = compare.measure(program, options)
            if options.values:
                options.values.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    return measured


def is_fault(results: dict[str, dict]) -> bool:
    """Whether this device gave up or differs."""
    return "gave_up" in results["xla"] or is_apart(results)


def main() -> int:
    """Measures and prints the page; returns the exit status."""
    options = read_options()
    before = load()
    programs = [series.text(value) for series in SERIES for value in series.values] * ("series" in options.only)
    if "combinations" in options.only:
        programs += [program for _, row in list_combinations() for program in row]
    measured = measure(programs, options)
    show(page(measured, options, before), options.page)
    if options.page and "series" in options.only:
        plot(measured, options)
    return 1 if any(is_fault(measured[program]) for program in programs) else 0


if __name__ == "__main__":
    sys.exit(main())
