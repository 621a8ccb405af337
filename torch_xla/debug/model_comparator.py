"""Compares a model with itself: tensors that two runs saved at the same places, as on the CPU and on the device.

`python -m torch_xla.debug.model_comparator DIR1 DIR2` prints the report, and ends with 1 if there is one.
"""

import argparse
import collections
import os
import re
import sys
from pathlib import Path

import torch

from .. import _world, _XLAC
from .._files import torch_save

_save_dir: str | None = None
_counts: collections.Counter = collections.Counter()  # tensors saved in this step, by name
_step: int | None = None


def configure(save_dir: str | None) -> None:
    """Saves to this folder, which exists, from now on. None saves to MODELCMP_SAVEDIR, if set."""
    global _save_dir, _step
    _save_dir, _step = save_dir, None
    _counts.clear()


def _find_name() -> str:
    """ "train.py.l12" of the line that called save()."""
    frame = sys._getframe(2)
    return f"{os.path.basename(frame.f_code.co_filename)}.l{frame.f_lineno}"


def save(name: str | None, tensor: torch.Tensor, step: int | None = None) -> torch.Tensor:
    """Saves the tensor as `NAME.N`, N counting those of the name in the step, and returns it.

    Args:
        name: None is the file and line of the caller.
        step: the file goes into the folder `step-STEP`.

    Without a folder it does nothing, so calls may stay in the model. Only the first replica of the run saves.
    """
    global _step
    folder = _save_dir or _XLAC._env_text("MODELCMP_SAVEDIR")
    if not folder:
        return tensor
    data = tensor.detach().cpu()
    if _world.current().rank != 0:
        return tensor
    name = _find_name() if name is None else name
    if step is not None:
        folder = os.path.join(folder, f"step-{step}")
        os.makedirs(folder, exist_ok=True)
        if step != _step:
            _step = step
            _counts.clear()
    torch_save(data, os.path.join(folder, f"{name}.{_counts[name]}"))
    _counts[name] += 1
    return tensor


def compare_tensors(
    tensor1: torch.Tensor, tensor2: torch.Tensor, rtol: float = 1e-05, atol: float = 1e-08, max_diffs: int = 25
) -> str:
    """The elements that differ by more than `max(atol, rtol * the larger)`, the largest differences first.

    A line each, as `[0, 1]: 1.0 vs. 1.5 error=0.5`, at most `max_diffs`. NaN differs from numbers only. Empty if equal.
    """
    if tensor1.shape != tensor2.shape:
        return f"Tensors have different shape: {list(tensor1.shape)} vs. {list(tensor2.shape)}\n"
    kind = torch.complex128 if tensor1.is_complex() or tensor2.is_complex() else torch.float64
    a, b = tensor1.cpu().to(kind).flatten(), tensor2.cpu().to(kind).flatten()
    error = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs()).nan_to_num(nan=torch.inf)
    bound = (rtol * torch.maximum(a.abs(), b.abs())).nan_to_num(nan=0.0, posinf=0.0).clamp(min=atol)
    found = (error > bound).nonzero().flatten()
    worst = found[error[found].argsort(descending=True, stable=True)][:max_diffs]
    lines = []
    for i in worst.tolist():
        index = [int(k) for k in torch.unravel_index(torch.tensor(i), tensor1.shape)]
        values = tensor1.flatten()[i].item(), tensor2.flatten()[i].item()
        lines.append(f"{index}: {values[0]} vs. {values[1]}\terror={error[i].item()}\n")
    if len(found) > max_diffs:
        lines.append(f"... aborting after {max_diffs} differences\n")
    return "".join(lines)


def _list_saved(folder: str) -> set[str]:
    """Paths of save()'s files below the folder."""
    files = (path for path in Path(folder).rglob("*") if path.is_file() and re.fullmatch(r".*\.\d+", path.name))
    return {str(path.relative_to(folder)) for path in files}


def tensor_file_compare(path1: str, path2: str, rtol: float = 1e-05, atol: float = 1e-08, max_diffs: int = 25) -> str:
    """compare_tensors() of two files, with a line that names them; empty if equal."""
    tensors = [torch.load(path, weights_only=True) for path in (path1, path2)]
    report = compare_tensors(*tensors, rtol=rtol, atol=atol, max_diffs=max_diffs)
    if not report:
        return ""
    name, number = os.path.basename(path1).rsplit(".", 1)
    step = re.fullmatch(r"step-(\d+)", os.path.basename(os.path.dirname(path1)))
    place = f" at step={step[1]}" if step else ""
    changes = "".join(f"  {line}\n" for line in report.splitlines())
    return f'Changes in saved tensor "{name}" with id={number}{place}\n{changes}'


def compare(save_dir1: str, save_dir2: str, rtol: float = 1e-05, atol: float = 1e-08, max_diffs: int = 25) -> str:
    """Differences between the tensors of two folders, and tensors that only one has. Empty without differences."""
    files1, files2 = _list_saved(save_dir1), _list_saved(save_dir2)
    report = [f"Mismatch: {path} not in {save_dir2}\n" for path in sorted(files1 - files2)]
    report += [f"Mismatch: {path} not in {save_dir1}\n" for path in sorted(files2 - files1)]
    for path in sorted(files1 & files2):
        pair = os.path.join(save_dir1, path), os.path.join(save_dir2, path)
        report.append(tensor_file_compare(*pair, rtol=rtol, atol=atol, max_diffs=max_diffs))
    return "".join(report)


def main() -> int:
    """The command line: 1 if there is a difference."""
    parser = argparse.ArgumentParser(description="Compares the tensors that two runs saved.")
    parser.add_argument("--rtol", type=float, default=1e-05)
    parser.add_argument("--atol", type=float, default=1e-08)
    parser.add_argument("--max_diffs", type=int, default=25)
    parser.add_argument("savedir1", metavar="DIR1")
    parser.add_argument("savedir2", metavar="DIR2")
    options = parser.parse_args()
    report = compare(options.savedir1, options.savedir2, options.rtol, options.atol, options.max_diffs)
    print(report, end="", file=sys.stderr)
    return int(bool(report))


if __name__ == "__main__":
    sys.exit(main())
