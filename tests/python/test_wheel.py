"""How wheels and source archives are built: for what, what they ask for, what is said where something is missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import make_wheel
import wheel_places

ROOT = Path(__file__).resolve().parents[2]
cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")


def run_cmake(script: str, *definitions: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["cmake", *(f"-D{definition}" for definition in definitions), "-P", ROOT / "cmake" / script]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


def make_program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# ---- What a build finds, and what it says ----
def test_the_torch_of_the_environment_is_found_where_pip_hides_it():
    hidden = """
import runpy, sys
sys.path = [path for path in sys.path if "site-packages" not in path]
runpy.run_path(sys.argv[1])
"""
    command = [sys.executable, "-c", hidden, ROOT / "cmake" / "find_torch.py"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(found).samefile(torch.__path__[0])


@cmake
def test_a_build_without_torch(tmp_path):
    said = run_cmake("Torch.cmake", f"Python_EXECUTABLE={make_program(tmp_path / 'python', 'exit 0')}").stderr
    assert f"{tmp_path}/python has none" in " ".join(said.split())
    assert "pip install torch" in said and "--no-build-isolation" in said


@cmake
@pytest.mark.parametrize(
    "config, problem",
    [
        (None, "fails: no such file or directory"),
        ("echo 18.1.8", "is of LLVM 18.1.8"),
        ('[ "$2" = --version ] && echo 19.1.7 || { echo no libLLVMCore.a >&2; exit 1; }', "fails: 1 no libLLVMCore.a"),
    ],
)
def test_a_build_without_llvm(tmp_path, config, problem):
    program = tmp_path / "llvm-config"
    if config is not None:
        make_program(program, config)
    # By the variable of the environment, as pip's user sets it.
    done = run_cmake("Llvm.cmake", LLVM_CONFIG=str(program))
    said = " ".join(done.stderr.split())
    assert done.returncode != 0 and str(program) in said and problem.lower() in said.lower()
    assert "apt-get install g++ llvm-19-dev" in said and "LLVM_CONFIG=" in said


def write_headers(folder: Path, minor: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "Python.h").touch()
    lines = ["#define PY_MAJOR_VERSION\t3", f"#define PY_MINOR_VERSION\t{minor}", "#define PY_MICRO_VERSION\t2"]
    (folder / "patchlevel.h").write_text("\n".join(lines))
    return folder


@cmake
def test_headers_of_another_python(tmp_path):
    # As Debian lays them out: pyconfig.h includes <x86_64-linux-gnu/python3.99/pyconfig.h>.
    headers = write_headers(tmp_path / "include" / "python3.99", 99)
    own = tmp_path / "include" / "x86_64-linux-gnu" / "python3.99" / "pyconfig.h"
    own.parent.mkdir(parents=True)
    own.touch()
    lines = [f"include({ROOT}/cmake/Bindings.cmake)", f"xla_python_of(python {headers})"]
    (tmp_path / "test.cmake").write_text("\n".join([*lines, 'message("${python_SOABI} ${python_INCLUDES}")']))
    settings = ["Python_SOABI=cpython-311-x86_64-linux-gnu", "CMAKE_LIBRARY_ARCHITECTURE=x86_64-linux-gnu"]
    said = run_cmake(tmp_path / "test.cmake", *settings, f"PROJECT_BINARY_DIR={tmp_path}/build").stderr
    soabi, includes = said.split()
    assert soabi == "cpython-399-x86_64-linux-gnu"
    first, configs = includes.split(";")
    assert Path(first) == headers
    assert (Path(configs) / "x86_64-linux-gnu" / "python3.99" / "pyconfig.h").samefile(own)
    assert make_wheel.version_of(make_wheel.headers_of(str(headers))) == "3.99"


# ---- What a wheel asks for ----
@pytest.mark.parametrize(
    "versions, specifier",
    [
        (["2.13"], ">=2.13,<2.14"),
        (["2.15", "2.13", "2.14"], ">=2.13,<2.16"),
        (["3.9", "3.10", "3.13"], ">=3.9,<3.14,!=3.11.*,!=3.12.*"),
    ],
)
def test_the_versions_that_it_serves(versions, specifier):
    assert make_wheel.span(versions) == specifier


def test_the_metadata():
    metadata = "Requires-Python: >=3.10\nRequires-Dist: torch>=2.13\nRequires-Dist: torchvision; extra == 'dev'\n"
    text = make_wheel.replaced(metadata, "Requires-Dist: torch", ">=2.13,<2.16")
    assert text == metadata.replace("torch>=2.13", "torch>=2.13,<2.16")
    assert make_wheel.replaced(metadata, "Requires-Python:", " >=3.11").startswith("Requires-Python: >=3.11\n")
    with pytest.raises(AssertionError, match="0 lines begin with Tag:"):
        make_wheel.replaced(metadata, "Tag:", "py3")


# ---- Where it is tried ----
def test_how_a_release_is_named():
    assert wheel_places.interpreter("/opt/py/bin/python") == "/opt/py/bin/python"
    assert wheel_places.interpreter("2.15.0=env/bin/python") == str(Path("env/bin/python").absolute())
    assert wheel_places.interpreter("2.14.1") == str(ROOT / "build/releases/2.14.1/venv/bin/python")


def test_a_place_that_cannot_be_had(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(wheel_places.Skipped, match="needs root and the program debootstrap"):
        wheel_places.unpacked_debian("bookworm", tmp_path)
    with pytest.raises(wheel_places.Skipped, match="python in /: does not start"):
        wheel_places.of_environment(str(make_program(tmp_path / "python", "exit 1")))


def test_nothing_of_this_process_is_seen_in_a_place(monkeypatch):
    for name in ("PYTHONPATH", "XLA_DEBUG", "PJRT_DEVICE", "LD_PRELOAD"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("LANG", "C")
    seen = wheel_places.environment("/home/user")
    assert seen["LANG"] == "C" and seen["HOME"] == "/home/user"
    assert not [name for name in seen if name.startswith(("PYTHON", "XLA", "PJRT", "LD_"))]
