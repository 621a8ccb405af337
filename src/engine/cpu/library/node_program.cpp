// Graphs of one node, their programs, and runs of these on tensors.
#include "engine/cpu/library/node_program.h"

#include <ATen/ops/from_blob.h>

#include <bit>

#include "core/remembered.h"
#include "engine/cpu/library/args.h"
#include "engine/cpu/library/half_products.h"
#include "ir/computation.h"
#include "ir/structure.h"
#include "passes/passes.h"

namespace torch_xla::cpu {
namespace {

// Most programs kept; one more clears the others.
constexpr size_t kMostPrograms = 1024;

bool is_result(const Graph& trace, ValueId v) {
  return trace.type(v).dtype != DType::Undefined;
}

Graph graph_of(const Graph& trace, const Node& node) {
  Graph graph;
  InlineVec<ValueId, 4> operands;
  for (ValueId v : node.operands) {
    if (v == kNoValue) {
      operands.push_back(kNoValue);
    } else if (trace.values[v].kind == ValueKind::kScalar) {
      operands.push_back(graph.add_scalar(trace.type(v).dtype));
    } else {
      operands.push_back(graph.add_parameter(trace.type(v)));
    }
  }
  std::vector<Type> results;
  for (int32_t i = 0; i < node.num_results; ++i) {
    results.push_back(trace.type(node.result(i)));
  }
  const ValueId first = graph.add_node(*node.op, std::move(operands), node.attrs, results);
  for (int32_t i = 0; i < node.num_results; ++i) {
    if (is_result(graph, first + i)) {
      graph.outputs.push_back(first + i);
    }
  }
  return graph;
}

uint64_t bits_of(const c10::IValue& number) {
  return number.isDouble() ? std::bit_cast<uint64_t>(number.toDouble()) : static_cast<uint64_t>(number.toScalar().toLong());
}

EngineBufferRef buffer_over(const at::Tensor& t, const Type& type, int device) {
  return cpu_engine().adopt(device, type, {}, t.data_ptr(), [t] {});
}

// A result that is an operand keeps the operand's memory: the buffer does not own it.
at::Tensor tensor_over(const EngineBufferRef& buffer, const std::vector<at::Tensor>& operands) {
  const Type& type = buffer->type();
  for (const at::Tensor& t : operands) {
    if (type.numel() > 0 && t.data_ptr() == buffer->host_pointer()) {
      return t.view(ref(type.dims));
    }
  }
  return at::from_blob(buffer->host_pointer(), ref(type.dims), [buffer](void*) {}, scalar_type(type.dtype));
}

} // namespace

bool has_program(const Node& node) {
  return !(node.op->traits & (kCollective | kOtherLibrary)) && node.op->written != Written::kNone && !find_body(node);
}

std::shared_ptr<Executable> find_or_compile_node(const Graph& trace, const Node& node, int device) {
  static auto* known = new Remembered<std::shared_ptr<Executable>>(kMostPrograms); // never destroyed
  const Graph graph = graph_of(trace, node);
  Hash128 key = hash_graph(graph);
  key.add(static_cast<uint64_t>(device));
  if (std::optional<std::shared_ptr<Executable>> program = known->find(key)) {
    return *std::move(program);
  }
  CompileOptions options;
  options.device = device;
  std::shared_ptr<Executable> program = cpu_engine().compile(run_passes_on_body(graph, device, {.widens = widens_products}), options);
  known->add(key, program);
  return program;
}

std::vector<at::Tensor> run_node(
    Executable& program, const Graph& trace, const Node& node, const std::vector<c10::IValue>& operands, int device, int threads) {
  RunArgs args;
  args.options.threads = threads;
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < operands.size(); ++i) {
    const ValueId v = node.operands[i];
    if (v != kNoValue && trace.values[v].kind == ValueKind::kScalar) {
      args.scalars.push_back(bits_of(operands[i]));
    } else if (v != kNoValue) {
      tensors.push_back(operands[i].toTensor().contiguous());
      args.inputs.push_back(buffer_over(tensors.back(), trace.type(v), device));
    }
  }
  args.donated.assign(args.inputs.size(), false);
  args.restored.assign(args.inputs.size(), false);
  program.run(args);
  std::vector<at::Tensor> results(static_cast<size_t>(node.num_results));
  for (size_t i = 0, output = 0; i < results.size(); ++i) {
    if (is_result(trace, node.result(static_cast<int32_t>(i)))) {
      results[i] = tensor_over(args.outputs.at(output++), tensors);
    }
  }
  return results;
}

} // namespace torch_xla::cpu
