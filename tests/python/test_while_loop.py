"""while_loop and fori_loop: conditions that depend on data, numbers of turns that are no part of the program."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop as torch_while_loop

import torch_xla
from torch_xla.experimental.fori_loop import fori_loop, while_loop


def in_python(cond_fn, body_fn, values):
    while cond_fn(*values):
        values = body_fn(*values)
    return values


@pytest.mark.parametrize("loop", [while_loop, torch_while_loop])
def test_values(device, loop):
    def cond_fn(i, x, y):
        return i > 0

    def body_fn(i, x, y):
        return i - 1, (x @ x).tanh(), y + x.sum(0).to(torch.int64)

    values = (torch.tensor(7), torch.randn(3, 3), torch.arange(3))
    got = loop(cond_fn, body_fn, tuple(t.to(device) for t in values))
    for a, b in zip(got, in_python(cond_fn, body_fn, values), strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_ends_by_its_data_and_compiles_once(device, compiles):
    def collatz(n):
        n = torch.tensor(n, device=device)
        steps = torch.zeros((), dtype=torch.int64, device=device)
        torch_xla.sync()
        _, steps = while_loop(
            lambda n, steps: n != 1,
            lambda n, steps: (torch.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1),
            (n, steps),
        )
        return steps.item()

    assert collatz(6) == 8
    compiles.reset()
    assert [collatz(n) for n in (1, 7, 27)] == [0, 16, 111]
    assert compiles.value == 0


def test_is_one_node(device):
    x = torch.ones(2, device=device)
    torch_xla.sync()
    while_loop(lambda x: x.sum() < 100, lambda x: (x * 2,), (x,))
    text = torch_xla._XLAC._pending_graph_text()
    assert text.count("xla::loop") == 1
    assert "xla::argument" not in text


def test_module_in_the_body(device):
    torch.manual_seed(0)
    linear = nn.Linear(2, 2)
    ours = nn.Linear(2, 2).to(device)
    ours.load_state_dict(linear.state_dict())
    values = (torch.tensor(10, dtype=torch.int32), torch.randn(2, 2))
    with torch.no_grad():
        want = in_python(lambda i, x: i > 0, lambda i, x: (i - 1, linear(x)), values)
        for loop in (while_loop, torch_while_loop):
            got = loop(lambda i, x: i > 0, lambda i, x: (i - 1, ours(x)), tuple(t.to(device) for t in values))
            torch.testing.assert_close(got[1].cpu(), want[1])


def test_random_numbers(device):
    def draw(n):
        values = (torch.tensor(n, device=device), torch.zeros(n, 3, device=device))

        def body(i, x):
            return i - 1, torch.cat([x[1:], torch.rand(1, 3, device=device)])

        return while_loop(lambda i, x: i > 0, body, values)[1].cpu()

    drawn = draw(20)
    assert len(set(drawn.flatten().tolist())) == 60
    assert not torch.equal(draw(20), drawn)


def test_fori_loop(device, compiles):
    def run(lower, upper):
        return fori_loop(lower, upper, lambda x: x * 2 + 1, torch.zeros(2, device=device))

    left, x = run(0, 5)
    assert x.tolist() == [31, 31]
    assert left.item() == 0
    compiles.reset()
    assert run(3, 5)[1].tolist() == [3, 3]
    assert run(4, 4)[1].tolist() == [0, 0]
    assert compiles.value == 0
    assert run(torch.tensor(1, device=device), torch.tensor(4, device=device))[1].tolist() == [7, 7]
    a, b = fori_loop(0, 10, lambda a, b: (b, a + b), *torch.tensor([0, 1], device=device).unbind())[1:]
    assert (a.item(), b.item()) == (55, 89)
    with pytest.raises(ValueError, match="has to be at least lower"):
        run(3, 2)


REFUSED = [
    (lambda i, x: (i - 1, x.sum()), RuntimeError, "same shape and dtype"),
    (lambda i, x: (i - 1,), RuntimeError, "as many values as are carried"),
    (lambda i, x: (i - 1, x.add_(1)), RuntimeError, "in-place operation"),
    (lambda i, x: (i - 1, x + x.max().item()), RuntimeError, "body of a loop"),
    (lambda i, x: (i - 1, torch.nonzero(x)), RuntimeError, "body of a loop"),
]


@pytest.mark.parametrize(("body", "error", "message"), REFUSED)
def test_refused_bodies(device, body, error, message):
    values = (torch.tensor(3, device=device), torch.ones(2, device=device))
    with pytest.raises(error, match=message):
        while_loop(lambda i, x: i > 0, body, values)
    assert values[1].tolist() == [1, 1]


def test_refused_conditions(device):
    with pytest.raises(RuntimeError, match="boolean scalar"):
        while_loop(lambda x: x > 0, lambda x: (x - 1,), (torch.ones(2, device=device),))
    with pytest.raises(ValueError, match="one xla device"):
        while_loop(lambda x: x > 0, lambda x: (x - 1,), (torch.ones(()),))


def test_the_page_of_loops(device):
    page = (Path(__file__).resolve().parents[2] / "docs" / "loops.md").read_text()
    names = {"torch": torch}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], names)
    torch.testing.assert_close(names["roots"].detach().cpu(), torch.tensor([0.0, 1, 3, 6]).sqrt())
    assert names["n"].item() == 458330
    assert names["xs"].grad.shape == (4,)


def test_ctrl_c_ends_an_endless_loop(run_python):
    printed = run_python(
        """
        import os, signal, threading
        import torch, torch_xla
        from torch_xla.experimental.fori_loop import while_loop

        x = torch.ones((), device="xla")
        torch_xla.sync(wait=True)
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        y = while_loop(lambda x: x > 0, lambda x: (x * 1,), (x,))[0]
        try:
            y.item()
        except KeyboardInterrupt:
            print("interrupted", torch.ones(1, device="xla").item())
        """
    )
    assert "interrupted 1.0" in printed
