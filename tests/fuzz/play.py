"""Plays a random program, which is a list of Python statements, on a device, compares two plays and shortens a program.

Programs are made by the modules of `tests.fuzz.kinds`; `make_scope` says which names they may use.
"""

import threading
import zlib
from collections.abc import Callable, Iterator

import torch

ERRORS = (RuntimeError, IndexError, ValueError, TypeError, NameError)


# ---- What programs use ----
def make_input(seed: int, shape: tuple, dtype: str, grad: bool, device: str) -> torch.Tensor:
    """Small values; floats are multiples of 0.25, so that sums of them are exact."""
    values = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed))
    values = (values * 0.25 if dtype.startswith(("float", "bfloat")) else values).to(getattr(torch, dtype))
    return values.to(device).requires_grad_(grad)


def make_module(seed: int, text: str, dtype: str, device: str) -> torch.nn.Module:
    """The module that `text` constructs, with parameters drawn on the CPU."""
    torch.manual_seed(seed)
    return eval(text, {"torch": torch, "nn": torch.nn}).to(device, getattr(torch, dtype))


def make_index(seed: int, shape: tuple, low: int, high: int, dtype: str, device: str) -> torch.Tensor:
    """Integers (or, with the bounds 0 and 2, masks) in [low, high)."""
    values = torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))
    return values.to(getattr(torch, dtype)).to(device)


def nudge(t: torch.Tensor, seed: int) -> torch.Tensor:
    """A copy of which some values are another one's neighbour: what rounding elsewhere could have made of them."""
    if not t.is_floating_point():
        return t
    signs = torch.randint(-1, 2, t.shape, generator=torch.Generator().manual_seed(seed))
    nudged = t.detach() * (1 + signs * torch.finfo(t.dtype).eps)
    return nudged.to(t.dtype).requires_grad_(t.requires_grad)


def widen(t: torch.Tensor, _seed: int) -> torch.Tensor:
    """The same numbers as float64, where they are float32."""
    return t.detach().double().requires_grad_(t.requires_grad) if t.dtype == torch.float32 else t


Change = Callable[[torch.Tensor, int], torch.Tensor]


def make_scope(device: str, sync: Callable = lambda **_: None, change: Change | None = None) -> dict:
    """Names that a program uses. `change` gives another input, and a parameter's numbers, in place of the program's."""
    scope = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "device": device, "handles": []}
    scope["sync"] = sync
    scope["other"] = "xla:1" if device == "xla" else device

    def backward() -> None:
        total = sum(t.sum().double() for _, t in list_tensors(scope) if t.requires_grad and t.is_floating_point())
        if isinstance(total, torch.Tensor):
            total.backward()

    def make(seed: int, *args: object) -> torch.Tensor:
        made = make_input(seed, *args, device)
        return change(made, seed + 1) if change else made

    def make_parameters(seed: int, *args: object) -> torch.nn.Module:
        module = make_module(seed, *args, device)
        for t in [*module.parameters(), *module.buffers()] if change else []:
            t.data = change(t.data, seed + 1)
        return module

    def together(*programs: list[str]) -> list[dict]:
        """Plays programs at the same time, a thread each."""
        results: list[dict] = [{} for _ in programs]
        play = lambda i: results[i].update(run(programs[i], device, sync))  # noqa: E731
        threads = [threading.Thread(target=play, args=(i,)) for i in range(len(programs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    scope["make_input"] = make
    scope["make_module"] = make_parameters
    scope["make_index"] = lambda *args, on=device: make_index(*args, on)
    scope["index"] = lambda values: torch.tensor(values, device=device)
    scope["backward"] = backward
    scope["together"] = together
    return scope


# ---- Playing ----
def list_tensors(scope: dict) -> list[tuple[str, torch.Tensor]]:
    """The program's tensors: variables, elements of lists, parameters and buffers; not of names that begin with `_`."""
    shown = [(name, value) for name, value in scope.items() if not name.startswith("_")]
    return [(name, t) for name, value in shown for name, t in walk(name, value)]


def walk(name: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, torch.nn.Module):
        for inner, t in [*value.named_parameters(), *value.named_buffers()]:
            yield f"{name}.{inner}", t
    elif isinstance(value, torch.optim.Optimizer):
        for i, state in value.state_dict()["state"].items():
            yield from walk(f"{name}[{i}]", state)
    elif isinstance(value, dict):
        for key, element in value.items():
            yield from walk(f"{name}[{key!r}]", element)
    elif isinstance(value, list | tuple):
        for i, element in enumerate(value):
            yield from walk(f"{name}[{i}]", element)


def observe(results: dict, name: str, look: Callable[[], tuple]) -> None:
    """Adds a tensor and facts about it or, if it has no value, the exception that says why."""
    try:
        t, *facts = look()
        t = getattr(t, "wrapped", t)  # of a wrapper subclass
        t = t if type(t) is torch.Tensor else t.as_subclass(torch.Tensor)
        t.cpu()
        results[name] = (t, *facts)
    except Exception as error:  # depends on data, or a split's view whose base was written
        results[name] = (type(error), str(error))


def run(
    lines: list[str],
    device: str,
    sync: Callable = lambda **_: None,
    change: Change | None = None,
    after: Callable[[], None] | None = None,
) -> dict:
    """Plays a program. Returns its tensors and gradients by name and its exceptions by line number.

    `after` is called behind about every third line.
    """
    scope = make_scope(device, sync, change)
    results: dict = {}
    default = torch.get_default_dtype()
    for number, line in enumerate(lines):
        try:
            exec(line, scope)
            if after and zlib.crc32(line.encode()) % 3 == 0:
                after()
        except Exception as error:
            results[number] = (type(error), str(error))
    torch.set_default_dtype(default)
    for handle in scope["handles"]:  # some are of all modules
        handle.remove()
    for name, t in list_tensors(scope):
        observe(results, name, lambda t=t: (t.detach(), t.requires_grad, t.is_leaf))
        if isinstance(results[name][0], torch.Tensor) and results[name][2] and t.grad is not None:
            observe(results, f"{name}.grad", lambda t=t: (t.grad,))
    for i, text in enumerate(scope.get("texts", [])):
        results[f"texts[{i}]"] = (torch.tensor(list(text.encode())),)
    for i, inner in enumerate(scope.get("plays", [])):  # what `together` gave
        results |= {f"plays[{i}] {key}": value for key, value in inner.items()}
    return results


def is_refused_dtype(result: tuple) -> bool:
    """True for the CPU's error that it has no kernel for a dtype; such a dtype may well work on the device."""
    return isinstance(result[0], type) and (result[0] is NotImplementedError or "not implemented for" in result[1])


def drop_refused(lines: list[str]) -> list[str]:
    """The program without the lines for which the CPU has no kernel."""
    results = run(lines, "cpu")
    return [line for i, line in enumerate(lines) if i not in results or not is_refused_dtype(results[i])]


# ---- Comparing ----
def list_strides(t: torch.Tensor) -> tuple:
    """The strides that address anything."""
    return tuple(stride for stride, size in zip(t.stride(), t.shape) if size > 1 and t.numel())


def describe(t: torch.Tensor, *facts: bool, layout: bool) -> tuple:
    place = (list_strides(t), t.storage_offset() if t.numel() else 0) if layout else ()
    return (t.dtype, tuple(t.shape), *place, *facts)


def is_close(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    if a.dtype in (torch.bfloat16, torch.float16):
        tolerance = max(tolerance, 5e-2)
    scale = 1.0
    if a.is_floating_point() and a.numel():
        scale = max(1.0, a.nan_to_num(0, 0, 0).abs().max().item())
    wide = torch.complex128 if a.is_complex() else torch.float64
    return torch.allclose(a.to(wide), b.to(wide), rtol=tolerance, atol=tolerance * scale, equal_nan=True)


# Of errors that depend on what indices and masks hold.
LATE_ERRORS = ("out of", "shape mismatch: indexing tensors", "shape mismatch: value tensor")


def fails_late(expected: dict, actual: dict) -> bool:
    """Whether the device tells later than eager what is wrong with indices; its run has then changed nothing."""
    missing = [result for key, result in expected.items() if isinstance(key, int) and key not in actual]
    late = [result for result in missing if any(text in result[1] for text in LATE_ERRORS)]
    told = [result for result in actual.values() if isinstance(result[0], type)]
    return any(a[0] is b[0] and a[1] in b[1] for a in late for b in told)


def show(a: torch.Tensor, b: torch.Tensor) -> str:
    """Both tensors, or of large ones the element that differs most."""
    if a.numel() <= 24:
        return f"{b} instead of {a}"
    apart = (a.to(torch.float64) - b.to(torch.float64)).abs().nan_to_num(torch.inf).flatten()
    i = int(apart.argmax())
    return f"{b.flatten()[i]} instead of {a.flatten()[i]} at element {i} of {tuple(a.shape)}"


def find_difference(expected: dict, actual: dict, tolerance: float = 1e-5, layout: bool = True) -> str | None:
    """What differs between two results of run, or None.

    Args:
        tolerance: relative, and absolute for values up to 1; 5e-2 at least for half and bfloat16.
        layout: also compare strides and storage offsets.
    """
    if fails_late(expected, actual):
        return None
    if expected.keys() != actual.keys():
        differing = {key: (expected.get(key), actual.get(key)) for key in expected.keys() ^ actual.keys()}
        return f"only one has {differing}"
    for key, a in expected.items():
        b = actual[key]
        if isinstance(a[0], type) or isinstance(b[0], type):
            if a[0] is not b[0]:
                return f"line {key}: {b} instead of {a}"
            continue
        facts_a, facts_b = describe(*a, layout=layout), describe(*b, layout=layout)
        if facts_a != facts_b:
            return f"{key}: {facts_b} instead of {facts_a}"
        if not is_close(a[0], b[0].cpu(), tolerance):
            return f"{key}: {show(a[0], b[0].cpu())}"
    return None


def drop_doubtful(results: dict, expected: dict, others: list[dict], tolerance: float) -> dict:
    """The results without tensors that differ by a quarter of the tolerance in other runs on the CPU: errors add.

    Where a rounding of the inputs or of what is computed changes so much: in a norm over nearly equal values, or where
    the smallest of sums lies that are equal but for rounding.
    """

    def is_doubtful(key: object, other: dict) -> bool:
        a, b = expected.get(key, (None,))[0], other.get(key, (None,))[0]
        both = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape
        return both and not is_close(a, b, tolerance / 4)

    return {key: result for key, result in results.items() if not any(is_doubtful(key, other) for other in others)}


def shrink(lines: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """Fewer lines for which fails() still holds."""
    step = max(len(lines) // 2, 1)
    while step:
        i = len(lines)
        while i > 0:
            shorter = lines[: max(i - step, 0)] + lines[i:]
            if shorter and fails(shorter):
                lines = shorter
            i -= step
        step //= 2
    return lines
