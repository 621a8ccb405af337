// Writes the message, field by field.
#include "engine/pjrt/compile_options.h"

#include <cstring>

#include "core/env.h"

namespace torch_xla::pjrt {
namespace {

// Unless this is off, XLA skips roundings to 16 bits between the operations of a kernel; eager rounds. XLA_FLAGS and the user's options
// take precedence.
constexpr char kExcessPrecision[] = "xla_allow_excess_precision";

// ---- A message of protocol buffers: fields, each with its number ----
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes += static_cast<char>(value | 0x80);
  }
  return bytes + static_cast<char>(value);
}

std::string field(int number, uint64_t value) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(value);
}

std::string field(int number, const std::string& message) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(message.size()) + message;
}

// OptionOverrideProto of a value that is not a list.
std::string override_of(const NamedValue& value) {
  if (auto text = std::get_if<std::string>(&value)) {
    return field(1, *text);
  }
  if (auto flag = std::get_if<bool>(&value)) {
    return field(2, uint64_t{*flag});
  }
  if (auto number = std::get_if<int64_t>(&value)) {
    return field(3, static_cast<uint64_t>(*number));
  }
  std::string bytes(sizeof(double), 0);
  std::memcpy(bytes.data(), &std::get<double>(value), sizeof(double));
  return varint(4 << 3 | 1) + bytes;
}

} // namespace

std::string xla_flags() {
  return env::text(env::variable("XLA_FLAGS"));
}

std::string compile_options(const std::string& platform, const std::vector<int>& device_ids, const NamedValues& custom) {
  std::string assignment = field(1, 1) + field(2, device_ids.size()); // replica_count, computation_count
  for (int id : device_ids) {
    assignment += field(3, field(1, varint(static_cast<uint64_t>(id)))); // the partition's replica_device_ids
  }
  NamedValues values = custom;
  if (platform == "cuda" && xla_flags().find(kExcessPrecision) == std::string::npos) {
    values.try_emplace(kExcessPrecision, false);
  }
  std::string options;
  for (const auto& [name, value] : values) {
    options += field(7, field(1, name) + field(2, override_of(value))); // env_option_overrides
  }
  std::string build = field(4, 1) + field(5, device_ids.size()) + field(9, assignment); // num_replicas, num_partitions, device_assignment
  if (device_ids.size() > 1) { // use_spmd_partitioning, allow_spmd_sharding_propagation_to_output, use_shardy_partitioner
    build += field(6, 1) + field(12, 1) + field(19, 1);
  }
  return options + field(3, build);
}

} // namespace torch_xla::pjrt
