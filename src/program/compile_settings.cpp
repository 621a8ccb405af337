// The settings of compiles, read at each lookup of a program.
#include "program/compile_settings.h"

#include <ATen/Context.h>

#include <mutex>

#include "core/env.h"
#include "core/hash.h"

namespace torch_xla {
namespace {

struct CustomOptions {
  std::mutex mutex; // guards values
  NamedValues values;
};

CustomOptions& custom_options() {
  static auto* options = new CustomOptions;
  return *options;
}

Precision::Level read_level(at::Float32Backend backend, at::Float32Op op) {
  switch (at::globalContext().float32Precision(backend, op)) {
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
Precision read_precision() {
  using at::Float32Backend;
  using at::Float32Op;
  return {
      std::min(read_level(Float32Backend::MKLDNN, Float32Op::MATMUL), read_level(Float32Backend::CUDA, Float32Op::MATMUL)),
      read_level(Float32Backend::MKLDNN, Float32Op::CONV),
      read_level(Float32Backend::CUDA, Float32Op::CONV)};
}

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
  hash.add(uint64_t{fusion} << 24 | precision.products << 16 | precision.convolutions << 8 | precision.cuda_convolutions);
  for (const auto& [name, value] : custom) {
    add_text(hash, name);
    add_value(hash, value);
  }
  return hash.lo;
}

CompileSettings read_compile_settings() {
  CustomOptions& options = custom_options();
  std::lock_guard<std::mutex> lock(options.mutex);
  return {read_precision(), env::fusion(), options.values};
}

void set_compile_options(NamedValues values) {
  if (!values.empty() && !engine().takes_custom_options()) {
    throw UserError(
        ErrorKind::Value,
        str("the embedded engine has no compile options, but got ", values.begin()->first, "; they are those of plugins"));
  }
  CustomOptions& options = custom_options();
  std::lock_guard<std::mutex> lock(options.mutex);
  options.values = std::move(values);
}

} // namespace torch_xla
