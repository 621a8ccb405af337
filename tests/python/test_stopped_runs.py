"""Runs that memory, Ctrl-C, the end of the process or the system stop: what they cost, and what works later."""

import pytest
import torch
import torch.nn.functional as F
from test_failed_runs import make_batches, make_network, train_step

import torch_xla


# ---- Memory ----
@pytest.mark.parametrize("kept", [True, False], ids=["result", "scratch"])
def test_running_out_of_memory_is_told_once_and_costs_no_weights(device, kept):
    network, optimizer = make_network(device, "adam")
    (ids, classes), (other_ids, other_classes) = make_batches(2, -1, "index")
    train_step(network, optimizer, ids.to(device), classes.to(device)).item()
    before = {name: value.cpu().clone() for name, value in network.state_dict().items()}
    huge = None
    with pytest.raises(torch.OutOfMemoryError):
        column = torch.ones(2**19 + 64, 1, device=device) * classes[0].item()
        huge = column @ column.t()
        scale = huge.sum() * 0 + 1
        if not kept:
            huge = None
        optimizer.zero_grad()
        (F.cross_entropy(network(other_ids.to(device)), other_classes.to(device)) * scale).backward()
        optimizer.step()
        torch_xla.sync(wait=True)
    del huge, scale
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value.cpu(), before[name], rtol=0, atol=0)
    optimizer.zero_grad()
    train_step(network, optimizer, ids.to(device), classes.to(device)).item()
    torch_xla.sync(wait=True)


def test_a_library_call_out_of_memory_is_of_pytorchs_class(device):
    # Convolutions allocate while they run.
    x = torch.ones(1, 1, 2**10, 2**10, device=device)
    torch_xla.sync(wait=True)
    with pytest.raises(torch.OutOfMemoryError):
        y = F.conv2d(x, torch.ones(2**19, 1, 1, 1, device=device))
        torch_xla.sync(wait=True)
    del y
    assert x[0, 0, 0, :2].tolist() == [1, 1]


# ---- Cancelled work ----
INTERRUPTED = """
    import os, signal, threading
    import torch, torch_xla
    p = torch.zeros(3, device="xla")
    x = torch.randn(2500, 2500, device="xla")
    torch_xla.sync(wait=True)
    {handler}
    try:
        for _ in range(2):
            for _ in range(1000):  # more than the time limit of the process
                x = x @ x * 1e-3
            p.add_(1)
            torch_xla.sync()
        # Now that all is queued: what an interrupt leaves recorded would run at the next sync.
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.{signal})).start()
        torch_xla.sync(wait=True)
        print("ended")
    except {error}:
        print("interrupted")
    torch_xla.sync(wait=True)
    print(p.tolist())
    try:
        x.cpu()
    except RuntimeError as error:
        print("cancelled" in str(error))
    p.add_(2)
    torch_xla.sync(wait=True)
    print(p.tolist())
"""


def test_an_interrupt_cancels_queued_work_and_the_process_goes_on(run_python):
    out = run_python(INTERRUPTED.format(handler="", signal="SIGINT", error="KeyboardInterrupt"))
    assert out == "interrupted\n[0.0, 0.0, 0.0]\nTrue\n[2.0, 2.0, 2.0]\n"


def test_a_handler_of_sigterm_cancels_queued_work(run_python):
    handler = "signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(SystemExit(3)))"
    out = run_python(INTERRUPTED.format(handler=handler, signal="SIGTERM", error="SystemExit"))
    assert out == "interrupted\n[0.0, 0.0, 0.0]\nTrue\n[2.0, 2.0, 2.0]\n"


@pytest.mark.parametrize(
    "program",
    [
        "f(8), f(5000)",  # the same program, which was short
        "torch.zeros(1 << 38, device='xla').sum().item()",  # of no memory
    ],
)
def test_ctrl_c_ends_a_program_that_looks_short(run_python, program):
    out = run_python(
        f"""
        import os, signal, threading, time
        import torch, torch_xla
        def f(n):
            ones = torch.ones(n, n, device="xla")
            return sum((ones * i @ ones).tanh().sum() for i in range(1, 30)).item()
        start = time.monotonic()
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            {program}
        except KeyboardInterrupt:
            print(time.monotonic() - start < 8, flush=True)
        os._exit(0)
        """,
        PJRT_DEVICE="CPU",  # the embedded engine, also where a plugin is under test: its programs end as a whole
    )
    assert out == "True\n"


# ---- The end of the process ----
@pytest.mark.checks_values
def test_an_error_that_nobody_was_told_is_printed_at_exit_with_status_1(run_python):
    source = """
        import torch, torch_xla
        table, x = torch.ones(4, 2, device="xla"), torch.randn(1500, 1500, device="xla")
        for _ in range(20):  # keeps the queue from the error, which the sync would tell if it knew
            x = x @ x * 1e-3
        torch_xla.sync()
        lost = torch.nn.functional.embedding(torch.tensor([99], device="xla"), table)
        torch_xla.sync()
        {last}
    """
    out = run_python(source.format(last="pass"), returncode=1)
    assert "Exception ignored" in out
    assert "aten::embedding" in out
    assert "<string>:7" in out
    told = "\n        try: lost.cpu()\n        except IndexError: print('told')"
    assert run_python(source.format(last=told)) == "told\n"
    out = run_python(source.format(last="raise SystemExit(5)"), returncode=5)
    assert "Exception ignored" in out


def test_a_process_that_ends_by_an_exception_drops_its_queue(run_python):
    out = run_python(
        """
        import torch, torch_xla
        x = torch.randn(2500, 2500, device="xla")
        for _ in range(3):
            for _ in range(20):
                x = x @ x * 1e-3
            torch_xla.sync()
        raise KeyError("the user's own")
        """,
        returncode=1,
    )
    assert "the user's own" in out
    assert "XLA" not in out.split("KeyError")[1]


# ---- What the system refuses ----
REFUSING = """
    import contextlib, encodings.idna, os, resource  # idna: another user may not read what Python imports late
    import torch, torch_xla

    @contextlib.contextmanager
    def no_more_threads():
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        is_root = os.getuid() == 0
        if is_root:
            os.setresuid(65534, 65534, 0)  # root has no limit
        resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
            if is_root:
                os.setresuid(0, 0, 0)

    def refusal_of(call):
        with no_more_threads():
            try:
                call()
            except RuntimeError as error:
                return str(error)
"""


@pytest.mark.parametrize("call", ["torch_xla.sync()", "x.sum().item()", "y.cpu()", "torch.linalg.svd(x)"])
def test_a_device_whose_thread_cannot_start_works_later(run_python, call):
    out = run_python(
        REFUSING
        + f"""
    weight = torch.ones(4, device="xla")
    x = torch.ones(4, 4, device="xla") * 2
    y = x + 1
    weight.add_(1)
    text = refusal_of(lambda: {call})
    assert "cannot start the thread xla_executor_0" in text and "ulimit -u" in text, text
    {call}
    torch_xla.sync(wait=True)
    print(weight.tolist(), x[0].tolist(), y[0].tolist())
    """,
        timeout=60,
    )
    assert out == f"{[2.0] * 4} {[2.0] * 4} {[3.0] * 4}\n"


def test_kernels_are_compiled_without_more_threads(run_python):
    out = run_python(
        REFUSING
        + """
    torch.set_num_threads(1)
    (torch.ones(4, device="xla") + 1).tolist()  # the device has its thread
    xs = [torch.ones(n, 64, device="xla") for n in range(2, 8)]
    results = []
    text = refusal_of(lambda: results.extend(x.cumsum(0).sin().sum(1).sort()[0].tanh().sum().item() for x in xs))
    print(text, len(results))
    """,
        XLA_PERSISTENT_CACHE_PATH="",
        timeout=60,
    )
    assert out == "None 6\n"


THREADS_OF_PYTHON = {
    "step closure": (
        "xm.add_step_closure(lambda: told.append(1), run_async=True)",
        "torch_xla.sync()",
        "torch_xla.sync(); time.sleep(0.5); torch_xla.sync()",
    ),
    "profiler server": ("", "xp.start_server(port)", "xp.start_server(port) and told.append(1)"),
    "loader": ("", "next(iter(loader))", "next(iter(loader)); told.append(1)"),
    "data parallel": (
        "CALLS = []",
        "run_replicas([torch.device('xla:0')] * 2, CALLS.append)",
        "run_replicas([torch.device('xla:0')], CALLS.append); told.extend(c + 1 for c in CALLS)",
    ),
}


@pytest.mark.parametrize("name", THREADS_OF_PYTHON)
def test_a_thread_of_the_package_that_cannot_start_starts_later(run_python, name):
    before, call, again = THREADS_OF_PYTHON[name]
    out = run_python(
        REFUSING
        + f"""
    import socket, time
    import torch_xla.core.xla_model as xm
    import torch_xla.debug.profiler as xp
    from torch_xla.distributed.data_parallel import run_replicas
    from torch_xla.distributed.parallel_loader import MpDeviceLoader
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    loader = MpDeviceLoader([torch.ones(2)] * 3, torch_xla.device())
    (torch.ones(4, device="xla") + 1).tolist()  # the device has its thread
    told = []
    {before}
    print(refusal_of(lambda: {call}))
    {again}
    print(told)
    """,
        timeout=60,
    )
    assert out == "can't start new thread\n[1]\n"


def test_a_compile_without_memory_is_an_error_and_the_device_works_later(run_python):
    out = run_python(
        """
    import resource, torch, torch_xla
    from torch_xla import _XLAC
    def limit(more):
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (-1 if more is None else now + more, -1))
    given, weight = torch.arange(8.0).to("xla"), torch.ones(8).to("xla")
    (torch.ones(4, device="xla") + 1).tolist()
    refused = 0
    for attempt in range(12):
        y = given
        for _ in range(20 + attempt):
            y = torch.where(y > attempt, y.sin() * attempt, y.cos().sqrt())  # a kernel that needs memory to be compiled
        weight.add_(y.sum() * 0)
        _XLAC._set_buffer_donation(given, True)
        limit(attempt << 21)
        try:
            torch_xla.sync(wait=True)
            limit(None)
        except torch.OutOfMemoryError as error:
            limit(None)
            refused += 1
            assert _XLAC._get_buffer_donation(given) and not _XLAC._is_placecholder(given), str(error)
        else:
            given = torch.arange(8.0).to("xla")
        assert given.tolist() == list(range(8)), attempt
        assert weight.tolist() == [1] * 8, attempt
        del y
    print(refused > 0, (torch.ones(3, device="xla") * 2).tolist())
    """,
        XLA_PERSISTENT_CACHE_PATH="",
        timeout=100,
    )
    assert out == "True [2.0, 2.0, 2.0]\n"
