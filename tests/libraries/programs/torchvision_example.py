"""Runs the program of its first argument with the rest, where torchvision's library may not load.

The wheels of the package index are built for CUDA. Beside a torch for the CPU their Python works, but operations are
missing: this program declares them, with non-maximum suppression in Python.
"""

import runpy
import sys

import torch


def keep_best(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """The places of boxes that overlap no better one by more than the threshold, the best first."""
    order = scores.argsort(descending=True, stable=True)
    overlap = torchvision.ops.box_iou(boxes, boxes)[order][:, order]
    is_kept = torch.ones(len(order), dtype=torch.bool)
    for place in range(len(order)):
        if is_kept[place]:
            is_kept[place + 1 :] &= overlap[place, place + 1 :] <= threshold
    return order[is_kept]


if torch.version.cuda is None:
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", keep_best, "CPU")

import torchvision  # noqa: E402

torchvision.extension._has_ops = lambda: True
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
