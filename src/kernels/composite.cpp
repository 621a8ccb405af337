// Records marks and custom calls, and raises the error of a custom call that the embedded engine is asked to run.
#include "kernels/composite.h"

#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include <algorithm>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "core/errors.h"
#include "ir/composite.h"
#include "ir/computation.h"
#include "ops/registry.h"
#include "recording/copy.h"
#include "recording/recording.h"
#include "stablehlo/text.h"

namespace torch_xla {
namespace {

constexpr int64_t kMostPositions = 65536;

// ---- Marks ----

Dims order_of(const at::Tensor& t) {
  return t.is_contiguous() ? Dims() : to_dims(at::infer_dense_strides(t.sizes(), t.strides()));
}

// The marked inputs of composites that a thread records.
class MarkedInputs {
 public:
  static MarkedInputs& get() {
    static thread_local MarkedInputs inputs;
    return inputs;
  }

  // Another input 0 of the same id begins the composite again.
  void add(const Mark& mark, uint64_t trace, ValueId v) {
    if (by_id_.size() >= limit_) { // most are of traces that have run
      std::erase_if(by_id_, [trace](const auto& item) { return item.second.trace != trace; });
      limit_ = std::max(kLeast, 2 * by_id_.size());
    }
    Inputs& inputs = by_id_[mark.id];
    const auto position = static_cast<size_t>(mark.position);
    if (position == 0 || inputs.trace != trace) {
      inputs = {trace, {}};
    }
    inputs.values.resize(std::max(inputs.values.size(), position + 1), v);
    inputs.values[position] = v;
  }
  // By position; empty if the trace has none.
  std::span<const ValueId> find(const Mark& mark, uint64_t trace) const {
    auto found = by_id_.find(mark.id);
    return found == by_id_.end() || found->second.trace != trace ? std::span<const ValueId>() : found->second.values;
  }

 private:
  static constexpr size_t kLeast = 1024;
  struct Inputs {
    uint64_t trace = 0; // Trace::generation()
    std::vector<ValueId> values;
  };
  std::unordered_map<std::string, Inputs> by_id_;
  size_t limit_ = kLeast;
};

// Whether the operand is the seed or offset of a draw.
bool is_draw(const Node& node, size_t operand) {
  return find_body(node) || ((node.op->traits & kRandom) && operand + 2 >= node.operands.size());
}

// The numbers, but for seeds, that the part between the inputs and the value reads. A few more do no harm.
std::vector<ValueId> find_numbers(const Graph& graph, std::span<const ValueId> inputs, ValueId output) {
  int32_t first = static_cast<int32_t>(graph.nodes.size());
  std::unordered_set<ValueId> seen(inputs.begin(), inputs.end());
  std::for_each(inputs.begin(), inputs.end(), [&](ValueId v) { first = std::min(first, graph.values[static_cast<size_t>(v)].index); });
  std::vector<ValueId> open{output}, numbers;
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    const Node* node = graph.find_producer(v);
    if (!seen.insert(v).second || !node || graph.values[static_cast<size_t>(v)].index < first) {
      continue;
    }
    for (size_t i = 0; i < node->operands.size(); ++i) {
      const ValueId operand = node->operands[i];
      if (operand == kNoValue || is_draw(*node, i)) {
        continue;
      }
      bool is_number = graph.values[static_cast<size_t>(operand)].kind == ValueKind::kScalar;
      if (!is_number) {
        open.push_back(operand);
      } else if (seen.insert(operand).second) {
        numbers.push_back(operand);
      }
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

ValueId add_mark(Recording& recording, ValueId v, const Mark& mark) {
  static const Op& op = get_op("xla::mark_tensor");
  MarkedInputs& marked = MarkedInputs::get();
  const uint64_t trace = recording.trace().generation();
  InlineVec<ValueId, 4> operands{v};
  Dims numbers;
  if (!mark.is_input) {
    std::span<const ValueId> inputs = marked.find(mark, trace);
    if (inputs.empty()) {
      return v;
    }
    std::for_each(inputs.begin(), inputs.end(), [&](ValueId input) { operands.push_back(input); });
    for (ValueId number : find_numbers(recording.graph(), inputs, v)) {
      const auto index = static_cast<size_t>(recording.graph().values[static_cast<size_t>(number)].index);
      operands.push_back(number);
      numbers.push_back(static_cast<int64_t>(recording.trace().scalar_bits()[index]));
    }
  }
  const Type type = recording.type(v);
  Attrs attrs{mark.name, mark.position, mark.is_input, mark.attributes, std::move(numbers)};
  ValueId result = recording.node(op, std::move(operands), std::move(attrs), type);
  if (mark.is_input) {
    marked.add(mark, trace, result);
  }
  return result;
}

// ---- Custom calls ----

Type result_type(const CustomCall& call, size_t i) {
  Type type{to_dtype(call.dtypes[i]), Dims(call.shapes[i].data(), call.shapes[i].size())};
  XLA_CHECK_KIND(
      Type,
      is_native(type.dtype),
      str("result ", i, " of the custom call ", call.target, " has dtype ", c10::toString(call.dtypes[i])),
      ", which programs do not compute");
  return type;
}

std::string attributes_text(const std::map<std::string, std::string>& attributes) {
  std::string text;
  for (const auto& [name, value] : attributes) {
    text += (text.empty() ? "{" : ", ") + stablehlo::quoted(name) + " = " + stablehlo::quoted(value);
  }
  return text.empty() ? text : text + "}";
}

Attrs attributes_of(const CustomCall& call, size_t num_operands, const std::vector<Type>& types) {
  Dims shapes, dtypes;
  for (const Type& type : types) {
    shapes.push_back(static_cast<int64_t>(type.dims.size()));
    for (int64_t d : type.dims) {
      shapes.push_back(d);
    }
    dtypes.push_back(static_cast<int64_t>(type.dtype));
  }
  Attrs attrs(kCallFrontendAttributes + 1);
  attrs[kCallOperands] = static_cast<int64_t>(num_operands);
  attrs[kCallTarget] = call.target;
  attrs[kCallShapes] = std::move(shapes);
  attrs[kCallTypes] = std::move(dtypes);
  attrs[kCallHasSideEffect] = call.has_side_effect;
  attrs[kCallBackendConfig] = call.backend_config;
  attrs[kCallApiVersion] = call.api_version;
  attrs[kCallFrontendAttributes] = attributes_text(call.frontend_attributes);
  return attrs;
}

int device_of(const std::vector<at::Tensor>& operands, const std::string& target) {
  for (const at::Tensor& t : operands) {
    const std::string place = t.device().str(), first = operands[0].device().str();
    XLA_CHECK_KIND(Value, is_xla_tensor(t), "the custom call ", target, " expected tensors on the device xla, but got one on ", place);
    XLA_CHECK_KIND(Value, place == first, "the operands of the custom call ", target, " are on ", first, " and ", place);
  }
  return operands.empty() ? resolve_device(std::nullopt) : device_number(operands[0]);
}

using Tensors = std::vector<at::Tensor>;

// The kernel of library calls.
Tensors refuse(
    const Tensors&, const std::string& target, at::IntArrayRef, at::IntArrayRef, bool, const std::string&, int64_t, const std::string&) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "the custom call ", target, " has no kernel on the embedded engine: only a PJRT plugin whose compiler knows it runs it");
}

} // namespace

at::Tensor mark_tensor(const at::Tensor& tensor, const Mark& mark) {
  bool fits = mark.position >= 0 && mark.position < kMostPositions;
  XLA_CHECK_KIND(Value, fits, "the position of a mark is from 0 to ", kMostPositions - 1, ", but got ", mark.position);
  XLA_CHECK_KIND(Value, is_xla_tensor(tensor), "a mark expected a tensor on the device xla, but got one on ", tensor.device().str());
  const at::Tensor shown = without_bits({tensor})[0];
  Recording recording(device_number(shown));
  ValueId v = recording.read(shown);
  return recording.wrap(is_native(recording.type(v).dtype) ? add_mark(recording, v, mark) : v, order_of(shown));
}

std::vector<at::Tensor> custom_call(const std::vector<at::Tensor>& operands, const CustomCall& call) {
  static const Op& op = get_op("xla::custom_call");
  const size_t num_results = call.shapes.size();
  XLA_CHECK_KIND(
      Value,
      num_results == call.dtypes.size(),
      str("the custom call ", call.target, " has ", num_results, " shapes and ", call.dtypes.size(), " dtypes of results"));
  int device = device_of(operands, call.target);
  std::vector<Type> types;
  for (size_t i = 0; i < num_results; ++i) {
    types.push_back(result_type(call, i));
  }
  const std::vector<at::Tensor> shown = without_bits(operands);
  Recording recording(device);
  InlineVec<ValueId, 4> given;
  for (const at::Tensor& t : shown) {
    given.push_back(recording.read(t));
  }
  ValueId first = recording.node(op, std::move(given), attributes_of(call, shown.size(), types), types);
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < types.size(); ++i) {
    results.push_back(recording.wrap(first + static_cast<ValueId>(i)));
  }
  return results;
}

void register_custom_calls() {
  // Never destroyed, as the kernels of the device.
  static auto* library = new torch::Library(torch::Library::FRAGMENT, "xla", std::nullopt, __FILE__, __LINE__);
  static auto* cpu = new torch::Library(torch::Library::IMPL, "xla", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library->def(
      "custom_call(Tensor[] operands, str target, int[] shapes, int[] dtypes, bool has_side_effect, str backend_config, int api_version, "
      "str frontend_attributes) -> Tensor[]");
  cpu->impl("custom_call", torch::CppFunction(&refuse));
}

} // namespace torch_xla
