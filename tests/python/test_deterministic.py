"""torch.use_deterministic_algorithms does on the device what it does on the CPU."""

import random
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import torch_xla

DTYPES = [torch.float32, torch.bfloat16, torch.complex64, torch.int32, torch.int64, torch.uint8, torch.bool]
NEW = {
    "empty": lambda device, dtype: torch.empty(3, device=device, dtype=dtype),
    "empty_0d": lambda device, dtype: torch.empty((), device=device, dtype=dtype),
    "empty_nothing": lambda device, dtype: torch.empty(0, device=device, dtype=dtype),
    "empty_strided": lambda device, dtype: torch.empty_strided((2, 3), (1, 2), device=device, dtype=dtype),
    "empty_permuted": lambda device, dtype: torch.empty_permuted((2, 3), (1, 0), device=device, dtype=dtype),
    "empty_like": lambda device, dtype: torch.empty_like(torch.ones(2, device=device, dtype=dtype)),
    "new_empty": lambda device, dtype: torch.ones(2, device=device).new_empty(3, dtype=dtype),
    "resize_": lambda device, dtype: torch.ones(2, device=device, dtype=dtype).resize_(2, 3),
    "resize_as_": lambda device, dtype: torch.ones(2, device=device, dtype=dtype).resize_as_(torch.ones(5)),
    "smaller": lambda device, dtype: torch.ones(4, device=device, dtype=dtype).resize_(3),
    "out": lambda device, dtype: torch.add(
        torch.ones(3, device=device, dtype=dtype), 1, out=torch.empty(0, device=device, dtype=dtype)
    ),
}


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NEW)
def test_new_memory_is_filled(deterministic, device, name, dtype):
    if name == "out" and dtype == torch.bool:
        dtype = torch.int16  # what Bool and 1 give does not fit Bool
    expected, actual = NEW[name]("cpu", dtype), NEW[name](device, dtype)
    torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)
    assert actual.stride() == expected.stride()


def test_memory_is_not_filled_where_that_is_switched_off(deterministic, device):
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        assert not torch.empty(3, device=device).isnan().any()
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True


def test_an_operation_without_a_deterministic_kernel_raises(deterministic, device):
    with pytest.raises(RuntimeError, match="put_ does not have a deterministic implementation"):
        torch.zeros(3, device=device).put_(torch.tensor([0, 0], device=device), torch.ones(2, device=device)).cpu()


STEPS = {
    "softmax": lambda h, w, b: torch.softmax(h, -1) * 3.3,
    "layer_norm": lambda h, w, b: F.layer_norm(h, h.shape[-1:]),
    "tanh": lambda h, w, b: h.tanh() * 2.1 + b,
    "gelu": lambda h, w, b: F.gelu(h),
    "rows": lambda h, w, b: h / (h.abs().sum(1, keepdim=True) + 1) - h.mean(0),
    "products": lambda h, w, b: (h @ w.t()) @ w / w.shape[1],
    "running": lambda h, w, b: h.cumsum(1) / w.shape[1],
    "bfloat16": lambda h, w, b: (h.bfloat16() * 1.7).float(),
}


class RandomProgram:
    """Operations on the product of two matrices of random sizes."""

    def __init__(self, seed: int):
        draw = random.Random(seed)
        rows, inner, columns = (draw.choice([17, 64, 100, 300, 512, 784]) for _ in range(3))
        self.steps = [draw.choice(list(STEPS)) for _ in range(draw.randint(3, 8))]
        torch.manual_seed(seed)
        self.operands = torch.randn(rows, inner), torch.randn(inner, columns), torch.randn(columns)

    def run(self, kept: list | None = None) -> bytes:
        """The bits of its value on the device; `kept` takes the values of its operations."""
        x, w, b = (t.to("xla") for t in self.operands)
        h = x @ w
        for step in self.steps:
            h = STEPS[step](h, w, b)
            if kept is not None:
                kept.append(h)
        return h.cpu().numpy().tobytes()


def multiply_many(shapes: int) -> None:
    """As many products of other shapes."""
    draw = random.Random(77)
    for _ in range(shapes):
        m, k, n = (draw.randint(230, 400) for _ in range(3))
        (torch.ones(m, k, device="xla") @ torch.ones(k, n, device="xla")).sum()
        torch_xla.sync()


def check_one_value(programs: list[RandomProgram], calls: int) -> None:
    """Each has one value in all of its calls, after others and whatever else is alive."""
    first = [program.run() for program in programs]
    multiply_many(200)
    for program, value in zip(programs, first, strict=True):
        assert program.run(kept=[]) == value, program.steps
        for _ in range(calls):
            assert program.run() == value, program.steps


def test_a_program_has_one_value(deterministic):
    check_one_value([RandomProgram(seed) for seed in range(20)], calls=2)


def test_a_product_has_one_value_whatever_ran_before(run_python):
    """In another process, after many products."""
    program = """
import hashlib, sys
sys.path.insert(0, {tests!r})
import test_deterministic as t, torch
torch.use_deterministic_algorithms(True)
t.multiply_many({shapes})
print(*(hashlib.md5(t.RandomProgram(seed).run()).hexdigest() for seed in range(20)))
"""
    tests = str(Path(__file__).parent)
    assert run_python(program.format(tests=tests, shapes=0)) == run_python(program.format(tests=tests, shapes=200))


def test_a_small_program_that_runs_often_keeps_its_value(deterministic):
    """Outside of the mode it is compiled once its operations have run 5,000 times."""
    x, w = torch.randn(16, 64).to("xla"), torch.randn(64, 64).to("xla")
    values = {torch.softmax(x @ w, -1).tanh().mean().item() for _ in range(1500)}
    assert len(values) == 1
