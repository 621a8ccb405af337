"""accelerate on the device: training, gathering, save_state and load_state, save_model, notebook_launcher."""

import sys

import torch
from accelerate import Accelerator, notebook_launcher
from accelerate.utils import set_seed
from common import check_losses, check_no_fallbacks
from fit import fit_plainly, fit_with
from safetensors.torch import load_file

set_seed(3)
accelerator = Accelerator()
assert accelerator.device.type == "xla", accelerator.device
losses, model = fit_with(accelerator)
check_losses(losses, fit_plainly())
check_no_fallbacks()
values = torch.arange(3.0, device=accelerator.device)
assert accelerator.gather(values).tolist() == accelerator.reduce(values).tolist() == [0, 1, 2]
assert accelerator.gather_for_metrics(values).tolist() == [0, 1, 2]
assert accelerator.pad_across_processes(values).tolist() == [0, 1, 2]
accelerator.wait_for_everyone()
accelerator.save_state(f"{sys.argv[1]}/state")
before = {name: value.cpu() for name, value in model.state_dict().items()}
with torch.no_grad():
    next(model.parameters()).zero_()
accelerator.load_state(f"{sys.argv[1]}/state")
for name, value in model.state_dict().items():
    assert value.device.type == "xla" and torch.equal(value.cpu(), before[name])
accelerator.save_model(model, f"{sys.argv[1]}/model")
for name, value in load_file(f"{sys.argv[1]}/model/model.safetensors").items():
    assert torch.equal(value, before[name])
ran = []
notebook_launcher(ran.append, (1,), num_processes=1)
assert ran == [1]
