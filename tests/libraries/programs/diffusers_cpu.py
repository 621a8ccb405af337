"""diffusers on the CPU: training steps, a pipeline, save_pretrained."""

import sys

import torch
from common import check_falling
from diffusers import UNet2DModel
from diffusers_parts import draw, make_model, train

model = make_model()
check_falling(train(model, "cpu"))
assert model.device.type == "cpu" and draw(model).shape == (2, 8, 8, 1)
model.save_pretrained(sys.argv[1])
for name, value in UNet2DModel.from_pretrained(sys.argv[1]).state_dict().items():
    assert torch.equal(value, model.state_dict()[name]), name
