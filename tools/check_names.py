#!/usr/bin/env python3
"""Checks that passes, engines and the recorder ask an operation's row for its traits, never for its name.

What an operation says of itself stands in its row (struct Op, src/ir/op.h). So src/passes, src/engine and src/tensor
may not hold
- an operation's name ("aten::mm"), but where a kernel is registered (impl), a row is fetched (get_op), a schema is
  looked up (findSchema) or a counter is named (find_or_create_counter);
- a row's name that is compared or searched, a row compared with another, the table of a family (index_ops());
- a primitive, kind, rule or layout compared by its order among the others.
TABLES may name operations: each is the one place for something that is done for single operations by name.
Prints each offender as file:line and exits with 1 if there is one.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FOLDERS = ["src/passes", "src/engine", "src/tensor"]
TABLES = {
    "src/engine/cpu/library/substitutes.cpp",  # what the CPU engine computes or checks in ATen's place
    "src/tensor/sparse.cpp",  # which of the CPU's kernels are registered for sparse device tensors
}

NAME = re.compile(r'"(aten|xla)::\w')
NAMED = re.compile(r"\b(impl|get_op|findSchema|findSchemaOrThrow|find_or_create_counter)\(")
ROW_NAME = re.compile(r"\b(op|row|schema|handle)\w*(\(\))?(->|\.)name\b")
COMPARES = re.compile(r"[=!]=|strcmp|string_view|\b(find|contains|starts_with|ends_with)\(")
ROWS_COMPARED = re.compile(r"[=!]=\s*[&*]?(get|find|prim)_op\(|_op\([^()]*\)\s*[=!]=|(\.|->)op\s*([=!]=\s*[&*]|[<>])")
ENUM = "(Prim|OpKind|TypeRule|ResultLayout)"
ORDERED = re.compile(rf"[<>]=?\s*{ENUM}::|{ENUM}::\w+\s*[<>]")
TABLE = re.compile(r"std::span<const Op> (\w+)\(\);")


def code_of(line: str) -> str:
    return re.sub(r"(^|\s)//.*", "", line)


def problem_of(line: str, families: re.Pattern[str]) -> str | None:
    if NAME.search(line) and not NAMED.search(line):
        return "an operation's name: what the code needs to know belongs in the row"
    if ROW_NAME.search(line) and COMPARES.search(line):
        return "a row's name is compared: ask for a trait"
    if ROWS_COMPARED.search(line):
        return "rows are compared: ask for a trait"
    if families.search(line):
        return "the table of a family: ask for a trait"
    if ORDERED.search(line):
        return "compared by the order of an enum: ask a function of src/ir"
    return None


def main() -> int:
    tables = TABLE.findall((ROOT / "src/ops/tables.h").read_text(encoding="utf-8"))
    families = re.compile(rf"\b({'|'.join(tables)})\(\)")
    problems = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix not in {".cpp", ".h"} or name in TABLES:
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                if problem := problem_of(code_of(line), families):
                    problems.append(f"{name}:{number}: {problem}")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
