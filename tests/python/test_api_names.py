"""docs/api.md, and the names on it that no other test calls."""

import importlib.util
import inspect
import warnings
from pathlib import Path

import pytest
import torch

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.debug.profiler as xp
import torch_xla.runtime as xr
import torch_xla.utils.utils as xu
from torch_xla.core.dynamo_bridge import extract_compiled_graph
from torch_xla.distributed.data_parallel import Context
from torch_xla.distributed.parallel_loader import ParallelLoader, PerDeviceLoader
from torch_xla.experimental import plugins

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("list_api", ROOT / "tools" / "list_api.py")
list_api = importlib.util.module_from_spec(spec)
spec.loader.exec_module(list_api)
ALL = [(module, name) for module, (_, names) in list_api.NAMES.items() for name in names.split()]
HERE = [(module, name) for module, name in ALL if list_api.find(module, name) is not None]


# ---- The page ----
def test_the_page_is_up_to_date():
    assert (ROOT / "docs" / "api.md").read_text() == list_api.page(), "run tools/list_api.py"


def test_every_name_has_a_test():
    files = list_api.test_files()
    assert [f"{module}.{name}" for module, name in HERE if not list_api.find_test(files, module, name)] == []


def test_every_name_has_a_docstring():
    objects = {f"{module}.{name}": list_api.find(module, name) for module, name in HERE}
    for path, thing in objects.items():
        own = thing.__doc__ if isinstance(thing, type) else inspect.getdoc(thing)
        assert own and len(own) > 4, f"{path} has no docstring"


def test_remarks_are_of_names_that_are_listed():
    assert list_api.STATES.keys() <= {f"{module}.{name}" for module, name in ALL}


# ---- The run and its hardware ----
def test_counts_of_one_process():
    assert xr.process_count() == xr.local_process_count() == 1
    assert xr.process_index() == xr.host_index() == 0
    counts = [xr.addressable_device_count(), xr.addressable_runtime_device_count(), xr.local_device_count()]
    assert {*counts, xr.global_device_count()} == {torch_xla.device_count()}
    assert xr.get_master_ip() == "127.0.0.1"


def test_counts_of_several_devices(run_python):
    out = run_python(
        """
        import torch_xla, torch_xla.runtime as xr
        print(xr.addressable_device_count(), xr.local_device_count(), xr.global_device_count(), xr.process_count())
        print([each["kind"] for each in xr.global_runtime_device_attributes()])
        """,
        PJRT_DEVICE="CPU",
        CPU_NUM_DEVICES="3",
    )
    assert out == "3 3 3 1\n['cpu', 'cpu', 'cpu']\n"


def test_bfloat16_is_computed(device):
    assert xr.is_bf16_supported()
    x = torch.full((2, 2), 1.5, dtype=torch.bfloat16, device=device)
    assert (x @ x).dtype == torch.bfloat16 and (x @ x).tolist() == [[4.5, 4.5], [4.5, 4.5]]


def test_compiled_programs_are_counted(device):
    before = xr.get_num_cached_compilation_graph()
    (torch.ones(23, 29, device=device) + 1).cpu()
    torch_xla.sync()
    assert xr.get_num_cached_compilation_graph() > before


def test_compiled_code_is_kept_in_a_folder(run_python, tmp_path):
    run_python(
        f"""
        import torch, torch_xla.runtime as xr
        xr.initialize_cache({str(tmp_path / "code")!r}, readonly=False)
        (torch.ones(3, device="xla").sin() + 1).cpu()
        """
    )
    assert [file for file in (tmp_path / "code").rglob("*") if file.is_file()]


def test_devices_of_a_kind(device):
    assert xr.xla_device() == xr.xla_device(0) == xr.xla_device(devkind=xr.device_type()) == device
    with pytest.raises(RuntimeError, match="there is no device of kind 'TPU'"):
        xr.xla_device(devkind="TPU")
    assert xm.xla_device_kind() == xm.xla_device_kind(device) == xr.device_type().lower()
    assert xm.xla_replication_devices([device, "xla:0"]) == torch_xla.real_devices()[:1] * 2


# ---- One replica alone ----
def test_gradients_of_one_replica(device):
    p = torch.nn.Parameter(torch.ones(2, device=device))
    optimizer = torch.optim.SGD([p], lr=1.0)
    (p * 3).sum().backward()
    xm.reduce_gradients(optimizer)
    assert p.grad.tolist() == [3, 3]
    xm.all_reduce_bucketized_gradients([p.grad], bucket_cap_mb=1)
    assert p.grad.tolist() == [3, 3]


def test_shared_memory_is_warned_of(device):
    x = torch.ones(4, device=device)
    with pytest.warns(UserWarning, match=r"two tensors of shapes \[4\] and \[3\] share memory"):
        xm.check_view_sharing([x, {"part": x[1:]}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xm.check_view_sharing([x, x, x.clone()])


def test_a_context_keeps_attributes(device):
    context = Context(device)
    assert context.device == device and context.getattr_or("steps", list) == []
    context.steps.append(1)
    assert context.getattr_or("steps", list) == [1] and context.getattr_or("rate", 0.5) == context.rate == 0.5


def test_loaders_of_a_device(device):
    loader = ParallelLoader([torch.ones(2), torch.zeros(2)], [device]).per_device_loader(device)
    assert isinstance(loader, PerDeviceLoader) and len(loader) == 2
    assert [batch.tolist() for batch in loader] == [[1, 1], [0, 0]]


# ---- torch.compile, the profiler, metrics, plugins ----
def test_a_graph_is_extracted(device):
    graph = torch.fx.symbolic_trace(lambda x: x.sin() + 1)
    run = extract_compiled_graph(graph, [torch.ones(2, device=device)])
    x = torch.tensor([0.5, 2.0])
    torch.testing.assert_close(run(x.to(device)).cpu(), x.sin() + 1)


def test_functions_are_traced(device):
    @xp.trace_me(scope="tangent")
    def f():
        return torch.ones(2, device=device).tan()

    with torch.profiler.profile() as profile:
        f()
    assert "tangent" in {event.name for event in profile.events()}


def test_parts_of_the_metrics(device):
    met.clear_all()
    torch.nonzero(torch.ones(3, device=device) + 1)
    torch_xla.sync()
    report = met.short_metrics_report()
    assert "Counter: MarkStep\n" in report and "Counter: aten::nonzero\n" in report and "TensorsGraphSize" not in report
    chosen = met.short_metrics_report(["UncachedCompile"], ["TensorsGraphSize"])
    assert "MarkStep" not in chosen and "Metric: TensorsGraphSize" in chosen and "aten::nonzero" in chosen
    met.clear_counters()
    assert met.counter_names() == [] and "ExecuteTime" in met.metric_names()
    met.clear_metrics()
    assert met.metric_names() == []


def test_plugins_are_always_found_by_name():
    plugins.use_dynamic_plugins()
    assert plugins.using_dynamic_plugins()


# ---- Utilities ----
def test_data_that_is_made(device):
    generator = xu.FnDataGenerator(lambda x: x * 2, 3, torch.ones, dims=[2], count=2)
    batches = list(generator)
    assert len(generator) == len(batches) == 2 and len(list(generator)) == 2
    assert all(x.shape == (3, 2) and torch.equal(y, x * 2) for x, y in batches)


def test_values_that_are_made_at_first_use():
    made = []
    lazy = xu.LazyProperty(lambda: made.append(1) or 7)
    assert made == [] and lazy.value == lazy.value == 7 and made == [1]


def test_a_temporary_folder_goes_with_its_object():
    folder = xu.TmpFolder()
    path = Path(folder.name)
    (path / "file").write_text("text")
    assert path.is_dir() and xu.TmpFolder().name != folder.name
    del folder
    assert not path.exists()


def test_what_takes_time_is_told(capsys):
    lines = []
    with xu.TimedScope("body: ", lines.append):
        pass
    assert xu.timed(lambda: 5, "call: ", lines.append) == 5 and xu.timed(lambda: 6, printfn=None) == 6
    assert [line.split(": ")[0] for line in lines] == ["body", "call"]
    assert all(line.endswith("s") and float(line.split(": ")[1][:-1]) >= 0 for line in lines)
    with pytest.raises(KeyError), xu.TimedScope("fails", lines.append):
        raise KeyError
    assert len(lines) == 2
    xu.eprint("to", "stderr")
    assert capsys.readouterr().err == "to stderr\n"


def test_lists_and_instances():
    assert xu.as_list(3) == [3] and xu.as_list((1, 2)) == [1, 2] and xu.as_list([4]) == [4]
    seen = []
    xu.for_each_instance({"a": [1, "x", (2,)], "b": {3}}, lambda value: isinstance(value, int), seen.append)
    assert sorted(seen) == [1, 2, 3]


def test_nested_lists():
    assert xu.flatten_nested_tuple((1, [2, (3,)], [])) == (1, 2, 3) and xu.flatten_nested_tuple(4) == (4,)
    items = [1, 2]
    assert xu.list_copy_append(items, 3) == [1, 2, 3] and items == [1, 2]
    assert xu.shape([[1, 2, 3], (4, 5, 6)]) == [2, 3] and xu.shape(7) == [] and xu.shape([]) == [0]
    with pytest.raises(ValueError, match=r"parts of a list should have one shape, but have \[\[1\], \[2\]\]"):
        xu.shape([[1], [2, 3]])


def test_prints_for_debugging(monkeypatch, capsys):
    assert xu.get_print_fn(True) is xu.eprint and xu.get_print_fn(False) is xu.null_print
    monkeypatch.setenv("DEBUG", "1")
    assert xu.get_print_fn() is xu.eprint
    monkeypatch.delenv("DEBUG")
    assert xu.get_print_fn() is xu.null_print
    xu.null_print("nothing", 1)
    assert capsys.readouterr() == ("", "")


def test_a_cleaner_goes_with_its_object():
    cleaned = []
    cleaner = xu.Cleaner(lambda: cleaned.append(1))
    assert cleaned == []
    del cleaner
    assert cleaned == [1]


def test_work_by_threads():
    assert xu.parallel_work(2, lambda a, b: a * b, [1, 2, 3], [4, 5, 6]) == [4, 10, 18]
    with pytest.raises(ZeroDivisionError):
        xu.parallel_work(2, lambda a: 1 // a, [1, 0])


def test_ports_that_are_free():
    import socket

    ports = xu.get_free_tcp_ports(3)
    assert len(set(ports)) == 3
    with socket.socket() as server:
        server.bind(("", ports[0]))
