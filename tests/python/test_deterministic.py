"""torch.use_deterministic_algorithms does on the device what it does on the CPU."""

import pytest
import torch

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
