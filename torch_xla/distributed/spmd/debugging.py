"""Pictures of tensors' places on devices, in a terminal (by rich)."""

import math
import re

import torch

from ... import _XLAC, runtime
from .xla_sharded_tensor import sharding_spec

_TILED = re.compile(r"\{devices=\[([\d,]+)\]([\d,]+)( last_tile_dim_replicate)?\}")


def _grid_of(sharding: str) -> list[list[str]]:
    """For each tile of the first two dims the numbers of its devices."""
    if sharding in ("", "{replicated}"):
        return [[str(list(range(runtime.global_runtime_device_count())))]]
    match = _TILED.fullmatch(sharding)
    if match is None:
        raise ValueError(f"sharding {sharding!r} is not as {{devices=[2,2]0,1,2,3}} or {{replicated}}")
    sizes, devices = ([int(number) for number in match[group].split(",")] for group in (1, 2))
    if math.prod(sizes) != len(devices):
        raise ValueError(f"sharding {sharding!r} has not as many devices as tiles")
    if match[3]:
        sizes.pop()
    rows, columns = sizes[0], sizes[1] if len(sizes) > 1 else 1
    behind = len(devices) // (rows * columns)  # of hidden dims, and replicas
    tiles = [devices[start : start + behind] for start in range(0, len(devices), behind)]
    names = [str(tile[0] if behind == 1 else tile) for tile in tiles]
    return [names[row * columns : (row + 1) * columns] for row in range(rows)]


def visualize_sharding(
    sharding: str, use_color: bool = True, scale: float = 1.0, min_width: int = 9, max_width: int = 80
):
    """Prints a table of the first two dims: a cell for each tile, with the numbers of the devices that hold it.

    Args:
        sharding: XLA's text, as XLAShardedTensor.sharding_spec.
        use_color: a background for each cell in place of lines, if the terminal has colors.
        scale: of the empty lines and columns around a cell's text.
        min_width, max_width: least characters of a colored cell, most of the table.

    Returns the rich.table.Table. Raises ValueError for another text, ImportError without rich.
    """
    import rich.box
    from rich.align import Align
    from rich.console import Console
    from rich.padding import Padding
    from rich.style import Style
    from rich.table import Table

    grid = _grid_of(sharding)
    console = Console(width=max_width)
    colors = ("blue", "green", "magenta", "cyan", "red", "yellow") if use_color and console.color_system else ()
    box = None if colors else rich.box.SQUARE
    table = Table(show_header=False, show_lines=not colors, padding=0, highlight=not colors, pad_edge=False, box=box)
    around = max(0, round(scale))
    hardware = _XLAC._xla_hardware()
    for i, row in enumerate(grid):
        cells = []
        for j, devices in enumerate(row):
            style = Style(bgcolor=colors[(i * len(row) + j) % len(colors)] if colors else None)
            text = Align(f"{hardware} {devices}", "center", vertical="middle")
            cells.append(Padding(text, around, style=style))
        table.add_row(*cells)
    if colors:
        for column in table.columns:
            column.min_width = min(min_width, max_width)
    print(f"{sharding or '{replicated}'}, the first two dims:")
    console.print(table)
    return table


def visualize_tensor_sharding(t: torch.Tensor, **kwargs):
    """visualize_sharding() of the tensor's mark; an unmarked tensor is on all devices."""
    return visualize_sharding(sharding_spec(t), **kwargs)


def construct_v1_sharding_str(t: torch.Tensor) -> str:
    """The tensor's sharding in XLA's words, with all devices listed, as sharding_spec has it."""
    return sharding_spec(t)
