// Metrics and counters with the original's names and report format (torch_xla 2.9).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace torch_xla::metrics {

// A named counter; objects live for ever. Thread-safe.
class Counter {
 public:
  explicit Counter(const char* name); // registers; name must be a literal or interned
  void add(int64_t n = 1) {
    value_.fetch_add(n, std::memory_order_relaxed);
  }
  int64_t value() const {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  friend void clear_counters();
  std::atomic<int64_t> value_{0};
};

enum class Unit { kTime, kBytes, kNumber }; // nanoseconds, bytes, plain

// A named series of samples: total, accumulator and a ring of the last 1024. Thread-safe.
class Metric {
 public:
  Metric(const char* name, Unit unit);
  ~Metric();
  void add(double value, int64_t time_ns); // of now_ns()
  void add(double value);
  struct Data {
    int64_t total_samples = 0;
    double accumulator = 0;
    std::vector<std::pair<double, double>> samples; // seconds since the epoch, value
  };
  Data data() const;

 private:
  friend void clear_metrics();
  struct Impl;
  Impl* impl_;
};

int64_t now_ns(); // of a clock that never goes back

Counter& find_or_create_counter(const std::string& name);
// The full report, in two parts: names of the lazy tensor core first, then names of the runtime (is_runtime_name()).
std::string report();
std::string short_report(const std::vector<std::string>& counters, const std::vector<std::string>& metrics);
std::vector<std::string> counter_names(); // non-zero ones
std::vector<std::string> metric_names(); // with samples
bool find_counter(const std::string& name, int64_t* value);
bool find_metric(const std::string& name, Metric::Data* data);
void clear_counters();
void clear_metrics();

} // namespace torch_xla::metrics
