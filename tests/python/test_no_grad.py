"""Calls without gradients skip PyTorch's autograd layer: what that layer does for them must still happen."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.utils._python_dispatch import TorchDispatchMode


class _Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_dispatch_modes_see_the_calls(device):
    a = torch.ones(3, device=device)
    with _Names() as mode:
        b = a + 1
        b.mul_(2)
        torch.exp(a, out=b)
    assert mode.names == ["add", "mul_", "exp"]


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_writes_raise_the_version(device):
    a = torch.ones(3, device=device)
    version = a._version
    a.add_(1)
    torch.exp(torch.zeros(3, device=device), out=a)
    with torch.no_grad():
        a.mul_(a)
    assert a._version == version + 3


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_a_write_without_gradient_spoils_what_backward_saved(device):
    a = torch.ones(3, device=device, requires_grad=True)
    b = a.exp()
    with torch.no_grad():
        b.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        b.sum().backward()


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_forward_gradients_flow(device):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.full((2,), 3.0, device=device), torch.ones(2, device=device))
        plain = torch.full((2,), 2.0, device=device)
        plain.mul_(dual)
        with torch.no_grad():
            tangent = forward_ad.unpack_dual(plain * dual).tangent
        assert torch.equal(tangent.cpu(), torch.full((2,), 12.0))


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_transforms_of_torch_func(device):
    x = torch.arange(4.0, device=device)
    assert torch.equal(torch.func.vmap(lambda v: v * 2 + 1)(x).cpu(), torch.arange(4.0) * 2 + 1)
    assert torch.equal(torch.func.grad(lambda v: (v * v).sum())(x).cpu(), 2 * torch.arange(4.0))


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_gradient_modes(device):
    a = torch.ones(2, device=device, requires_grad=True)
    with torch.no_grad():
        assert not (a * 2).requires_grad
        with torch.enable_grad():
            assert (a * 2).requires_grad
    with torch.inference_mode():
        b = a * 2
        b.add_(1)
    assert b.is_inference() and not b.requires_grad
    with pytest.raises(RuntimeError, match="leaf Variable"):
        a.add_(1)
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        torch.mul(a, 2, out=torch.empty(2, device=device))


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_a_view_written_without_gradient_mode(device):
    base = torch.zeros(2, 2, device=device)
    row = base[0]
    row.add_(torch.ones(2, device=device, requires_grad=True))
    base.sum().backward()
    assert base.requires_grad and row.requires_grad


def test_new_data_of_a_view_that_was_written(device):
    def gradient(d):
        x = torch.ones((), device=d, requires_grad=True)
        base = torch.zeros(1, 4, device=d)
        view = base.unsqueeze(1)
        view.copy_(x)
        base.detach().zero_()  # the view's gradient function is out of date
        view.data = torch.ones(1, 4, device=d)
        view.sum().backward()
        return x.grad.cpu()

    assert torch.equal(gradient(device), gradient("cpu"))
