"""What C++ programs take of the package, and how its library registers the device: once, whoever loads it.

`make test-cpp-package` builds and runs such programs.
"""

import re
from pathlib import Path

import torch

import torch_xla

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(torch_xla._XLAC.__file__).parent / "libtorch_xla.so"


def test_cmake_finds_the_package_and_pytorch():
    ours, theirs = (Path(path) for path in torch_xla.cmake_prefix_path.split(";"))
    assert theirs == Path(torch.utils.cmake_prefix_path)
    config = (ours / "torch_xla" / "torch_xlaConfig.cmake").read_text()
    assert "lib/torch${torch_xla_RELEASE}/libtorch_xla.so" in config
    # As the file says: all is found by its place.
    package = ours.parent.parent
    release = ".".join(torch.__version__.split(".")[:2])
    assert (package / "lib" / f"torch{release}" / "libtorch_xla.so").samefile(LIBRARY)
    header = (package / "include" / "torch_xla" / "torch_xla.h").read_text()
    assert header == (ROOT / "include" / "torch_xla" / "torch_xla.h").read_text()


def test_the_library_is_loaded_before_the_package(run_python):
    out = run_python(
        f"""
        import torch
        torch.ops.load_library({str(LIBRARY)!r})
        assert torch.device("xla:0").type == torch._C._get_privateuse1_backend_name() == "xla"
        assert torch.get_autocast_dtype("xla") is torch.bfloat16
        import torch_xla
        print((torch.ones(2, device="xla") + 1).tolist())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert out == "[2.0, 2.0]\n"


def test_another_backend_has_the_place(run_python):
    out = run_python(
        """
        import torch
        torch.utils.rename_privateuse1_backend("other")
        try:
            import torch_xla
        except ImportError as error:
            print("ImportError:", str(error).splitlines()[0])
        print(torch.ones(2).tolist())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    reason = r"torch\.register_privateuse1_backend\(\) has already been set! Current backend: other\n"
    told = f"torch_xla: the device xla is not registered: {reason}"
    assert re.search(told, out) and re.search(f"ImportError: {reason}", out) and "[1.0, 1.0]\n" in out, out


def test_the_page_shows_code_of_the_examples():
    page = (ROOT / "docs" / "cpp.md").read_text()
    sources = (ROOT / "examples" / "cpp" / "train_digits.cpp").read_text()
    (code,) = re.findall(r"```cpp\n(.*?)```", page, re.DOTALL)
    lines = [line.strip() for line in sources.splitlines()]
    start = lines.index(code.splitlines()[0])
    assert lines[start : start + len(code.splitlines())] == code.splitlines()
    functions = re.findall(r"^[\w:<>]+ (\w+)\(", (ROOT / "include/torch_xla/torch_xla.h").read_text(), re.MULTILINE)
    assert f"its few functions: {', '.join(f'`{name}`' for name in functions)}." in " ".join(page.split())
