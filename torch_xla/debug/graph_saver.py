"""Graphs of pending tensors into files."""

import collections
import os
import threading
from collections.abc import Sequence

import torch

from .. import _XLAC
from .._files import replacing

_WRITERS = {
    "text": _XLAC._get_xla_tensors_text,
    "dot": _XLAC._get_xla_tensors_dot,
    "hlo": _XLAC._get_xla_tensors_hlo,
}
_lock = threading.Lock()  # guards _saved
_saved: collections.Counter = collections.Counter()  # by thread and name


def save_tensors_graph(save_dir: str, name: str, tensors: Sequence[torch.Tensor]) -> None:
    """Writes the tensors' pending graph to `save_dir/NAME-THREAD-N.FORMAT`; N counts the files of that name.

    SAVE_GRAPH_FMT says the format: text (by default), dot, or hlo. Nothing runs.

    Raises ValueError for another format and for a name with a "/", NotImplementedError for an operation that has no
    form in StableHLO.
    """
    form = _XLAC._env_text("SAVE_GRAPH_FMT")
    if form not in _WRITERS:
        raise ValueError(f"SAVE_GRAPH_FMT={form} is not understood; it can be {', '.join(_WRITERS)}")
    if "/" in name:
        raise ValueError(f"the name of a graph is a part of its file's name, without /, but got {name!r}")
    graph = _WRITERS[form](list(tensors))
    thread = threading.get_ident()
    with _lock:
        number = _saved[thread, name]
        _saved[thread, name] += 1
    with replacing(os.path.join(save_dir, f"{name}-{thread}-{number}.{form}")) as file:
        file.write(graph.encode())
