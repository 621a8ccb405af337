"""The module that the programs of Lightning train."""

import common
import lightning
import torch
import torch.nn.functional as F


class Regression(lightning.LightningModule):
    """Fits common.model() and keeps the losses."""

    def __init__(self):
        super().__init__()
        self.model = common.model()
        self.losses: list[float] = []

    def training_step(self, batch, batch_idx):
        """The loss of one batch."""
        x, y = batch
        loss = F.mse_loss(self.model(x), y)
        self.log("loss", loss)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):
        """Logs the error of one batch."""
        x, y = batch
        self.log("error", F.mse_loss(self.model(x), y))

    def configure_optimizers(self):
        """Adam with a schedule."""
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]
