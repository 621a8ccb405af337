"""The targets of `make test-compilers`: which plugin compiles for them, and how it is asked."""

import dataclasses
import os
from pathlib import Path

from . import wheels
from .client import Executable, Plugin

_DESCRIPTIONS = Path(__file__).parent / "descriptions"
# libtpu looks for TPUs and for other processes that have it; a second one is no fault where none runs.
_TPU = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}


@dataclasses.dataclass(frozen=True)
class Target:
    """A kind of hardware, or XLA's CPU client."""

    title: str
    wheel: str  # see wheels.py
    platform: str  # PJRT's name of it, by which the forms of operations are chosen
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    topology: str | None = None  # None: the plugin compiles on a client only
    description: str = ""  # the file with the hardware, which the plugin takes as an option
    seconds: int = 120  # of the processor, that one text may take


TARGETS = {
    "v5e": Target("TPU v5e", "libtpu", "tpu", _TPU, "v5e:1x1"),
    "v6e": Target("TPU v6e", "libtpu", "tpu", _TPU, "v6e:1x1"),
    "h100": Target("NVIDIA H100", "jax-cuda13-pjrt", "cuda", {"TF_CPP_MIN_LOG_LEVEL": "3"}, "", "h100.txtpb"),
    "n150": Target(
        "Tenstorrent n150",
        "jax-tt-plugin",
        "tt",
        {"TT_COMPILE_ONLY_SYSTEM_DESC": str(_DESCRIPTIONS / "n150.ttsys"), "TT_METAL_LOGGER_LEVEL": "FATAL"},
        seconds=240,
    ),
    "cpu": Target("XLA's CPU client", wheels.CPU, "cpu", {"TF_CPP_MIN_LOG_LEVEL": "3"}),
}


class Compiler:
    """Compiles texts for a target. Its plugin is loaded in this process, for good."""

    def __init__(self, target: Target, plugin: str):
        os.environ.update(target.environment)
        self._plugin = Plugin(plugin)
        self._topology = self._client = None
        if target.topology is None:
            self._client = self._plugin.client()
        else:
            options = {}
            if target.description:
                text = (_DESCRIPTIONS / target.description).read_text(encoding="utf-8")
                options = {"topology": "1x1x1", "target_config": text}
            self._topology = self._plugin.topology(target.topology, options)

    def compile(self, text: str) -> Executable:
        """Raises RefusedError."""
        if self._client is not None:
            return self._plugin.compile_on(self._client, text)
        return self._plugin.compile_for(self._topology, text)
