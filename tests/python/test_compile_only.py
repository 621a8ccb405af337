"""Devices that are compiled for and not there: what is recorded, what may not be read, what the compiler says."""

import importlib.util
import re
from pathlib import Path

import pytest

from torch_xla.experimental import _compile_targets

ROOT = Path(__file__).resolve().parents[2]
PRELUDE = """
import os, torch, torch_xla
import torch.nn.functional as F
from torch_xla.debug import program_reports
from torch_xla.experimental import compile_only
def error_of(body):
    try:
        body()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
"""


@pytest.fixture
def run_fake(run_python):
    """Function that runs a program on two devices of the fake plugin that are not there."""
    plugin = ROOT / "build/release/tests/cpp/libfake_pjrt_plugin.so"
    if not plugin.is_file():
        pytest.skip("the fake PJRT plugin is not built: run cmake --build --preset release-tests")

    def run(source: str, **env) -> list[str]:
        settings = {
            "PJRT_DEVICE": "LIBRARY",
            "PJRT_LIBRARY_PATH": str(plugin),
            "XLA_COMPILE_ONLY": "2",
            "XLA_PERSISTENT_CACHE_PATH": "",
        }
        return run_python(PRELUDE + source, **{**settings, **env}).splitlines()

    return run


# ---- What is recorded, and what may not be read ----
def test_results_have_shapes_and_types_and_a_report(run_fake):
    shapes, report, text, costs = run_fake("""
x = torch.randn(3, 4).to("xla")
y = (x @ x.T).tanh().to(torch.float64)
torch_xla.sync()
print(tuple(y.shape), y.dtype, y.device, torch_xla.runtime.global_runtime_device_count())
(report,) = program_reports()
print(report.device, report.error == "", report.argument_bytes, report.output_bytes, report.aliased_bytes,
      report.scratch_bytes, report.needed_bytes, report.fits, report.line)
print("stablehlo.tanh" in report.text(), report.seconds > 0, report.target)
print(report.flops, report.bytes_accessed, report.cycles, report.run_seconds)
""")
    assert shapes == "(3, 3) torch.float64 xla:0 2"
    assert report.startswith("0 True 300 72 4 50 418 None <string>:")
    assert text == "True True 2"
    assert costs == "4000000000.0 2000000.0 None None"


def test_a_read_is_an_error_with_the_users_line(run_fake):
    lines = run_fake("""
x = torch.ones(2, 3).to("xla") + 1
def read():
    return x.sum().item()
for body in (read, x.cpu, x.tolist, lambda: bool(x.sum() > 0)):
    print(error_of(body).replace("\\n", " | "))
print(error_of(x.nonzero).replace("\\n", " | "))
print(len(program_reports()))
torch_xla.sync()
print(len(program_reports()), x)
""")
    for line in lines[:4]:
        assert line.startswith("RuntimeError: programs are only compiled for 2 and never run (XLA_COMPILE_ONLY)")
    assert re.search(r"\| at <string>:\d+ in read$", lines[0])
    assert "aten::nonzero would run on the CPU, which needs values" in lines[4]
    assert lines[5] == "0"  # a read compiles nothing
    assert lines[6] == "1 tensor(..., device='xla:0', size=(2, 3), dtype=torch.float32)"


def test_a_training_step_reads_nothing(run_fake):
    out = run_fake("""
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to("xla")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    optimizer.zero_grad()
    F.cross_entropy(model(torch.randn(5, 4).to("xla")), torch.zeros(5, dtype=torch.long).to("xla")).backward()
    optimizer.step()
torch_xla.sync()
reports = program_reports()
print(len(reports), all(not report.error for report in reports))
print(str(torch_xla.debug.explain()).count("work: 4 GFLOP, 1.91 MiB read and written"))
torch_xla.debug.forget()
print(len(program_reports()))
""")
    assert int(out[0].split()[0]) in (1, 2, 3) and out[0].endswith("True")
    assert int(out[1]) == int(out[0].split()[0])
    assert out[2] == "0"


# ---- Memory without memory ----
def test_weights_need_no_memory(run_fake):
    shape, used, text, rss = run_fake("""
import resource
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
w = torch.nn.Parameter(torch.empty(200_000, 300_000, device="xla"))
y = torch.randn(2, 200_000).to("xla") @ w
torch_xla.sync()
print(tuple(y.shape))
print(torch_xla.core.xla_model.get_memory_info("xla:0")["bytes_used"] >= w.nbytes)
print("tensor<200000x300000xf32>" in program_reports()[-1].text().split("->")[0])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000)
""")
    assert (shape, used, text, rss) == ("(2, 300000)", "True", "True", "True")


@pytest.mark.parametrize("move", ["to_empty(device='xla')", "to('xla')"])
def test_modules_on_meta_move_to_the_device(run_fake, move):
    (out,) = run_fake(f"""
with torch.device("meta"):
    model = torch.nn.Sequential(torch.nn.Linear(100_000, 50_000), torch.nn.LayerNorm(50_000))
model = model.{move}
y = model(torch.empty(2, 100_000, device="xla"))
torch_xla.sync()
print(tuple(y.shape), {{p.device.type for p in model.parameters()}}, len(program_reports()))
""")
    assert out == "(2, 50000) {'xla'} 1"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_updates_take_the_memory_of_what_they_replace(run_fake, dtype):
    first, second = run_fake(f"""
weight = torch.nn.Linear(8, 16, bias=False, dtype=torch.{dtype}, device="meta").to_empty(device="xla")
optimizer = torch.optim.AdamW(weight.parameters(), lr=1e-3)
for _ in range(2):
    optimizer.zero_grad()
    weight(torch.empty(4, 8, dtype=torch.{dtype}, device="xla")).sum().backward()
    optimizer.step()
    print(program_reports()[-1].text().count("tf.aliasing_output"))
""")
    assert (first, second) == ("1", "3")  # the weight; the weight and its two moments


# ---- Meshes ----
MESH = """
import torch_xla.distributed.spmd as xs
import torch_xla.core.xla_model as xm
torch_xla.runtime.use_spmd()
mesh = xs.Mesh(range(4), (2, 2), ("data", "model"))
with torch.device("meta"):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
model.to_empty(device="xla")
xs.mark_sharding(model[0].weight, mesh, ("model", "data"))
xs.mark_sharding(model[2].weight, mesh, (None, "model"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
def step():
    optimizer.zero_grad()
    x = xs.mark_sharding(torch.empty(12, 8, device="xla"), mesh, ("data", None))
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    torch_xla.sync()
    return loss
"""


def test_a_mesh_of_devices(run_fake):
    first, placed, text, shardings, refused = run_fake(
        MESH
        + """
placed = [xm.get_memory_info(f"xla:{device}")["bytes_used"] for device in range(4)]
loss = step()
report = program_reports()[0]
print(report.num_devices, "on 4 devices, compiled" in str(report), report.collectives)
print(placed)
main = next(line for line in report.text().splitlines() if "@main" in line)
weights = main.count("tensor<16x8xf32> {sdy.sharding")
print("mhlo.num_partitions = 4" in report.text(), weights, main.count("sdy.sharding"))
print(xs.sharding_spec(model[0].weight), loss.shape, xs.sharding_spec(model[0].bias))
print(error_of(lambda: torch.ones(2).to("xla:1")))
""",
        XLA_COMPILE_ONLY="4",
    )
    assert first == "4 True None"
    assert placed == str([4 * (16 * 8 // 4 + 16 * 4 // 2)] * 4)  # what is not marked has no place yet
    assert text == "True 4 29"  # the weight, its gradient's moments, all arguments and results
    assert shardings == "{devices=[2,2]0,2,1,3} torch.Size([]) {replicated}"
    assert refused.startswith("RuntimeError: xla:1 is one of the devices over which programs of xla:0 run")


@pytest.mark.skipif("not os.environ.get('PJRT_LIBRARY_PATH')", reason="XLA's partitioner is a plugin's")
def test_collectives_between_the_devices(run_python):
    """By a plugin that compiles without running: XLA's CPU client."""
    register = """
import os
from torch_xla.experimental import plugins
from torch_xla.experimental._compile_targets import CompileTarget
class Host(plugins.DevicePlugin):
    def library_path(self):
        return os.environ["PJRT_LIBRARY_PATH"]
    def compile_target(self, name):
        return CompileTarget(options={"cpu_device_count": 4}, by_client=True)
plugins.register_plugin("HOST", Host())
"""
    source = """
for _ in range(3):
    loss = step()
report = program_reports()[-1]
print([(each.kind, each.count > 0, each.bytes > 0) for each in report.collectives if each.kind == "all-reduce"])
print("  between devices: " in str(report), report.num_devices, xs.sharding_spec(model[2].weight))
print({xs.sharding_spec(optimizer.state[model[0].weight][name]) for name in ("exp_avg", "exp_avg_sq")})
print(report.argument_bytes < 3 * sum(p.nbytes for p in model.parameters()))
q, k, v = (torch.empty(4, 6, 8, 2, device="xla", requires_grad=True) for _ in range(3))
for t in (q, k, v):
    xs.mark_sharding(t, mesh, ("data", "model", None, None))
torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).square().sum().backward()
torch_xla.sync()
print({each.kind for each in program_reports()[-1].collectives})
x = xs.mark_sharding(torch.empty(4, 6, 8, device="xla"), mesh, ("data", "model", None)).global_tensor
linear = torch.nn.Linear(8, 16).to("xla")
linear(x).square().sum().backward()
torch_xla.sync()
print({each.kind for each in program_reports()[-1].collectives})
"""
    environment = {"PJRT_DEVICE": "HOST", "XLA_COMPILE_ONLY": "four", "XLA_PERSISTENT_CACHE_PATH": ""}
    lines = run_python(PRELUDE + register + MESH + source, **environment).splitlines()
    collectives, said, states, less, of_attention, of_linear = lines
    assert collectives == "[('all-reduce', True, True)]"
    assert said == "True 4 {devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}"
    assert states == "{'{devices=[2,2]0,2,1,3}'}" and less == "True"
    assert of_attention == "set()"  # each device has its own batches and heads
    assert of_linear == "{'all-reduce'}"  # of the gradients: each has its own batches and places


# ---- The compiler's errors ----
def test_a_crash_of_the_compiler_is_an_error(run_fake, tmp_path):
    error, after, sizes = run_fake(
        """
x = torch.randn(3).to("xla")
def crash():
    y = x.tanh()
    torch_xla.sync()
print(error_of(crash).replace("\\n", " | "))
y = x + 1
torch_xla.sync()
print(y.shape)
print([bool(report.error) for report in program_reports()])
""",
        FAKE_PJRT_CRASH="stablehlo.tanh",
        TMPDIR=str(tmp_path),
    )
    assert error.startswith("RuntimeError: the compiler of the PJRT plugin ")
    assert "libfake_pjrt_plugin.so ended by signal 11 (SIGSEGV, Segmentation fault)" in error
    assert re.search(r"whose last operation is at <string>:\d+ in crash", error)
    (folder,) = tmp_path.glob("torch_xla_crash_*")
    assert str(folder / "program.mlir") in error
    assert "stablehlo.tanh" in (folder / "program.mlir").read_text()
    assert (folder / "messages.txt").read_text() == "the fake compiler crashes now\n"
    assert after == "torch.Size([3])"
    assert sizes == "[True, False]"


def test_a_program_that_does_not_fit_is_refused_with_the_users_line(run_fake):
    error, report, text = run_fake(
        """
x = torch.randn(3).to("xla")
def grow():
    y = x.tanh()
    torch_xla.sync()
print(error_of(grow).replace("\\n", " | "))
(report,) = program_reports()
print(report.fits, report.error)
print("refused" in str(torch_xla.debug.explain()))
""",
        FAKE_PJRT_REFUSE="stablehlo.tanh",
    )
    assert error.startswith("OutOfMemoryError: compiling a program: RESOURCE_EXHAUSTED: the program exceeds the memory")
    assert re.search(r"in a program for 2 whose last operation is at <string>:\d+ in grow", error)
    assert report == "False compiling a program: RESOURCE_EXHAUSTED: the program exceeds the memory"
    assert text == "True"


def test_an_unknown_target(run_fake):
    (error,) = run_fake("print(error_of(lambda: torch.ones(2).to('xla')))", XLA_COMPILE_ONLY="many")
    wanted = "RuntimeError: PJRT_DEVICE=LIBRARY, XLA_COMPILE_ONLY=many: making the topology: INVALID_ARGUMENT"
    assert error.startswith(wanted) and error.endswith("no topology is named many")
    (error,) = run_fake("print(error_of(lambda: torch.ones(2).to('xla')))", PJRT_DEVICE="CPU")
    assert error.startswith("ValueError: XLA_COMPILE_ONLY=2 needs the plugin that compiles for it in PJRT_DEVICE")


def test_options_of_a_library_are_the_topologys(run_fake):
    program = "print(torch_xla.runtime.runtime_device_attributes('xla:0')['platform_version'])"
    (text,) = run_fake(program, PJRT_LIBRARY_OPTIONS="chips=4,name=small")
    assert text == "chips=4 name='small'"


def test_a_step_of_many_layers_is_one_program(run_fake):
    (counts,) = run_fake("""
x = torch.ones(2).to("xla")
torch_xla.sync()
before = len(program_reports())
for _ in range(3000):
    x = (x * x).relu()
torch_xla.sync()
print([report.operations >= 6000 for report in program_reports()[before:]])
""")
    assert counts == "[True]"


def test_a_plugin_that_cannot_be_loaded(run_fake):
    (error,) = run_fake("print(error_of(lambda: torch.ones(2).to('xla')))", PJRT_LIBRARY_PATH="/no/such/plugin.so")
    assert "the PJRT plugin /no/such/plugin.so cannot be loaded" in error


# ---- The context ----
def test_the_context_begins_before_the_first_use(run_fake):
    source = """
with compile_only("3", "LIBRARY") as chips:
    y = torch.ones(4, device="xla") * 2
(report,) = chips.reports()
print(report.target, tuple(y.shape), torch_xla.runtime.global_runtime_device_count())
with compile_only("3", "LIBRARY"):
    pass
print(error_of(compile_only("4", "LIBRARY").__enter__))
"""
    report, error = run_fake(source, XLA_COMPILE_ONLY="", PJRT_DEVICE="")
    assert report == "3 (4,) 3"
    assert error == "RuntimeError: the device runs as 3 already: begin compile_only('4') before its first use"
    late = "x = torch.ones(2).to('xla')\nprint(error_of(compile_only('h100').__enter__))"
    (error,) = run_fake(late, XLA_COMPILE_ONLY="", PJRT_DEVICE="CPU")
    assert error == "RuntimeError: the device runs as CPU already: begin compile_only('h100') before its first use"


def test_targets_name_their_plugins():
    names = ["v5e:2x2", "v6e", "h100", "a/b.ttsys", "b.txtpb"]
    assert [_compile_targets.device_of(name) for name in names] == ["TPU", "TPU", "CUDA", "TT", "CUDA"]
    assert _compile_targets.tpu_target("v5e").topology == "v5e:1x1"
    assert _compile_targets.tpu_target("v5p").topology == "v5p:2x2x1"
    with pytest.raises(ValueError, match="'v99' is no known target: expected a TPU"):
        _compile_targets.device_of("v99")
    with pytest.raises(ValueError, match="XLA_COMPILE_ONLY=k80 is no known GPU"):
        _compile_targets.gpu_target("k80")
    with pytest.raises(ValueError, match="is no file"):
        _compile_targets.tenstorrent_target("/no/such/file.ttsys")


# ---- From the disk ----
def test_programs_of_an_earlier_process_have_their_reports(run_fake, tmp_path):
    source = """
y = torch.ones(4, device="xla").exp()
torch_xla.sync()
(report,) = program_reports()
print(report.seconds > 0, report.needed_bytes, report.flops, len(report.text()))
"""
    first = run_fake(source, XLA_PERSISTENT_CACHE_PATH=str(tmp_path))
    second = run_fake(source, XLA_PERSISTENT_CACHE_PATH=str(tmp_path))
    assert first[0].startswith("True ") and second[0] == first[0].replace("True", "False")


# ---- The compilers of wheels ----
LLAMA = """
class Block(torch.nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.norm = torch.nn.RMSNorm(d)
        self.qkv, self.out = torch.nn.Linear(d, 3 * d, bias=False), torch.nn.Linear(d, d, bias=False)
        self.h = h
    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, self.h, -1).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
with torch.device("meta"):
    model = Block(256, 4).bfloat16()
with compile_only(TARGET) as chip:
    model.to_empty(device="xla")(torch.empty(2, 128, 256, dtype=torch.bfloat16, device="xla")).sum().backward()
report = chip.reports()[-1]
print(report.fits, report.error, report.needed_bytes > 0)
print(report.cycles, report.run_seconds)
"""


def _skip_without(module: str) -> None:
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if not found:
        pytest.skip(f"no wheel with the module {module} is installed")


@pytest.mark.slow
@pytest.mark.parametrize(("target", "module"), [("v5e:1x1", "libtpu"), ("h100", "jax_plugins.xla_cuda13")])
def test_a_block_compiles_for_hardware_that_is_not_there(run_python, target, module):
    _skip_without(module)
    source = PRELUDE + LLAMA.replace("TARGET", repr(target))
    out = run_python(
        source, timeout=600, XLA_PERSISTENT_CACHE_PATH="", PJRT_DEVICE="", XLA_COMPILE_ONLY=""
    ).splitlines()
    assert out[0] == "True  True"
    if target.startswith("v"):
        cycles, seconds = out[1].split()
        assert int(cycles) > 1000 and 0 < float(seconds) < 1


@pytest.mark.slow
def test_what_exceeds_a_tpus_memory_is_refused(run_python):
    _skip_without("libtpu")
    source = """
with compile_only("v5e:1x1"):
    x = torch.empty(65536, 65536, device="xla")
    print(error_of(lambda: (x.T.contiguous() + 1, torch_xla.sync())).replace("\\n", " | "))
"""
    out = run_python(PRELUDE + source, timeout=600, XLA_PERSISTENT_CACHE_PATH="", PJRT_DEVICE="", XLA_COMPILE_ONLY="")
    assert "RESOURCE_EXHAUSTED" in out and "hbm" in out.lower() and "<string>:" in out


@pytest.mark.slow
@pytest.mark.parametrize("target", ["v5e:2x2", "v5p:2x2x1"])
def test_a_mesh_of_tpus(run_python, target):
    """The marks reach the partitioner: a chip holds its part of the weights, and the partial sums are added up."""
    _skip_without("libtpu")
    source = f"""
os.environ["XLA_COMPILE_ONLY"], os.environ["PJRT_DEVICE"] = {target!r}, "TPU"
{MESH}
step(), step()
report = program_reports()[-1]
print(report.num_devices, report.fits, "all-reduce" in {{each.kind for each in report.collectives}})
print({{xs.sharding_spec(optimizer.state[model[0].weight][name]) for name in ("exp_avg", "exp_avg_sq")}})
"""
    out = run_python(PRELUDE + source, timeout=600, XLA_PERSISTENT_CACHE_PATH="").splitlines()
    assert out == ["4 True True", "{'{devices=[2,2]0,2,1,3}'}"]
