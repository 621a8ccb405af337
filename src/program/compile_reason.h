// Why a program was compiled: the difference of its trace and the nearest one compiled before it.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "program/program_cache.h"
#include "trace/trace.h"

namespace torch_xla {

struct CompileReason {
  enum class Kind : uint8_t {
    kFirst, // nothing was compiled before
    kUnlike, // no operation in common with a remembered trace
    kAliveValues, // the trace is known, but one more tensor is alive at its end
    kNumbers, // the trace is known, but a number constant so far, or equal to others, now differs
    kOperation, // another operation, one more or one less
    kShape, // of an operand or result
    kDtype, // of an operand (numbers too) or result
    kConstant, // an argument that is part of the program
    kOperands, // other tensors as operands
    kMemoryOrder, // strides of an input
    kNewDevice, // the trace is the same: another device has its program
    kSettings, // the trace is the same: a switch of PyTorch or of this package
  };

  Kind kind = Kind::kFirst;
  int device = 0; // the program's
  std::string what; // a sentence: the state now and before
  // If one operation is compared: its name, and the difference as text ("f32[3,4]", a count of operands, an argument).
  std::string operation;
  std::string now;
  std::string before;
  int64_t line = -1; // the user's line for location_text(); -1: unknown
  int64_t line_before = -1; // the same in the earlier trace
  int64_t line_of_operand = -1; // line of that operation's last operand: for a backward operation often its forward
  size_t nodes = 0; // of the trace
  size_t nodes_before = 0; // of the earlier one
  int64_t time_ns = 0; // metrics::now_ns() within the sync
  const char* cause = ""; // of the sync
};

const char* kind_text(CompileReason::Kind kind); // "shape", "alive values", ...
// The sentence with both lines, as several lines of text.
std::string reason_text(const CompileReason& reason);

// The last few compiled traces, and the reasons for the last compiles. Thread-safe; its lock is a leaf.
class CompileHistory {
 public:
  static CompileHistory& get(); // leaked on purpose
  // The reason to compile the trace for the device. Its program cache has this entry, without a program for `alive`.
  CompileReason find(int device, const Trace& trace, const ProgramEntry& entry, const ValueBits& alive, const char* cause) const;
  // Remembers a compiled trace and its reason. A failed compile is not remembered: the next try has the same reason.
  void add(const Trace& trace, const CompileReason& reason);
  // Remembers a trace whose program came from disk; later traces are compared with it too.
  void add_restored(int device, const Trace& trace);
  std::vector<CompileReason> reasons() const; // the latest last

 private:
  struct Remembered {
    int device;
    Graph graph; // without outputs
    std::vector<int64_t> lines; // by node
    std::vector<uint64_t> node_hashes;
    Hash128 key;
  };

  const Remembered* find_nearest(int device, const Trace& trace) const;
  void remember(int device, const Trace& trace);

  mutable std::mutex mutex_; // guards all below
  std::deque<Remembered> traces_; // the latest first
  size_t num_nodes_ = 0; // of traces_
  std::deque<CompileReason> reasons_;
};

} // namespace torch_xla
