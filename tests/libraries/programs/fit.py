"""A training loop, plain and by accelerate."""

import torch
import torch.nn.functional as F
from common import dataset, model, take_step
from torch.utils.data import DataLoader


def _parts():
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    return net, optimizer, schedule, DataLoader(dataset(), batch_size=8)


def fit_plainly() -> list[float]:
    """The losses of two epochs on the CPU."""
    net, optimizer, schedule, loader = _parts()
    return [take_step(net, F.mse_loss(net(x), y), optimizer, schedule) for x, y in [*loader, *loader]]


def fit_with(accelerator):
    """The losses of two epochs by accelerate, and the model."""
    net, optimizer, schedule, loader = accelerator.prepare(*_parts())
    losses = []
    for _ in range(2):
        assert len(loader) == 4
        for x, y in loader:
            with accelerator.accumulate(net):
                loss = F.mse_loss(net(x), y)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    return losses, net
