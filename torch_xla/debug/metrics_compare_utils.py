"""Metrics reports as numbers, and differences between a report and earlier ones."""

import re
import statistics
from collections.abc import Mapping, Sequence

_METRIC = re.compile(
    r"^Metric: (\S+)\n\s+TotalSamples: (\d+)\n\s+Accumulator: (\S+)"
    r"(?:\n\s+(?:ValueRate|Rate): .*)*\n\s+Percentiles: (.*)$",
    re.MULTILINE,
)
_COUNTER = re.compile(r"^Counter: (\S+)\n\s+Value: (\d+)$", re.MULTILINE)
_NUMBER = r"\d+(?:\.\d+)?"
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_MEGABYTES = {"PB": 1e9, "TB": 1e6, "GB": 1e3, "MB": 1.0, "KB": 1e-3, "B": 1e-6}
_DEFAULT = {"base_expression": "v <= v_mean + (v_stddev * 2.0)"}


def _find_sum(text: str, units: Mapping[str, float]) -> float | None:
    """The sum of numbers with units, as "01s148ms"; None for a text that is something else."""
    part = rf"({_NUMBER})({'|'.join(sorted(units, key=len, reverse=True))})"
    if not re.fullmatch(f"(?:{part})+", text):
        return None
    return sum(float(number) * units[unit] for number, unit in re.findall(part, text))


def _parse_value(text: str) -> tuple[float, str]:
    """(number, unit), the unit being "sec", "mb" or "". Raises ValueError for another text."""
    if re.fullmatch(_NUMBER, text):
        return float(text), ""
    for unit, units in (("sec", _SECONDS), ("mb", _MEGABYTES)):
        value = _find_sum(text, units)
        if value is not None:
            return value, unit
    raise ValueError(f"{text!r} is no number, time or size of a metrics report")


def parse_metrics_report(report: str, dehumanize: bool = True) -> dict:
    """The numbers of a report of metrics_report().

    Args:
        report: its text.
        dehumanize: False gives (number, text) for each metric.

    Returns a dict as `{"CompileTime__TotalSamples": 2.0, "CompileTime__Accumulator_sec": 50.0,
    "CompileTime__Percentile_50_sec": 25.0, "InboundData__Accumulator_mb": 0.5, "MarkStep__Value": 20}`: times in
    seconds, sizes in MB of 1000 KB. Raises ValueError for a number that is not understood.
    """
    values: dict = {}
    for name, samples, accumulator, percentiles in _METRIC.findall(report):
        texts = {"TotalSamples": samples, "Accumulator": accumulator}
        texts |= {f"Percentile_{rank}": text for rank, text in re.findall(r"(\d+)%=([^;\s]+)", percentiles)}
        for key, text in texts.items():
            number, unit = _parse_value(text)
            values[f"{name}__{key}{'_' * bool(unit)}{unit}"] = number if dehumanize else (number, text)
    values |= {f"{name}__Value": int(value) for name, value in _COUNTER.findall(report)}
    return values


def get_data_points_from_metrics_reports(metrics_reports: Sequence[str]) -> dict[str, list]:
    """For each name of parse_metrics_report() its value in each of the reports, None if a report lacks it."""
    parsed = [parse_metrics_report(report) for report in metrics_reports]
    names = sorted(set().union(*parsed))
    return {name: [values.get(name) for values in parsed] for name in names}


def compare_metrics(data_points: Mapping[str, Sequence], metrics_report: str, config: Mapping = _DEFAULT) -> str:
    """The changes of a report against earlier ones, a line each; empty without changes.

    Args:
        data_points: of get_data_points_from_metrics_reports().
        metrics_report: the report to judge.
        config: Python expressions over `v`, `v_mean` and `v_stddev` that are true for an unchanged value:
            `base_expression`, and `NAME_expression` for a single name. They are code: use only your own.

    It also lists operations that fell back to the CPU for the first time.
    """
    lines = []
    for name, v in sorted(parse_metrics_report(metrics_report).items()):
        before = [value for value in data_points.get(name, ()) if value is not None]
        if not before:
            if name.startswith("aten::"):
                lines.append(f"Found new aten counter: {name}: {v}\n")
            continue
        names = {"v": v, "v_mean": statistics.fmean(before), "v_stddev": statistics.pstdev(before)}
        expression = config.get(f"{name}_expression", config["base_expression"])
        if not eval(expression, {}, names):
            lines.append(
                f"{name} failed its expression check. Expression: {expression}. Mean: {names['v_mean']}. "
                f"Stddev: {names['v_stddev']}. Actual Value: {v}\n"
            )
    return "".join(lines)
