#!/usr/bin/env python3
"""Fetches PJRT plugins from pinned wheels: compilers of accelerators that need not be here, and XLA's CPU client.

    tools/compilers/wheels.py [NAME | --header]

Prints the path of a plugin's shared object (default: lammps-jax-pjrt-cpu), or of PJRT's C header, to stdout, the
progress to stderr. Exit code 77: it cannot be had here (no wheel for this machine, no network); stderr says why. All
lies in ${XDG_CACHE_HOME:-~/.cache}/torch_xla/wheels; a second run only looks there.
"""

import dataclasses
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

UNAVAILABLE = 77


class UnavailableError(Exception):
    """The wheel cannot be had on this machine."""


@dataclasses.dataclass(frozen=True)
class Wheel:
    """A release of a package with a plugin."""

    file: str  # its name has the package, the release and what it is for
    sha256: str
    megabytes: int  # of the download
    plugin: str  # within the wheel
    header: str = ""  # PJRT's own, of the release that the plugin was built with

    @property
    def package(self) -> str:
        """The name on the registry."""
        return self.file.split("-")[0].replace("_", "-")

    @property
    def release(self) -> str:
        """The version."""
        return self.file.split("-")[1]


CPU = "lammps-jax-pjrt-cpu"
_WHEELS = (
    Wheel(
        "libtpu-0.0.52-cp311-cp311-manylinux_2_31_x86_64.whl",
        "f5e2e596eaea9357fbb5a6755a7a9007c6ab75bfde4a55191b03eff402971140",
        137,
        "libtpu/libtpu.so",
    ),
    Wheel(
        "jax_cuda13_pjrt-0.10.2-py3-none-manylinux_2_27_x86_64.whl",
        "a97e9cabe0e21d8dbcc70bd909ca1c34cd546d3ce2d94b4cd907a8d4f6179f6a",
        124,
        "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
    ),
    Wheel(
        "jax_tt_plugin-0.1.3-py3-none-manylinux_2_34_x86_64.whl",
        "10f2fe2f77b3f0d25a68a9fbf53dab713b1edd854f1ab50bf973783c9be9da83",
        84,
        "jax_plugins/libtt/libtt.so",
    ),
    Wheel(
        "lammps_jax_pjrt_cpu-0.11.2-py3-none-manylinux_2_27_x86_64.whl",
        "1319390d948b39f69f7dade496b7c385149d9ca6097a6b62114da113216d9ad1",
        63,
        "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
    ),
    Wheel(
        "fastatomstruct_xla_cpu-2026.6.23-py3-none-manylinux_2_27_x86_64.whl",
        "88b1c430b341b4bea40a37420311c9c75db6e22b46d2ff95b6986577bee6afe9",
        63,
        "fastatomstruct_xla_cpu/libpjrt_cpu.so",
    ),
    Wheel(
        "xla_cpu_pjrt-0.0.1-py3-none-manylinux_2_27_x86_64.whl",
        "55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc",
        63,
        "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
        "xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h",
    ),
)
WHEELS = {wheel.package: wheel for wheel in _WHEELS}


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def cache_folder() -> Path:
    """Where the plugins are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "torch_xla" / "wheels"


def _folder_of(wheel: Wheel) -> Path:
    return cache_folder() / f"{wheel.package}-{wheel.release}-{wheel.sha256[:8]}"


def _download(wheel: Wheel, folder: Path) -> Path:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise UnavailableError(f"the wheel is for Linux on x86_64, this is {platform.system()} on {platform.machine()}")
    say(f"downloading {wheel.package} {wheel.release} ({wheel.megabytes} MB)")
    *_, abi, tag = wheel.file.removesuffix(".whl").split("-")
    target = [f"--platform={tag}", "--implementation=cp", "--python-version=3.11"]
    target += [] if abi == "none" else [f"--abi={abi}"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", folder]
    wanted = ["--no-deps", "--only-binary=:all:", f"{wheel.package}=={wheel.release}"]
    result = subprocess.run([*pip, *target, *wanted], stdout=sys.stderr, check=False)
    if result.returncode:
        raise UnavailableError(f"pip could not download {wheel.package} {wheel.release} (exit {result.returncode})")
    return folder / wheel.file


def _check(wheel: Wheel, path: Path) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != wheel.sha256:
        raise SystemExit(f"{wheel.file} has the sha256 {found}, expected is {wheel.sha256}: it is not used")


def _unpack(wheel: Wheel, folder: Path, scratch: Path) -> None:
    """Fetches the wheel and puts its files into the folder, the plugin last."""
    archive = _download(wheel, scratch)
    _check(wheel, archive)
    say(f"unpacking its plugin into {folder}")
    with zipfile.ZipFile(archive) as unpacked:
        for name in filter(None, [wheel.header, wheel.plugin]):
            unpacked.extract(name, scratch)
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(scratch / name, folder / name)


def fetch(name: str) -> Path:
    """The path of the plugin of that package, which is fetched if it is not there.

    Raises UnavailableError, and SystemExit for a wheel that is not the pinned one.
    """
    wheel = WHEELS[name]
    folder = _folder_of(wheel)
    plugin = folder / wheel.plugin
    if not plugin.is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _unpack(wheel, folder, Path(scratch))
    return plugin


def fetch_header() -> Path:
    """The path of PJRT's C header, which one of the wheels has. Raises what fetch() does."""
    wheel = next(wheel for wheel in _WHEELS if wheel.header)
    fetch(wheel.package)
    return _folder_of(wheel) / wheel.header


def main() -> int:
    """Prints the path of one plugin."""
    name = sys.argv[1] if len(sys.argv) > 1 else CPU
    if name not in [*WHEELS, "--header"]:
        raise SystemExit(f"{name} is no wheel with a plugin that is known here; these are: {', '.join(WHEELS)}")
    try:
        print(fetch_header() if name == "--header" else fetch(name))
    except UnavailableError as error:
        say(f"{name} cannot be fetched: {error}")
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
