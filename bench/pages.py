"""What the benchmarks that write a page share: options, the machine, the load."""

import argparse
import os
from pathlib import Path


def make_parser(description: str) -> argparse.ArgumentParser:
    """The parser of the command line, with --page."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="where the page is written")
    return parser


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
