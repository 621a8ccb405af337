// Registration of the op tables' rows with the dispatcher: functional, in-place and out= forms of each.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

#include "core/metrics.h"
#include "ir/op.h"

namespace torch {
class Library;
}

namespace torch_xla {

enum class Convention : uint8_t { kFunctional, kInplace, kOut };

// One overload of a row.
struct RowOverload {
  const Op* op = nullptr;
  Convention convention = Convention::kFunctional;
  std::optional<c10::OperatorHandle> handle;
  metrics::Counter* counter = nullptr; // "xla::add", of collectives "xla::AllReduce"
};

// The row that the overload belongs to; null for others.
const Op* find_row(const c10::OperatorHandle& overload);
// The overload of the row's form by tensors (Op::of_tensors) that is called as this one: in place, or into an out tensor.
c10::OperatorHandle overload_of_tensors(const Op& op, const c10::OperatorHandle& overload);

// Where kernels are registered: at the device's key and at its autograd key.
struct RowLibraries {
  torch::Library& kernels;
  torch::Library& autograd;
};

// Registers every row of ATen's operations and the overloads derived from it.
void register_rows(const RowLibraries& libraries);
// The kernel of an operation of another library that has a row, else null; any thread. Such libraries may be loaded after the device, so
// their kernels are made when they are first asked for.
const c10::BoxedKernel* find_kernel_of_library(const c10::OperatorHandle& op);
// The kernel of an overload of the row's operation, for one that has a kernel around it; the overload counts as served.
c10::BoxedKernel serve(const Op& op, Convention convention, const char* overload);
// A kernel with an unboxed signature for this overload, if its class has one: tensors and numbers only (typed.cpp).
bool register_typed(const RowLibraries& libraries, const RowOverload& overload);
// A boxed kernel, for any row: records the call, or runs it on the CPU where the row does not compute on its arguments (boxed.cpp).
c10::BoxedKernel make_boxed_kernel(const RowOverload& overload);
void register_boxed(torch::Library& library, const RowOverload& overload);

// One ATen overload that a row serves, for the page of operators.
struct ServedOverload {
  std::string name; // "aten::add.out"
  std::string row; // "aten::add.Tensor"
  bool fused; // a scalar body or an expansion; otherwise a library call
  bool complex; // calls with complex numbers are recorded too
  bool has_plugin_form; // otherwise such calls run on the CPU where a plugin is the engine
};
// In the order of their rows; what is recorded without a row is not among them.
const std::vector<ServedOverload>& served_overloads();

} // namespace torch_xla
