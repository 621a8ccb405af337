// Names, types, literals and locations of the MLIR text.
#include "stablehlo/text.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

#include "core/errors.h"

namespace torch_xla::stablehlo {
namespace {

const char* element_text(DType t) {
  return t == DType::Bool ? "i1" : dtype_name(t);
}

// Bits of a number that the type holds exactly.
uint64_t half_bits(double v) {
  uint64_t sign = std::signbit(v) ? 0x8000 : 0;
  if (std::isnan(v)) {
    return sign | 0x7e00;
  }
  if (std::isinf(v)) {
    return sign | 0x7c00;
  }
  double size = std::fabs(v);
  if (size < 0x1p-14) { // subnormal
    return sign | static_cast<uint64_t>(size * 0x1p24);
  }
  int exponent = std::ilogb(size);
  auto fraction = static_cast<uint64_t>(std::ldexp(size, 10 - exponent)) & 0x3ff;
  return sign | (static_cast<uint64_t>(exponent + 15) << 10) | fraction;
}

uint64_t float_bits(double v, DType t) {
  switch (t) {
    case DType::F64:
      return std::bit_cast<uint64_t>(v);
    case DType::F16:
      return half_bits(v);
    case DType::BF16:
      return std::bit_cast<uint32_t>(static_cast<float>(v)) >> 16;
    default:
      return std::bit_cast<uint32_t>(static_cast<float>(v));
  }
}

std::string integer_text(int64_t v, DType t) {
  if (t == DType::Bool) {
    return v ? "true" : "false";
  }
  return t == DType::U64 ? std::to_string(static_cast<uint64_t>(v)) : std::to_string(v);
}

// Nested brackets around row-major elements.
std::string nested_text(const std::vector<std::string>& elements, const Dims& dims, size_t dim, size_t& at) {
  if (dim == dims.size()) {
    return elements[at++];
  }
  std::string text = "[";
  for (int64_t i = 0; i < dims[dim]; ++i) {
    text += (i ? ", " : "") + nested_text(elements, dims, dim + 1, at);
  }
  return text + "]";
}

std::string join(const Hlos& values, const std::function<std::string(const Hlo&)>& part) {
  std::string text;
  for (const Hlo& v : values) {
    text += (text.empty() ? "" : ", ") + part(v);
  }
  return text;
}

// True for elementwise operations of one type: they have a short form.
bool is_plain(const std::string& name, const Hlos& operands, const Attributes& attributes, const std::vector<Type>& results) {
  auto same = [&](const Hlo& v) { return v.type() == results[0]; };
  bool own_dialect = name.find('.') == name.npos;
  return own_dialect && results.size() == 1 && attributes.empty() && (operands.size() == 1 || operands.size() == 2) &&
      std::all_of(operands.begin(), operands.end(), same);
}

} // namespace

std::string tensor_text(const Type& type) {
  std::string text = "tensor<";
  for (int64_t d : type.dims) {
    text += std::to_string(d) + "x";
  }
  return text + element_text(type.dtype) + ">";
}

std::string quoted(const std::string& v) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string text = "\"";
  for (char c : v) {
    auto code = static_cast<unsigned char>(c);
    if (code < ' ') {
      text += {'\\', kDigits[code / 16], kDigits[code % 16]};
    } else {
      text += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
  }
  return text + "\"";
}

std::pair<std::string, std::string> file_and_line(const std::string& location) {
  size_t digits = location.find_last_not_of("0123456789") + 1;
  bool is_line = digits > 1 && digits < location.size() && location[digits - 1] == ':';
  return is_line ? std::pair(location.substr(0, digits - 1), location.substr(digits)) : std::pair(location, std::string());
}

std::string list_text(const Dims& dims) {
  std::string text;
  for (int64_t d : dims) {
    text += (text.empty() ? "" : ", ") + std::to_string(d);
  }
  return text;
}

std::string array_text(const Dims& dims) {
  return dims.empty() ? "array<i64>" : "array<i64: " + list_text(dims) + ">";
}

std::string pairs_text(const Dims& low, const Dims& high) {
  std::string text;
  for (size_t i = 0; i < low.size(); ++i) {
    text += str(i ? ", [" : "[", low[i], ", ", high[i], "]");
  }
  return str("dense<[", text, "]> : tensor<", low.size(), "x2xi64>");
}

std::string int_text(int64_t v) {
  return std::to_string(v) + " : i64";
}

std::string Text::float_text(double v, DType t) const {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%0*llX", static_cast<int>(item_size(t)) * 2, static_cast<unsigned long long>(float_bits(v, t)));
  return text;
}

const std::string& Text::location() const {
  static const std::string none;
  return location_ < 0 ? none : locations_[static_cast<size_t>(location_)];
}

std::string Text::next_name() {
  return "%" + std::to_string(next_++);
}

void Text::line(const std::string& text) {
  body_.append(static_cast<size_t>(indent_) * 2, ' ');
  body_ += text + "\n";
}

std::string Text::location_suffix() const {
  return location_ < 0 ? "" : str(" loc(#loc", location_, ")");
}

void Text::set_location(const std::string& location) {
  if (location.empty()) {
    location_ = -1;
    return;
  }
  auto [found, is_new] = location_index_.emplace(location, static_cast<int>(locations_.size()));
  if (is_new) {
    locations_.push_back(location);
  }
  location_ = found->second;
}

void Text::region(const Region& region, const char* terminator) {
  Hlos arguments;
  for (const Type& type : region.arguments) {
    arguments.emplace_back(this, next_name(), type);
  }
  if (!arguments.empty()) {
    line("^bb0(" + join(arguments, [](const Hlo& v) { return v.name() + ": " + tensor_text(v.type()); }) + "):");
  }
  ++indent_;
  Hlos results = region.body(arguments);
  std::string names = join(results, [](const Hlo& v) { return v.name(); });
  line(quoted(terminator) + "(" + names + ") : (" + join(results, [](const Hlo& v) { return tensor_text(v.type()); }) + ") -> ()");
  --indent_;
}

// Gives the function's symbol: "@NAME.impl", or "@NAME.impl_0" and so on where there is one.
std::string Text::add_function(
    const std::string& name, const std::vector<Type>& arguments, const std::function<Hlos(const Hlos& arguments)>& body) {
  std::string symbol = name + ".impl";
  for (int i = 0; !function_names_.insert(symbol).second; ++i) {
    symbol = str(name, ".impl_", i);
  }
  std::string outer = std::exchange(body_, {});
  int indent = std::exchange(indent_, 2);
  Hlos values;
  for (const Type& type : arguments) {
    values.emplace_back(this, next_name(), type);
  }
  Hlos results = body(values);
  std::string types = join(results, [](const Hlo& v) { return tensor_text(v.type()); });
  line("\"func.return\"(" + join(results, [](const Hlo& v) { return v.name(); }) + ") : (" + types + ") -> ()");
  std::string takes = join(values, [](const Hlo& v) { return v.name() + ": " + tensor_text(v.type()); });
  functions_ += "  func.func private @" + quoted(symbol) + "(" + takes + ") -> (" + types + ") {\n" + body_ + "  }\n";
  body_ = std::move(outer);
  indent_ = indent;
  return "@" + quoted(symbol);
}

Hlos Text::composite(
    const std::string& name,
    const Hlos& operands,
    const std::string& attributes,
    const std::vector<Type>& results,
    const std::function<Hlos(const Hlos& arguments)>& body) {
  std::vector<Type> types;
  std::transform(operands.begin(), operands.end(), std::back_inserter(types), [](const Hlo& v) { return v.type(); });
  Attributes all{{"name", quoted(name)}, {"decomposition", add_function(name, types, body)}};
  if (!attributes.empty()) {
    all.push_back({"composite_attributes", attributes});
  }
  return op("composite", operands, all, results);
}

// The short form that elementwise operations of one type have.
Hlo Text::plain_op(const std::string& name, const Hlos& operands, const Type& type) {
  std::string own = next_name();
  std::string names = join(operands, [](const Hlo& v) { return v.name(); });
  line(own + " = stablehlo." + name + (names.empty() ? "" : " " + names) + " : " + tensor_text(type) + location_suffix());
  return {this, own, type};
}

Hlos Text::op(
    const std::string& name,
    const Hlos& operands,
    const Attributes& attributes,
    const std::vector<Type>& results,
    const std::vector<Region>& regions) {
  if (is_plain(name, operands, attributes, results) && regions.empty()) {
    return {plain_op(name, operands, results[0])};
  }
  std::string own = next_name();
  std::string text = own + (results.size() == 1 ? "" : ":" + std::to_string(results.size())) + " = \"" +
      (name.find('.') == name.npos ? "stablehlo." : "") + name + "\"(" + join(operands, [](const Hlo& v) { return v.name(); }) + ")";
  for (size_t i = 0; i < regions.size(); ++i) {
    line(i == 0 ? text + " ({" : "}, {");
    region(regions[i], name.starts_with("sdy.") ? "sdy.return" : "stablehlo.return");
  }
  text = regions.empty() ? text : "})";
  for (const Attribute& a : attributes) {
    text += str(&a == attributes.data() ? " {" : ", ", a.name, " = ", a.value, &a == &attributes.back() ? "}" : "");
  }
  Hlos values;
  for (size_t i = 0; i < results.size(); ++i) {
    values.emplace_back(this, results.size() == 1 ? own : str(own, "#", i), results[i]);
  }
  auto types = [](const Hlos& list) { return "(" + join(list, [](const Hlo& v) { return tensor_text(v.type()); }) + ")"; };
  line(text + " : " + types(operands) + " -> " + types(values) + location_suffix());
  return values;
}

Hlo Text::op(const std::string& name, const Hlos& operands, const Attributes& attributes, Type result) {
  return op(name, operands, attributes, std::vector<Type>{std::move(result)})[0];
}

void add_precision(Attributes& attributes, Precision::Level level, DType dtype) {
  if (dtype == DType::F32 && level != Precision::kDefault) {
    std::string one = level == Precision::kHigh ? "#stablehlo<precision HIGH>" : "#stablehlo<precision HIGHEST>";
    attributes.push_back({"precision_config", "[" + one + ", " + one + "]"});
  }
}

Hlo Text::constant_text(const std::string& elements, const Type& type) {
  return plain_op("constant dense<" + elements + ">", {}, type);
}

Hlo Text::constant(double v, const Type& type) {
  return is_float(type.dtype) ? constant_text(float_text(v, type.dtype), type) : constant_int(static_cast<int64_t>(v), type);
}

Hlo Text::constant_int(int64_t v, const Type& type) {
  return is_float(type.dtype) ? constant(static_cast<double>(v), type) : constant_text(integer_text(v, type.dtype), type);
}

Hlo Text::table(const std::vector<int64_t>& elements, const Type& type) {
  std::vector<std::string> texts;
  for (int64_t v : elements) {
    texts.push_back(integer_text(v, type.dtype));
  }
  size_t at = 0;
  return constant_text(texts.empty() ? "" : nested_text(texts, type.dims, 0, at), type);
}

Hlo Text::table(const std::vector<double>& elements, const Type& type) {
  std::vector<std::string> texts;
  for (double v : elements) {
    texts.push_back(float_text(round_to(type.dtype, v), type.dtype));
  }
  size_t at = 0;
  return constant_text(texts.empty() ? "" : nested_text(texts, type.dims, 0, at), type);
}

} // namespace torch_xla::stablehlo
