"""The cells of notebooks: errors and reports name a cell as IPython does, not its compiled file."""

import functools
import sys
from types import ModuleType

from . import _XLAC

_cells: dict[str, str] = {}  # the names, as "Cell In[3]", by the files


def place(file: str, line: int) -> str:
    """ "train.py:12", or "Cell In[3], line 12"."""
    return f"{_cells[file]}, line {line}" if file in _cells else f"{file}:{line}"


def file_of(name: str) -> str:
    """The compiled file of the cell with this name; the name itself without such a cell."""
    return next((file for file, cell in _cells.items() if cell == name), name)


def follow(compilerop: ModuleType) -> None:
    """Collects the names of past and future cells; `compilerop` is IPython's module that compiles them."""
    compiler = compilerop.CachingCompiler
    cache = compiler.cache

    @functools.wraps(cache)
    def cache_and_name(self, *args, **kwargs):
        file = cache(self, *args, **kwargs)
        _name(self, file)
        return file

    compiler.cache = cache_and_name
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython and hasattr(ipython, "get_ipython") else None
    for file in _numbers(shell.compile) if shell else ():
        _name(shell.compile, file)


def _numbers(compiler) -> dict[str, int]:
    """The numbers of cells by their files; IPython before 7.23 has none."""
    return getattr(compiler, "_filename_map", {})


def _name(compiler, file: str) -> None:
    if (number := _numbers(compiler).get(file)) is not None:
        _cells[file] = f"Cell In[{number}]"
        _XLAC._name_cell(file, f"In[{number}]")
