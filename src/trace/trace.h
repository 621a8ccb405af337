// Trace: the nodes that a recorder has appended on one device since its last sync, with the key for the program cache.
#pragma once

#include <atomic>
#include <unordered_map>
#include <vector>

#include "core/hash.h"
#include "ir/graph.h"
#include "runtime/recovery.h"
#include "trace/cut.h"
#include "trace/lazy_value.h"

namespace torch_xla {

// The device's recording lock guards all members that are not atomic. An append that fails for lack of memory (std::bad_alloc) leaves the
// trace unchanged.
class Trace {
 public:
  enum class Kind : uint8_t {
    kThread, // a thread's, to be run
    // A capture's (recording/capture.h), never run:
    kBody, // reads values from outside, and must not write there
    kStep, // reads and writes storages
  };
  explicit Trace(int device, Kind kind = Kind::kThread) : device_(device), kind_(kind) {}
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  int device() const {
    return device_;
  }
  bool is_captured() const {
    return kind_ != Kind::kThread;
  }
  bool is_step() const {
    return kind_ == Kind::kStep;
  }
  ValueId add_parameter(const BufferRef& buffer);
  // The parameter for the buffer; kNoValue: none.
  ValueId find_parameter(const Buffer& buffer) const;
  // Only in a captured trace: a new parameter for a buffer, or for a content not known yet (null).
  ValueId add_input(BufferRef buffer, const Type& type);
  // The parameter's buffer; null for other values.
  BufferRef buffer_of(ValueId v) const;
  ValueId add_scalar(DType dtype, uint64_t bits);
  // Whether the numbers that the calling thread adds from now on are known to change from run to run, as those of an optimizer's step are.
  static void expect_changes(bool on);
  // Appends a node and folds it into the key. Returns the first result.
  ValueId add_node(const Op& op, InlineVec<ValueId, 4>&& operands, Attrs&& attrs, std::span<const Type> results, int64_t location);
  // Notes the dense, not row-major order of a cell's value: a program's output has this memory order. The first note of a value counts.
  // Part of the key.
  void note_order(ValueId v, const Dims& strides);
  // The noted orders, by value; all empty without notes.
  std::vector<Dims> orders_of(const std::vector<ValueId>& values) const;
  // The lazy value of a result, made at first use, with a reference for the trace and one for the caller.
  LazyValue* lazy(ValueId id);

  bool empty() const {
    return graph_.nodes.empty();
  }
  // Whether a cell refers to the value.
  bool is_alive(ValueId v) const {
    return lazies_[v] && lazies_[v]->refs() > 1;
  }
  // Whether other replicas wait for a node of the trace.
  bool has_collectives() const {
    return has_collectives_;
  }
  const Graph& graph() const {
    return graph_;
  }
  // Of everything that determines the program.
  Hash128 key() const {
    Hash128 key = key_;
    key.add(offset_hash_);
    return key;
  }
  // Of everything but the offsets of views.
  const Hash128& key_without_offsets() const {
    return key_;
  }
  // Offsets of the views and view updates, in the order of their nodes.
  const std::vector<int64_t>& offsets() const {
    return offsets_;
  }
  // Bytes of the parameters.
  int64_t input_bytes() const {
    return input_bytes_;
  }
  // Bytes of the parameters that only this trace holds: neither in a tensor nor among the replaced contents.
  int64_t orphaned_bytes() const;
  uint64_t generation() const {
    return generation_;
  }
  // When the first node was appended, as metrics::now_ns().
  int64_t start_ns() const {
    return start_ns_;
  }
  std::vector<LazyValue*>& lazies() {
    return lazies_;
  }
  std::vector<BufferRef>& inputs() {
    return inputs_;
  }
  std::vector<PreviousRef>& replaced() {
    return replaced_;
  }
  std::vector<uint64_t>& scalars() {
    return scalars_;
  }
  const std::vector<uint64_t>& scalar_bits() const {
    return scalars_;
  }
  // By number: whether it was added while changes were expected. No part of the key.
  const std::vector<bool>& changing_numbers() const {
    return changing_;
  }
  std::vector<int64_t>& locations() {
    return locations_;
  }
  const std::vector<int64_t>& locations() const {
    return locations_;
  }
  const std::vector<uint64_t>& node_hashes() const {
    return node_hashes_;
  }
  std::vector<Recorded::Overwritten>& overwritten() {
    return overwritten_;
  }
  // The graph and the overwritten buffers, for the run of a program with these outputs, in these orders. Clear the trace afterwards.
  RecordedRef take_recorded(const std::vector<ValueId>& outputs, const std::vector<Dims>& strides);
  // Starts again, empty; keeps memory for the next trace.
  void clear();

  CutPlan& cut() {
    return cut_;
  }
  // Counts of this trace's runs, and of programs made or loaded for it.
  std::atomic<int64_t> num_runs{0};
  std::atomic<int64_t> num_programs{0};
  // Its thread has ended: each sync of the device also syncs this trace.
  std::atomic<bool> is_left{false};

 private:
  // Rising across all traces.
  static uint64_t new_generation();
  template <typename Append>
  ValueId append(Append append);

  const int device_;
  const Kind kind_;
  CutPlan cut_;
  Graph graph_;
  Hash128 key_; // without offsets
  uint64_t offset_hash_ = 0;
  std::vector<int64_t> offsets_;
  std::vector<std::pair<ValueId, Dims>> orders_; // each value once
  uint64_t generation_ = new_generation();
  std::vector<LazyValue*> lazies_; // parallel to graph_.values; null: no cell has referred to the value
  std::vector<BufferRef> inputs_; // parallel to graph_.parameters
  // Of the first num_found_ inputs, for buffers that lost their slots to a younger trace.
  mutable std::unordered_map<const Buffer*, ValueId> found_;
  mutable size_t num_found_ = 0;
  int64_t input_bytes_ = 0;
  std::vector<PreviousRef> replaced_; // previous contents of cells that got values of this trace
  std::vector<Recorded::Overwritten> overwritten_;
  std::vector<std::unique_ptr<Recorded>> recorded_; // of earlier runs, some still in use by them: memory for the next runs
  std::vector<uint64_t> scalars_; // parallel to graph_.scalars
  std::vector<bool> changing_; // parallel to graph_.scalars
  std::vector<int64_t> locations_; // parallel to graph_.nodes
  bool has_collectives_ = false;
  int64_t start_ns_ = 0;
  std::vector<uint64_t> node_hashes_; // of each node alone: position-independent, for loop detection
};

} // namespace torch_xla
