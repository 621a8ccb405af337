"""Random tensor programs: views, in-place writes, arithmetic and reductions, the same on any device.

A program is a list of steps drawn from a seed; `run` plays it on a device and returns the CPU values of all its tensors.
"""

import random

import torch

SHAPES = [(3, 4), (2, 3, 4), (4,), (), (1, 4), (2, 1, 4), (5, 3), (6, 2), (0, 3)]
UNARY = [torch.exp, torch.tanh, torch.abs, torch.neg, torch.sigmoid, torch.relu, torch.sin, torch.sqrt, torch.floor]
BINARY = [torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, torch.eq, torch.lt]
INPLACE = ["add_", "mul_", "sub_", "copy_"]


def make_inputs(rng: random.Random) -> list[torch.Tensor]:
    """Four CPU tensors of mixed shapes and dtypes with small values."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    tensors = []
    for _ in range(4):
        shape = rng.choice(SHAPES)
        dtype = rng.choice([torch.float32, torch.float32, torch.float32, torch.float64, torch.int64, torch.bool])
        values = torch.randint(-3, 4, shape, generator=generator)
        tensors.append(values.to(dtype) if dtype != torch.float32 else values * 0.25)
    return tensors


def pick_view(rng: random.Random, t: torch.Tensor):
    """A view of t and nothing computed."""
    if t.dim() == 0:
        return t.unsqueeze(0)
    dim = rng.randrange(t.dim())
    size = t.shape[dim]
    kind = rng.randrange(7)
    if kind == 0:
        return t.transpose(0, dim)
    if kind == 1 and size > 0:
        return t.select(dim, rng.randrange(size))
    if kind == 2 and size > 1:
        start = rng.randrange(size - 1)
        return t.narrow(dim, start, rng.randrange(1, size - start + 1))
    if kind == 3 and size > 1:
        index = [slice(None)] * t.dim()
        index[dim] = slice(rng.randrange(2), None, 2)
        return t[tuple(index)]
    if kind == 4 and t.is_contiguous():
        return t.view(-1)
    if kind == 5:
        return t.unsqueeze(dim)
    return t.flip(dim)


def compute(rng: random.Random, a: torch.Tensor, b: torch.Tensor):
    """A new tensor from a and b."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(UNARY)(a.float() if not a.is_floating_point() else a)
    if kind == 1:
        return rng.choice(BINARY)(a.float(), b.float())
    if kind == 2 and a.dim() > 0 and a.numel() > 0:
        dim = rng.randrange(a.dim())
        keep = rng.random() < 0.5
        return rng.choice([lambda: a.sum(dim, keep), lambda: a.float().mean(dim, keep), lambda: a.float().amax(dim, keep)])()
    if kind == 3:
        return a.sum()
    if kind == 4:
        return a * rng.choice([2, -1, 0.5]) + rng.choice([1, 0.25])
    return torch.where(a > 0, a.float(), b.float())


def write(rng: random.Random, target: torch.Tensor, source: torch.Tensor) -> None:
    """An in-place operation on target, which may be a view."""
    kind = rng.randrange(4)
    if kind == 0:
        target.fill_(rng.choice([0, 1, 2]))
    elif kind == 1:
        target.zero_()
    else:
        getattr(target, rng.choice(INPLACE))(source.to(target.dtype))


def step(rng: random.Random, tensors: list[torch.Tensor]) -> None:
    """One step: appends to the list or writes into one of its tensors."""
    a, b = rng.choice(tensors), rng.choice(tensors)
    kind = rng.random()
    if kind < 0.35:
        tensors.append(pick_view(rng, a))
    elif kind < 0.75:
        tensors.append(compute(rng, a, b))
    else:
        write(rng, a, b)


def run(seed: int, device: str, steps: int, sync=None) -> list:
    """Plays program `seed`; a step that raises leaves the exception's class in the result. sync() is called at some steps."""
    rng = random.Random(seed)
    tensors = [t.to(device) for t in make_inputs(rng)]
    outcomes: list = []
    for _ in range(steps):
        state = rng.getstate()
        pause = rng.random() < 0.1
        try:
            step(rng, tensors)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            outcomes.append(type(error))
        rng.setstate(state)
        rng.seed(rng.random())  # the same draws whatever the step did
        if pause and sync:
            sync()
        del tensors[:-12]
    return outcomes + [(t.dtype, tuple(t.shape), t.stride(), t.cpu()) for t in tensors]
