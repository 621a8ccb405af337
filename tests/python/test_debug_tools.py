"""Analyses of compiles and runs, metrics in files, reports compared, models compared."""

import itertools
import re
import resource

import pytest
import torch

import torch_xla.debug.metrics as met
from torch_xla.debug import metrics_compare_utils, metrics_saver, model_comparator

RULE, DASHES = "=" * 80, "-" * 80

ANALYZED = """
    import torch, torch_xla
    import torch_xla.debug.profiler as xp
    import torch_xla.distributed.parallel_loader as pl

    def user():
        x = torch.randn(3, 4, device="xla") * 2
        torch_xla.sync()

    def read():
        print((torch.ones(5, device="xla") + 1).tolist())

    def trace():
        with xp.StepTrace("step"):
            x = torch.ones(6, device="xla") + 1

    def optimizer():
        w = torch.nn.Parameter(torch.ones(7).to("xla"))
        (w * w).sum().backward()
        torch.optim.SGD([w], lr=0.5).step()

    def loader():
        for batch in pl.MpDeviceLoader([torch.ones(8), torch.ones(8)], "xla"):
            y = batch * 3

    def compile():
        x = torch.ones(9, device="xla")
        torch_xla.compile(lambda: x.sin(), name="stage")()
"""


@pytest.fixture
def analyze(run_python, tmp_path):
    """Function that runs one of ANALYZED and returns the blocks: (title, lines)."""

    def run(call: str, **env) -> list[tuple[str, list[str]]]:
        file = tmp_path / "analysis.txt"
        env = {"PT_XLA_DEBUG_FILE": str(file), "XLA_PERSISTENT_CACHE_PATH": "", **env}
        run_python(ANALYZED + f"    {call}()\n    torch_xla.sync()", **env)
        text = file.read_text()
        blocks = []
        for block in text.split("\n\n"):
            lines = block.strip().split("\n")
            title = lines[0].split(": ")[0]
            assert all(line.startswith(f"{title}: ") for line in lines), block
            lines = [line.removeprefix(f"{title}: ") for line in lines]
            assert lines[0] == lines[-1] == RULE and lines[-2] == DASHES
            blocks.append((title, lines[1:-2]))
        return blocks

    return run


@pytest.mark.parametrize(
    "call, causes",
    [
        ("user", ["user torch_xla.sync"]),
        ("read", ["user code trying to access tensor value before torch_xla.sync"]),
        ("trace", ["torch_xla.sync when exiting a profiler StepTrace region"]),
        ("optimizer", ["torch_xla.sync after the optimizer's step"]),
        ("loader", ["torch_xla.sync in parallel loader at step end"] * 2),
        (
            "compile",
            ["torch_xla.compile clear the pending graph prior calling the target function", "torch_xla.compile"],
        ),
    ],
)
def test_causes(analyze, call, causes):
    blocks = analyze(call, PT_XLA_DEBUG="1")
    runs = [lines for title, lines in blocks if title == "Execution Analysis"]
    assert [lines[:2] for lines in runs] == [["Execution Cause", f"  {cause}"] for cause in causes]
    compiled = [lines for title, lines in blocks if title == "Compilation Analysis"]
    assert [lines[1] for lines in compiled] == [f"  {cause}" for cause in dict.fromkeys(causes)]
    names = [line for lines in runs for line in lines if "Graph Name" in line]
    assert names == (["  Graph Name: stage_clear_pending", "  Graph Name: stage"] if call == "compile" else [])


def test_what_an_analysis_tells(analyze):
    (_, compiled), (title, sizes), (_, executed) = analyze("user", PT_XLA_DEBUG_LEVEL="2", PT_XLA_DEBUG_MAX_FRAME="2")
    assert compiled[0] == "Compilation Cause" and compiled[2:4] == executed[2:4]
    assert re.fullmatch("  Graph Hash: [0-9a-f]{32}", compiled[3])
    # The state of the generator and the number 2 in, one tensor out.
    assert compiled[4:6] == ["  Number of Graph Inputs: 2", "  Number of Graph Outputs: 1"]
    assert compiled[6] == "Python Frame Triggered Execution: "
    assert re.fullmatch(r"  sync_devices \(.*_api\.py:\d+\)", compiled[7])
    assert re.fullmatch(r"  sync \(.*_api\.py:\d+\)", compiled[8]) and compiled[9] == "  .........."
    assert title == "Post Compilation Analysis"
    named = dict(line.split(": ") for line in sizes)
    assert list(named) == [
        "Graph input size",
        "Graph output size",
        "Aliased Input size",
        "Intermediate tensor size",
        "Compiled program size",
    ]
    assert named["Graph output size"] == "0.000000 GB" and float(named["Compiled program size"].split()[0]) > 0


def test_level_1_tells_of_compiles_only(analyze):
    titles = [title for title, _ in analyze("loader", PT_XLA_DEBUG_LEVEL="1")]
    assert titles == ["Compilation Analysis", "Post Compilation Analysis"]


def test_analyses_of_nothing(run_python, tmp_path):
    quiet = run_python(ANALYZED + "    user()", PT_XLA_DEBUG="0")
    assert "Analysis" not in quiet
    assert "Execution Analysis: Execution Cause" in run_python(ANALYZED + "    user()", PT_XLA_DEBUG="1")
    assert "Analysis" not in run_python(ANALYZED + "    user()", PT_XLA_DEBUG="1", XLA_LAZY="0")
    assert "Analysis" not in run_python(ANALYZED + "    user()", PT_XLA_DEBUG="1", LOCAL_RANK="1")
    out = run_python(ANALYZED + "    user()", returncode=1, PT_XLA_DEBUG_LEVEL="much")
    assert "ValueError: the environment variable PT_XLA_DEBUG_LEVEL=much is not understood" in out
    path = str(tmp_path / "none/analysis.txt")
    out = run_python(ANALYZED + "    user()", returncode=1, PT_XLA_DEBUG="1", PT_XLA_DEBUG_FILE=path)
    assert "ValueError: the file that PT_XLA_DEBUG_FILE names" in out and "No such file" in out


# ---- Metrics ----
def test_metrics_are_saved_by_each_sync(run_python, tmp_path):
    file = tmp_path / "metrics.txt"
    source = """
        import torch, torch_xla
        for _ in range(2):
            x = torch.ones(3, device="xla") + 1
            torch_xla.sync()
    """
    run_python(source, XLA_METRICS_FILE=str(file))
    steps = file.read_text().split("[MetricsData; step=")[1:]
    assert [step.split("]")[0] for step in steps] == ["0", "1"]
    values = [metrics_compare_utils.parse_metrics_report(step)["MarkStep__Value"] for step in steps]
    assert values == [1, 2]
    assert "[MetricsData; step=1]" in run_python(source, XLA_METRICS_FILE="STDERR")


def test_metrics_are_saved_where_one_says(device, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("XLA_METRICS_FILE", raising=False)
    (torch.ones(2, device=device) + 1).cpu()
    metrics_saver.save_metrics()  # nowhere
    for _ in range(2):
        metrics_saver.save_metrics(str(tmp_path / "a"))
    assert (tmp_path / "a").read_text().count("[MetricsData; step=") == 2
    metrics_saver.save_metrics("STDOUT")
    assert "Metric: ExecuteTime" in capsys.readouterr().out


def test_metrics_that_are_cut_do_not_spoil_others(device, tmp_path):
    file = tmp_path / "metrics.txt"
    before = "x" * 100_000 + "\nMetric: Execu"  # by a process that was killed
    file.write_text(before)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            metrics_saver.save_metrics(str(file))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_text() == before
    metrics_saver.save_metrics(str(file))
    first, second = file.read_text().split("\n[MetricsData; step=")
    assert first == before and metrics_compare_utils.parse_metrics_report(second)


REPORT = """Metric: CompileTime
  TotalSamples: 3
  Accumulator: 01m01s148ms534.011us
  ValueRate: 01s133ms105.632us / second
  Rate: 2.96228 / second
  Percentiles: 1%=304ms793.707us; 50%=415ms538.117us; 99%=429ms202.187us
Metric: InboundData
  TotalSamples: 2
  Accumulator: 1.50KB
  Percentiles: 1%=512.00B; 50%=512.00B; 99%=1.00KB
Metric: TensorsGraphSize
  TotalSamples: 1
  Accumulator: 39.00
  Percentiles: 1%=39.00; 50%=39.00; 99%=39.00
Counter: aten::nonzero
  Value: 4
"""


def test_reports_are_parsed():
    values = metrics_compare_utils.parse_metrics_report(REPORT)
    assert values["CompileTime__Accumulator_sec"] == pytest.approx(61.148534011)
    assert values["CompileTime__Percentile_50_sec"] == pytest.approx(0.415538117)
    assert values["InboundData__Accumulator_mb"] == pytest.approx(0.0015)
    assert values["InboundData__Percentile_1_mb"] == pytest.approx(0.000512)
    assert values["TensorsGraphSize__TotalSamples"] == 1 and values["TensorsGraphSize__Accumulator"] == 39
    assert values["aten::nonzero__Value"] == 4
    both = metrics_compare_utils.parse_metrics_report(REPORT, dehumanize=False)
    assert both["TensorsGraphSize__Accumulator"] == (39.0, "39.00")
    with pytest.raises(ValueError, match="'3parsecs' is no number"):
        metrics_compare_utils.parse_metrics_report(REPORT.replace("39.00\n", "3parsecs\n", 1))


def test_reports_of_the_device_are_parsed(device):
    met.clear_all()
    (torch.ones(5).to(device) + 1).cpu()
    values = metrics_compare_utils.parse_metrics_report(met.metrics_report())
    for name in met.metric_names():
        samples, total, _ = met.metric_data(name)
        assert values[f"{name}__TotalSamples"] == samples
        (accumulator,) = (value for key, value in values.items() if key.startswith(f"{name}__Accumulator"))
        unit = 1e9 if f"{name}__Accumulator_sec" in values else 1.0
        if f"{name}__Accumulator_mb" not in values:
            assert accumulator == pytest.approx(total / unit, rel=0.01, abs=1e-6)
    assert {f"{name}__Value" for name in met.counter_names()} <= values.keys()


def test_reports_are_compared():
    slow = REPORT.replace("01m01s", "02m01s")
    points = metrics_compare_utils.get_data_points_from_metrics_reports(
        [REPORT, REPORT, "Counter: MarkStep\n  Value: 1\n"]
    )
    assert points["CompileTime__TotalSamples"] == [3, 3, None] and points["MarkStep__Value"] == [None, None, 1]
    assert metrics_compare_utils.compare_metrics(points, REPORT) == ""
    (line,) = metrics_compare_utils.compare_metrics(points, slow).splitlines()
    assert line.startswith("CompileTime__Accumulator_sec failed its expression check. Expression: v <= v_mean + ")
    loose = {"base_expression": "True", "aten::nonzero__Value_expression": "v < v_mean"}
    (line,) = metrics_compare_utils.compare_metrics(points, slow, loose).splitlines()
    assert line.startswith("aten::nonzero__Value failed its expression check. Expression: v < v_mean.")
    new = metrics_compare_utils.compare_metrics(points, REPORT + "Counter: aten::unique\n  Value: 2\n")
    assert new == "Found new aten counter: aten::unique__Value: 2\n"


# ---- Models ----
@pytest.fixture
def saved(tmp_path):
    """Function that saves tensors by a body into a folder of its own, and returns its path."""
    numbers = itertools.count()

    def save(body) -> str:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        model_comparator.configure(str(folder))
        try:
            body()
        finally:
            model_comparator.configure(None)
        return str(folder)

    return save


def test_models_are_compared(device, saved):
    def run(place, change=0.0):
        def body():
            for step in range(2):
                x = torch.arange(6.0).reshape(2, 3).to(place)
                x[1, 2] += change * step
                assert model_comparator.save("x", x, step=step) is x
                model_comparator.save("x", x + 1, step=step)
            model_comparator.save(None, x.bool())

        return saved(body)

    cpu, xla, other = run("cpu"), run(device), run(device, change=0.5)
    assert model_comparator.compare(cpu, xla) == ""
    report = model_comparator.compare(cpu, other)
    assert 'Changes in saved tensor "x" with id=0 at step=1\n  [1, 2]: 5.0 vs. 5.5\terror=0.5\n' in report
    assert report.count("Changes in saved tensor") == 2
    assert model_comparator.compare(cpu, other, atol=1.0) == ""
    lonely = saved(lambda: model_comparator.save("y", torch.ones(1)))
    report = model_comparator.compare(cpu, lonely)
    assert f"Mismatch: y.0 not in {cpu}" in report and "Mismatch: test_debug_tools.py.l" in report


def test_where_tensors_are_saved(saved, tmp_path, monkeypatch):
    x = torch.ones(2)
    monkeypatch.delenv("MODELCMP_SAVEDIR", raising=False)
    assert model_comparator.save("x", x) is x
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("MODELCMP_SAVEDIR", str(tmp_path))
    model_comparator.configure(None)
    model_comparator.save("x", x)
    assert torch.equal(torch.load(tmp_path / "x.0"), x)


def test_tensors_are_compared():
    x = torch.tensor([1.0, torch.nan, torch.inf, 2.0])
    assert model_comparator.compare_tensors(x, x.clone()) == ""
    y = torch.tensor([torch.nan, 1.0, 3.0, 2.25])
    report = model_comparator.compare_tensors(x, y, max_diffs=3).splitlines()
    assert len(report) == 4 and report[-1] == "... aborting after 3 differences"
    assert model_comparator.compare_tensors(x, y).splitlines()[-1] == "[3]: 2.0 vs. 2.25\terror=0.25"
    shapes = model_comparator.compare_tensors(x, x[:2])
    assert shapes == "Tensors have different shape: [4] vs. [2]\n"


def test_files_are_compared(saved):
    paths = [f"{saved(lambda value=value: model_comparator.save('x', torch.tensor(value)))}/x.0" for value in (1, 1, 3)]
    assert model_comparator.tensor_file_compare(paths[0], paths[1]) == ""
    report = model_comparator.tensor_file_compare(paths[0], paths[2])
    assert report == 'Changes in saved tensor "x" with id=0\n  []: 1 vs. 3\terror=2.0\n'


def test_the_command_line_compares(saved, monkeypatch, capsys):
    folders = [saved(lambda value=value: model_comparator.save("x", torch.tensor(value))) for value in (1.0, 1.0, 2.0)]
    monkeypatch.setattr("sys.argv", ["model_comparator", folders[0], folders[1]])
    assert model_comparator.main() == 0 and capsys.readouterr().err == ""
    monkeypatch.setattr("sys.argv", ["model_comparator", folders[0], folders[2]])
    assert model_comparator.main() == 1 and "[]: 1.0 vs. 2.0" in capsys.readouterr().err
