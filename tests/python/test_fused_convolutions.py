"""Convolutions of inference with what follows them: eager's values, also after weights have changed."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_xla
import torch_xla.debug.metrics as met

TOLERANCES = {torch.float32: {"rtol": 1e-4, "atol": 1e-5}, torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2}}
ACTIVATIONS = {
    "none": nn.Identity(),
    "relu": nn.ReLU(),
    "relu6": nn.ReLU6(),
    "hardswish": nn.Hardswish(),
    "hardsigmoid": nn.Hardsigmoid(),
    "silu": nn.SiLU(),
    "gelu": nn.GELU(),
    "gelu_tanh": nn.GELU("tanh"),
    "sigmoid": nn.Sigmoid(),
}


class Unit(nn.Module):
    """A convolution, its norm, a sum with its images where these have the size, and an activation."""

    def __init__(self, before, after, size=3, *, activation="relu", norm=True, bias=False, adds=False, **options):
        super().__init__()
        self.convolution = nn.Conv2d(before, after, size, padding=size // 2, bias=bias, **options)
        self.norm = nn.BatchNorm2d(after) if norm else nn.Identity()
        self.activation, self.adds = ACTIVATIONS[activation], adds
        if norm:
            nn.init.normal_(self.norm.weight)
            nn.init.normal_(self.norm.bias)
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = self.norm(self.convolution(x))
        return self.activation(y + x if self.adds else y)


UNITS = {
    **{name: lambda name=name: Unit(16, 24, activation=name) for name in ACTIVATIONS},
    "one_pixel": lambda: Unit(16, 24, 1),
    "one_pixel_with_bias_and_stride": lambda: Unit(16, 24, 1, bias=True, stride=2),
    "dilated": lambda: Unit(16, 24, bias=True, dilation=2),
    "depthwise": lambda: Unit(16, 16, 5, groups=16, activation="hardswish"),
    "depthwise_of_3": lambda: Unit(20, 20, 3, groups=20, activation="none"),
    "depthwise_of_7": lambda: Unit(40, 40, 7, groups=40, bias=True, norm=False),
    "depthwise_of_9": lambda: Unit(16, 16, 9, groups=16, activation="none"),
    "depthwise_with_stride": lambda: Unit(33, 33, 5, groups=33, stride=2, activation="hardswish"),
    "depthwise_dilated": lambda: Unit(16, 16, 3, groups=16, dilation=2),
    "depthwise_of_two_results": lambda: Unit(16, 32, 3, groups=16),
    "depthwise_without_bias": lambda: Unit(16, 16, 3, groups=16, norm=False, activation="none"),
    "one_pixel_and_hardswish": lambda: Unit(40, 300, 1, activation="hardswish"),
    "one_pixel_and_silu": lambda: Unit(40, 300, 1, activation="silu"),
    "depthwise_and_silu": lambda: Unit(20, 20, 5, groups=20, stride=2, activation="silu"),
    "one_pixel_without_bias": lambda: Unit(24, 72, 1, norm=False, activation="none"),
    "groups": lambda: Unit(16, 24, groups=4),
    "without_norm": lambda: Unit(16, 24, norm=False, bias=True),
    "sum": lambda: Unit(16, 16, adds=True, activation="none"),
    "sum_and_relu": lambda: Unit(16, 16, 1, adds=True),
    "sum_and_silu": lambda: Unit(16, 16, 1, adds=True, activation="silu"),
}


def run_thrice(model, images):
    """From the second run over the same weights on they are packed."""
    results = []
    with torch.no_grad():
        for _ in range(3):
            results.append(model(images))
            torch_xla.sync()
    return [result.cpu() for result in results]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", UNITS)
def test_units(device, name, dtype, batch, threads):
    channels = UNITS[name]().convolution.in_channels
    torch.manual_seed(0)
    model = nn.Sequential(Unit(3, channels), UNITS[name]()).eval().to(dtype)
    images = torch.randn(batch, 3, 14, 14).to(dtype)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        with torch.no_grad():
            expected = model(images)
        results = run_thrice(model.to(device), images.to(device))
    finally:
        torch.set_num_threads(before)
    for result in results:
        torch.testing.assert_close(result, expected, **TOLERANCES[dtype])
    assert results[0].equal(results[1]) and results[0].equal(results[2])


@pytest.mark.parametrize("name", ["one_pixel", "depthwise", "sum_and_relu"])
def test_autocast(device, name):
    torch.manual_seed(0)
    model = nn.Sequential(Unit(3, 16), UNITS[name]()).eval()
    images = torch.randn(2, 3, 14, 14)
    with torch.autocast("cpu", torch.bfloat16):
        expected = run_thrice(model, images)[0]
    with torch.autocast("xla", torch.bfloat16):
        results = run_thrice(model.to(device), images.to(device))
    for result in results:
        assert result.dtype == torch.bfloat16
        torch.testing.assert_close(result, expected, **TOLERANCES[torch.bfloat16])


def test_packed_weights_are_kept(device):
    model = nn.Sequential(Unit(3, 16), Unit(16, 16, adds=True)).eval().to(device)
    counts = []
    for _ in range(4):
        before = met.counter_value("KeptResult") or 0
        with torch.no_grad():
            model(torch.randn(1, 3, 14, 14).to(device)).cpu()
        counts.append((met.counter_value("KeptResult") or 0) - before)
    assert counts == [0, 0, 2, 2]


def test_changed_weights_and_statistics(device):
    torch.manual_seed(0)
    model = Unit(8, 8).eval()
    on_device = copy.deepcopy(model).to(device)
    images = torch.randn(1, 8, 14, 14)
    for change in (
        lambda m: m.convolution.weight.mul_(2),
        lambda m: m.norm.running_mean.add_(1),
        lambda m: m.norm.running_var.mul_(3),
        lambda m: m.norm.weight.add_(1),
        lambda m: m.norm.bias.sub_(1),
    ):
        with torch.no_grad():
            change(model)
            change(on_device)
            expected = model(images)
        for result in run_thrice(on_device, images.to(device)):
            torch.testing.assert_close(result, expected, **TOLERANCES[torch.float32])


def test_values_that_are_read_twice(device):
    torch.manual_seed(0)
    model = Unit(8, 8, adds=True).eval()
    images = torch.randn(1, 8, 14, 14)

    def parts(model, x):
        y = model.convolution(x)
        z = model.norm(y)
        return y, z, F.relu(z), F.relu(z + x)

    with torch.no_grad():
        expected = parts(model, images)
        model.to(device)
        for _ in range(3):
            results = parts(model, images.to(device))
            torch_xla.sync()
            torch.testing.assert_close([r.cpu() for r in results], list(expected), **TOLERANCES[torch.float32])


@pytest.mark.parametrize("options", [{}, {"groups": 8}, {"size": 1}], ids=["onednn", "channels", "pixels"])
@pytest.mark.parametrize("activation", ["relu", "hardswish", "silu"])
def test_special_values(device, options, activation):
    """Activations keep NaN."""
    torch.manual_seed(0)
    model = Unit(8, 8, activation=activation, **options).eval()
    images = torch.randn(1, 8, 14, 14)
    images[0, 3, 5, 5] = float("nan")
    images[0, 2, 10, 10] = float("inf")
    with torch.no_grad():
        expected = model(images)
    for result in run_thrice(model.to(device), images.to(device)):
        torch.testing.assert_close(result, expected, equal_nan=True, **TOLERANCES[torch.float32])


@pytest.mark.parametrize("evaluated", [False, True])
def test_gradients(device, evaluated):
    """Also with evaluated norms, as in fine-tuning."""
    torch.manual_seed(0)
    model = nn.Sequential(Unit(3, 8), Unit(8, 8, adds=True)).train(not evaluated)
    images = torch.randn(2, 3, 14, 14)
    on_device = copy.deepcopy(model).to(device)
    for m, x in ((model, images), (on_device, images.to(device))):
        for _ in range(3):
            m.zero_grad()
            m(x).square().mean().backward()
            torch_xla.sync()
    gradients = [p.grad.cpu() for p in on_device.parameters()]
    torch.testing.assert_close(gradients, [p.grad for p in model.parameters()], rtol=1e-3, atol=1e-5)
