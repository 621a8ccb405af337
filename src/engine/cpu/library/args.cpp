// Conversion of attributes by schema type, and tensors that alias planned memory.
#include "engine/cpu/library/args.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "core/errors.h"
#include "core/philox.h"
#include "ir/strides.h"

namespace torch_xla::cpu {
namespace {

template <typename T>
const T* as(const Attr& attr) {
  return std::get_if<T>(&attr);
}

c10::IValue number_value(const Attr& attr) {
  if (auto c = as<std::complex<double>>(attr)) {
    return c10::complex<double>(*c);
  }
  if (auto d = as<double>(attr)) {
    return *d;
  }
  if (auto b = as<bool>(attr)) {
    return *b;
  }
  return std::get<int64_t>(attr);
}

double double_value(const Attr& attr) {
  auto i = as<int64_t>(attr);
  return i ? static_cast<double>(*i) : std::get<double>(attr);
}

int64_t int_value(const Attr& attr) {
  auto b = as<bool>(attr);
  return b ? *b : std::get<int64_t>(attr);
}

bool bool_value(const Attr& attr) {
  auto i = as<int64_t>(attr);
  return i ? *i != 0 : std::get<bool>(attr);
}

template <typename T>
c10::IValue list_value(const Attr& attr, T (*one)(const Attr&)) {
  c10::List<T> list;
  if (auto ints = as<Dims>(attr)) {
    for (int64_t v : *ints) {
      list.push_back(one(Attr(v)));
    }
  } else if (auto doubles = as<std::vector<double>>(attr)) {
    for (double v : *doubles) {
      list.push_back(one(Attr(v)));
    }
  } else if (auto bools = as<std::vector<bool>>(attr)) {
    for (bool v : *bools) {
      list.push_back(one(Attr(v)));
    }
  } else if (!as<std::monostate>(attr)) {
    list.push_back(one(attr));
  }
  return list;
}

c10::IValue list_of(const Attr& attr, const c10::Type& element) {
  switch (element.kind()) {
    case c10::TypeKind::FloatType:
      return list_value<double>(attr, double_value);
    case c10::TypeKind::BoolType:
      return list_value<bool>(attr, bool_value);
    default:
      return list_value<int64_t>(attr, int_value);
  }
}

c10::IValue to_ivalue(const Attr& attr, const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::OptionalType:
      return as<std::monostate>(attr) ? c10::IValue() : to_ivalue(attr, *type.castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::ListType:
      return list_of(attr, *type.castRaw<c10::ListType>()->getElementType());
    case c10::TypeKind::FloatType:
      return double_value(attr);
    case c10::TypeKind::BoolType:
      return bool_value(attr);
    case c10::TypeKind::NumberType:
      return number_value(attr);
    case c10::TypeKind::StringType:
      return std::get<std::string>(attr);
    case c10::TypeKind::DeviceObjType:
      return c10::Device(c10::kCPU);
    default:
      return int_value(attr);
  }
}

// The form of a schema type: a tensor, a list of tensors, a number or none of these.
enum class ArgumentForm { kTensor, kTensorList, kOptionalTensorList, kNumber, kOther };

ArgumentForm form_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return ArgumentForm::kTensor;
    case c10::TypeKind::NumberType:
      return ArgumentForm::kNumber;
    case c10::TypeKind::OptionalType:
      return form_of(*type.castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::ListType: {
      const c10::Type& element = *type.castRaw<c10::ListType>()->getElementType();
      if (form_of(element) != ArgumentForm::kTensor) {
        return ArgumentForm::kOther;
      }
      return element.kind() == c10::TypeKind::OptionalType ? ArgumentForm::kOptionalTensorList : ArgumentForm::kTensorList;
    }
    default:
      return ArgumentForm::kOther;
  }
}

// Walks operands and attributes beside the schema.
class StackMaker {
 public:
  StackMaker(const Attrs& attrs, const std::vector<c10::IValue>& operands, bool takes_numbers)
      : attrs_(attrs), operands_(operands), takes_numbers_(takes_numbers) {}

  c10::IValue next(const c10::Argument& argument) {
    const c10::Type& type = *argument.type();
    switch (form_of(type)) {
      case ArgumentForm::kTensor: {
        at::Tensor t = next_tensor();
        return !t.defined() && type.kind() == c10::TypeKind::OptionalType ? c10::IValue() : c10::IValue(std::move(t));
      }
      case ArgumentForm::kTensorList:
        return next_list<at::Tensor>();
      case ArgumentForm::kOptionalTensorList:
        return next_list<std::optional<at::Tensor>>();
      case ArgumentForm::kNumber:
        if (takes_numbers_) {
          return next_number(argument);
        }
        break;
      case ArgumentForm::kOther:
        break;
    }
    if (attr_ >= attrs_.size()) {
      return argument.default_value() ? *argument.default_value() : c10::IValue();
    }
    return to_ivalue(next_attr(), type);
  }

 private:
  at::Tensor next_tensor() {
    return operand_ < operands_.size() ? tensor_of(operands_[operand_++]) : at::Tensor();
  }

  // The recorder leaves a factor of 1 at the end out.
  c10::IValue next_number(const c10::Argument& argument) {
    if (operand_ >= operands_.size()) {
      return argument.default_value() ? *argument.default_value() : c10::IValue();
    }
    const c10::IValue& operand = operands_[operand_++];
    return operand.isTensor() ? c10::IValue(operand.toTensor().item()) : operand;
  }

  const Attr& next_attr() {
    return attrs_.at(attr_++);
  }

  template <typename T>
  c10::IValue next_list() {
    const Attr& count = next_attr();
    if (as<std::monostate>(count)) {
      return {};
    }
    c10::List<T> list;
    for (int64_t i = 0; i < std::get<int64_t>(count); ++i) {
      at::Tensor t = next_tensor();
      if constexpr (std::is_same_v<T, at::Tensor>) {
        list.push_back(std::move(t));
      } else {
        list.push_back(t.defined() ? T(std::move(t)) : T());
      }
    }
    return list;
  }

  const Attrs& attrs_;
  const std::vector<c10::IValue>& operands_;
  const bool takes_numbers_;
  size_t operand_ = 0;
  size_t attr_ = 0;
};

} // namespace

at::Tensor make_alias(DType dtype, const Dims& dims, const Dims& strides) {
  c10::InferenceMode inference; // such tensors carry no autograd key
  auto bytes = static_cast<size_t>(span_elements(dims, strides)) * item_size(dtype);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, c10::kCPU), nullptr, /*resizable=*/false);
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(scalar_type(dtype)));
  const Dims steps = readable_strides(dims, strides);
  t.unsafeGetTensorImpl()->set_sizes_and_strides(ref(dims), ref(steps));
  return t;
}

void set_address(const at::Tensor& alias, void* data) {
  alias.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(data, c10::kCPU));
}

at::Tensor tensor_of(const c10::IValue& operand) {
  if (operand.isNone() || operand.isTensor()) {
    return operand.isTensor() ? operand.toTensor() : at::Tensor();
  }
  at::Tensor t = c10::scalar_to_tensor(operand.toScalar());
  t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

torch::jit::Stack make_stack(
    const c10::FunctionSchema& schema, const Attrs& attrs, const std::vector<c10::IValue>& operands, bool takes_numbers) {
  StackMaker maker(attrs, operands, takes_numbers);
  torch::jit::Stack stack;
  for (const c10::Argument& argument : schema.arguments()) {
    if (!argument.is_out()) {
      stack.push_back(maker.next(argument));
    }
  }
  return stack;
}

int find_generator(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  auto found =
      std::find_if(arguments.begin(), arguments.end(), [](const c10::Argument& argument) { return argument.name() == "generator"; });
  return found == arguments.end() ? -1 : static_cast<int>(found - arguments.begin());
}

// ATen's generator, set by seed and offset.
at::Generator make_generator(const std::vector<at::Tensor>& operands) {
  auto number = [&](size_t from_end) { return static_cast<uint64_t>(*operands[operands.size() - from_end].const_data_ptr<int64_t>()); };
  return at::make_generator<at::CPUGeneratorImpl>(philox::seed_of_draw(number(2), number(1)));
}

} // namespace torch_xla::cpu
