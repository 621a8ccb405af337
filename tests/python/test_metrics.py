"""Metrics keep the original's names and the format that its own tools parse."""

import itertools
import re
import time

import pytest
import torch

import torch_xla
import torch_xla.debug.metrics as met

METRIC = re.compile(r"Metric: (\S+)\s+TotalSamples: (\d+)\s+Accumulator: (\S+)")
COUNTER = re.compile(r"Counter: (\S+)\s+Value: (\d+)")
TIME = re.compile(r"(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d{3}ms)?(\d{3}\.\d{3}us)?")
BYTES = re.compile(r"[\d.]+(PB|TB|GB|MB|KB|B)")


SIZES = itertools.count(37)


@pytest.fixture
def counted(device):
    """Counters of one step, which no test has compiled before, and of one item(); all others are zero."""
    met.clear_all()
    n = next(SIZES)
    x = torch.ones(n, n, device=device)
    y = (x @ x + 1).sum()
    torch_xla.sync(wait=True)
    assert y.item() == n * n * (n + 1)
    return met


def test_report_parses(counted):
    report = counted.metrics_report()
    metrics = {name: (int(samples), accumulator) for name, samples, accumulator in METRIC.findall(report)}
    counters = {name: int(value) for name, value in COUNTER.findall(report)}
    assert metrics["ExecuteTime"][0] >= 1
    assert TIME.fullmatch(metrics["ExecuteTime"][1])
    assert TIME.fullmatch(metrics["CompileTime"][1])
    assert counters["MarkStep"] == 1
    assert counters["UncachedCompile"] + counters.get("CachedCompile", 0) >= 1
    assert all(value > 0 for value in counters.values())
    lines = report.splitlines()
    assert all(
        re.match(r"(Metric|Counter): \S+$|  (TotalSamples|Accumulator|ValueRate|Rate|Percentiles|Value): ", line)
        for line in lines
    )


def test_transfers_are_measured(device):
    met.clear_all()
    torch.zeros(256).to(device).cpu()
    for name in ("OutboundData", "InboundData"):
        samples, total, points = met.metric_data(name)
        assert samples == 1 and total == 1024 and points[0][1] == 1024
    assert abs(points[0][0] - time.time()) < 600  # seconds since the epoch
    accumulator = dict((name, text) for name, _, text in METRIC.findall(met.metrics_report()))["OutboundData"]
    assert BYTES.fullmatch(accumulator)
    assert accumulator == "1.00KB"


def test_item_is_counted_as_the_only_fallback(counted):
    assert counted.executed_fallback_ops() == ["aten::_local_scalar_dense"]
    assert counted.counter_value("aten::_local_scalar_dense") == 1


def test_tensors_are_counted(device):
    met.clear_counters()
    x = torch.tensor(2077, device=device)
    assert met.counter_value("CreateXlaTensor") == 1 and met.counter_value("DestroyXlaTensor") is None
    del x
    assert met.counter_value("DestroyXlaTensor") == 1


def test_native_ops_are_counted(counted):
    assert counted.counter_value("xla::mm") == 1


def test_fallback_is_counted_and_right(device):
    met.clear_all()
    x = torch.tensor([0.0, 3.0, 0.0, 4.0], device=device)
    assert torch.nonzero(x).flatten().tolist() == [1, 3]
    assert "aten::nonzero" in met.executed_fallback_ops()


def test_names_and_values_agree(counted):
    assert "CompileTime" in counted.metric_names() or "ExecuteTime" in counted.metric_names()
    for name in counted.counter_names():
        assert counted.counter_value(name) > 0
    assert counted.counter_value("NoSuchCounter") is None
    assert counted.metric_data("NoSuchMetric") is None


def test_short_report(counted):
    report = counted.short_metrics_report()
    names = [name for name, _ in COUNTER.findall(report)]
    assert "aten::_local_scalar_dense" in names
    assert not [name for name in names if name.startswith("xla::")]
    only = counted.short_metrics_report(counter_names=["MarkStep"], metric_names=[])
    assert "Metric:" not in only and "MarkStep" in only


def test_clear(counted):
    counted.clear_all()
    assert counted.counter_names() == []
    assert counted.metric_names() == []
    assert counted.metrics_report() == ""


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("xla::sum", lambda x: x.sum(0)),
        ("xla::cat", lambda x: torch.cat([x, x], 1)),
        ("xla::mm", lambda x: torch.mm(x, x)),
        ("xla::topk", lambda x: x.topk(2)[1]),
        ("xla::pow", lambda x: x.pow(3)),
        (
            "xla::index_copy_",
            lambda x: x.clone().index_copy_(0, torch.zeros(1, dtype=torch.long, device=x.device), x[:1]),
        ),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_a_call_counts_once(device, name, call, grad):
    cpu = torch.arange(9.0).reshape(3, 3).requires_grad_(grad)
    x = cpu.detach().to(device).requires_grad_(grad)
    met.clear_all()
    result = call(x)
    assert met.counter_value(name) == 1
    assert torch.equal(result.cpu(), call(cpu))
