"""docs/custom_operators.md: operations of users are recorded as their parts and fuse; what runs on the CPU is counted.

The C++ form: examples/cpp/custom_operator.cpp (`make test-cpp-package`).
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import torch_xla
import torch_xla.debug.metrics as met
from torch_xla import _XLAC

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "custom_operators.md").read_text()
DTYPES = [torch.float32, torch.float64]


@pytest.fixture(scope="module")
def page() -> dict:
    """What the page's Python code defines: run once, as operations are registered once."""
    names = {}
    for program in re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL):
        exec(program, names)
    return names


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    """A library of operations that ends with the test."""
    with torch.library._scoped_library("custom_operators_tests", "DEF") as library:
        yield library


def steps(function) -> tuple[list[str], int]:
    """What the programs that the function records are made of, by name, and how many of them ran."""
    torch_xla.sync(wait=True)
    _XLAC._start_events()
    try:
        kept = function()
        torch_xla.sync(wait=True)
        del kept
    finally:
        events = _XLAC._stop_events()
    names = [event["name"] for event in events if event["phase"] in ("kernel", "library", "update")]
    return names, sum(event["phase"] == "run" for event in events)


def inputs(device, dtype=torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """The same numbers on the CPU and on the device, both with gradients."""
    x = torch.linspace(-30, 30, 24 * 10, dtype=dtype).sin().reshape(24, 10) * 3
    return x.requires_grad_(), x.detach().to(device).requires_grad_()


def check_gradients(function, reference, device, dtype) -> None:
    host, x = inputs(device, dtype)
    weights = torch.arange(host.numel(), dtype=dtype).reshape(host.shape).cos()
    got, expected = function(x), reference(host)
    torch.testing.assert_close(got.cpu(), expected)
    (got * weights.to(device)).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), host.grad)


# ---- The page ----
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_and_gradients_of_a_custom_op(device, page, dtype):
    def reference(x):
        return x * torch.sigmoid(1.702 * x) * 2

    check_gradients(lambda x: page["quick_gelu"](x, 2.0), reference, device, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_and_gradients_by_keys(device, page, dtype):
    check_gradients(
        lambda x: torch.ops.mylib_by_keys.scaled_norm(x, 1e-5), lambda x: page["scaled_norm"](x, 1e-5), device, dtype
    )


@pytest.mark.parametrize("name", ["mylib.quick_gelu", "mylib_by_keys.scaled_norm", "mylib.clip_rows"])
def test_parts_fuse_with_what_stands_around_them(device, page, name):
    namespace, operation = name.split(".")
    function = getattr(getattr(torch.ops, namespace), operation)
    x = inputs(device)[1].detach()
    met.clear_all()
    names, runs = steps(lambda: (function(x * 2, 0.5) + 1).relu())
    assert runs == 1 and len(names) == 1, names
    assert met.executed_fallback_ops() == [] and met.counter_value(name.replace(".", "::")) is None


def test_a_kernel_for_the_device_gives_what_that_of_the_cpu_gives(device, page):
    host, x = inputs(device)
    torch.testing.assert_close(page["clip_rows"](x.detach(), 0.5).cpu(), page["clip_rows"](host.detach(), 0.5))


def test_autocast_computes_in_float32(device, page):
    x = torch.randn(4, 8, device=device, dtype=torch.bfloat16)
    for function in (page["quick_gelu"], torch.ops.mylib_by_keys.scaled_norm):
        with torch.autocast("xla"):
            inside = function(x, 2.0)
        assert inside.dtype == torch.float32
        torch.testing.assert_close(inside, function(x.float(), 2.0))
        assert function(x, 2.0).dtype == torch.bfloat16


def test_a_custom_op_within_compiled_functions(device, page):
    x = inputs(device)[1].detach()
    compiled = torch.compile(lambda x: page["quick_gelu"](x, 2.0) + 1, backend="openxla", fullgraph=True)
    torch.testing.assert_close(compiled(x), page["quick_gelu"](x, 2.0) + 1)


def test_the_same_program_serves_all_calls(device, page, compiles):
    x = inputs(device)[1].detach()
    steps(lambda: page["quick_gelu"](x, 3.0) * 7)
    compiles.reset()
    steps(lambda: page["quick_gelu"](x, 4.0) * 7)
    assert compiles.value == 0


def test_the_page_shows_code_of_the_example():
    (code,) = re.findall(r"```cpp\n(.*?)```", DOCUMENT, re.DOTALL)
    assert code in (ROOT / "examples" / "cpp" / "custom_operator.cpp").read_text()


# ---- Kernels of other keys ----
def test_a_kernel_of_the_cpu_alone_is_a_fallback_that_is_counted(device, library):
    library.define("only_cpu(Tensor x) -> Tensor")
    library.impl("only_cpu", lambda x: torch.from_numpy(x.numpy() * 2), "CPU")
    met.clear_all()
    x = torch.arange(3.0, device=device)
    assert torch.ops.custom_operators_tests.only_cpu(x + 1).tolist() == [2, 4, 6]
    assert met.executed_fallback_ops() == ["custom_operators_tests::only_cpu"]
    assert "custom_operators_tests::only_cpu" in met.short_metrics_report()


def test_the_key_of_another_device_is_not_called(device, library):
    library.define("of_xla(Tensor x) -> Tensor")
    library.impl("of_xla", lambda x: x * 0, "XLA")
    with pytest.raises(NotImplementedError, match="of_xla"):
        torch.ops.custom_operators_tests.of_xla(torch.ones(2, device=device))


def test_a_composite_operation_needs_no_gradient_of_its_own(device, library):
    library.define("composite(Tensor x) -> Tensor")
    library.impl("composite", lambda x: x.sin() * x, "CompositeImplicitAutograd")
    function = torch.ops.custom_operators_tests.composite
    check_gradients(function, function, device, torch.float32)


def test_a_kernel_by_the_name_of_the_device(device, library):
    library.define("by_name(Tensor x) -> Tensor")
    torch.library.impl("custom_operators_tests::by_name", "xla", lambda x: x + 2, lib=library)
    assert torch.ops.custom_operators_tests.by_name(torch.ones(2, device=device)).tolist() == [3, 3]


def test_an_argument_that_is_written(device, library):
    library.define("add_to(Tensor(a!) x, Tensor y) -> ()")

    @torch.library.impl(library, "add_to", "PrivateUse1")
    def add_to(x, y):
        x.add_(y)

    x, y = torch.zeros(4, device=device), torch.ones(2, device=device)
    _, runs = steps(lambda: torch.ops.custom_operators_tests.add_to(x[:2], y * 3))
    assert runs == 1 and x.tolist() == [3, 3, 0, 0]


def test_a_custom_op_whose_argument_is_written(device):
    @torch.library.custom_op("custom_operators_writes::scale_", mutates_args={"x"})
    def scale_(x: torch.Tensor, factor: float) -> None:
        x.mul_(factor)

    x = torch.ones(3, device=device)
    version = x._version
    scale_(x, 4.0)
    assert x.tolist() == [4, 4, 4] and x._version > version


def test_several_results(device, library):
    library.define("parts(Tensor x, int[] sizes) -> Tensor[]")
    library.impl("parts", lambda x, sizes: [p.clone() for p in x.split(sizes)], "PrivateUse1")
    parts = torch.ops.custom_operators_tests.parts(torch.arange(5.0, device=device), [2, 3])
    assert [p.tolist() for p in parts] == [[0, 1], [2, 3, 4]]


def test_an_error_within_an_operation_is_raised_at_the_call(device, library):
    library.define("fails(Tensor x) -> Tensor")
    library.impl("fails", lambda x: x @ x, "PrivateUse1")
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        torch.ops.custom_operators_tests.fails(torch.ones(2, 3, device=device))
