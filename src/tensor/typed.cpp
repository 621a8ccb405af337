// Unboxed kernels for pointwise rows, one instance per row and signature class: the dispatcher calls them without boxing.
#include <torch/library.h>

#include <array>

#include "tensor/pointwise.h"
#include "tensor/rows.h"

namespace torch_xla {
namespace {

using T = const at::Tensor&;
using S = const at::Scalar&;

constexpr int kMaxRowsPerClass = 96;

void fallback_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  run_fallback(op, stack, "an argument is of a kind that has no native rows");
}

template <class Return, class... Args>
Return call_fallback(const RowOverload& row, Args... args) {
  static auto kernel = c10::BoxedKernel::makeFromFunction<&fallback_kernel>();
  return c10::impl::BoxedKernelWrapper<Return(Args...)>::call(
      kernel, *row.handle, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), args...);
}

// A signature class: the argument types after the first tensor.
template <class... Rest>
class SignatureClass {
 public:
  static bool add(torch::Library& library, const RowOverload& row) {
    switch (row.convention) {
      case Convention::kFunctional:
        return add_to(library, row, functional_rows, kFunctional);
      case Convention::kInplace:
        return add_to(library, row, inplace_rows, kInplace);
      case Convention::kOut:
        return add_to(library, row, out_rows, kOut);
    }
    return false;
  }

 private:
  using Rows = std::array<RowOverload, kMaxRowsPerClass>;
  static inline Rows functional_rows;
  static inline Rows inplace_rows;
  static inline Rows out_rows;

  template <size_t N>
  static at::Tensor functional(T self, Rest... rest) {
    const RowOverload& row = functional_rows[N];
    std::array<PointwiseArg, 1 + sizeof...(Rest)> args{self, rest...};
    if (!is_native_call(*row.op, args)) {
      return call_fallback<at::Tensor, T, Rest...>(row, self, rest...);
    }
    row.counter->add();
    return record_functional(*row.op, args);
  }
  template <size_t N>
  static at::Tensor& inplace(at::Tensor& self, Rest... rest) {
    const RowOverload& row = inplace_rows[N];
    std::array<PointwiseArg, 1 + sizeof...(Rest)> args{self, rest...};
    if (!is_native_call(*row.op, args) || overlaps_itself(self)) {
      return call_fallback<at::Tensor&, at::Tensor&, Rest...>(row, self, rest...);
    }
    row.counter->add();
    record_inplace(*row.op, self, args);
    return self;
  }
  template <size_t N>
  static at::Tensor& out(T self, Rest... rest, at::Tensor& result) {
    const RowOverload& row = out_rows[N];
    std::array<PointwiseArg, 1 + sizeof...(Rest)> args{self, rest...};
    if (!is_native_call(*row.op, args) || !is_native_out(*row.op, args, result)) {
      return call_fallback<at::Tensor&, T, Rest..., at::Tensor&>(row, self, rest..., result);
    }
    row.counter->add();
    record_out(*row.op, result, args);
    return result;
  }

  template <size_t... N>
  static auto list_functional(std::index_sequence<N...>) {
    return std::array{&functional<N>...};
  }
  template <size_t... N>
  static auto list_inplace(std::index_sequence<N...>) {
    return std::array{&inplace<N>...};
  }
  template <size_t... N>
  static auto list_out(std::index_sequence<N...>) {
    return std::array{&out<N>...};
  }
  using Indices = std::make_index_sequence<kMaxRowsPerClass>;
  static inline const auto kFunctional = list_functional(Indices());
  static inline const auto kInplace = list_inplace(Indices());
  static inline const auto kOut = list_out(Indices());

  template <class Kernels>
  static bool add_to(torch::Library& library, const RowOverload& row, Rows& rows, const Kernels& kernels) {
    size_t slot = 0;
    while (slot < rows.size() && rows[slot].op) {
      ++slot;
    }
    if (slot == rows.size()) {
      return false;
    }
    rows[slot] = row;
    library.impl(c10::toString(row.handle->operator_name()).c_str(), torch::CppFunction(kernels[slot]));
    return true;
  }
};

// "TTS" for (Tensor, Tensor, Scalar); empty when an argument is of another type.
std::string signature(const RowOverload& row) {
  std::string text;
  for (const c10::Argument& argument : row.handle->schema().arguments()) {
    if (argument.is_out()) {
      continue;
    }
    c10::TypeKind kind = argument.type()->kind();
    // A Scalar's static type is Number.
    if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::NumberType) {
      return "";
    }
    text += kind == c10::TypeKind::TensorType ? 'T' : 'S';
  }
  return text;
}

} // namespace

bool register_typed(torch::Library& library, const RowOverload& row) {
  std::string text = signature(row);
  if (text == "T") {
    return SignatureClass<>::add(library, row);
  }
  if (text == "TT") {
    return SignatureClass<T>::add(library, row);
  }
  if (text == "TS") {
    return SignatureClass<S>::add(library, row);
  }
  if (text == "TTS") {
    return SignatureClass<T, S>::add(library, row);
  }
  if (text == "TSS") {
    return SignatureClass<S, S>::add(library, row);
  }
  if (text == "TTT") {
    return SignatureClass<T, T>::add(library, row);
  }
  if (text == "TTTS") {
    return SignatureClass<T, T, S>::add(library, row);
  }
  return false;
}

} // namespace torch_xla
