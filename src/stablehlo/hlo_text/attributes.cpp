// Writes MLIR's attributes in HLO's form.
#include "stablehlo/hlo_text/attributes.h"

#include <algorithm>
#include <cctype>

#include "core/errors.h"

namespace torch_xla::stablehlo {
namespace {

// The text between the delimiters of an attribute with a type or a struct around it.
std::string between(const std::string& text, char open, char close) {
  size_t from = text.find(open), to = text.rfind(close);
  return from == text.npos || to == text.npos ? "" : text.substr(from + 1, to - from - 1);
}

// The integers of a text such as "array<i64: 0, -1>" or "dense<[[0, 1]]> : tensor<1x2xi64>".
Dims numbers_of(const std::string& attribute) {
  std::string text = between(attribute, '<', '>');
  text = attribute.starts_with("array") ? text.substr(std::min(text.size(), text.find(':'))) : text.substr(0, text.find('>'));
  Dims numbers;
  for (const char* at = text.c_str(); *at;) {
    bool begins = std::isdigit(static_cast<unsigned char>(*at)) || *at == '-';
    char* end = nullptr;
    if (begins) {
      numbers.push_back(std::strtoll(at, &end, 10));
    }
    at = begins ? end : at + 1;
  }
  return numbers;
}

std::string braces(const Dims& dims) {
  return dims_text(dims, '{', '}');
}

// "1x2", of pairs "0_1x2_2".
std::string by_x(const Dims& numbers, size_t per_dim = 1) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    text += str(i == 0 ? "" : i % per_dim ? "_" : "x", numbers[i]);
  }
  return text;
}

// Attributes of one operation, by name.
class AttributeReader {
 public:
  explicit AttributeReader(const Attributes& attributes) : attributes_(attributes) {}

  const std::string* find(const std::string& name) const {
    auto found = std::find_if(attributes_.begin(), attributes_.end(), [&](const Attribute& a) { return a.name == name; });
    return found == attributes_.end() ? nullptr : &found->value;
  }
  const std::string& get(const std::string& name) const {
    const std::string* value = find(name);
    XLA_ASSERT(value, "an operation without ", name);
    return *value;
  }
  Dims dims(const std::string& name) const {
    return numbers_of(get(name));
  }

 private:
  const Attributes& attributes_;
};

std::string slice_text(const AttributeReader& a) {
  Dims start = a.dims("start_indices"), limit = a.dims("limit_indices"), step = a.dims("strides");
  std::string text;
  for (size_t i = 0; i < start.size(); ++i) {
    text += str(i ? ", [" : "[", start[i], ":", limit[i], ":", step[i], "]");
  }
  return "slice={" + text + "}";
}

std::string padding_text(const AttributeReader& a) {
  Dims low = a.dims("edge_padding_low"), high = a.dims("edge_padding_high"), interior = a.dims("interior_padding");
  Dims all;
  for (size_t i = 0; i < low.size(); ++i) {
    all.push_back(low[i]);
    all.push_back(high[i]);
    all.push_back(interior[i]);
  }
  return low.empty() ? "" : "padding=" + by_x(all, 3);
}

std::string window_text(const Dims& size, const AttributeReader& a, const char* lhs_dilation, const char* rhs_dilation) {
  return str("window={size=", by_x(size), " stride=", by_x(a.dims("window_strides")), " pad=", by_x(a.dims("padding"), 2)) +
      str(" lhs_dilate=", by_x(a.dims(lhs_dilation)), " rhs_dilate=", by_x(a.dims(rhs_dilation)), "}");
}

// "[b, f, 0]x[o, i, 0]->[b, f, 0]" as "bf0_oi0->bf0".
std::string convolution_text(const Hlo& kernel, const AttributeReader& a) {
  std::string labels = between(a.get("dimension_numbers"), '<', '>');
  labels = replaced(replaced(replaced(labels, ", ", ""), "]x[", "_"), "]->[", "->");
  labels = labels.substr(1, labels.size() - 2);
  std::string kernel_labels = labels.substr(labels.find('_') + 1);
  Dims size;
  for (size_t i = 0; i + 2 < kernel.rank(); ++i) {
    size.push_back(kernel.dim(kernel_labels.find(static_cast<char>('0' + i))));
  }
  return (size.empty() ? "" : window_text(size, a, "lhs_dilation", "rhs_dilation") + ", ") + "dim_labels=" + labels +
      ", feature_group_count=" + std::to_string(std::stoll(a.get("feature_group_count"))) +
      ", batch_group_count=" + std::to_string(std::stoll(a.get("batch_group_count")));
}

// "#stablehlo.gather<offset_dims = [2], index_vector_dim = 2>" as "offset_dims={2}, index_vector_dim=2".
std::string struct_text(const std::string& text) {
  return replaced(replaced(replaced(between(text, '<', '>'), " = ", "="), "[", "{"), "]", "}");
}

std::string custom_call_text(const AttributeReader& a) {
  std::string text = "custom_call_target=" + a.get("call_target_name");
  text += a.get("has_side_effect") == "true" ? ", custom_call_has_side_effect=true" : "";
  if (const std::string* sharding = a.find("mhlo.sharding")) {
    text += ", sharding=" + sharding->substr(1, sharding->size() - 2);
  }
  if (const std::string* config = a.find("backend_config")) {
    text += ", backend_config=" + *config;
  }
  if (const std::string* frontend = a.find("mhlo.frontend_attributes")) {
    text += ", frontend_attributes=" + replaced(*frontend, " = \"", "=\"");
  }
  return text;
}

std::string own_attributes(const std::string& opcode, const Hlos& operands, const AttributeReader& a) {
  if (opcode == "custom-call") {
    return custom_call_text(a);
  }
  if (opcode == "slice") {
    return slice_text(a);
  }
  if (opcode == "pad") {
    return padding_text(a);
  }
  if (opcode == "convolution") {
    return convolution_text(operands[1], a);
  }
  if (opcode == "reduce-window") {
    return window_text(a.dims("window_dimensions"), a, "base_dilations", "window_dilations");
  }
  if (opcode == "dot") {
    std::string numbers = struct_text(a.get("dot_dimension_numbers"));
    return replaced(replaced(numbers, "batching_dimensions", "batch_dims"), "contracting_dimensions", "contracting_dims");
  }
  if (opcode == "compare") {
    std::string direction = between(a.get("comparison_direction"), '<', '>');
    return "direction=" + direction.substr(direction.rfind(' ') + 1);
  }
  if (opcode == "gather") {
    return struct_text(a.get("dimension_numbers")) + ", slice_sizes=" + braces(a.dims("slice_sizes"));
  }
  if (opcode == "scatter") {
    return struct_text(a.get("scatter_dimension_numbers"));
  }
  if (opcode == "iota") {
    return "iota_dimension=" + std::to_string(std::stoll(a.get("iota_dimension")));
  }
  if (opcode == "dynamic-slice") {
    return "dynamic_slice_sizes=" + braces(a.dims("slice_sizes"));
  }
  if (opcode == "transpose") {
    return "dimensions=" + braces(a.dims("permutation"));
  }
  if (const std::string* dims = a.find("dimensions")) { // reduce, reverse
    return "dimensions=" + braces(numbers_of(*dims));
  }
  if (const std::string* dim = a.find("dimension")) { // concatenate, sort
    return "dimensions=" + braces({std::stoll(*dim)}) + (a.find("is_stable") ? ", is_stable=true" : "");
  }
  return "";
}

std::string precision_text(const AttributeReader& a) {
  const std::string* precision = a.find("precision_config");
  if (!precision) {
    return "";
  }
  const char* one = precision->find("HIGHEST") != precision->npos ? "highest" : "high";
  return str("operand_precision={", one, ",", one, "}");
}

} // namespace

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string hlo_attributes(const std::string& opcode, const Hlos& operands, const Attributes& attributes) {
  AttributeReader reader(attributes);
  std::string own = own_attributes(opcode, operands, reader);
  std::string precision = precision_text(reader);
  return own + (own.empty() || precision.empty() ? "" : ", ") + precision;
}

Dims broadcast_mapping(const Attributes& attributes) {
  return AttributeReader(attributes).dims("broadcast_dimensions");
}

} // namespace torch_xla::stablehlo
