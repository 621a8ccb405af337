"""What the benchmarks share: options, settings of processes, the machine, its load, the page."""

import argparse
import os
import time
from pathlib import Path

import torch

# Settings of glibc that keep freed memory, which is else given back and touched anew at each step.
WARM_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}


def make_parser(description: str) -> argparse.ArgumentParser:
    """The parser of the command line, with --page."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="where the page is written")
    return parser


def machine() -> str:
    """The processors, the version of PyTorch, the day."""
    models = [line for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if "model name" in line]
    model = models[0].split(":", 1)[1].strip() if models else "unknown"
    return f"{os.cpu_count()} processors ({model}), torch {torch.__version__}, {time.strftime('%d %B %Y')}"


def load() -> float:
    """How many processes want a processor: the average of the last minute."""
    return os.getloadavg()[0]


def load_line(before: float, after: float) -> str:
    """The sentence on the machine's load."""
    return f"The machine's load (1 minute's average) was {before:.0f} before and {after:.0f} after."


def show(lines: list[str], path: Path | None) -> None:
    """Prints the page, and writes it if there is a path."""
    text = "\n".join(lines) + "\n"
    print(text)
    if path:
        path.write_text(text, encoding="utf-8")
