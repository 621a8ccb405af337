// Sorting of a boxed call's arguments.
#include "tensor/call.h"

#include "core/errors.h"
#include "tensor/promotion.h"

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

void take_tensor(const c10::IValue& value, Call& call) {
  call.order.push_back(static_cast<int>(call.tensors.size()));
  call.tensors.push_back(value.isNone() ? at::Tensor() : value.toTensor());
}

void take_list(const c10::IValue& value, Call& call) {
  size_t before = call.tensors.size();
  if (!value.isNone()) {
    for (const c10::IValue& item : value.toListRef()) {
      take_tensor(item, call);
    }
  }
  call.attrs.push_back(static_cast<int64_t>(call.tensors.size() - before));
}

void take_number(const c10::IValue& value, Call& call) {
  if (value.isNone()) {
    take_tensor(value, call);
    return;
  }
  call.order.push_back(-1 - static_cast<int>(call.numbers.size()));
  call.numbers.push_back(value.toScalar());
}

struct Distribution {
  const char* row;
  bool (*fits)(double a, double b);
};
constexpr Distribution kDistributions[] = {
    {"aten::uniform_", [](double from, double to) { return from <= to; }},
    {"aten::normal_", [](double, double deviation) { return deviation >= 0; }},
    {"aten::log_normal_", [](double, double deviation) { return deviation > 0; }},
    {"aten::exponential_", [](double rate, double) { return rate > 0; }},
    {"aten::cauchy_", [](double, double sigma) { return sigma > 0; }},
    {"aten::geometric_", [](double p, double) { return p > 0 && p < 1; }},
    {"aten::native_dropout", [](double p, double) { return p >= 0 && p <= 1; }},
    {"aten::bernoulli.p", [](double p, double) { return p >= 0 && p <= 1; }},
    {"aten::bernoulli_.float", [](double p, double) { return p >= 0 && p <= 1; }},
};

// Rows whose first attribute is one of two words.
struct Mode {
  const char* row;
  const char* first;
  const char* second;
};
constexpr Mode kModes[] = {
    {"aten::gelu", "none", "tanh"},
    {"aten::gelu_backward", "none", "tanh"},
    {"aten::div.Tensor_mode", "trunc", "floor"},
    {"aten::div.Scalar_mode", "trunc", "floor"},
};

// Rows with a number among the attributes that ATen converts to the type of operand 0.
struct NumberAttribute {
  const char* row;
  size_t attribute;
};
constexpr NumberAttribute kNumberAttributes[] = {{"aten::constant_pad_nd", 1}, {"aten::pow.Tensor_Scalar", 0}};

at::Scalar number_of(const Attr& attr) {
  auto* real = std::get_if<double>(&attr);
  auto* whole = std::get_if<int64_t>(&attr);
  return real ? at::Scalar(*real) : at::Scalar(whole ? *whole : int64_t{0});
}

// Wider floats take any power; an integer to a real power becomes one.
bool converts_number(std::string_view row, c10::ScalarType type, const Attr& attr) {
  bool power = row == "aten::pow.Tensor_Scalar";
  return !power || c10::isReducedFloatingType(type) || (c10::isIntegralType(type, true) && std::holds_alternative<int64_t>(attr));
}

bool fits_attributes(std::string_view row, const Call& call) {
  for (const NumberAttribute& n : kNumberAttributes) {
    if (row == n.row) {
      c10::ScalarType type = call.tensors[0].scalar_type();
      return !converts_number(row, type, call.attrs[n.attribute]) || fits(number_of(call.attrs[n.attribute]), type);
    }
  }
  return true;
}

// ATen's gradients of these take the result for the input, which needs a slope that keeps the sign.
bool fits_result(std::string_view row, const Call& call) {
  bool by_result = (row == "aten::elu_backward" || row == "aten::leaky_relu_backward") && std::get<bool>(call.attrs[0]);
  return !by_result || call.numbers[0].toDouble() >= 0;
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
  bool random_parameter = kind == c10::TypeKind::FloatType && (op.traits & kRandom);
  return number || random_parameter ? ArgumentRole::kNumber : ArgumentRole::kAttribute;
}

bool may_lie_on_host(const c10::FunctionSchema& schema, size_t argument) {
  const std::string& name = schema.arguments()[argument].name();
  return (name == "indices" && is_tensor_list(schema.arguments()[argument].type())) || (schema.name() == "aten::bernoulli_" && name == "p");
}

void take_argument(const c10::IValue& value, ArgumentRole role, Call& call) {
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

bool has_valid_parameters(std::string_view row, const Call& call) {
  auto number = [&](size_t i) { return i < call.numbers.size() ? call.numbers[i].toDouble() : 0; };
  for (const Distribution& d : kDistributions) {
    if (row == d.row) {
      return d.fits(number(0), number(1));
    }
  }
  for (const Mode& m : kModes) {
    auto* word = row == m.row && !call.attrs.empty() ? std::get_if<std::string>(&call.attrs[0]) : nullptr;
    if (word && *word != m.first && *word != m.second) {
      return false;
    }
  }
  return fits_attributes(row, call) && fits_result(row, call);
}

} // namespace torch_xla
