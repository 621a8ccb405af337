"""Where a wheel is tried: interpreters with a torch, in environments of this system or in unpacked others (roots).

A root gets the packages of an environment with the same Python, unless it has its own, with torch, in opt/site.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from setup_release import folder_of

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
# The root sees this system's proc and dev while the command runs.
ENTER = 'for folder in proc dev; do mount --rbind "/$folder" "$0/$folder" || exit 78; done; exec chroot "$0" "$@"'
VERSIONS = """
import sys, platform
sys.path.append({site!r})
import numpy, torch
print(torch.__version__, platform.python_version(), numpy.__version__)
"""


class Skipped(Exception):
    """A place cannot be had here, for a reason."""


def interpreter(release: str) -> str:
    """Of `/path/to/python`, `2.14.1=/path/to/python`, or a release that `make test-releases` has an environment for."""
    path = release.rpartition("=")[2]
    return str(Path(path).absolute() if "/" in path else folder_of(path) / "venv/bin/python")


def environment(home: str) -> dict[str, str]:
    """Of the commands in a place: what this process has of Python, of the package and of its build stays outside."""
    ours = ("PYTHON", "XLA", "PJRT", "VIRTUAL_ENV", "TORCH", "LD_", "CMAKE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {**kept, "HOME": home, "TMPDIR": "/tmp", "MPLCONFIGDIR": "/tmp", "PATH": path}


@dataclass(frozen=True)
class Place:
    python: str  # the interpreter, by its name in the root
    site: str  # the folder of its packages, by its name in the root
    root: Path = Path("/")
    numpy: str = ""  # another version than the one in the folder
    unprivileged: bool = False
    unfit: bool = False  # the wheel's library for this torch is taken away

    def command(self, *command: str) -> list[str]:
        """What runs the command there."""
        user = NOBODY if self.unprivileged else ()
        enter = () if self.root == Path("/") else ("unshare", "--mount", "--", "sh", "-c", ENTER, str(self.root))
        return [*enter, *user, *command]

    def ask(self, program: str) -> str:
        """What the program prints; no backend is loaded."""
        command = self.command(self.python, "-c", program)
        quiet = {**environment("/tmp"), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        done = subprocess.run(command, text=True, capture_output=True, env=quiet)
        if done.returncode:
            problem = done.stderr.strip() or "does not start"
            raise Skipped(f"{self.python} in {self.root}: {problem.splitlines()[-1]}")
        return done.stdout.strip()

    def describe(self) -> list[str]:
        """Torch, Python, system, numpy, and what is special."""
        torch, python, numpy = self.ask(VERSIONS.format(site=self.site)).split()
        lines = (self.root / "etc/os-release").read_text().splitlines()
        system = next(line.split('"')[1] for line in lines if line.startswith("PRETTY_NAME"))
        user = "nobody, home read-only" if self.unprivileged else ""
        return [torch, python, system, self.numpy or numpy, "no library for it" if self.unfit else user]


def of_environment(python: str) -> Place:
    place = Place(python, "")
    return replace(place, site=place.ask("import sysconfig; print(sysconfig.get_path('purelib'))"))


def linked(source: Path, target: Path) -> None:
    """A copy that shares the files' data where it can."""
    if subprocess.run(["cp", "-al", source, target], capture_output=True).returncode:
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(["cp", "-a", source, target], check=True)


def of_root(root: Path, environments: list[Place]) -> Place:
    if os.geteuid() != 0:
        raise Skipped(f"{root}: only root enters another system")
    place = Place("/usr/bin/python3", "/opt/site", root)
    if not (root / "opt/site/torch").exists():
        version = "import sys; print(*sys.version_info[:2], sep='.')"
        own = place.ask(version)
        fit = next((other for other in environments if other.ask(version) == own), None)
        if not fit:
            raise Skipped(f"{root}: no torch in its opt/site, and no environment has its Python {own}")
        linked(Path(fit.site), root / "opt/site")
    return place


def unpacked_debian(suite: str, folder: Path) -> Path:
    """A Debian with Python and nothing else, made in the folder unless it is there."""
    root = folder / suite
    if (root / "usr/bin/python3").exists():
        return root
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        raise Skipped(f"an unpacked Debian {suite}: needs root and the program debootstrap")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    command = ["debootstrap", "--variant=minbase", "--include=python3,python3-venv", suite, root]
    made = subprocess.run(command, text=True, capture_output=True)
    if made.returncode:
        shutil.rmtree(root)
        raise Skipped(f"an unpacked Debian {suite}: {made.stdout.strip().splitlines()[-1]}")
    return root


def places(pythons: list[str], roots: list[str], made: Path, skipped: list[str]) -> Iterator[Place]:
    """What was named, the Debian of `made`, and variations; the reasons of those that are missing go to `skipped`."""
    environments = [of_environment(python) for python in pythons]
    yield from environments
    yield replace(environments[0], numpy="1.26.4")
    yield replace(environments[0], unfit=True)
    entered = []
    for root in [*roots, None]:
        try:
            folder = Path(root).absolute() if root else unpacked_debian("bookworm", made)
            entered.append(of_root(folder, environments))
        except Skipped as reason:
            skipped.append(str(reason))
    yield from entered
    yield replace((entered or environments)[-1], unprivileged=True)
