// Unboxed kernels for rows with attributes whose signatures are frequent, also at the autograd key, as those of pointwise rows (typed.cpp).
// They record the usual calls and leave all others to the boxed kernel: docs/decisions/traces.md.
#include <ATen/core/IListRef.h>
#include <torch/library.h>

#include <deque>
#include <tuple>
#include <unordered_map>

#include "aten/autograd.h"
#include "aten/row_kernel.h"
#include "aten/rows.h"
#include "recording/recording.h"

namespace torch_xla {
namespace {

using T = const at::Tensor&;
using Whole = std::optional<int64_t>;
using Generator = std::optional<at::Generator>;
using DTypeOrNone = std::optional<at::ScalarType>;

// ---- One argument of a call, as take_argument() takes it from a stack. False: the boxed kernel must see the call. ----

bool take(const at::Tensor& t, ArgumentRole /*role*/, BoxedCall& call) {
  call.order.push_back(static_cast<int>(call.tensors.size()));
  call.borrow(t);
  if (!call.device && is_xla_tensor(t)) {
    call.device = device_number(t);
  }
  return true;
}

bool take(const at::ITensorListRef& list, ArgumentRole role, BoxedCall& call) {
  for (const at::Tensor& t : list) {
    take(t, role, call);
  }
  call.attrs.emplace_back(static_cast<int64_t>(list.size()));
  return true;
}

bool take(bool value, ArgumentRole /*role*/, BoxedCall& call) {
  call.attrs.emplace_back(value);
  return true;
}

bool take(int64_t value, ArgumentRole /*role*/, BoxedCall& call) {
  call.attrs.emplace_back(value);
  return true;
}

bool take(const c10::SymInt& value, ArgumentRole role, BoxedCall& call) {
  const std::optional<int64_t> number = value.maybe_as_int();
  return number && take(*number, role, call);
}

bool take(const at::Scalar& value, ArgumentRole role, BoxedCall& call) {
  if (value.isSymbolic()) {
    return false;
  }
  if (role == ArgumentRole::kNumber) {
    call.order.push_back(-1 - static_cast<int>(call.numbers.size()));
    call.numbers.push_back(value);
  } else if (value.isBoolean()) {
    call.attrs.emplace_back(value.toBool());
  } else if (value.type() == at::kLong) {
    call.attrs.emplace_back(value.toLong());
  } else if (value.type() == at::kDouble) {
    call.attrs.emplace_back(value.toDouble());
  } else { // complex numbers, integers beyond int64
    return false;
  }
  return true;
}

bool take(double value, ArgumentRole role, BoxedCall& call) {
  return take(at::Scalar(value), role, call);
}

bool take(at::ScalarType value, ArgumentRole /*role*/, BoxedCall& call) {
  call.attrs.emplace_back(static_cast<int64_t>(value));
  return true;
}

bool take(at::OptionalIntArrayRef value, ArgumentRole /*role*/, BoxedCall& call) {
  call.attrs.push_back(value ? Attr(to_dims(*value)) : Attr());
  return true;
}

bool take(const Generator& value, ArgumentRole /*role*/, BoxedCall& call) {
  call.generator = value;
  return true;
}

template <typename Value>
bool take(const std::optional<Value>& value, ArgumentRole role, BoxedCall& call) {
  if (!value) {
    call.attrs.emplace_back();
  }
  return !value || take(*value, role, call);
}

// ---- Kernels ----

// The state of an overload's kernels. It lives as long as the process: so may the dispatcher's kernels.
template <class Signature>
struct Slot {
  RowOverload row;
  c10::TypedOperatorHandle<Signature> handle;
  c10::BoxedKernel boxed;
  RowKernel* kernel;
};

template <class Return, class... Args>
class Unboxed {
 public:
  static void add(const RowLibraries& libraries, const RowOverload& row) {
    static auto* slots = new std::deque<Slot<Signature>>();
    RowKernel* kernel = nullptr;
    c10::BoxedKernel boxed = make_boxed_kernel(row, &kernel);
    const Slot<Signature>& slot = slots->emplace_back(row, row.handle->template typed<Signature>(), std::move(boxed), kernel);
    const std::string name = c10::toString(row.handle->operator_name());
    libraries.kernels.impl(name.c_str(), torch::CppFunction([&slot](Args... args) -> Return {
                             BoxedCall call;
                             return take_all(slot, call, args...) ? record(slot, call, args...) : call_boxed(slot, args...);
                           }));
    if (row.handle->hasKernelForDispatchKey(c10::DispatchKey::Autograd)) {
      libraries.autograd.impl(name.c_str(), torch::CppFunction([&slot](c10::DispatchKeySet keys, Args... args) -> Return {
                                return call_or_differentiate(slot, keys, args...);
                              }));
    }
  }

 private:
  using Signature = Return(Args...);
  static constexpr bool kIsInplace = std::is_same_v<Return, at::Tensor&>;

  static bool take_all(const Slot<Signature>& slot, BoxedCall& call, Args... args) {
    constexpr size_t kNumTensors = (size_t{std::is_same_v<std::remove_cvref_t<Args>, at::Tensor>} + ...);
    call.is_borrowed = true;
    call.tensors.reserve(kNumTensors);
    call.attrs.reserve(sizeof...(Args) - kNumTensors);
    const ArgumentRole* role = slot.kernel->roles().data();
    return (take(args, *role++, call) && ...);
  }

  static Return call_boxed(const Slot<Signature>& slot, Args... args) {
    return c10::impl::BoxedKernelWrapper<Signature>::call(
        slot.boxed, *slot.row.handle, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), args...);
  }

  static Return record(const Slot<Signature>& slot, BoxedCall& call, Args... args) {
    std::optional<std::vector<at::Tensor>> results = slot.kernel->try_record(call);
    if (!results) {
      return call_boxed(slot, args...);
    }
    if constexpr (kIsInplace) {
      return std::get<0>(std::tie(args...));
    } else if constexpr (std::is_same_v<Return, at::Tensor>) {
      return std::move((*results)[0]);
    } else {
      return {std::move((*results)[0]), std::move((*results)[1])};
    }
  }

  static Return call_or_differentiate(const Slot<Signature>& slot, c10::DispatchKeySet keys, Args... args) {
    BoxedCall call;
    if (!take_all(slot, call, args...) || !needs_no_autograd(keys, call.tensors)) {
      return call_generic_autograd(slot.handle, keys, args...);
    }
    if constexpr (kIsInplace) {
      at::Tensor& self = record(slot, call, args...);
      note_write(keys, self);
      return self;
    } else {
      return record(slot, call, args...);
    }
  }
};

using Register = void (*)(const RowLibraries&, const RowOverload&);

using One = at::Tensor;
using Two = std::tuple<at::Tensor, at::Tensor>;

// By signature().
const std::unordered_map<std::string, Register>& registers() {
  static const auto* all = new std::unordered_map<std::string, Register>{
      {"T>T", &Unboxed<One, T>::add},
      {"Td>T", &Unboxed<One, T, DTypeOrNone>::add},
      {"TDbd>T", &Unboxed<One, T, at::OptionalIntArrayRef, bool, DTypeOrNone>::add},
      {"Tob>T", &Unboxed<One, T, Whole, bool>::add},
      {"Tib>T", &Unboxed<One, T, int64_t, bool>::add},
      {"TS>T", &Unboxed<One, T, const at::Scalar&>::add},
      {"TIbg>T", &Unboxed<One, T, c10::SymInt, bool, Generator>::add},
      {"TIibb>TT", &Unboxed<Two, T, c10::SymInt, int64_t, bool, bool>::add},
      {"Li>T", &Unboxed<One, const at::ITensorListRef&, int64_t>::add},
      {"TT>T", &Unboxed<One, T, T>::add},
      {"TTT>T", &Unboxed<One, T, T, T>::add},
      {"TTTSS>T", &Unboxed<One, T, T, T, const at::Scalar&, const at::Scalar&>::add},
      {"TTiT>T", &Unboxed<One, T, T, int64_t, T>::add},
      {"TTIbb>T", &Unboxed<One, T, T, c10::SymInt, bool, bool>::add},
      {"TiT>T", &Unboxed<One, T, int64_t, T>::add},
      {"TiTb>T", &Unboxed<One, T, int64_t, T, bool>::add},
      {"TiTT>!", &Unboxed<at::Tensor&, at::Tensor&, int64_t, T, T>::add},
      {"Tffg>!", &Unboxed<at::Tensor&, at::Tensor&, double, double, Generator>::add},
  };
  return *all;
}

// A letter for each type: "Td>T" for (Tensor, ScalarType?) -> Tensor, "!" for what is written in place. "?" for other types.
char letter_of(const c10::Type& type) {
  static const std::unordered_map<std::string, char> letters{
      {"Tensor", 'T'},
      {"Tensor[]", 'L'},
      {"Scalar", 'S'},
      {"number", 'S'},
      {"SymInt", 'I'},
      {"int", 'i'},
      {"int?", 'o'},
      {"int[]?", 'D'},
      {"bool", 'b'},
      {"float", 'f'},
      {"ScalarType?", 'd'},
      {"Generator?", 'g'}};
  const auto found = letters.find(type.str());
  return found == letters.end() ? '?' : found->second;
}

std::string signature(const RowOverload& row) {
  std::string text;
  for (const c10::Argument& argument : row.handle->schema().arguments()) {
    text += letter_of(*argument.real_type());
  }
  text += '>';
  for (const c10::Argument& result : row.handle->schema().returns()) {
    text += row.convention == Convention::kInplace ? '!' : letter_of(*result.real_type());
  }
  return text;
}

} // namespace

bool register_unboxed(const RowLibraries& libraries, const RowOverload& row) {
  const auto found = registers().find(signature(row));
  const bool is_plain = row.convention != Convention::kOut && !(row.op->traits & (kHostArgument | kToldAtCall | kCollective));
  if (found == registers().end() || !is_plain) {
    return false;
  }
  found->second(libraries, row);
  return true;
}

} // namespace torch_xla
