"""`import torch` where this package is installed and cannot be loaded, or should not be: it works, and says so once."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import torch_xla
import torch_xla_autoload

PACKAGE = Path(torch_xla.__file__).parent
ENTRY = Path(torch_xla_autoload.__file__)
STAGED = Path(__file__).resolve().parents[2] / "tools/staged"  # with which folders come before a link to this tree
WARNING = "torch_xla is installed but cannot be loaded"

# Takes the place of the entry point's module: does a thing to torch first, as another machine would.
STAND_IN = """
    import importlib.util, sys
    import torch
    spec = importlib.util.spec_from_file_location(__name__, {entry!r})
    module = importlib.util.module_from_spec(spec)
    sys.modules[__name__] = module
    spec.loader.exec_module(module)
"""
# Of a build with this accelerator.
BUILT_WITH = "torch.accelerator.current_accelerator = lambda check_available=False: torch.device({name!r})\n"


@pytest.fixture
def run(tmp_path, python_path):
    """run(program, change): its output, where `change` is what the entry point's module finds done to torch."""

    def run_program(program: str, change: str = "", path: Path | None = None, options=(), **environment):
        if change:
            stand_in = textwrap.dedent(STAND_IN).format(entry=str(ENTRY)) + textwrap.dedent(change)
            (tmp_path / "torch_xla_autoload.py").write_text(stand_in)
        asked = ("PJRT_DEVICE", "CUDA_VISIBLE_DEVICES")
        cleared = {name: value for name, value in os.environ.items() if name not in asked}
        done = subprocess.run(
            [sys.executable, *options, "-c", textwrap.dedent(program)],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env={**cleared, "PYTHONPATH": python_path(path or tmp_path, STAGED), **environment},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, done.stderr

    return run_program


WORKS = """
    import sys, torch
    print((torch.ones(2) + 1).tolist(), torch.accelerator.current_accelerator(True), "torch_xla" in sys.modules)
"""
USES = """
    import torch
    try:
        torch.empty(1, device="xla")
    except RuntimeError as error:
        print(error)
    try:
        import torch_xla
    except ImportError as error:
        print(error)
"""
UNFIT = "torch.__version__ = torch.torch_version.TorchVersion('2.99.0')"


def test_an_unfit_torch_is_one_warning(run):
    out, err = run(WORKS, UNFIT)
    assert out == "[2.0, 2.0] None False\n"
    assert err.count("Warning") == err.count(WARNING) == 1
    assert "2.99.0" in err and "pip uninstall torch_xla" in err and "Traceback" not in err


def test_an_unfit_torch_is_the_error_of_each_use(run):
    lines = run(USES, UNFIT)[0].splitlines()
    assert len(lines) == 2 and lines[0] == f"{WARNING}: {lines[1]}" and "2.99.0" in lines[1]


def test_it_warns_of_the_line_that_imports_torch(run):
    (_, err) = run("\nimport torch", UNFIT)
    assert err.startswith("<string>:2: RuntimeWarning: torch_xla")


def test_warnings_that_are_errors_do_not_end_the_import(run):
    out, err = run(WORKS, UNFIT, options=["-W", "error"])
    assert out == "[2.0, 2.0] None False\n" and err.count(WARNING) == 1


def test_processes_that_a_program_starts_do_not_warn_again(run):
    program = """
        import multiprocessing, torch
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(torch.add, (1, 1)))
    """
    out, err = run(program, UNFIT)
    assert out == "tensor(2)\n" and err.count(WARNING) == 1


def test_libraries_that_cannot_load_are_one_warning(run, tmp_path):
    for folder in (PACKAGE, ENTRY.parent):
        for path in folder.rglob("*"):
            link = tmp_path / "tree" / folder.name / path.relative_to(folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".so":
                link.touch()
            elif path.suffix == ".py":
                link.symlink_to(path)
    out, err = run(WORKS, path=tmp_path / "tree")
    assert out == "[2.0, 2.0] None False\n" and err.count("Warning") == err.count(WARNING) == 1
    lines = run(USES, path=tmp_path / "tree")[0].splitlines()
    assert len(lines) == 2 and lines[0].startswith(WARNING) and ".so" in lines[1]


def test_an_error_that_is_no_import_error_is_a_warning(run):
    out, err = run(WORKS, "torch.utils.rename_privateuse1_backend = None")
    assert out.startswith("[2.0, 2.0] None") and "TypeError: 'NoneType' object is not callable" in err
    assert err.count("Warning") == err.count(WARNING) == 1


# The second registration would fail at what the first one has left.
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("module.library = torch.library.Library('xla', 'DEF')", "TORCH_LIBRARY"),
        ("torch._register_device_module = None", "'NoneType' object is not callable"),
    ],
)
def test_later_imports_raise_the_first_error(run, change, reason):
    program = """
        import torch
        for _ in range(2):
            try:
                import torch_xla
            except Exception as error:
                print(str(error).splitlines()[0])
    """
    out, err = run(program, change)
    first, second = out.splitlines()
    assert first == second and reason in first and WARNING in err


def test_a_registration_that_fails_leaves_the_accelerator(run):
    out, _ = run(WORKS, "module.library = torch.library.Library('xla', 'DEF')")
    assert out == "[2.0, 2.0] None False\n"


# ---- Where torch has another accelerator ----
LOADS = "import sys, torch\nprint('torch_xla' in sys.modules, torch._C._get_privateuse1_backend_name())"
HAS_GPU = BUILT_WITH.format(name="cuda") + "module._CUDA_FILES = ('/dev/null*',)"
HAS_XPU = BUILT_WITH.format(name="xpu") + "torch.xpu.is_available = lambda: True"


@pytest.mark.parametrize("change", [HAS_GPU, HAS_XPU])
def test_it_stays_away_from_another_accelerator(run, change):
    assert run(LOADS, change) == ("False privateuseone\n", "")


@pytest.mark.parametrize("change", [HAS_GPU, HAS_XPU])
def test_it_comes_beside_another_accelerator_where_it_is_asked_for(run, change):
    assert run(LOADS, change, PJRT_DEVICE="CPU") == ("True xla\n", "")
    program = "import torch, torch_xla\nprint(torch.ones(2, device='xla').tolist())"
    assert run(program, change) == ("[1.0, 1.0]\n", "")
    assert run(program.replace("torch, torch_xla", "torch_xla, torch"), change) == ("[1.0, 1.0]\n", "")


def test_the_first_use_beside_another_accelerator_says_how_to_load_it(run):
    out, err = run(USES, HAS_GPU)
    assert "beside the accelerator cuda" in out and "`import torch_xla`" in out and "PJRT_DEVICE" in out and not err


@pytest.mark.parametrize(
    ("change", "environment"),
    [
        (BUILT_WITH.format(name="cuda") + "module._CUDA_FILES = ('/nowhere*',)", {}),  # no GPU
        (HAS_GPU, {"CUDA_VISIBLE_DEVICES": ""}),  # hidden ones
        (HAS_GPU, {"CUDA_VISIBLE_DEVICES": "-1"}),
        (BUILT_WITH.format(name="xpu") + "torch.xpu.is_available = lambda: False", {}),
    ],
)
def test_a_build_for_accelerators_that_are_not_there_has_the_device(run, change, environment):
    guard = "def fail(*args): raise AssertionError('the driver was asked')\ntorch._C._cuda_getDeviceCount = fail\n"
    assert run(LOADS, guard + change, **environment) == ("True xla\n", "")


def test_a_visible_gpu_is_one(run):
    assert run(LOADS, HAS_GPU, CUDA_VISIBLE_DEVICES="0,1") == ("False privateuseone\n", "")


def test_it_stays_away_from_the_backend_of_another_package(run, tmp_path):
    assert run(LOADS, "torch.utils.rename_privateuse1_backend('other')") == ("False other\n", "")
    other = tmp_path / "other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[torch.backends]\nother = other_backend:load\n")
    (tmp_path / "other_backend.py").write_text("def load(): pass\n")
    assert run(LOADS, "pass") == ("False privateuseone\n", "")
    assert run(LOADS, "pass", PJRT_DEVICE="CPU") == ("True xla\n", "")
