"""pytreeify: an autograd.Function of nested tensors has the gradients of the same function in plain operations."""

import pytest
import torch
from torch.autograd import Function

from torch_xla.experimental.pytreeify import pytreeify


@pytreeify
class Scaled(Function):
    """Of ({"a", "b": [c, name]}, number): {"product": a * c * number, "name"}, a + number."""

    @staticmethod
    def forward(ctx, tree, number):
        a, (c, name) = tree["a"], tree["b"]
        ctx.save_for_backward(a, c)
        ctx.number, ctx.needed = number, ctx.needs_input_grad
        return {"product": a * c * number, "name": name}, a + number

    @staticmethod
    def backward(ctx, of_dict, of_sum):
        a, c = ctx.saved_tensors
        of_product = of_dict["product"] * ctx.number
        return {"a": of_product * c + of_sum, "b": [of_product * a, None]}, None


@pytreeify
class Doubled(Function):
    """A list of twice the tensors, of one argument, with setup_context()."""

    @staticmethod
    def forward(tensors):
        return [t * 2 for t in tensors]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.count = len(inputs[0])

    @staticmethod
    def backward(ctx, gradients):
        assert len(gradients) == ctx.count
        return ([g * 2 for g in gradients],)


def test_nested_inputs_and_outputs(device):
    found = []
    for place in ("cpu", device):
        a, c = (torch.tensor(values, device=place, requires_grad=True) for values in ([1.0, 2.0], [3.0, 4.0]))
        for tree in ({"a": a, "b": [c, "x"]}, {"a": a, "b": [c * 2, "x"]}):
            outputs, total = Scaled.apply(tree, 3.0)
            assert outputs["name"] == "x" and total.tolist() == [4, 5]
            (outputs["product"].square().sum() + total.sum()).backward()
        found.append([t.cpu() for t in (outputs["product"].detach(), a.grad, c.grad)])
    a, c = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)
    for factor in (1, 2):
        product = a * (c * factor) * 3
        (product.square().sum() + (a + 3).sum()).backward()
    for got in found:
        torch.testing.assert_close(got, [product.detach(), a.grad, c.grad])


def test_one_tensor_of_several_has_a_gradient(device):
    x, y = torch.ones(2, device=device, requires_grad=True), torch.ones(2, device=device)
    outputs, total = Scaled.apply({"a": y, "b": [x, ""]}, 2.0)
    function = total.grad_fn
    assert function.needed[:2] == (False, True) and "Scaled" in function.name()
    outputs["product"].sum().backward()
    assert x.grad.tolist() == [2, 2] and y.grad is None
    with torch.no_grad():
        assert Scaled.apply({"a": y, "b": [x, ""]}, 2.0)[1].grad_fn is None


def test_setup_context(device):
    x, y = torch.ones(2, device=device, requires_grad=True), torch.ones((), device=device, requires_grad=True)
    one, two = Doubled.apply([x, y])
    (one.sum() + two).backward()
    assert one.tolist() == [2, 2] and x.grad.tolist() == [2, 2] and y.grad.item() == 2


def test_gradients_that_are_nested_otherwise(device):
    @pytreeify
    class Wrong(Function):
        @staticmethod
        def forward(ctx, tensors):
            return tensors[0] * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    with pytest.raises(RuntimeError, match=r"Wrong.backward should give gradients nested like the inputs"):
        Wrong.apply([torch.ones(2, device=device, requires_grad=True)]).sum().backward()


def test_other_classes_are_refused():
    with pytest.raises(TypeError, match=r"for subclasses of torch.autograd.Function, but got <class 'dict'>"):
        pytreeify(dict)
