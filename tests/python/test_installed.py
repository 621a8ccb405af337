"""What a program that runs on the CPU sees of this package, which `import torch` loads: nothing but more names."""

import os
import subprocess
import sys
import textwrap

PROGRAM = """
    import multiprocessing.reduction, os, signal, sys, threading, warnings

    def switches():
        handlers = [signal.getsignal(number) for number in signal.valid_signals()]
        hooks = sys.excepthook, sys.unraisablehook, threading.excepthook, sys.gettrace(), sys.displayhook
        limits = sys.getrecursionlimit(), sys.getswitchinterval(), sys.flags, sys.getdlopenflags()
        return [dict(os.environ), handlers, hooks, limits, os.getcwd(), warnings.filters[:], sys.path[:]]

    before = switches()
    import torch
    print("filters", warnings.filters)
    after = switches()
    print("switches", [after[i] == before[i] for i in range(len(after)) if i != 5])
    import copy, hashlib, io, pickle
    from torch.utils.data import DataLoader

    def digest(data):
        return hashlib.sha256(data).hexdigest()

    # Of the process.
    print("modules", len([name for name in sys.modules if "xla" not in name]))
    print("threads", threading.active_count(), len(os.listdir("/proc/self/task")))
    reductions = multiprocessing.reduction.ForkingPickler._extra_reducers
    print("pickles", sorted(f"{kind} {function.__module__}" for kind, function in reductions.items()))

    # Defaults.
    print(torch.get_default_device(), torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled())
    print(torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision())
    print(torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), DataLoader([1]).pin_memory)
    print(torch._C._is_multithreading_enabled(), torch.get_num_interop_threads(), torch.is_inference_mode_enabled())
    print(vars(torch._tensor_str.PRINT_OPTS), torch.is_warn_always_enabled(), torch.__config__.show())
    optimizers = sys.modules["torch.optim.optimizer"]
    print(optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks)
    print(torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(), torch._C._get_cudnn_enabled())
    print(torch.serialization.get_default_load_endianness(), torch.multiprocessing.get_sharing_strategy())
    print(torch.backends.mkldnn.is_available(), torch.get_default_device(), torch.autograd.is_view_replay_enabled())

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

    # A child, which trains, too.
    print("threads", threading.active_count(), len(os.listdir("/proc/self/task")))
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        print("child", (x @ x).tolist(), torch.rand(2).tolist(), flush=True)
        model(x).sum().backward()
        print("gradients", [p.grad.tolist() for p in model.parameters()], flush=True)
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


# What the import puts in the place of functions and methods of PyTorch's, each of which hands what is not the device's
# to PyTorch's: docs/libraries.md says why these cannot wait for the first tensor.
AT_IMPORT = {
    "torch._TorchCompileInductorWrapper.__call__",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
    "torch._utils._rebuild_device_tensor_from_numpy",
    "torch._utils._rebuild_xla_tensor",
    "torch.autograd.profiler.profile.__exit__",
    "torch.autograd.profiler.profile._start_trace",
    "torch.distributed.device_mesh.DeviceMesh.__init__",
    "torch.distributed.distributed_c10d.BackendConfig.__init__",
    "torch.serialization._get_restore_location",
    "torch.to_dlpack",
    "torch.utils.dlpack.to_dlpack",
    # Names of our own.
    *(f"torch._C._{name}" for name in ("scatter", "scatter_out", "gather", "gather_out", "broadcast", "broadcast_out")),
    "torch._C._broadcast_coalesced",
    "torch.Tensor.xla",
}
FIND_OURS = """
    import sys, types, warnings
    import torch
    warnings.simplefilter("ignore")  # of names that PyTorch has no use for any more

    def functions():
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "torch" and not name.startswith("torch.xla"):
                for key, value in list(vars(module).items()):
                    yield f"{name}.{key}", value
                    if isinstance(value, type) and value.__module__ == name:
                        yield from ((f"{name}.{key}.{part}", inner) for part, inner in list(vars(value).items()))

    def ours():
        folder = sys.modules["torch_xla"].__path__[0]  # a clone may lie in a folder torch_xla
        found = {name: value.__code__.co_filename for name, value in functions() if type(value) is types.FunctionType}
        return {name for name, file in found.items() if file.startswith(folder)}
"""


def test_the_import_replaces_few_functions_and_the_first_tensor_the_rest(run_python):
    out = run_python(
        textwrap.dedent(FIND_OURS)
        + textwrap.dedent("""
            first = ours()
            print(*sorted(first))
            torch_xla = sys.modules["torch_xla"]
            torch_xla.device(), torch_xla.device_count(), torch.accelerator.current_accelerator(), torch.manual_seed(0)
            print(*sorted(ours() - first))
            torch.empty(1, device="xla")
            print(*sorted(ours() - first))
        """)
    )
    first, asked, used = (set(line.split()) for line in out.splitlines())
    assert first == AT_IMPORT and asked == set()
    assert {"torch.Tensor.__deepcopy__", "torch._tensor_str._str_intern"} <= used


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
