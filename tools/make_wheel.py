#!/usr/bin/env python3
"""Builds one wheel for several releases of torch and several Pythons into dist/: `make wheel` says how.

Each release is built against the torch of one environment, as `make build` does for .venv; for other Pythons than
that environment's it needs their headers only. The Python files come from pip, the libraries from each build's stage,
without symbols for debuggers. The wheel says what it asks for: the releases and Pythons that it has libraries for,
and the oldest system that tools/check_symbols.py lets them need.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import check_symbols
from setup_release import installed_version
from wheel_places import interpreter

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "assembled"
INCLUDE = "import sysconfig; print(sysconfig.get_path('include'))"


def say(text: str) -> None:
    print(f"== wheel: {text}", flush=True)


def run(*command: object, quiet: bool = True) -> str:
    """The output; unless `quiet` it is shown, else only if the command fails."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, text=True, capture_output=quiet)
    if done.returncode:
        sys.exit(f"{done.stdout or ''}{done.stderr or ''}make_wheel: {' '.join(map(str, command))} failed")
    return done.stdout or ""


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


# ---- What is built for ----
def release_of(python: Path) -> str:
    """The minor release of the torch that belongs to the interpreter: 2.13."""
    version = installed_version(python)
    if not version:
        sys.exit(f"make_wheel: {python} has no torch")
    return ".".join(version.split(".")[:2])


def headers_of(name: str) -> Path:
    """The folder with Python.h of an interpreter, or the folder itself."""
    folder = Path(name if Path(name).is_dir() else run(name, "-c", INCLUDE).strip())
    if not (folder / "Python.h").exists():
        sys.exit(f"make_wheel: {name} has no headers, {folder}/Python.h; Debian's package with them is python3-dev")
    return folder.resolve()


def version_of(headers: Path) -> str:
    """3.13 of the headers of Python 3.13."""
    text = (headers / "patchlevel.h").read_text()
    return ".".join(re.findall(r"#define\s+PY_M(?:AJOR|INOR)_VERSION\s+(\d+)", text))


def found_headers() -> list[Path]:
    """Those of the Pythons on PATH and of pyenv, as far as they have headers."""
    pythons = [shutil.which(f"python3.{minor}") for minor in range(10, 15)]
    pythons += sorted(Path.home().glob(".pyenv/versions/3.1?.*/bin/python3.1?"))
    folders = []
    for python in filter(None, pythons):
        include = subprocess.run([python, "-c", INCLUDE], text=True, capture_output=True).stdout.strip()
        if include and Path(include, "Python.h").exists():
            folders.append(Path(include).resolve())
    return folders


# ---- What the wheel is made of ----
def build(python: Path, release: str, headers: list[Path], stage: Path) -> None:
    """Adds the libraries for one release to the stage."""
    folder = ROOT / "build" / f"torch{release}"
    say(f"building for torch {release} of {python}")
    # Flags are the preset's, and the folder lies where its does: ccache has what `make build` compiled.
    settings = {
        "TORCH_XLA_IN_PLACE": "OFF",
        "TORCH_XLA_TESTS": "OFF",
        "TORCH_XLA_PYTHON_HEADERS": ";".join(map(str, headers)),
        "Python_EXECUTABLE": python,
    }
    run("cmake", "--preset", "release", "-B", folder, *(f"-D{name}={value}" for name, value in settings.items()))
    run("cmake", "--build", folder, quiet=False)
    run("cmake", "--install", folder, "--prefix", stage, "--strip")


def built_files(stage: Path) -> list[Path]:
    """The libraries, and the program that compiles in a process of its own."""
    folder = stage / "torch_xla" / "lib"
    return [*sorted(folder.rglob("*.so")), folder / "torch_xla_compile"]


def span(versions: list[str]) -> str:
    """The specifier of these minor versions alone, as of 3.10 and 3.12: `>=3.10,<3.13,!=3.11.*`."""
    present = sorted(map(numbers, versions))
    (major, first), (_, last) = present[0], present[-1]
    gaps = [f"!={major}.{minor}.*" for minor in range(first, last) if (major, minor) not in present]
    return ",".join([f">={major}.{first}", f"<{major}.{last + 1}", *gaps])


def replaced(text: str, line: str, new: str) -> str:
    """The text with one line, that begins with `line`, exchanged."""
    changed, count = re.subn(rf"(?m)^{line}(?!\w).*$", f"{line}{new}", text)
    assert count == 1, f"{count} lines begin with {line}"
    return changed


def assemble(stage: Path, releases: list[str], pythons: list[str], target: Path) -> Path:
    """Packs the Python files of the tree and the libraries of the stage into a wheel in the target folder."""
    run(sys.executable, ROOT / "tools" / "check_symbols.py", *built_files(stage))
    options = ["wheel.cmake=false", "wheel.platlib=true", "wheel.py-api=py3"]
    plain = WORK / "plain"
    pip = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", plain]
    run(*pip, *(f"--config-settings={option}" for option in options), ROOT)
    run(sys.executable, "-m", "wheel", "unpack", "--dest", plain, *plain.glob("*.whl"))
    (folder,) = (path for path in plain.iterdir() if path.is_dir())
    shutil.copytree(stage, folder, dirs_exist_ok=True)
    (info,) = folder.glob("*.dist-info")
    metadata = replaced((info / "METADATA").read_text(), "Requires-Dist: torch", span(releases))
    (info / "METADATA").write_text(replaced(metadata, "Requires-Python:", f" {span(pythons)}"))
    glibc = "_".join(map(str, check_symbols.NEWEST["GLIBC"]))
    tag = f"py3-none-manylinux_{glibc}_x86_64"
    (info / "WHEEL").write_text(replaced((info / "WHEEL").read_text(), "Tag:", f" {tag}"))
    target.mkdir(exist_ok=True)
    run(sys.executable, "-m", "wheel", "pack", "--dest-dir", target, folder)
    return target / f"{info.stem}-{tag}.whl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    help_releases = "interpreters with a torch, or releases of `make test-releases`; else this interpreter"
    parser.add_argument("--releases", nargs="+", metavar="RELEASE", default=[sys.executable], help=help_releases)
    help_pythons = "interpreters, or folders of their headers; else those that are found"
    parser.add_argument("--pythons", nargs="+", metavar="PYTHON", help=help_pythons)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where it is written")
    arguments = parser.parse_args()
    releases = {release_of(python): python for python in map(Path, map(interpreter, arguments.releases))}
    own = {python: headers_of(str(python)) for python in releases.values()}
    named = [headers_of(name) for name in arguments.pythons] if arguments.pythons else found_headers()
    headers = {version_of(folder): folder for folder in [*named, *own.values()]}
    shutil.rmtree(WORK, ignore_errors=True)
    for release, python in releases.items():
        others = [folder for version, folder in headers.items() if version != version_of(own[python])]
        build(python, release, others, WORK / "stage")
    served = sorted(headers, key=numbers)
    wheel = assemble(WORK / "stage", list(releases), served, arguments.dist.absolute())
    size = wheel.stat().st_size / 1e6
    say(f"{wheel}: {size:.1f} MB, torch {', '.join(releases)}, Python {', '.join(served)}")


if __name__ == "__main__":
    main()
