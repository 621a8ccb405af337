"""Several devices in one process: the files of two_devices and four_devices in their own; how such processes end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Two devices of either engine: the embedded one, and XLA's CPU client.
TWO = {
    "CPU_NUM_DEVICES": "2",
    "PJRT_LIBRARY_OPTIONS": "cpu_device_count=2",
}


def run_tests(names: list[str], environment: dict) -> None:
    """In one process: each takes seconds to start."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [str(Path(__file__).parent / name) for name in names]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_process_with_two_devices():
    parts = ("recording", "running", "state")
    run_tests([*(f"two_devices/{part}.py" for part in parts), "test_nn_data_parallel.py"], TWO)


def test_tensors_spread_over_four_devices():
    run_tests(["four_devices/spmd.py", "test_spmd.py"], {"CPU_NUM_DEVICES": "4", "PJRT_DEVICE": "CPU"})


@pytest.mark.skipif("os.environ.get('PJRT_DEVICE', 'CPU') == 'CPU'", reason="XLA's partitioner is a plugin's")
@pytest.mark.parametrize("number", [4, 8])
def test_programs_over_the_devices_of_a_plugin(number):
    names = [f"four_devices/{part}.py" for part in ("partitioned", "manual", "decoders")]
    names += ["four_devices/spmd.py", "test_spmd.py"] if number == 4 else []
    run_tests(names, {"PJRT_LIBRARY_OPTIONS": f"cpu_device_count={number}"})


@pytest.mark.parametrize("number", ["0", "-1", "two", "65"])
def test_numbers_of_devices_that_are_not_understood(run_python, number):
    out = run_python(
        """
        import torch, torch_xla
        try:
            torch_xla.device_count()
        except ValueError as error:
            print(error)
        print(torch.ones(2, requires_grad=True).sum().backward())
        """,
        CPU_NUM_DEVICES=number,
        PJRT_DEVICE="CPU",
    )
    error = (
        f"the environment variable CPU_NUM_DEVICES={number} is not understood; it can be a whole number from 1 to 64"
    )
    assert out == f"{error}\nNone\n"


def test_a_file_of_a_device_that_is_not_there(run_python, tmp_path):
    path = str(tmp_path / "x.pt")
    save = f"import torch, torch_xla; torch.save(torch.arange(3.0).to('xla:1'), {path!r})"
    assert run_python(save, **TWO) == ""
    out = run_python(
        f"""
        import torch, torch_xla
        try:
            torch.load({path!r})
        except RuntimeError as error:
            print(error)
        print(torch.load({path!r}, map_location="xla").tolist())
        """,
        CPU_NUM_DEVICES="1",
    )
    assert "device 1 but torch.xla.device_count() is 1" in out and out.endswith("[0.0, 1.0, 2.0]\n")


def test_fork_with_two_devices(run_python):
    out = run_python(
        """
        import os, signal, threading, torch, torch_xla
        kept = [torch.ones(3, device=f"xla:{i}") + 1 for i in range(2)]
        stop, warm = threading.Event(), threading.Barrier(3)
        def record(i):
            x = torch.zeros(8, device=f"xla:{i}")
            for _ in range(10):  # first calls take locks of libc that a fork does not wait for (docs/threads.md)
                x = x * 0.5 + 1
                torch.xla.synchronize(i)
            warm.wait()
            while not stop.is_set():
                x = x * 0.5 + 1
                torch.xla.synchronize(i)
        threads = [threading.Thread(target=record, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        warm.wait()
        statuses = []
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                refused = 0
                for i in range(2):
                    for use in (lambda: kept[i] + 1, lambda: kept[i].cpu(), lambda: torch.ones(2).to(f"xla:{i}")):
                        try:
                            use()
                        except RuntimeError as error:
                            refused += "forked subprocess" in str(error)
                torch.manual_seed(0)
                del kept
                os._exit(0 if refused == 6 else 1)
            statuses.append(os.waitpid(child, 0)[1])
        stop.set()
        for thread in threads:
            thread.join()
        assert not any(statuses), f"a child hung, or used a device: {statuses}"
        print([x.tolist() for x in kept])
        """,
        **TWO,
    )
    assert out == "[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]\n"


@pytest.mark.parametrize("end", ["", "torch_xla.sync()", "torch.xla.synchronize(1)", "raise SystemExit(0)"])
def test_exit_with_work_on_two_devices(run_python, end):
    start = """
import torch, torch_xla
xs = [torch.randn(400, 400, device=f"xla:{i}") for i in range(2)]
for _ in range(20):
    xs = [x @ x / 400 for x in xs]
torch_xla._XLAC._xla_sync(1)
"""
    assert run_python(f"{start}\n{end}", **TWO) == ""


@pytest.mark.checks_values
def test_exit_prints_the_errors_of_all_devices(run_python):
    out = run_python(
        """
        import torch, torch_xla
        for i in range(2):
            with torch.xla.device(i):
                x = torch.randn(1000, 1000, device="xla")
                for _ in range(20):
                    x = x @ x * 1e-2
                torch_xla.sync()
                lost = torch.nn.functional.embedding(torch.tensor([9], device="xla"), torch.ones(4, 2, device="xla"))
                torch_xla.sync()
                del lost
        """,
        returncode=1,
        **TWO,
    )
    assert out.count("Exception ignored in a program of the XLA device that nobody waited for") == 2


def test_an_interrupt_cancels_the_programs_of_all_devices(run_python):
    out = run_python(
        """
        import os, signal, threading, torch, torch_xla
        weights = [torch.ones(4, device=f"xla:{i}") for i in range(2)]
        xs = [torch.randn(1500, 1500, device=f"xla:{i}") for i in range(2)]
        for i in range(2):
            torch.xla.synchronize(i)
        try:
            for i in range(2):
                x = xs[i]
                for _ in range(2000):  # more than the time limit of the process
                    x = x @ x * 1e-3
                weights[i].add_(x.sum())
                torch_xla._XLAC._xla_sync(i)
            # Now that all is queued: what an interrupt leaves recorded would run at the next sync.
            threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            torch.xla.synchronize(0)
            print("ended")
        except KeyboardInterrupt:
            print("interrupted")
        for i in range(2):  # nothing is left to tell
            torch.xla.synchronize(i)
        print([w.tolist() for w in weights])
        """,
        PJRT_DEVICE="CPU",
        **TWO,
    )
    assert out == "interrupted\n[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]\n"
