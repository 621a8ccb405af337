"""Trains a small GPT-2 by Hugging Face's Trainer on this repository, then fine-tunes it to tell kinds of text apart.

    pip install transformers accelerate
    python examples/trainer.py [--steps 200] [--out results/trainer]
    USE_TORCH_XLA=0 python examples/trainer.py    # eager PyTorch on the CPU

Trainer finds the device by itself. The weights go from the first model to the second one by a checkpoint.
"""

import argparse
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, Trainer, TrainingArguments

import torch_xla.debug.metrics as met

ROOT = Path(__file__).resolve().parents[1]
KINDS = {"pages": "docs/*.md", "Python": "examples/*.py", "C++": "examples/cpp/*.cpp"}
LENGTH = 64  # bytes of a piece


def read_pieces(pattern: str, count: int) -> torch.Tensor:
    """`count` pieces of the files that a pattern fits, at equal distances, int64[count, LENGTH]."""
    text = b"".join(path.read_bytes() for path in sorted(ROOT.glob(pattern)))
    at = torch.linspace(0, len(text) - LENGTH - 1, count).long()[:, None] + torch.arange(LENGTH)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()[at]


def make_arguments(args: argparse.Namespace, rate: float) -> TrainingArguments:
    """All batches have one size, so the device compiles one program for a step; a loss is read at ten steps only."""
    return TrainingArguments(
        output_dir=str(args.out),
        max_steps=args.steps,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        dataloader_drop_last=True,
        learning_rate=rate,
        logging_steps=max(1, args.steps // 10),
        logging_first_step=True,
        save_strategy="no",
        report_to=[],
    )


def count_programs() -> int:
    """The programs that this process has compiled, and found on the disk."""
    return sum(met.counter_value(name) or 0 for name in ("UncachedCompile", "PersistentCacheHit"))


def train(trainer: Trainer, title: str) -> None:
    """Trains, with Trainer's progress bar, and prints the losses and the number of programs."""
    before = count_programs()
    seconds = trainer.train().metrics["train_runtime"]
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(
        f"{title}: loss {losses[0]:.3f} -> {losses[-1]:.3f}, {1e3 * seconds / trainer.args.max_steps:.1f} ms a step, "
        f"{count_programs() - before} programs"
    )


def count_right(prediction) -> dict[str, float]:
    """The share of pieces with the right kind."""
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main() -> None:
    """Reads the command line, trains, fine-tunes, evaluates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="of each part")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path("results/trainer"))
    args = parser.parse_args()

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=256,
        n_positions=LENGTH,
        n_layer=args.layers,
        n_embd=args.width,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    rows = [{"input_ids": piece, "labels": piece} for pattern in KINDS.values() for piece in read_pieces(pattern, 2000)]
    trainer = Trainer(model=GPT2LMHeadModel(config), args=make_arguments(args, 2e-3), train_dataset=rows)
    train(trainer, "training")
    trainer.save_model()

    rows = [
        {"input_ids": piece, "labels": kind}
        for kind, pattern in enumerate(KINDS.values())
        for piece in read_pieces(pattern, 640)
    ]
    trainer = Trainer(
        model=GPT2ForSequenceClassification.from_pretrained(args.out, num_labels=len(KINDS)),
        args=make_arguments(args, 1e-3),
        train_dataset=[row for place, row in enumerate(rows) if place % 4],
        eval_dataset=rows[::4],
        compute_metrics=count_right,
    )
    train(trainer, "fine-tuning")
    trainer.save_model()
    right = trainer.evaluate()["eval_accuracy"]
    print(f"the kind ({', '.join(KINDS)}) of {100 * right:.0f} % of other pieces is right; the model is in {args.out}")


if __name__ == "__main__":
    main()
