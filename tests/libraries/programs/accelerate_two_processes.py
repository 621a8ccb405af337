"""accelerate in a run of two processes: each its part of the batches, averaged gradients, gathered values, one file."""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, set_seed
from common import check_no_fallbacks, dataset, model, take_step
from torch.nn import functional as F
from torch.utils.data import DataLoader

import torch_xla.distributed.xla_multiprocessing as xmp


def make_parts(batch_size: int):
    """Model, optimizer, schedule, loader."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3), DataLoader(dataset(), batch_size=batch_size)


def expected_parameters() -> list[torch.Tensor]:
    """After two epochs on the CPU by batches as large as both processes' together."""
    net, optimizer, schedule, loader = make_parts(16)
    for x, y in [*loader, *loader]:
        take_step(net, F.mse_loss(net(x), y), optimizer, schedule)
    return [p.detach() for p in net.parameters()]


def train(rank: int, folder: str) -> None:
    """One process."""
    set_seed(3)
    accelerator = Accelerator(step_scheduler_with_optimizer=False)
    assert accelerator.num_processes == 2 and accelerator.process_index == rank
    net, optimizer, schedule, loader = accelerator.prepare(*make_parts(8))
    for _ in range(2):
        for x, y in loader:
            loss = F.mse_loss(net(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    check_no_fallbacks()
    for actual, expected in zip(net.parameters(), expected_parameters()):
        torch.testing.assert_close(actual.detach().cpu(), expected, rtol=1e-3, atol=1e-4)
    meet(accelerator, rank)
    accelerator.save_state(f"{folder}/state")
    accelerator.wait_for_everyone()
    accelerator.load_state(f"{folder}/state")
    accelerator.save_model(net, f"{folder}/model")


def meet(accelerator: Accelerator, rank: int) -> None:
    """Gathering and the like."""
    values = torch.full((2,), float(rank), device=accelerator.device)
    assert accelerator.gather(values).tolist() == [0, 0, 1, 1]
    assert accelerator.reduce(values, "sum").tolist() == [1, 1]
    assert accelerator.pad_across_processes(torch.ones(rank + 1, device=accelerator.device)).shape == (2,)
    assert broadcast_object_list([rank, "of", rank]) == [0, "of", 0]
    with accelerator.main_process_first():
        pass
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    xmp.spawn(train, (sys.argv[1],), nprocs=2)
