// Runs the nodes of a trace one by one with ATen's kernels, like eager PyTorch: no passes, no plan, and code only for nodes without a
// kernel of ATen's.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/InferenceMode.h>

#include <memory>
#include <span>
#include <vector>

#include "engine/cpu/library/aten_allocator.h"
#include "engine/cpu/library/call.h"
#include "engine/cpu/library/untold.h"
#include "engine/engine.h"

namespace torch_xla::cpu {

struct NodeForm; // how a node is computed

// Whether no node asks for one program: a row that meets other replicas, runs a loop, orders the others or is another library's.
bool can_interpret(const Graph& trace);

// A trace that outlives it. Immutable.
class Interpreter {
 public:
  // Compiles programs of the `live` nodes that ATen has no kernel for, or throws what compiling does.
  Interpreter(const Graph& trace, const std::vector<bool>& live, int device);

  // As Executable's: true if a row or a node's program checks values.
  bool checks_values() const {
    return checks_values_;
  }

 private:
  friend class InterpreterRun;

  const Graph& trace_;
  const int device_;
  std::vector<const NodeForm*> forms_; // by node
  std::vector<bool> widened_; // by node: see widens_products()
  std::vector<std::shared_ptr<Executable>> programs_; // by node; null where ATen computes it
  std::vector<int32_t> last_uses_; // by value: the last live node that takes or gives it; -1 where the value is kept to the end
  bool checks_values_ = false;
};

// One run, on one thread. While it lives, ATen calls of the thread belong to the run.
class InterpreterRun {
 public:
  // `numbers` are parallel to Graph::scalars: double or int64 bits. All memory comes from the pool. `threads`: as RunOptions::threads.
  InterpreterRun(const Interpreter& interpreter, std::span<const uint64_t> numbers, Pool& pool, int threads);
  // Sets the memory of parameter i, in its strides; the run only reads it.
  void set_parameter(size_t i, void* data);
  // Live nodes run in their order, when all parameters are set. Throws StepError with ATen's message.
  void compute(size_t node);
  // The memory of each output, in the trace's output strides; empty for outputs that are parameters. Call it once, after the last node.
  std::vector<ResultMemory> take_outputs();

 private:
  at::Tensor tensor(ValueId v) const;
  at::Tensor laid_out(ValueId v, const Attrs& attrs) const;
  at::Tensor view(const Node& node, const at::Tensor& base, const Dims& dims, size_t moved_by) const;
  void update_view(const Node& node);
  int64_t num_elements_of(const Node& node) const;
  bool call_chosen(const Node& node, const NodeForm& form, const std::vector<c10::IValue>& operands, bool is_widened);
  void call(size_t node);
  void run_program(size_t node, Executable& program);
  void call_or_compile(size_t node);
  void release(size_t node);
  void set_result(const Node& node, int32_t i, at::Tensor result);
  static ResultMemory take(at::Tensor t, const Dims& strides);

  const Interpreter& interpreter_;
  const Graph& trace_;
  const int threads_;
  std::vector<c10::IValue> values_; // by value: tensors and numbers
  const c10::InferenceMode inference_;
  const Untold untold_;
  const PoolRedirect redirect_;
};

} // namespace torch_xla::cpu
