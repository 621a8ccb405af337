"""The environment report that a bug report needs: `python -m torch_xla.collect_env` prints it. It starts no device."""

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

import torch

from . import _library, _XLAC
from .version import __version__

# Whose releases matter to a report, if they are installed.
_PACKAGES = (
    *("numpy", "torchvision", "transformers", "accelerate", "lightning", "diffusers", "safetensors"),
    *("jax", "libtpu", "jax-cuda13-pjrt", "jax-tt-plugin"),
)


def _packages() -> list[str]:
    found = {entry.metadata["Name"].lower(): entry.version for entry in importlib.metadata.distributions()}
    plugins = [entry.value for entry in importlib.metadata.entry_points(group="torch_xla.plugins")]
    return [*(f"{name} {found[name]}" for name in _PACKAGES if name in found), *(f"plugin {name}" for name in plugins)]


def _processor() -> str:
    """The model, and the instruction sets that choose kernels."""
    first = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    sets = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in fields.get("flags", "").split()]
    return f"{fields.get('model name', 'unknown')}; {' '.join(sets) or 'no AVX2'}"


def _memory() -> str:
    """In GB, of the machine and free."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
    total, free = (int(lines[name].split()[0]) / 2**20 for name in ("MemTotal", "MemAvailable"))
    return f"{total:.1f} GB, {free:.1f} GB of them available"


def _cache() -> str:
    """The directory of compiled programs, and its size."""
    row = next(row for row in _XLAC._env_variables() if row["name"] == "XLA_PERSISTENT_CACHE_PATH")
    text = row["default"] if row["value"] is None else row["value"]
    folder = Path(text).expanduser()
    if not text or not folder.is_dir():
        return f"{text or 'none'}: not there"
    sizes = [entry.stat().st_size for entry in folder.rglob("*") if entry.is_file()]
    return f"{folder}: {len(sizes)} files, {sum(sizes) / 2**20:.0f} MB"


def _variables() -> list[str]:
    """Those that are set, without secrets, and those with a text that is not understood."""
    rows = [row for row in _XLAC._env_variables() if row["value"] is not None and row["name"] != "HOME"]
    return [row["problem"] or f"{row['name']}={'(set)' if 'SECRET' in row['name'] else row['value']}" for row in rows]


def report() -> str:
    """The report, a line for each fact."""
    built = ", ".join(
        f"{release} (Python {', '.join(p)})" for release, p in _library.built_for(_library.FOLDER).items()
    )
    loads = " ".join(f"{load:.1f}" for load in os.getloadavg())
    facts = {
        "torch_xla": f"{__version__}, in {Path(__file__).parent}",
        "built for torch": built,
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda}, {torch.get_num_threads()} threads",
        "Python": f"{platform.python_version()} in {sys.prefix}",
        "system": f"{platform.platform()}, {' '.join(platform.libc_ver())}",
        "processors": f"{os.cpu_count()}, {len(os.sched_getaffinity(0))} of them for this process; load {loads}",
        "processor": _processor(),
        "memory": _memory(),
        "cache": _cache(),
        "variables": "; ".join(_variables()) or "none",
        "packages": ", ".join(_packages()) or "none",
    }
    return "\n".join(f"{name + ':':16} {text}" for name, text in facts.items())


def main() -> None:
    """Prints the report."""
    print(report())


if __name__ == "__main__":
    main()
