#!/usr/bin/env python3
"""Writes docs/api.md: the public names of the original that programs use, what becomes of each here, and a test of it.

Needs the built package: `.venv/bin/python tools/list_api.py`.
"""

import importlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"

# By module: a title, and the names. Names with an underscore are here because libraries call them.
NAMES = {
    "torch_xla": (
        "The package",
        "device devices real_devices device_count sync step compile manual_seed launch set_custom_compile_options "
        "save_as_stablehlo save_torch_model_as_stablehlo",
    ),
    "torch_xla.runtime": (
        "The run and its hardware",
        "device_type set_device_type world_size global_ordinal local_ordinal global_runtime_device_count "
        "addressable_device_count addressable_runtime_device_count global_device_count local_device_count "
        "local_process_count process_index process_count host_index is_bf16_supported runtime_device_attributes "
        "global_runtime_device_attributes get_master_ip use_spmd is_spmd initialize_cache "
        "get_num_cached_compilation_graph clear_computation_cache xla_device runtime",
    ),
    "torch_xla.core.xla_model": (
        "Devices, steps, values",
        "xla_device xla_real_devices xla_device_hw xla_device_kind parse_xla_device get_xla_supported_devices "
        "is_xla_tensor mark_step wait_device_ops unlazy optimizer_step reduce_gradients add_step_closure "
        "set_rng_state get_rng_state fork_rng get_memory_info MemoryInfo RateTracker is_master_ordinal master_print "
        "get_local_ordinal get_ordinal xrt_world_size send_cpu_data_to_device ToXlaTensorArena "
        "check_view_sharing get_stablehlo get_stablehlo_bytecode xla_replication_devices set_replication "
        "optimization_barrier_ save _maybe_convert_to_cpu _fetch_gradients all_reduce all_gather "
        "reduce_scatter reduce_scatter_bucketized all_gather_bucketized all_reduce_bucketized_gradients "
        "all_to_all collective_permute collective_broadcast send recv rendezvous xla_rendezvous mesh_reduce "
        "do_on_ordinals broadcast_master_param XLA_LIB",
    ),
    "torch_xla.core.functions": ("Collectives with gradients", "all_reduce all_gather distributed_mm SyncBatchNorm"),
    "torch_xla._dynamo.dynamo_bridge": ("torch.compile", "extract_compiled_graph GraphInputMatcher"),
    "torch_xla.core.dynamo_bridge": ("The same by its first name", "extract_compiled_graph GraphInputMatcher"),
    "torch_xla.core.xla_builder": (
        "Operations of the user's own",
        "Op Type Shape mkshape tensor_shape create_builder create_computation computation_from_module_proto "
        "get_computation_hlo xla_computation_as_func",
    ),
    "torch_xla.core.xla_op_registry": ("By names", "register"),
    "torch_xla.core.xla_env_vars": ("Environment variables", "PJRT_DEVICE HOST_WORLD_SIZE"),
    "torch_xla._XLAC": (
        "The bindings",
        "_set_ir_debug _get_ir_debug _set_xla_all_numbers_special_scalars _get_xla_all_numbers_special_scalars "
        "_set_xla_custom_op_name_prefix _xla_computation_cache_is_initialized _init_computation_client "
        "_xla_device_kind _xla_get_runtime_devices _get_graph_hash _get_xla_tensors_text _get_xla_tensors_hlo "
        "_get_xla_tensors_hlo_proto _get_stablehlo _get_all_reduce_token _set_all_reduce_token _xla_mark_dynamic "
        "_xla_mark_bounded_dynamic _xla_get_tensor_id _xla_dot_general",
    ),
    "torch_xla.distributed.parallel_loader": ("Loaders", "MpDeviceLoader ParallelLoader PerDeviceLoader"),
    "torch_xla.distributed.xla_multiprocessing": ("Processes", "spawn MpModelWrapper MpSerialExecutor"),
    "torch_xla._internal.pjrt": (
        "The same in other forms",
        "spawn spawn_threads run_multiprocess initialize_singleprocess initialize_multiprocess _merge_replica_results "
        "_run_thread_per_device",
    ),
    "torch_xla.distributed.xla_dist": ("The launcher of pods", "get_args_parser parse_args resolve_and_execute main"),
    "torch_xla.distributed.data_parallel": ("Threads", "DataParallel Context"),
    "torch_xla.distributed.xla_backend": ("torch.distributed", "ProcessGroupXla"),
    "torch_xla.experimental.pjrt_backend": ("The same by its first name", "ProcessGroupXla"),
    "torch_xla.distributed.zero_redundancy_optimizer": ("Optimizers with spread state", "ZeroRedundancyOptimizer"),
    "torch_xla.distributed.fsdp": (
        "Sharded modules",
        "XlaFullyShardedDataParallel checkpoint_module consolidate_sharded_state_dicts "
        "consolidate_sharded_model_checkpoints",
    ),
    "torch_xla.distributed.fsdp.wrap": (
        "Which modules are sharded apart",
        "always_wrap_policy lambda_auto_wrap_policy transformer_auto_wrap_policy size_based_auto_wrap_policy "
        "recursive_wrap",
    ),
    "torch_xla.distributed.spmd": (
        "Meshes and sharded tensors",
        "Mesh HybridMesh ShardingSpec ShardingType XLAShardedTensor XLAPatchedLinear MarkShardingFunction "
        "mark_sharding mark_sharding_with_gradients annotate_custom_sharding clear_sharding shard_as "
        "enable_manual_sharding disable_manual_sharding get_1d_mesh set_global_mesh get_global_mesh wrap_if_sharded "
        "wrap_as_sharded_tensor unwrap_sharded_tensor auto_policy xla_distribute_tensor xla_distribute_module "
        "apply_backward_optimization_barrier apply_xla_patch_to_nn_linear xla_patched_nn_linear_forward",
    ),
    "torch_xla.distributed.spmd.xla_sharding": (
        "Meshes by their module",
        "Mesh HybridMesh get_1d_mesh set_global_mesh get_global_mesh",
    ),
    "torch_xla.distributed.spmd.debugging": ("Pictures of them", "visualize_sharding visualize_tensor_sharding"),
    "torch_xla.experimental.spmd_fully_sharded_data_parallel": (
        "Sharded modules on a mesh",
        "SpmdFullyShardedDataParallel",
    ),
    "torch_xla.experimental.distributed_checkpoint": (
        "Checkpoints by steps",
        "CheckpointManager SPMDSavePlanner SPMDLoadPlanner prime_optimizer",
    ),
    "torch_xla.experimental.xla_quantized_matmul": ("Weights of few bits", "XlaQuantizedLinear"),
    "torch_xla.amp": ("Mixed precision", "autocast GradScaler"),
    "torch_xla.amp.syncfree": ("Optimizers for it", "SGD Adam AdamW"),
    "torch_xla.amp.syncfree.adam": ("One by its module", "Adam"),
    "torch_xla.amp.syncfree.adamw": ("Another by its module", "AdamW"),
    "torch_xla.amp.syncfree.sgd": ("The third by its module", "SGD"),
    "torch_xla.backends": ("Precision", "set_mat_mul_precision get_mat_mul_precision"),
    "torch_xla.debug.metrics": (
        "Metrics",
        "metrics_report short_metrics_report metric_names metric_data counter_names counter_value clear_all "
        "clear_counters clear_metrics executed_fallback_ops",
    ),
    "torch_xla.debug.metrics_saver": ("Metrics in files", "save_metrics"),
    "torch_xla.debug.metrics_compare_utils": (
        "Metrics compared",
        "parse_metrics_report get_data_points_from_metrics_reports compare_metrics",
    ),
    "torch_xla.debug.graph_saver": ("Graphs in files", "save_tensors_graph"),
    "torch_xla.debug.model_comparator": (
        "Models compared",
        "configure save compare compare_tensors tensor_file_compare",
    ),
    "torch_xla.debug.profiler": (
        "Profiler",
        "start_server trace trace_detached Trace StepTrace start_trace stop_trace trace_me",
    ),
    "torch_xla.experimental": ("Eager mode", "eager_mode is_eager_mode eager_mode_context compile"),
    "torch_xla.experimental.xla_sharding": (
        "Meshes by their first name",
        "Mesh HybridMesh mark_sharding clear_sharding get_1d_mesh set_global_mesh",
    ),
    "torch_xla.experimental.xla_sharded_tensor": ("Sharded tensors by their first name", "XLAShard XLAShardedTensor"),
    "torch_xla.experimental.assume_pure": ("Pure functions", "assume_pure PureModule"),
    "torch_xla.experimental.custom_kernel": (
        "Kernels for TPUs",
        "XLA_LIB flash_attention FlashAttention gmm tgmm gmm_backward GMM _histogram repeat_with_fixed_output_size",
    ),
    "torch_xla.experimental.splash_attention": (
        "Attention by segments and windows",
        "splash_attention SplashAttention SplashAttentionConfig",
    ),
    "torch_xla.experimental.gru": ("Recurrent layers as a loop", "GRU"),
    "torch_xla.experimental.pytreeify": ("Functions of nested tensors", "pytreeify"),
    "torch_xla.experimental.callback": ("What waits for data", "on_ready_callback on_ready_event"),
    "torch_xla.experimental.stablehlo_custom_call": (
        "Custom calls, and where tensors lie",
        "stablehlo_custom_call extract_custom_call_outputs_shape_dtype place_to_host place_to_device",
    ),
    "torch_xla.experimental.mark_pattern_utils": ("Composites", "StableHLOCompositeBuilder"),
    "torch_xla.experimental.xla_marker": ("Attributes of composites", "serialize_composite_attr"),
    "torch_xla.experimental.deprecation": ("Old names", "deprecated mark_deprecated register_deprecated"),
    "torch_xla.experimental.plugins": (
        "Plugins",
        "DevicePlugin register_plugin register_installed_plugins use_dynamic_plugins using_dynamic_plugins default",
    ),
    "torch_xla.stablehlo": (
        "Export",
        "exported_program_to_stablehlo save_as_stablehlo save_torch_model_as_stablehlo StableHLOGraphModule "
        "StableHLOExportOptions",
    ),
    "torch_xla.utils.utils": (
        "Utilities",
        "SampleGenerator FnDataGenerator DataWrapper LazyProperty TmpFolder TimedScope timed eprint getenv_as "
        "as_list for_each_instance for_each_instance_rewrite get_free_tcp_ports Cleaner flatten_nested_tuple "
        "get_print_fn list_copy_append null_print parallel_work shape",
    ),
    "torch_xla.utils.checkpoint": ("Activation checkpoints", "checkpoint"),
    "torch_xla.utils.serialization": ("Files of tensors", "save load _get_tensors_folder _get_tensor_file"),
    "torch_xla.utils.buffer_donor_context": ("Memory that is given away", "alias_with_buffer_donor_config"),
    "torch_xla.utils.dlpack": ("DLPack", "to_dlpack from_dlpack"),
    "torch_xla.utils.closures": ("Closures", "ClosureHandler AsyncClosureHandler"),
    "torch_xla.utils.keyd_queue": ("Queues", "KeydQueue Queue"),
    "torch_xla.test.test_utils": (
        "For example programs",
        "mp_test get_summary_writer write_to_summary close_summary_writer now print_training_update print_test_update",
    ),
}

# What is not as in the original. All other names do what the original's do.
STATES = {
    "torch_xla.set_custom_compile_options": "options of plugins; the embedded engine has none and refuses them",
    "torch_xla.core.xla_model.get_stablehlo": "in MLIR's generic form",
    "torch_xla.core.xla_model.get_stablehlo_bytecode": "MLIR text, which its readers take too",
    "torch_xla.core.xla_model.xla_device_kind": "that of the embedded engine is `cpu`",
    "torch_xla._dynamo.dynamo_bridge.extract_compiled_graph": "recorded once, appended by each call",
    "torch_xla._dynamo.dynamo_bridge.GraphInputMatcher": "nothing here uses it",
    "torch_xla.core.dynamo_bridge.extract_compiled_graph": "recorded once, appended by each call",
    "torch_xla.core.dynamo_bridge.GraphInputMatcher": "nothing here uses it",
    "torch_xla.core.xla_builder.Op": "stands for a tensor; `set_dimension_size` is refused",
    "torch_xla.core.xla_builder.computation_from_module_proto": "of the instructions in `core/_hlo_run.py`",
    "torch_xla.core.xla_env_vars.HOST_WORLD_SIZE": "nothing reads it",
    "torch_xla._XLAC._set_ir_debug": "does nothing: lines are always kept",
    "torch_xla._XLAC._get_ir_debug": "what was set",
    "torch_xla._XLAC._set_xla_all_numbers_special_scalars": "numbers stay constants when they change; on plugins",
    "torch_xla._XLAC._get_xla_all_numbers_special_scalars": "what was set",
    "torch_xla._XLAC._set_xla_custom_op_name_prefix": "in the place of the line; the depth is not used",
    "torch_xla._XLAC._get_all_reduce_token": "orders nothing",
    "torch_xla._XLAC._set_all_reduce_token": "orders nothing",
    "torch_xla._XLAC._xla_mark_dynamic": "does nothing: sizes are the tensors'",
    "torch_xla._XLAC._xla_mark_bounded_dynamic": "does nothing: sizes are the tensors'",
    "torch_xla.distributed.xla_dist.resolve_and_execute": "refused: there are no pods",
    "torch_xla.distributed.xla_dist.main": "refused: there are no pods",
    "torch_xla._internal.pjrt.initialize_singleprocess": "asks a plugin alone",
    "torch_xla._internal.pjrt.initialize_multiprocess": "asks a plugin alone",
    "torch_xla.experimental.custom_kernel.flash_attention": "by PyTorch's attention",
    "torch_xla.experimental.custom_kernel.FlashAttention": "by PyTorch's attention; block sizes are not used",
    "torch_xla.experimental.custom_kernel.gmm": "by `torch._grouped_mm`; the tiling is not used",
    "torch_xla.experimental.custom_kernel.tgmm": "by `torch._grouped_mm`; the tiling is not used",
    "torch_xla.experimental.custom_kernel.gmm_backward": "by `torch._grouped_mm`; the tiling is not used",
    "torch_xla.experimental.custom_kernel.GMM": "by `torch._grouped_mm`; the tiling is not used",
    "torch_xla.experimental.splash_attention.splash_attention": "by PyTorch's attention",
    "torch_xla.experimental.splash_attention.SplashAttention": "by PyTorch's attention",
    "torch_xla.experimental.splash_attention.SplashAttentionConfig": "the window alone is used",
    "torch_xla.experimental.plugins.DevicePlugin": "nothing reads `requires_xla_coordinator`",
    "torch_xla.distributed.fsdp.XlaFullyShardedDataParallel": "parameters are DTensors: docs/replicas.md",
    "torch_xla.distributed.fsdp.consolidate_sharded_state_dicts": "of parts that were saved here",
    "torch_xla.distributed.fsdp.consolidate_sharded_model_checkpoints": "of parts that were saved here",
    "torch_xla.debug.profiler.start_server": "for clients of this machine",
    "torch_xla.debug.profiler.trace": "writes a Chrome trace",
    "torch_xla.debug.profiler.trace_detached": "on a thread; else as `trace`",
    "torch_xla.stablehlo.StableHLOExportOptions": "text with numbers in it is the only form",
    "torch_xla.stablehlo.StableHLOGraphModule": "calls run what was exported; `get_stablehlo_bytecode` gives text",
    "torch_xla.runtime.use_spmd": "what a mesh does: docs/sharding.md",
    "torch_xla.distributed.spmd.Mesh": "of several devices of one process: docs/sharding.md",
    "torch_xla.distributed.spmd.HybridMesh": "a slice's devices stand by their places",
    "torch_xla.distributed.spmd.XLAShardedTensor": "the marked tensor itself, no DTensor",
    "torch_xla.distributed.spmd.enable_manual_sharding": "over processes and a plugin's devices",
    "torch_xla.distributed.spmd.disable_manual_sharding": "over processes and a plugin's devices",
    "torch_xla.distributed.spmd.auto_policy": "replicates",
    "torch_xla.experimental.callback.on_ready_callback": "starts what is pending",
    "torch_xla.experimental.callback.on_ready_event": "starts what is pending",
    "torch_xla.experimental.stablehlo_custom_call.stablehlo_custom_call": "the embedded engine has no kernels",
    "torch_xla.experimental.xla_marker.serialize_composite_attr": "gives MLIR's text",
    "torch_xla.experimental.stablehlo_custom_call.place_to_host": "an identity",
    "torch_xla.experimental.stablehlo_custom_call.place_to_device": "an identity",
    "torch_xla.runtime.is_bf16_supported": "always true",
}
SAME, MISSING = "as in the original", "missing"


def find(module: str, name: str):
    """The object of that name, or None."""
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def state_of(module: str, name: str) -> str:
    """A few words."""
    return STATES.get(f"{module}.{name}", SAME) if find(module, name) is not None else MISSING


class TestFile:
    """A file of tests, as text: code that it starts in other processes counts as well."""

    def __init__(self, path: Path):
        self.name, self._text = path.name, path.read_text(encoding="utf-8")
        self._aliases: dict[str, set[str]] = {}  # by module: its names in this file
        self._imported: set[tuple[str, str]] = set()  # module, name
        for module, alias in re.findall(r"^\s*import (torch_xla[\w.]*)(?: as (\w+))?", self._text, re.MULTILINE):
            self._aliases.setdefault(module, set()).add(alias or module)
        pattern = r"^\s*from (torch_xla[\w.]*) import (?:\(([^)]*)\)|(.*))"
        for module, several, line in re.findall(pattern, self._text, re.MULTILINE):
            for part in re.findall(r"(\w+)(?: as (\w+))?", several or line.split("#")[0]):
                self._imported.add((module, part[0]))
                self._aliases.setdefault(f"{module}.{part[0]}", set()).add(part[1] or part[0])
        imports = re.finditer(r"^\s*(?:from|import) .*(?:\([^)]*\))?", self._text, re.MULTILINE)
        self._imports = [match.span() for match in imports]

    def _find_use(self, module: str, name: str) -> int | None:
        if name not in self._text:  # as in most files; a search takes a hundred times as long
            return None
        prefixes = {module} | self._aliases.get(module, set())
        spellings = [re.escape(f"{prefix}.{name}") for prefix in sorted(prefixes)]
        if (module, name) in self._imported:
            spellings += [rf"{alias}(?=[(.,)\s]|$)" for alias in sorted(self._aliases[f"{module}.{name}"])]
        uses = re.finditer(rf"(?<![\w.])(?:{'|'.join(spellings)})\b", self._text)
        starts = (use.start() for use in uses)
        return next((at for at in starts if not any(begin <= at < end for begin, end in self._imports)), None)

    def find_test(self, module: str, name: str) -> str | None:
        """`test_api.py: test_devices`, or the file alone where the use is in no function; None if there is none."""
        at = self._find_use(module, name)
        if at is None:
            return None
        tops = re.findall(r"^(?:def (\w+)|\S.*)", self._text[: self._text.rfind("\n", 0, at) + 1], re.MULTILINE)
        inside = tops[-1] if tops else ""
        return f"{self.name}: {inside}" if inside else self.name


def test_files() -> list[TestFile]:
    """Those of the Python tests, with what they run in other processes."""
    return [TestFile(path) for path in sorted((ROOT / "tests/python").rglob("*.py"))]


def find_test(files: list[TestFile], module: str, name: str) -> str | None:
    """A test that uses the name, one that is in a test function before others."""
    found = [test for file in files if (test := file.find_test(module, name))]
    return min(found, key=lambda test: (": test_" not in test, ":" not in test), default=None)


def tables(files: list[TestFile]) -> tuple[list[str], list[str]]:
    """The table of the names that do not do what the original's do, and that of the others, a row for each module."""
    differ, same = ["| name | here | a test |", "|---|---|---|"], ["| module | for | names |", "|---|---|---|"]
    for module, (title, names) in NAMES.items():
        states = {name: state_of(module, name) for name in names.split()}
        for name in (name for name, state in states.items() if state != SAME):
            differ.append(f"| `{module}.{name}` | {states[name]} | `{find_test(files, module, name)}` |")
        if listed := ", ".join(f"`{name}`" for name, state in states.items() if state == SAME):
            same.append(f"| `{module}` | {title} | {listed} |")
    return differ, same


def page() -> str:
    """The text of the page."""
    count = sum(len(names.split()) for _, names in NAMES.values())
    here = sum(find(module, name) is not None for module, (_, names) in NAMES.items() for name in names.split())
    differ, same = tables(test_files())
    lines = [
        "# The API",
        "",
        "For users who look for a name of torch_xla 2.x; [these](coming_from_torch_xla.md) are gone. Written by",
        "`tools/list_api.py`, and a test compares it.",
        "",
        f"Of {count} names that programs use, {here} exist here, each with a docstring and a test in `tests/python/`.",
        "",
        "## Names that differ",
        "",
        *differ,
        "",
        "## Names that are the same",
        "",
        *same,
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
