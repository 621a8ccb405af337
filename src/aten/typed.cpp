// Unboxed kernels for pointwise rows, one instance per signature class with rows: the dispatcher calls them without boxing. A second kernel
// of each row, at the autograd key, records at once if no gradient is needed: docs/decisions/traces.md.
#include <torch/library.h>

#include <array>
#include <deque>

#include "aten/autograd.h"
#include "aten/native_call.h"
#include "aten/rows.h"

namespace torch_xla {
namespace {

using T = const at::Tensor&;
using S = const at::Scalar&;

// For calls that the unboxed kernel does not take.
template <class Return, class... Args>
Return call_boxed(const RowOverload& row, const c10::BoxedKernel& kernel, Args... args) {
  return c10::impl::BoxedKernelWrapper<Return(Args...)>::call(
      kernel, *row.handle, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), args...);
}

// A signature class: the argument types after the first tensor.
template <class... Rest>
class SignatureClass {
 public:
  static bool add(const RowLibraries& libraries, const RowOverload& row) {
    switch (row.convention) {
      case Convention::kFunctional:
        return add_to<Functional>(libraries, row);
      case Convention::kInplace:
        return add_to<Inplace>(libraries, row);
      case Convention::kOut:
        return add_to<Out>(libraries, row);
    }
    return false;
  }

 private:
  using Args = std::array<PointwiseArg, 1 + sizeof...(Rest)>;
  // The state of an overload's kernels.
  template <class Signature>
  struct Slot {
    RowOverload row;
    c10::TypedOperatorHandle<Signature> handle;
    c10::BoxedKernel boxed;
  };

  struct Functional {
    using Signature = at::Tensor(T, Rest...);

    static bool takes(const RowOverload& row, const Args& args) {
      return is_native_call(*row.op, args);
    }
    static at::Tensor record(const RowOverload& row, const Args& args) {
      row.counter->add();
      return record_functional(*row.op, args);
    }
    static auto kernel(const Slot<Signature>& slot) {
      return [&slot](T self, Rest... rest) -> at::Tensor {
        const RowOverload& row = slot.row;
        Args args{self, rest...};
        return takes(row, args) ? record(row, args) : call_boxed<at::Tensor, T, Rest...>(row, slot.boxed, self, rest...);
      };
    }
    static auto autograd_kernel(const Slot<Signature>& slot) {
      return [&slot](c10::DispatchKeySet keys, T self, Rest... rest) -> at::Tensor {
        const RowOverload& row = slot.row;
        Args args{self, rest...};
        if (needs_no_autograd(keys, args) && takes(row, args)) {
          return record(row, args);
        }
        return call_generic_autograd(slot.handle, keys, self, rest...);
      };
    }
  };

  struct Inplace {
    using Signature = at::Tensor&(at::Tensor&, Rest...);

    static bool takes(const RowOverload& row, const at::Tensor& self, const Args& args) {
      return is_native_call(*row.op, args) && !overlaps_itself(self);
    }
    static at::Tensor& record(const RowOverload& row, at::Tensor& self, const Args& args) {
      row.counter->add();
      record_inplace(*row.op, self, args);
      return self;
    }
    static auto kernel(const Slot<Signature>& slot) {
      return [&slot](at::Tensor& self, Rest... rest) -> at::Tensor& {
        const RowOverload& row = slot.row;
        Args args{self, rest...};
        if (takes(row, self, args)) {
          return record(row, self, args);
        }
        return call_boxed<at::Tensor&, at::Tensor&, Rest...>(row, slot.boxed, self, rest...);
      };
    }
    static auto autograd_kernel(const Slot<Signature>& slot) {
      return [&slot](c10::DispatchKeySet keys, at::Tensor& self, Rest... rest) -> at::Tensor& {
        const RowOverload& row = slot.row;
        Args args{self, rest...};
        if (needs_no_autograd(keys, args) && takes(row, self, args)) {
          record(row, self, args);
          note_write(keys, self);
          return self;
        }
        return call_generic_autograd(slot.handle, keys, self, rest...);
      };
    }
  };

  struct Out {
    using Signature = at::Tensor&(T, Rest..., at::Tensor&);

    static bool takes(const RowOverload& row, const Args& args, const at::Tensor& result) {
      return is_native_call(*row.op, args) && is_native_out(*row.op, args, result);
    }
    static at::Tensor& record(const RowOverload& row, const Args& args, at::Tensor& result) {
      row.counter->add();
      record_out(*row.op, result, args);
      return result;
    }
    static auto kernel(const Slot<Signature>& slot) {
      return [&slot](T self, Rest... rest, at::Tensor& result) -> at::Tensor& {
        const RowOverload& row = slot.row;
        Args args{self, rest...};
        return takes(row, args, result) ? record(row, args, result)
                                        : call_boxed<at::Tensor&, T, Rest..., at::Tensor&>(row, slot.boxed, self, rest..., result);
      };
    }
    static auto autograd_kernel(const Slot<Signature>& slot) {
      return [&slot](c10::DispatchKeySet keys, T self, Rest... rest, at::Tensor& result) -> at::Tensor& {
        const RowOverload& row = slot.row;
        Args args{self, rest...};
        if (needs_no_autograd(keys, args) && needs_no_autograd(keys, std::array{PointwiseArg(result)}) && takes(row, args, result)) {
          record(row, args, result);
          note_write(keys, result);
          return result;
        }
        return call_generic_autograd(slot.handle, keys, self, rest..., result);
      };
    }
  };

  // The slot lives as long as the process: so may the dispatcher's kernels.
  template <class Form>
  static bool add_to(const RowLibraries& libraries, const RowOverload& row) {
    static auto* slots = new std::deque<Slot<typename Form::Signature>>();
    const auto& slot = slots->emplace_back(row, row.handle->template typed<typename Form::Signature>(), make_boxed_kernel(row));
    std::string name = c10::toString(row.handle->operator_name());
    libraries.kernels.impl(name.c_str(), torch::CppFunction(Form::kernel(slot)));
    if (row.handle->hasKernelForDispatchKey(c10::DispatchKey::Autograd)) {
      libraries.autograd.impl(name.c_str(), torch::CppFunction(Form::autograd_kernel(slot)));
    }
    return true;
  }
};

// "TTS" for (Tensor, Tensor, Scalar); empty if an argument has another type.
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

bool register_typed(const RowLibraries& libraries, const RowOverload& row) {
  std::string text = signature(row);
  if (text == "T") {
    return SignatureClass<>::add(libraries, row);
  }
  if (text == "TT") {
    return SignatureClass<T>::add(libraries, row);
  }
  if (text == "TS") {
    return SignatureClass<S>::add(libraries, row);
  }
  if (text == "TTS") {
    return SignatureClass<T, S>::add(libraries, row);
  }
  if (text == "TSS") {
    return SignatureClass<S, S>::add(libraries, row);
  }
  if (text == "TTT") {
    return SignatureClass<T, T>::add(libraries, row);
  }
  if (text == "TTTS") {
    return SignatureClass<T, T, S>::add(libraries, row);
  }
  return false;
}

} // namespace torch_xla
