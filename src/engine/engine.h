// Engine: compiles a lowered graph to an executable for a device and runs it. Nothing above this folder depends on which engine runs:
// engine() returns it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/devices.h"
#include "core/errors.h"
#include "core/precision.h"
#include "ir/graph.h"
#include "stablehlo/target.h"

namespace c10 {
struct IValue;
}

namespace torch_xla {

// Memory of one value on one of the engine's devices. Immutable by contract once a run has filled it, except by donation.
class EngineBuffer {
 public:
  EngineBuffer(Type type, Dims strides, int device, ShardingRef sharding = nullptr)
      : type_(std::move(type)), strides_(std::move(strides)), device_(device), sharding_(std::move(sharding)) {}
  virtual ~EngineBuffer() = default;
  EngineBuffer(const EngineBuffer&) = delete;
  EngineBuffer& operator=(const EngineBuffer&) = delete;

  const Type& type() const {
    return type_;
  }
  // Memory order in elements; covers the buffer densely.
  const Dims& strides() const {
    return strides_;
  }
  int device() const {
    return device_;
  }
  // How the value is cut over the devices, where programs run over several.
  const ShardingRef& sharding() const {
    return sharding_;
  }
  // False for a value that the host has and no device yet: the first program that reads it moves it to them.
  virtual bool is_placed() const {
    return true;
  }
  // Address of element 0, or null where the host cannot read the memory.
  virtual void* host_pointer() const = 0;
  // True when no other EngineBuffer shares the memory: only then may it be written in place.
  virtual bool sole_owner() const = 0;

 private:
  Type type_;
  Dims strides_;
  int device_;
  ShardingRef sharding_;
};
using EngineBufferRef = std::shared_ptr<EngineBuffer>;

// The error of a run that was cancelled.
constexpr const char* kCancelled = "the program that computes this value was cancelled by an interrupt";

// What a run gets from the recording thread.
struct RunOptions {
  int threads = 0; // 0: the engine's own choice
  // Runs with lower numbers are cancelled: they fail soon, and no value is lost. Any thread may raise it, and it outlives the runs. May be
  // null.
  const std::atomic<uint64_t>* first_kept = nullptr;
  // For the events of its steps: the run's number, and the user's lines by Node::location; the lines outlive the run.
  uint64_t number = 0;
  std::span<const int64_t> lines = {};
  // Wakes threads that wait for the previous run. Set if Executable::leaves_processor() and there are such threads.
  std::function<void()> tell = {};

  bool is_cancelled() const {
    return first_kept && number < first_kept->load(std::memory_order_relaxed);
  }
};

struct RunArgs {
  std::vector<EngineBufferRef> inputs; // parallel to Graph::parameters; the run drops each at its last use
  std::vector<bool> donated; // inputs[i] has no other reader: an output may take its memory
  std::vector<bool> restored; // donated, and some tensor's value again if the run fails: the program overwrites it as late as it can
  std::vector<uint64_t> scalars; // parallel to Graph::scalars: double or int64 bits
  RunOptions options;
  std::vector<EngineBufferRef> outputs; // filled by the run, parallel to Graph::outputs
};

// A step of a run failed; location() is the Node::location of its node in the compiled graph.
class StepError : public UserError {
 public:
  StepError(ErrorKind kind, const std::string& what, int32_t location) : UserError(kind, what), location_(location) {}
  int32_t location() const {
    return location_;
  }

 private:
  int32_t location_;
};

// A program of one device: its inputs and outputs lie there.
class Executable {
 public:
  virtual ~Executable() = default;
  // Runs to the end on the calling thread (and the engine's pool). Throws UserError; then each input of `restored` is null or unchanged,
  // other donated inputs may be lost, and all else is unchanged.
  virtual void run(RunArgs& args) = 0;
  // True if the device computes by itself after start(), so the next run can be started before this one has ended.
  virtual bool is_asynchronous() const {
    return false;
  }
  // Fills the outputs; later runs may take them at once. The caller calls the returned function once, in the order of the starts: it waits
  // for the end and throws as run() does. An empty function means that the run has ended: the program is not asynchronous.
  virtual std::function<void()> start(RunArgs& args) {
    run(args);
    return {};
  }
  // Whether run(), called now by this thread, begins by leaving a processor to the program's own threads. It calls RunOptions::tell then.
  virtual bool leaves_processor() const {
    return false;
  }
  // Whether run(), called now by any thread, would use only that thread, because other processes have the other processors.
  virtual bool is_alone() const {
    return false;
  }
  // Bytes of scratch memory that a run needs besides inputs and outputs.
  virtual int64_t scratch_bytes() const {
    return 0;
  }
  // Bytes of machine code; -1 where it is not known.
  virtual int64_t code_bytes() const {
    return -1;
  }
  // How the device's compiler cuts output i over the devices.
  virtual ShardingRef output_sharding(size_t /*i*/) const {
    return nullptr;
  }
  // Whether a run may throw StepError for the values of its inputs: an index out of range.
  virtual bool checks_values() const {
    return false;
  }
  // Whether it runs operation by operation, as recorded: it needs no compile, but is slower than a compiled program.
  virtual bool is_interpreted() const {
    return false;
  }
  // The steps in their order, for dumps; empty without CompileOptions::keep_text.
  virtual std::string text() const {
    return {};
  }

  // Expected time of a run: an estimate before the first run, then the measured time. The executor recognizes short programs by it.
  std::atomic<int64_t> usual_run_ns{INT64_MAX};
};

struct EngineMemoryInfo {
  int64_t bytes_used = 0; // held by live buffers
  int64_t bytes_limit = 0; // 0: unknown
  int64_t peak_bytes_used = 0;
  int64_t bytes_reserved = 0; // used, or kept for later; 0: unknown
  int64_t peak_bytes_reserved = 0;
};

// A trace that grows without a sync is cut at a repeat of its loop once it has this many nodes, or holds this many bytes.
struct TraceLimits {
  size_t nodes = 4096;
  int64_t held_bytes = int64_t{4} << 30;
};

// Options that plugins take, and attributes that they report.
using NamedValue = std::variant<std::string, bool, int64_t, double, std::vector<int64_t>>;
using NamedValues = std::map<std::string, NamedValue>;

struct CompileOptions {
  int device = 0; // the device that will run it
  Precision precision;
  // Of the first run; later ones may differ.
  std::vector<bool> donated; // by parameter; empty: none
  std::function<std::string(int32_t)> location; // the user's line of a Node::location; may be empty
  // Called now and then on the calling thread; where it throws the compile ends with its exception. May be empty.
  std::function<void()> poll;
  const Graph* interpretable = nullptr; // the trace, if interpret() or restore() may make a program that is interpreted
  bool often_interpreted = false; // other sizes of its structure were interpreted often: interpret only if planning costs more
  bool keep_text = false; // Executable::text() will be asked
  // Gets the bytes from which restore() makes the program again; unchanged if the program has no such form. May be null.
  std::string* stored = nullptr;
  bool* needs_new_code = nullptr; // set to whether code had to be generated for any part of the program; may be null
  NamedValues custom = {}; // the plugin's own options, as the user gives them
};

// Thread-safe. All of it may throw UserError; OutOfMemory where a buffer finds no room. A `device` is one of num_devices().
class Engine {
 public:
  virtual ~Engine() = default;
  virtual int num_devices() const = 0; // at least one, at most kMaxDevices
  // A program for a trace: lower(), then compile().
  std::shared_ptr<Executable> compile_trace(const Graph& trace, const CompileOptions& options = {}) {
    return compile(lower(trace, options.device), options);
  }
  // A program that runs CompileOptions::interpretable without a compile, for its first runs (is_interpreted()); null if this engine or
  // trace has none.
  virtual std::shared_ptr<Executable> interpret(const CompileOptions& /*options*/) {
    return nullptr;
  }
  // A program that runs a trace of any size node by node, in the order of recording: of several nodes that fail for what their operands
  // hold the first one throws. Where programs of this engine check values (Executable::checks_values()); else null.
  virtual std::shared_ptr<Executable> run_in_order(const Graph& /*trace*/, int /*device*/) {
    return nullptr;
  }
  // The trace as compile() takes it: primitives, views and the library calls that this engine runs as one step. The device is for the
  // events.
  virtual Graph lower(const Graph& trace, int device) const = 0;
  virtual std::shared_ptr<Executable> compile(Graph graph, const CompileOptions& options = {}) = 0;
  // All settings, besides the trace, that the program of compile_trace() depends on: programs of other settings cannot be restored.
  virtual std::string settings(const CompileOptions& options) const = 0;
  // The program from bytes that compile_trace() stored under the same settings, or null if it must be compiled again. Throws InternalError
  // for other bytes.
  virtual std::shared_ptr<Executable> restore(std::string_view stored, const CompileOptions& options) = 0;
  // Notes a program stored by an earlier process: later compiles of its structure may generate code that serves both. Throws InternalError
  // for other bytes.
  virtual void learn(std::string_view /*stored*/) {}
  // The directory of parts that several programs share; empty if there is none.
  virtual void set_cache_directory(const std::string& /*path*/, bool /*read_only*/) {}
  // Whether every library call can be a step of a program. If not, only calls with an expansion or a writer can, and values are of native
  // types.
  virtual bool runs_library_calls() const = 0;
  // Whether a layer of an LSTM of this type is fast as one call, and has the values of ATen's own layer.
  virtual bool runs_lstm_layers(DType dtype) const {
    return dtype == DType::F32;
  }
  // Whether a program of a known structure with other sizes mostly needs no new code: then compiling it is as fast as restoring it.
  virtual bool reuses_code() const {
    return false;
  }
  // Whether views of a program may be moved by its numbers (ir/graph.h).
  virtual bool moves_views() const {
    return false;
  }
  // Whether a program should have few numbers: those that never change become constants, others that are equal in all runs become one.
  virtual bool shares_numbers() const {
    return false;
  }
  // Whether outputs have Graph::output_strides. If not, the engine ignores them.
  virtual bool orders_outputs() const {
    return false;
  }
  // Whether the devices of the process share one memory, so that values lie on all of them.
  virtual bool shares_memory() const {
    return false;
  }
  // The number of devices that each program of device 0 runs over.
  virtual int num_partitions() const {
    return 1;
  }
  // From now on each program runs over all devices of the process: device 0 stands for all of them, and the others are refused. Values on
  // device 0 stay. Throws UserError (NotImplemented) if the engine has no such programs.
  virtual void run_over_all_devices();
  // A value that is_placed() is false of, cut over the devices.
  virtual EngineBufferRef place(const EngineBuffer& /*buffer*/, ShardingRef /*sharding*/) {
    XLA_ASSERT(false, "this engine places values itself");
  }
  // The layers of a large model repeat, too: an engine whose programs should be whole steps has high limits.
  virtual TraceLimits trace_limits() const {
    return {};
  }
  // How it reads PyTorch's switches for CompileOptions::precision.
  virtual PrecisionRules precision_rules() const {
    return {};
  }
  // What the StableHLO for its compiler differs in.
  virtual StableHloTarget stablehlo_target() const {
    return {};
  }
  // Whether CompileOptions::custom may have options.
  virtual bool takes_custom_options() const {
    return false;
  }
  // A buffer of the device with a copy of host memory. `strides` is the dense order of that memory (empty: row-major). The caller may reuse
  // the memory when the call returns. The buffer's own strides() may differ.
  virtual EngineBufferRef upload(int device, const Type& type, const Dims& strides, const void* data) = 0;
  // As upload() of memory that nobody writes any more: an engine that can read it makes no copy. `release` is called once, after the last
  // use.
  virtual EngineBufferRef adopt(int device, const Type& type, const Dims& strides, void* data, std::function<void()> release) = 0;
  // A row-major buffer of memory that nobody has written to, or null: then it holds zeros, which a program computes.
  virtual EngineBufferRef uninitialized(int /*device*/, const Type& /*type*/) {
    return nullptr;
  }
  // Empty where runs compute values. Else buffers have shapes and types alone, and this tells the user why: download() throws it.
  virtual std::string why_no_values() const {
    return {};
  }
  // Copies the buffer's elements to host memory, in the order of its strides().
  virtual void download(const EngineBuffer& buffer, void* data) = 0;
  // Ends the calling thread's team of threads. Called by a thread that hands a run to another thread, before the run starts, and by a
  // thread that has nothing to run.
  virtual void leave_processors() {}
  virtual EngineMemoryInfo memory_info(int device) const = 0;
  // Gives unused memory that the engine keeps back to the system.
  virtual void empty_cache(int /*device*/) {}
  // Resets the peaks of memory_info(), if the engine counts them itself.
  virtual void reset_peak_memory(int /*device*/) {}
  // The kind of hardware, in capitals: "CPU", "CUDA".
  virtual std::string hardware() const = 0;
  // Attributes that the device reports; at least "kind", its maker's name for it.
  virtual NamedValues attributes(int device) const = 0;
};

// The engine that PJRT_DEVICE names at the first call; never destroyed. Throws UserError for an unknown value, for another environment
// variable that is not understood and for a plugin that cannot be loaded, at each call until one succeeds.
Engine& engine();
// The embedded CPU engine; never destroyed.
Engine& cpu_engine();
// Begins to look how busy other processes keep the processors, so that the first run knows. Called when the library is loaded.
void watch_processors();
// For a call of ATen's CPU kernel of the row, by whichever engine: raises ATen's error for arguments that the kernel takes without a look,
// and changes those that it misreads. False where there is nothing to do.
bool prepare_call(std::string_view row, std::vector<c10::IValue>& arguments);
// As engine().num_devices(), without making the embedded engine for the answer.
int num_devices();
// As num_devices(), without opening a plugin: 1 if a plugin has yet to be opened, 0 if the environment is not understood.
int num_visible_devices() noexcept;
// Throws UserError with the number of devices unless this is one of them.
void check_device(int64_t device);
// Throws UserError as engine() for an unknown value of PJRT_DEVICE and for a missing plugin. Opens nothing.
void check_choice();
// Reads the directory of compiled code again (env::cache_dir(), env::cache_is_read_only()), as the first call of engine() does.
void reopen_caches();
// The value of PJRT_DEVICE that engine() took; empty before its first success.
std::string chosen_device();

struct PluginFile {
  std::string path;
  NamedValues options; // of the client, as the plugin's vendor defines them
};
// Finds the plugin for a value of PJRT_DEVICE other than CPU and LIBRARY, or nothing. engine() calls it, without locks; set it before.
using PluginFinder = std::optional<PluginFile> (*)(const std::string& device);
void set_plugin_finder(PluginFinder find);

} // namespace torch_xla
