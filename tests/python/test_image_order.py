"""Convolutional networks train as on the CPU, in whatever order images are computed, and leave the same strides."""

import copy

import pytest
import torch
from eager import strides
from torch import nn

import torch_xla

STEPS = 3


def unit(before, after, size=3, **options):
    """A convolution, its normalization and ReLU."""
    convolution = nn.Conv2d(before, after, size, padding=size // 2, **options)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU())


class Skip(nn.Module):
    """A block and what goes around it."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return x + self.block(x)


def of_units():
    return nn.Sequential(
        unit(3, 16), unit(16, 16, stride=2), unit(16, 16, groups=16), unit(16, 32, 1), Skip(unit(32, 32))
    )


def of_large_weights():
    """Channels-last at first, then weights that are larger than the images."""
    return nn.Sequential(
        unit(3, 16), unit(16, 16), unit(16, 64, stride=4), unit(64, 64), nn.MaxPool2d(2), unit(64, 64), unit(64, 16)
    )


def of_groups():
    blocks = (nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU()) for _ in range(4))
    return nn.Sequential(nn.Conv2d(3, 16, 3), *blocks)


def of_transposed():
    return nn.Sequential(
        unit(3, 16, stride=2), unit(16, 16), nn.ConvTranspose2d(16, 8, 2, stride=2), nn.ReLU(), unit(8, 8), unit(8, 8)
    )


MODELS = {function.__name__: function for function in (of_units, of_large_weights, of_groups, of_transposed)}
FORMATS = {"row_major": torch.contiguous_format, "channels_last": torch.channels_last}


def train(model, images, *, reads_loss):
    """The losses, the last gradients and the running statistics, and the strides of the last results and gradients."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        results = model(images)
        loss = results.square().mean()
        if reads_loss:
            loss.item()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.detach())
    gradients = [p.grad for p in model.parameters()]
    values = [*losses, *gradients, *model.buffers()]
    return [value.cpu() for value in values], [strides(t) for t in (results, *gradients)]


@pytest.mark.parametrize("reads_loss", [False, True], ids=["whole", "read"])
@pytest.mark.parametrize("order", FORMATS)
@pytest.mark.parametrize("name", MODELS)
def test_training(device, name, order, reads_loss):
    model = MODELS[name]().to(memory_format=FORMATS[order])
    images = torch.randn(4, 3, 24, 24).contiguous(memory_format=FORMATS[order])
    expected, expected_strides = train(copy.deepcopy(model), images, reads_loss=reads_loss)
    values, found_strides = train(model.to(device), images.to(device), reads_loss=reads_loss)
    torch.testing.assert_close(values, expected, rtol=1e-3, atol=1e-4)
    assert found_strides == expected_strides


@pytest.mark.parametrize("name", MODELS)
def test_inference(device, name):
    model = MODELS[name]().eval()
    images = torch.randn(2, 3, 24, 24)
    with torch.no_grad():
        expected = model(images)
        model.to(device)
        for _ in range(3):  # weights are packed in between
            result = model(images.to(device))
            torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)
            assert strides(result) == strides(expected)


@pytest.mark.parametrize("order", FORMATS)
@pytest.mark.parametrize("channels", [2, 3, 5, 7])
def test_weights_of_one_pixel_that_leave_out_pixels(device, channels, order):
    """As in a stem of two branches; without AVX-512 oneDNN misreads such images where they are channels-last."""
    branches = nn.ModuleList([nn.Conv2d(channels, 48, size, stride=2, padding=size // 2) for size in (3, 1)])
    images = torch.randn(2, channels, 64, 64)

    def find_gradients(branches, images):
        torch.relu(sum(branch(images) for branch in branches)).square().mean().backward()
        return [branch.weight.grad.cpu() for branch in branches]

    expected = find_gradients(copy.deepcopy(branches).double(), images.double())
    images = images.contiguous(memory_format=FORMATS[order])
    gradients = find_gradients(branches.to(device, memory_format=FORMATS[order]), images.to(device))
    torch.testing.assert_close(gradients, [e.float() for e in expected], rtol=1e-4, atol=1e-5)
