"""torchao on the CPU, with this package installed: its configs and PT2E's graphs have the error that they allow."""

import torch
from torchao_parts import check_error, CONFIGS, make_layers, quantize, quantize_images

layers, x = make_layers(), torch.randn(5, 128).bfloat16()
with torch.no_grad():
    for config, most in CONFIGS.values():
        check_error(quantize(layers, config)(x), layers(x), most)

    images = torch.randn(2, 3, 16, 16)
    network, quantized = quantize_images(images)
    check_error(quantized(images), network(images), 0.1)
