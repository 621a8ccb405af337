// Recording of bodies: the part of the trace between arguments and results becomes a computation.
#include "tensor/capture.h"

#include <algorithm>

#include "core/errors.h"
#include "engine/engine.h"
#include "ops/registry.h"
#include "tensor/copy.h"

namespace torch_xla {
namespace {

std::atomic<uint32_t> last_number{0};

constexpr const char* kOutside = "the value of a tensor in the body of a loop is asked for outside of it: return it from the body";

using Arguments = std::vector<std::pair<at::Tensor, ValueId>>;

bool is_argument(const Arguments& arguments, ValueId v) {
  return std::any_of(arguments.begin(), arguments.end(), [v](const auto& argument) { return argument.second == v; });
}

// The part of a trace that lies between given values and results.
class Extraction {
 public:
  Extraction(const Trace& trace, const Trace::Mark& mark, const Arguments& arguments)
      : trace_(trace), mark_(mark), arguments_(arguments), mapped_(trace.graph().values.size(), kNoValue) {}

  void add_given(ValueId v) {
    // Of a value that stands twice the first one is the value; the second one is a parameter of its own.
    ValueId parameter = out_.add_parameter(trace_.graph().type(v));
    mapped_[static_cast<size_t>(v)] = mapped_[static_cast<size_t>(v)] == kNoValue ? parameter : mapped_[static_cast<size_t>(v)];
  }

  // The graph, with the values from outside and the scalars that it takes, in order of the trace.
  Graph run(const std::vector<ValueId>& results) {
    std::vector<bool> needed = find_needed(results);
    for (size_t v = 0; v < needed.size(); ++v) {
      if (needed[v]) {
        add_input(static_cast<ValueId>(v));
      }
    }
    const Graph& graph = trace_.graph();
    for (size_t n = mark_.nodes; n < graph.nodes.size(); ++n) {
      if (taken_[n - mark_.nodes]) {
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
  bool is_from_outside(ValueId v) const {
    const Value& value = trace_.graph().values[static_cast<size_t>(v)];
    return value.kind != ValueKind::kResult || static_cast<size_t>(value.index) < mark_.nodes;
  }

  // By value: what the results need and no node of the capture computes.
  std::vector<bool> find_needed(const std::vector<ValueId>& results) {
    const Graph& graph = trace_.graph();
    std::vector<bool> needed(graph.values.size());
    taken_.assign(graph.nodes.size() - mark_.nodes, false);
    std::vector<ValueId> open(results);
    while (!open.empty()) {
      ValueId v = open.back();
      open.pop_back();
      if (v == kNoValue || mapped_[static_cast<size_t>(v)] != kNoValue) {
        continue;
      }
      if (is_from_outside(v)) {
        needed[static_cast<size_t>(v)] = true;
        continue;
      }
      XLA_CHECK(!is_argument(arguments_, v), "a result of the body needs an argument that it is not given");
      size_t node = static_cast<size_t>(graph.values[static_cast<size_t>(v)].index);
      if (!taken_[node - mark_.nodes]) {
        taken_[node - mark_.nodes] = true;
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
  const Trace::Mark& mark_;
  const Arguments& arguments_;
  Graph out_;
  std::vector<ValueId> mapped_; // by value of the trace
  std::vector<bool> taken_; // by node since the mark
  std::vector<ValueId> shared_;
  std::vector<ValueId> scalars_;
};

// By value: whether it needs an argument.
std::vector<bool> find_dependent_values(const Graph& graph, const Trace::Mark& mark, const Arguments& arguments) {
  std::vector<bool> dependent(graph.values.size());
  for (const auto& [tensor, v] : arguments) {
    dependent[static_cast<size_t>(v)] = true;
  }
  for (size_t n = mark.nodes; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    auto is_dependent = [&](ValueId v) { return v != kNoValue && dependent[static_cast<size_t>(v)]; };
    if (std::any_of(node.operands.begin(), node.operands.end(), is_dependent)) {
      for (int32_t i = 0; i < node.num_results; ++i) {
        dependent[static_cast<size_t>(node.result(i))] = true;
      }
    }
  }
  return dependent;
}

// Fails what needs arguments. False where other values since the mark are alive.
bool fail_dependent_values(Trace& trace, const Trace::Mark& mark, const Arguments& arguments) {
  std::vector<bool> dependent = find_dependent_values(trace.graph(), mark, arguments);
  bool all = true;
  for (size_t v = mark.values; v < trace.lazies().size(); ++v) {
    LazyValue* value = trace.lazies()[v];
    if (!value || value->refs() == 1) {
      continue;
    }
    if (!dependent[v]) {
      all = false;
      continue;
    }
    auto buffer = std::make_shared<Buffer>(trace.graph().values[v].type, Dims());
    buffer->set_failed(std::make_exception_ptr(UserError(ErrorKind::Runtime, kOutside)));
    value->set_buffer(std::move(buffer));
  }
  return all;
}

} // namespace

Capture::Capture(int device) : device_(device) {
  check_device(device);
  auto lock = lock_recorder(device);
  RecorderState& state = recorder(device);
  outer_ = state.capture;
  number_ = ++last_number;
  state.capture = number_;
  state.capture_thread = std::this_thread::get_id();
  mark_ = state.trace.mark();
}

at::Tensor Capture::add_argument(c10::ScalarType dtype, at::IntArrayRef sizes, const Dims& strides) {
  static const Op& op = get_op("xla::argument");
  Type type{to_dtype(dtype), to_dims(sizes)};
  XLA_CHECK_KIND(Type, is_recordable(type.dtype), "the body of a loop cannot have an argument of dtype ", c10::toString(dtype));
  Recording recording(device_);
  ValueId v = recording.node(op, {}, {}, type);
  at::Tensor tensor = recording.wrap(v, strides);
  arguments_.emplace_back(tensor, v);
  return tensor;
}

std::vector<size_t> Capture::find_written(const std::vector<at::Tensor>& arguments) const {
  Recording recording(device_);
  std::vector<ValueId> given = values_of(recording, arguments);
  std::vector<size_t> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (recording.read(arguments[i]) != given[i]) {
      written.push_back(i);
    }
  }
  return written;
}

bool Capture::is_whole() const {
  return recorder(device_).trace.generation() == mark_.generation;
}

void Capture::check_whole() const {
  XLA_CHECK(is_whole(), "what was recorded of the body of a loop is lost, as an error has ended the step");
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
  auto lock = lock_recorder(device_);
  check_whole();
  backward_ = recorder(device_).trace.graph().nodes.size();
}

std::vector<at::Tensor> Capture::find_residuals(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& given) {
  Recording recording(device_);
  check_whole();
  std::vector<ValueId> stops = values_of(recording, given);
  std::vector<ValueId> open = values_of(recording, results);
  const Graph& graph = recording.graph();
  std::vector<bool> known(graph.values.size());
  std::for_each(stops.begin(), stops.end(), [&](ValueId v) { known[static_cast<size_t>(v)] = true; });
  std::vector<bool> dependent = find_dependent_values(graph, mark_, arguments_);
  std::vector<ValueId> residuals;
  while (!open.empty()) {
    ValueId v = open.back();
    open.pop_back();
    const Node* node = v == kNoValue ? nullptr : graph.find_producer(v);
    if (!node || known[static_cast<size_t>(v)] || static_cast<size_t>(node - graph.nodes.data()) < mark_.nodes) {
      continue;
    }
    known[static_cast<size_t>(v)] = true;
    bool before = static_cast<size_t>(node - graph.nodes.data()) < backward_;
    if (before && dependent[static_cast<size_t>(v)] && node->op->kind != OpKind::kView) {
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

Body Capture::take(const std::vector<at::Tensor>& arguments, const std::vector<at::Tensor>& results) {
  const std::vector<at::Tensor> shown = without_bits(results);
  Recording recording(device_);
  Trace& trace = recording.trace();
  check_whole();
  std::vector<ValueId> given = values_of(recording, arguments);
  std::vector<ValueId> wanted = values_of(recording, shown);
  Extraction extraction(trace, mark_, arguments_);
  std::for_each(given.begin(), given.end(), [&](ValueId v) { extraction.add_given(v); });
  Body body;
  body.computation = make_computation(extraction.run(wanted));
  for (ValueId v : extraction.shared()) {
    body.shared.push_back(recording.wrap(v));
  }
  for (ValueId v : extraction.scalars()) {
    const Value& value = trace.graph().values[static_cast<size_t>(v)];
    body.numbers.push_back({value.type.dtype, trace.scalars()[static_cast<size_t>(value.index)]});
  }
  return body;
}

void Capture::end() {
  if (!number_) {
    return;
  }
  auto lock = lock_recorder(device_);
  RecorderState& state = recorder(device_);
  number_ = 0;
  state.capture = outer_;
  state.wants_cut.store(true, std::memory_order_relaxed); // to be looked at anew: nothing was cut meanwhile, nor run in eager mode
  state.capture_ended.notify_all();
  if (is_whole() && fail_dependent_values(state.trace, mark_, arguments_)) {
    state.trace.cut_back(mark_);
  }
}

} // namespace torch_xla
