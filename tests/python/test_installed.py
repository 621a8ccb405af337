"""What a program that runs on the CPU sees of this package, which `import torch` loads: nothing but more names."""

import os
import subprocess
import sys
import textwrap

PROGRAM = """
    import os, sys
    environment = dict(os.environ)
    import torch
    import copy, hashlib, io, pickle, signal, threading, warnings
    from torch.utils.data import DataLoader

    def digest(data):
        return hashlib.sha256(data).hexdigest()

    # Of the process.
    print("modules", len([name for name in sys.modules if "xla" not in name]))
    print("environment", dict(os.environ) == environment)
    print("threads", threading.active_count(), len(os.listdir("/proc/self/task")))
    print("signals", signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), sys.excepthook)

    # Defaults.
    print(torch.get_default_device(), torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled())
    print(torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision())
    print(torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), DataLoader([1]).pin_memory)

    # Random numbers, files.
    torch.manual_seed(3)
    x = torch.randn(4, 4)
    print(x.tolist(), torch.randperm(5).tolist(), torch.initial_seed(), digest(torch.get_rng_state().numpy().tobytes()))
    file = io.BytesIO()
    torch.save({"x": x, "y": x[0]}, file)
    print(digest(file.getvalue()), pickle.loads(pickle.dumps(torch.nn.Parameter(x))))
    print(copy.deepcopy(x).tolist() == x.tolist(), x.untyped_storage().device, repr(x))

    # A training run, workers, checkpointing, tracing.
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in DataLoader(x, batch_size=2, shuffle=True, num_workers=1):
        with torch.autocast("cpu"):
            loss = torch.utils.checkpoint.checkpoint(model, batch, use_reentrant=False).sum()
        loss.backward()
        optimizer.step()
        print(loss.item(), batch.device, batch.is_pinned())
    print(torch.compile(lambda x: x.sin() + 1, backend="eager")(x).tolist())

    # A child.
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        print("child", (x @ x).tolist(), torch.rand(2).tolist(), flush=True)
        os._exit(0)
    print("ended", os.waitpid(pid, 0)[1])
"""


def run(autoload: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_program_on_the_cpu_sees_no_difference():
    assert run("1").splitlines() == run("0").splitlines()


def test_importing_torch_imports_no_more_of_it(run_python):
    heavy = ["torch._dynamo", "torch._inductor", "torch.distributed.fsdp", "torch_xla.distributed", "torch_xla.amp"]
    out = run_python(
        f"import sys, torch\nprint([name for name in {heavy} if name in sys.modules], 'torch_xla' in sys.modules)"
    )
    assert out == "[] True\n"


def test_submodules_come_when_they_are_named(run_python):
    run_python("import torch_xla\ntorch_xla.distributed, torch_xla.amp, torch_xla.backends")
    assert "no attribute 'nothing'" in run_python("import torch_xla\ntorch_xla.nothing", returncode=1)


def test_a_library_that_chooses_for_the_user_finds_no_device_unless_asked(monkeypatch):
    from torch_xla._internal import tpu

    monkeypatch.delenv("PJRT_DEVICE", raising=False)
    assert tpu.num_available_devices() == 0
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    assert tpu.num_available_devices() == 1
