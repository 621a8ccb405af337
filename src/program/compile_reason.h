// Why a program was compiled: in what its trace differs from the nearest one that was compiled before it.
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
    kUnlike, // no operation in common with what is remembered
    kAliveValues, // the trace is known, but a tensor lives at its end that did not
    kNumbers, // the trace is known, but numbers differ that have been equal
    kOperation, // another operation, one more or one less
    kShape, // of an operand or result
    kDtype, // of an operand, a number too, or result
    kConstant, // an argument that is part of the program
    kOperands, // other tensors as operands
    kMemoryOrder, // strides of an input
    kNewDevice, // nothing in the trace: another device has its program
    kSettings, // nothing in the trace: a switch of PyTorch's or of this package
  };

  Kind kind = Kind::kFirst;
  int device = 0; // that the program is for
  std::string what; // a sentence: what is there, and what was there before
  // Where one operation is compared: its name, and what differs as text ("f32[3,4]", a count of operands, an argument).
  std::string operation;
  std::string now;
  std::string before;
  int64_t line = -1; // the user's line for location_text(); -1: not known
  int64_t line_before = -1; // the same in the earlier trace
  int64_t line_of_operand = -1; // where the last operand of that operation was recorded: of a backward operation often its forward
  size_t nodes = 0; // of the trace
  size_t nodes_before = 0; // of the earlier one
  int64_t time_ns = 0; // of metrics::now_ns(), within the sync
  const char* cause = ""; // of the sync
};

const char* kind_text(CompileReason::Kind kind); // "shape", "alive values", ...
// The sentence with both lines, several lines of text.
std::string reason_text(const CompileReason& reason);

// What was compiled last, a few traces, and the reasons for the last compiles. Thread-safe; its lock is a leaf.
class CompileHistory {
 public:
  static CompileHistory& get(); // leaked on purpose
  // The reason for compiling the trace for the device, whose program cache has an entry without a program for `alive`.
  CompileReason find(int device, const Trace& trace, const ProgramEntry& entry, const ValueBits& alive, const char* cause) const;
  // Remembers a trace that was compiled and why. One whose compile has failed is not known: the next try has the same reason.
  void add(const Trace& trace, const CompileReason& reason);
  // Remembers a trace whose program was on disk, with which later ones are compared, too.
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
