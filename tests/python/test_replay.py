"""Steps that are captured and replayed: torch.accelerator.Graph and torch_xla.compile(replay=True)."""

import copy
import gc
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch_xla import _XLAC


def executed() -> int:
    return _XLAC._xla_counter_value("ExecuteComputation") or 0


def captured(step):
    graph = torch.accelerator.Graph()
    with graph:
        result = step()
    return graph, result


# ---- torch.accelerator.Graph ----
def test_capturing_runs_nothing_and_a_replay_reads_and_writes_the_same_tensors(device):
    x, total = torch.tensor([1.0, 2.0], device=device), torch.zeros(2, device=device)
    torch_xla.sync()
    runs = executed()

    def step():
        total.add_(x * 2)
        return total.sum(), x.clone()

    graph, (result, copied) = captured(step)
    assert total.tolist() == [0, 0] and executed() == runs
    for i in range(1, 4):
        graph.replay()
        assert total.tolist() == [2 * i, 4 * i] and result.item() == 6 * i
    x.copy_(torch.tensor([5.0, 5.0]))
    total.zero_()
    graph.replay()
    assert total.tolist() == [10, 10] and copied.tolist() == [5, 5]
    x.fill_(1)  # pending when the replay comes
    graph.replay()
    assert total.tolist() == [12, 12]


def test_views_and_parts_of_storages(device):
    base = torch.arange(12.0, device=device).reshape(3, 4)
    row, column = base[1], base[:, 0]

    def step():
        row.mul_(2)
        column.add_(1)
        return base.t()

    expected = torch.arange(12.0).reshape(3, 4)
    graph, result = captured(step)
    for _ in range(3):
        graph.replay()
        expected[1].mul_(2)
        expected[:, 0].add_(1)
        assert torch.equal(base.cpu(), expected) and torch.equal(result.cpu(), expected.t())


def test_tensors_that_share_a_value_are_read_each_by_itself(device):
    a = torch.ones(4, device=device)
    b = torch.empty_like(a).copy_(a)  # no copy until one of them is written
    torch_xla.sync()

    def step():
        a.add_(b)
        b.mul_(3)

    graph, _ = captured(step)
    expected_a, expected_b = torch.ones(4), torch.ones(4)
    for _ in range(4):
        graph.replay()
        expected_a.add_(expected_b)
        expected_b.mul_(3)
        assert torch.equal(a.cpu(), expected_a) and torch.equal(b.cpu(), expected_b)


def test_values_that_are_passed_on(device):
    x, kept, swapped = (torch.full((3,), float(i), device=device) for i in range(3))
    torch_xla.sync()

    def step():
        kept.copy_(x)
        new = swapped.clone()
        swapped.copy_(x)
        return new

    graph, new = captured(step)
    for i in (7.0, 8.0):
        before = swapped.tolist()
        x.fill_(i)
        graph.replay()
        assert kept.tolist() == swapped.tolist() == [i] * 3 and new.tolist() == before


def test_what_is_copied_from_the_cpu_in_the_step_is_a_constant(device):
    x = torch.zeros(2, device=device)

    def step():
        constant = torch.tensor([1.0, 2.0]).to(device)
        constant.mul_(2)
        x.add_(constant)
        return constant

    graph, constant = captured(step)
    for i in range(1, 4):
        graph.replay()
        assert x.tolist() == [2 * i, 4 * i] and constant.tolist() == [2, 4]


def test_random_numbers_are_new_and_follow_the_seed(device):
    graph, drawn = captured(lambda: torch.rand(100, device=device))
    torch.manual_seed(5)
    expected = [torch.rand(100, device=device).cpu() for _ in range(2)]
    torch.manual_seed(5)
    for e in expected:
        graph.replay()
        assert torch.equal(drawn.cpu(), e)


def test_another_memory_order_is_read_rightly(device):
    image = torch.randn(2, 3, 4, 4)
    x = image.to(device)
    torch_xla.sync()
    graph, result = captured(lambda: F.conv2d(x, torch.ones(2, 3, 3, 3, device=device)) + x.sum())
    conv = F.conv2d(torch.randn(2, 5, 4, 4, device=device), torch.randn(3, 5, 1, 1, device=device))
    for other in (conv, torch.randn(2, 3, 4, 4, device=device).to(memory_format=torch.channels_last)):
        x.copy_(other)
        graph.replay()
        on_cpu = x.cpu()
        torch.testing.assert_close(
            result.cpu(), F.conv2d(on_cpu, torch.ones(2, 3, 3, 3)) + on_cpu.sum(), rtol=1e-4, atol=1e-4
        )


def test_mistakes_are_errors_and_leave_all_as_it_was(device):
    x = torch.ones(3, device=device)
    torch_xla.sync()
    graph = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="has no step to replay"):
        graph.replay()
    with pytest.raises(RuntimeError, match=r"needs the value of a tensor \(\.item\(\)"), graph:
        x.add_(1)
        x.sum().item()
    graph.reset()
    assert x.tolist() == [1, 1, 1]
    unwritten = torch.empty(3, device=device)
    with pytest.raises(RuntimeError, match="nothing has been written to"), graph:
        x.add_(unwritten)
    graph.reset()
    with graph:
        x.add_(1)
    with pytest.raises(RuntimeError, match="captured a step already"):
        graph.capture_begin()
    graph.replay()
    graph.reset()
    with graph:
        x.mul_(10)
    graph.replay()
    assert x.tolist() == [20, 20, 20]


@pytest.mark.checks_values
def test_an_error_of_a_replay_is_told_and_the_next_one_runs(device):
    table, index = torch.arange(5.0, device=device), torch.tensor([1], device=device)
    torch_xla.sync()
    graph, result = captured(lambda: table[index] + 1)
    graph.replay()
    assert result.tolist() == [2]
    index.fill_(9)
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        graph.replay()
        result.cpu()
    index.fill_(3)
    graph.replay()
    assert result.tolist() == [4]


def test_the_recorded_graph_as_text(device, tmp_path):
    x = torch.ones(3, device=device)
    graph = torch.accelerator.Graph()
    graph.enable_debug_mode()
    with graph:
        y = x.sin()
    graph.instantiate()
    graph.debug_dump(str(tmp_path / "graph"))
    assert "aten::sin" in (tmp_path / "graph").read_text()
    del y
    with pytest.raises(RuntimeError, match="cannot write the captured graph"):
        graph.debug_dump(str(tmp_path / "absent" / "graph"))


# ---- torch_xla.compile(replay=True) ----
def make_net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(144, 16), nn.Linear(16, 5)
    )


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop])
def test_a_training_step_is_eagers(device, optimizer):
    on_cpu = make_net()
    on_device = copy.deepcopy(on_cpu).to(device)
    options = {"lr": torch.tensor(0.01, device=device), "capturable": True}
    if optimizer is torch.optim.SGD:  # it reads a learning rate that is a tensor
        options = {"lr": 0.01, "momentum": 0.9}
    optimizers = (
        optimizer(on_cpu.parameters(), **({k: v for k, v in options.items() if k != "capturable"} | {"lr": 0.01})),
        optimizer(on_device.parameters(), **options),
    )

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    calls = []

    def count_and_step(x, y):
        calls.append(1)
        return step(on_device, optimizers[1], x, y)

    replayed = torch_xla.compile(count_and_step, replay=True)
    kept = []
    for i in range(8):
        x, y = torch.randn(6, 1, 8, 8), torch.randint(0, 5, (6,))
        if isinstance(options["lr"], torch.Tensor):
            optimizers[0].param_groups[0]["lr"] = 0.01 / (i + 1)
            optimizers[1].param_groups[0]["lr"].fill_(0.01 / (i + 1))
        kept.append((step(on_cpu, optimizers[0], x, y).detach(), replayed(x.to(device), y.to(device)).detach()))
    assert len(calls) == 3, "later calls run no Python"
    for expected, loss in kept:
        torch.testing.assert_close(loss.cpu(), expected, rtol=1e-3, atol=1e-4)
    for name, value in on_cpu.state_dict().items():
        torch.testing.assert_close(on_device.state_dict()[name].cpu(), value, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda s: torch.full((3,), s.x.sum().item(), device=s.x.device), "needs the value of a tensor"),
        (lambda s: s.x * s.calls, "a number was 2.0 in one call and 3.0 in the next, at .*test_replay.py"),
        (lambda s: s.x.sin() if s.calls % 2 else s.x.cos(), "two calls have recorded different operations"),
        (lambda s: (s.x + 1, s.calls), r"it returned \[2\] and then \[3\]"),
    ],
    ids=["item", "number", "branch", "result"],
)
def test_what_would_change_from_call_to_call_is_an_error(device, change, text):
    class State:
        x = torch.ones(3, device=device)
        calls = 0

    def step():
        State.calls += 1
        return change(State)

    replayed = torch_xla.compile(step, replay=True)
    with pytest.raises(RuntimeError, match=text):
        for _ in range(4):
            replayed()


def test_gradients_that_are_summed_up(device):
    """The first gradient is a view of what its operation gave, later ones are what a replay wrote."""
    model = nn.Linear(3, 2).to(device)
    replayed = torch_xla.compile(lambda x: model(x).sum().backward(), replay=True)
    for _ in range(6):
        replayed(torch.ones(4, 3, device=device))
    assert model.bias.grad.tolist() == [24, 24] and model.weight.grad.tolist() == [[24] * 3] * 2


def test_arguments_that_are_written(device):
    replayed = torch_xla.compile(lambda x, y: x.add_(y) * 2, replay=True)
    x, other = torch.zeros(2, device=device), torch.zeros(2, device=device)
    for i in range(1, 6):
        assert replayed(x, torch.ones(2, device=device)).tolist() == [2 * i] * 2
        assert x.tolist() == [i, i]
    assert replayed(other, x).tolist() == [10, 10] and other.tolist() == [5, 5] and x.tolist() == [5, 5]
    with pytest.raises(RuntimeError, match="argument 0, which it writes, is given to it twice"):
        replayed(x, x)


def test_arguments_that_get_gradients_are_refused(device):
    replayed = torch_xla.compile(lambda x: (x * x).sum().backward(), replay=True)
    x = torch.ones(2, device=device, requires_grad=True)
    replayed(x)
    with pytest.raises(RuntimeError, match="gives argument 0 a gradient"):
        replayed(x)


def test_state_that_is_bound_anew_is_an_error(device):
    state = {"h": torch.zeros(2, device=device), "kept": torch.zeros(2, device=device)}

    def rebinding(x):
        state["h"] = state["h"] * 0.5 + x
        return state["h"] + 0

    def writing(x):
        state["kept"].copy_(state["kept"] * 0.5 + x)
        return state["kept"] + torch.tensor([1.0, 2.0], device=device)

    one = torch.ones(2, device=device)
    replayed = torch_xla.compile(rebinding, replay=True)
    with pytest.raises(RuntimeError, match=r"read different tensors at .*test_replay.py.*rebinding"):
        for _ in range(4):
            replayed(one)
    replayed = torch_xla.compile(writing, replay=True)
    assert [replayed(one)[0].item() for _ in range(5)] == [2, 2.5, 2.75, 2.875, 2.9375]


def test_arguments_that_are_not_as_they_were(device):
    replayed = torch_xla.compile(lambda x, factor=2: x * factor, replay=True, name="double")
    x = torch.ones(3, device=device)
    for _ in range(4):
        assert replayed(x).tolist() == [2, 2, 2]
    for args, text in [
        ((torch.ones(4, device=device),), r"double is replayed: argument 0 was a tensor .* shape \(3,\).*shape \(4,\)"),
        ((x.double(),), "torch.float32.*torch.float64"),
        ((x.cpu(),), "cpu"),
        ((x, 3), "arguments of the form"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            replayed(*args)
    assert replayed(x * 2).tolist() == [4, 4, 4]
    with pytest.raises(ValueError, match="wants the function"), torch_xla.compile(replay=True):
        pass


def test_replay_decorates_methods_of_several_objects(device):
    class Counter:
        calls = 0

        def __init__(self, step):
            self.total = torch.zeros(2, device=device) + step
            self.step = torch.full((2,), float(step), device=device)

        @torch_xla.compile(replay=True)
        def add(self, x, scale=1):
            """Adds."""
            Counter.calls += 1
            self.total += self.step * x * scale
            return self.total + 1

        @staticmethod
        @torch_xla.compile(replay=True, name="twice")
        def double(x):
            return x * 2

        @classmethod
        @torch_xla.compile(replay=True)
        def triple(cls, x):
            return x * 3

    one, ten = Counter(1), Counter(10)
    x = torch.ones(2, device=device)
    for turn in range(1, 6):
        assert one.add(x, scale=2).tolist() == [2 * turn + 2] * 2 and ten.add(x).tolist() == [10 * turn + 11] * 2
        assert one.double(x).tolist() == [2, 2] and Counter.triple(x).tolist() == [3, 3]
    assert Counter.calls == 6  # each object's first three
    assert Counter.add.__name__ == "add" and Counter.add.__doc__ == "Adds."
    alive = weakref.ref(one)
    del one
    gc.collect()
    assert alive() is None


def test_results_of_earlier_calls_keep_their_values(device):
    replayed = torch_xla.compile(lambda x: {"sum": x.sum(), "twice": [x * 2, None, "text"]}, replay=True)
    results = [replayed(torch.full((2,), float(i), device=device)) for i in range(6)]
    assert [r["sum"].item() for r in results] == [2.0 * i for i in range(6)]
    assert [r["twice"][0].tolist() for r in results] == [[2.0 * i] * 2 for i in range(6)]
    assert results[-1]["twice"][1:] == [None, "text"]


def test_a_replay_is_one_run_and_compiles_nothing(device, compiles):
    model = make_net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    replayed = torch_xla.compile(step, replay=True)
    x = torch.randn(4, 1, 8, 8, device=device)
    for _ in range(4):
        replayed(x)
    torch_xla.sync(wait=True)
    before, runs = compiles.value, executed()
    for _ in range(5):
        replayed(x)
    torch_xla.sync(wait=True)
    assert compiles.value == before and executed() - runs == 5


# ---- Threads ----
def run_in_thread(work):
    """What work() returns on a thread of its own, within a minute."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    assert results, "the thread has not ended"
    return results[0]


def test_a_step_with_backward_in_a_thread(device):
    model = nn.Linear(8, 2)
    own = copy.deepcopy(model).to(device)
    x = torch.ones(4, 8)

    def train(model, x, compiled):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad(set_to_none=False)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = torch_xla.compile(step, replay=True) if compiled else step
        return [step(x).item() for _ in range(6)]

    expected = train(model, x, False)
    assert run_in_thread(lambda: train(own, x.to(device), True)) == pytest.approx(expected, rel=1e-4)


def test_a_capture_with_autograds_threads_switched_on(device):
    x = torch.ones(3, device=device, requires_grad=True)
    x.grad = torch.zeros(3, device=device)

    def capture_and_replay():
        with torch.autograd.set_multithreading_enabled(True):
            graph, _ = captured(lambda: (x * 2).sum().backward())
        before = x.grad.tolist()
        graph.replay()
        graph.replay()
        return before, x.grad.tolist()

    assert run_in_thread(capture_and_replay) == ([0, 0, 0], [4, 4, 4])


def test_jit_forks_record_into_the_capture(device, forking):
    step = torch_xla.compile(forking, replay=True)
    for i in range(4):
        x = torch.full((3,), float(i))
        torch.testing.assert_close(step(x.to(device)).cpu(), (x.tanh() + 1) * 2)


def test_other_threads_go_on_beside_a_capture(device):
    given, ready = torch.ones(3, device=device), torch.full((3,), 2.0, device=device)
    total = torch.zeros(3, device=device)
    torch_xla.sync(wait=True)
    values = []

    def others():
        values.append(ready.tolist())
        values.append((given * 5).sum().item())
        values.append(total.tolist())  # the capture has written it, for itself
        total.add_(100)
        torch_xla.sync()

    def step():
        total.add_(given)
        thread = threading.Thread(target=others)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        return total * 2

    graph, result = captured(step)
    assert values == [[2, 2, 2], 15, [0, 0, 0]] and total.tolist() == [100, 100, 100]
    graph.replay()
    assert total.tolist() == [101, 101, 101] and result.tolist() == [202, 202, 202]


def test_a_loader_within_a_step_is_an_error_that_says_so(device):
    batches = [torch.full((2,), float(i)) for i in range(20)]
    it = iter(pl.MpDeviceLoader(batches, device, loader_prefetch_size=1, device_prefetch_size=1))
    step = torch_xla.compile(lambda: (next(it) * next(it)).sum(), replay=True)

    def call_all():
        values = [step().item() for _ in range(3)]
        with pytest.raises(RuntimeError, match="cannot be replayed"):
            step()
        return values

    assert run_in_thread(call_all) == [0, 12, 40]


def test_threads_call_one_step(device):
    step, results = torch_xla.compile(lambda x, y: (x @ y).tanh() + x, replay=True), {}

    def work(i):
        x, y = torch.full((4, 4), i / 8, device=device), torch.eye(4, device=device)
        results[i] = [step(x, y * n) for n in range(10)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for i in range(4):
        x = torch.full((4, 4), i / 8)
        for n in range(10):
            torch.testing.assert_close(results[i][n].cpu(), (x @ (torch.eye(4) * n)).tanh() + x)


def test_interrupt_in_a_captured_step(run_python):
    run_python("""
        import os, signal, threading, torch, torch_xla

        x = torch.ones(3, device="xla", requires_grad=True)
        x.grad = torch.zeros(3, device="xla")
        graph = torch.accelerator.Graph()
        graph.capture_begin()
        (x * 2).sum().backward()
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            threading.Event().wait(30)
            raise SystemExit("no interrupt")
        except KeyboardInterrupt:
            pass
        graph.capture_end()
        graph.replay()
        assert x.grad.tolist() == [2, 2, 2]
    """)
