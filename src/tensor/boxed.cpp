// The boxed kernel of all rows without an unboxed one: takes a call apart by its schema into operands and attributes.
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "core/errors.h"
#include "ir/builder.h"
#include "ops/tables.h"
#include "tensor/api.h"
#include "tensor/errors.h"
#include "tensor/generator.h"
#include "tensor/pointwise.h"
#include "tensor/recorder.h"
#include "tensor/rows.h"

namespace torch_xla {
namespace {

// What becomes of an argument. kNumber: a parameter of the program. kAttribute: part of its key.
enum class ArgumentRole : uint8_t { kTensor, kTensorList, kNumber, kAttribute, kGenerator, kOut };

c10::TypePtr element_type(c10::TypePtr type) {
  while (auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  return type;
}

bool is_tensor_list(const c10::TypePtr& type) {
  auto list = type->cast<c10::ListType>();
  return list && element_type(list->getElementType())->kind() == c10::TypeKind::TensorType;
}

ArgumentRole role_of(const c10::Argument& argument, const Op& op) {
  c10::TypePtr type = element_type(argument.type());
  c10::TypeKind kind = type->kind();
  if (argument.is_out()) {
    return ArgumentRole::kOut;
  }
  if (kind == c10::TypeKind::TensorType) {
    return ArgumentRole::kTensor;
  }
  if (is_tensor_list(type)) {
    return ArgumentRole::kTensorList;
  }
  if (kind == c10::TypeKind::GeneratorType) {
    return ArgumentRole::kGenerator;
  }
  bool number = kind == c10::TypeKind::NumberType && op.kind == OpKind::kPointwise;
  bool random_parameter = kind == c10::TypeKind::FloatType && (op.traits & kRandom);
  return number || random_parameter ? ArgumentRole::kNumber : ArgumentRole::kAttribute;
}

Attr to_attr(const c10::IValue& value) {
  if (value.isNone()) {
    return {};
  }
  if (value.isBool()) {
    return value.toBool();
  }
  if (value.isInt() || value.isSymInt()) {
    return value.toInt();
  }
  if (value.isDouble() || value.isSymFloat()) {
    return value.toDouble();
  }
  if (value.isString()) {
    return value.toStringRef();
  }
  if (value.isBoolList()) {
    auto list = value.toBoolList();
    return std::vector<bool>(list.begin(), list.end());
  }
  if (value.isIntList() || value.isSymIntList()) {
    return value.isIntList() ? value.toIntVector() : C10_AS_INTARRAYREF_SLOW(value.toSymIntVector()).vec();
  }
  if (value.isDoubleList()) {
    return value.toDoubleVector();
  }
  if (value.isList() && value.toListRef().empty()) {
    return std::vector<int64_t>();
  }
  throw UserError(ErrorKind::NotImplemented, str("an argument of type ", value.tagKind(), " cannot be recorded"));
}

// A call on the stack, taken apart.
struct Call {
  std::vector<at::Tensor> tensors; // undefined for None; in operand order
  std::vector<at::Tensor> outs;
  std::vector<c10::Scalar> numbers;
  std::vector<int> order; // operands: index into tensors, or -1 - index into numbers
  Attrs attrs;
  std::optional<at::Generator> generator;
};

class BoxedRow final : public c10::OperatorKernel {
 public:
  explicit BoxedRow(const RowOverload& row) : row_(row) {
    for (const c10::Argument& argument : row.handle->schema().arguments()) {
      roles_.push_back(role_of(argument, *row.op));
    }
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    std::string reason;
    try {
      Call call = take_apart(*stack);
      if (find_obstacle(call, &reason)) {
        run_fallback(op, stack, reason);
        return;
      }
      std::vector<at::Tensor> results = record(call);
      finish(stack, std::move(results));
      row_.counter->add();
    } catch (const UserError& error) {
      if (error.kind() != ErrorKind::NotImplemented) {
        throw_as_torch_error(error);
      }
      run_fallback(op, stack, error.what());
    }
  }

 private:
  Call take_apart(const torch::jit::Stack& stack) const {
    Call call;
    size_t base = stack.size() - roles_.size();
    for (size_t i = 0; i < roles_.size(); ++i) {
      take_argument(stack[base + i], roles_[i], call);
    }
    return call;
  }

  static void take_argument(const c10::IValue& value, ArgumentRole role, Call& call) {
    switch (role) {
      case ArgumentRole::kTensor:
        take_tensor(value, call);
        return;
      case ArgumentRole::kTensorList:
        take_list(value, call);
        return;
      case ArgumentRole::kNumber:
        take_number(value, call);
        return;
      case ArgumentRole::kAttribute:
        call.attrs.push_back(to_attr(value));
        return;
      case ArgumentRole::kGenerator:
        call.generator = value.isNone() ? std::nullopt : std::optional<at::Generator>(value.toGenerator());
        return;
      case ArgumentRole::kOut:
        call.outs.push_back(value.toTensor());
        return;
    }
  }

  static void take_tensor(const c10::IValue& value, Call& call) {
    call.order.push_back(static_cast<int>(call.tensors.size()));
    call.tensors.push_back(value.isNone() ? at::Tensor() : value.toTensor());
  }

  static void take_list(const c10::IValue& value, Call& call) {
    size_t before = call.tensors.size();
    if (!value.isNone()) {
      for (const c10::IValue& item : value.toListRef()) {
        take_tensor(item, call);
      }
    }
    call.attrs.push_back(static_cast<int64_t>(call.tensors.size() - before));
  }

  static void take_number(const c10::IValue& value, Call& call) {
    if (value.isNone()) {
      take_tensor(value, call);
      return;
    }
    call.order.push_back(-1 - static_cast<int>(call.numbers.size()));
    call.numbers.push_back(value.toScalar());
  }

  bool find_obstacle(const Call& call, std::string* reason) const {
    bool any_device = false;
    for (const at::Tensor& t : call.tensors) {
      if (t.defined() && !is_native(to_dtype(t.scalar_type()))) {
        *reason = str("no rows for dtype ", c10::toString(t.scalar_type()));
        return true;
      }
      if (t.defined() && refuses(*row_.op, t)) {
        *reason = "ATen refuses this dtype";
        return true;
      }
      any_device |= is_xla_tensor(t);
    }
    for (const c10::Scalar& s : call.numbers) {
      if (s.isComplex()) {
        *reason = "no rows for complex numbers";
        return true;
      }
    }
    for (const at::Tensor& t : call.outs) {
      if (!is_xla_tensor(t) || !is_native(to_dtype(t.scalar_type()))) {
        *reason = "the out tensor cannot be written natively";
        return true;
      }
    }
    if (row_.convention == Convention::kInplace && overlaps_itself(call.tensors[0])) {
      *reason = "a tensor whose elements share memory cannot be written natively";
      return true;
    }
    return !any_device && call.outs.empty();
  }

  std::vector<at::Tensor> record(Call& call) {
    return row_.op->kind == OpKind::kPointwise ? record_pointwise(call) : record_node(call);
  }

  std::vector<at::Tensor> record_pointwise(Call& call) {
    std::vector<PointwiseArg> args;
    for (int operand : call.order) {
      if (operand < 0) {
        args.emplace_back(call.numbers[static_cast<size_t>(-1 - operand)]);
      } else if (call.tensors[static_cast<size_t>(operand)].defined()) {
        args.emplace_back(call.tensors[static_cast<size_t>(operand)]);
      } else {
        args.emplace_back();
      }
    }
    switch (row_.convention) {
      case Convention::kFunctional:
        return {record_functional(*row_.op, args, std::move(call.attrs))};
      case Convention::kInplace:
        record_inplace(*row_.op, call.tensors[0], args, std::move(call.attrs));
        return {call.tensors[0]};
      case Convention::kOut:
        record_out(*row_.op, call.outs[0], args, std::move(call.attrs));
        return {call.outs[0]};
    }
    return {};
  }

  std::vector<at::Tensor> record_node(Call& call) {
    std::pair<uint64_t, uint64_t> philox;
    bool random = row_.op->traits & kRandom;
    if (random) {
      philox = next_philox(call.generator, 1);
    }
    std::optional<Recording> recording(std::in_place);
    InlineVec<ValueId, 4> operands = read_operands(*recording, call);
    if (random) {
      operands.push_back(recording->scalar_int(static_cast<int64_t>(philox.first)));
      operands.push_back(recording->scalar_int(static_cast<int64_t>(philox.second)));
    }
    std::vector<Type> types = infer(operands, call.attrs);
    if (row_.convention == Convention::kOut) {
      recording.reset();
      resize_outs(call.outs, types);
      recording.emplace();
      // Resizing may have cut the trace, so the operands are read again.
      operands = read_operands(*recording, call);
    } else if (row_.convention == Convention::kInplace) {
      check_inplace(call.tensors[0], types[0]);
    }
    ValueId first = recording->node(*row_.op, std::move(operands), std::move(call.attrs), types);
    return deliver(*recording, call, first, types);
  }

  static InlineVec<ValueId, 4> read_operands(Recording& recording, const Call& call) {
    InlineVec<ValueId, 4> operands;
    for (int operand : call.order) {
      if (operand < 0) {
        operands.push_back(recording.scalar(call.numbers[static_cast<size_t>(-1 - operand)]));
      } else {
        const at::Tensor& t = call.tensors[static_cast<size_t>(operand)];
        operands.push_back(t.defined() ? recording.read_operand(t) : kNoValue);
      }
    }
    return operands;
  }

  std::vector<Type> infer(const InlineVec<ValueId, 4>& operands, const Attrs& attrs) const {
    InferContext context(recorder().trace.graph(), std::span(operands.begin(), operands.size()), attrs);
    row_.op->infer(context);
    return std::move(context.results());
  }

  static void resize_outs(const std::vector<at::Tensor>& outs, const std::vector<Type>& types) {
    for (size_t i = 0; i < outs.size(); ++i) {
      c10::ScalarType from = to_scalar_type(types[i].dtype);
      TORCH_CHECK(c10::canCast(from, outs[i].scalar_type()), "result type ", from, " can't be cast to the desired output type ",
                  outs[i].scalar_type());
      at::native::resize_output(outs[i], to_ref(types[i].dims));
    }
  }

  static void check_inplace(const at::Tensor& self, const Type& type) {
    TORCH_CHECK(to_ref(type.dims) == self.sizes(), "output with shape ", self.sizes(), " doesn't match the broadcast shape ", to_ref(type.dims));
    c10::ScalarType from = to_scalar_type(type.dtype);
    TORCH_CHECK(c10::canCast(from, self.scalar_type()), "result type ", from, " can't be cast to the desired output type ", self.scalar_type());
  }

  std::vector<at::Tensor> deliver(Recording& recording, const Call& call, ValueId first, const std::vector<Type>& types) const {
    std::vector<at::Tensor> results;
    if (row_.convention == Convention::kInplace) {
      recording.write_converted(call.tensors[0], first);
      return {call.tensors[0]};
    }
    for (size_t i = 0; i < types.size(); ++i) {
      ValueId value = first + static_cast<ValueId>(i);
      if (row_.convention == Convention::kOut) {
        recording.write_converted(call.outs[i], value);
        results.push_back(call.outs[i]);
      } else if (types[i].dtype == DType::Undefined) {
        results.emplace_back();
      } else {
        results.push_back(recording.wrap(value, result_strides(call, types[i])));
      }
    }
    return results;
  }

  // Convolutions and pools give channels-last results for channels-last inputs, as eager's do.
  Dims result_strides(const Call& call, const Type& type) const {
    if (row_.op->traits & kKeepsOrder) {
      std::vector<PointwiseArg> args(call.tensors.begin(), call.tensors.end());
      return iterator_strides(type.dims, args);
    }
    std::span<const Op> family = conv_ops();
    bool follows_one = row_.op >= family.data() && row_.op < family.data() + family.size();
    bool follows_all = row_.op->traits & kFormatOfAll;
    if ((!follows_one && !follows_all) || (type.dims.size() != 4 && type.dims.size() != 5)) {
      return {};
    }
    auto format = type.dims.size() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
    auto has_format = [&](const at::Tensor& t) {
      return t.defined() && t.dim() == static_cast<int64_t>(type.dims.size()) && t.suggest_memory_format() == format;
    };
    bool all = std::all_of(call.tensors.begin(), call.tensors.end(), has_format);
    if (!all && !(follows_one && std::any_of(call.tensors.begin(), call.tensors.end(), has_format))) {
      return {};
    }
    return type.dims.size() == 4 ? to_dims(c10::get_channels_last_strides_2d(to_ref(type.dims)))
                                 : to_dims(c10::get_channels_last_strides_3d(to_ref(type.dims)));
  }

  void finish(torch::jit::Stack* stack, std::vector<at::Tensor> results) const {
    torch::jit::drop(*stack, roles_.size());
    size_t returns = row_.handle->schema().returns().size();
    for (size_t i = 0; i < returns; ++i) {
      stack->emplace_back(std::move(results[i]));
    }
  }

  RowOverload row_;
  std::vector<ArgumentRole> roles_;
};

} // namespace

void register_boxed(torch::Library& library, const RowOverload& row) {
  library.impl(c10::toString(row.handle->operator_name()).c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedRow>(row)));
}

} // namespace torch_xla
