// The environment variables of the package: a row each. `python -m torch_xla.env` prints them and docs/environment.md lists them.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/devices.h"

namespace torch_xla::env {

enum class Kind : uint8_t { kText, kPath, kSwitch, kInteger, kShare };

// What the text of a variable may be.
struct Accepts {
  Kind kind;
  const char* words = ""; // for people; of kText and kPath only, the other kinds say it themselves
  int64_t low = 0; // of kInteger
  int64_t high = 0;
};
inline constexpr Accepts kSwitch{Kind::kSwitch};
inline constexpr Accepts kShare{Kind::kShare};
inline constexpr Accepts kPath{Kind::kPath, "a path"};
constexpr Accepts words(const char* words) {
  return {Kind::kText, words};
}
constexpr Accepts whole_number(int64_t low, int64_t high) {
  return {Kind::kInteger, "", low, high};
}

struct Variable {
  const char* name;
  Accepts accepts;
  const char* otherwise; // its text where it is not set, or empty; "" of a switch or number: ask is_set() before
  const char* purpose;
  const char* readers; // the files that read it, with ", " between them
  const char* unset = ""; // the default as users read it, if `otherwise` is empty
};

inline constexpr Variable kVariables[] = {
    // The device
    {"PJRT_DEVICE",
     words("CPU, CUDA, TPU, TT, LIBRARY or the name of a plugin"),
     "CPU",
     "the engine that runs programs",
     "src/engine/choose.cpp, torch_xla/experimental/plugins.py, torch_xla/runtime.py, torch_xla/_internal/tpu.py"},
    {"PJRT_SELECT_DEFAULT_DEVICE",
     kSwitch,
     "on",
     "off: PJRT_DEVICE has to be set, so that nothing runs on the CPU by mistake",
     "src/engine/choose.cpp, torch_xla/runtime.py"},
    {"PJRT_LIBRARY_PATH",
     words("a path, or the name of a library that the loader finds"),
     "",
     "the PJRT plugin for PJRT_DEVICE=LIBRARY",
     "src/engine/choose.cpp"},
    {"PJRT_LIBRARY_OPTIONS",
     words("name=value,name=value"),
     "",
     "options of that plugin's client, or of its topology for XLA_COMPILE_ONLY, as its vendor defines them: "
     "`cpu_device_count=2` of XLA's CPU client",
     "src/engine/choose.cpp"},
    {"XLA_COMPILE_ONLY",
     words("hardware that the plugin compiles for: v5e:2x2, h100"),
     "",
     "programs are compiled for hardware that is not there, and never run",
     "src/engine/choose.cpp, torch_xla/_first_use.py, torch_xla/experimental/_compile_only.py, torch_xla/debug/_programs.py"},
    {"PJRT_ALLOCATOR_FRACTION", kShare, "", "share of a GPU's memory that is taken", "torch_xla/experimental/plugins.py", "XLA's: 0.75"},
    {"PJRT_ALLOCATOR_PREALLOCATE", kSwitch, "", "take a GPU's memory at once", "torch_xla/experimental/plugins.py", "XLA's: on"},
    {"PJRT_ALLOCATOR_CUDA_ASYNC", kSwitch, "off", "use CUDA's own allocator", "torch_xla/experimental/plugins.py"},
    {"CPU_NUM_DEVICES",
     whole_number(1, kMaxDevices),
     "1",
     "devices of the embedded engine, which share its processors",
     "src/core/env.cpp, torch_xla/distributed/xla_multiprocessing.py"},
    {"XLA_USE_SPMD",
     kSwitch,
     "off",
     "the program sees all devices as one, and `torch_xla.distributed.spmd` spreads tensors over them",
     "src/engine/pjrt/stablehlo_engine.cpp, torch_xla/_api.py"},
    {"CUDA_ROOT", kPath, "", "folder of CUDA's compiler", "torch_xla/experimental/plugins.py", "that of the wheel"},
    {"XLA_FLAGS",
     words("XLA's own flags"),
     "",
     "read by a plugin, and part of the keys of its programs on disk; the embedded engine has no such flags",
     "src/engine/pjrt/client.cpp, src/engine/pjrt/compile_options.cpp, torch_xla/experimental/plugins.py"},

    // Processes, as torchrun and xmp.spawn set them
    {"RANK", whole_number(0, 1 << 20), "", "number of this process in its run", "torch_xla/_world.py, src/program/pending_graph.cpp"},
    {"WORLD_SIZE", whole_number(1, 1 << 20), "", "processes of the run", "torch_xla/_world.py, src/python/device.cpp"},
    {"LOCAL_RANK", whole_number(0, 1 << 20), "", "number of this process on its machine", "torch_xla/_world.py, src/program/analysis.cpp"},
    {"LOCAL_WORLD_SIZE", whole_number(1, 1 << 20), "", "processes of the run on this machine", "torch_xla/_world.py"},
    {"MASTER_ADDR", words("an address"), "", "where the run's store is", "torch_xla/runtime.py"},
    {"MASTER_PORT", whole_number(1, 65535), "", "its port", "torch_xla/_world.py"},
    {"XLA_RUN_SECRET",
     words("a text"),
     "",
     "the secret that the processes of the run share; signs the messages of their meetings",
     "torch_xla/_payloads.py",
     "`xmp.spawn` makes one"},
    // Running
    {"XLA_AUTO_SYNC", kSwitch, "on", "sync after `optimizer.step()`", "torch_xla/_auto_sync.py"},
    {"XLA_SYNC_WAIT", kSwitch, "off", "`torch_xla.sync()` waits until the step has run", "src/program/sync.cpp"},
    {"XLA_MAX_ASYNC_QUEUE",
     whole_number(1, 1 << 20),
     "100",
     "most asynchronous step closures that may wait; a step waits for room",
     "torch_xla/utils/closures.py"},
    {"XLA_COLLECTIVE_TIMEOUT",
     whole_number(1, 86400),
     "300",
     "seconds for which a replica waits for the others of its run before it raises",
     "torch_xla/_peers.py"},
    {"XLA_USE_BF16", kSwitch, "off", "the device stores float32 and float64 as bfloat16", "src/core/env.cpp"},
    {"XLA_DOWNCAST_BF16", kSwitch, "off", "the device stores float32 as bfloat16 and float64 as float32", "src/core/env.cpp"},
    {"XLA_INTERPRETED_OPERATIONS",
     whole_number(0, int64_t{1} << 40),
     "5000",
     "a small program is compiled after this many operations that it runs one by one, by PyTorch's kernels, as eager does; 0: at "
     "once",
     "src/core/env.cpp"},
    {"XLA_COMPILATION_CACHE_SIZE",
     whole_number(1, 1 << 20),
     "2048",
     "traces that keep their programs in memory; the least recently used go first",
     "src/core/env.cpp"},
    {"XLA_PERSISTENT_CACHE_PATH",
     Accepts{Kind::kPath, "a path; empty for none"},
     "",
     "the directory of compiled programs and kernels",
     "src/core/env.cpp",
     "~/.cache/torch_xla"},
    {"XLA_PERSISTENT_CACHE_READ_ONLY", kSwitch, "off", "nothing is written to that directory", "src/core/env.cpp"},
    {"XLA_PLAIN_EXECUTABLES",
     kSwitch,
     "off",
     "a plugin's serialized executables lie in that directory as plain files, for tools that read them",
     "src/core/env.cpp"},
    {"HOME",
     kPath,
     "",
     "the user's folder: where the directory of compiled programs and kernels is by default, and `~` in paths",
     "src/core/env.cpp, src/core/paths.cpp"},

    // Finding faults
    {"XLA_DEBUG", whole_number(0, 5), "0", "each level prints more", "src/core/env.cpp"},
    {"XLA_DEBUG_FILE", kPath, "", "where `XLA_DEBUG` prints to; lines are appended", "src/core/env.cpp", "standard error"},
    {"XLA_VERIFY",
     kSwitch,
     "",
     "checks the rules of graphs after each pass and of schedules after each stage",
     "src/core/env.cpp",
     "on in debug builds and from `XLA_DEBUG=3`"},
    {"PT_XLA_DEBUG", kSwitch, "off", "the same as `PT_XLA_DEBUG_LEVEL=100`", "src/program/analysis.cpp"},
    {"PT_XLA_DEBUG_LEVEL",
     whole_number(0, 100),
     "0",
     "1 prints an analysis of each compile, 2 of each run too",
     "src/program/analysis.cpp"},
    {"PT_XLA_DEBUG_FILE", kPath, "", "where these analyses go; lines are appended", "src/program/analysis.cpp", "standard error"},
    {"PT_XLA_DEBUG_MAX_FRAME", whole_number(1, 1000), "8", "Python frames in an analysis", "src/program/analysis.cpp"},
    {"XLA_SAVE_TENSORS_FILE", kPath, "", "where the graph of each sync goes; lines are appended", "src/program/pending_graph.cpp"},
    {"XLA_SAVE_TENSORS_FMT", words("text, dot, hlo or stablehlo"), "text", "the form of these graphs", "src/program/pending_graph.cpp"},
    {"SAVE_GRAPH_FMT", words("text, dot or hlo"), "text", "the form of graphs that graph_saver writes", "torch_xla/debug/graph_saver.py"},
    {"XLA_METRICS_FILE",
     words("a path, STDOUT or STDERR"),
     "",
     "where `torch_xla.sync()` appends the metrics report",
     "torch_xla/debug/metrics_saver.py"},
    {"MODELCMP_SAVEDIR", kPath, "", "the folder of model_comparator", "torch_xla/debug/model_comparator.py"},
    {"XLA_FUSION", kSwitch, "on", "off: one kernel or library call per node", "src/core/env.cpp"},
    {"XLA_LAZY", kSwitch, "on", "off: sync after each operation", "src/core/env.cpp"},
};

// Names of the original that programs set, and why nothing reads them here.
struct Ignored {
  const char* why;
  const char* names; // with spaces between them
};
inline constexpr Ignored kIgnored[] = {
    {"torchrun and `xmp.spawn` say what a process is, in the variables above",
     "PJRT_DIST_SERVICE_ADDR PJRT_LOCAL_PROCESS_COUNT PJRT_LOCAL_PROCESS_RANK TORCH_DIST_INIT_BARRIER XLA_COORDINATOR_PORT "
     "XLA_USE_DUMMY_STORE XRT_DEVICE_MAP XRT_HOST_ORDINAL XRT_HOST_WORLD_SIZE XRT_LOCAL_WORKER XRT_MESH_SERVICE_ADDRESS "
     "XRT_MULTI_PROCESSING_DEVICE XRT_RUN_WITH_MP XRT_SHARD_LOCAL_ORDINAL XRT_SHARD_ORDINAL XRT_SHARD_WORLD_SIZE "
     "XRT_START_LOCAL_SERVER XRT_TORCH_DIST_METHOD XRT_TORCH_DIST_ROOT XRT_TPUVM_MODE XRT_TPU_CONFIG XRT_WORKERS"},
    {"`CPU_NUM_DEVICES` and `xmp.spawn(nprocs=n)` say how many devices and processes there are",
     "GPU_NUM_DEVICES NEURONCORE_NUM_DEVICES TPU_NUM_DEVICES"},
    {"variables of Cloud TPU machines, which a plugin may read",
     "ACCELERATOR_TYPE ALLOW_MULTIPLE_LIBTPU_LOAD CLOUD_TPU_TASK_ID LIBTPU_INIT_ARGS PTXLA_TPU_LIBRARY_PATH TPUVM_MODE "
     "TPU_ACCELERATOR_TYPE TPU_CHIPS_PER_HOST_BOUNDS TPU_CHIPS_PER_PROCESS_BOUNDS TPU_HOST_BOUNDS TPU_LIBRARY_PATH "
     "TPU_MEGACORE TPU_MESH_CONTROLLER_ADDRESS TPU_MESH_CONTROLLER_PORT TPU_ML_PLATFORM TPU_ML_PLATFORM_VERSION "
     "TPU_PROCESS_ADDRESSES TPU_PROCESS_BOUNDS TPU_PROCESS_PORT TPU_SKIP_MDS_QUERY TPU_VISIBLE_CHIPS TPU_WORKER_HOSTNAMES "
     "TPU_WORKER_ID WORKER_ID"},
    {"a plugin is found when `PJRT_DEVICE` names it",
     "NEURON_LIBRARY_PATH PJRT_DYNAMIC_PLUGINS SKIP_MEGASCALE_PJRT_CLIENT XLA_REGISTER_INSTALLED_PLUGINS XLA_USE_IFRT "
     "XPU_LIBRARY_PATH"},
    {"programs run while the next is recorded, on threads that the engine chooses",
     "PJRT_CPU_ASYNC_CLIENT PJRT_GPU_ASYNC_CLIENT PJRT_TPU_MAX_INFLIGHT_COMPUTATIONS XLA_IO_THREAD_POOL_SIZE "
     "XLA_RELEASE_GIL_DURING_TRANSFER XLA_THREAD_POOL_SIZE XLA_TPU_MAX_INFLIGHT_COMPUTATIONS XLA_TRANSFER_SCALAR_ASYNC"},
    {"the lines of a program are always kept", "XLA_HLO_DEBUG XLA_IR_DEBUG"},
    {"`XLA_LAZY=0` runs operations one by one", "XLA_GET_TENSORS_OPBYOP XLA_SYNC_TENSORS_OPBYOP XLA_USE_EAGER_DEBUG_MODE"},
    {"`XLA_SAVE_TENSORS_FILE` and `XLA_DEBUG` show graphs and compiles",
     "TORCH_XLA_DEBUG XLA_DUMP_FATAL_STACK XLA_DUMP_HLO_GRAPH XLA_DUMP_POST_OPTIMIZATIONS XLA_DYNAMO_DEBUG XLA_EMIT_STEPLOG "
     "XLA_FNTRACKER_FILE XLA_FNTRACKER_LEVEL XLA_FNTRACKER_LIST XLA_OP_PRINT_COMPUTATIONS XLA_SAVE_HLO_FILE"},
    {"the metrics keep and show what the original's do by default", "RATE_TRACKER_SMOOTHING XLA_METRICS_PERCENTILES XLA_METRICS_SAMPLES"},
    {"there is no such log",
     "GRPC_VERBOSITY TF_CPP_LOG_THREAD_ID TF_CPP_MAX_VLOG_LEVEL TF_CPP_MIN_LOG_LEVEL TF_CPP_VLOG_FILENAME TF_CPP_VMODULE"},
    {"`XLA_USE_BF16` and `XLA_DOWNCAST_BF16` are the only other types of memory", "XLA_DOWNCAST_FP16 XLA_USE_32BIT_LONG XLA_USE_FP16"},
    {"the recorder and the engine have no such switch",
     "DISABLE_NUMERIC_CC_TOKEN ENABLE_COLLECTIVE_MATMUL_IN_MP EXPERIMENTAL_XLA_UNBOUNDED_DYNAMISM XLA_DENSE_GATHER_FACTOR "
     "XLA_DENSE_SCATTER_FACTOR XLA_DISABLE_FUNCTIONALIZATION XLA_ENABLE_PARAM_ALIASING XLA_EXPERIMENTAL XLA_FALLBACK_CPU "
     "XLA_LAYOUTS XLA_MAX_PADDING_FACTOR XLA_NO_SPECIAL_SCALARS XLA_PARAMETER_WRAPPING_THREADSHOLD XLA_RESIZE_SPLIT_FACTOR "
     "XLA_RNG_BIT_GENERATOR XLA_STABLEHLO_COMPILE XLA_TENSOR_UPDATE_SYNC"},
    {"`XLA_COMPILATION_CACHE_SIZE` is the only such limit",
     "SPLIT_EXECUTOR_CACHE_SIZE XLA_DEVDATA_CACHE_SIZE XLA_IR_SHAPE_CACHE_SIZE XLA_TRIM_GRAPH_CHECK_FREQUENCY "
     "XLA_TRIM_GRAPH_SIZE"},
    {"the program gives the marks",
     "CONVERT_SHLO_TO_SHARDY XLA_AUTO_SPMD XLA_AUTO_SPMD_MESH XLA_AUTO_USE_GROUP_SHARDING "
     "XLA_DYNAMO_INPUT_SHARDING_CHECK_THRESHOLD"},
    {"gradients go in a few large collectives, and a single replica sends none", "ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB XLA_ALWAYS_ALLREDUCE"},
};

constexpr const Variable* find_variable(std::string_view name) {
  for (const Variable& variable : kVariables) {
    if (name == variable.name) {
      return &variable;
    }
  }
  return nullptr;
}

// The row of that name, found at compile time: a name without a row does not compile.
consteval const Variable& variable(std::string_view name) {
  return *find_variable(name);
}

} // namespace torch_xla::env
