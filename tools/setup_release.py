#!/usr/bin/env python3
"""Makes build/releases/VERSION: an environment with that release of PyTorch and what the tests need.

    tools/setup_release.py 2.14.1                    # from pip
    tools/setup_release.py 2.15.0=/opt/py/bin/python # an interpreter that has it
    tools/setup_release.py 2.99.0                    # made up (made_up_release.py)

Beside `venv` stands `path`, a folder for PYTHONPATH by which PyTorch finds this source tree's entry point. A second run
only looks. Exit code 77: the release cannot be had here; stderr says why.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import made_up_release

ROOT = Path(__file__).resolve().parent.parent
FIND_TORCH = ROOT / "cmake/find_torch.py"
UNAVAILABLE = 77
# Packages of requirements-dev.txt that run no test.
TOOLS = ("ruff", "codespell", "pre-commit", "cmake", "ninja")
# What PyTorch asks for and no test loads; the first is a sixth of a CUDA build.
UNUSED = ("triton", "cuda-bindings")


def folder_of(version: str) -> Path:
    """Where the release lies."""
    return ROOT / "build/releases" / version


def installed_version(python: Path) -> str | None:
    """The version of PyTorch that an interpreter has, without its build's name; None if it has none."""
    done = subprocess.run([python, FIND_TORCH], capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        return None
    text = Path(done.stdout.strip(), "version.py").read_text(encoding="utf-8")
    found = re.search(r"__version__ = '([^'+]+)", text)
    return found and found[1]


def other_packages() -> list[str]:
    """Of requirements-dev.txt what tests need, with its version."""
    lines = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if "==" in line and line.split("==")[0] not in ("torch", *TOOLS)]


def _pip(venv: Path, *arguments: str) -> bool:
    command = [venv / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    return not subprocess.run(command, stdout=sys.stderr, check=False).returncode


# Prints what the installed PyTorch asks for, in a Python that has pip.
REQUIREMENTS = """
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
for r in map(Requirement, requires("torch")):
    if not r.marker or r.marker.evaluate({"extra": ""}):
        print(r.name, f"[{','.join(r.extras)}]" * bool(r.extras), r.specifier, sep="")
"""


def _requirements_of_torch(venv: Path) -> list[str]:
    """What the installed PyTorch asks for here, without UNUSED."""
    done = subprocess.run([venv / "bin/python", "-c", REQUIREMENTS], stdout=subprocess.PIPE, text=True, check=True)
    return [line for line in done.stdout.splitlines() if re.split(r"[^\w-]", line)[0] not in UNUSED]


def fetch(version: str, venv: Path) -> bool:
    """Makes the environment by pip. False where pip has no such release."""
    print(f"== fetching torch {version} into {venv} (a few minutes)", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    return (
        _pip(venv, "--no-deps", f"torch=={version}")
        and _pip(venv, *_requirements_of_torch(venv))
        and _pip(venv, *other_packages())
    )


def write_entry_point(folder: Path) -> None:
    """A distribution's files that name the entry point of pyproject.toml, as an installed package has them."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = re.search(r'\[project\.entry-points\."torch\.backends"\]\n(.*?)\n\n', project, re.DOTALL)[1]
    entry = section.replace('"', "")
    version = re.search(r'__version__ = "(.+)"', (ROOT / "torch_xla/version.py").read_text(encoding="utf-8"))[1]
    distribution = folder / f"torch_xla-{version}.dist-info"
    shutil.rmtree(folder, ignore_errors=True)
    distribution.mkdir(parents=True)
    (distribution / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch_xla\nVersion: {version}\n")
    (distribution / "entry_points.txt").write_text(f"[torch.backends]\n{entry}\n")


def set_up(version: str, python: Path | None) -> str:
    """Makes the environment; returns what stands in the way, or an empty text."""
    venv = folder_of(version) / "venv"
    if python is None and installed_version(Path(sys.executable)) == version:
        python = Path(sys.executable)
    if python is not None:
        found = installed_version(python)
        if found != version:
            return f"{python} has torch {found}"
        venv.parent.mkdir(parents=True, exist_ok=True)
        venv.unlink(missing_ok=True) if venv.is_symlink() else shutil.rmtree(venv, ignore_errors=True)
        venv.symlink_to(python.absolute().parent.parent)
    elif not (venv / "bin/python").exists() or installed_version(venv / "bin/python") != version:
        shutil.rmtree(venv, ignore_errors=True)
        made = made_up_release.make(venv) if version == made_up_release.VERSION else fetch(version, venv)
        if not made:
            shutil.rmtree(venv, ignore_errors=True)
            return "pip cannot install it here"
    write_entry_point(folder_of(version) / "path")
    return ""


def main() -> int:
    """Sets up the releases that the arguments name."""
    code = 0
    for argument in sys.argv[1:]:
        version, _, python = argument.partition("=")
        if obstacle := set_up(version, Path(python) if python else None):
            print(f"torch {version} cannot be had: {obstacle}", file=sys.stderr)
            code = UNAVAILABLE
    return code


if __name__ == "__main__":
    sys.exit(main())
