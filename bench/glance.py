"""Writes docs/performance_at_a_glance.md and its pictures from the tables of the measured pages. It measures nothing.

    python bench/glance.py

The other benchmarks write those pages; a test compares this one with them.
"""

import re
import sys
from pathlib import Path

from compare_page import draw_bars, table

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "performance_at_a_glance.md"
BAD = 1.05  # a ratio above it is listed
PEERS = ("eager", "inductor", "jax")
HEAD = """
# Performance at a glance

For readers who ask how fast the device is, and where it is not. Written by `bench/glance.py` from the measured pages,
which have the machines, the dates and the absolute times.

A ratio is this device's time divided by the peer's: below 1 this device is faster. eager is PyTorch's on the CPU,
inductor `torch.compile`, jax one `jax.jit` of the whole step. Names of programs are those of `bench/workloads.py` and
`bench/dynamic_cases.py`.
""".strip().splitlines()

Rows = dict[str, dict[str, str]]  # by the first cell, by the heading


def cells_of(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read_table(text: str, heading: str) -> Rows:
    """The first table below a heading."""
    part = text.split(f"\n{heading}\n", 1)[1]
    lines = re.search(r"(?:^\|.*\n?)+", part, re.MULTILINE)[0].strip().splitlines()
    names = cells_of(lines[0])
    return {cells[0]: dict(zip(names, cells)) for cells in map(cells_of, lines[2:])}


def read(name: str) -> str:
    """The text of a measured page."""
    return (DOCS / name).read_text(encoding="utf-8")


def machines() -> dict[str, str]:
    """The parts of performance.md by the processor's name."""
    parts = re.split(r"^## (?=.* processors, torch)", read("performance.md"), flags=re.MULTILINE)[1:]
    return {part.split(",")[0]: part for part in parts}


def picture(machine: str) -> str:
    """The file of a machine's picture."""
    return f"performance_{machine.lower().replace(' ', '_')}.svg"


def is_bad(cell: str) -> bool:
    """Whether a cell is a ratio that this device loses."""
    return bool(re.fullmatch(r"\d+\.\d+", cell)) and float(cell) > BAD


def beside_peers(heading: str, impl: str) -> list[str]:
    """The ratios on all machines, a row for each program."""
    found = {machine: read_table(part, heading) for machine, part in machines().items()}
    headings = [f"{machine.split()[0]}: / {peer}" for machine in found for peer in PEERS]
    programs = next(iter(found.values()))
    rows = [[name, *(rows[name][f"{impl} / {peer}"] for rows in found.values() for peer in PEERS)] for name in programs]
    return table(["program", *headings], rows)


def first_steps() -> list[str]:
    """The seconds of the first step on the first machine."""
    rows = read_table(next(iter(machines().values())), "### The first step")
    impls = ("xla", *PEERS)
    return table(["program", *impls], [[name, *(row[impl] for impl in impls)] for name, row in rows.items()])


def changing_shapes() -> dict[str, list[str]]:
    """The cold and the warm ratio of each program whose shapes change."""
    text = read("changing_shapes_cost.md")
    warm = read_table(text, "## Warm starts")
    cold = read_table(text, "## Cold starts")
    return {name: [row["cold / eager"], warm[name]["warm / eager"]] for name, row in cold.items()}


def growth_sentence() -> str:
    """How many of the combinations are ahead of the fastest peer, and the worst of the others."""
    rows = read_table(read("growth.md"), "## Combinations")
    ratios = {
        f"{name}, {heading}": float(cell.split()[0])
        for name, row in rows.items()
        for heading, cell in row.items()
        if re.match(r"\d+\.\d+ \(", cell)
    }
    ahead = sum(ratio <= 1 for ratio in ratios.values())
    worst = max(ratios, key=ratios.get)
    text = f"Of {len(ratios)} programs {ahead} take no longer than the fastest peer."
    return f"{text} The worst takes {ratios[worst]:.2f}: {worst}."


def bad_cases() -> list[list[str]]:
    """All ratios that this device loses, the worst first."""
    found = []
    for machine, part in machines().items():
        for heading, impl in (("### A step", "xla"), ("### A step, recorded once", "replay")):
            for name, row in read_table(part, heading).items():
                found += [
                    [name, f"{'recorded once, ' * (impl == 'replay')}{machine}, beside {peer}", row[f"{impl} / {peer}"]]
                    for peer in PEERS
                ]
    for name, (cold, warm) in changing_shapes().items():
        found += [[name, "changing shapes, cold, beside eager", cold], [name, "the same, warm", warm]]
    return sorted((row for row in found if is_bad(row[2])), key=lambda row: -float(row[2]))


def page() -> str:
    """The text of the page."""
    shapes = [[name, *ratios] for name, ratios in changing_shapes().items()]
    pictures = [f"![A step on {machine}]({picture(machine)})" for machine in machines()]
    single = re.search(r"^\d+ operators;.*$", read("operator_costs.md"), re.MULTILINE)[0]
    replicas = read_table(read("replicas_cost.md").replace("\n| training", "\n\n### T\n| training", 1), "### T")
    lines = [
        *HEAD,
        *("", "## A step beside the peers", "", *pictures, "", *beside_peers("### A step", "xla")),
        *("", "[All figures](performance.md).", "", "## A step that is recorded once", ""),
        "`torch_xla.compile(replay=True)` runs such a step without its Python ([replay.md](replay.md)).",
        *("", *beside_peers("### A step, recorded once", "replay")),
        *("", "## The first step, in seconds", "", *first_steps()),
        *("", "## Sizes", "", "![Times of a step](growth.svg)", "", growth_sentence(), "[All sizes](growth.md)."),
        *("", "## Programs whose shapes change", "", "![Programs whose shapes change](changing_shapes_cost.svg)", ""),
        *table(["program", "cold / eager", "warm / eager"], shapes),
        *("", "[What the programs do, and more figures](changing_shapes_cost.md).", "", "## Two processes", ""),
        "A training step of two processes of one thread each, beside PyTorch's `DistributedDataParallel`:",
        *("", *table(["model", "xla / DDP"], [[name, row["xla / DDP"]] for name, row in replicas.items()])),
        *(
            "",
            "[All figures](replicas_cost.md).",
            "",
            "## Single operations",
            "",
            f"{single} Ratios are of eager's time.",
        ),
        "[Those above 1.1, and their memory](operator_costs.md).",
        *("", "## Accelerators", ""),
        "Steps on an NVIDIA H200 are beside PyTorch's and JAX's in [PJRT](decisions/pjrt.md#on-an-nvidia-gpu).",
        *("", "## The bad cases", "", f"All ratios above {BAD} in the tables of this page, the worst first.", ""),
        *table(["program", "where", "ratio"], bad_cases()),
    ]
    return "\n".join(lines) + "\n"


def draw() -> None:
    """The pictures: a step beside each peer, programs whose shapes change."""
    for machine, part in machines().items():
        rows = read_table(part, "### A step")
        ratios = {peer: [float(row[f"xla / {peer}"] or 0) or None for row in rows.values()] for peer in PEERS}
        draw_bars(DOCS / picture(machine), [name.split(", ")[0] for name in rows], ratios)
    shapes = changing_shapes()
    cold, warm = ([float(ratios[i]) for ratios in shapes.values()] for i in (0, 1))
    draw_bars(DOCS / "changing_shapes_cost.svg", list(shapes), {"eager, cold": cold, "eager, warm": warm})


def main() -> int:
    """Writes the page and the pictures."""
    PAGE.write_text(page(), encoding="utf-8")
    draw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
