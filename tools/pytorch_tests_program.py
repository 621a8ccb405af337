"""Runs a program as `python FILE` does, after what pytorch_tests_settings.py does. PYTORCH_TESTS_PROGRAM names FILE.

Processes that the program starts by multiprocessing import this file as their main module, and so the program.
"""

import os
import sys
from pathlib import Path

import pytorch_tests_settings

PROGRAM = Path(os.environ["PYTORCH_TESTS_PROGRAM"])
if __name__ == "__main__":
    sys.argv[0] = str(PROGRAM)
    sys.path.insert(0, str(PROGRAM.parent))
pytorch_tests_settings.apply()
exec(compile(PROGRAM.read_bytes(), PROGRAM, "exec"))
