"""Threads record at once; errors, signals, forks and exits leave a device that works or a process that ends."""

import copy
import ctypes
import queue
import random
import threading

import pytest
import torch
from torch import nn

import torch_xla


def run_threads(work, count: int = 4) -> None:
    """Runs work(i) on `count` threads; raises the first exception of one."""
    errors = []

    def guarded(i: int) -> None:
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


# ---- Threads ----
def test_threads_with_tensors_of_their_own(device):
    results = [None] * 4

    def work(i: int) -> None:
        x = torch.full((8,), float(i), device=device)
        for step in range(50):
            x = x * 1 + 1
            x[step % 8] += 1
            if step % 10 == i:
                torch_xla.sync()
        results[i] = x.cpu()

    run_threads(work)
    for i in range(4):
        expected = torch.full((8,), float(i))
        for step in range(50):
            expected = expected + 1
            expected[step % 8] += 1
        assert torch.equal(results[i], expected)


def test_threads_that_share_tensors(device):
    shared = torch.arange(8.0, device=device)
    rows = torch.zeros(4, 8, device=device)

    def work(i: int) -> None:
        for _ in range(30):
            rows[i].add_(shared)
            assert shared.sum().item() == 28
            torch_xla.sync()

    run_threads(work)
    assert torch.equal(rows.cpu(), torch.arange(8.0).expand(4, 8) * 30)


def test_threads_with_autograd(device):
    layer = nn.Linear(4, 4).to(device)
    data = torch.randn(4, 2, 4)
    results = [None] * 4

    def work(i: int) -> None:
        for _ in range(10):
            x = data[i].to(device).requires_grad_()
            layer(x).square().sum().backward(inputs=[x])
            results[i] = x.grad.cpu()

    run_threads(work)
    layer = layer.cpu()
    for i in range(4):
        x = data[i].clone().requires_grad_()
        layer(x).square().sum().backward(inputs=[x])
        torch.testing.assert_close(results[i], x.grad)


def test_threads_with_everything_at_once(device):
    """Recorders of own and shared tensors, readers, syncs, and a thread on which all tensors die."""
    rounds = 60
    shared = torch.arange(64.0, device=device)
    sums = torch.zeros(4, 64, device=device)
    graveyard: queue.SimpleQueue = queue.SimpleQueue()
    buried = threading.Thread(target=lambda: all(item is not None for item in iter(graveyard.get, None)))
    buried.start()

    def work(i: int) -> None:
        pick = random.Random(i)
        own = torch.zeros(64, device=device)
        for step in range(rounds):
            own += shared
            sums[i] += own * 0 + 1
            graveyard.put(own * 2)
            choice = pick.randrange(6)
            if choice == 0:
                torch_xla.sync()
            elif choice == 1:
                torch_xla.sync(wait=True)
            elif choice == 2:
                assert torch.equal(own.cpu(), torch.arange(64.0) * (step + 1))
            elif choice == 3:
                assert own[pick.randrange(64)].item() % (step + 1) == 0
            elif choice == 4:
                own = own.cpu().to(device)
            else:
                own = own.clone().view(8, 8).t().contiguous().t().reshape(64)
        assert torch.equal(own.cpu(), torch.arange(64.0) * rounds)

    run_threads(work)
    graveyard.put(None)
    buried.join()
    assert torch.equal(sums.cpu(), torch.full((4, 64), float(rounds)))


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int) -> list[torch.Tensor]:
    """The losses of so many steps, not read."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def test_threads_compile_what_they_would_one_after_the_other(device, compiles):
    models = [nn.Linear(6, 3 + i) for i in range(3)]
    x, y = torch.randn(5, 6), torch.randint(3, (5,))
    expected = [torch.stack(train(copy.deepcopy(model), x, y, 12)) for model in models]
    one_by_one = [copy.deepcopy(model).to(device) for model in models]
    on_device = [copy.deepcopy(model).to(device) for model in models]
    x, y = x.to(device), y.to(device)
    compiles.reset()
    for model in one_by_one:
        train(model, x, y, 12)
    count = compiles.value
    torch_xla._XLAC._clear_computation_cache()
    compiles.reset()
    losses = [None] * 3

    def work(i: int) -> None:
        losses[i] = train(on_device[i], x, y, 12)

    run_threads(work, 3)
    assert compiles.value <= count
    for i in range(3):
        torch.testing.assert_close(torch.stack(losses[i]).cpu(), expected[i])


def test_what_another_thread_has_pending_is_computed_when_it_is_read(device):
    box, is_read = queue.Queue(), threading.Event()
    values = []

    def work(i: int) -> None:
        if i == 0:
            x = torch.arange(4.0, device=device) * 2
            box.put(x)
            is_read.wait(30)
            values.append((x + 1).tolist())
        else:
            x = box.get(timeout=30)
            values.append((x * 3).tolist())
            x.add_(1)  # pending here when the other thread reads it
            is_read.set()

    run_threads(work, 2)
    assert values == [[0, 6, 12, 18], [2, 4, 6, 8]]


def test_a_sync_runs_what_is_the_threads_own_and_what_ended_threads_left(device):
    left, go, done = [], threading.Event(), threading.Event()

    def ends() -> None:
        left.append(torch.ones(3, device=device) + 1)

    def stays() -> None:
        left.append(torch.ones(3, device=device) + 2)
        go.set()
        done.wait(30)

    threads = [threading.Thread(target=ends), threading.Thread(target=stays)]
    threads[0].start()
    threads[0].join()
    threads[1].start()
    go.wait(30)
    torch_xla.sync()
    pending = [torch_xla._XLAC._pending_operation(t) for t in left]
    done.set()
    threads[1].join()
    assert pending == ["", "aten::add.Tensor"]
    assert [t.tolist() for t in left] == [[2, 2, 2], [3, 3, 3]]


def test_a_joined_thread_has_left_its_trace(device):
    """join() waits for the end of the thread's Python part; the system may end it later."""
    libc = ctypes.CDLL(None)
    lingers = ctypes.cast(libc.usleep, ctypes.c_void_p)

    def work() -> None:
        left.append(torch.ones(3, device=device) + 1)
        assert libc.__cxa_thread_atexit_impl(lingers, ctypes.c_void_p(300_000), None) == 0

    for _ in range(2):
        left = []
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        torch_xla.sync()
        assert torch_xla._XLAC._pending_operation(left[0]) == ""


def test_memory_that_another_trace_takes_is_not_given_away(device):
    w = torch.ones(4, device=device)
    torch_xla.sync()
    taken, go = threading.Event(), threading.Event()
    values = []

    def work(i: int) -> None:
        if i == 0:
            kept = w + 1  # takes the value that the other thread is about to replace
            taken.set()
            go.wait(30)
            values.append(kept.tolist())
        else:
            taken.wait(30)
            for _ in range(3):
                w.mul_(2)
                torch_xla.sync(wait=True)
            go.set()

    run_threads(work, 2)
    assert values == [[2, 2, 2, 2]] and w.tolist() == [8, 8, 8, 8]


def test_jit_forks_record_for_their_caller(device, forking):
    x = torch.eye(3, device=device) + 1
    torch.testing.assert_close(forking(x).cpu(), ((torch.eye(3) + 1).tanh() + 1) * 2)


EIGHT = """
    import copy, threading, torch, torch_xla
    from torch import nn
    from torch_xla.experimental import eager_mode_context
    import torch_xla.distributed.parallel_loader as pl

    def train(model, batches, form):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        forward = torch.compile(model) if form == "compile" else model

        def step(x, y):
            optimizer.zero_grad(set_to_none=form != "replay")
            loss = nn.functional.cross_entropy(forward(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        if form == "replay":
            step = torch_xla.compile(step, replay=True)
        return torch.stack([step(x, y) for x, y in batches])

    def make(i):
        generator = torch.Generator().manual_seed(i)
        draw = lambda: (torch.randn(4, 6, generator=generator), torch.randint(3, (4,), generator=generator))
        return [draw() for _ in range(6)]

    torch.manual_seed(0)
    forms = ["plain", "replay", "compile", "eager", "loader", "profiler", "replay", "plain"]
    models = [nn.Sequential(nn.Linear(6, 5 + i), nn.Tanh(), nn.Linear(5 + i, 3)) for i in range(8)]
    expected = [train(copy.deepcopy(m), make(i), "plain") for i, m in enumerate(models)]
    losses, errors = [None] * 8, []

    def work(i):
        try:
            device, form = torch.device("xla", i % torch.xla.device_count()), forms[i]
            torch.xla.set_device(device.index)
            model = models[i].to(device)
            batches = [(x.to(device), y.to(device)) for x, y in make(i)]
            if form == "eager":
                with eager_mode_context(True):
                    losses[i] = train(model, batches, form)
            elif form == "loader":
                losses[i] = train(model, pl.MpDeviceLoader(make(i), device), form)
            elif form == "profiler":
                with torch.profiler.profile():
                    losses[i] = train(model, batches, form)
            else:
                losses[i] = train(model, batches, form)
            losses[i] = losses[i].cpu()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(8)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert not any(t.is_alive() for t in threads) and not errors, errors
    for got, wanted in zip(losses, expected):
        torch.testing.assert_close(got, wanted)
"""


@pytest.mark.parametrize("devices", [1, 8])
def test_eight_threads_train_eight_models(run_python, devices):
    run_python(EIGHT, CPU_NUM_DEVICES=str(devices))


def test_a_value_that_is_being_read_is_not_given_to_a_run(device):
    """Two threads read x while another writes it in place and syncs: the readers see whole values."""
    x = torch.zeros(1 << 18, device=device)
    torch_xla.sync(wait=True)

    def work(i: int) -> None:
        for _ in range(100):
            if i == 0:
                x.add_(1)
                torch_xla.sync()
            else:
                seen = x.cpu()
                assert torch.equal(seen, seen[:1].expand_as(seen))

    run_threads(work, 3)
    assert x[7].item() == 100


# ---- Errors ----
@pytest.mark.checks_values
def test_an_error_of_a_run_is_raised_once(device):
    good = torch.ones(3, device=device) + 1
    torch_xla.sync(wait=True)
    bad = torch.nn.functional.embedding(torch.tensor([9]).to(device), torch.ones(3, 2, device=device))
    with pytest.raises(IndexError, match=r"aten::embedding: index out of range(.|\n)*test_threads\.py"):
        torch_xla.sync()  # raises if the run has ended by now
        torch_xla.sync(wait=True)
    torch_xla.sync(wait=True)
    assert good.tolist() == [2, 2, 2]
    with pytest.raises(IndexError, match="aten::embedding"):
        bad.cpu()
    assert (good * 2).tolist() == [4, 4, 4]


@pytest.mark.checks_values
def test_an_error_that_a_read_raised_is_not_raised_by_the_next_sync(device):
    bad = torch.nn.functional.embedding(torch.tensor([9]).to(device), torch.ones(3, 2, device=device))
    with pytest.raises(IndexError):
        bad.cpu()
    torch_xla.sync(wait=True)


def test_an_operation_that_is_refused_leaves_the_trace_usable(device):
    x = torch.ones(2, 3, device=device) + 1
    for bad in (
        lambda: x @ x,
        lambda: x + torch.ones(4, device=device),
        lambda: torch.cat([x, x[0]]),
        lambda: x.sum(5),
        lambda: x.view(7),
    ):
        with pytest.raises((RuntimeError, IndexError)):
            bad()
    assert (x * 2).tolist() == [[4, 4, 4], [4, 4, 4]]


# ---- Processes ----
def test_backward_of_the_cpu_starts_no_thread_for_the_device(run_python):
    out = run_python("""
        import os, threading, torch
        w = torch.ones(2, 2, requires_grad=True)
        before = len(os.listdir("/proc/self/task"))
        (w @ w).sum().backward()
        print(len(os.listdir("/proc/self/task")) - before, torch._C._is_multithreading_enabled())
        child = os.fork()
        if child == 0:
            (w @ w).sum().backward()
            os._exit(0)
        print(os.waitpid(child, 0)[1])

        # The device after that: on threads that autograd's own would not know, with its threads switched on, and fake.
        x = torch.ones(2, 2, device="xla", requires_grad=True)
        (x @ x).sum().backward()
        print(torch._C._is_multithreading_enabled())
        with torch.autograd.set_multithreading_enabled(True):
            (x @ x).sum().backward()
        y, z, gradient = x * 2, x * 3, torch.ones(2, 2, device="xla")
        thread = threading.Thread(target=torch.autograd.backward, args=([y, z], [gradient, gradient]))
        thread.start()
        thread.join()
        print(x.grad.tolist())
    """)
    assert out.splitlines() == ["0 True", "0", "False", "[[13.0, 13.0], [13.0, 13.0]]"]


def test_backward_of_fake_tensors_comes_before_the_first_use(run_python):
    out = run_python("""
        import torch
        from torch._subclasses import FakeTensorMode
        torch.ones(2, requires_grad=True).sum().backward()
        with FakeTensorMode():
            x = torch.ones(3, 3, device="xla", requires_grad=True)
            (x @ x).sum().backward()
        print(x.grad.device, torch.xla.is_initialized(), torch.xla.memory_allocated())
    """)
    assert out == "xla:0 True 0\n"


def test_autograd_has_a_thread_for_a_device_that_was_used_first(run_python):
    out = run_python("""
        import torch
        x = torch.ones(2, 2, device="xla", requires_grad=True)
        (x @ x).sum().backward()
        torch.autograd.set_multithreading_enabled(True)
        threads = set()
        import threading
        y = (x @ x).sum()
        y.register_hook(lambda g: threads.add(threading.get_native_id()))
        y.backward()
        print(threads != {threading.get_native_id()}, torch._C._is_multithreading_enabled())
    """)
    assert out == "True True\n"
