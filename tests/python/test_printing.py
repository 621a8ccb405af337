"""The text of tensors is eager's with the device's name; to print a summary copies nothing."""

import re

import pytest
import torch
from torch import _tensor_str
from torch.autograd import forward_ad

import torch_xla
from torch_xla import _printing, _XLAC


class OfItsOwn(torch.Tensor):
    pass


def numbers(*shape):
    return torch.arange(torch.Size(shape).numel()).view(shape) % 1001 - 500.0


def computed(x):
    return x.requires_grad_() * 2 + 1


LARGE = {
    "one dim": lambda: numbers(5000) / 7,
    "rows": lambda: numbers(40, 60),
    "few rows": lambda: numbers(3, 2000) * 1e7,
    "many dims": lambda: numbers(7, 2, 9, 5, 3) + 0.25,
    "small and large": lambda: (numbers(2000) / 100).exp(),
    "not finite": lambda: numbers(2000).masked_fill(numbers(2000) == -499, torch.nan) / 0,
    "integers": lambda: numbers(1500).int(),
    "bytes": lambda: numbers(33, 44).to(torch.uint8),
    "truth": lambda: numbers(2000) > 7,
    "half": lambda: numbers(2000).half() / 3,
    "bfloat16": lambda: numbers(50, 50).bfloat16(),
    "float8": lambda: numbers(2000).to(torch.float8_e5m2),
    "double": lambda: numbers(2000).double() / 3,
    "complex": lambda: torch.complex(numbers(2000), -numbers(2000)),
    "conjugate": lambda: torch.complex(numbers(2000), -numbers(2000)).conj(),
    "negated": lambda: torch.complex(numbers(2000), numbers(2000)).conj().imag,
    "transposed": lambda: numbers(40, 60).t(),
    "part": lambda: numbers(100, 100)[3:-3:2, ::3],
    "broadcast": lambda: numbers(1, 60).expand(50, 60),
    "columns apart": lambda: numbers(4, 8, 10, 10).contiguous(memory_format=torch.channels_last),
    "parameter": lambda: torch.nn.Parameter(numbers(2000)),
    "leaf": lambda: numbers(2000).requires_grad_(),
    "computed": lambda: computed(numbers(2000)),
    "subclass": lambda: numbers(2000).as_subclass(OfItsOwn),
    "nothing": lambda: torch.empty(0, 2000),
    "zero": lambda: torch._efficientzerotensor(2000),
    "sparse": lambda: torch.eye(1200).to_sparse(),
    "compressed": lambda: torch.eye(1200).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([numbers(2000), numbers(1500)]),
}
OPTIONS = [{}, {"edgeitems": 1, "precision": 2}, {"edgeitems": 0}, {"threshold": 5, "sci_mode": True}]
OPTIONS += [{"linewidth": 40}, {"threshold": torch.inf}]


def to_device(tensor, device):
    with torch.no_grad():
        moved = tensor.to(device)
    if tensor.grad_fn is not None and tensor.layout == torch.strided and not tensor.is_nested:
        return computed(((tensor - 1) / 2).detach().to(device))
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(moved)
    return moved.requires_grad_(tensor.requires_grad)


def without_device(text):
    return re.sub(r",device='xla:0'", "", "".join(text.split()))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", LARGE)
def test_text_is_that_of_the_printer(device, monkeypatch, name, options):
    expected = LARGE[name]()
    x = to_device(expected, device)
    with torch._tensor_str.printoptions(**options):
        text = repr(x)
        assert without_device(text) == without_device(repr(expected))
        assert f"{x}" == str(x) == text
        monkeypatch.setattr(_tensor_str, "_str_intern", _printing._print_in_torch)
        assert repr(x) == text


def test_text_of_tangents_and_wrapped_tensors(device, monkeypatch):
    x, t = numbers(2000), numbers(2000) / 3
    texts = []

    def show(place):
        found = []
        with forward_ad.dual_level():
            found.append(repr(forward_ad.make_dual(x.to(place), t.to(place))))
        rows = x.to(place).view(2, 1, 1000).expand(2, 3, 1000)
        torch.func.vmap(lambda row: found.append(repr(row)) or row)(rows)
        torch.func.grad(lambda row: found.append(repr(row)) or row.sum())(x.to(place))
        if place == device:
            found.append(repr(torch._to_functional_tensor(x.to(place))))
        return found

    texts = show(device)
    assert [without_device(text) for text in texts[:-1]] == [without_device(text) for text in show("cpu")]
    monkeypatch.setattr(_tensor_str, "_str_intern", _printing._print_in_torch)
    assert show(device) == texts


@pytest.fixture
def printed(monkeypatch):
    """Addresses of what the printer reads."""
    addresses = []
    read = _tensor_str._tensor_str

    def note(tensor, indent):
        addresses.append(tensor.untyped_storage().data_ptr() if tensor.device.type == "cpu" else None)
        return read(tensor, indent)

    monkeypatch.setattr(_tensor_str, "_tensor_str", note)
    return addresses


def test_a_summary_copies_nothing(device, printed):
    base = numbers(300, 200).to(device)
    torch_xla.sync()
    where = _XLAC._unsafe_buffer_pointer(base)
    for x in (base, base.view(-1), torch.nn.Parameter(base), base[None].requires_grad_()):
        str(x)
    assert printed == 4 * [where]
    y = base + 1  # pending
    before = repr(y)
    assert printed[-1] == _XLAC._unsafe_buffer_pointer(y)
    y += 1
    assert before == repr(base + 1) != repr(y)


@pytest.mark.checks_values
def test_an_error_of_the_run_is_told(device):
    x = torch.zeros(2000, device=device)[torch.full((2000,), 5000).to(device)]
    with pytest.raises(IndexError, match="out of "):
        repr(x)
