"""Reductions of much to little, which the engine takes in pieces, with what is computed before and after them."""

import pytest
import torch
from eager import check

import torch_xla

SHAPES = [(1 << 17,), (98304, 3), (1, 98304, 3), (1 << 17, 1), (40000, 2, 5), (1 << 15, 31)]
SHAPES += [(100003,), (99999,), (35946, 3), (3, 70000)]

# What is reduced is an operand; computed for the reduction only; computed and used again, cheap or not; or broadcast.
PROGRAMS = {
    "operand": lambda a, b: (a.sum(0), a.amax(0), a.amin(0)),
    "computed": lambda a, b: ((a * b).sum(0), (a - b).square().mean(0), (a > b).any(0), (a > b).sum(0)),
    "used again": lambda a, b: (a - a.mean(0), (b * b + 1) / (b * b + 1).sum(0), torch.softmax(a * b, 0)),
    "two sums": lambda a, b: ((a - a.mean(0)) / (a.std(0, correction=0) + 1), a.var(0, correction=0)),
    "computed for two": lambda a, b: ((a * b).sum(0), (a * b).sum(-1), a * b),
    "broadcast": lambda a, b: ((a * b[:, :1] if a.dim() > 1 else a * b[0]).sum(0), (a + b[:1]).sum(0)),
    "of the last dim": lambda a, b: ((a - b[(0,) * (a.dim() - 1)]).square().sum(0),),
    "places": lambda a, b: ((a * torch.arange(a.shape[0], device=a.device).view(-1, *[1] * (a.dim() - 1))).amax(0),),
    "all": lambda a, b: ((a * b).sum(), a.norm(), torch.logsumexp(a.flatten(), 0), a.amax()),
    "long first": lambda a, b: ((a.transpose(0, -1) * b.transpose(0, -1)).sum(-1), a.flip(0).sum(0)),
    "chains": lambda a, b: (((a * b).exp() * torch.where(a > 0, a, b)).sum(0), (a * b).exp().amax(0)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("program", PROGRAMS)
def test_agree_with_eager(device, program, dtype):
    for shape in SHAPES:
        a, b = torch.randn(shape, dtype=dtype), torch.rand(shape, dtype=dtype)
        run = PROGRAMS[program]
        expected = run(a.double(), b.double()) if dtype == torch.bfloat16 else run(a, b)
        results = run(a.to(device), b.to(device))
        torch_xla.sync()
        rough = {torch.float32: 2e-4, torch.float64: 1e-9, torch.bfloat16: 0.1}[dtype]
        for ours, theirs in zip(results, expected, strict=True):
            scale = theirs.double().abs().max().item() if theirs.is_floating_point() else 0
            torch.testing.assert_close(ours.cpu().double(), theirs.double(), rtol=rough, atol=rough * max(scale, 1))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool])
def test_integers_are_exact(device, dtype):
    for shape in SHAPES:
        a = torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype)
        x = a.to(device)
        results = (x.sum(0), x.amax(0), x.any(0), x.all(0), (x != 3).sum(0))
        torch_xla.sync()
        expected = (a.sum(0), a.amax(0), a.any(0), a.all(0), (a != 3).sum(0))
        for ours, theirs in zip(results, expected, strict=True):
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours.cpu(), theirs)


def test_gradients_agree_with_eager(device):
    a, b = torch.randn(98304, 3), torch.randn(98304, 3)

    def program(place):
        x, y = (t.to(place).requires_grad_() for t in (a, b))
        loss = ((x - y) ** 2).mean(0).sum() + torch.log_softmax((x * y).sum(1), 0)[7] + (x - x.mean(0)).std(0).sum()
        return loss, torch.autograd.grad(loss, (x, y))

    check(program, tolerance=1e-4, atol=1e-6)


def test_drawn_numbers_are_the_same_in_pieces(device):
    torch.manual_seed(7)
    x = torch.randn(1 << 17, device=device)
    stored, total = x.cpu(), x.sum()
    torch.manual_seed(7)
    in_pieces = torch.randn(1 << 17, device=device).sum()
    torch.testing.assert_close(in_pieces.cpu(), stored.sum(), rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(in_pieces.cpu(), total.cpu())


# ---- Positions ----
POSITIONS = {
    "of all": lambda x: (x.argmax(), x.argmin()),
    "of a dim": lambda x: (x.argmax(0), x.argmin(0, keepdim=True), *x.max(0), *x.min(0)),
    "of rows": lambda x: (x.movedim(0, -1).argmax(-1), *x.reshape(2, -1).max(-1), x.reshape(2, -1).argmin()),
    "of what is computed": lambda x: ((x != 3).to(torch.uint8).argmin(0), *(x * 2).max(0)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.uint8])
@pytest.mark.parametrize("program", POSITIONS)
def test_positions_are_those_of_eager(device, program, dtype):
    """The first of equal numbers, the first NaN."""
    for shape in [(1 << 17,), (99998,), (98304, 3), (1, 98304, 3), (40000, 2, 5), (1 << 15, 31)]:
        x = torch.randint(0, 60, shape).to(dtype)
        run = POSITIONS[program] if len(shape) < 3 else POSITIONS["of a dim"]
        inputs = [x]
        if dtype.is_floating_point:
            inputs.append(x.clone())
            inputs[1].view(-1)[[-3, 70001, 70004, 80000]] = torch.nan
        for x in inputs:
            results = run(x.to(device))
            torch_xla.sync()
            for ours, theirs in zip(results, run(x), strict=True):
                torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0, equal_nan=True)


def test_positions_take_no_memory(run_python):
    """Beside the operand. An index of each number would be 256 MB."""
    out = run_python("""
        import resource, torch, torch_xla
        def most():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        x = torch.zeros(1 << 26, dtype=torch.int8, device="xla")
        x[-5:-3] = 5
        print(x[-5].item(), end=" ")
        before = most()
        print(x.argmax().item(), x.view(2, -1).argmin().item(), [t.tolist() for t in x.view(-1, 4).max(0)])
        print(most() - before)
    """)
    first, most = out.splitlines()
    size = 1 << 26
    assert first == f"5 {size - 5} 0 {[[5, 0, 0, 5], [size // 4 - 1, 0, 0, size // 4 - 2]]}"
    assert int(most) < 64
