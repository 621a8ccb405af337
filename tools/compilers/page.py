"""Writes docs/accelerators.md: what each target compiles, refusals with reasons, cycles beside JAX."""

import statistics
from collections.abc import Iterator

from . import expected, wheels
from .pool import Outcome
from .programs import FUNCTIONS, MODEL_NAMES, STEPS, TYPES
from .targets import TARGETS

Outcomes = dict[str, Outcome]

_HEAD = """# Accelerators and their compilers

For readers who ask what the compilers of accelerators take of this device's programs, and at what cost.

`make test-compilers` asks the compilers, without the accelerators. It gets them from wheels, pinned by their hashes,
and compiles the StableHLO text of each case in `tests/rows` and of small models. Nothing is run. A model
(`tools/compilers/models.py`) is compiled in float32 and under bfloat16 autocast. Its forward is in evaluation mode; its
training step has dropout, clipped gradients and the model's optimizer. `make test-compilers PAGE=1` writes this page.
"""


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _count(outcomes: Outcomes, are_models: bool) -> str:
    chosen = [outcome for name, outcome in outcomes.items() if (name in MODEL_NAMES) == are_models]
    return f"{sum(not outcome.refusal for outcome in chosen)} of {len(MODEL_NAMES) if are_models else len(chosen)}"


def _targets(results: dict[str, Outcomes]) -> str:
    rows = []
    for target, outcomes in results.items():
        wheel = wheels.WHEELS[TARGETS[target].wheel]
        slowest = max(outcomes, key=lambda name: outcomes[name].seconds)
        rows.append(
            [
                TARGETS[target].title,
                f"{wheel.package} {wheel.release}",
                _count(outcomes, False),
                _count(outcomes, True),
                f"{sum(outcome.seconds for outcome in outcomes.values()):.0f}",
                f"{outcomes[slowest].seconds:.1f}, `{slowest}`",
            ]
        )
    head = ["target", "wheel", "rows", "models", "processor seconds", "the slowest text, processor seconds"]
    return _table(head, rows)


def _models(results: dict[str, Outcomes]) -> str:
    """A line for each model, kind and type: the seconds that its compile took."""
    rows = []
    for name in MODEL_NAMES:
        tried = [outcomes.get(name) for outcomes in results.values()]
        cells = ["" if one is None else "refused" if one.refusal else f"{one.seconds:.1f}" for one in tried]
        rows.append([" ".join(name.split(".")), *cells])
    return _table(["seconds", *(TARGETS[target].title for target in results)], rows)


def _refusals(results: dict[str, Outcomes], table: list[expected.Refusal]) -> Iterator[str]:
    for target, outcomes in results.items():
        by_reason: dict[tuple[str, str], list[str]] = {}
        for name, outcome in outcomes.items():
            if outcome.refusal:
                entry = expected.find(table, target, name)
                words = entry.error if entry else expected.one_line(outcome.refusal, 120)
                by_reason.setdefault((entry.reason if entry else "not known yet", words), []).append(name)
        if by_reason:
            yield f"\n### {TARGETS[target].title}\n\n"
            rows = [
                [reason, f"`{error}`" if error else "", f"{len(names)}", ", ".join(f"`{name}`" for name in names)]
                for (reason, error), names in by_reason.items()
            ]
            yield _table(["reason", "the compiler's words", "count", "programs"], rows)


def _cycles(measured: dict[str, Outcomes]) -> str:
    ours, jax = measured["torch_xla"], measured["jax"]
    rows, ratios = [], []
    for name in [name for name in [*FUNCTIONS, *STEPS] if all(f"{name}.{title}" in ours for title in TYPES)]:
        row = [name.replace("_", " ")]
        for title in TYPES:
            pair = [outcomes[f"{name}.{title}"] for outcomes in (ours, jax)]
            row += ["refused" if one.refusal else f"{one.cycles:,}" if one.cycles else "none" for one in pair]
            ratio = pair[0].cycles / pair[1].cycles if pair[0].cycles and pair[1].cycles else None
            row.append(f"{ratio:.2f}" if ratio else "")
            ratios += [ratio] if ratio else []
        rows.append(row)
    head = ["computation", *(f"{title}{part}" for title in TYPES for part in ("", ", JAX", ", ratio"))]
    median = f"The median of the ratios is {statistics.median(ratios):.2f}, the largest {max(ratios):.2f}.\n"
    return f"{_table(head, rows)}\n{median}" if ratios else _table(head, rows)


def write(results: dict[str, Outcomes], table: list[expected.Refusal], measured: dict[str, Outcomes]) -> str:
    """The page."""
    text = f"{_HEAD}\n{_targets(results)}"
    text += f"\n## Models\n\nProcessor seconds of each compile; an empty cell was not tried.\n\n{_models(results)}"
    refusals = "".join(_refusals(results, table))
    text += "\n## Refusals\n" + (refusals or "\nThere are none.\n")
    if measured.get("jax"):
        text += (
            "\n## Cycles on TPU v5e\n\n"
            "The sum of `estimated_cycles` in libtpu's optimized program, for this device's text and for JAX's text\n"
            "of the same computation (`tools/compilers/jax_programs.py`), at the precision of products of float32\n"
            "that this device's text asks for. These are estimates, no measurements. Instructions without an\n"
            "estimate count nothing, so a small sum beside large data tells little; a program with a sort, which\n"
            "has none, has no figure here.\n\n" + _cycles(measured)
        )
    return text
