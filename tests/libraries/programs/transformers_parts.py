"""A small GPT-2 and a training run by transformers' Trainer."""

import torch
from common import take_step
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


def make_model() -> GPT2LMHeadModel:
    """Random weights, tied embeddings, no dropout."""
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=1,
        n_head=2,
        n_embd=16,
        vocab_size=40,
        n_positions=16,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # the Trainer does not find it by the class's name
    return model


def make_dataset() -> list[dict]:
    """16 rows of tokens."""
    rows = torch.randint(1, 40, (16, 8), generator=torch.Generator().manual_seed(2))
    return [{"input_ids": row, "labels": row} for row in rows]


def train(folder: str, batch_size: int = 16, **kwargs):
    """The Trainer after 8 steps, and the loss of each."""
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=8,
        per_device_train_batch_size=batch_size,
        learning_rate=1e-2,
        logging_steps=1,
        save_steps=4,
        report_to=[],
        disable_tqdm=True,
        **kwargs,
    )
    data = make_dataset()
    trainer = Trainer(model=make_model(), args=arguments, train_dataset=data, eval_dataset=data)
    trainer.train()
    return trainer, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def train_plainly() -> list[float]:
    """The losses of the same 8 steps without the Trainer, on the CPU."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 8)
    rows = torch.stack([row["input_ids"] for row in make_dataset()])
    return [take_step(model, model(input_ids=rows, labels=rows).loss, optimizer, schedule) for _ in range(8)]
