"""Compiles all rows and models for accelerators that are not here: `make test-compilers`.

Exit code 77: no compiler can be had here, for the reasons on stderr. 1: a compiler refuses what refusals.toml does not
list, or compiles what it lists.
"""

import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path

from . import expected, page, texts
from .pool import compile_all, Outcome
from .programs import MEASURED_NAMES, MODEL_NAMES
from .targets import TARGETS
from .wheels import fetch, say, UNAVAILABLE, UnavailableError


def _shard(names: list[str], shard: str | None) -> list[str]:
    part, parts = map(int, shard.split("/")) if shard else (1, 1)
    return names[part - 1 :: parts]


def _chosen(options: argparse.Namespace, target: str) -> dict[str, Path]:
    """The rows and models of this run, in the forms for the target."""
    platform = TARGETS[target].platform
    rows = texts.rows(platform)
    names = _shard([*rows, *MODEL_NAMES], options.shard)
    if options.only:
        names = [name for name in names if options.only in name]
    models = tuple(name for name in names if name not in rows)
    found = texts.programs("models", platform, models) if models else {}
    return {name: rows[name] for name in names if name in rows} | found


def _compile(target: str, plugin: Path, programs: dict[str, Path], jobs: int) -> dict[str, Outcome]:
    start = time.monotonic()

    def tell(name: str, outcome: Outcome) -> None:
        if outcome.refusal:
            say(f"{target}: {outcome.seconds:.1f} s {name}: refused: {expected.one_line(outcome.refusal)}")

    outcomes = compile_all(target, plugin, TARGETS[target].seconds, programs, jobs, tell)
    compiled = [outcome for outcome in outcomes.values() if not outcome.refusal]
    slowest = max(outcomes, key=lambda name: outcomes[name].seconds, default="")
    seconds = time.monotonic() - start
    say(f"{target}: {len(compiled)} of {len(outcomes)} compile, {seconds:.0f} s; slowest: {slowest}")
    return outcomes


def _measure(plugins: dict[str, Path], jobs: int) -> dict[str, dict[str, Outcome]]:
    """Outcomes on v5e of this device's texts and of JAX's."""
    if "v5e" not in plugins:
        return {}
    ours = texts.programs("measured", TARGETS["v5e"].platform, MEASURED_NAMES)
    both = {"torch_xla": ours, "jax": texts.of_jax(ours)}
    return {title: _compile("v5e", plugins["v5e"], programs, jobs) for title, programs in both.items()}


def _plugins(targets: list[str]) -> dict[str, Path]:
    """The plugin of each target that has one here."""
    found = {}
    for target in targets:
        try:
            found[target] = fetch(TARGETS[target].wheel)
        except UnavailableError as error:
            say(f"{target} is left out: {error}")
    return found


def _keep(results: dict) -> None:
    """Writes the outcomes to build/compilers, for who looks for more than the page tells."""
    plain = {
        title: {name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()}
        for title, outcomes in results.items()
    }
    (texts.FOLDER / "results.json").write_text(json.dumps(plain, indent=1), encoding="utf-8")


def main() -> int:
    """Compiles, compares with the table, and writes the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--shard", metavar="I/N", help="of N parts of the programs the I-th alone, from 1")
    parser.add_argument("--only", metavar="TEXT", help="programs whose names have this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    parser.add_argument("--page", type=Path, help="write this page, with cycles beside JAX")
    options = parser.parse_args()
    plugins = _plugins(options.targets)
    if not plugins:
        return UNAVAILABLE
    programs = {target: _chosen(options, target) for target in plugins}
    results = {}
    for target, plugin in plugins.items():
        results[target] = _compile(target, plugin, programs[target], options.jobs)
        _keep(results)
    table = expected.read()
    found = [line for target in results for line in expected.problems(table, target, results[target])]
    measured = _measure(plugins, options.jobs) if options.page else {}
    _keep(results | measured)
    if options.page:
        options.page.write_text(page.write(results, table, measured), encoding="utf-8")
    print("\n".join(found) or "each target compiles what it should")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
