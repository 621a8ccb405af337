#!/usr/bin/env python3
"""Checks what the package's libraries ask of a system: versions of functions that old ones have, and which libraries.

Takes libraries, or those of the source tree. Prints the newest versions that each asks for, then each offender, and
exits with 1 if there is one. Needs `readelf`.
"""

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "torch_xla" / "lib"

# What RHEL 9 has: glibc 2.34 and the libstdc++ of GCC 11. Debian 12 and Ubuntu 22.04 have more.
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}
SYSTEM = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
# What lies in the folder of a release of torch may need torch; not its OpenMP runtime, whose file has another name in
# each build of torch, and whose functions come with libtorch_cpu.so.
BESIDE_TORCH = re.compile(r"libtorch_xla\.so|libtorch(_cpu|_python)?\.so|libc10\.so")


def read(library: Path, *what: str) -> str:
    return subprocess.run(["readelf", "-W", *what, library], check=True, capture_output=True, text=True).stdout


def versions(symbols: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """The newest version of each kind that undefined symbols name, with such a symbol; from readelf's table."""
    newest: dict[str, tuple[tuple[int, ...], str]] = {}
    for name, kind, version in re.findall(r" UND (\S+?)@+([A-Z]+)_([\d.]+)", symbols):
        asked = tuple(map(int, version.split(".")))
        newest[kind] = max(newest.get(kind, ((), "")), (asked, name))
    return newest


def problems(symbols: str, dynamic: str, is_beside_torch: bool) -> list[str]:
    """The faults of a library, from the tables that readelf has written."""
    found = []
    for kind, (asked, name) in versions(symbols).items():
        if asked > NEWEST.get(kind, asked):
            text = ".".join(map(str, asked))
            found.append(
                f"asks for {name} of {kind}_{text}: older systems need a definition in src/core/old_systems.cpp"
            )
    for needed in re.findall(r"\(NEEDED\).*\[(\S+)\]", dynamic):
        if needed not in SYSTEM and not (is_beside_torch and BESIDE_TORCH.fullmatch(needed)):
            found.append(f"needs {needed}, which is no part of every system")
    return found


def main() -> int:
    libraries = [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.rglob("*.so"))
    if not libraries:
        print(f"no libraries in {FOLDER}")
        return 1
    failed = 0
    for library in libraries:
        symbols = read(library, "--dyn-syms")
        asked = {kind: ".".join(map(str, version)) for kind, (version, _) in sorted(versions(symbols).items())}
        print(f"{library.name}: {', '.join(f'{kind}_{version}' for kind, version in asked.items())}")
        for problem in problems(symbols, read(library, "--dynamic"), library.parent.name.startswith("torch2")):
            print(f"{library}: {problem}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
