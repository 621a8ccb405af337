// Composites and custom calls.
#include "ir/composite.h"
#include "core/errors.h"
#include "ir/computation.h"
#include "stablehlo/call.h"

namespace torch_xla::stablehlo {
namespace {

// Versions of the calls' API by XLA's numbers.
constexpr int64_t kApiOriginal = 1; // stablehlo.custom_call's default
constexpr int64_t kApiTypedFfi = 4; // the backend's configuration is a dictionary

const std::string& get_text(const Call& c, size_t i) {
  return std::get<std::string>(c.attr(i));
}

Hlos operands_of(const Call& c) {
  Hlos operands;
  for (size_t i = 0; i < c.size(); ++i) {
    operands.push_back(c[i]);
  }
  return operands;
}

std::vector<Type> result_types(const Call& c) {
  std::vector<Type> types;
  for (size_t i = 0; i < c.num_results(); ++i) {
    types.push_back(c.result_type(i));
  }
  return types;
}

void set_all(Call& c, const Hlos& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    c.set(i, results[i]);
  }
}

void write_composite(Call& c) {
  const Graph& body = body_of(c.attr(kCompositeBody)).graph;
  auto write_body = [&](const Hlos& arguments) { return write_computation(c.text(), body, arguments); };
  set_all(
      c, c.text().composite(get_text(c, kCompositeName), operands_of(c), get_text(c, kCompositeAttributes), result_types(c), write_body));
}

void write_custom_call(Call& c) {
  int64_t version = c.get_int(kCallApiVersion);
  const std::string& config = get_text(c, kCallBackendConfig);
  Attributes attributes{
      {"call_target_name", quoted(get_text(c, kCallTarget))}, {"has_side_effect", c.get_bool(kCallHasSideEffect) ? "true" : "false"}};
  if (!config.empty()) {
    attributes.push_back({"backend_config", version == kApiTypedFfi ? config : quoted(config)});
  }
  if (version != 0 && version != kApiOriginal) {
    attributes.push_back({"api_version", str(version, " : i32")});
  }
  if (const std::string& frontend = get_text(c, kCallFrontendAttributes); !frontend.empty()) {
    attributes.push_back({"mhlo.frontend_attributes", frontend});
  }
  set_all(c, c.text().op("custom_call", operands_of(c), attributes, result_types(c)));
}

constexpr Writer kWriters[] = {
    {"xla::composite", write_composite},
    {"xla::custom_call", write_custom_call},
};

} // namespace

std::span<const Writer> composite_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
