"""Lightning's strategy for XLA devices in two processes: the same weights in both."""

import os
import sys

os.environ.setdefault("PJRT_DEVICE", "CPU")
os.environ["CPU_NUM_DEVICES"] = "2"
import lightning
import torch
from common import check_no_fallbacks, dataset, model
from lightning_module import Regression
from torch.utils.data import DataLoader


class Checked(Regression):
    """Compares the processes' weights at the end."""

    def on_train_end(self):
        """In each process."""
        check_no_fallbacks()
        weights = torch.cat([p.detach().flatten() for p in self.parameters()])
        first, second = self.all_gather(weights).cpu().chunk(2)
        assert self.trainer.world_size == 2 and torch.equal(first, second)
        assert len(self.losses) == 4 * 2  # half of the batches
        assert not any(torch.equal(a, b.cpu()) for a, b in zip(model().parameters(), self.parameters()))
        with open(f"{sys.argv[1]}/ended.{self.global_rank}", "w"):
            pass


if __name__ == "__main__":
    lightning.seed_everything(3)
    trainer = lightning.Trainer(
        accelerator="tpu",
        devices=2,
        max_epochs=4,
        logger=False,
        default_root_dir=sys.argv[1],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Checked(), DataLoader(dataset(), batch_size=8), DataLoader(dataset(), batch_size=8))
    assert sorted(name for name in os.listdir(sys.argv[1]) if name.startswith("ended")) == ["ended.0", "ended.1"]
