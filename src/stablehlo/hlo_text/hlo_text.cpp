// Opcodes and computations of HLO text.
#include "stablehlo/hlo_text/hlo_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "core/errors.h"
#include "ir/listing.h"
#include "stablehlo/hlo_text/attributes.h"

namespace torch_xla::stablehlo {
namespace {

// Names that are not StableHLO's own with hyphens.
const std::map<std::string, std::string>& opcodes() {
  static const auto* names = new std::map<std::string, std::string>{
      {"broadcast_in_dim", "broadcast"}, {"dot_general", "dot"}, {"mhlo.erf", "erf"}, {"optimization_barrier", "opt-barrier"}};
  return *names;
}

// The operation's name; of a custom call its target's.
std::string called_name(const std::string& name, const Attributes& attributes) {
  auto target =
      std::find_if(attributes.begin(), attributes.end(), [](const Attribute& a) { return a.name == std::string("call_target_name"); });
  return target == attributes.end() ? name : target->value.substr(1, target->value.size() - 2);
}

std::string tuple_shape(const std::vector<Type>& types) {
  std::string text;
  for (const Type& type : types) {
    text += (text.empty() ? "" : ", ") + shape_text(type);
  }
  return "(" + text + ")";
}

std::vector<Type> types_of(const Hlos& values) {
  std::vector<Type> types;
  std::transform(values.begin(), values.end(), std::back_inserter(types), [](const Hlo& v) { return v.type(); });
  return types;
}

std::string operands_text(const Hlos& operands) {
  std::string text;
  for (const Hlo& v : operands) {
    text += str(text.empty() ? "" : ", ", shape_text(v.type()), " ", v.name());
  }
  return text;
}

} // namespace

std::string HloText::next_name(const std::string& opcode) {
  return str("%", opcode, ".", ++numbers_[opcode]);
}

std::string HloText::instruction(
    const std::string& shape, const std::string& opcode, const std::string& arguments, const std::string& attributes) {
  std::string name = next_name(opcode == "parameter" ? "p" + arguments : opcode); // XLA's own names
  std::string text = str(name, " = ", shape, " ", opcode, "(", arguments, ")", attributes.empty() ? "" : ", ", attributes);
  if (!location().empty()) {
    auto [file, line] = file_and_line(location());
    text += ", metadata={" + (line.empty() ? "op_name=" + quoted(file) : str("source_file=", quoted(file), " source_line=", line)) + "}";
  }
  current_.line_of[name] = current_.lines.size();
  current_.lines.push_back(text);
  return name;
}

std::string HloText::instruction(const Type& type, const std::string& opcode, const Hlos& operands, const std::string& attributes) {
  return instruction(shape_text(type), opcode, operands_text(operands), attributes);
}

std::string HloText::tuple(const Hlos& operands) {
  std::string shape = tuple_shape(types_of(operands));
  return shape + " " + instruction(shape, "tuple", operands_text(operands), "");
}

Hlos HloText::elements_of(const std::string& tuple, const std::vector<Type>& types) {
  Hlos values;
  for (size_t i = 0; i < types.size(); ++i) {
    std::string name = instruction(shape_text(types[i]), "get-tuple-element", tuple_shape(types) + " " + tuple, str("index=", i));
    values.emplace_back(this, name, types[i]);
  }
  return values;
}

Hlo HloText::constrain(const Hlo& x, const Sharding& sharding) {
  if (!is_partitioned()) {
    return x;
  }
  return {this, instruction(x.type(), "custom-call", {x}, "custom_call_target=\"Sharding\", sharding=" + sharding.text()), x.type()};
}

Hlo HloText::argument(const Type& type, const ShardingRef& sharding) {
  size_t number = current_.parameters.size();
  std::string name =
      instruction(shape_text(type), "parameter", std::to_string(number), !is_partitioned() ? "" : "sharding=" + sharding_text(sharding));
  current_.parameters.push_back(str(name.substr(1), ": ", shape_text(type)));
  return {this, name, type};
}

Hlos HloText::parameters(const std::vector<Type>& types) {
  Hlos values;
  std::transform(types.begin(), types.end(), std::back_inserter(values), [this](const Type& type) { return argument(type); });
  return values;
}

void HloText::set_root(const std::string& name, const std::string& shape) {
  current_.root = name;
  current_.result = shape;
}

std::string HloText::region(const Region& region, bool takes_tuple, bool gives_tuple) {
  Computation outer = std::exchange(current_, {});
  Hlos arguments;
  if (takes_tuple) {
    std::string shape = tuple_shape(region.arguments);
    std::string name = instruction(shape, "parameter", "0", "");
    current_.parameters.push_back(str(name.substr(1), ": ", shape));
    arguments = elements_of(name, region.arguments);
  } else {
    arguments = parameters(region.arguments);
  }
  Hlos results = region.body(arguments);
  std::string root = gives_tuple ? tuple(results) : shape_text(results[0].type()) + " " + results[0].name();
  set_root(root.substr(root.rfind(' ') + 1), root.substr(0, root.rfind(' ')));
  std::string name = next_name("region");
  computations_ += text_of(current_, name);
  current_ = std::move(outer);
  return name;
}

// HLO's broadcast cannot expand dims of 1: these are removed first.
std::string HloText::broadcast(const Hlo& x, const Type& result, const Dims& mapping) {
  Dims dims, kept;
  for (size_t i = 0; i < x.rank(); ++i) {
    if (x.dim(i) == result.dims[static_cast<size_t>(mapping[i])]) {
      dims.push_back(x.dim(i));
      kept.push_back(mapping[i]);
    }
  }
  Hlo from = x;
  if (dims.size() < x.rank()) {
    Type type{x.dtype(), dims};
    from = {this, instruction(type, "reshape", {x}, ""), type};
  }
  return instruction(result, "broadcast", {from}, "dimensions=" + dims_text(kept, '{', '}'));
}

Hlos HloText::op(
    const std::string& own_name,
    const Hlos& operands,
    const Attributes& attributes,
    const std::vector<Type>& results,
    const std::vector<Region>& regions) {
  std::string name = called_name(own_name, attributes);
  auto known = opcodes().find(name);
  bool is_call = known == opcodes().end() && (name != own_name || name.find('.') != name.npos);
  std::string opcode = known != opcodes().end() ? known->second : is_call ? "custom-call" : replaced(name, "_", "-");
  if (opcode == "broadcast") {
    return {Hlo(this, broadcast(operands[0], results[0], broadcast_mapping(attributes)), results[0])};
  }
  std::string text =
      is_call && own_name != "custom_call" ? "custom_call_target=\"" + name + "\"" : hlo_attributes(opcode, operands, attributes);
  if (opcode == "while" || opcode == "opt-barrier") { // which take all as one
    if (opcode == "while") {
      text = "condition=" + region(regions[0], true, false);
      text += ", body=" + region(regions[1], true, true);
    }
    std::string all = tuple(operands);
    return elements_of(instruction(tuple_shape(results), opcode, all, text), results);
  }
  if (!regions.empty()) {
    text += (text.empty() ? "" : ", ") + ("to_apply=" + region(regions[0], false, opcode != "sort" && results.size() > 1));
  }
  if (results.size() == 1) {
    return {Hlo(this, instruction(results[0], opcode, operands, text), results[0])};
  }
  return elements_of(instruction(tuple_shape(results), opcode, operands_text(operands), text), results);
}

Hlos HloText::composite(
    const std::string&,
    const Hlos& operands,
    const std::string&,
    const std::vector<Type>&,
    const std::function<Hlos(const Hlos& arguments)>& body) {
  return body(operands);
}

Hlo HloText::constant_text(const std::string& elements, const Type& type) {
  bool same = !type.dims.empty() && !elements.empty() && elements[0] != '[';
  Type of_literal{type.dtype, same ? Dims{} : type.dims};
  std::string literal = elements.empty() ? "{}" : replaced(replaced(elements, "[", "{"), "]", "}");
  Hlo constant(this, instruction(shape_text(of_literal), "constant", literal, ""), of_literal);
  return same ? Hlo(this, broadcast(constant, type, {}), type) : constant;
}

std::string HloText::float_text(double v, DType dtype) const {
  if (std::isnan(v)) {
    return "nan";
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.*g", dtype == DType::F64 ? 17 : 9, v);
  return text;
}

std::string HloText::text_of(const Computation& computation, const std::string& name) const {
  std::string parameters;
  for (const std::string& parameter : computation.parameters) {
    parameters += (parameters.empty() ? "" : ", ") + parameter;
  }
  std::string text = str(name, " (", parameters, ") -> ", computation.result, " {\n");
  for (size_t i = 0; i < computation.lines.size(); ++i) {
    bool is_root = computation.line_of.at(computation.root) == i;
    text += str("  ", is_root ? "ROOT " : "", computation.lines[i], "\n");
  }
  return text + "}\n\n";
}

std::string HloText::finish(
    const Hlos& results,
    const std::vector<std::string>& /*argument_attributes*/, // of MLIR
    std::span<const std::optional<ShardingRef>> /*result_shardings*/) {
  std::string root = tuple(results);
  set_root(root.substr(root.rfind(' ') + 1), root.substr(0, root.rfind(' ')));
  return "HloModule program\n\n" + computations_ + "ENTRY " + text_of(current_, "%main");
}

} // namespace torch_xla::stablehlo
