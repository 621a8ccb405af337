"""Compares the steady cost of single operators with eager's, over PyTorch's OpInfo samples made large.

    python bench/operators.py --page docs/operator_costs.md
    python bench/operators.py --only add,sum,linalg

Each sample's tensors are repeated along all dims until the largest has about a million elements. A turn is some calls,
each synced on the device, as a program that is one operator would be; both devices take turns, and the ratio is that of
the medians. The device's own cost of a sync (recording, finding the program, waking its thread) is part of it.
"""

import itertools
import statistics
import sys
import time
import warnings

import torch
from pages import make_parser, show
from rich.progress import track
from torch.testing._internal.common_methods_invocations import op_db

import torch_xla
import torch_xla.debug.metrics as met

SIZES = (1 << 20, 1 << 17, 1 << 14)  # elements; the first with which a call takes less than LONGEST seconds
LONGEST = 0.05
TURNS = 5
TURN_SECONDS = 0.02
LIMIT = 1.1
SYNC = 20e-6  # seconds: what recording, finding and starting a program takes

# What bounds the outliers, by the name of the operator; the first pattern that it begins with counts.
REASONS = {
    "nn.functional.bilinear": "130 products of one row each: what a step of a program costs",
    "triangular_solve": "LAPACK's column-major results are copied: outputs of programs are row-major",
    "unbind_copy": "16,385 results of one element each: what a tensor costs",
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


def run(op, sample, calls, sync):
    """Seconds of one call."""
    start = time.perf_counter()
    for _ in range(calls):
        results = op(sample.input, *sample.args, **sample.kwargs)
        sync()
    torch_xla.sync(wait=True)
    del results
    return (time.perf_counter() - start) / calls


def first_large(op):
    """The first sample that the operator still takes when it is made large, on the CPU and on the device."""
    for sample, elements in itertools.product(list(op.sample_inputs("cpu", torch.float32))[:8], SIZES):
        try:
            large = enlarge(sample, elements)
            if large is None:
                break
            if run(op, large, 1, lambda: None) < LONGEST:
                return large, large.transform(lambda t: t.to("xla") if isinstance(t, torch.Tensor) else t)
        except Exception:
            break
    return None


def fallbacks():
    """How many operations ran on the CPU so far."""
    names = [name for name in met.counter_names() if name.startswith("aten::")]
    return sum(met.counter_value(name) for name in names)


def measure(op):
    """Median seconds of a call on the CPU and on the device, and whether it fell back; None if no sample can grow."""
    samples = first_large(op)
    if samples is None:
        return None
    cpu, xla = samples

    def nothing():
        pass

    try:
        before = fallbacks()
        first = run(op, cpu, 1, nothing)
        run(op, xla, 3, torch_xla.sync)
        fell = fallbacks() > before
        calls = max(1, min(200, int(TURN_SECONDS / max(first, 1e-6))))
        turns = [(run(op, cpu, calls, nothing), run(op, xla, calls, torch_xla.sync)) for _ in range(TURNS)]
    except Exception:
        return None
    return statistics.median(t[0] for t in turns), statistics.median(t[1] for t in turns), fell


def reason_of(name, seconds, fell):
    """Why an operator costs more than eager's."""
    if fell:
        return "falls back to the CPU"
    known = next((reason for prefix, reason in REASONS.items() if name.startswith(prefix)), None)
    return known or (f"a sync, about {SYNC * 1e6:.0f} us" if seconds < 10 * SYNC else "not explained")


def page(rows):
    """The lines of the page."""
    ratios = sorted(xla / cpu for _, cpu, xla, _ in rows)
    share = sum(r <= LIMIT for r in ratios) / len(ratios)
    lines = [
        "# What single operators cost",
        "",
        "One operator a program, float32 samples of about a million elements (fewer where eager takes more than 50 ms)",
        "against PyTorch eager in the same process, turn by turn (`bench/operators.py`). One operator a program is the",
        "worst case of a lazy device: nothing fuses, and each call pays a sync. Samples whose sizes have to fit each",
        "other cannot grow: there eager takes a few microseconds, and the sync is all that is measured.",
        "",
        f"{len(rows)} operators; median ratio {statistics.median(ratios):.2f}, {share:.0%} at most {LIMIT}; "
        f"quartiles {ratios[len(ratios) // 4]:.2f} and {ratios[3 * len(ratios) // 4]:.2f}.",
        "",
        f"Above {LIMIT}:",
        "",
        "| operator | eager, us | xla / eager | why |",
        "|---|---|---|---|",
    ]
    for name, cpu, xla, fell in sorted(rows, key=lambda row: row[1] / row[2]):
        if xla / cpu > LIMIT:
            lines.append(f"| {name} | {cpu * 1e6:.0f} | {xla / cpu:.2f} | {reason_of(name, cpu, fell)} |")
    return lines


def main():
    """Measures and prints the page."""
    parser = make_parser(__doc__)
    parser.add_argument("--only", default="", help="beginnings of operators' names, by commas")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    wanted = tuple(options.only.split(","))
    rows = []
    for op in track([op for op in op_db if op.name.startswith(wanted)], "measuring", disable=not sys.stderr.isatty()):
        name = f"{op.name}-{op.variant_test_name}" if op.variant_test_name else op.name
        if torch.float32 in op.supported_dtypes("cpu") and (found := measure(op)):
            rows.append((name, *found))
    show(page(rows), options.page)


if __name__ == "__main__":
    main()
