// The kernel of calls whose result types ATen's shape rule gives: rows without one of their own, and rows' calls with complex numbers.
#pragma once

#include <torch/library.h>

#include <optional>
#include <string>

#include "aten/aten_shapes.h"
#include "aten/boxed_call.h"
#include "aten/rows.h"

namespace torch_xla {

// Records the call as one library call of the row; what it cannot take runs on the CPU at once.
class CallRow final : public c10::OperatorKernel {
 public:
  // The row is a library row without `infer`; a copy of `row` is kept.
  explicit CallRow(const RowOverload& row);
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  // Each is empty, or says why the call cannot be recorded.
  std::string find_obstacle_of_types(const BoxedCall& call) const;
  std::string find_obstacle_of_result(const BoxedCall& call, const ResultShapes& shapes) const;
  Dims strides_of(const BoxedCall& call, const ResultShape& shape, size_t i) const; // empty: contiguous
  std::vector<at::Tensor> record(BoxedCall& call, const std::vector<ResultShape>& shapes) const;
  bool is_told_at_call(c10::ArrayRef<c10::IValue> arguments) const;

  RowOverload row_;
  const Op* promotes_; // the row itself, if its result's type is that to which its operands are promoted, or Bool; else null
  c10::OperatorHandle functional_; // the row's own overload
  std::vector<ArgumentRole> roles_;
  std::optional<size_t> check_errors_; // the argument that says whether the call raises for data, where there is one
};

// Whether a tensor or a number among the arguments is complex.
bool has_complex(c10::ArrayRef<c10::IValue> arguments);
// Whether the row's own rule refuses a call with complex tensors, with other types in their place: ATen's rule leaves many checks to the
// kernel.
bool refuses_complex(const Op& op, const BoxedCall& call);

} // namespace torch_xla
