"""accelerate where the program asks for the CPU: training, save_state and load_state, save_model.

accelerate takes the device xla even then, unless USE_TORCH_XLA=0 tells it not to look for this package.
"""

import os
import sys

import torch
from accelerate import Accelerator
from common import check_losses
from fit import fit_plainly, fit_with

accelerator = Accelerator(cpu=True)
device = "cpu" if os.environ.get("USE_TORCH_XLA") == "0" else "xla"
assert accelerator.device.type == device, accelerator.device
losses, model = fit_with(accelerator)
check_losses(losses, fit_plainly())
accelerator.save_state(f"{sys.argv[1]}/state")
before = {name: value.clone() for name, value in model.state_dict().items()}
with torch.no_grad():
    next(model.parameters()).zero_()
accelerator.load_state(f"{sys.argv[1]}/state")
for name, value in model.state_dict().items():
    assert value.device.type == device and torch.equal(value, before[name])
accelerator.save_model(model, f"{sys.argv[1]}/model")
