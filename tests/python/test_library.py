"""The package's libraries: which is chosen, when the compiler is loaded, what becomes of one that cannot be."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_xla
from torch_xla import _library, _XLAC

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_symbols  # noqa: E402

COMPILER = "libtorch_xla_compiler.so"


@pytest.mark.parametrize(
    "built, sentence",
    [
        (
            ["2.9 {here}", "2.13 {here}"],
            "was built for torch 2.9 and 2.13 on Python {here}, but this is torch 2.12.1+cpu on Python {here}: "
            '`pip install "torch==2.13.*"` installs one that fits',
        ),
        (
            ["2.13 3.98", "2.14 3.99", "2.14 3.98"],
            "was built for torch 2.13 on Python 3.98, torch 2.14 on Python 3.98 and 3.99, but this is torch 2.12.1+cpu "
            "on Python {here}: make an environment with `python3.99 -m venv` and install it there",
        ),
        (
            [],
            "has no libraries in {folder} for torch 2.12.1+cpu on Python {here}, nor any other: `make dev` builds them",
        ),
    ],
)
def test_an_environment_that_does_not_fit(tmp_path, built, sentence):
    here = "{}.{}".format(*sys.version_info)
    for place in built:
        release, python = place.format(here=here).split()
        (tmp_path / f"torch{release}").mkdir(exist_ok=True)
        (tmp_path / f"torch{release}" / f"_XLAC.cpython-{python.replace('.', '')}-x86_64-linux-gnu.so").touch()
    with pytest.raises(ImportError) as error:
        _library.find(tmp_path, "2.12.1+cpu")
    assert str(error.value) == f"torch_xla {torch_xla.__version__} {sentence.format(here=here, folder=tmp_path)}"


def test_the_library_of_the_torch_at_hand():
    release = ".".join(torch.__version__.split(".")[:2])
    assert Path(_XLAC.__file__).parent == _library.FOLDER / f"torch{release}"
    assert "{}.{}".format(*sys.version_info) in _library.built_for(_library.FOLDER)[release]
    assert Path(_library.find(_library.FOLDER, f"{release}.7+cu130").origin) == Path(_XLAC.__file__)
    assert torch_xla._XLAC is sys.modules["torch_xla._XLAC"] is _XLAC


# ---- The compiler ----
@pytest.mark.parametrize("operations, is_loaded", [(0, True), (1_000_000_000, False)], ids=["compiled", "interpreted"])
def test_the_compiler_is_loaded_at_the_first_compile(run_python, tmp_path, operations, is_loaded):
    out = run_python(
        f"""
        from pathlib import Path
        import torch
        import torch_xla
        def is_loaded():
            return {COMPILER!r} in Path("/proc/self/maps").read_text()
        x = torch.ones(2, device="xla")
        y = x + 1
        print(is_loaded())
        print(y.tolist(), is_loaded())
        """,
        XLA_INTERPRETED_OPERATIONS=str(operations),
        XLA_PERSISTENT_CACHE_PATH=str(tmp_path),
    )
    assert out == f"False\n[2.0, 2.0] {is_loaded}\n"


@pytest.fixture
def linked_package(tmp_path) -> Path:
    """A folder, for PYTHONPATH, with links to the files of the package but for the compiler."""
    package = Path(torch_xla.__file__).parent
    libraries = Path(_XLAC.__file__).parent
    folder = tmp_path / "torch_xla" / "lib" / libraries.name
    folder.mkdir(parents=True)
    for source, target in ((package, tmp_path / "torch_xla"), (libraries, folder)):
        for path in source.iterdir():
            if path.name not in ("lib", "__pycache__"):
                (target / path.name).symlink_to(path)
    return tmp_path


@pytest.fixture
def run_failing_compile(run_python, linked_package, python_path):
    return lambda: run_python(
        """
        import torch, torch_xla
        x = torch.ones(2, device="xla")
        for _ in range(2):
            try:
                (x + 1).tolist()
            except RuntimeError as error:
                print(torch_xla.__file__, type(error).__name__, error)
        """,
        PYTHONPATH=python_path(linked_package, ROOT / "tools" / "staged"),
        PYTHONSAFEPATH="1",
    )


def test_a_compiler_that_is_not_there(run_failing_compile, linked_package):
    out = run_failing_compile()
    path = re.escape(str(linked_package / "torch_xla"))
    told = rf"{path}/__init__\.py RuntimeError .*{path}/\S*{COMPILER}: cannot open shared object file: No such file"
    assert len(re.findall(told, out)) == 2, out


def test_a_compiler_of_another_build(run_failing_compile, linked_package):
    other = Path(torch.__file__).parent / "lib" / "libc10.so"
    (linked_package / "torch_xla" / "lib" / COMPILER).symlink_to(other)
    out = run_failing_compile()
    assert len(re.findall(rf"RuntimeError .*{COMPILER}, is of another build than libtorch_xla\.so", out)) == 2, out


# ---- What they ask of a system ----
def test_what_the_libraries_ask_of_a_system():
    if shutil.which("readelf") is None:
        pytest.skip("needs readelf, which comes with a compiler")
    libraries = sorted(_library.FOLDER.rglob("*.so"))
    assert {COMPILER, "libtorch_xla.so"} < {library.name for library in libraries}
    done = subprocess.run([check_symbols.__file__, *libraries], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


SYMBOLS = """
    1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND getrandom@GLIBC_2.25 (3)
    2: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND arc4random@GLIBC_2.36 (3)
    3: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND omp_pause_resource@OMP_5.0 (9)
    4: 0000000000001000    26 FUNC    GLOBAL DEFAULT   14 own@@GLIBC_2.99
"""
DYNAMIC = """
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [libtorch_cpu.so]
 0x0000000000000001 (NEEDED)             Shared library: [libzstd.so.1]
"""


def test_a_library_that_asks_for_more_is_found():
    new = "asks for arc4random of GLIBC_2.36"
    found = check_symbols.problems(SYMBOLS, DYNAMIC, is_beside_torch=False)
    assert [text.split(":")[0].split(",")[0] for text in found] == [new, "needs libtorch_cpu.so", "needs libzstd.so.1"]
    found = check_symbols.problems(SYMBOLS, DYNAMIC, is_beside_torch=True)
    assert [text.split(":")[0].split(",")[0] for text in found] == [new, "needs libzstd.so.1"]
    assert not check_symbols.problems(SYMBOLS.replace("2.36", "2.34"), "", is_beside_torch=False)
