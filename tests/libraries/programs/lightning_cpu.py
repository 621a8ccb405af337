"""Lightning on the CPU: the accelerator that it chooses by itself stays the CPU; it trains and writes a checkpoint."""

import os
import sys

import lightning
import torch
from common import check_falling, dataset
from lightning_module import Regression
from torch.utils.data import DataLoader

os.environ.pop("PJRT_DEVICE", None)
for accelerator in ("auto", "cpu"):
    module = Regression()
    trainer = lightning.Trainer(
        accelerator=accelerator,
        max_epochs=2,
        logger=False,
        default_root_dir=sys.argv[1],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(dataset(), batch_size=8))
    assert type(trainer.accelerator).__name__ == "CPUAccelerator", trainer.accelerator
    check_falling(module.losses)
    trainer.save_checkpoint(f"{sys.argv[1]}/module.ckpt")
    loaded = Regression.load_from_checkpoint(f"{sys.argv[1]}/module.ckpt")
    for ours, theirs in zip(loaded.parameters(), module.parameters()):
        assert theirs.device.type == "cpu" and torch.equal(ours, theirs)
