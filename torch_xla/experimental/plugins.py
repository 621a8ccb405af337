"""PJRT plugins by their names in PJRT_DEVICE: of wheels, of packages' entry points, and your own.

    class MyPlugin(plugins.DevicePlugin):
        def library_path(self):
            return "/opt/vendor/pjrt_plugin.so"

    plugins.register_plugin("VENDOR", MyPlugin())
    torch_xla.runtime.set_device_type("VENDOR")

A package offers a plugin by an entry point of the group `torch_xla.plugins`: its name is the device's, its object the
class. A plugin's library is loaded at the first use of the device, if PJRT_DEVICE names it.
"""

import importlib.metadata
import importlib.util
import os
from pathlib import Path
from types import ModuleType

from .. import _late_modules, _XLAC
from ._compile_targets import CompileTarget, gpu_target, tenstorrent_target, tpu_target

ClientOptions = dict[str, str | bool | int | float | list[int]]


class DevicePlugin:
    """A kind of device, reached through a PJRT plugin."""

    def library_path(self) -> str:
        """Path of the plugin's shared object."""
        raise NotImplementedError(f"{type(self).__name__} does not say where its PJRT plugin is: define library_path()")

    def client_create_options(self) -> ClientOptions:
        """Options of the client, as the vendor documents them."""
        return {}

    def compile_target(self, name: str) -> CompileTarget:
        """What the plugin needs to compile for hardware that is not there. Here: a topology of that name.

        Args:
            name: the value of XLA_COMPILE_ONLY.
        """
        return CompileTarget(topology=name)

    def host_index(self) -> int:
        """This machine's number."""
        return 0

    def physical_chip_count(self) -> int:
        """Devices of this machine."""
        return 1

    def configure_single_process(self) -> None:
        """Called before the function of xmp.spawn() in a run of one process. Here it does nothing."""

    def configure_multiprocess(self, local_rank: int, local_world_size: int) -> None:
        """Called before that function in each process of a run of several: give the process its own device here.

        Args:
            local_rank, local_world_size: the process's number, and the number of processes on its machine. Here it does
                nothing.
        """

    def requires_xla_coordinator(self) -> bool:
        """False. Not used: clients of several processes are not connected, and collectives between them run outside."""
        return False

    def dynamo_settings(self) -> dict[str, object]:
        """Defaults of torch._dynamo.config for this process, from the first use of the device on.

        Those of the original: each shape and each float of a graph is a number of its own, as compilers of fixed shapes
        want it, so that backends of torch.compile get no SymInt or SymFloat. The program's own settings go before.
        """
        return {"automatic_dynamic_shapes": False, "specialize_float": True}


def _module_folders(module: str) -> list[Path]:
    """The folders of an installed package, without importing it. Empty if there is no such package."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # its parent is missing
        return []
    return [Path(folder) for folder in (spec and spec.submodule_search_locations) or []]


class _WheelPlugin(DevicePlugin):
    """A plugin in the folder of an installed module: the first (module, file) that exists."""

    def __init__(self, *files: tuple[str, str]):
        self._files = files

    def dynamo_settings(self) -> dict[str, object]:
        """None: graphs of the default backend may have dynamic shapes."""
        return {}

    def find_library(self) -> str | None:
        """Path of the plugin, without importing its module. None if no wheel that has it is installed."""
        for module, file in self._files:
            for folder in _module_folders(module):
                if (folder / file).is_file():
                    return str(folder / file)
        return None

    def library_path(self) -> str:
        if path := self.find_library():
            return path
        raise RuntimeError(f"no wheel with a PJRT plugin is installed; looked for {[file for _, file in self._files]}")


def _find_cuda() -> Path | None:
    """The folder of CUDA's compiler: CUDA_ROOT, or that of a wheel."""
    if root := _XLAC._env_text("CUDA_ROOT"):
        return Path(root)
    folders = [folder for module in ("nvidia.cu13", "nvidia.cuda_nvcc") for folder in _module_folders(module)]
    return next((folder for folder in folders if (folder / "bin/ptxas").is_file()), None)


class _TpuPlugin(_WheelPlugin):
    """TPUs, with the plugin of the wheel libtpu."""

    def compile_target(self, name: str) -> CompileTarget:
        """TPUs by generation and extent: v5e:2x2."""
        return tpu_target(name)


class _TenstorrentPlugin(_WheelPlugin):
    """Tenstorrent's chips, with the plugin of the wheel jax-tt-plugin."""

    def compile_target(self, name: str) -> CompileTarget:
        """The chips that a file describes."""
        return tenstorrent_target(name)


class _CudaPlugin(_WheelPlugin):
    """NVIDIA GPUs, with the plugin of the jax-cuda wheels."""

    def library_path(self) -> str:
        """Path of the plugin. XLA_FLAGS gets the folder of CUDA's compiler unless it names one."""
        flags = _XLAC._env_text("XLA_FLAGS")
        if "xla_gpu_cuda_data_dir" not in flags and (folder := _find_cuda()):
            os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_cuda_data_dir={folder}".strip()
        return super().library_path()

    def compile_target(self, name: str) -> CompileTarget:
        """A GPU by its name: h100."""
        return gpu_target(name)

    def client_create_options(self) -> ClientOptions:
        """Options of the allocator, from the original's variables; XLA chooses if they are not set."""
        options: ClientOptions = {"platform_name": "cuda"}
        if _XLAC._env_is_set("PJRT_ALLOCATOR_FRACTION"):
            options["memory_fraction"] = _XLAC._env_share("PJRT_ALLOCATOR_FRACTION")
        if _XLAC._env_is_set("PJRT_ALLOCATOR_PREALLOCATE"):
            options["preallocate"] = _XLAC._env_flag("PJRT_ALLOCATOR_PREALLOCATE")
        if _XLAC._env_flag("PJRT_ALLOCATOR_CUDA_ASYNC"):
            options["allocator"] = "cuda_async"
        return options


_WHEELS = {
    "CUDA": _CudaPlugin(
        ("jax_plugins.xla_cuda13", "xla_cuda_plugin.so"),
        ("jax_plugins.xla_cuda12", "xla_cuda_plugin.so"),
    ),
    "TPU": _TpuPlugin(("libtpu", "libtpu.so")),
    "TT": _TenstorrentPlugin(("jax_plugins.libtt", "libtt.so")),
}
_BUILT_IN = ("CPU", "LIBRARY")
_registry: dict[str, DevicePlugin] = {}


def register_plugin(name: str, device_plugin: DevicePlugin) -> None:
    """Makes PJRT_DEVICE=name use the plugin. Call it before the first use of the device.

    Args:
        name: any but CPU and LIBRARY; CUDA and TPU replace the wheels' plugins. Case does not matter.

    Raises ValueError for CPU and LIBRARY, which have meanings of their own.
    """
    if name.upper() in _BUILT_IN:
        raise ValueError(f"PJRT_DEVICE={name.upper()} has a meaning of its own: register the plugin under another name")
    _registry[name.upper()] = device_plugin


def register_installed_plugins() -> None:
    """Imports the plugins of all installed packages. Without this call the plugin that PJRT_DEVICE names is imported
    when needed.
    """
    for entry in importlib.metadata.entry_points(group="torch_xla.plugins"):
        register_plugin(entry.name, entry.load()())


def get(name: str) -> DevicePlugin | None:
    """The plugin of that name: registered ones and packages' come before the wheels'. None if there is none."""
    name = name.upper()
    if name in _registry:
        return _registry[name]
    for entry in importlib.metadata.entry_points(group="torch_xla.plugins"):
        if entry.name.upper() == name:
            register_plugin(name, entry.load()())
            return _registry[name]
    wheel = _WHEELS.get(name)
    return wheel if wheel and wheel.find_library() else None


def find(name: str) -> tuple[str, ClientOptions] | None:
    """The path and client options of the named plugin, for the first use of the device.

    None if there is no such plugin. Its settings of torch._dynamo apply from then on.
    """
    if not (plugin := get(name)):
        return None
    found = str(plugin.library_path()), dict(plugin.client_create_options())
    settings = plugin.dynamo_settings()
    _late_modules.when_imported("torch._dynamo.config", lambda config: _set_defaults(config, settings))
    return found


def _set_defaults(config: ModuleType, settings: dict[str, object]) -> None:
    """Changes the defaults of a module of settings, for all threads: a program's own settings go before them."""
    for name, value in settings.items():
        config._config[name].default = value


def chosen_compile_target(target: str) -> CompileTarget | None:
    """What the plugin that PJRT_DEVICE names needs to compile for the target. None if it names no plugin."""
    plugin = get(_XLAC._env_text("PJRT_DEVICE"))
    return plugin.compile_target(target) if plugin else None


def _find_target(name: str, target: str) -> tuple[str, str, ClientOptions, dict[str, str], bool] | None:
    """The members of a CompileTarget of src/engine/compile_only.h after its name. None if there is no such plugin."""
    plugin = get(name)
    if plugin is None:
        return None
    found = plugin.compile_target(target)
    path = str(plugin.library_path())
    return path, found.topology, dict(found.options), dict(found.environment), found.by_client


def default() -> DevicePlugin:
    """The plugin that PJRT_DEVICE names.

    Raises RuntimeError if it names no plugin: the embedded engine is not one.
    """
    name = _XLAC._env_text("PJRT_DEVICE")
    if not (plugin := get(name)):
        raise RuntimeError(f"PJRT_DEVICE={name} is not a registered or installed plugin")
    return plugin


def configure_process(local_rank: int, local_world_size: int) -> None:
    """Lets the plugin that PJRT_DEVICE names, if it names one, prepare this process of a run."""
    name = _XLAC._env_text("PJRT_DEVICE")
    if name.upper() in _BUILT_IN or not (plugin := get(name)):
        return
    if local_world_size > 1:
        plugin.configure_multiprocess(local_rank, local_world_size)
    else:
        plugin.configure_single_process()


def use_dynamic_plugins() -> None:
    """Accepted for the original's sake: plugins are always found by name."""


def using_dynamic_plugins() -> bool:
    """True."""
    return True


_XLAC._xla_set_plugin_finder(find)
_XLAC._xla_set_target_finder(_find_target)
