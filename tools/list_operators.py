#!/usr/bin/env python3
"""Writes docs/operators.md: what becomes of each ATen overload that needs a kernel of the device.

Needs the built package: `.venv/bin/python tools/list_operators.py`.
"""

import collections
import re
import sys
import textwrap
from pathlib import Path

import torch

import torch_xla

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operators.md"

# Why overloads run on the CPU, by a pattern of their names without "aten::"; the first that fits counts.
REASONS = [
    (r"nonzero|masked_select|_?unique\w*|bincount|repeat_interleave|_ctc_loss\w*\.Tensor", "the shape depends on data"),
    (r"equal|_assert_async(\.msg)?", "the result is needed on the host"),
    (r"_to_sparse\w*|_spdiags|sspaddmm|_validate_compressed\w*|_convert_indices\w*|to_mkldnn", "another layout"),
    (r"_?nested\w*|\w*_?jagged_\w*|_transform_bias_rescale_qkv", "nested tensors, which mostly run on the CPU"),
    (r"\w*quantize\w*|_empty\w*_quantized|_make_per_\w+|_fused_moving_avg\w*", "quantized types"),
    (r"_dyn_quant\w*|\w*_int[48]pack\w*|_scaled_mm\w*", "quantized types"),
    (r"_foobar|_test_\w+|_make_dep_token|from_file|_fused_sdp_choice|_efficientzerotensor", "computes nothing"),
    (r"_?slow_conv\w*|\w*batch_norm\w*", "an inner part of an operation that is native"),
    (r"\w+", "rare"),
]


def needs_kernel() -> list[str]:
    """The overloads with a CPU kernel that no composite kernel serves, by name."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    composite = {
        name
        for key in ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
        for name in registered(key)
    }
    return sorted(name for name in registered("CPU") if name.startswith("aten::") and name not in composite)


def reason_of(name: str) -> str:
    """Why an overload falls back."""
    short = name.removeprefix("aten::")
    base = short.split(".")[0]
    return next(reason for pattern, reason in REASONS if re.fullmatch(pattern, short) or re.fullmatch(pattern, base))


def classify() -> dict[str, tuple[str, str]]:
    """The class of each overload, and a remark."""
    served = {operator["name"]: operator for operator in torch_xla._XLAC._operators()}
    registered = set(torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1"))
    classes = {}
    for name in needs_kernel():
        if name in served:
            row = served[name]
            classes[name] = ("fused" if row["fused"] else "library", "form" if row["plugin_form"] else "CPU")
        elif name in registered:
            classes[name] = ("own", "form")
        else:
            classes[name] = ("fallback", reason_of(name))
    return classes


def base_names(classes: dict, kind: str) -> set[str]:
    """Names without overloads."""
    return {name.split(".")[0] for name, (found, _) in classes.items() if found == kind}


def fallback_table(classes: dict[str, tuple[str, str]]) -> list[str]:
    """A row for each reason, with the names of all overloads that have it."""
    rows = collections.defaultdict(list)
    for name, (kind, remark) in classes.items():
        if kind == "fallback":
            rows[remark].append(f"`{name.removeprefix('aten::')}`")
    lines = [f"| {remark} | {', '.join(names)} |" for remark, names in rows.items()]
    return ["| because | overloads |", "|---|---|", *lines]


def page() -> str:
    """The text of the page."""
    classes = classify()
    counts = collections.Counter(kind for kind, _ in classes.values())
    names = len(base_names(classes, "fallback"))
    on_cpu = [name.removeprefix("aten::") for name, found in classes.items() if found == ("library", "CPU")]
    version = torch.__version__.split("+")[0]
    lines = [
        "# Operators",
        "",
        "For users who ask what happens to an operation. The tables list the exceptions; all others are part of the",
        "program on every engine. Written by `tools/list_operators.py`.",
        "",
        f"ATen {version} has {len(classes)} overloads with a CPU kernel that no composite one serves. Each is in one",
        "of these classes; all other operations are made of them.",
        "",
        "| class | overloads | what it means |",
        "|---|---|---|",
        f"| fused | {counts['fused']} | a scalar body or an expansion into primitives: part of a fused kernel |",
        f"| library | {counts['library']} | ATen's CPU kernel as a step of the program: no sync, no cut |",
        f"| own | {counts['own']} | storage, views, copies, factories, optimizers: the recorder knows them itself |",
        f"| fallback | {counts['fallback']} ({names} names) | runs on the CPU at once, counted as `aten::NAME` |",
        "",
        "torchvision's operations on regions and its deformable convolution are library calls too; `nms` runs on the",
        "CPU, as data decides on the shape of its result.",
        "",
        "## Fallbacks",
        "",
        *fallback_table(classes),
        "",
        "## Library calls without a form for PJRT plugins",
        "",
        "On a plugin these run on the CPU, as fallbacks do. All others have a StableHLO form.",
        "",
        "```text",
        *textwrap.wrap(" ".join(on_cpu), 119, break_on_hyphens=False),
        "```",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
