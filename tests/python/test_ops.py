"""Every operator of PyTorch's OpInfo database gives CPU eager's values, dtypes, shapes and gradients on the device.

Operators without a row run on the CPU fallback and are checked all the same; those with a row may not, but for what
FALLBACKS lists. Of random and uninitialized values only the form is compared.
"""

import collections
import contextlib
import functools
import itertools
import os

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import torch_xla
import torch_xla.debug.metrics as met

EMBEDDED = os.environ.get("PJRT_DEVICE", "CPU") == "CPU"

# Without --whole. A plugin compiles a program for each.
SAMPLES = 5 if EMBEDDED else 2
DTYPES = [torch.float32, torch.int64, torch.bfloat16, torch.bool]

ALL_OVERLOADS = frozenset(torch._C._dispatch_get_all_op_names())

# With --whole: types whose samples are tried with strides too, and those that get gradients.
STRIDED_TOO = [torch.float32, torch.int64]
DIFFERENTIATED = [torch.float32, torch.float64, torch.complex64, torch.bfloat16]

# Types in which eager rounds several times within an operation, and the device once.
ROUNDED_OFTEN = (torch.float16, torch.bfloat16)

# Operators whose results depend on the order in which eager rounds.
ROUGH = {
    "nn.functional.instance_norm": "eager's bfloat16 statistics are rounded to bfloat16",
    "cov": "a small difference of sums of float32 weights, in samples of all types",
}

# Operators whose 16-bit results the embedded engine too rounds at other places than eager.
ROUNDED_ELSEWHERE = {
    "nn.functional.scaled_dot_product_attention": "its gradients are sums of whole products (decisions: attention)",
    **dict.fromkeys(
        ("addbmm", *(f"nn.functional.conv{form}{n}d" for form in ("", "_transpose") for n in (1, 2, 3))),
        "where the processor has no products of 16 bits (docs/decisions/products.md) eager rounds each part of a sum",
    ),
}

# Operators whose values are their own: only dtypes, shapes and layouts are compared.
UNINITIALIZED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",  # the part that it adds
    "resize_as_",
}
RANDOM = {
    "bernoulli",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "nn.functional.alpha_dropout",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.rrelu",
    "normal",
    "pca_lowrank",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "svd_lowrank",
    "uniform",
}

# Operations with rows that some of the samples of these operators send to the CPU fallback.
NO_DIMS = "an update or a selection along a dim of a 0-d tensor, or by no index"
FALLBACKS = {
    "nn.functional.avg_pool1d": ({"avg_pool2d"}, "a pool without elements"),
    "nn.functional.pad-reflect": (
        {"reflection_pad1d", "reflection_pad2d", "reflection_pad3d"},
        "an empty batch, padding that cuts",
    ),
    "nn.functional.pad-replicate": (
        {"replication_pad1d", "replication_pad2d", "replication_pad3d"},
        "an empty batch, padding that cuts",
    ),
    "nn.functional.pad-replicate_negative": ({"replication_pad2d"}, "padding that cuts"),
    "gather": ({"gather", "scatter_add_"}, NO_DIMS),
    "scatter": ({"scatter"}, NO_DIMS),
    "index_fill": ({"index_fill", "index_select"}, NO_DIMS),
    "index_copy": ({"index_copy", "index_fill", "index_select"}, NO_DIMS),
    "index_select": ({"index_add_", "index_select"}, NO_DIMS),
    "index_add": ({"index_add", "index_select"}, NO_DIMS),
    "index_reduce": ({"index_add", "index_fill", "index_reduce", "index_select"}, NO_DIMS),
    "index_put": ({"index"}, "the gradient of a mask, whose shape depends on data"),
    "__getitem__": ({"index"}, "a mask, whose shape depends on data"),
    "searchsorted": ({"searchsorted"}, "a sorter"),
    "cat": ({"cat"}, "a list of legacy empty tensors"),
    "all": ({"all"}, "an empty list of dims"),
    "any": ({"any"}, "an empty list of dims"),
    "histc": ({"histc"}, "a range that is taken from the values and may be refused"),
    "nn.functional.pixel_shuffle": ({"pixel_unshuffle"}, "an empty batch"),
    "nn.functional.pixel_unshuffle": ({"pixel_unshuffle"}, "an empty batch"),
    "roll": ({"roll"}, "a tensor without elements"),
    "masked.logsumexp": ({"logsumexp"}, "a reduction of nothing"),
    "repeat_interleave": ({"repeat_interleave"}, "repeats whose sum is not said, on which the size depends"),
    "fft.": ({"constant_pad_nd", "mul_"}, "complex numbers"),
    "chalf": ({"add"}, "complex numbers of 32 bits"),
    "combinations": ({"masked_scatter_"}, "the gradient of no choice"),
    "nn.functional.pdist": ({"_pdist_backward"}, "the gradient of no distance"),
    "to_sparse": ({"sum"}, "of a sparse tensor"),
    "sparse.sampled_addmm": ({"mm", "sum"}, "of sparse tensors"),
}

# Operators whose samples have no strided form: sparse ones, and those whose CPU kernel refuses strides.
CONTIGUOUS = {"sparse.sampled_addmm", "sparse.mm", "native_group_norm"}

# Operators whose tensor arguments beside the input must be CPU tensors on every device.
CPU_ARGUMENTS = {"tensor_split"}


def to_device(tree, device):
    """The tree's tensors on the device, with the strides, overlaps and shared storages that they have on the CPU."""
    storages = collections.Counter(
        t.untyped_storage().data_ptr() for t in tensors_of(tree) if t.layout == torch.strided
    )
    moved = {}

    def move(t):
        plain = t.detach()
        if t.layout != torch.strided or t.device.type != "cpu" or t.is_conj() or t.is_neg() or t.numel() == 0:
            return plain.to(device)
        storage = t.untyped_storage()
        if storages[storage.data_ptr()] == 1 and t.is_contiguous() and storage.nbytes() == t.nbytes:
            return plain.to(device)
        key = (storage.data_ptr(), t.dtype)
        if key not in moved:
            moved[key] = plain.as_strided((storage.nbytes() // t.itemsize,), (1,), 0).to(device)
        return moved[key].as_strided(t.shape, t.stride(), t.storage_offset())

    return pytree.tree_map_only(torch.Tensor, lambda t: move(t).requires_grad_(t.requires_grad), tree)


def tensors_of(tree):
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def call(op, sample, device):
    """Result of one sample, or the exception it raises."""
    try:
        moved = to_device((sample.input, sample.args, sample.kwargs), device)
        arguments = (moved[0], sample.args, sample.kwargs) if op.name in CPU_ARGUMENTS else moved
        kwargs = {k: device if k == "device" else v for k, v in arguments[2].items()}
        return op(arguments[0], *arguments[1], **kwargs), tensors_of(arguments)
    except Exception as error:
        return error, []


def count_fallbacks():
    """How often operations that have a row ran on the CPU all the same, by name; reading a number is no fallback."""
    names = [name for name in met.counter_names() if name.startswith("aten::") and name != "aten::_local_scalar_dense"]
    return collections.Counter({name.removeprefix("aten::"): met.counter_value(name) for name in names})


@functools.cache
def without_form():
    """Overloads of rows that a plugin has no form of, if the device is a plugin's."""
    return frozenset(() if EMBEDDED else (o["name"] for o in torch_xla._XLAC._operators() if not o["plugin_form"]))


@functools.cache
def has_row(name):
    overloads = {
        f"aten::{name}",
        *(f"aten::{name}.{overload}" for overload in getattr(torch.ops.aten, name).overloads()),
    }
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    registered = any(has_kernel(overload, "PrivateUse1") for overload in overloads & ALL_OVERLOADS)
    return registered and not overloads & without_form()


def fallen_rows(before):
    """Operations that have a row and fell back since the count."""
    return {name for name in count_fallbacks() - before if has_row(name)}


def fallen_operations():
    """Operations that fell back since met.clear_all(); on a plugin those that it has a form of."""
    names = count_fallbacks()
    return {name for name in names if names[name] and (EMBEDDED or has_row(name))}


def assert_native(op, before):
    """No operation that has a row fell back, but for what FALLBACKS lists."""
    fallen = fallen_rows(before)
    names = [label_of(op), op.name, op.name.split(".")[0] + "."]
    allowed = next((FALLBACKS[name][0] for name in names if name in FALLBACKS), set())
    assert fallen <= allowed


def gradients(result, inputs):
    outputs = [t for t in tensors_of(result) if t.requires_grad]
    leaves = [t for t in inputs if t.requires_grad]
    if not outputs or not leaves:
        return []
    parts = [part for t in outputs for part in ((t.real, t.imag) if t.is_complex() else (t,))]
    return [g for g in torch.autograd.grad([part.sum() for part in parts], leaves, allow_unused=True) if g is not None]


def caught(function, *args):
    """The result, or the exception."""
    try:
        return function(*args)
    except Exception as error:
        return error


def tolerances(dtype, result, rough):
    """Relative and absolute, of a result of such operands; a plugin rounds functions of integers as those of floats."""
    if not EMBEDDED and not dtype.is_floating_point and not dtype.is_complex:
        dtype = result.dtype
    return {
        torch.bfloat16: (1.6e-2, 7e-2 if rough else 1e-2),
        torch.float16: (4e-3 if rough else 2e-3, 1e-2 if rough else 2e-3),
        torch.float32: (1e-4, 1e-4),
        torch.complex64: (1e-4, 1e-4),
        torch.complex32: (1e-2, 2e-2),  # sums of products of halves
    }.get(dtype, (1e-3, 1e-4) if rough else (None, None))


def assert_same(expected, actual, dtype, rough=False, values=True):
    """Equal values, dtypes, shapes and layouts; without `values` the last three."""
    expected, actual = tensors_of(expected), tensors_of(actual)
    assert len(expected) == len(actual)
    for a, b in zip(expected, actual, strict=True):
        if values:
            rtol, atol = tolerances(dtype, a, rough)
            torch.testing.assert_close(b.cpu(), a, rtol=rtol, atol=atol, equal_nan=True, check_device=False)
        assert (b.dtype, b.shape, b.layout) == (a.dtype, a.shape, a.layout)


def on_both(run):
    """Results of run(device) on the CPU and on the device; an exception is a result too."""
    results = []
    for device in ("cpu", "xla"):
        results.append(caught(lambda: pytree.tree_map_only(torch.Tensor, lambda t: t.detach().cpu(), run(device))))  # noqa: B023
        if isinstance(results[-1], Exception):
            with contextlib.suppress(RuntimeError):
                torch_xla.sync(wait=True)
    return results


def assert_agree(expected, actual, dtype, rough=False, what="", values=True):
    """Equal results, or exceptions of one class."""
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        assert type(expected) is type(actual), f"{what}: {expected!r} on the CPU, {actual!r} on the device"
    else:
        assert_same(expected, actual, dtype, rough, values)


# Operators that give elements and where they are: the position of their dim among the arguments after the input.
ORDERS = {"argsort": 0, "kthvalue": 1, "mode": 0, "sort": 0, "topk": 1}


def selected(op, sample, results):
    """The results, on a plugin with the elements that indices select in place of the indices.

    Of equal elements ATen leaves open which comes first.
    """
    if EMBEDDED or op.name not in ORDERS or isinstance(results, Exception):
        return results
    *values, indices = tensors_of(results)
    position = ORDERS[op.name]
    dim = sample.kwargs.get("dim", sample.args[position] if len(sample.args) > position else -1)
    x, indices = torch.atleast_1d(sample.input.detach(), indices.cpu())
    return [*values, x.take_along_dim(indices if indices.dim() == x.dim() else indices.unsqueeze(dim), dim)]


def call_exactly(op, sample):
    """Result of the sample in float64 on the CPU, and its inputs."""
    wide = {torch.float16: torch.float64, torch.bfloat16: torch.float64}

    def widen(t):
        if isinstance(t, torch.dtype):
            return wide.get(t, t)
        return t.detach().to(wide.get(t.dtype, t.dtype)).requires_grad_(t.requires_grad)

    return call(op, sample.transform(widen), "cpu")


@contextlib.contextmanager
def or_as_exact(op, expected, actual, dtype, compute):
    """Where the device rounds 16-bit floats at other places than eager, it is as near to the exact results as eager."""
    try:
        yield
    except AssertionError:
        errors = (isinstance(results, Exception) for results in (expected, actual))
        rounds_as_eager = EMBEDDED and op.name not in ROUNDED_ELSEWHERE
        if rounds_as_eager or dtype not in ROUNDED_OFTEN or any(errors):
            raise
        for a, b, exact in zip(*map(tensors_of, (expected, actual, compute())), strict=True):
            assert (b.dtype, b.shape, b.layout) == (a.dtype, a.shape, a.layout)
            eager, ours = (torch.linalg.vector_norm((t.detach().cpu() - exact.detach()).nan_to_num()) for t in (a, b))
            assert ours <= 2 * eager


def label_of(op):
    return f"{op.name}-{op.variant_test_name}" if op.variant_test_name else op.name


# Operators that drop elements while they train.
DROPOUT = {"nn.functional.multi_head_attention_forward"}


def has_eager_values(op, sample):
    """Whether the call has the values that eager gives."""
    if op.name in UNINITIALIZED or op.name in RANDOM:
        return False
    return not (sample.kwargs.get("dropout_p") or (sample.kwargs.get("training") and op.name in DROPOUT))


def samples_of(op, dtype, whole, **options):
    """The operator's samples on the CPU: all, also with strides, or the first few."""
    samples = op.sample_inputs("cpu", dtype, **options)
    if not whole:
        return itertools.islice(samples, SAMPLES)
    strided = dtype in STRIDED_TOO and op.name not in CONTIGUOUS
    return itertools.chain.from_iterable(
        (sample, sample.noncontiguous()) if strided else (sample,) for sample in samples
    )


def type_cases(whole, dtypes, wanted=lambda op: True, operators=op_db):
    """The operators with each of the dtypes, or with all that the CPU supports."""
    return [
        pytest.param(op, dtype, id=f"{label_of(op)}-{str(dtype).removeprefix('torch.')}")
        for op in operators
        for dtype in (sorted(op.supported_dtypes("cpu"), key=str) if whole else dtypes)
        if dtype in op.supported_dtypes("cpu") and wanted(op)
    ]


def pytest_generate_tests(metafunc):
    if "dtype" in metafunc.fixturenames:
        metafunc.parametrize("op,dtype", type_cases(metafunc.config.option.whole, DTYPES))


OTHER_ERRORS = {
    "narrow_copy": "the CPU's kernel raises a RuntimeError of its own where other devices raise IndexError",
    "masked_select": "a fallback: its out tensor cannot overlap the input, as both are copies",
}


def error_cases():
    for op in op_db:
        if op.error_inputs_func and op.name not in OTHER_ERRORS:
            yield pytest.param(op, id=label_of(op))


def test_op_agrees_with_eager(op, dtype, whole):
    torch.manual_seed(0)
    grad = dtype in (DIFFERENTIATED if whole else DIFFERENTIATED[:1]) and dtype in op.supported_backward_dtypes("cpu")
    for sample in samples_of(op, dtype, whole, requires_grad=grad):
        fallbacks = count_fallbacks()
        expected, expected_inputs = call(op, sample, "cpu")
        actual, actual_inputs = call(op, sample, "xla")
        # A plugin has no form of complex numbers: their operations run on the CPU.
        has_forms = EMBEDDED or not any(t.is_complex() for t in tensors_of((expected, expected_inputs)))
        values = has_eager_values(op, sample)
        results = [selected(op, sample, r) for r in (expected, actual)]
        with or_as_exact(op, expected, actual, dtype, lambda: call_exactly(op, sample)[0]):  # noqa: B023
            assert_agree(*results, dtype, op.name in ROUGH, values=values)
        if grad and not isinstance(expected, Exception):
            expected = caught(gradients, expected, expected_inputs)
            actual = caught(gradients, actual, actual_inputs)
            # Gradients in bfloat16 are rounded several times.
            with or_as_exact(op, expected, actual, dtype, lambda: gradients(*call_exactly(op, sample))):  # noqa: B023
                assert_agree(expected, actual, dtype, op.name in ROUGH or dtype == torch.bfloat16, values=values)
        if dtype == torch.float32 and has_forms and all(t.numel() > 0 for t in expected_inputs):
            assert_native(op, fallbacks)
    torch_xla.sync()


@pytest.mark.parametrize("op", list(error_cases()))
def test_bad_arguments_raise_as_in_eager(op):
    for i, error in enumerate(op.error_inputs("cpu")):
        expected, _ = call(op, error.sample_input, "cpu")
        actual, _ = call(op, error.sample_input, "xla")
        try:
            pytree.tree_map_only(
                torch.Tensor, torch.Tensor.cpu, actual
            )  # some errors depend on data: they come with the values
        except Exception as late:
            actual = late
        assert type(expected) is type(actual), f"input {i}: {expected!r} on the CPU, {actual!r} on the device"
