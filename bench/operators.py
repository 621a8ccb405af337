"""Compares the steady cost of single operators with eager's, over PyTorch's OpInfo samples made large.

    python bench/operators.py --page docs/operator_costs.md
    python bench/operators.py --only add,sum,linalg

Each sample's tensors are repeated along all dims until the largest has about a million elements. A program is one call,
or where eager takes less than PROGRAM seconds as many as fill that time, each on tensors of its own, so that a sync's
cost is not taken for the operator's. Processor time of one thread counts. Both devices take turns, and the ratio is the
median of the turns' ratios; what is above the limit is measured again when all others are, as load comes in stretches,
and the least ratio counts.
"""

import itertools
import statistics
import sys
import time
import warnings

import torch
from pages import machine, make_parser, OPERATIONS, show_part
from rich.progress import track
from torch.testing._internal.common_methods_invocations import op_db

import torch_xla
import torch_xla.debug.metrics as met

SIZES = (1 << 20, 1 << 17, 1 << 14)  # elements; the first with which a call takes less than LONGEST seconds
LONGEST = 0.05
TURNS = 21
TURN_SECONDS = 0.004
ATTEMPTS = 4
PROGRAM = 1e-3  # seconds of eager's in one program: a sync takes about 20 us
MOST_CALLS = 200  # in one program
LIMIT = 1.1

SMALL = 45e-6  # seconds of eager's
SMALL_CALL = "a small call: recording it and its step of the program take 3 to 4 us"

# What bounds the outliers.
REASONS = {
    "__getitem__": "the list of indices becomes a tensor of the device at each call",
    "nn.functional.bilinear": "130 products of one row each: what a step of a program costs",
    "nn.functional.gelu": "eager calls oneDNN's kernel, which takes its polynomials from tables",
    "nn.functional.fractional_max_pool2d": "PyTorch's sample seeds all generators at each call, the device's too",
    "nn.functional.fractional_max_pool3d": "PyTorch's sample seeds all generators at each call, the device's too",
    "normal": "drawn by Philox, so that the elements do not depend on threads; eager's generator is cheaper",
    "transpose_copy": "a small transposition, which eager's copy does by blocks",
    "unbind_copy": "16,385 results of one element each: what a tensor costs",
    **dict.fromkeys(["erfc", "log", "log2", "log10", "tan", "tanh"], "eager calls MKL's vector function"),
}


def enlarge(sample, elements):
    """The sample with its tensors repeated along all dims; indices stay in range."""
    tensors = []
    sample.transform(lambda t: tensors.append(t) or t if isinstance(t, torch.Tensor) else t)
    largest = max((t for t in tensors), key=torch.Tensor.numel, default=None)
    if largest is None or largest.numel() == 0 or largest.dim() == 0:
        return None
    factor = max(1, round((elements / largest.numel()) ** (1 / largest.dim())))

    def repeat(t):
        if not isinstance(t, torch.Tensor):
            return t
        return t.detach().repeat(*[1 if n == 1 else factor for n in t.shape]) if t.dim() else t.detach()

    return sample.transform(repeat)


def copy_to(sample, device):
    """The sample with tensors of its own on the device."""
    return sample.transform(lambda t: t.to(device, copy=True) if isinstance(t, torch.Tensor) else t)


def run(op, samples, programs, sync):
    """Seconds of one call: a program calls the operator on each of the samples."""
    start = time.process_time()
    for _ in range(programs):
        results = [op(sample.input, *sample.args, **sample.kwargs) for sample in samples]
        sync()
    torch_xla.sync(wait=True)
    del results
    return (time.process_time() - start) / programs / len(samples)


def nothing():
    """Eager's sync."""


def first_large(op):
    """The first sample that the operator still takes when it is made large."""
    for sample, elements in itertools.product(list(op.sample_inputs("cpu", torch.float32))[:8], SIZES):
        try:
            large = enlarge(sample, elements)
            if large is None:
                break
            if run(op, [large], 1, nothing) < LONGEST:
                return large
        except Exception:
            break
    return None


def fallbacks():
    """How many operations ran on the CPU so far."""
    names = [name for name in met.counter_names() if name.startswith("aten::")]
    return sum(met.counter_value(name) for name in names)


def compare(op, cpu, xla, programs):
    """Seconds of a call on the CPU, and the ratio of the device's to it."""
    turns = [(run(op, cpu, programs, nothing), run(op, xla, programs, torch_xla.sync)) for _ in range(TURNS)]
    return statistics.median(cpu for cpu, _ in turns), statistics.median(xla / cpu for cpu, xla in turns)


def measure(op):
    """Seconds of a call on the CPU, the device's ratio to it, whether it fell back; None if no sample can grow."""
    sample = first_large(op)
    if sample is None:
        return None
    try:
        first = min(run(op, [sample], 1, nothing) for _ in range(3))
        copies = max(1, min(MOST_CALLS, int(PROGRAM / max(first, 1e-6))))
        cpu, xla = ([copy_to(sample, device) for _ in range(copies)] for device in ("cpu", "xla"))
        before = fallbacks()
        run(op, xla, 3, torch_xla.sync)
        fell = fallbacks() > before
        programs = max(1, int(TURN_SECONDS / copies / max(first, 1e-6)))
        return *compare(op, cpu, xla, programs), fell
    except Exception:
        return None


def full_name(op):
    """The operator's name with its variant's."""
    return f"{op.name}-{op.variant_test_name}" if op.variant_test_name else op.name


def reason_of(name, seconds, fell):
    """Why an operator costs more than eager's."""
    if fell:
        return "falls back to the CPU"
    known = REASONS.get(name.split("-")[0])
    return known or (SMALL_CALL if seconds < SMALL else "not explained")


def page(rows):
    """The lines of this part of the page."""
    ratios = sorted(ratio for _, _, ratio, _ in rows)
    share = sum(r <= LIMIT for r in ratios) / len(ratios)
    lines = [
        f"## Time, {machine()}",
        "",
        "Programs of one operator and eager take turns in one process, on float32 samples of about a million elements",
        "(fewer where eager takes more than 50 ms; `bench/operators.py`). A program repeats the operator on other",
        "tensors until eager would take 1 ms; otherwise the program's start, about 20 us, would be most of the time of",
        "a small sample. The ratio is of processor time with one thread.",
        "",
        f"{len(rows)} operators; median ratio {statistics.median(ratios):.2f}, {share:.0%} at most {LIMIT}; "
        f"quartiles {ratios[len(ratios) // 4]:.2f} and {ratios[3 * len(ratios) // 4]:.2f}.",
        "",
        f"Above {LIMIT}:",
        "",
        "| operator | eager, us | xla / eager | why |",
        "|---|---|---|---|",
    ]
    for name, cpu, ratio, fell in sorted(rows, key=lambda row: -row[2]):
        if ratio > LIMIT:
            lines.append(f"| {name} | {cpu * 1e6:.0f} | {ratio:.2f} | {reason_of(name, cpu, fell)} |")
    return lines


def main():
    """Measures and prints the page."""
    parser = make_parser(__doc__)
    parser.add_argument("--only", default="", help="beginnings of operators' names, by commas")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    wanted = tuple(options.only.split(","))
    ops = [op for op in op_db if op.name.startswith(wanted) and torch.float32 in op.supported_dtypes("cpu")]
    rows = {}
    for attempt in range(ATTEMPTS):
        for op in track(ops, f"attempt {attempt + 1}", disable=not sys.stderr.isatty()):
            name, row = full_name(op), measure(op)
            if row and (name not in rows or row[1] < rows[name][1]):
                rows[name] = row
        ops = [op for op in ops if rows.get(full_name(op), (0, 0))[1] > LIMIT]
    show_part(OPERATIONS, page([(name, *row) for name, row in rows.items()]), options.page)


if __name__ == "__main__":
    main()
