// Values and names of the metrics report as text.
#include "core/metrics_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <string_view>

namespace torch_xla::metrics {
namespace {

struct TimePart {
  const char* suffix;
  int64_t ns;
  int width;
};
constexpr TimePart kTimeParts[] = {
    {"d", 86400LL * 1000000000, 2}, {"h", 3600LL * 1000000000, 2}, {"m", 60LL * 1000000000, 2}, {"s", 1000000000, 2}, {"ms", 1000000, 3}};

constexpr std::string_view kRuntimeNames[] = {
    "CompileTime",
    "CreateCompileHandles",
    "CreateDataHandles",
    "DynamoSyncInputExecuteTime",
    "EagerOpCompileTime",
    "EagerOpExecuteTime",
    "ExecuteReplicatedTime",
    "ExecuteTime",
    "InboundData",
    "MarkStep",
    "OutboundData",
    "ReleaseCompileHandles",
    "ReleaseDataHandles",
    "ReleaseDataHandlesTime",
    "TransferFromDeviceTime",
    "TransferToDeviceTime",
};

template <typename... Args>
std::string format(const char* pattern, Args... args) {
  char text[400]; // a double without exponent has at most 309 digits before its point
  std::snprintf(text, sizeof(text), pattern, args...);
  return text;
}

std::string time_text(double value) {
  // Truncates the larger parts; the original rounds each of them, which shows 739 ms 660 us as 740ms660us.
  int64_t ns = std::llround(value);
  std::string text;
  for (const TimePart& part : kTimeParts) {
    if (ns >= part.ns || !text.empty()) {
      text += format("%0*lld%s", part.width, static_cast<long long>(ns / part.ns), part.suffix);
      ns %= part.ns;
    }
  }
  return text + format("%07.3fus", static_cast<double>(ns) / 1e3);
}

std::string bytes_text(double value) {
  constexpr const char* kSuffixes[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  size_t i = 0;
  for (; i + 1 < std::size(kSuffixes) && value >= 1024; ++i) {
    value /= 1024;
  }
  return format("%.2f%s", value, kSuffixes[i]);
}

} // namespace

std::string value_text(Unit unit, double value) {
  switch (unit) {
    case Unit::kTime:
      return time_text(value);
    case Unit::kBytes:
      return bytes_text(value);
    default:
      return format("%.2f", value);
  }
}

bool is_fallback(const std::string& name) {
  return name.find("::") != std::string::npos && name.rfind("xla::", 0) != 0;
}

bool is_runtime_name(const std::string& name) {
  return is_fallback(name) || std::find(std::begin(kRuntimeNames), std::end(kRuntimeNames), name) != std::end(kRuntimeNames);
}

} // namespace torch_xla::metrics
