"""Engines behind PJRT_DEVICE: how one is chosen, and what is left when a plugin fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What each program below starts with: `fail(where, code)` makes the next call of the fake plugin fail.
PRELUDE = """
import ctypes, os, torch, torch_xla
fake = ctypes.CDLL(os.environ["PJRT_LIBRARY_PATH"])
def fail(where, code):
    fake.fake_pjrt_fail(where.encode(), code)
def error_of(body):
    try:
        body()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
INTERNAL, RESOURCE_EXHAUSTED = 13, 8
"""


@pytest.fixture
def run_fake(run_python):
    """Function that runs a program on the fake plugin of the C++ tests, whose programs return a copy of an argument."""
    plugin = ROOT / "build/release/tests/cpp/libfake_pjrt_plugin.so"
    if not plugin.is_file():
        pytest.skip("the fake PJRT plugin is not built: run cmake --build --preset release-tests")

    def run(source: str, **env) -> list[str]:
        settings = {"PJRT_DEVICE": "LIBRARY", "PJRT_LIBRARY_PATH": str(plugin), "XLA_PERSISTENT_CACHE_PATH": ""}
        return run_python(PRELUDE + source, **{**settings, **env}).splitlines()

    return run


@pytest.fixture
def first_error(run_python):
    """Function that runs a first use of the device with environment variables and returns its error, type first."""

    def run(**env) -> str:
        source = """
            import torch, torch_xla
            for _ in range(2):  # the second try tells the same
                try:
                    print(torch.ones(2).to("xla"))
                except Exception as error:
                    print(f"{type(error).__name__}: {error}")
            print((torch.ones(2) + 1).tolist())
        """
        first, second, last = run_python(source, **env).splitlines()
        assert first == second and last == "[2.0, 2.0]"
        return first

    return run


# ---- The choice ----
def test_unknown_device_lists_the_known_ones(first_error):
    error = first_error(PJRT_DEVICE="GPU")
    assert error.startswith("ValueError: PJRT_DEVICE=GPU is not known; allowed are CPU")
    assert "CUDA" in error and "TPU" in error and "LIBRARY" in error and "PJRT_LIBRARY_PATH" in error


def test_a_device_has_to_be_chosen_where_none_is_by_default(first_error, run_python):
    error = first_error(PJRT_DEVICE="", PJRT_SELECT_DEFAULT_DEVICE="0")
    assert error.startswith("RuntimeError: PJRT_SELECT_DEFAULT_DEVICE is off and PJRT_DEVICE is not set: set it to CPU")
    source = "import torch, torch_xla\nprint(torch_xla.runtime.device_type())"
    assert run_python(source, PJRT_DEVICE="", PJRT_SELECT_DEFAULT_DEVICE="0") == "None\n"
    assert run_python(source, PJRT_DEVICE="CPU", PJRT_SELECT_DEFAULT_DEVICE="0") == "CPU\n"
    assert run_python(source, PJRT_DEVICE="") == "CPU\n"


def test_asking_for_the_device_type_starts_nothing(run_python):
    source = """
        import torch, torch_xla
        from torch_xla import runtime as xr
        print(xr.device_type(), torch_xla._XLAC._xla_runtime_is_initialized())
        xr.set_device_type("CPU")
        print(xr.device_type(), torch.ones(2).to("xla").tolist(), xr.device_type())
    """
    assert run_python(source, PJRT_DEVICE="TPU") == "TPU False\nCPU [1.0, 1.0] CPU\n"


def test_library_without_a_path(first_error):
    error = first_error(PJRT_DEVICE="LIBRARY", PJRT_LIBRARY_PATH="")
    assert error.startswith("RuntimeError: PJRT_DEVICE=LIBRARY needs the path") and "not set" in error


def test_wheels_are_found_without_importing_them(run_python, tmp_path):
    for folder, file in [("jax_plugins/xla_cuda13", "xla_cuda_plugin.so"), ("libtpu", "libtpu.so")]:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").write_text("raise RuntimeError('imported')")
        (tmp_path / folder / file).write_text("")
    source = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import torch, torch_xla
        try:
            torch.ones(2).to("xla")
        except RuntimeError as error:
            print(error)
    """
    for device, path in [("CUDA", "jax_plugins/xla_cuda13/xla_cuda_plugin.so"), ("TPU", "libtpu/libtpu.so")]:
        out = run_python(source, PJRT_DEVICE=device)
        assert f"PJRT_DEVICE={device}: the PJRT plugin {tmp_path / path} cannot be loaded" in out


def test_attributes_of_the_device(run_fake, run_python):
    show = """print(torch_xla.runtime.runtime_device_attributes("xla:0"))"""
    wanted = {"name": "FAKE:0", "coords": [1, 2], "kind": "fake", "platform_version": "fake"}
    assert run_fake(show) == [str(wanted)]
    text = run_python(
        "import torch_xla.runtime as xr; print(xr.global_runtime_device_attributes()[0])", PJRT_DEVICE="CPU"
    )
    assert text.startswith("{'name': 'CPU:0', 'kind': 'cpu', 'num_cores': ")


def test_what_is_told_of_a_compile(run_fake):
    (line,) = run_fake(
        """
x = torch.ones(2).to("xla:1")
torch_xla._XLAC._start_events()
y = x + 1
torch.xla.synchronize(1)
events = torch_xla._XLAC._stop_events()
(whole,) = [event for event in events if event["phase"] == "compile"]
passes = [event for event in events if event["phase"] == "pass"]
assert all(whole["start_ns"] <= each["start_ns"] and each["end_ns"] <= whole["end_ns"] for each in passes)
print(*[each["name"] for each in passes], {each["device"] for each in passes}, sep=", ")
"""
    )
    assert line == "lower, simplify, share_heads, cse, eliminate_dead_code, write StableHLO, compile StableHLO, {1}"


def test_memory_of_another_type_goes_by_way_of_the_host(run_fake):
    (line,) = run_fake(
        """
x = torch.ones(6).to(torch.float8_e5m2).to("xla")
torch_xla._XLAC._start_events()
y = x.view(torch.int8) + 1
events = torch_xla._XLAC._stop_events()
print([(event["phase"], event["device"], event["bytes"]) for event in events if event["phase"] != "record"])
"""
    )
    assert line == "[('download', 0, 6), ('upload', 0, 6)]"


@pytest.mark.slow
def test_plugin_that_is_slow_to_open_its_device(run_fake):
    lines = run_fake(
        """
import sys
sys.stderr.flush()
os.dup2(1, 2)
print(torch.ones(2).to("xla").tolist())
""",
        FAKE_PJRT_SLOW="12",
    )
    assert lines[0].startswith("torch_xla: still waiting for the PJRT plugin ") and lines[1] == "[1.0, 1.0]"


# ---- Options of a plugin by its path ----
def test_options_of_a_library(run_fake):
    lines = run_fake(
        """
print(torch.ones(2).to("xla").tolist())
fake.fake_pjrt_options.restype = ctypes.c_char_p
print(fake.fake_pjrt_options().decode())
""",
        PJRT_LIBRARY_OPTIONS="count=2,flag=false,text=2x,none=",
    )
    assert lines == ["[1.0, 1.0]", "count=2 flag=False none='' text='2x'"]


@pytest.mark.parametrize("options, part", [("count", "count"), ("a=1,=2", "=2"), ("a=1,,b=2", "")])
def test_options_of_a_library_that_are_not_understood(run_fake, options, part):
    (line,) = run_fake("""print(error_of(lambda: torch.ones(2).to("xla")))""", PJRT_LIBRARY_OPTIONS=options)
    assert line.startswith(f'ValueError: PJRT_LIBRARY_OPTIONS={options}: "{part}" is no option; wanted is name=value')


# ---- Plugins by name ----
PLUGIN = """
from torch_xla.experimental import plugins
class Vendor(plugins.DevicePlugin):
    def library_path(self):
        return os.environ["PJRT_LIBRARY_PATH"]
    def client_create_options(self):
        return OPTIONS
plugins.register_plugin("vendor", Vendor())
torch_xla.runtime.set_device_type("VENDOR")
"""


def test_registered_plugin_gets_its_options(run_fake):
    lines = run_fake(
        PLUGIN
        + """
OPTIONS = {"text": "a b", "flag": True, "number": 7, "share": 0.5, "list": [1, 2], "none": []}
print(torch.tensor([1.0, 2.0]).to("xla").tolist(), type(plugins.default()).__name__)
fake.fake_pjrt_options.restype = ctypes.c_char_p
print(fake.fake_pjrt_options().decode())
"""
    )
    assert lines == ["[1.0, 2.0] Vendor", "flag=True list=[1, 2] none=[] number=7 share=0.500000 text='a b'"]


@pytest.mark.parametrize(
    "options, error",
    [
        ("{'bad': 1 + 2j}", "TypeError: PJRT_DEVICE=VENDOR: options of a client are str, bool"),
        ("1 / 0", "RuntimeError: PJRT_DEVICE=VENDOR: ZeroDivisionError: "),
        ("undefined", "RuntimeError: PJRT_DEVICE=VENDOR: NameError: "),
    ],
)
def test_plugin_with_bad_options(run_fake, options, error):
    program = PLUGIN.replace("OPTIONS", options).replace('torch_xla.runtime.set_device_type("VENDOR")', "")
    use = """print(error_of(lambda: torch.ones(2).to("xla")))"""
    (line,) = run_fake(program + use, PJRT_DEVICE="VENDOR")
    assert line.startswith(error)


def test_plugin_of_an_entry_point(run_fake, tmp_path):
    (tmp_path / "vendor-1.dist-info").mkdir()
    (tmp_path / "vendor-1.dist-info/entry_points.txt").write_text("[torch_xla.plugins]\nvendor = vendor:Vendor\n")
    (tmp_path / "vendor-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1\n")
    (tmp_path / "vendor.py").write_text(
        "import os\nfrom torch_xla.experimental import plugins\nclass Vendor(plugins.DevicePlugin):\n"
        "    def library_path(self):\n        return os.environ['PJRT_LIBRARY_PATH']\n"
    )
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
print(torch.tensor([3.0]).to("xla").tolist(), torch_xla.runtime.device_type())
"""
    assert run_fake(program, PJRT_DEVICE="VENDOR") == ["[3.0] FAKE"]


PROCESSES = """
import os
from torch_xla.distributed import xla_multiprocessing as xmp
from torch_xla._internal import pjrt
from torch_xla.experimental import plugins
class Vendor(plugins.DevicePlugin):
    def library_path(self):
        return __file__
    def configure_single_process(self):
        print("alone", flush=True)
    def configure_multiprocess(self, local_rank, local_world_size):
        os.write(1, f"one of {local_world_size}\\n".encode())  # print() writes the end of a line by itself
def work(index):
    os.write(1, b"works\\n")
if __name__ == "__main__":
"""


def test_a_plugin_prepares_processes(tmp_path, python_path):
    site = tmp_path / "vendor-1.dist-info"
    site.mkdir()
    (site / "entry_points.txt").write_text("[torch_xla.plugins]\nvendor = vendor:Vendor\n")
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1\n")
    (tmp_path / "vendor.py").write_text(
        PROCESSES
        + """
    import vendor
    plugins.register_installed_plugins()
    plugin = plugins.default()
    print(type(plugin) is vendor.Vendor, plugin.requires_xla_coordinator(), plugin.physical_chip_count())
    xmp.spawn(vendor.work, nprocs=1)
    pjrt.initialize_singleprocess()
    xmp.spawn(vendor.work, nprocs=2)
    pjrt.initialize_multiprocess(1, 3)
    print(os.environ["PJRT_LOCAL_PROCESS_RANK"], os.environ["PJRT_LOCAL_PROCESS_COUNT"])
    plain = plugins.DevicePlugin()
    print(plain.configure_single_process(), plain.configure_multiprocess(0, 2))
"""
    )
    env = {**os.environ, "PYTHONPATH": python_path(tmp_path), "PJRT_DEVICE": "VENDOR"}
    run = [sys.executable, str(tmp_path / "vendor.py")]
    done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:4] == ["True False 1", "alone", "works", "alone"]
    assert sorted(lines[4:8]) == ["one of 2", "one of 2", "works", "works"]
    assert lines[8:] == ["one of 3", "1 3", "None None"]


def test_names_that_cannot_be_registered(run_fake):
    lines = run_fake("""
from torch_xla.experimental import plugins
print(error_of(lambda: plugins.register_plugin("cpu", plugins.DevicePlugin())))
torch_xla.runtime.set_device_type("EMPTY")  # before there is one
plugins.register_plugin("empty", plugins.DevicePlugin())
print(error_of(lambda: torch.ones(2).to("xla")))
""")
    assert lines[0].startswith("ValueError: PJRT_DEVICE=CPU has a meaning of its own")
    assert lines[1].startswith(
        "RuntimeError: PJRT_DEVICE=EMPTY: NotImplementedError: DevicePlugin does not say where its PJRT plugin is"
    )


def test_device_type_is_set_before_the_first_use(run_fake):
    lines = run_fake("""
torch_xla.runtime.set_device_type("LIBRARY")
x = torch.ones(2).to("xla")
torch_xla.runtime.set_device_type("LIBRARY")
print(error_of(lambda: torch_xla.runtime.set_device_type("CPU")), os.environ["PJRT_DEVICE"])
""")
    assert lines == [
        "RuntimeError: the device runs as LIBRARY already: call set_device_type('CPU') before its first use LIBRARY"
    ]


CALLS_OF_A_DEVICE = [
    "torch.ones(2).to('xla')",
    "torch_xla.device()",
    "xm.xla_device()",
    "xmp.spawn(print)",
    "xmp.spawn(print, nprocs=2)",
    "torch_xla.launch(print)",
    "torch_xla.launch(print, debug_single_process=True)",
]


@pytest.mark.parametrize("device, wheel", [("CUDA", "jax-cuda13-plugin"), ("TPU", "libtpu")])
def test_a_plugin_that_is_not_there_is_told_at_the_first_call(run_python, device, wheel):
    out = run_python(
        f"""
        import importlib.util
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name.startswith(("jax", "libtpu")) else find(name, *rest)
        import torch, torch_xla, torch_xla.core.xla_model as xm, torch_xla.distributed.xla_multiprocessing as xmp
        for call in {CALLS_OF_A_DEVICE}:
            try:
                eval(call)
                print("nothing")
            except RuntimeError as error:
                print(error)
        """,
        PJRT_DEVICE=device,
    )
    lines = out.splitlines()
    assert len(lines) == len(CALLS_OF_A_DEVICE) and set(lines) == {lines[0]}
    assert lines[0].startswith(f"PJRT_DEVICE={device} needs the PJRT plugin of a wheel that is not installed")
    assert wheel in out


@pytest.mark.parametrize("variable, value", [("PJRT_ALLOCATOR_FRACTION", "2"), ("PJRT_ALLOCATOR_FRACTION", "x")])
def test_memory_of_a_gpu_is_a_share(first_error, tmp_path, variable, value):
    folder = tmp_path / "jax_plugins/xla_cuda13"
    folder.mkdir(parents=True)
    (folder / "xla_cuda_plugin.so").write_text("")
    (folder / "__init__.py").write_text("")
    error = first_error(PJRT_DEVICE="CUDA", PYTHONPATH=str(tmp_path), **{variable: value})
    assert error.startswith("ValueError: PJRT_DEVICE=CUDA: ") and f"{variable}={value} is not understood" in error


def test_cuda_compiler_of_a_wheel_is_found(run_python, tmp_path):
    for path in ("jax_plugins/xla_cuda13/xla_cuda_plugin.so", "nvidia/cu13/bin/ptxas"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("")
    source = f"""
        import os, sys
        sys.path.insert(0, {str(tmp_path)!r})
        import torch_xla
        from torch_xla.experimental import plugins
        print(plugins.find("CUDA")[0])
        print(os.environ["XLA_FLAGS"])
        plugins.find("cuda")
        print(os.environ["XLA_FLAGS"])
    """
    plugin, *flags = run_python(source, XLA_FLAGS="--xla_one=1").splitlines()
    assert plugin == str(tmp_path / "jax_plugins/xla_cuda13/xla_cuda_plugin.so")
    assert flags == [f"--xla_one=1 --xla_gpu_cuda_data_dir={tmp_path / 'nvidia/cu13'}"] * 2
    (same, *flags) = run_python(source, XLA_FLAGS="", CUDA_ROOT="/opt/cuda").splitlines()
    assert same == plugin and flags == ["--xla_gpu_cuda_data_dir=/opt/cuda"] * 2


def test_variables_of_the_gpu_allocator(run_python):
    out = run_python(
        """
        import torch_xla
        from torch_xla.experimental import plugins
        print(plugins._WHEELS["CUDA"].client_create_options())
        """,
        PJRT_ALLOCATOR_FRACTION="0.4",
        PJRT_ALLOCATOR_PREALLOCATE="false",
        PJRT_ALLOCATOR_CUDA_ASYNC="1",
    )
    wanted = {"platform_name": "cuda", "memory_fraction": 0.4, "preallocate": False, "allocator": "cuda_async"}
    assert out.strip() == str(wanted)


# ---- Precision ----
def test_precision_of_products(run_fake, tmp_path):
    lines = run_fake(
        """
from torch_xla import backends
x = torch.ones(4, 4).to("xla")
for word in ("highest", "high", "default", "high"):
    backends.set_mat_mul_precision(word)
    y = x @ x
    torch_xla.sync(wait=True)
    text = open(os.environ["XLA_DEBUG_FILE"]).read()
    counts = [text.count(what) for what in ("HIGHEST>", "HIGH>", "dot_general")]
    print(word, backends.get_mat_mul_precision(), *counts)
print(error_of(lambda: backends.set_mat_mul_precision("medium")))
""",
        XLA_DEBUG="3",
        XLA_DEBUG_FILE=str(tmp_path / "dump.txt"),
    )
    assert lines[:4] == ["highest highest 2 0 1", "high high 2 2 2", "default default 2 2 3", "high high 2 2 3"]
    assert lines[4].startswith("ValueError: precision 'medium' is not known")


PRECISION = """
import torch_xla.core.xla_model as xm
from torch_xla import backends
x = torch.ones(4, 4).to("xla")
def said():
    text = xm.get_stablehlo([x @ x])
    return "HIGHEST" if "HIGHEST" in text else "HIGH" if "HIGH" in text else "nothing"
print(torch.get_float32_matmul_precision(), said(), backends.get_mat_mul_precision())
torch.set_float32_matmul_precision("highest")
print(said(), backends.get_mat_mul_precision())
torch.set_float32_matmul_precision("high")
print(said(), backends.get_mat_mul_precision())
torch.backends.cuda.matmul.fp32_precision = torch.backends.mkldnn.matmul.fp32_precision = "none"
print(said(), backends.get_mat_mul_precision())
"""


def test_precision_where_the_user_has_not_chosen(run_fake, run_python):
    """The fake plugin's platform is no host or GPU, so its own default holds."""
    chosen = ["HIGHEST highest", "HIGH high"]
    assert run_fake(PRECISION) == ["highest nothing default", *chosen, "nothing default"]
    source = "import torch, torch_xla\n" + PRECISION
    assert run_python(source, PJRT_DEVICE="CPU").splitlines() == ["highest HIGHEST highest", *chosen, "HIGHEST highest"]


# ---- Numbers ----
NUMBERS = """
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
def count():
    return met.counter_value("UncachedCompile") or 0
x, y = torch.ones(4).to("xla"), torch.ones(6).to("xla")
def compiles(body):
    torch_xla.sync(wait=True)
    before = count()
    keep = body()
    torch_xla.sync(wait=True)
    return count() - before
"""


def test_numbers_are_constants_until_they_change(run_fake):
    lines = run_fake(
        NUMBERS
        + """
def body(a, b, of=x):
    return of * a + b
print(*(compiles(lambda: body(a, b)) for a, b in [(2.0, 0.5), (2.0, 0.5), (3.0, 0.5), (4.0, 0.5), (2.0, 0.5)]))
text = xm.get_stablehlo([body(5.0, 0.5)])
print("%arg1: tensor<f64>" in text, "%arg2" in text, "dense<0x3F000000> : tensor<f32>" in text)
print(*(compiles(lambda: body(a, b, y)) for a, b in [(2.0, 0.5), (3.0, 0.5), (3.0, 0.7)]))
reason = torch_xla._XLAC._compile_reasons()[-1]
print(reason["kind"], reason["operation"], reason["now"], reason["before"], reason["line"] != "")
"""
    )
    assert lines[0] == "1 0 1 0 0"  # one more compile for the first change
    assert lines[1] == "True False True"  # the changed number is an argument, the other a constant of the row's type
    assert lines[2] == "1 0 1"  # another shape of the same structure knows which number changes
    assert lines[3] == "numbers aten::add.Tensor 0.7 0.5 True"


def test_the_text_without_changes_has_no_numbers_as_arguments(run_fake):
    lines = run_fake(NUMBERS + 'print("f64" in xm.get_stablehlo([torch.nn.functional.layer_norm(x * 3, [4])]))')
    assert lines == ["False"]


def test_a_learning_rate_compiles_nothing(run_fake):
    lines = run_fake(
        NUMBERS
        + """
for make, options in [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), (torch.optim.Adam, {}), (torch.optim.AdamW, {"fused": True})
]:
    model = torch.nn.Linear(4, 4).to("xla")
    optimizer = make(model.parameters(), **options)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    counts = []
    for _ in range(10):
        before = count()
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        counts.append(count() - before)
    print(*counts)
"""
    )
    for line in lines:
        assert line.split()[2:] == ["0"] * 8, lines


def test_draws_compile_nothing(run_fake):
    body = "print(*(compiles(lambda: torch.nn.functional.dropout(x, 0.25)) for _ in range(4)))"
    assert run_fake(NUMBERS + body) == ["1 0 0 0"]


def test_numbers_of_deterministic_programs_are_arguments(run_fake):
    body = "torch.use_deterministic_algorithms(True)\nprint(*(compiles(lambda: x * a) for a in (1.5, 2.5)))"
    assert run_fake(NUMBERS + body) == ["1 0"]


def test_numbers_stay_constants_where_asked(run_fake):
    body = """
torch_xla._XLAC._set_xla_all_numbers_special_scalars(True)
print(*(compiles(lambda: x * a) for a in (1.5, 2.5, 3.5, 1.5)))
"""
    assert run_fake(NUMBERS + body) == ["1 1 1 0"]


def test_later_processes_know_which_numbers_change(run_fake, tmp_path):
    cache = {"XLA_PERSISTENT_CACHE_PATH": str(tmp_path / "cache")}
    body = NUMBERS + "print(*(compiles(lambda: x * a + 1.5) for a in {}))"
    assert run_fake(body.format((2.0, 3.0)), **cache) == ["1 1"]
    assert run_fake(body.format((7.0, 8.0, 2.0)), **cache) == ["0 0 0"]


# ---- Programs on disk ----
TWICE = """
for _ in range(2):
    print((torch.arange(2.0).to("xla") + 1).tolist())
"""


def test_program_that_cannot_be_serialized_is_not_kept(run_fake, tmp_path):
    cache = {"XLA_PERSISTENT_CACHE_PATH": str(tmp_path / "cache")}
    lines = run_fake('fail("serialize", INTERNAL)' + TWICE, **cache)
    assert lines == ["[0.0, 1.0]"] * 2  # the fake plugin's programs copy their argument
    assert not list(tmp_path.glob("cache/programs/*.o"))
    assert run_fake(TWICE, **cache) == lines
    assert len(list(tmp_path.glob("cache/programs/*.o"))) == 1
    assert run_fake('fail("load", INTERNAL)' + TWICE, **cache) == lines  # compiled again
    told = run_fake(
        'fail("serialize", INTERNAL)' + TWICE, XLA_DEBUG="1", XLA_PERSISTENT_CACHE_PATH=str(tmp_path / "new")
    )
    assert any("a program is not kept on disk: serializing a program: INTERNAL" in line for line in told)


def test_key_of_a_program_names_what_compiled_it(run_fake, tmp_path):
    run_fake(TWICE, XLA_PERSISTENT_CACHE_PATH=str(tmp_path))
    (file,) = tmp_path.glob("programs/*.o")
    text = file.read_bytes()
    assert b"fake" in text.lower() and bytes([0x20, 0x01, 0x28, 0x01]) in text


@pytest.fixture
def run_plugin(run_python, tmp_path):
    """Function that runs a program on a real plugin with a disk cache; returns its first line and the cached files."""
    plugin = os.environ.get("XLA_TEST_PJRT_PLUGIN")
    if not plugin:
        pytest.skip("XLA_TEST_PJRT_PLUGIN names no plugin; `make test-pjrt` sets it")

    def run(source: str) -> tuple[str, dict[Path, int]]:
        cache = tmp_path / "cache"
        settings = {"PJRT_DEVICE": "LIBRARY", "PJRT_LIBRARY_PATH": plugin, "XLA_PERSISTENT_CACHE_PATH": str(cache)}
        out = run_python(source, **settings)
        return out.splitlines()[0], {file: file.stat().st_mtime_ns for file in (cache / "programs").glob("*.o")}

    return run


def test_programs_are_kept_on_disk(run_plugin):
    program = """
        import torch, torch_xla
        x = torch.arange(6.0).to("xla")
        print((x * 3 + 1).tolist())
    """
    out, files = run_plugin(program)
    assert out == "[1.0, 4.0, 7.0, 10.0, 13.0, 16.0]" and files
    assert run_plugin("\n\n" + program) == (out, files)  # also from other lines
    damaged = next(iter(files))
    damaged.write_bytes(damaged.read_bytes()[:-3])
    again, mended = run_plugin(program)
    assert again == out and mended.keys() == files.keys() and mended[damaged] > files[damaged]


def test_a_batch_of_one_transposed_bfloat16(run_plugin):
    out, _ = run_plugin("""
        import torch, torch_xla
        x, y = torch.arange(48).reshape(1, 6, 8) / 16, torch.arange(96).reshape(1, 6, 16) / 32
        for row in (torch.bmm, lambda a, b: torch.baddbmm(torch.zeros_like(a[:, :, :1]), a, b)):
            product = row(x[0].bfloat16().to("xla").t().unsqueeze(0), y.bfloat16().to("xla"))
            assert torch.allclose(product.cpu().float(), x.mT @ y, rtol=1e-2)
        print("equal")
    """)
    assert out == "equal"


def test_process_ends_while_programs_run(run_plugin):
    out, _ = run_plugin("""
        import torch, torch_xla
        model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)]).to("xla")
        x = torch.randn(256, 512).to("xla")
        print("started", flush=True)
        for _ in range(5):
            x = model(x)
            torch_xla.sync()
    """)
    assert out == "started"


# ---- Failures: one exception each; what was not given to the failed run keeps its values ----
def test_programs_go_to_the_device_of_their_operands(run_fake):
    # The plugin refuses operands that lie on another device than the program.
    assert run_fake("""
print(torch_xla.device_count(), *torch_xla.real_devices())
x = torch.tensor([1.0, 2.0]).to("xla:1")
y = torch.tensor([3.0, 4.0]).to("xla:0")
print((x + 1).tolist(), (y + 1).tolist(), x.to("xla:0").tolist(), (x + 1).device)
print([torch.xla.memory_allocated(i) > 0 for i in range(2)])
""") == ["2 FAKE:0 FAKE:1", "[1.0, 2.0] [3.0, 4.0] [1.0, 2.0] xla:1", "[True, True]"]


def test_transfers_fail(run_fake):
    lines = run_fake("""
x = torch.tensor([1.0, 2.0]).to("xla")
fail("upload", RESOURCE_EXHAUSTED)
print(error_of(lambda: torch.ones(3).to("xla")))
fail("download", INTERNAL)
print(error_of(lambda: x.cpu()))
print(x.tolist(), torch.ones(3).to("xla").tolist())
""")
    assert lines[0].startswith("OutOfMemoryError: copying a tensor to the device: RESOURCE_EXHAUSTED: ")
    assert lines[1].startswith("RuntimeError: copying a tensor from the device: INTERNAL: ")
    assert lines[2] == "[1.0, 2.0] [1.0, 1.0, 1.0]"


def test_compilation_fails(run_fake):
    lines = run_fake("""
x = torch.tensor([1.0, 2.0]).to("xla")
y = x * 3
fail("compile", INTERNAL)
print(error_of(torch_xla.sync))
print(error_of(lambda: y.cpu()))
print(x.tolist(), error_of(lambda: (x * 3).cpu()))
""")
    assert lines[0].startswith("RuntimeError: compiling a program: INTERNAL: ")
    assert lines[1] == lines[0]
    assert lines[2] == "[1.0, 2.0] no error"


@pytest.mark.parametrize("where", ["execute", "complete"])
def test_runs_fail(run_fake, where):
    lines = run_fake(f"""
x = torch.tensor([1.0, 2.0]).to("xla")
given = torch.tensor([5.0, 6.0]).to("xla")
kept = x * 2
torch_xla.sync(wait=True)
given.mul_(x)
fail("{where}", RESOURCE_EXHAUSTED)
print(error_of(lambda: (torch_xla.sync(), torch_xla.sync(wait=True))))  # told as soon as it is known
torch_xla.sync(wait=True)
print(error_of(lambda: given.cpu()))
print(x.tolist(), kept.tolist(), error_of(lambda: (x + kept).cpu()))
""")
    assert lines[0].startswith("OutOfMemoryError: running a program: RESOURCE_EXHAUSTED: ") and where in lines[0]
    assert lines[1].startswith("in the program whose last operation is at <string>:") and lines[1].endswith(
        " in <module>"
    )
    assert lines[2:4] == lines[:2]
    assert lines[4] == "[1.0, 2.0] [1.0, 2.0] no error"


def test_forked_child_gets_an_error_and_frees_nothing(run_fake):
    lines = run_fake("""
x = torch.tensor([1.0, 2.0]).to("xla")
before = fake.fake_pjrt_live_objects()
child = os.fork()
if child == 0:
    print(error_of(lambda: torch.ones(2).to("xla")))
    del x
    print(fake.fake_pjrt_live_objects() == before, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(x.tolist())
""")
    assert "forked subprocess" in lines[0]
    assert lines[1:] == ["True", "[1.0, 2.0]"]


# ---- Options of the compiler ----
def test_options_of_the_compiler(run_fake, tmp_path):
    lines = run_fake(
        """
import torch_xla.debug.metrics as met
def run():
    (torch.arange(2.0).to("xla") + 1).cpu()
    print(met.counter_value("UncachedCompile"), met.counter_value("CachedCompile") or 0)
run()
torch_xla.set_custom_compile_options({"flag": True, "level": 3, "share": 0.5, "name": "x"})
run()
run()
torch_xla.compile(lambda: None, custom_compile_options={})
run()
print(error_of(lambda: torch_xla.set_custom_compile_options({"a": [1]})))
""",
        XLA_PERSISTENT_CACHE_PATH=str(tmp_path),
    )
    assert lines == ["1 0", "2 0", "2 1", "2 2", "TypeError: compile options are str, bool, int or float, but a is not"]
    keys = [file.read_bytes() for file in tmp_path.glob("programs/*.o")]
    assert len(keys) == 2
    for override in (b"flag\x12\x02\x10\x01", b"level\x12\x02\x18\x03", b"name\x12\x03\x0a\x01x", b"share\x12\x09\x21"):
        assert sum(override in key for key in keys) == 1


@pytest.mark.parametrize(
    "platform, flags, options, rounds",
    [
        ("cuda", "", {}, b"\x00"),
        ("cuda", "--xla_allow_excess_precision=true", {}, None),
        ("cuda", "", {"xla_allow_excess_precision": True}, b"\x01"),
        ("fake", "", {}, None),
    ],
)
def test_gpus_keep_roundings(run_fake, tmp_path, platform, flags, options, rounds):
    """The compiler is told to, unless the user tells it what to do."""
    program = f"""
torch_xla.set_custom_compile_options({options})
(torch.arange(2.0).to("xla") + 1).cpu()
"""
    run_fake(program, XLA_PERSISTENT_CACHE_PATH=str(tmp_path), FAKE_PJRT_PLATFORM=platform, XLA_FLAGS=flags)
    (key,) = [file.read_bytes() for file in tmp_path.glob("programs/*.o")]
    override = b"xla_allow_excess_precision\x12\x02\x10"
    assert override + rounds in key if rounds else override not in key
