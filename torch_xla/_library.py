"""Loads `torch_xla._XLAC` for the present torch and Python. Only this module knows the layout of `lib`.

`lib/torch2.13/` has the files built for torch 2.13, as each release has its own C++ interface: `libtorch_xla.so`, and a
module `_XLAC` for each Python.
"""

import importlib.util
import re
import sys
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import torch

from .version import __version__

FOLDER = Path(__file__).parent / "lib"
_NAME = f"{__package__}._XLAC"


def _python(module: str) -> str | None:
    """The Python of a module file: `3.11`, or `3.13t` without the global lock."""
    tag = re.search(r"\.cpython-(\d)(\d+t?)-", module)
    return ".".join(tag.groups()) if tag else None


def _in_order(versions: Iterable[str]) -> list[str]:
    return sorted(versions, key=lambda version: [int(number) for number in re.findall(r"\d+", version)])


def built_for(folder: Path) -> dict[str, list[str]]:
    """The releases of torch with libraries in `folder`, each with its Pythons, all in ascending order."""
    found: dict[str, list[str]] = {}
    for module in folder.glob("torch*/_XLAC.*.so"):
        if python := _python(module.name):
            found.setdefault(module.parent.name.removeprefix("torch"), []).append(python)
    return {release: _in_order(found[release]) for release in _in_order(found)}


def _listed(versions: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(versions[:-1]), versions[-1]]))


def _misfit(folder: Path, torch_version: str, python: str) -> str:
    """The error text for an environment without a library in `folder`."""
    releases = built_for(folder)
    here = f"torch {torch_version} on Python {python}"
    if not releases:
        return f"torch_xla {__version__} has no libraries in {folder} for {here}, nor any other: `make dev` builds them"
    groups: dict[str, list[str]] = {}
    for release, pythons in releases.items():
        groups.setdefault(_listed(pythons), []).append(release)
    built = ", ".join(f"torch {_listed(served)} on Python {pythons}" for pythons, served in groups.items())
    fit = [release for release, pythons in releases.items() if python in pythons]
    if fit:
        advice = f'`pip install "torch=={fit[-1]}.*"` installs one that fits'
    else:
        advice = f"make an environment with `python{list(releases.values())[-1][-1]} -m venv` and install it there"
    return f"torch_xla {__version__} was built for {built}, but this is {here}: {advice}"


def find(folder: Path, torch_version: str) -> ModuleSpec:
    """Where the module for this torch (`2.13.0+cpu`) and this Python is. ImportError with one sentence if nowhere."""
    release = ".".join(torch_version.split(".")[:2])
    spec = PathFinder.find_spec(_NAME, [str(folder / f"torch{release}")])
    if spec is None:
        python = _python(EXTENSION_SUFFIXES[0]) or "{}.{}".format(*sys.version_info)
        raise ImportError(_misfit(folder, torch_version, python), name=_NAME)
    return spec


def load() -> ModuleType:
    """The module, imported as `torch_xla._XLAC`."""
    if _NAME not in sys.modules:
        spec = find(FOLDER, torch.__version__)
        module = importlib.util.module_from_spec(spec)
        sys.modules[_NAME] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[_NAME]
            raise
    return sys.modules[_NAME]
