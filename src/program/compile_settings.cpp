// The settings of compiles, read at each lookup of a program.
#include "program/compile_settings.h"

#include <ATen/Context.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "core/env.h"
#include "core/hash.h"

namespace torch_xla {
namespace {

struct CustomOptions {
  std::mutex mutex; // guards all
  NamedValues values; // for all devices
  std::map<int, NamedValues> of_device;
};

CustomOptions& custom_options() {
  static auto* options = new CustomOptions;
  return *options;
}

// Nothing: the user has not chosen.
std::optional<Precision::Level> read_level(at::Float32Backend backend, at::Float32Op op) {
  switch (at::globalContext().float32Precision(backend, op)) {
    case at::Float32Precision::NONE:
      return std::nullopt;
    case at::Float32Precision::BF16:
      return Precision::kDefault;
    case at::Float32Precision::TF32:
    case at::Float32Precision::DEFAULT: // cuDNN's
      return Precision::kHigh;
    default:
      return Precision::kHighest;
  }
}

// torch.set_float32_matmul_precision sets both backends: "medium" is BF16 in one and TF32 in the other.
std::optional<Precision::Level> read_products() {
  using at::Float32Backend;
  std::optional<Precision::Level> host = read_level(Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  std::optional<Precision::Level> cuda = read_level(Float32Backend::CUDA, at::Float32Op::MATMUL);
  return host && cuda ? std::min(*host, *cuda) : host ? host : cuda;
}

// Where an engine's own default is a lower precision than float32, convolutions without a choice of their own follow the products.
void add_text(Hash128& hash, const std::string& text) {
  hash.add_bytes(text.data(), text.size());
}

void add_value(Hash128& hash, const NamedValue& value) {
  hash.add(value.index());
  if (auto text = std::get_if<std::string>(&value)) {
    add_text(hash, *text);
  } else if (auto numbers = std::get_if<std::vector<int64_t>>(&value)) {
    hash.add_bytes(numbers->data(), numbers->size() * sizeof(int64_t));
  } else if (auto number = std::get_if<double>(&value)) {
    hash.add_bytes(number, sizeof(double));
  } else {
    auto flag = std::get_if<bool>(&value);
    hash.add(static_cast<uint64_t>(flag ? *flag : std::get<int64_t>(value)));
  }
}

} // namespace

uint64_t CompileSettings::hash() const {
  Hash128 hash;
  hash.add(uint64_t{fusion} << 16 | precision.products << 8 | precision.convolutions);
  for (const auto& [name, value] : custom) {
    add_text(hash, name);
    add_value(hash, value);
  }
  return hash.lo;
}

Precision read_precision() {
  const PrecisionRules rules = engine().precision_rules();
  using at::Float32Backend;
  const Precision::Level products = read_products().value_or(rules.unchosen);
  const Precision::Level otherwise = rules.unchosen == Precision::kHighest ? Precision::kHighest : products;
  const Float32Backend backend = rules.has_cudnn ? Float32Backend::CUDA : Float32Backend::MKLDNN;
  return {products, read_level(backend, at::Float32Op::CONV).value_or(otherwise)};
}

CompileSettings read_compile_settings(int device) {
  const Precision precision = read_precision();
  CustomOptions& options = custom_options();
  std::lock_guard<std::mutex> lock(options.mutex);
  CompileSettings settings{precision, env::fusion(), {}};
  if (auto own = options.of_device.find(device); own != options.of_device.end()) {
    settings.custom = own->second;
  }
  settings.custom.insert(options.values.begin(), options.values.end());
  return settings;
}

void set_compile_options(NamedValues values, std::optional<int> device) {
  if (!values.empty() && !engine().takes_custom_options()) {
    throw UserError(
        ErrorKind::Value,
        str("the embedded engine has no compile options, but got ", values.begin()->first, "; they are those of plugins"));
  }
  CustomOptions& options = custom_options();
  std::lock_guard<std::mutex> lock(options.mutex);
  (device ? options.of_device[*device] : options.values) = std::move(values);
}

} // namespace torch_xla
