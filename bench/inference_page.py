"""The page of inference.py: tables and a picture of what was measured.

What was measured is, by program, by setting and by implementation: milliseconds of a step, or a text that says why
there are none.
"""

import argparse
from pathlib import Path

from compare_page import draw_bars, OWN, table
from pages import load, load_line, machine

HEAD = """
# Inference beside the programs for it

For readers who choose a program for inference on a CPU. Written by `bench/inference.py`, which tells how to repeat it.

Warm processes take turns. xla is this device, recorded in each step, and replay a step that is recorded once
([how](replay.md)). eager and inductor are PyTorch's, inductor by `torch.compile` with frozen weights.

- decode: a token of a Llama-like model of 168 million weights, batch 1, the 129th to the 144th of a cache for 512.
  prefill: its prompt of 256 tokens.
- int8 has a scale for each output, int4 for each group of 32 inputs. Formats of llama.cpp and OpenVINO differ a little,
  and llama.cpp rounds activations to 8 bits there.
- Images: one of 224 x 224, or 16 (x16); the U-Net: latents of 32 x 32 and a text. bfloat16 is autocast's, or the
  runtime's own.
""".strip().splitlines()

TITLES = {
    "one core": ("## One core", "Milliseconds of processor time, the least of all turns."),
    "two threads": ("## Two threads", "Milliseconds by the clock, medians."),
    "busy": ("## Two threads beside two busy processes", "Milliseconds by the clock, medians, on the same processors."),
}
PEERS = ("llama.cpp", "OpenVINO", "ONNX Runtime", "JAX", "inductor", "eager")

Found = dict[str, float | str]  # by implementation


def times(found: Found, impls: tuple[str, ...]) -> dict[str, float]:
    """What was measured of these implementations."""
    return {impl: found[impl] for impl in impls if isinstance(found.get(impl), float)}


def show_time(found: Found, impl: str) -> str:
    """The milliseconds, or a dash."""
    time = found.get(impl)
    return f"{time:.3g}" if isinstance(time, float) else "-"


def best(found: Found, impls: tuple[str, ...]) -> tuple[str, float] | None:
    """The fastest of the implementations and its time."""
    measured = times(found, impls)
    return min(measured.items(), key=lambda item: item[1]) if measured else None


def rows_of(programs: dict[str, dict[str, Found]], setting: str) -> dict[str, Found]:
    """What was measured in a setting, by program."""
    return {name: settings[setting] for name, settings in programs.items() if setting in settings}


def own_cells(found: Found, read: int | None, speed: float) -> list[str]:
    """This device's times, the best peer, the ratio to it, and the share of the memory's speed."""
    ours, peer = best(found, OWN), best(found, PEERS)
    ratio = f"{ours[1] / peer[1]:.2f}" if ours and peer else "-"
    share = f"{read / (ours[1] * 1e-3) / speed:.0%}" if read and ours else ""
    peer_cells = [peer[0], f"{peer[1]:.3g}"] if peer else ["-", "-"]
    return [*(show_time(found, impl) for impl in OWN), *peer_cells, ratio, share]


def reasons(rows: dict[str, Found]) -> list[str]:
    """Why cells are dashes: each reason with its programs."""
    told: dict[tuple[str, str], list[str]] = {}
    for name, found in rows.items():
        for impl, text in found.items():
            if isinstance(text, str):
                told.setdefault((impl, text), []).append(name)
    everywhere = len(rows)
    measured = {impl for found in rows.values() for impl in found}
    return [f"- {peer}: not measured." for peer in PEERS if peer not in measured] + [
        f"- {impl}: {text} ({'all programs' if len(names) == everywhere else f'{len(names)} programs'})."
        for (impl, text), names in told.items()
    ]


def setting_part(setting: str, rows: dict[str, Found], read: dict[str, int | None], speed: float) -> list[str]:
    """The part of a setting: this device beside the best peer, then all peers."""
    title, sentence = TITLES[setting]
    own = [[name, *own_cells(found, read[name], speed)] for name, found in rows.items()]
    peers = [[name, *(show_time(found, peer) for peer in PEERS)] for name, found in rows.items()]
    return [
        *("", title, "", sentence, ""),
        *table(["program", *OWN, "best peer", "its time", "ours / its", "of memory's speed"], own),
        *("", "The peers:", "", *table(["program", *PEERS], peers)),
    ]


def load_part(quiet: dict[str, Found], busy: dict[str, Found]) -> list[str]:
    """How many times its own quiet time each implementation takes beside busy processes."""
    impls = ("replay", *(peer for peer in PEERS if peer != "JAX"))
    rows = []
    for name, found in busy.items():
        before, after = times(quiet.get(name, {}), impls), times(found, impls)
        both = before.keys() & after.keys()
        rows.append([name, *(f"{after[impl] / before[impl]:.1f}" if impl in both else "-" for impl in impls)])
    reason = "decisions/threads.md#teams-sleep-on-a-busy-machine"
    sentence = f"How many times its own quiet time each takes ([why]({reason})):"
    return ["", sentence, "", *table(["program", *impls], rows)]


def page(kept: dict, read: dict[str, int | None], options: argparse.Namespace, before: float) -> list[str]:
    """The lines of the page."""
    programs, speed = kept["programs"], kept["speed"]
    lines = [
        *HEAD,
        "",
        f"{machine()}. {load_line(before, load())} {options.rounds} rounds of {options.seconds:g} s.",
        f"A loop reads memory at {speed['1'] / 1e9:.1f} GB/s on one core, {speed['2'] / 1e9:.1f} on two threads.",
    ]
    if options.page:
        lines += ["", f"![This device's time divided by each peer's, one core]({plot_path(options.page).name})"]
    for setting, threads in (("one core", "1"), ("two threads", "2"), ("busy", "2")):
        if rows := rows_of(programs, setting):
            lines += setting_part(setting, rows, read, speed[threads])
    if busy := rows_of(programs, "busy"):
        lines += load_part(rows_of(programs, "two threads"), busy)
    rows = {f"{name}, {setting}": found for name, of in programs.items() for setting, found in of.items()}
    told = reasons(rows)
    return [*lines, *(["", "## What the dashes mean", "", *told] if told else [])]


def plot_path(path: Path) -> Path:
    """Where the picture lies, beside the page."""
    return path.with_suffix(".svg")


def plot(programs: dict[str, dict[str, Found]], path: Path) -> None:
    """Bars of this device's time divided by each peer's, on one core."""
    rows = rows_of(programs, "one core")
    ratios: dict[str, list[float | None]] = {}
    for peer in PEERS:
        for found in rows.values():
            ours, theirs = best(found, OWN), times(found, (peer,))
            ratios.setdefault(peer, []).append(ours[1] / theirs[peer] if ours and theirs else None)
    draw_bars(plot_path(path), list(rows), {peer: values for peer, values in ratios.items() if any(values)})
