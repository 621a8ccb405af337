// The kernel of calls with result types by ATen's shape rule: rows without a rule, and rows' calls with complex numbers.
#pragma once

#include <torch/library.h>

#include <optional>
#include <string>

#include "aten/aten_shapes.h"
#include "aten/row_kernel.h"
#include "aten/rows.h"

namespace torch_xla {

// Records the call as one library call of the row; calls that it cannot take run on the CPU at once.
class CallRow final : public RowKernel {
 public:
  // For a library row without `infer`; keeps a copy of `row`.
  explicit CallRow(const RowOverload& row);
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
  std::optional<std::vector<at::Tensor>> try_record(BoxedCall& call) override;

 private:
  // Both: empty, or the reason that the call cannot be recorded.
  std::string find_obstacle_of_types(const BoxedCall& call) const;
  std::string find_obstacle_of_result(const BoxedCall& call, const ResultShapes& shapes) const;
  Dims strides_of(const BoxedCall& call, const ResultShape& shape, size_t i) const; // empty: contiguous
  std::vector<at::Tensor> record(BoxedCall& call, const std::vector<ResultShape>& shapes) const;
  bool is_told_at_call(c10::ArrayRef<c10::IValue> arguments) const;

  RowOverload row_;
  const Op* promotes_; // the row itself, if its result has the operands' promoted type, or Bool; else null
  c10::OperatorHandle functional_; // the row's own overload
  std::optional<size_t> check_errors_; // the argument that says whether the call raises for data, if any
};

// Whether a tensor or a number among the arguments is complex.
bool has_complex(c10::ArrayRef<c10::IValue> arguments);
bool has_complex(const BoxedCall& call);
// Whether the row's own rule refuses a call with complex tensors, checked with other types: ATen's rule leaves many checks to the kernel.
bool refuses_complex(const Op& op, const BoxedCall& call);

} // namespace torch_xla
