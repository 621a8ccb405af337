// Which traces are run node by node, and how.
#include "engine/cpu/program/interpreted.h"

#include <algorithm>
#include <numeric>

#include "core/env.h"
#include "core/errors.h"
#include "engine/cpu/cost.h"
#include "engine/cpu/library/interpreter.h"
#include "engine/cpu/program/step_span.h"
#include "engine/cpu/threads/team.h"
#include "ir/type.h"

namespace torch_xla::cpu {
namespace {

int64_t nbytes(const Graph& trace, ValueId value) {
  const bool is_none = value == kNoValue || trace.type(value).dtype == DType::Undefined;
  return is_none ? 0 : trace.type(value).nbytes();
}

// Bytes of its results, or for kernels such as sums of its largest operand. Results of views belong to their operands.
int64_t bytes_computed(const Graph& trace, const Node& node) {
  int64_t bytes = 0;
  for (int32_t i = 0; i < (node.op->kind == OpKind::kView ? 0 : node.num_results); ++i) {
    bytes += nbytes(trace, node.result(i));
  }
  if (node.op->kind == OpKind::kComposite) {
    for (ValueId operand : node.operands) {
      bytes = std::max(bytes, nbytes(trace, operand));
    }
  }
  return bytes;
}

int64_t bytes_computed(const Graph& trace) {
  return std::accumulate(
      trace.nodes.begin(), trace.nodes.end(), int64_t{0}, [&](int64_t sum, const Node& node) { return sum + bytes_computed(trace, node); });
}

// A guess for a program that has not run yet.
bool looks_short(const Graph& trace) {
  if (trace.nodes.size() > kShortInterpretedNodes) {
    return false;
  }
  int64_t bytes = bytes_computed(trace);
  for (ValueId parameter : trace.parameters) {
    bytes += trace.type(parameter).nbytes();
  }
  return bytes <= kSmallProgramBytes;
}

class InterpretedProgram final : public Executable {
 public:
  InterpretedProgram(Graph trace, int device)
      : trace_(std::move(trace)),
        live_(find_live_nodes(trace_)),
        interpreter_(trace_, live_, device),
        device_(device),
        pool_(Pool::get(device)) {
    if (looks_short(trace_)) {
      usual_run_ns = 0;
    }
  }

  void run(RunArgs& args) override {
    use_team(args.options.threads);
    InterpreterRun run(interpreter_, args.scalars, pool_, args.options.threads);
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      run.set_parameter(i, cpu_buffer(args.inputs[i]).block()->data());
    }
    for (size_t i = 0; i < trace_.nodes.size(); ++i) {
      if (live_[i]) {
        run_node(run, i, args.options);
      }
    }
    collect_outputs(run.take_outputs(), args);
  }

  int64_t code_bytes() const override {
    return 0;
  }
  bool checks_values() const override {
    return interpreter_.checks_values();
  }
  bool is_interpreted() const override {
    return true;
  }

 private:
  void run_node(InterpreterRun& run, size_t i, const RunOptions& options) const {
    const Node& node = trace_.nodes[i];
    XLA_CHECK(!options.is_cancelled(), kCancelled);
    const StepSpan span(observer::Phase::kLibrary, device_, node.op->name, node.location, options);
    run.compute(i);
  }

  void collect_outputs(std::vector<ResultMemory> outputs, RunArgs& args) const {
    args.outputs.clear();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Value& value = trace_.values[trace_.outputs[i]];
      if (value.kind == ValueKind::kParameter) {
        args.outputs.push_back(args.inputs[static_cast<size_t>(value.index)]);
        continue;
      }
      args.outputs.push_back(std::make_shared<CpuBuffer>(value.type, order_of_output(trace_, i), device_, std::move(outputs[i].block)));
    }
    args.inputs.clear();
  }

  const Graph trace_;
  const std::vector<bool> live_; // by node
  const Interpreter interpreter_;
  const int device_;
  Pool& pool_;
};

} // namespace

std::shared_ptr<Executable> run_in_order(Graph trace, int device) {
  return std::make_shared<InterpretedProgram>(std::move(trace), device);
}

std::shared_ptr<Executable> interpret(const Graph& trace, const CompileOptions& options) {
  const bool is_plain = env::float_storage() == FloatStorage::kFull;
  const int64_t mean_bytes = options.often_interpreted ? kOftenInterpretedBytes : kInterpretedBytes;
  const bool is_small = bytes_computed(trace) <= mean_bytes * static_cast<int64_t>(trace.nodes.size());
  const bool is_fit = is_plain && is_small && can_interpret(trace);
  return is_fit ? run_in_order(trace, options.device) : nullptr;
}

} // namespace torch_xla::cpu
