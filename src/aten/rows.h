// Registration of the op tables' rows with the dispatcher: functional, in-place and out= form of each.
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

class RowKernel;

enum class Convention : uint8_t { kFunctional, kInplace, kOut };

// One overload of a row.
struct RowOverload {
  const Op* op = nullptr;
  Convention convention = Convention::kFunctional;
  std::optional<c10::OperatorHandle> handle;
  metrics::Counter* counter = nullptr; // "xla::add"; for collectives "xla::AllReduce"
};

// The overload's row, or null.
const Op* find_row(const c10::OperatorHandle& overload);
// The overload of the row's form by tensors (Op::of_tensors) in this one's convention: in place, or into an out tensor.
c10::OperatorHandle overload_of_tensors(const Op& op, const c10::OperatorHandle& overload);

// Libraries for the device's key and its autograd key.
struct RowLibraries {
  torch::Library& kernels;
  torch::Library& autograd;
};

// Registers every row of ATen's operations and their derived overloads.
void register_rows(const RowLibraries& libraries);
// The kernel of another library's operation that has a row, else null; any thread. Such libraries may load after the device, so the first
// lookup makes their kernels.
const c10::BoxedKernel* find_kernel_of_library(const c10::OperatorHandle& op);
// A kernel for an overload of the row's operation, for use within another kernel; the overload counts as served.
c10::BoxedKernel serve(const Op& op, Convention convention, const char* overload);
// Registers an unboxed kernel for this overload if its class has one: tensors and numbers only (typed.cpp).
bool register_typed(const RowLibraries& libraries, const RowOverload& overload);
// Registers an unboxed kernel beside the boxed one if its signature is a frequent one (unboxed.cpp).
bool register_unboxed(const RowLibraries& libraries, const RowOverload& overload);
// A boxed kernel, for any row: records the call, or runs it on the CPU if the row does not take its arguments (boxed.cpp).
// `made`: gets the kernel, which lives as long as the result; may be null.
c10::BoxedKernel make_boxed_kernel(const RowOverload& overload, RowKernel** made = nullptr);
void register_boxed(torch::Library& library, const RowOverload& overload);

// An ATen overload with a row, for the page of operators.
struct ServedOverload {
  std::string name; // "aten::add.out"
  std::string row; // "aten::add.Tensor"
  bool fused; // a scalar body or an expansion; otherwise a library call
  bool complex; // calls with complex numbers are recorded too
  bool has_plugin_form; // else such calls run on the CPU under a plugin
};
// In the order of their rows, without overloads that are recorded without a row.
const std::vector<ServedOverload>& served_overloads();

} // namespace torch_xla
