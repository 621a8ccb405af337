"""torchao on the device: models quantized there and before, PT2E's graphs; nothing falls back and nothing is read."""

import os

os.environ["XLA_INTERPRETED_OPERATIONS"] = "0"  # small programs are compiled at once

import torch
from common import check_no_fallbacks
from torchao_parts import check_error, CONFIGS, make_layers, quantize, quantize_images

import torch_xla
import torch_xla.debug.metrics as met

layers, x = make_layers(), torch.randn(5, 128).bfloat16()
on_device = x.to("xla")


def check(model, x, most, expected, reads=False):
    """Fails if the model's results differ by more than that, or if its layers fall back, or read a value."""
    model(x)
    torch_xla.sync(wait=True)
    met.clear_all()
    found = model(x)
    assert reads or not met.metric_data("TransferFromDeviceTime"), "a layer reads a value"
    check_error(found, expected, most)
    check_no_fallbacks()


with torch.no_grad():
    for name, (config, most) in CONFIGS.items():
        for model in (quantize(layers.to("xla"), config), quantize(layers.to("cpu"), config).to("xla")):
            # Numbers of 8-bit floating types are converted on the CPU.
            check(model, on_device, most, layers.to("cpu")(x), reads="float8" in name)

    images = torch.randn(2, 3, 16, 16)
    network, quantized = quantize_images(images)
    expected = quantized(images)
    check_error(expected, network(images), 0.1)
    check(quantized.to("xla"), images.to("xla"), 0.02, expected)
