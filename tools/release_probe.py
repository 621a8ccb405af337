"""Tells as JSON what an installed PyTorch has: operators, keys, classes of headers, the Python names of standard input.

tools/compare_release.py runs it in the interpreter of each release; it imports nothing but torch.
"""

import hashlib
import importlib
import inspect
import json
import re
import sys
from pathlib import Path


def schemas() -> dict[str, str]:
    """The schemas of ATen, by the operator's name with its overload."""
    import torch

    result = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            result[schema.name + ("." + schema.overload_name if schema.overload_name else "")] = str(schema)
    return result


def without_comments(text: str) -> str:
    """C++ without comments and line ends."""
    return re.sub(r"\s+", " ", re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)).strip()


def class_body(text: str, name: str) -> str | None:
    """What stands between the braces of the definition of a class or an enumeration, or None: the text has none."""
    keyword, macros = r"\b(?:struct|class|enum(?: class)?)\s+", r"(?:[A-Z][A-Z0-9_]+(?:\([^)]*\))?\s+)*"
    start = re.search(rf"{keyword}{macros}{name}\b(?:\s+final)?\s*(?::[^;{{]*)?{{", text)
    if not start:
        return None
    depth, end = 1, start.end()
    while depth and end < len(text):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[start.end() : end - 1]


def virtual_methods(body: str) -> dict[str, str]:
    """A class's virtual methods: declarations without parameters' names; overloads of one name are numbered."""
    methods = {}
    for found in re.finditer(r"virtual\s+([^;{}]*?~?\b(\w+)\s*\((?:[^(){};]|\([^()]*\)|{})*\)[^;{]*)[;{]", body):
        name, number = found[2], 2
        while name in methods:
            name, number = f"{found[2]} ({number})", number + 1
        declaration = re.sub(r"\s*(=\s*0|override)\s*$", "", found[1].strip())
        types = re.sub(r"(?<=[\w>&*])\s+\w+(?=\s*(?:=[^,()]*)?[,)])", "", declaration)
        methods[name] = re.sub(r"\s*([(),<>])\s*", lambda mark: mark[1] + " " * (mark[1] in ",)>"), types).strip()
    return methods


def bodies(folder: Path, names: set[str]) -> dict[str, str]:
    """The body of each class that a header of the folder defines; of several of one name all, together."""
    result: dict[str, str] = {}
    for path in sorted(folder.rglob("*.h")):
        text = path.read_text(errors="replace")
        for name in [name for name in names if name in text]:
            body = class_body(without_comments(text), name)
            if body is not None:
                result[name] = result.get(name, "") + body
    return result


def digest(text: str) -> str:
    """A short name for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def headers(folder: Path, names: list[str]) -> dict[str, str | None]:
    """A digest of each header's declarations, in any order; None for one that is not there."""
    result: dict[str, str | None] = dict.fromkeys(names)
    for name in names:
        if (folder / name).is_file():
            declarations = without_comments((folder / name).read_text()).split(";")
            result[name] = digest(";".join(sorted(map(str.strip, declarations))))
    return result


def find(name: str):
    """What a dotted name means: a module, or an attribute of one. Raises AttributeError, or ImportError."""
    parts = name.split(".")
    found, rest = importlib.import_module(parts[0]), parts[1:]
    for i, part in enumerate(rest, 1):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[: i + 1]))  # a module that nobody has imported
        found = getattr(found, part)
    return found


def call_form(function) -> str:
    """The signature without annotations, which are no part of a call."""
    signature = inspect.signature(function)
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    text = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    return re.sub(r" at 0x[0-9a-f]+", "", str(text))


def describe(name: str) -> dict[str, str] | None:
    """The kind, the signature and a digest of the source, as far as it has them; None: there is no such name."""
    try:
        found = find(name)
    except (AttributeError, ImportError):
        return None
    described = {"kind": type(found).__name__}
    if callable(found):
        try:
            described["signature"] = call_form(found)
            described["source"] = digest(inspect.getsource(found))
        except (TypeError, ValueError, OSError):
            pass  # written in C
    return described


def probe(wanted: dict) -> dict:
    """All of it; `wanted` has the names of classes, headers and Python's."""
    import torch

    folder = Path(torch.__file__).parent / "include"
    of_members = {member.split("::")[0] for member in wanted["members"]}
    found = bodies(folder, {*wanted["classes"], *of_members})
    words = {name: set(re.findall(r"\w+", body)) for name, body in found.items()}
    return {
        "version": torch.__version__,
        "schemas": schemas(),
        "keys": sorted(torch._C.DispatchKey.__members__),
        "types": sorted(name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)),
        "classes": {name: virtual_methods(found[name]) for name in wanted["classes"] if name in found},
        "members": [m for m in wanted["members"] if m.split("::")[1] in words.get(m.split("::")[0], ())],
        "headers": headers(folder, wanted["headers"]),
        "names": {name: describe(name) for name in wanted["names"]},
    }


if __name__ == "__main__":
    print(json.dumps(probe(json.load(sys.stdin))))
