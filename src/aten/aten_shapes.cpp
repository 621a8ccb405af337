// Calls on zeros or Meta tensors, and their results.
#include "aten/aten_shapes.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>

#include "aten/rows.h"
#include "core/remembered.h"
#include "trace/cell.h"

namespace torch_xla {
namespace {

// The cache holds the shapes of this many calls, about 0.5 KB each; then it is emptied.
constexpr size_t kMostShapes = 8192;

// Calls with at most this many elements are tried on zeros.
constexpr int64_t kMostTried = 1 << 16;

void hash_tensor(const at::Tensor& t, Hash128& hash) {
  if (!t.defined()) {
    hash.add(~uint64_t{0});
    return;
  }
  hash.add(static_cast<uint64_t>(t.scalar_type()));
  hash.add(static_cast<uint64_t>(t.dim()));
  for (int64_t d = 0; d < t.dim(); ++d) {
    hash.add(static_cast<uint64_t>(t.size(d)));
    hash.add(static_cast<uint64_t>(t.stride(d)));
  }
}

Hash128 hash_call(const c10::OperatorHandle& op, const BoxedCall& call) {
  Hash128 hash;
  hash.add(reinterpret_cast<uintptr_t>(&op.schema()));
  for (const at::Tensor& t : call.tensors) {
    hash_tensor(t, hash);
  }
  for (const Attr& attr : call.attrs) {
    hash_attr(attr, hash);
  }
  hash.add(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  return hash;
}

at::Tensor on_meta(const at::Tensor& t) {
  return at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type());
}

at::Tensor zeros_like(const at::Tensor& t) {
  return at::Tensor(at::detail::empty_strided_cpu(t.sizes(), t.strides(), t.scalar_type())).zero_();
}

using StandIn = at::Tensor (*)(const at::Tensor& t);

// The call's arguments with stand-ins for its tensors, in the same order.
class StandInArguments {
 public:
  StandInArguments(const BoxedCall& call, StandIn make) : call_(call), make_(make) {}

  c10::IValue next(const c10::IValue& value, const c10::Argument& argument) {
    switch (role_of(argument, library_row_)) {
      case ArgumentRole::kTensor:
        return value.isNone() ? (next_tensor(), c10::IValue()) : c10::IValue(next_tensor());
      case ArgumentRole::kTensorList:
        return holds_optionals(*argument.type()) ? next_list<std::optional<at::Tensor>>(value) : next_list<at::Tensor>(value);
      case ArgumentRole::kGenerator:
        return {};
      default:
        return value;
    }
  }

 private:
  // By the list's declared type: scripts use other type objects in the list itself.
  static bool holds_optionals(const c10::Type& type) {
    const auto* list = type.castRaw<c10::ListType>();
    return list && list->getElementType()->kind() == c10::TypeKind::OptionalType;
  }

  at::Tensor next_tensor() {
    const at::Tensor& t = call_.tensors.at(next_++);
    return t.defined() ? make_(t) : t;
  }

  template <typename T>
  c10::IValue next_list(const c10::IValue& value) {
    if (value.isNone()) {
      return {};
    }
    c10::List<T> list;
    for (size_t i = 0; i < value.toListRef().size(); ++i) {
      at::Tensor t = next_tensor();
      list.push_back(std::is_same_v<T, at::Tensor> || t.defined() ? T(std::move(t)) : T());
    }
    return list;
  }

  static constexpr Op library_row_{.kind = OpKind::kLibrary};
  const BoxedCall& call_;
  const StandIn make_;
  size_t next_ = 0;
};

ResultShape shape_of(const at::Tensor& t) {
  if (!t.defined()) {
    return {{DType::Undefined, {}}, {}};
  }
  bool plain = t.is_contiguous() || !t.is_non_overlapping_and_dense();
  return {{to_dtype(t.scalar_type()), to_dims(t.sizes())}, plain ? Dims() : to_dims(t.strides())};
}

// Calls the kernel for `key` on tensors from `make`.
ResultShapes call_with(
    StandIn make, c10::DispatchKey key, const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, const BoxedCall& call) {
  torch::jit::Stack stack;
  StandInArguments made(call, make);
  try {
    for (size_t i = 0; i < op.schema().arguments().size(); ++i) {
      stack.push_back(made.next(arguments[i], op.schema().arguments()[i]));
    }
    op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
  } catch (...) {
    return nullptr; // the CPU's kernel raises the error that eager raises
  }
  std::vector<ResultShape> shapes;
  for (const c10::IValue& result : stack) {
    shapes.push_back(shape_of(result.toTensor()));
  }
  return std::make_shared<const std::vector<ResultShape>>(std::move(shapes));
}

// Whether the CPU's kernel is quick, has no side effects, and takes no indices or pivots: zeros may be invalid there. Kernels of other
// namespaces may have side effects: collectives meet the other replicas.
bool may_try(const c10::OperatorHandle& op, const BoxedCall& call) {
  if (op.schema().getNamespace() != "aten" || op.hasTag(at::Tag::nondeterministic_seeded)) {
    return false;
  }
  const Op* row = find_row(op);
  const bool takes_integers = row && !(row->traits & kChecksValues);
  int64_t numbers = 0;
  for (const at::Tensor& t : call.tensors) {
    if (t.defined() && !t.is_floating_point() && !t.is_complex() && !takes_integers) {
      return false;
    }
    numbers += t.defined() ? t.numel() : 0;
  }
  return numbers <= kMostTried && op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

ResultShapes try_on_zeros(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, const BoxedCall& call) {
  if (!may_try(op, call)) {
    return nullptr;
  }
  const c10::InferenceMode inference;
  return call_with(zeros_like, c10::DispatchKey::CPU, op, arguments, call);
}

} // namespace

static Remembered<ResultShapes>& known_shapes() {
  static auto* known = new Remembered<ResultShapes>(kMostShapes); // never destroyed
  return *known;
}

ResultShapes find_known_shapes(const c10::OperatorHandle& op, const BoxedCall& call) {
  return known_shapes().find(hash_call(op, call)).value_or(nullptr);
}

ResultShapes infer_by_aten(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, const BoxedCall& call) {
  Hash128 key = hash_call(op, call);
  if (std::optional<ResultShapes> shapes = known_shapes().find(key)) {
    return *std::move(shapes);
  }
  ResultShapes shapes = try_on_zeros(op, arguments, call);
  shapes = shapes ? shapes : call_with(on_meta, c10::DispatchKey::Meta, op, arguments, call);
  known_shapes().add(key, shapes);
  return shapes;
}

} // namespace torch_xla
