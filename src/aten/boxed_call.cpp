// Sorts a boxed call's arguments.
#include "aten/boxed_call.h"

#include "core/errors.h"
#include "recording/recording.h"

namespace torch_xla {
namespace {

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
  if (value.isComplexDouble()) {
    return std::complex<double>(value.toComplexDouble());
  }
  if (value.isString()) {
    return value.toStringRef();
  }
  if (value.isBoolList()) {
    auto list = value.toBoolList();
    return std::vector<bool>(list.begin(), list.end());
  }
  if (value.isIntList() || value.isSymIntList()) {
    return Dims(value.isIntList() ? value.toIntVector() : C10_AS_INTARRAYREF_SLOW(value.toSymIntVector()).vec());
  }
  if (value.isDoubleList()) {
    return value.toDoubleVector();
  }
  if (value.isList() && value.toListRef().empty()) {
    return Dims();
  }
  throw UserError(ErrorKind::NotImplemented, str("an argument of type ", value.tagKind(), " cannot be recorded"));
}

void take_tensor(const c10::IValue& value, BoxedCall& call) {
  call.order.push_back(static_cast<int>(call.tensors.size()));
  call.tensors.push_back(value.isNone() ? at::Tensor() : value.toTensor());
}

void take_list(const c10::IValue& value, BoxedCall& call) {
  size_t before = call.tensors.size();
  if (!value.isNone()) {
    for (const c10::IValue& item : value.toListRef()) {
      take_tensor(item, call);
    }
  }
  call.attrs.push_back(static_cast<int64_t>(call.tensors.size() - before));
}

void take_number(const c10::IValue& value, BoxedCall& call) {
  if (value.isNone()) {
    take_tensor(value, call);
    return;
  }
  call.order.push_back(-1 - static_cast<int>(call.numbers.size()));
  call.numbers.push_back(value.toScalar());
}

} // namespace

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
  bool random_parameter = kind == c10::TypeKind::FloatType && (op.traits & kRandom) && op.kind != OpKind::kLibrary;
  return number || random_parameter ? ArgumentRole::kNumber : ArgumentRole::kAttribute;
}

void take_argument(const c10::IValue& value, ArgumentRole role, BoxedCall& call) {
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

// Numbers (0-d) become parameters of the program.
static void upload_operand(at::Tensor& t, int device) {
  if (t.defined() && !is_xla_tensor(t) && t.dim() > 0) {
    t = t.to(c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)));
  }
}

BoxedCall take_apart(c10::ArrayRef<c10::IValue> arguments, const std::vector<ArgumentRole>& roles, const Op& op) {
  BoxedCall call;
  call.device = find_device(arguments);
  for (size_t i = 0; i < roles.size(); ++i) {
    size_t first = call.tensors.size();
    take_argument(arguments[i], roles[i], call);
    for (size_t t = first; may_lie_on_host(op, i) && call.device && t < call.tensors.size(); ++t) {
      upload_operand(call.tensors[t], *call.device);
    }
  }
  return call;
}

std::optional<int> find_device(c10::ArrayRef<c10::IValue> arguments) {
  auto device_of_item = [](const c10::IValue& value) {
    return value.isTensor() && is_xla_tensor(value.toTensor()) ? std::optional<int>(device_number(value.toTensor())) : std::nullopt;
  };
  for (const c10::IValue& argument : arguments) {
    c10::ArrayRef<c10::IValue> items = argument.isList() ? argument.toListRef() : c10::ArrayRef<c10::IValue>(argument);
    for (const c10::IValue& item : items) {
      if (std::optional<int> device = device_of_item(item)) {
        return device;
      }
    }
  }
  return std::nullopt;
}

int device_of_call(c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> named;
  for (const c10::IValue& value : arguments) {
    bool ours = value.isDevice() && value.toDevice().type() == c10::DeviceType::PrivateUse1;
    named = ours ? value.toDevice() : named;
  }
  std::optional<int> device = find_device(arguments);
  return device ? *device : resolve_device(named);
}

void keep_operands(BoxedCall& call, size_t i, const Dims& dims) {
  for (at::Tensor& t : call.tensors) {
    if (t.is_same(call.outs[i]) && t.sizes() != to_ref(dims)) {
      t = t.clone();
    }
  }
}

bool takes_dtype(const Op& op, const BoxedCall& call) {
  return !op.dtypes || call.tensors.empty() || !call.tensors[0].defined() || (op.dtypes & set_of(to_dtype(call.tensors[0].scalar_type())));
}

bool reads_by_mask(const Op& op, const BoxedCall& call) {
  auto is_mask = [](const at::Tensor& t) { return t.defined() && (t.scalar_type() == at::kBool || t.scalar_type() == at::kByte); };
  return op.layout == ResultLayout::kIndexed && std::any_of(call.tensors.begin() + 1, call.tensors.end(), is_mask);
}

std::vector<PointwiseArg> pointwise_args(const BoxedCall& call) {
  std::vector<PointwiseArg> args;
  args.reserve(call.order.size());
  for (int operand : call.order) {
    if (operand < 0) {
      args.emplace_back(call.numbers[static_cast<size_t>(-1 - operand)]);
    } else if (call.tensors[static_cast<size_t>(operand)].defined()) {
      args.emplace_back(call.tensors[static_cast<size_t>(operand)]);
    } else {
      args.emplace_back();
    }
  }
  return args;
}

bool has_valid_parameters(const Op& op, const BoxedCall& call) {
  if (!op.takes) {
    return true;
  }
  std::vector<double> numbers;
  for (const c10::Scalar& number : call.numbers) {
    numbers.push_back(number.toDouble());
  }
  const bool must_fit = op.kind == OpKind::kComposite && (op.traits & kNumbersFit);
  const DType type = must_fit ? to_dtype(call.tensors[0].scalar_type()) : DType::Undefined;
  return op.takes(numbers, call.attrs) &&
      (!must_fit || std::all_of(numbers.begin(), numbers.end(), [&](double v) { return fits(v, type); }));
}

} // namespace torch_xla
