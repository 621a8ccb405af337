"""diffusers on the device: training steps and a pipeline's images as on the CPU, save_pretrained."""

import sys

import torch
from common import check_losses
from diffusers import UNet2DModel
from diffusers_parts import draw, make_model, train

expected = make_model()
model = make_model().to("xla")
check_losses(train(model, "xla"), train(expected, "cpu"))
model.save_pretrained(sys.argv[1])
loaded = UNet2DModel.from_pretrained(sys.argv[1])
for name, value in loaded.state_dict().items():
    assert torch.equal(value, model.state_dict()[name].cpu()), name
torch.testing.assert_close(draw(model), draw(loaded), rtol=1e-3, atol=1e-3)
