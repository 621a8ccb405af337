"""A made-up release of PyTorch, newer than all that we know: the installed one, with an operator less and one more."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

VERSION = "2.99.0"
# Under its new name the operator has all of its kernels and no row of ours. It is renamed where it stands: same length.
OLD_NAME, NEW_NAME = b"_dirichlet_grad", b"_dirichlet_grae"
assert len(OLD_NAME) == len(NEW_NAME)


def rename_operator(binary: bytes) -> tuple[bytes, int]:
    """The library's bytes with the operator's name exchanged in schemas and registrations, and how often."""
    return re.subn(rb"(?<![A-Za-z0-9_])" + OLD_NAME + rb"(?=_?[\x00(.])", NEW_NAME, binary)


def _replace(path: Path, content: bytes) -> None:
    """Replaces a file, as the one that is there is shared with the installed release."""
    path.unlink()
    path.write_bytes(content)


def _change_version(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    major, minor, patch = VERSION.split(".")
    for name, number in (("MAJOR", major), ("MINOR", minor), ("PATCH", patch)):
        text = re.sub(rf"(TORCH_VERSION_{name}) \d+", rf"\1 {number}", text)
    text = re.sub(r"(__version__ = ')[^'+]+", rf"\g<1>{VERSION}", text)
    _replace(path, text.encode())


def make(venv: Path) -> bool:
    """Makes an environment with it in front of the packages of the Python that runs this."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    packages = next(venv.glob("lib/python3*/site-packages"))
    installed = Path(sysconfig.get_path("purelib"))
    torch = packages / "torch"
    subprocess.run(["cp", "-al", (installed / "torch").resolve(), torch], check=True)
    for file in ("version.py", "include/torch/headeronly/version.h"):
        _change_version(torch / file)
    library = torch / "lib/libtorch_cpu.so"
    content, number = rename_operator(library.read_bytes())
    _replace(library, content)
    shutil.copymode(installed / "torch/lib/libtorch_cpu.so", library)
    (packages / "shared.pth").write_text(f"{installed}\n")
    return number > 0
