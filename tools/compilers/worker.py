"""Compiles texts for one target in a process of its own: a fault of the plugin's compiler ends this process alone.

Reads a path of a text a line from stdin. Writes a line of JSON for each: an Outcome's fields. The plugin's own output
goes to stderr.
"""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

from .client import RefusedError
from .targets import Compiler, TARGETS


def _compile(compiler: Compiler, path: str) -> dict:
    text = Path(path).read_text(encoding="utf-8")
    start = time.process_time()
    try:
        executable = compiler.compile(text)
    except RefusedError as error:
        return {"refusal": str(error) or "no reason", "seconds": time.process_time() - start}
    seconds = time.process_time() - start
    found = dataclasses.asdict(executable.describe())
    executable.destroy()
    return {"refusal": "", "seconds": seconds, **found}


def main() -> None:
    """Answers until stdin ends."""
    target, plugin = sys.argv[1:]
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    compiler = Compiler(TARGETS[target], plugin)
    for line in sys.stdin:
        print(json.dumps(_compile(compiler, line.rstrip("\n"))), file=answers, flush=True)


if __name__ == "__main__":
    main()
