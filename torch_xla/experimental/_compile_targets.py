"""Hardware that the plugins of wheels compile for without it, by the names in XLA_COMPILE_ONLY."""

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class CompileTarget:
    """What a plugin needs to compile for hardware that is not there.

    Attributes:
        topology: PJRT's name of the hardware.
        options: options of the topology, or of the client.
        environment: variables of the process that compiles, used where they are not set.
        by_client: the plugin compiles by a client that it makes without its hardware, instead of a topology.
        clock_hz: cycles a second of the unit whose cycles the compiler estimates; 0 if it is not known.
    """

    topology: str = ""
    options: dict[str, str | bool | int | float | list[int]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    by_client: bool = False
    clock_hz: float = 0.0


# ---- TPUs ----
# The clock in GHz, by the peak of bfloat16's products that Google publishes; the least extent.
_TPUS = {
    "v2": (0.7, "2x2"),
    "v3": (0.94, "2x2"),
    "v4": (1.05, "2x2x1"),
    "v5e": (1.5, "1x1"),
    "v5p": (1.75, "2x2x1"),
    "v6e": (1.75, "1x1"),
}
# No other host and no machine of Google's cloud is asked, and a process that uses a TPU does not exclude this one.
_TPU_ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}


def tpu_target(name: str) -> CompileTarget:
    """The TPUs of that name: a generation and how many there are in each direction, v5e:2x2. Left out: a host's least.

    Raises ValueError for an unknown generation.
    """
    generation, _, extent = name.partition(":")
    if generation not in _TPUS:
        raise ValueError(
            f"XLA_COMPILE_ONLY={name} is no TPU; expected one of {', '.join(_TPUS)} and an extent: v5e:2x2"
        )
    clock, least = _TPUS[generation]
    return CompileTarget(f"{generation}:{extent or least}", environment=_TPU_ENVIRONMENT, clock_hz=clock * 1e9)


# ---- NVIDIA's GPUs ----
@dataclass
class _Gpu:
    """A GPU as NVIDIA's documents describe it: sizes in bytes, rates in Hz and bytes a second."""

    name: str
    capability: tuple[int, int]
    cores: int
    clock: float
    memory: int
    bandwidth: int
    l2: int
    shared_memory: int  # of a core
    shared_memory_of_block: int  # where the program asks for more than the usual 48 KB
    tensor_operations: int  # of a tensor core in a cycle, float16

    def config(self) -> str:
        """Text of the GpuTargetConfigProto."""
        major, minor = self.capability
        gigahertz = self.clock / 1e9
        vector = " ".join(
            f"rate_infos {{ key: {key} value {{ clock_rate_ghz: {gigahertz} units_per_core: {units} "
            f"ops_per_clock: {operations} }} }}"
            for key, units, operations in ((4, 64, 1), (10, 128, 2), (11, 128, 1), (12, 64, 1), (16, 128, 2))
        )
        matrix = " ".join(
            f"rate_infos {{ key: {key} value {{ clock_rate_ghz: {gigahertz} units_per_core: 4 "
            f"ops_per_clock: {self.tensor_operations // part} }} }}"
            for key, part in ((10, 1), (11, 2), (16, 1))
        )
        feature = " feature_extension: ACCELERATED_FEATURES" if major >= 9 else ""
        return f"""gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_block_optin: {self.shared_memory_of_block}
  shared_memory_per_core: {self.shared_memory} registers_per_core_limit: 65536 registers_per_block_limit: 65536
  core_count: {self.cores} fpus_per_core: 128 clock_rate_ghz: {gigahertz}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: {self.bandwidth} l2_cache_size: {self.l2} device_memory_size: {self.memory}
  cuda_compute_capability {{ major: {major} minor: {minor}{feature} }}
  scalar_unit_description {{ {vector} }}
  matrix_unit_description {{ {matrix} }}
  device_vendor: "NVIDIA Corporation" name: "{self.name}" device_address_bits: 64
  driver_version: "13.0.0" runtime_version: "13.0.0" compile_time_toolkit_version: "13.0.0" dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{self.name}"
"""


_KB = 1 << 10
_GPUS = {
    "a100": _Gpu(
        "NVIDIA A100-SXM4-80GB", (8, 0), 108, 1.41e9, 80 << 30, 2_039_000_000_000, 40 << 20, 164 * _KB, 163 * _KB, 512
    ),
    "h100": _Gpu(
        "NVIDIA H100 80GB HBM3", (9, 0), 132, 1.98e9, 80 << 30, 3_352_000_000_000, 50 << 20, 228 * _KB, 227 * _KB, 1024
    ),
    "h200": _Gpu(
        "NVIDIA H200", (9, 0), 132, 1.98e9, 141 << 30, 4_800_000_000_000, 50 << 20, 228 * _KB, 227 * _KB, 1024
    ),
}


def gpu_target(name: str) -> CompileTarget:
    """The GPU of that name, h100, or the one that a file describes: a GpuTargetConfigProto as text.

    Raises ValueError if there is no such GPU, OSError if the file cannot be read.
    """
    if os.sep in name:
        options = {"topology": "1x1x1", "target_config": Path(name).read_text()}
        return CompileTarget(options=options)
    if name not in _GPUS:
        raise ValueError(
            f"XLA_COMPILE_ONLY={name} is no known GPU; expected {', '.join(_GPUS)}, or the path of a file with a "
            f"GpuTargetConfigProto as text"
        )
    gpu = _GPUS[name]
    return CompileTarget(options={"topology": "1x1x1", "target_config": gpu.config()})


def tenstorrent_target(name: str) -> CompileTarget:
    """Tenstorrent's chips that a file describes, as tt-mlir's ttrt writes it for the release of the plugin.

    Raises ValueError if there is no such file.
    """
    if not Path(name).is_file():
        raise ValueError(f"XLA_COMPILE_ONLY={name} is no file: expected the path of a system description (.ttsys)")
    path = str(Path(name).resolve())
    return CompileTarget(environment={"TT_COMPILE_ONLY_SYSTEM_DESC": path}, by_client=True)


def device_of(name: str) -> str:
    """The value of PJRT_DEVICE that compiles for a target of the wheels' plugins: TPU, CUDA or TT.

    Raises ValueError if none is known.
    """
    if name.partition(":")[0] in _TPUS:
        return "TPU"
    if name in _GPUS:
        return "CUDA"
    suffix = Path(name).suffix
    known = {".ttsys": "TT", ".txtpb": "CUDA"}
    if suffix in known:
        return known[suffix]
    raise ValueError(
        f"{name!r} is no known target: expected a TPU ({', '.join(_TPUS)}, with an extent: v5e:2x2), a GPU "
        f"({', '.join(_GPUS)}), or a file that describes one (.txtpb, .ttsys)"
    )
