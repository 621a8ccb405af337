"""Processes forked from one that has used the device: its tensors may be freed there, and every use is an error."""

import re

TEXT = "Cannot re-initialize XLA in forked subprocess. To use XLA with multiprocessing, you must use the 'spawn' start"


def test_every_use_in_a_forked_child_raises(run_python):
    out = run_python("""
        import os, torch, torch_xla
        x = torch.ones(3, device="xla") + 1
        torch_xla.sync()
        uses = {
            "make": lambda: torch.ones(3, device="xla"),
            "upload": lambda: torch.ones(3).to("xla"),
            "record": lambda: x + 1,
            "write": lambda: x.add_(1),
            "read": lambda: x.cpu(),
            "item": lambda: x[0].item(),
            "print": lambda: repr(x),
            "sync": torch_xla.sync,
            "wait": torch.xla.synchronize,
        }
        child = os.fork()
        if child == 0:
            assert torch.xla._is_in_bad_fork()
            torch.manual_seed(0)
            for name, use in uses.items():
                try:
                    use()
                    print(name, "returned", flush=True)
                except RuntimeError as error:
                    print(name, str(error).splitlines()[0], flush=True)
            del x
            raise SystemExit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print("parent", x.tolist())
    """)
    *child, parent = out.splitlines()
    assert [line.split()[0] for line in child] == "make upload record write read item print sync wait".split()
    assert all(line.split(" ", 1)[1].startswith(TEXT) for line in child), out
    assert parent == "parent [2.0, 2.0, 2.0]"


def test_forks_while_threads_record(run_python):
    out = run_python(
        """
        import os, signal, threading, torch, torch_xla
        stop, warm = threading.Event(), threading.Barrier(4)
        def record(i):
            x = torch.full((8,), float(i), device="xla")
            for _ in range(10):  # first calls take locks of libc that a fork does not wait for (docs/threads.md)
                x = x * 0.5 + 1
                (x + 1).sum().item()
            warm.wait()
            while not stop.is_set():
                x = x * 0.5 + 1
                if i == 0 and threading.active_count() < 50:  # a busy machine ends them more slowly than it starts them
                    threading.Thread(target=lambda y=x + 1: y.sum().item()).start()
                else:
                    torch_xla.sync()
        threads = [threading.Thread(target=record, args=(i,)) for i in range(3)]
        shared = torch.ones(4, device="xla") + 1
        shared.sum().item()
        for thread in threads:
            thread.start()
        warm.wait()
        for _ in range(40):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                for use in (lambda: shared + 1, lambda: shared.cpu(), lambda: torch_xla.debug.metrics.metrics_report()):
                    try:
                        use()
                    except RuntimeError:
                        pass
                del shared
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, "the child hung"
        stop.set()
        for thread in threads:
            thread.join()
        print(shared.tolist())
    """
    )
    assert out == "[2.0, 2.0, 2.0, 2.0]\n"


def test_a_profile_of_what_a_child_does_on_the_cpu(run_python):
    """Whether the parent has profiled alone, or used the device as well."""
    out = run_python("""
        import os, sys, torch
        from torch.profiler import ProfilerActivity, profile
        def profiled(**arguments):
            with profile(**arguments) as profiler:
                torch.ones(4).sum()
            return sum(row.key == "aten::sum" for row in profiler.key_averages())
        def in_child():
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                print(profiled(), profiled(activities=[ProfilerActivity.CPU]), flush=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        print(profiled())
        in_child()
        print(torch.xla._is_in_bad_fork(), torch.ones(2, device="xla").sum().item())
        in_child()
    """)
    # The profiler's own lines begin with a level, where PyTorch is built for CUDA also with warnings of its driver.
    assert [line for line in out.splitlines() if not re.match("[A-Z]+:", line)] == ["1", "1 1", "False 2.0", "1 1"]


def test_a_loader_shows_the_error_of_a_worker_that_uses_the_device(run_python):
    out = run_python("""
        import torch, torch_xla
        from torch.utils.data import DataLoader, Dataset
        class Numbers(Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, i):
                return torch.full((2,), float(i), device="xla")
        torch.ones(2, device="xla").sum().item()
        try:
            next(iter(DataLoader(Numbers(), batch_size=2, num_workers=1, timeout=60)))
        except RuntimeError as error:
            print(error)
    """)
    assert "Caught RuntimeError in DataLoader worker process 0" in out and TEXT in out
