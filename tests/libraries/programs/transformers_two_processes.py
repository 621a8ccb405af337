"""transformers' Trainer in a run of two processes: the same weights in both, those of whole batches on the CPU."""

import sys

import torch
from common import check_no_fallbacks
from transformers_parts import make_model, train

import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp


def run(rank: int, folder: str) -> None:
    """One process: half of each batch of 16."""
    trainer, losses = train(f"{folder}/run", optim="adamw_torch", batch_size=8)
    check_no_fallbacks()
    assert trainer.args.world_size == 2 and trainer.args.process_index == rank
    assert trainer.state.global_step == 8 and losses[-1] < losses[0]
    weights = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    assert torch.equal(*xm.all_gather(weights[None]).cpu())
    changed = torch.cat([p.detach().flatten() for p in make_model().parameters()]) - weights.cpu()
    assert changed.abs().max() > 1e-2
    assert trainer.evaluate()["eval_loss"] > 0
    trainer.save_model(f"{folder}/model")


if __name__ == "__main__":
    xmp.spawn(run, (sys.argv[1],), nprocs=2)
