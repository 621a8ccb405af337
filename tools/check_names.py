#!/usr/bin/env python3
"""Checks that passes, engines and the recorder ask an operation's row for its traits, never for its name.

What an operation says of itself stands in its row (struct Op, src/ir/op.h). So the folders above src/ops (but python,
which has no rows) may not hold
- an operation's name ("aten::mm"), but as what a kernel is registered for (impl), a row (get_op) or a schema
  (findSchema) is fetched by, a counter has (find_or_create_counter), or a StableHLO writer is for;
- a row's name that is compared or searched, at once or by a variable that holds it, a row compared with another, the
  table of a family (index_ops());
- a primitive, kind, rule or layout compared by its order among the others.
TABLES may name operations: each is the one place for something that is done for single operations by name.
Prints each offender as file:line and exits with 1 if there is one.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from check_includes import ORDER

ROOT = Path(__file__).resolve().parent.parent

FOLDERS = [f"src/{room}" for room in ORDER[ORDER.index("ops") + 1 :] if room != "python"]
TABLES = {
    "src/engine/cpu/library/substitutes.cpp",  # what the CPU engine computes or checks in ATen's place
    "src/stablehlo/writer.cpp",  # which function writes the StableHLO form of a row
    "src/kernels/out_forms.cpp",  # which functional form is copied into an out tensor
    "src/kernels/nested.cpp",  # which of the CPU's kernels run on the buffers of nested device tensors
    "src/kernels/sparse.cpp",  # which of the CPU's kernels are registered for sparse device tensors
}

NAME = re.compile(r'"(aten|xla)::\w')
CALLS = r"\b(?:impl|get_op|findSchema|findSchemaOrThrow|get_operator|find_or_create_counter)\("
WRITER = r'^ *\{(?="[\w:.]+", write_)'  # a row of kWriters
NAMED = re.compile(rf'(?:{CALLS}|{WRITER})\s*"[\w:.]*"', re.MULTILINE)  # the name that is given, no other on the line
ROW_NAME = re.compile(r"\b(op|row|schema|handle)\w*(\(\))?(->|\.)name\b")
HELD = re.compile(rf"\b(\w+)(?: = |\{{|\()[\w.()>-]*{ROW_NAME.pattern}[)}}]*;")
COMPARES = re.compile(r"[=!]=|strcmp|string_view|\b(find|contains|starts_with|ends_with)\(")
ROWS_COMPARED = re.compile(r"[=!]=\s*[&*]?(get|find|prim)_op\(|_op\([^()]*\)\s*[=!]=|(\.|->)op\s*([=!]=\s*[&*]|[<>])")
ENUM = "(Prim|OpKind|TypeRule|ResultLayout)"
ORDERED = re.compile(rf"[<>]=?\s*{ENUM}::|{ENUM}::\w+\s*[<>]")
TABLE = re.compile(r"std::span<const Op> (\w+)\(\);")


def code_of(text: str) -> str:
    """Without comments and without the names that may stand there, in the same lines."""
    text = re.sub(r"(^|\s)//.*", "", text, flags=re.MULTILINE)
    return NAMED.sub(lambda match: "\n" * match[0].count("\n"), text)


def held_names(code: str) -> re.Pattern[str] | None:
    """A comparison of a variable that is given a row's name. A search for a character takes the name apart only."""
    held = "|".join({match[1] for match in HELD.finditer(code)})
    by = r"[=!]=|\.(?:find|compare|contains|starts_with|ends_with)\((?!')"
    within = r"(?:find|contains|strcmp)\([^()]*"
    return re.compile(rf"\b(?:{held}) ?(?:{by})|(?:[=!]= ?|{within}\b)(?:{held})\b(?!\.)") if held else None


def problem_of(line: str, families: re.Pattern[str], held: re.Pattern[str] | None) -> str | None:
    if NAME.search(line):
        return "an operation's name: what the code needs to know belongs in the row"
    if (ROW_NAME.search(line) and COMPARES.search(line)) or (held and held.search(line)):
        return "a row's name is compared: ask for a trait"
    if ROWS_COMPARED.search(line):
        return "rows are compared: ask for a trait"
    if families.search(line):
        return "the table of a family: ask for a trait"
    if ORDERED.search(line):
        return "compared by the order of an enum: ask a function of src/ir"
    return None


def problems_of(text: str, families: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    code = code_of(text)
    held = held_names(code)
    for number, line in enumerate(code.split("\n"), start=1):
        if problem := problem_of(line, families, held):
            yield number, problem


def main() -> int:
    tables = TABLE.findall((ROOT / "src/ops/tables.h").read_text(encoding="utf-8"))
    families = re.compile(rf"\b({'|'.join(tables)})\(\)")
    problems = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix not in {".cpp", ".h"} or name in TABLES:
                continue
            for number, problem in problems_of(path.read_text(encoding="utf-8"), families):
                problems.append(f"{name}:{number}: {problem}")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
