#!/usr/bin/env python3
"""Builds a PJRT plugin for tests: tools/pjrt_cpu_plugin, over XLA's CPU client in the tensorflow-cpu wheel.

Prints its path to stdout and the progress to stderr. Exit code 77: it cannot be had here (no wheel for this machine,
no network), with the reason on stderr. All lies in ${XDG_CACHE_HOME:-~/.cache}/torch_xla/pjrt_cpu; a second run only
looks there.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "pjrt_cpu_plugin"
VERSION = "2.21.0"
SHA256 = "2b847d217b02ee7731ed91431daf3250daa0196c3c94614d23be27232e6e5b6c"
LIBRARIES = ["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"]
UNAVAILABLE = 77
# XLA's inline code differs with and without NDEBUG, and the wheel was built with it.
FLAGS = ["-std=c++17", "-fPIC", "-O2", "-DNDEBUG", "-w", "-fvisibility=hidden"]


class UnavailableError(Exception):
    """The wheel cannot be had on this machine."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "torch_xla" / "pjrt_cpu" / VERSION


def download_wheel(folder: Path) -> Path:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise UnavailableError(f"the wheel is for Linux on x86_64, this is {platform.system()} on {platform.machine()}")
    say(f"downloading tensorflow-cpu {VERSION} (274 MB)")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", folder]
    target = ["--implementation=cp", "--python-version=3.11", "--abi=cp311", "--platform=manylinux_2_27_x86_64"]
    wanted = ["--no-deps", "--only-binary=:all:", f"tensorflow-cpu=={VERSION}"]
    result = subprocess.run([*pip, *target, *wanted], stdout=sys.stderr, check=False)
    if result.returncode:
        raise UnavailableError(f"pip could not download tensorflow-cpu {VERSION} (exit code {result.returncode})")
    (wheel,) = folder.glob("*.whl")
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != SHA256:
        raise SystemExit(f"{wheel.name} has the sha256 {found}, expected is {SHA256}: it is not used")
    return wheel


def unpack(wheel: Path, folder: Path) -> None:
    say("unpacking its headers and libraries (1 GB)")
    wanted = {f"tensorflow/{name}" for name in LIBRARIES}
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name in wanted or name.startswith("tensorflow/include/")]
        archive.extractall(folder, names)


def fetch_tensorflow(cache: Path) -> Path:
    """The folder with the wheel's headers and libraries; complete when it has its name."""
    tensorflow = cache / "tensorflow"
    if not tensorflow.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            unpack(download_wheel(Path(scratch)), Path(scratch))
            os.replace(Path(scratch) / "tensorflow", tensorflow)
    return tensorflow


def source_hash() -> str:
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def compile_plugin(tensorflow: Path, output: Path) -> None:
    compiler = os.environ.get("CXX") or "g++"
    if not shutil.which(compiler):
        raise UnavailableError(f"there is no compiler {compiler}")
    say("compiling the plugin (about a minute)")
    include = tensorflow / "include"
    folders = [SOURCES / "stub", include, include / "external/highwayhash", include / "external/farmhash_archive/src"]
    libraries = [tensorflow / name for name in LIBRARIES]
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        built = Path(scratch) / output.name
        command = [
            compiler,
            *FLAGS,
            *(f"-I{folder}" for folder in folders),
            "-shared",
            "-o",
            built,
            SOURCES / "plugin.cpp",
        ]
        subprocess.run([*command, *libraries, f"-Wl,-rpath,{tensorflow}", "-Wl,--no-undefined"], check=True)
        os.replace(built, output)


def main() -> int:
    cache = cache_folder()
    plugin = cache / f"libpjrt_cpu-{source_hash()}.so"
    try:
        if not plugin.is_file():
            compile_plugin(fetch_tensorflow(cache), plugin)
    except UnavailableError as error:
        say(f"no PJRT plugin for the CPU: {error}")
        return UNAVAILABLE
    except subprocess.CalledProcessError as error:
        say(f"no PJRT plugin for the CPU: the compiler failed with exit code {error.returncode}")
        return 1
    print(plugin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
