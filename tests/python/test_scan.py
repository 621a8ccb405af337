"""scan and scan_layers: values and gradients of the same Python loop, one node, compiled once."""

import copy
import re
import threading
import time

import pytest
import torch
from functorch.compile import default_partition, min_cut_rematerialization_partition
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint

import torch_xla
import torch_xla.debug.metrics as met
from torch_xla.experimental import scan as scan_module
from torch_xla.experimental.scan import scan, tree_flatten_none
from torch_xla.experimental.scan_layers import scan_layers


def loop(fn, carry, xs):
    """The same in Python."""
    ys = []
    for i in range(len(tree_leaves(xs)[0])):
        carry, y = fn(carry, tree_map(lambda x, i=i: x[i], xs))
        ys.append(y)
    return carry, tree_map(lambda *parts: None if parts[0] is None else torch.stack(parts), *ys)


def run(scanner, fn, init, xs, device):
    """Results and gradients, from and on the CPU, of a sum with unlike weights."""
    init, xs = tree_map(lambda t: t.detach().to(device).requires_grad_(t.requires_grad), (init, xs))
    results = [t for t in tree_leaves(scanner(fn, init, xs)) if t is not None]
    total = sum(
        (t * torch.linspace(0.5, 1 + i, t.numel(), device=device).reshape(t.shape)).sum() for i, t in enumerate(results)
    )
    total.backward()
    leaves = [t for t in tree_leaves((init, xs)) if t.requires_grad]
    gradients = [torch.zeros_like(t) if t.grad is None else t.grad for t in leaves]
    return [t.detach().cpu() for t in (*results, *gradients)]


def check(fn, init, xs, device, **kwargs):
    got = run(lambda *args: scan(*args, **kwargs), fn, init, xs, device)
    want = run(loop, fn, init, xs, torch.device("cpu"))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def leaf(*shape):
    return torch.randn(shape, requires_grad=True)


@pytest.mark.parametrize("partition", [None, default_partition, min_cut_rematerialization_partition])
@pytest.mark.parametrize("pure", [False, True])
def test_values_and_gradients(device, partition, pure):
    def fn(carry, x):
        h = torch.tanh(carry["h"] @ x["w"] + x["b"])
        return {"h": h, "n": carry["n"] + h.mean()}, (h.sin(), h.sum(0) * carry["n"])

    init = {"h": leaf(3, 4), "n": leaf()}
    xs = {"w": leaf(5, 4, 4), "b": leaf(5, 4)}
    check(fn, init, xs, device, partition_fn=partition, is_fn_pure=pure)
    check(fn, init, xs, device, partition_fn=partition, is_fn_pure=pure)


@pytest.mark.parametrize(("init_grad", "xs_grad"), [(True, False), (False, True)])
def test_gradient_of_one_side_only(device, init_grad, xs_grad):
    init = torch.randn(2).requires_grad_(init_grad)
    xs = torch.randn(4, 2).requires_grad_(xs_grad)
    check(lambda c, x: (c * x, c * x + x), init, xs, device)


@pytest.mark.parametrize(
    "fn",
    [
        lambda c, x: (c, x + 1),
        lambda c, x: (c + 1, x),
        lambda c, x: (c, c),
        lambda c, x: (x, c),
        lambda c, x: (c.clone().add_(x), x.clone().mul_(2)),
        lambda c, x: (c.t().reshape(2, 2).sin(), x[:, 0]),
        lambda c, x: (c * torch.tensor([1.0, 2.0], device=c.device), x.sum()),
        lambda c, x: (torch.cos(c) + x, None),
        lambda c, x: (torch.cos(c) + x, ()),
    ],
)
def test_forms_of_functions(device, fn):
    check(fn, leaf(2, 2), leaf(3, 2, 2), device)


def test_swapped_carries_are_written_in_place_rightly(device):
    check(lambda c, x: ((c[1] + x, c[0] * 2, c[2]), c[0] - c[1]), (leaf(3), leaf(3), leaf(3)), leaf(6, 3), device)


def test_one_turn_and_none(device):
    check(lambda c, x: (c * x, c + x), leaf(3), leaf(1, 3), device)
    init = torch.ones(3, device=device)
    carry, ys = scan(lambda c, x: (c * x, c + x), init, torch.empty(0, 3, device=device))
    assert carry.tolist() == [1, 1, 1]
    assert ys.shape == (0, 3)


def test_dtypes(device):
    def fn(carry, x):
        half, count, flag = carry
        a, b = x
        return (half.sin(), count + b, flag ^ (b > 1)), (a.sin(), b * 2, flag)

    init = (torch.randn(2, dtype=torch.float16), torch.tensor(3), torch.tensor(False))
    xs = (torch.randn(3, 2, dtype=torch.bfloat16), torch.arange(3))
    got = scan(fn, *tree_map(lambda t: t.to(device), (init, xs)))
    want = loop(fn, init, xs)
    for a, b in zip(tree_leaves(got), tree_leaves(want), strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_operands_and_results_that_are_conjugates(device):
    x = torch.randn(3, 2, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))

    def step(carry, x):
        return (carry * x).conj(), x.conj().imag

    def results(scanner, device):
        return scanner(step, x[0].to(device).conj(), x.to(device).conj())

    for a, e in zip(results(scan, device), results(loop, "cpu"), strict=True):
        torch.testing.assert_close(a.cpu(), e)


def test_operands_in_any_memory_order(device):
    xs = torch.randn(4, 3, 5, device=device).permute(1, 2, 0)
    init = torch.randn(4, 5, device=device).t()
    got = scan(lambda c, x: (c + x, c), init, xs)
    want = loop(lambda c, x: (c + x, c), init.cpu(), xs.cpu())
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_gradients_of_leaves_from_outside(device):
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    xs, init = torch.randn(3, 2, 4), torch.zeros(2, 4)
    ours = copy.deepcopy(layer).to(device)
    scan(lambda c, x: (torch.tanh(ours(c) + x), None), init.to(device), xs.to(device))[0].sum().backward()
    loop(lambda c, x: (torch.tanh(layer(c) + x), None), init, xs)[0].sum().backward()
    torch.testing.assert_close(ours.weight.grad.cpu(), layer.weight.grad)
    torch.testing.assert_close(ours.bias.grad.cpu(), layer.bias.grad)


def test_gradient_of_a_computed_tensor_from_outside_is_refused(device):
    w = torch.ones(2, device=device, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="has a gradient and is no leaf"):
        scan(lambda c, x: (c * w, x), torch.ones(2, device=device), torch.ones(3, 2, device=device))


@pytest.mark.parametrize("where", ["around", "within"])
def test_checkpoints(device, where):
    def turn(carry, x):
        return torch.tanh(carry * x).sin(), carry.exp()

    def fn(carry, x):
        return checkpoint(turn, carry, x, use_reentrant=False)

    def around(scanner):
        return lambda fn, init, xs: checkpoint(lambda: scanner(turn, init, xs), use_reentrant=False)

    init, xs = leaf(3), leaf(4, 3)
    ours, theirs = (around(scan), around(loop)) if where == "around" else (scan, loop)
    for got, want in zip(run(ours, fn, init, xs, device), run(theirs, fn, init, xs, torch.device("cpu")), strict=True):
        torch.testing.assert_close(got, want)


def test_loops_in_loops(device):
    def inner(carry, x):
        return carry * x.cos(), carry.sin()

    def outer(scanner):
        def fn(carry, x):
            carry, ys = scanner(inner, carry, x)
            return carry, ys.sum(0)

        return fn

    init, xs = leaf(3), leaf(4, 5, 3)
    got = run(scan, outer(scan), init, xs, device)
    want = run(loop, outer(loop), init, xs, torch.device("cpu"))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def test_random_numbers_differ_from_turn_to_turn_and_repeat_with_the_seed(device):
    def fn(carry, x):
        drawn = torch.rand(4, device=device)
        return carry + drawn, drawn

    def inner(carry, x):
        return scan(fn, carry, x)

    init, xs = torch.zeros(4, device=device), torch.zeros(3, 5, device=device)
    for is_pure in (False, True):
        drawn = []
        for _ in range(2):
            torch.manual_seed(7)
            drawn.append(scan(inner, init, xs, is_fn_pure=is_pure)[1].reshape(15, 4).cpu())
        torch.testing.assert_close(drawn[0], drawn[1], rtol=0, atol=0)
        assert len(set(drawn[0].flatten().tolist())) == 60
        assert not torch.equal(scan(inner, init, xs, is_fn_pure=is_pure)[1].reshape(15, 4).cpu(), drawn[0])


@pytest.mark.parametrize("partition", [default_partition, min_cut_rematerialization_partition])
def test_the_gradient_sees_the_dropout_of_the_forward(device, partition):
    x = torch.ones(6, 50, device=device, requires_grad=True)
    ys = scan(lambda c, x: (c, nn.functional.dropout(x * x, 0.5)), torch.zeros((), device=device), x, partition)[1]
    ys.sum().backward()
    torch.testing.assert_close(x.grad.cpu(), 2 * ys.detach().cpu())
    assert 0 < (ys == 0).sum().item() < 300


def test_is_one_node_that_compiles_once(device, compiles):
    def step(length):
        init = torch.ones(3, device=device, requires_grad=True)
        xs = torch.ones(length, 3, device=device)
        torch_xla.sync()
        carry, ys = scan(lambda c, x: ((c * x).sin(), c.cos()), init, xs)
        text = torch_xla._XLAC._pending_graph_text()
        (carry.sum() + ys.sum()).backward()
        torch_xla.sync()
        return text, init.grad.cpu()

    step(7)
    compiles.reset()
    text, gradient = step(7)
    assert compiles.value == 0
    assert text.count("= xla::loop(") == 1
    assert "xla::argument" not in text
    outside = text.split("xla::loop")[0]
    assert "aten::sin" not in outside and "aten::cos" not in outside
    assert step(9)[1].shape == gradient.shape


def test_another_body_is_named_as_the_cause_of_a_compile(device):
    def run(turn):
        scan(turn, torch.ones(3, device=device), torch.ones(5, 3, device=device))[0].tolist()
        return torch_xla._XLAC._compile_reasons()[-1]["what"]

    run(lambda c, x: (c * x, x))
    assert re.search(r"argument 0 a body of \d+ operations, \w{8}", run(lambda c, x: ((c * x).exp(), x)))


def test_reads_nothing_back(device):
    init, xs = torch.zeros(2, device=device), torch.ones(3, 2, device=device)
    torch_xla.sync(wait=True)
    met.clear_all()
    scan(lambda c, x: (c + x, c), init, xs)
    torch_xla.sync(wait=True)
    assert not met.metric_data("TransferFromDeviceTime")
    assert not met.metric_data("TransferToDeviceTime")


def test_a_pure_function_is_called_once(device):
    calls = 0

    def fn(carry, x):
        nonlocal calls
        calls += 1
        return carry + x, x

    init, xs = torch.zeros(2, device=device), torch.ones(3, 2, device=device)
    for _ in range(3):
        assert scan(fn, init, xs, is_fn_pure=True)[0].tolist() == [3, 3]
    assert calls == 1
    assert fn in scan_module._SCAN_COMPUTATION_CACHE
    scan(fn, init, torch.ones(3, 1, device=device), is_fn_pure=True)
    assert calls == 2


def test_a_pure_function_sees_the_weights_of_now(device):
    weight = torch.ones(2, device=device)

    def fn(carry, x):
        return carry * weight, x

    init, xs = torch.ones(2, device=device), torch.ones(3, 2, device=device)
    assert scan(fn, init, xs, is_fn_pure=True)[0].tolist() == [1, 1]
    weight.mul_(2)
    assert scan(fn, init, xs, is_fn_pure=True)[0].tolist() == [8, 8]


@pytest.mark.checks_values
def test_an_error_in_a_turn_is_told_with_the_line(device):
    table = torch.arange(4.0, device=device)
    indices = torch.tensor([1, 2, 9], device=device)
    carry, _ = scan(lambda c, i: (c + table[i.reshape(1)].sum(), c), torch.zeros((), device=device), indices)
    with pytest.raises(IndexError, match=r"test_scan\.py"):
        carry.item()
    assert torch.ones(1, device=device).item() == 1


def test_a_carry_that_is_written_in_place(device):
    def add(total, x):
        total += x
        return total, total

    init = torch.zeros(2, device=device, requires_grad=True)
    xs = torch.arange(6.0, device=device).view(3, 2).requires_grad_()
    last, sums = scan(add, init, xs)
    assert sums.tolist() == [[0, 1], [2, 4], [6, 9]] and last.tolist() == [6, 9] and init.tolist() == [0, 0]
    sums.sum().backward()
    assert init.grad.tolist() == [3, 3] and xs.grad.tolist() == [[3, 3], [2, 2], [1, 1]]


REFUSED = [
    (lambda c, x: (c, x.add_(c)), RuntimeError, "in-place operation"),
    (lambda c, x: (c + x.sum().item(), x), RuntimeError, "body of a loop"),
    (lambda c, x: (c if c.sum() > 0 else x, x), RuntimeError, "body of a loop"),
    (lambda c, x: (torch_xla.sync(), x), RuntimeError, "body of a loop"),
    (lambda c, x: ((c, c), x), ValueError, "structure of init"),
    (lambda c, x: (c.sum(), x), RuntimeError, "same shape and dtype"),
    (lambda c, x: (c.to(torch.float64), x), RuntimeError, "same shape and dtype"),
]


@pytest.mark.parametrize(("fn", "error", "message"), REFUSED)
def test_refused_functions(device, fn, error, message):
    init, xs = torch.ones(2, device=device), torch.ones(3, 2, device=device)
    pending = init + 1
    with pytest.raises(error, match=message):
        scan(fn, init, xs)
    assert pending.tolist() == [2, 2]  # what was recorded before is as it was
    assert init.tolist() == [1, 1]


def test_a_write_into_a_tensor_from_outside_is_refused(device):
    counter = torch.zeros(2, device=device)

    def fn(carry, x):
        counter.add_(1)
        return carry + counter, x

    with pytest.raises(RuntimeError, match=r"in-place operation .* tensor from outside"):
        scan(fn, torch.ones(2, device=device), torch.ones(3, 2, device=device))
    assert counter.tolist() == [0, 0]


def test_a_tensor_kept_from_the_body_raises(device):
    kept = []

    def fn(carry, x):
        kept.append(carry * 2)
        return carry + x, x

    carry, _ = scan(fn, torch.ones(2, device=device), torch.ones(3, 2, device=device))
    assert carry.tolist() == [4, 4]
    with pytest.raises(RuntimeError, match="outside of it"):
        kept[0].tolist()


def test_other_threads_go_on_while_a_body_is_recorded(device):
    started, stop, sums = threading.Event(), threading.Event(), []

    def work():
        x = torch.ones(3, device=device)
        while not stop.is_set():
            x = x + 1
            sums.append(x.sum().item())  # syncs
            started.set()

    def fn(carry, x):
        time.sleep(0.01)
        return carry * w + x, carry

    w = torch.full((2,), 2.0, device=device, requires_grad=True)
    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    try:
        for _ in range(10):
            carry, _ = scan(fn, torch.ones(2, device=device), torch.ones(3, 2, device=device))
            assert carry.tolist() == [15, 15]
    finally:
        stop.set()
        thread.join()
    assert sums == [3 * (2 + i) for i in range(len(sums))]


def test_refused_inputs(device):
    init, xs = torch.ones(2, device=device), torch.ones(3, 2, device=device)
    with pytest.raises(ValueError, match="must be callable"):
        scan(1000, init, xs)
    with pytest.raises(ValueError, match=r"same leading dimension size\. Got 3 and 2"):
        scan(lambda a, b: (a, b), init, (xs, xs[:2]))
    with pytest.raises(ValueError, match="empty PyTree"):
        scan(lambda a, b: (a, b), init, ())
    with pytest.raises(ValueError, match="one xla device"):
        scan(lambda a, b: (a, b), init.cpu(), xs)


def test_the_turns_as_functions(device):
    def fn(carry, x):
        new = torch.sin(carry["a"] @ x["w"] + x["b"])
        return {"a": new}, new.exp()

    init = {"a": torch.randn(2, 3, device=device)}
    x = {"w": torch.randn(3, 3, device=device), "b": torch.randn(2, 3, device=device)}
    forward, alias_input, backward = scan_module.value_and_grad_partitioned(fn, init, tree_map(lambda t: t[None], x))
    assert not any(t.requires_grad for t in tree_leaves((init, x)))
    carry, (y, saved) = forward(init, x)
    grads = backward(tree_map(torch.ones_like, carry), (2 * torch.ones_like(y), alias_input(saved, x)))
    init, x = tree_map(lambda t: t.clone().requires_grad_(), (init, x))
    want_carry, want_y = fn(init, x)
    (want_carry["a"].sum() + 2 * want_y.sum()).backward()
    torch.testing.assert_close((carry["a"].cpu(), y.cpu()), (want_carry["a"].detach().cpu(), want_y.detach().cpu()))
    for got, want in zip(tree_leaves(grads), tree_leaves((init, x)), strict=True):
        torch.testing.assert_close(got.cpu(), want.grad.cpu())


def test_tree_flatten_none():
    tree = ((1, 2), (None, 3), None)
    flat, unflatten = tree_flatten_none(tree)
    assert flat == [1, 2, 3]
    assert unflatten(flat) == tree


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x)))


class Recomputed(Block):
    """Its gradient calls it once more, after the call."""

    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


@pytest.mark.parametrize("kind", [Block, Recomputed])
@pytest.mark.parametrize("pure", [False, True])
def test_layers(device, pure, kind):
    torch.manual_seed(0)
    layers = [kind() for _ in range(4)]
    x = torch.randn(3, 8)
    ours = [copy.deepcopy(layer).to(device) for layer in layers]
    got = scan_layers(ours, x.to(device), is_layer_pure=pure)
    got.square().sum().backward()
    want = nn.Sequential(*layers)(x)
    want.square().sum().backward()
    torch.testing.assert_close(got.cpu(), want)
    for a, b in zip(ours, layers, strict=True):
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            torch.testing.assert_close(p.grad.cpu(), q.grad)


def test_layers_of_tuples_and_none(device):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x, y):
            return self.linear(x).sin(), y * 2 + x

    layers = [Pair() for _ in range(3)]
    want = (torch.randn(4), torch.randn(4))
    got = scan_layers([copy.deepcopy(layer).to(device) for layer in layers], tuple(t.to(device) for t in want))
    for layer in layers:
        want = layer(*want)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach())
    assert scan_layers([], want) is want


def test_refused_layers(device):
    x = torch.zeros(8, device=device)
    with pytest.raises(ValueError, match="mismatched keys"):
        scan_layers([nn.Linear(8, 8).to(device), nn.Sequential(nn.Linear(8, 8).to(device))], x)
    with pytest.raises(ValueError, match="Shape mismatch"):
        scan_layers([nn.Linear(8, 8).to(device), nn.Linear(8, 9).to(device)], x)
    with pytest.raises(RuntimeError, match="in-place operation"):
        scan_layers([nn.BatchNorm1d(8).to(device), nn.BatchNorm1d(8).to(device)], torch.zeros(2, 8, device=device))
