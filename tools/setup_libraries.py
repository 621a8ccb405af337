#!/usr/bin/env python3
"""Makes the virtual environments of tests/libraries: build/libraries/<name>, one for each library below.

Each sees the packages of the Python that runs this (torch and this package are not fetched again) and has its library
on top. A second run only looks. Exit code 77: an environment cannot be had here (no network); stderr says why.
"""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "build" / "libraries"
# The versions that the tests were written with.
LIBRARIES = {
    "accelerate": ["accelerate==1.15.0"],
    "diffusers": ["diffusers==0.42.1", "accelerate==1.15.0", "transformers==5.23.0"],
    "jax": ["jax==0.10.2"],
    "lightning": ["lightning==2.6.6"],
    "torchao": ["torchao==0.18.0"],
    "torchvision": ["torchvision==0.28.0"],
    "transformers": ["transformers==5.23.0", "accelerate==1.15.0"],
}
UNAVAILABLE = 77


def find_python(name: str) -> Path:
    """The interpreter of that library's environment, which need not exist yet."""
    return ROOT / name / "bin" / "python"


def is_ready(name: str) -> bool:
    """True if the environment holds what LIBRARIES asks for."""
    stamp = ROOT / name / "installed"
    return stamp.is_file() and stamp.read_text() == "\n".join(LIBRARIES[name])


def _link_packages(name: str) -> None:
    """Adds this source tree and this Python's packages behind the environment's own."""
    folder = next((ROOT / name / "lib").glob("python3*")) / "site-packages"
    (folder / "shared.pth").write_text(f"{ROOT.parent.parent}\n{sysconfig.get_path('purelib')}\n")


def make(name: str) -> bool:
    """Makes the environment. False if pip could not install the library."""
    print(f"making {ROOT / name}: {', '.join(LIBRARIES[name])}", file=sys.stderr, flush=True)
    venv.create(ROOT / name, clear=True, with_pip=False)
    _link_packages(name)
    pip = [find_python(name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, *LIBRARIES[name]], stdout=sys.stderr, check=False).returncode:
        return False
    (ROOT / name / "installed").write_text("\n".join(LIBRARIES[name]))
    return True


def main() -> int:
    """Makes what is missing."""
    failed = [name for name in LIBRARIES if not is_ready(name) and not make(name)]
    for name in failed:
        print(f"the environment of {name} cannot be had here: pip failed", file=sys.stderr)
    return UNAVAILABLE if failed else 0


if __name__ == "__main__":
    sys.exit(main())
