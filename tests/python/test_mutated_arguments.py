"""OpInfo's samples with one argument spoilt: the device raises eager's class of error or gives its shapes and dtypes.

An argument gets another dtype, rank or size, becomes empty or 0-d; a whole number leaves its range.
"""

import itertools

import pytest
import torch
from test_ops import call, label_of
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import torch_xla
from torch_xla._torch_release import RELEASE

SAMPLES = 1
# Operators whose kernel on the CPU reads or writes outside its memory for some of these arguments, in eager as well.
UNSAFE = {
    "lu_unpack",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    "_segment_reduce",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
}
# One argument alone by which the CPU's kernel divides, in releases of PyTorch before 2.15.
ENDS_THE_PROCESS = ("nn.functional.scaled_dot_product_attention", "argument 1 empty")
OTHER_RESULTS = {
    "as_strided": "on the CPU the emptied input still shows the sample's storage",
    "as_strided_copy": "on the CPU the emptied input still shows the sample's storage",
    "as_strided_scatter": "on the CPU the emptied input still shows the sample's storage",
    "as_strided-partial_views": "on the CPU the emptied input still shows the sample's storage",
    "narrow_copy": "the CPU's kernel raises a RuntimeError of its own where other devices raise IndexError",
    "ldexp": "the CPU's own kernel refuses bool exponents, which it documents",
    "histc": "the CPU's own kernel has no integers, which CUDA's has",
    "nn.functional.max_pool1d": "the CPU's own kernel has no integers, which the 2-d form has",
}
TENSORS = {
    "int64": lambda t: t.detach().to(torch.int64),
    "bool": lambda t: t.detach().to(torch.bool),
    "float64": lambda t: t.detach().to(torch.float64),
    "0-d": lambda t: t.detach().reshape(-1)[:1].sum(),
    "empty": lambda t: t.detach()[:0] if t.dim() else t.detach(),
    "more dims": lambda t: t.detach()[None],
    "larger": lambda t: torch.cat([t.detach(), t.detach()], -1) if t.dim() else t.detach(),
}
NUMBERS = {"large": 99, "negative": -99}


def is_plain(x):
    return isinstance(x, torch.Tensor) and x.layout == torch.strided and x.device.type == "cpu"


def spoilt(sample):
    """Pairs of a description and the sample with one leaf of its arguments replaced."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    for i, leaf in enumerate(leaves):
        changes = TENSORS if is_plain(leaf) else NUMBERS if type(leaf) is int else {}
        for name, change in changes.items():
            other = change(leaf) if callable(change) else change
            moved = pytree.tree_unflatten([*leaves[:i], other, *leaves[i + 1 :]], spec)
            yield f"argument {i} {name}", type(sample)(moved[0], args=moved[1], kwargs=moved[2])


def outcome(op, sample, device):
    """Shapes and dtypes, or the class of the exception, of one call; errors of the run count as the call's."""
    result, _ = call(op, sample, device)
    try:
        if isinstance(result, Exception):
            raise result
        tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        return [(tuple(t.cpu().shape), t.dtype) for t in tensors]
    except Exception as error:
        return type(error)


def cases():
    for op in op_db:
        checked = op.name not in UNSAFE and label_of(op) not in OTHER_RESULTS
        if checked and torch.float32 in op.supported_dtypes("cpu"):
            yield pytest.param(op, id=label_of(op))


@pytest.mark.parametrize("op", list(cases()))
def test_spoilt_argument(op):
    torch.manual_seed(0)
    different = []
    for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), SAMPLES):
        for what, changed in spoilt(sample):
            if (op.name, what) == ENDS_THE_PROCESS and RELEASE < (2, 15):
                continue
            expected, actual = outcome(op, changed, "cpu"), outcome(op, changed, "xla")
            if expected != actual:
                different.append(f"{what}: {expected} on the CPU, {actual} on the device")
    torch_xla.sync()
    assert not different, "\n".join(different)
