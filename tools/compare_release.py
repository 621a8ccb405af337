#!/usr/bin/env python3
"""Lists what changed between two installed releases of PyTorch and what of it this tree uses: a new one's to-do list.

    tools/compare_release.py 2.13.0 2.15.0 --page docs/releases/2.13_to_2.15.md

OLD and NEW are each a Python, the folder of an environment, or a version that tools/setup_release.py has set up.
"""

import argparse
import difflib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from used_names import Places, Used

TOOLS = Path(__file__).resolve().parent
# Bases of classes that we derive from.
MORE_CLASSES = ("AcceleratorHooksInterface",)
KINDS = {"gone": 0, "changed": 1, "new": 2}


@dataclass(frozen=True, order=True)
class Change:
    """One thing that is not as it was."""

    topic: str
    kind: str  # of KINDS
    name: str
    what: str = ""  # the new form, or how it differs from the old one
    used: tuple[str, ...] = ()  # our files


def find_python(where: str) -> Path:
    """The interpreter that an argument names."""
    candidates = [Path(where), Path(where) / "bin/python", TOOLS.parent / "build/releases" / where / "venv/bin/python"]
    for path in candidates:
        if path.is_file() and os.access(path, os.X_OK):
            return path.absolute()
    raise SystemExit(
        f"{where} is no Python, no environment and no release that is set up: tools/setup_release.py {where}"
    )


def take_snapshot(python: Path, used: Used) -> dict:
    """What tools/release_probe.py tells of a release."""
    classes = sorted({*used.methods, *MORE_CLASSES})
    wanted = {
        "classes": classes,
        "members": sorted(used.members),
        "headers": sorted(used.headers),
        "names": sorted({*used.names, *used.patched}),
    }
    done = subprocess.run(
        [python, TOOLS / "release_probe.py"],
        input=json.dumps(wanted),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    return json.loads(done.stdout.splitlines()[-1])


def difference(old: str, new: str) -> str:
    """The pieces of a declaration that are not as they were, as `old -> new; old -> new`."""
    words = [text.replace(",", " ,").replace("(", "( ").replace(")", " )").split() for text in (old, new)]
    pieces = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        if tag != "equal":
            before, after = (" ".join(part).replace(" ,", ",").strip(", ") for part in (words[0][a:b], words[1][c:d]))
            pieces.append(f"{before or 'nothing'} -> {after or 'nothing'}")
    return "; ".join(pieces)


def compare_tables(
    topic: str, old: dict[str, str], new: dict[str, str], places: Places, key=lambda name: (name,)
) -> list[Change]:
    """What is gone, changed and new in a table of declarations; `key` gives the names by which we may use one."""

    def used(name: str) -> tuple[str, ...]:
        return tuple(sorted({file for form in key(name) for file in places.get(form, ())}))

    changes = [Change(topic, "gone", name, old[name], used(name)) for name in old if name not in new]
    changes += [Change(topic, "new", name, new[name], used(name)) for name in new if name not in old]
    changes += [
        Change(topic, "changed", name, difference(old[name], new[name]), used(name))
        for name in old
        if name in new and old[name] != new[name]
    ]
    return changes


def operator_forms(name: str) -> tuple[str, ...]:
    """`aten::add_.Tensor` as our files may write it, the rows of its functional form among them."""
    full = name.removeprefix("aten::")
    base, _, overload = full.partition(".")
    return (full, base, base.removesuffix("_"), f"{base.removesuffix('_')}.{overload}")


def compare_names(old: dict, new: dict, used: Used) -> list[Change]:
    """Python names: gone, of another signature, and patched ones of other code."""
    changes = []
    for name, before in old.items():
        files = tuple(sorted(used.names.get(name, set()) | used.patched.get(name, set())))
        after = new.get(name)
        if before is None:
            if after is not None:
                changes.append(Change("python", "new", name, "", files))
        elif after is None:
            changes.append(Change("python", "gone", name, "", files))
        elif before.get("signature") != after.get("signature"):
            what = difference(before.get("signature", ""), after.get("signature", ""))
            changes.append(Change("python", "changed", name, what, files))
        elif name in used.patched and before.get("source") != after.get("source"):
            changes.append(Change("python", "changed", name, "its code; we replace it", files))
    return changes


def compare(old: dict, new: dict, used: Used) -> list[Change]:
    """All changes between two snapshots."""
    changes = compare_tables("operators", old["schemas"], new["schemas"], used.operators, operator_forms)
    for topic, places in (("keys", {}), ("types", {}), ("members", used.members)):
        changes += compare_tables(topic, dict.fromkeys(old[topic], ""), dict.fromkeys(new[topic], ""), places)
    methods: Places = {}
    for places in used.methods.values():
        for method, files in places.items():
            methods.setdefault(method, set()).update(files)
    for name in sorted({*old["classes"], *new["classes"]}):
        before, after = ({f"{name}::{m}": text for m, text in s["classes"].get(name, {}).items()} for s in (old, new))
        changes += compare_tables("methods", before, after, methods, lambda full: (full.split("::")[1].split(" ")[0],))
    before, after = ({name: text for name, text in s["headers"].items() if text} for s in (old, new))
    headers = compare_tables("headers", before, after, used.headers)
    changes += [Change(c.topic, c.kind, c.name, "", c.used) for c in headers if c.kind == "gone" or "_native" in c.name]
    changes += compare_names(old["names"], new["names"], used)
    return sorted(changes, key=lambda c: (c.topic, not c.used, KINDS[c.kind], c.name))


TOPICS = {
    "operators": "Operators of ATen",
    "methods": "Virtual methods of classes that we derive from",
    "members": "Other members of classes that we name",
    "headers": "Headers that we include: gone, or of kernels that we call and changed",
    "python": "Python names that we use or replace",
    "keys": "Dispatch keys",
    "types": "Types of elements",
}


def row(change: Change) -> str:
    """A line of a table."""
    what = change.what.replace("|", "\\|")
    return f"| {change.kind} | `{change.name}` | {f'`{what}`' if what else ''} | {', '.join(change.used)} |"


def page(old: str, new: str, changes: list[Change]) -> str:
    """The page: what we use first."""
    lines = [
        f"# PyTorch {old} to {new}",
        "",
        "For those who serve a new release of PyTorch.",
        "",
        f"What changed between the two releases, written by `tools/compare_release.py {old} {new}`. The last column",
        "has our files that name it; what has none there is listed because a new program may ask for it.",
    ]
    for topic, title in TOPICS.items():
        own = [change for change in changes if change.topic == topic]
        used = sum(bool(change.used) for change in own)
        lines += [
            "",
            f"## {title}",
            "",
            f"{len(own)} changes, {used} of what this tree names." if own else "No change.",
        ]
        if own:
            lines += ["", "| | name | now | used in |", "|---|---|---|---|", *map(row, own)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Prints the page, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="a Python, an environment or a version")
    parser.add_argument("new")
    parser.add_argument("--page", type=Path, help="write the list there")
    arguments = parser.parse_args()
    used = Used()
    old, new = (take_snapshot(find_python(where), used) for where in (arguments.old, arguments.new))
    versions = [snapshot["version"].split("+")[0] for snapshot in (old, new)]
    text = page(*versions, compare(old, new, used))
    if arguments.page:
        arguments.page.parent.mkdir(parents=True, exist_ok=True)
        arguments.page.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
