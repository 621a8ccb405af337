"""What the benchmarks share: options, settings of processes, the machine, its load, the page and its parts."""

import argparse
import os
import re
import time
from pathlib import Path

import torch

# Settings of glibc that keep freed memory, which glibc otherwise gives back, so that each step touches it again.
WARM_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}

# The page that operators.py and memory.py write a part of each.
OPERATIONS = """
# What single operations cost

For readers who want the worst case: single operations beside PyTorch eager's, their time and the most memory that they
take. Nothing fuses then.
""".strip().splitlines()


def make_parser(description: str) -> argparse.ArgumentParser:
    """The parser of the command line, with --page."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="where the page is written")
    return parser


def processor() -> str:
    """The name of the processors, without marks of trade: "AMD EPYC", "Intel Xeon"."""
    models = [line for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if "model name" in line]
    model = models[0].split(":", 1)[1].strip() if models else "unknown"
    return re.sub(r"\(\w+\)|\b(Processor|CPU)\b.*", "", model).strip()


def machine() -> str:
    """The processors, the version of PyTorch, the day."""
    return f"{processor()}, {os.cpu_count()} processors, torch {torch.__version__}, {time.strftime('%d %B %Y')}"


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


def show_part(head: list[str], part: list[str], path: Path | None) -> None:
    """Prints a part of a page, and writes it if there is a path.

    A part begins with "## SUBJECT, ..."; it takes the place of the page's part of that subject, or follows the others.
    """
    page = path.read_text(encoding="utf-8") if path and path.exists() else ""
    parts = {_subject(text): text.rstrip() for text in re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]}
    parts[_subject(part[0])] = "\n".join(part)
    print("\n".join(part))
    if path:
        path.write_text("\n\n".join(["\n".join(head), *parts.values()]) + "\n", encoding="utf-8")


def _subject(part: str) -> str:
    return re.match(r"## [^,\n]*", part)[0]
