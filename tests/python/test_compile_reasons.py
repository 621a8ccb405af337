"""Why a program was compiled: the record that every compile leaves, and what XLA_DEBUG=1 prints of it."""

import os
from pathlib import Path

import pytest
import torch

import torch_xla
from torch_xla import _XLAC


@pytest.fixture
def reasons(compiles):
    """Function that runs a body with a sync and returns the reasons for the compiles that it caused."""

    def collect(body) -> list[dict]:
        compiles.reset()
        keep = body()  # alive at the sync
        torch_xla.sync(wait=True)
        del keep
        every = _XLAC._compile_reasons()
        return every[len(every) - compiles.value :]

    return collect


def run(*bodies):
    """Runs the bodies, a sync after each."""
    for body in bodies:
        keep = body()
        torch_xla.sync(wait=True)
        del keep


def test_a_hit_has_no_reason(device, reasons):
    x = torch.ones(11, 3, device=device)
    body = lambda: x.mul(3).add(1.5).sin()  # noqa: E731
    run(lambda: None, body)
    assert reasons(body) == []


def test_another_shape_names_the_input(device, reasons):
    a, b = torch.ones(12, 3, device=device), torch.ones(13, 3, device=device)
    run(lambda: None, lambda: a.mul(2).sin().cosh())
    (reason,) = reasons(lambda: b.mul(2).sin().cosh())
    assert reason["kind"] == "shape"
    assert "aten::mul.Tensor" in reason["what"] and "f32[13,3]" in reason["what"] and "f32[12,3]" in reason["what"]
    assert "test_compile_reasons.py" in reason["line"] and "test_compile_reasons.py" in reason["line_before"]
    assert reason["line"] != reason["line_before"]


def test_another_dtype(device, reasons):
    a, b = torch.ones(14, 3, device=device), torch.ones(14, 3, device=device, dtype=torch.float64)
    run(lambda: None, lambda: a.mul(2).sinh().atan())
    (reason,) = reasons(lambda: b.mul(2).sinh().atan())
    assert reason["kind"] == "dtype"
    assert "f64[14,3]" in reason["what"] and "f32[14,3]" in reason["what"]


def test_a_number_of_another_dtype(device, reasons):
    x = torch.ones(22, 3, device=device)
    run(lambda: None, lambda: x.mul(2).sinh().acos())
    (reason,) = reasons(lambda: x.mul(2.5).sinh().acos())
    assert reason["kind"] == "dtype"
    assert reason["what"] == "aten::mul.Tensor takes as operand 1 an f64 number, before an i64 number"
    assert "test_compile_reasons.py" in reason["line"] and "test_compile_reasons.py" in reason["line_before"]


def test_another_constant(device, reasons):
    x = torch.ones(15, 4, 4, device=device)
    run(lambda: None, lambda: x.tan().sum(1).erf())
    (reason,) = reasons(lambda: x.tan().sum(2).erf())
    assert reason["kind"] == "constant"
    assert "aten::sum" in reason["what"] and "[2]" in reason["what"] and "[1]" in reason["what"]


def test_another_slice(device, reasons):
    x = torch.ones(16, 8, device=device)
    run(lambda: None, lambda: x[2:4].asinh().erfc())
    (reason,) = reasons(lambda: x[3:5].asinh().erfc())
    assert reason["kind"] == "constant"
    assert "offset" in reason["what"] and "24" in reason["what"] and "16" in reason["what"]


def test_another_operation(device, reasons):
    x = torch.ones(17, 3, device=device)

    def program(branch):
        y = x.log1p().expm1().atanh()
        y = y.relu() if branch else y.abs()
        return y.acosh().digamma()

    run(lambda: None, lambda: program(True))
    (reason,) = reasons(lambda: program(False))
    assert reason["kind"] == "operation"
    assert "aten::abs comes, before aten::relu" in reason["what"]
    assert reason["line"].endswith("program")


def test_one_operation_more(device, reasons):
    x = torch.ones(18, 3, device=device)

    def program(turns):
        y = x.exp2()
        for _ in range(turns):
            y = y.hypot(x)
        return y

    run(lambda: None, lambda: program(3))
    (reason,) = reasons(lambda: program(4))
    assert reason["kind"] == "operation"
    assert "the end of the trace" in reason["what"] and "1 operations more" in reason["what"]


def test_other_operands(device, reasons):
    x, y = torch.ones(19, 3, device=device), torch.ones(19, 3, device=device)

    def program(first, second):
        return first.logaddexp(second).fmod(first)

    run(lambda: None, lambda: program(x, y))
    (reason,) = reasons(lambda: program(x, x))
    assert reason["kind"] == "operands"
    assert "other tensors of the same shapes" in reason["what"]


def test_other_tensors_alive(device, reasons):
    x = torch.ones(20, 3, device=device)
    kept = []

    def program(keep):
        y = x.logit()
        if keep:
            kept.append(y)
        return y.xlogy(x)

    run(lambda: None, lambda: program(False))
    (reason,) = reasons(lambda: program(True))
    assert reason["kind"] == "alive values"
    assert "aten::logit" in reason["what"] and "f32[20,3]" in reason["what"]
    assert reason["line"].endswith("program") and reason["line_before"] == reason["line"]


def test_numbers_that_change(device, reasons):
    """Only plugins have programs with constant numbers and with equal numbers as one."""
    x = torch.ones(23, 3, device=device)
    program = lambda a, b: x.mul(a).add(b).mul(a)  # noqa: E731
    has_groups = os.environ.get("PJRT_DEVICE", "CPU") != "CPU"
    wanted = ["numbers"] if has_groups else []
    kinds = lambda *numbers: [reason["kind"] for reason in reasons(lambda: program(*numbers))]  # noqa: E731
    run(lambda: None, lambda: program(2.5, 2.5))
    assert kinds(2.5, 2.5) == []
    assert kinds(3.5, 3.5) == wanted  # no constants any more
    assert kinds(4.5, 4.5) == []
    result = []
    (*all_reasons,) = reasons(lambda: result.append(program(2.5, 7.5)))
    assert [reason["kind"] for reason in all_reasons] == wanted  # no longer equal
    if has_groups:
        assert all_reasons[0]["what"].endswith("aten::add.Tensor takes 7.5, before 2.5")
        assert "test_compile_reasons.py" in all_reasons[0]["line"]
    assert (result[0].cpu() == (2.5 + 7.5) * 2.5).all()
    assert kinds(4.5, 5.5) == [] == kinds(6.5, 6.5)


def test_another_precision(device, reasons):
    x = torch.ones(21, 21, device=device)
    run(lambda: None, lambda: x.mm(x).trunc())
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        (reason,) = reasons(lambda: x.mm(x).trunc())
    finally:
        torch.set_float32_matmul_precision(before)
    assert reason["kind"] == "settings" and reason["device"] == device.index
    assert "test_compile_reasons.py" in reason["line"] and "test_compile_reasons.py" in reason["line_before"]
    assert reason["line"] != reason["line_before"]


def test_the_nearest_trace_is_the_one_with_the_most_equal_nodes(device, reasons):
    a, b = torch.ones(24, 24, device=device), torch.ones(25, 25, device=device)

    def program(x):
        return x.mm(x).trunc().sgn()

    run(lambda: None, lambda: program(a), lambda: program(b))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        (reason,) = reasons(lambda: program(a))
    finally:
        torch.set_float32_matmul_precision(before)
    assert reason["kind"] == "settings"


def test_a_trace_whose_compile_failed_is_not_known(run_python):
    plugin = Path(__file__).resolve().parents[2] / "build/release/tests/cpp/libfake_pjrt_plugin.so"
    if not plugin.is_file():
        pytest.skip("the fake PJRT plugin is not built: run cmake --build --preset release-tests")
    out = run_python(
        """
        import ctypes, os, torch, torch_xla
        x = torch.ones(3).to("xla")
        for failing in (True, False):
            y = x + 1
            if failing:
                ctypes.CDLL(os.environ["PJRT_LIBRARY_PATH"]).fake_pjrt_fail(b"compile", 13)
            try:
                torch_xla.sync(wait=True)
            except RuntimeError:
                print("failed")
        print([each["kind"] for each in torch_xla._XLAC._compile_reasons()])
        """,
        PJRT_DEVICE="LIBRARY",
        PJRT_LIBRARY_PATH=str(plugin),
        XLA_PERSISTENT_CACHE_PATH="",
    )
    assert out == "failed\n['first']\n"


def test_debug_prints_the_reason_and_both_lines(run_python):
    text = run_python(
        """
        import torch, torch_xla
        x = torch.ones(3, 4, device="xla")
        y = torch.ones(5, 4, device="xla")
        torch_xla.sync()
        a = x.sin().add(1)
        torch_xla.sync()
        b = y.sin().add(1)
        torch_xla.sync(wait=True)
        """,
        XLA_DEBUG="1",
    )
    assert "the first program" in text
    assert "aten::sin takes as operand 0 an input f32[5,4], before f32[3,4]" in text
    assert "before at" in text
    assert "cause of the sync: user torch_xla.sync, device: xla:0" in text


def test_the_history_is_bounded(device):
    for i in range(300):
        keep = torch.ones(3, device=device)[: 1 + i % 3].add(i) if i % 2 else torch.ones(i + 30, device=device).frac()
        torch_xla.sync()
        del keep
    torch_xla.sync(wait=True)
    assert len(_XLAC._compile_reasons()) <= 256
