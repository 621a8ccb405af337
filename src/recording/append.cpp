// Records the nodes of a graph again.
#include "recording/append.h"

#include "core/errors.h"

namespace torch_xla {

void Appending::give(size_t parameter, const at::Tensor& t) {
  ValueId v = graph_.parameters[parameter];
  const Type& type = graph_.type(v);
  XLA_CHECK(
      to_dtype(t.scalar_type()) == type.dtype && same_dims(t.sizes(), to_ref(type.dims)),
      "tensor ",
      parameter,
      " of what was recorded to be run again has dtype ",
      c10::toString(t.scalar_type()),
      " and shape ",
      t.sizes(),
      ", but it was recorded for ",
      type_text(type));
  mapped_[static_cast<size_t>(v)] = recording_.read(t);
}

void Appending::give_numbers(const std::vector<Number>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    mapped_[static_cast<size_t>(graph_.scalars[i])] = recording_.trace().add_scalar(numbers[i].dtype, numbers[i].bits);
  }
}

void Appending::append_nodes() {
  std::vector<Type> types;
  for (const Node& node : graph_.nodes) {
    InlineVec<ValueId, 4> operands;
    for (ValueId v : node.operands) {
      operands.push_back(v == kNoValue ? kNoValue : at(v));
    }
    types.clear();
    for (int32_t i = 0; i < node.num_results; ++i) {
      types.push_back(graph_.type(node.result(i)));
    }
    ValueId first = recording_.node(*node.op, std::move(operands), node.attrs, types);
    for (int32_t i = 0; i < node.num_results; ++i) {
      mapped_[static_cast<size_t>(node.result(i))] = first + i;
    }
  }
}

} // namespace torch_xla
