// What the device layer, the Python bindings and C++ users may ask of the recorder.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch_xla {

// Why a sync happens.
enum class SyncCause {
  kUser, // torch_xla.sync(), xm.mark_step(), an event
  kOptimizer, // the end of an optimizer's step
  kLoader, // the end of a loader's step
  kStepTrace, // the end of a profiler's step
  kCompile, // the end of a function that torch_xla.compile() runs as a program of its own,
  kBeforeCompile, // and its beginning
  kRead, // of a value
  kCut, // of a long trace
  kEager, // XLA_LAZY=0
  kCollective, // for which other replicas may wait
  kReplay, // of a captured step
};
constexpr int kNumSyncCauses = 11;
const char* cause_text(SyncCause cause); // "user torch_xla.sync"

// Runs what the calling thread, or one that has ended, has pending on the device; with wait also waits for all runs. Throws the error of a
// failed compile or run, and UserError for a device that does not exist. Any thread; call without the GIL.
void sync(int device, bool wait = false, SyncCause cause = SyncCause::kUser);
// The user's sync at the end of a step, in either language: sync(), counted as MarkStep. XLA_SYNC_WAIT=1 waits always.
void mark_step(int device, bool wait, SyncCause cause = SyncCause::kUser);
// Queues everything pending on the device if a collective is among it, for which other replicas may wait. Throws the error of a failed
// compile, none of earlier runs. Any thread; call without the GIL.
void sync_collectives(int device);
// Number of the device's trace and how many nodes it has, if a collective is among them.
std::optional<std::pair<uint64_t, size_t>> pending_collectives(int device);
// Drops the programs that are in memory, of all devices: each trace is compiled again, or read from disk. Those that run go on. Any
// thread; call without the GIL.
void forget_programs();
// Waits until all queued runs of the device have ended; rethrows the first error that nobody has seen. Pending nodes stay pending.
void wait_device_ops(int device);

// Storage for nbytes on the device: a unique address that nothing may read, and a cell as context. No memory is used until a value is
// there.
c10::DataPtr allocate_cell(size_t nbytes, int device);
// untyped_storage().resize_(): keeps the bytes that fit.
void resize_storage_bytes(const c10::Storage& storage, size_t nbytes);

// False: each operation is handed to the device as it is recorded, as with XLA_LAZY=0. On all devices, for threads without a mode of their
// own.
void set_lazy_mode(bool on);
// The calling thread's mode, with those that work for it; nullopt: as the others. Returns the one before.
std::optional<bool> set_own_lazy_mode(std::optional<bool> on);
bool is_lazy_mode();
// Runs by the calling thread so far, with those that work for it, and programs that were made or loaded for them.
std::pair<int64_t, int64_t> count_own_programs();
// Whether it records what has to be one program from now on. Returns what was before.
bool set_records_one_program(bool on);

// Source lines. The provider gives an id of the user's current line, or -1; it is called at each recorded node without the GIL. `call`
// gives one of the name of PyTorch's function that this line called; it is called where a value is read.
using LocationProvider = int64_t (*)();
// "train.py:12 in forward"; called under the recording lock: never takes the GIL.
using LocationResolver = std::string (*)(int64_t id);
void set_location_hooks(LocationProvider provider, LocationProvider call, LocationResolver resolver);
// The Python frames of the calling thread, innermost first, at most so many: "forward (train.py:12)". Called without the GIL.
using FrameReader = std::vector<std::string> (*)(size_t most);
void set_frame_reader(FrameReader reader);

// One ATen overload that a row serves, for the page of operators.
struct ServedOverload {
  std::string name; // "aten::add.out"
  std::string row; // "aten::add.Tensor"
  bool fused; // a scalar body or an expansion; otherwise a library call
  bool complex; // calls with complex numbers are recorded too
  bool has_plugin_form; // otherwise such calls run on the CPU where a plugin is the engine
};
// In the order of their rows; what tensor/ records without a row is not among them.
const std::vector<ServedOverload>& served_overloads();

// The device's pending trace as text, for dumps.
std::string pending_graph_text(int device);
// The name of what this thread records, for analyses and dumps: that of the function which torch_xla.compile() runs. Empty: none.
std::string& graph_name();

// Leak counters of all devices: recorded nodes that are still held, cells alive.
int64_t live_nodes();
int64_t live_cells();

// Registers kernels and fallback with PyTorch; register_device() calls it.
void register_tensor_kernels();

} // namespace torch_xla
