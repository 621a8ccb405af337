"""What this tree uses of PyTorch: Python names, those that it replaces, operators, headers, methods that it overrides.

tools/compare_release.py looks these up in two releases. Each name comes with the files that use it.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Places = dict[str, set[str]]  # files by name

# PyTorch's among the bases of our classes.
TORCH_BASE = re.compile(r"(?:at|c10|torch|profiler|libkineto)::[\w:]+")


class _Names(ast.NodeVisitor):
    """Collects the dotted names of `torch` that a module uses and those that it assigns to."""

    def __init__(self, module: ast.Module):
        self.meaning: dict[str, str] = {}  # what a name of this file stands for
        self.used: set[str] = set()
        self.patched: set[str] = set()
        self._functions = {node.name: node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)}
        self.visit(module)

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            if name.name.split(".")[0] == "torch":
                self.used.add(name.name)
                self.meaning[name.asname or "torch"] = name.name if name.asname else "torch"

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not node.level and node.module and node.module.split(".")[0] == "torch":
            for name in node.names:
                self.meaning[name.asname or name.name] = f"{node.module}.{name.name}"
                self.used.add(f"{node.module}.{name.name}")

    def _dotted(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self.meaning.get(node.id)
        if isinstance(node, ast.Attribute) and (base := self._dotted(node.value)):
            return f"{base}.{node.attr}"
        return None

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if name := self._dotted(node):
            (self.used if isinstance(node.ctx, ast.Load) else self.patched).add(name)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        arguments = node.args
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        if called == "when_imported" and isinstance(arguments[0], ast.Constant):
            self._enter(arguments[0].value, arguments[1])
        if called in ("getattr", "setattr", "hasattr") and isinstance(arguments[1], ast.Constant):
            if base := self._dotted(arguments[0]):
                (self.patched if called == "setattr" else self.used).add(f"{base}.{arguments[1].value}")
        self.generic_visit(node)

    def _enter(self, module: str, action: ast.expr) -> None:
        """Takes the first parameter of the function for that module."""
        function = self._functions.get(getattr(action, "id", None))
        if function and module.split(".")[0] == "torch":
            self.used.add(module)
            before = dict(self.meaning)
            self.meaning[function.args.args[0].arg] = module
            self.generic_visit(function)
            self.meaning = before


def names_of_source(source: str) -> tuple[set[str], set[str]]:
    """The names of `torch` that a Python file uses, and those that it assigns to."""
    module = ast.parse(source)
    names = _Names(module)
    return names.used, names.patched


def overridden_methods(source: str) -> dict[str, set[str]]:
    """For each class of PyTorch that a C++ file derives from, the methods that it overrides."""
    result = defaultdict(set)
    for found in re.finditer(r"\n(?:class|struct) [\w:]+(?: final)?\s*:([^;{]*){(.*?)\n};", source, re.DOTALL):
        methods = {name for name in re.findall(r"(\w+)\([^;{}]*?\)[\w\s]*\boverride\b", found[2])}
        for base in TORCH_BASE.findall(found[1]):
            result[base.split("::")[-1]] |= methods
    return result


def operators_of_source(source: str) -> set[str]:
    """What may be an operator's name: texts in quotes without `aten::`, and headers of single operators."""
    quoted = re.findall(r'"(?:aten::)?([a-z_]\w*(?:\.\w+)?)"', source)
    return {*quoted, *re.findall(r"#include <ATen/ops/(\w+?)(?:_native)?\.h>", source)}


def headers_of_source(source: str) -> set[str]:
    """The headers of PyTorch that a C++ file includes."""
    return set(re.findall(r"#include <((?:ATen|c10|torch|caffe2)/[^>]+)>", source))


def members_of_source(source: str) -> set[str]:
    """Members of PyTorch's classes that a C++ file names: ProfilerStateBase::get."""
    return set(re.findall(r"\b(?:(?:at|c10|torch|libkineto)::)(?:\w+::)*([A-Z]\w+::\w+)", source))


class Used:
    """What the tree below `root` uses."""

    def __init__(self, root: Path = ROOT):
        self.names: Places = defaultdict(set)
        self.patched: Places = defaultdict(set)
        self.methods: dict[str, Places] = defaultdict(lambda: defaultdict(set))  # by class
        self.operators: Places = defaultdict(set)
        self.headers: Places = defaultdict(set)
        self.members: Places = defaultdict(set)
        for path in sorted((root / "torch_xla").rglob("*.py")):
            file = path.relative_to(root).as_posix()
            for places, names in zip((self.names, self.patched), names_of_source(path.read_text(encoding="utf-8"))):
                for name in names:
                    places[name].add(file)
        for path in sorted([*(root / "src").rglob("*.cpp"), *(root / "src").rglob("*.h")]):
            self._add_cpp(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))

    def _add_cpp(self, file: str, source: str) -> None:
        for places, names in (
            (self.operators, operators_of_source(source)),
            (self.headers, headers_of_source(source)),
            (self.members, members_of_source(source)),
        ):
            for name in names:
                places[name].add(file)
        for base, methods in overridden_methods(source).items():
            for method in methods:
                self.methods[base][method].add(file)
