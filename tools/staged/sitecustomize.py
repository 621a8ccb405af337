"""On PYTHONPATH behind a build's folder: Python imports the package from there, not by the finder of .venv's link."""

import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__name__.startswith("ScikitBuild")]
