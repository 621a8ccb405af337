"""Tests whose expectation a PJRT plugin does not meet, with the reason: skipped when PJRT_DEVICE is not CPU."""

CLAMPS = "StableHLO's operations clamp or pass on what ATen's kernels refuse"
LATE = "the row leaves this check to ATen's kernel, which a plugin does not call"
TIES = "ATen leaves open in which order equal elements come"
OWN_MEMORY = "a plugin's memory is its own: what it keeps and what it refuses"
NOT_CANCELLED = "a program that a plugin runs cannot be cancelled"
DENORMALS = "XLA's CPU client takes denormal numbers for zero"
OUT_OF_RANGE = "StableHLO leaves open what becomes of NaN and numbers out of range"
COMPILES_EACH = (
    "each program compiles anew, for a time that XLA's compiler makes too long; views and threads stand for all"
)
FUSES_ITSELF = "the pairs test the embedded engine's code generator"
COMPLEX = "complex numbers have no form for plugins: their operations run on the CPU"
OTHER_ORDER = "XLA multiplies in another order, which one element in sixty shows by 1.1e-5"
AT_ONCE = "on a plugin collectives run when they are recorded, which the replica that comes later would not reach"
FUSES_SUMS = "XLA adds in another order where it fuses what draws the numbers, by 1.5e-6"
OWN_STEPS = "a plugin tells nothing of the steps of its programs"
COUNTS_DEVICES = "how many devices there are a plugin has to be asked, which is the first use"
OWN_COMPILER = "a plugin compiles by a compiler of its own"
OWN_THREADS = "a plugin's threads are its own"
WHOLE_STEPS = "a plugin's traces are cut at more operations"
CONSTANTS = "a number is a constant of a plugin's program until it changes: one more compile"
RECIPROCAL = "XLA divides by a constant as it multiplies by its reciprocal"
OWN_BITS = "XLA's CPU client gave other last bits in a later call of the same program"

# Kinds of random programs (tests/fuzz/kinds).
KINDS_WITHOUT_PLUGINS = (
    "promotion indexing forms sharing foreach einsum attention modules checkpointing sizes offsets".split()
)

# By the test's name with its parameters. Tests of values that only ATen's kernels check have the marker checks_values.
DIFFERENCES = {
    "test_a_trace_that_is_cut": {"": WHOLE_STEPS},
    "test_a_long_trace_is_cut_on_its_device": {"": WHOLE_STEPS},
    "test_the_same_program_serves_all_calls": {"": CONSTANTS},
    "test_hlo_of_a_tensor_is_what_it_needs": {"": CONSTANTS},
    "test_numbers_beside_16_bit_floats": dict.fromkeys(["bfloat16", "float16"], RECIPROCAL),
    "test_a_program_has_one_value": {"": OWN_BITS},
    "test_packed_weights_are_kept": {"": "packed weights are the embedded engine's"},
    "test_empty_cache_gives_memory_back": {"": OWN_MEMORY},
    "test_numbers": dict.fromkeys(["test_outcomes.py", "all"], CLAMPS),
    "test_other_lines": {"line3": CLAMPS},
    "test_normal_refuses_what_eager_refuses": dict.fromkeys(
        ["a negative deviation", "a deviation that is NaN"], CLAMPS
    ),
    "test_what_happened": {"TestOutcomesXLA.test_pending_xla": CLAMPS},
    "test_peaks_start_again": dict.fromkeys(["torch.xla", "torch.accelerator"], OWN_MEMORY),
    "test_peaks_start_again_on_one_device": {"": OWN_MEMORY},
    "test_memory_of_a_program_of_changing_sizes_is_bounded": {"": OWN_MEMORY},
    "test_a_product_larger_than_the_machine_is_refused": {"": OWN_MEMORY},
    "test_the_device_works_where_addresses_are_few": {"": OWN_MEMORY},
    "test_a_program_halves_its_batch_until_it_fits": {"": OWN_MEMORY},
    "test_figures_follow_what_is_held": {"": OWN_MEMORY},
    "test_positions_take_no_memory": {"": OWN_MEMORY},
    "test_inference_holds_one_copy": {"": OWN_MEMORY},
    "test_peaks_of_single_operations_are_those_of_eager": {"": OWN_MEMORY},
    "test_a_summary_copies_nothing": {"": OWN_MEMORY},
    "test_the_error_names_what_made_the_large_buffer": dict.fromkeys(
        [f"{mode}-{case}" for mode in (True, False) for case in ("kernel", "product", "convolution")], OWN_MEMORY
    ),
    "test_a_compile_without_memory_is_an_error_and_the_device_works_later": {"": OWN_MEMORY},
    "test_uniform_numbers_are_below_the_upper_bound": dict.fromkeys(
        ["(0, 1e-38)-dtype0", "(0, 1e-38)-dtype1"], DENORMALS
    ),
    "test_the_memory_of_a_tensor_can_be_read_where_it_lies": {"": OWN_MEMORY},
    "test_some_rows_are_written_where_they_are": {"": OWN_MEMORY},
    "test_every_wait_raises_the_class_of_the_runs_error": dict.fromkeys(
        ["torch.xla", "torch.accelerator", "stream", "event"], OWN_MEMORY
    ),
    "test_a_refusal_while_recording_leaves_the_trace_sound": {"": OWN_MEMORY},
    "test_operations_of_one_operand": dict.fromkeys(["float32", "float64", "bfloat16", "int8"], DENORMALS),
    "test_operations_of_two_operands": dict.fromkeys(["float32", "bfloat16", "int8"], DENORMALS),
    "test_remainders_are_exact": {"float32": DENORMALS},
    "test_ldexp": dict.fromkeys(["float32", "float64", "bfloat16"], DENORMALS),
    "test_quotients_that_overflow": {"": DENORMALS},
    "test_conversions_of_fused_values": dict.fromkeys(["bool", "int32", "int64"], OUT_OF_RANGE),
    "test_drawn_numbers_are_the_same_in_pieces": {"": FUSES_SUMS},
    "test_the_import_replaces_few_functions_and_the_first_tensor_the_rest": {"": COUNTS_DEVICES},
    "test_the_compiler_is_loaded_at_the_first_compile": {"compiled": OWN_COMPILER},
    "test_a_compiler_that_is_not_there": {"": OWN_COMPILER},
    "test_a_compiler_of_another_build": {"": OWN_COMPILER},
    "test_the_steps_of_a_run_lie_within_it": {"": OWN_STEPS},
    "test_steps_name_the_line_of_the_run_at_hand": {"": OWN_STEPS},
    "test_the_stages_of_the_schedule_are_passes_too": {"": OWN_STEPS},
    "test_a_barrier_in_a_run": {"": OWN_STEPS},
    "test_parts_fuse_with_what_stands_around_them": dict.fromkeys(
        ["mylib.quick_gelu", "mylib_by_keys.scaled_norm", "mylib.clip_rows"], OWN_STEPS
    ),
    "test_sums_of_gradients_start_during_the_backward": {"": AT_ONCE},
    "test_a_process_that_raises_waits_for_nobody": {"": AT_ONCE},
    "test_a_run_notices_busy_processes": {"": OWN_THREADS},
    "test_what_an_analysis_tells": {"": OWN_MEMORY},
    "test_checkpoints_compute_again": dict.fromkeys(["True", "False"], OWN_MEMORY),
    "test_what_has_no_stablehlo": {"": COMPLEX},
    "test_what_has_no_hlo": {"": COMPLEX},
    "test_an_operation_without_a_form": {"": COMPLEX},
    "test_a_program_without_stablehlo_runs_all_the_same": {"": COMPLEX},
    "test_options_of_the_embedded_engine": {"": "plugins take options, as test_pjrt.py tests"},
    "test_all_pairs_that_choose": {"": FUSES_ITSELF},
    "test_pairs": dict.fromkeys(["float32", "float64", "bfloat16", "int64"], FUSES_ITSELF),
    "test_pairs_over_two_operands": {"": FUSES_ITSELF},
    "test_programs_agree_with_eager": {
        f"{kind}-{first}-{fusion}": COMPILES_EACH
        for kind in KINDS_WITHOUT_PLUGINS
        for first in (0, 50)
        for fusion in (True, False)
    },
    "test_bad_arguments_raise_as_in_eager": dict.fromkeys(["gather", "scatter", "scatter_add"], CLAMPS),
    "test_an_interrupt_cancels_queued_work_and_the_process_goes_on": {"": NOT_CANCELLED},
    "test_ctrl_c_ends_an_endless_loop": {"": NOT_CANCELLED},
    "test_a_handler_of_sigterm_cancels_queued_work": {"": NOT_CANCELLED},
    "test_running_out_of_memory_is_told_once_and_costs_no_weights": dict.fromkeys(["result", "scratch"], OWN_MEMORY),
    "test_a_library_call_out_of_memory_is_of_pytorchs_class": {"": OWN_MEMORY},
    "test_spoilt_argument": dict.fromkeys(
        [
            "__getitem__",
            "index_add",
            "index_put",
            *[f"index_reduce-{reduction}" for reduction in ("mean", "prod", "amin", "amax")],
            "isin",
            "masked.cumprod",
            "masked.cumsum",
            "max_pool2d_with_indices_backward",
            "nn.functional.linear_cross_entropy",
            "take",
            "trace",
        ],
        LATE,
    ),
    "test_spectrogram": dict.fromkeys(["spectrum", "spec_augment"], COMPLEX),
    "test_complex_numbers_are_drawn": dict.fromkeys(["dtype0", "dtype1"], COMPLEX),
    "test_operands_and_results_that_are_conjugates": {"": COMPLEX},
    "test_enhancement": {"": COMPLEX},
    "test_griffin_lim": {"": COMPLEX},
    "test_message_passing": {"prod": OTHER_ORDER},
    "test_op_agrees_with_eager": {"mode-bfloat16": TIES},  # its gradient
}


# Many programs that show little of the engine, or all anew in each of several processes; with --whole they run.
WHOLE_ONLY = (
    "test_bench_compare.py",
    "test_bench_dynamic.py",
    "test_bench_growth.py",
    "test_digits_forms.py",
    "test_each_optimizer",
    "test_foreach.py",
    "test_fsdp.py",
    "test_modules.py",
    "test_ops_variants.py",
    "test_optimizers.py",
    "test_processes.py",
    "test_pytorch_test_runner.py",
    "test_sharded.py",
    "test_stored_floats.py",
)


def find_difference(item) -> str | None:
    """The reason why the test cannot pass on a plugin, or None."""
    if (item.path.name in WHOLE_ONLY or item.originalname in WHOLE_ONLY) and not item.config.option.whole:
        return COMPILES_EACH
    if item.get_closest_marker("checks_values"):
        return CLAMPS
    test, _, parameters = item.name.partition("[")
    return DIFFERENCES.get(test, {}).get(parameters.removesuffix("]"))
