"""Lightning on the device: accelerator="tpu" where PJRT_DEVICE asks for it; losses, a checkpoint, a profile."""

import os
import sys

os.environ.setdefault("PJRT_DEVICE", "CPU")
import lightning
import torch
from common import check_losses, check_no_fallbacks, dataset
from lightning.pytorch.profilers import XLAProfiler
from lightning_module import Regression
from torch.utils.data import DataLoader


def fit(accelerator: str, **kwargs):
    """The module and its trainer after training."""
    lightning.seed_everything(3)
    module = Regression()
    trainer = lightning.Trainer(
        accelerator=accelerator,
        devices=1,
        max_epochs=2,
        logger=False,
        default_root_dir=sys.argv[1],
        enable_progress_bar=False,
        enable_model_summary=False,
        **kwargs,
    )
    loader = DataLoader(dataset(), batch_size=8, shuffle=True)
    trainer.fit(module, loader, DataLoader(dataset(), batch_size=8))
    return module, trainer


expected, _ = fit("cpu")
for kwargs in ({}, {"profiler": XLAProfiler()}):
    module, trainer = fit("tpu", **kwargs)
    assert type(trainer.accelerator).__name__ == "XLAAccelerator", trainer.accelerator
    assert trainer.strategy.root_device.type == "xla"
    check_losses(module.losses, expected.losses)
check_no_fallbacks()
trainer.save_checkpoint(f"{sys.argv[1]}/module.ckpt")
loaded = Regression.load_from_checkpoint(f"{sys.argv[1]}/module.ckpt")
for ours, theirs in zip(loaded.parameters(), expected.parameters()):
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-3, atol=1e-4)
fabric = lightning.Fabric(accelerator="tpu", devices=1)
fabric.launch()
model, optimizer = fabric.setup(module, torch.optim.SGD(module.parameters(), lr=0.1))
fabric.backward(model.model(torch.ones(2, 4, device=fabric.device)).sum())
optimizer.step()
assert fabric.all_gather(torch.ones(2, device=fabric.device)).device.type == "xla"
