// Bodies: the part of a capture's trace between arguments and results, as a computation.
#include <algorithm>

#include "core/errors.h"
#include "ops/registry.h"
#include "recording/append.h"
#include "recording/capture.h"
#include "recording/copy.h"

namespace torch_xla {
namespace {

constexpr const char* kOutside = "the value of a tensor in the body of a loop is asked for outside of it: return it from the body";

using Arguments = std::vector<std::pair<at::Tensor, ValueId>>;

bool is_argument(const Arguments& arguments, ValueId v) {
  return std::any_of(arguments.begin(), arguments.end(), [v](const auto& argument) { return argument.second == v; });
}

// The part of a trace between given values and results.
class Extraction {
 public:
  Extraction(const Trace& trace, const Arguments& arguments)
      : trace_(trace), arguments_(arguments), mapped_(trace.graph().values.size(), kNoValue) {}

  void add_given(ValueId v) {
    // A value given twice: the first place is the value; the second is its own parameter.
    ValueId parameter = out_.add_parameter(trace_.graph().type(v));
    mapped_[static_cast<size_t>(v)] = mapped_[static_cast<size_t>(v)] == kNoValue ? parameter : mapped_[static_cast<size_t>(v)];
  }

  // The graph, with its outside values and scalars in order of the trace.
  Graph run(const std::vector<ValueId>& results) {
    std::vector<bool> needed = find_needed(results);
    for (size_t v = 0; v < needed.size(); ++v) {
      if (needed[v]) {
        add_input(static_cast<ValueId>(v));
      }
    }
    const Graph& graph = trace_.graph();
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (taken_[n]) {
        copy(graph.nodes[n]);
      }
    }
    for (ValueId v : results) {
      out_.outputs.push_back(mapped_[static_cast<size_t>(v)]);
    }
    return std::move(out_);
  }

  const std::vector<ValueId>& shared() const {
    return shared_;
  }
  const std::vector<ValueId>& scalars() const {
    return scalars_;
  }

 private:
  // By value: whether the results need it and no node of the capture computes it.
  std::vector<bool> find_needed(const std::vector<ValueId>& results) {
    const Graph& graph = trace_.graph();
    std::vector<bool> needed(graph.values.size());
    taken_.assign(graph.nodes.size(), false);
    std::vector<ValueId> open(results);
    while (!open.empty()) {
      ValueId v = open.back();
      open.pop_back();
      if (v == kNoValue || mapped_[static_cast<size_t>(v)] != kNoValue) {
        continue;
      }
      XLA_CHECK(!is_argument(arguments_, v), "a result of the body needs an argument that it is not given");
      if (graph.values[static_cast<size_t>(v)].kind != ValueKind::kResult) {
        needed[static_cast<size_t>(v)] = true;
        continue;
      }
      size_t node = static_cast<size_t>(graph.values[static_cast<size_t>(v)].index);
      if (!taken_[node]) {
        taken_[node] = true;
        open.insert(open.end(), graph.nodes[node].operands.begin(), graph.nodes[node].operands.end());
      }
    }
    return needed;
  }

  void add_input(ValueId v) {
    const Value& value = trace_.graph().values[static_cast<size_t>(v)];
    if (value.kind == ValueKind::kScalar) {
      mapped_[static_cast<size_t>(v)] = out_.add_scalar(value.type.dtype);
      scalars_.push_back(v);
    } else {
      mapped_[static_cast<size_t>(v)] = out_.add_parameter(value.type);
      shared_.push_back(v);
    }
  }

  void copy(const Node& node) {
    InlineVec<ValueId, 4> operands;
    for (ValueId v : node.operands) {
      operands.push_back(v == kNoValue ? kNoValue : mapped_[static_cast<size_t>(v)]);
    }
    std::vector<Type> types;
    for (int32_t i = 0; i < node.num_results; ++i) {
      types.push_back(trace_.graph().type(node.result(i)));
    }
    ValueId first = out_.add_node(*node.op, std::move(operands), node.attrs, types);
    for (int32_t i = 0; i < node.num_results; ++i) {
      ValueId& mapped = mapped_[static_cast<size_t>(node.result(i))];
      mapped = mapped == kNoValue ? first + i : mapped;
    }
  }

  const Trace& trace_;
  const Arguments& arguments_;
  Graph out_;
  std::vector<ValueId> mapped_; // by value of the trace
  std::vector<bool> taken_; // by node
  std::vector<ValueId> shared_;
  std::vector<ValueId> scalars_;
};

// By value: whether it needs an argument.
std::vector<bool> find_dependent_values(const Graph& graph, const Arguments& arguments) {
  std::vector<bool> dependent(graph.values.size());
  for (const auto& [tensor, v] : arguments) {
    dependent[static_cast<size_t>(v)] = true;
  }
  for (const Node& node : graph.nodes) {
    auto is_dependent = [&](ValueId v) { return v != kNoValue && dependent[static_cast<size_t>(v)]; };
    if (std::any_of(node.operands.begin(), node.operands.end(), is_dependent)) {
      for (int32_t i = 0; i < node.num_results; ++i) {
        dependent[static_cast<size_t>(node.result(i))] = true;
      }
    }
  }
  return dependent;
}

} // namespace

at::Tensor Capture::add_argument(c10::ScalarType dtype, at::IntArrayRef sizes, const Dims& strides) {
  Type type{to_dtype(dtype), to_dims(sizes)};
  XLA_CHECK_KIND(Type, is_recordable(type.dtype), "the body of a loop cannot have an argument of dtype ", c10::toString(dtype));
  Recording recording(device());
  ValueId v = trace_.add_input(nullptr, type);
  inputs_.push_back({{}, v, /*is_value=*/true});
  at::Tensor tensor = recording.wrap(v, strides);
  arguments_.emplace_back(tensor, v);
  return tensor;
}

std::vector<size_t> Capture::find_written(const std::vector<at::Tensor>& arguments) const {
  Recording recording(device());
  std::vector<ValueId> given = values_of(recording, arguments);
  std::vector<size_t> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (recording.read(arguments[i]) != given[i]) {
      written.push_back(i);
    }
  }
  return written;
}

std::vector<ValueId> Capture::values_of(Recording& recording, const std::vector<at::Tensor>& tensors) const {
  std::vector<ValueId> values;
  for (const at::Tensor& t : tensors) {
    auto found = std::find_if(arguments_.begin(), arguments_.end(), [&](const auto& argument) { return argument.first.is_same(t); });
    values.push_back(found == arguments_.end() ? recording.read(t) : found->second);
  }
  return values;
}

void Capture::mark_backward() {
  auto lock = lock_recorder(device());
  backward_ = trace_.graph().nodes.size();
}

std::vector<at::Tensor> Capture::find_residuals(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& given) {
  Recording recording(device());
  std::vector<ValueId> stops = values_of(recording, given);
  std::vector<ValueId> open = values_of(recording, results);
  const Graph& graph = recording.graph();
  std::vector<bool> known(graph.values.size());
  std::for_each(stops.begin(), stops.end(), [&](ValueId v) { known[static_cast<size_t>(v)] = true; });
  std::vector<bool> dependent = find_dependent_values(graph, arguments_);
  std::vector<ValueId> residuals;
  while (!open.empty()) {
    ValueId v = open.back();
    open.pop_back();
    if (v == kNoValue || known[static_cast<size_t>(v)] || (!graph.find_producer(v) && !is_argument(arguments_, v))) {
      continue;
    }
    known[static_cast<size_t>(v)] = true;
    const Node* node = graph.find_producer(v);
    bool before = !node || static_cast<size_t>(node - graph.nodes.data()) < backward_;
    if (before && dependent[static_cast<size_t>(v)] && (!node || node->op->kind != OpKind::kView)) {
      residuals.push_back(v);
    } else {
      open.insert(open.end(), node->operands.begin(), node->operands.end());
    }
  }
  std::sort(residuals.begin(), residuals.end());
  std::vector<at::Tensor> tensors;
  for (ValueId v : residuals) {
    auto found = std::find_if(arguments_.begin(), arguments_.end(), [&](const auto& argument) { return argument.second == v; });
    tensors.push_back(found == arguments_.end() ? recording.wrap(v) : found->first);
  }
  return tensors;
}

std::vector<Number> Capture::numbers_of(const std::vector<ValueId>& scalars) const {
  std::vector<Number> numbers;
  for (ValueId v : scalars) {
    const Value& value = trace_.graph().values[static_cast<size_t>(v)];
    numbers.push_back({value.type.dtype, trace_.scalar_bits()[static_cast<size_t>(value.index)]});
  }
  return numbers;
}

std::vector<at::Tensor> Capture::shared_of(const std::vector<ValueId>& parameters) const {
  std::vector<at::Tensor> shared;
  for (ValueId v : parameters) {
    shared.push_back(inputs_[static_cast<size_t>(trace_.graph().values[static_cast<size_t>(v)].index)].whole);
  }
  return shared;
}

Body Capture::take(const std::vector<at::Tensor>& arguments, const std::vector<at::Tensor>& results) {
  const std::vector<at::Tensor> shown = without_bits(results);
  Recording recording(device());
  std::vector<ValueId> given = values_of(recording, arguments);
  std::vector<ValueId> wanted = values_of(recording, shown);
  Extraction extraction(trace_, arguments_);
  std::for_each(given.begin(), given.end(), [&](ValueId v) { extraction.add_given(v); });
  Body body;
  body.computation = make_computation(extraction.run(wanted));
  body.shared = shared_of(extraction.shared());
  body.numbers = numbers_of(extraction.scalars());
  return body;
}

// Fails values that cells refer to.
void Capture::fail_alive(const std::function<bool(ValueId)>& is_failed) {
  for (size_t v = 0; v < trace_.lazies().size(); ++v) {
    LazyValue* value = trace_.lazies()[v];
    if (value && value->refs() > 1 && value->trace() == &trace_ && is_failed(static_cast<ValueId>(v))) {
      auto buffer = std::make_shared<Buffer>(trace_.graph().values[v].type, Dims());
      buffer->set_failed(std::make_exception_ptr(UserError(ErrorKind::Runtime, kOutside)));
      value->set_buffer(std::move(buffer));
    }
  }
}

void Capture::fail_dependent() {
  const std::vector<bool> dependent = find_dependent_values(trace_.graph(), arguments_);
  fail_alive([&dependent](ValueId v) { return dependent[static_cast<size_t>(v)]; });
}

// Moves pending values of this capture's cells to the outer trace.
void Capture::move_out() {
  std::vector<std::pair<c10::Storage, Cell*>> cells;
  std::vector<ValueId> values;
  for (const auto& entry : entries_) {
    auto storage = entry->storage.lock();
    if (storage && !entry->content && entry->cell->value && entry->cell->value->trace() == &trace_) {
      cells.emplace_back(std::move(storage), entry->cell);
      values.push_back(entry->cell->value->id());
    }
  }
  if (cells.empty()) {
    return;
  }
  Extraction extraction(trace_, arguments_);
  const Graph graph = extraction.run(values);
  const std::vector<at::Tensor> shared = shared_of(extraction.shared());
  Recording recording(device());
  Appending appending(recording, graph);
  for (size_t i = 0; i < shared.size(); ++i) {
    appending.give(i, shared[i]);
  }
  appending.give_numbers(numbers_of(extraction.scalars()));
  appending.append_nodes();
  for (size_t i = 0; i < cells.size(); ++i) {
    recording.give(cells[i].first, *cells[i].second, appending.at(graph.outputs[i]));
  }
}

} // namespace torch_xla
