// The registry of metrics and counters and the report in torch_xla's format.
#include "core/metrics.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>

#include "core/metrics_text.h"
#include "core/process.h"

namespace torch_xla::metrics {
namespace {

constexpr size_t kMaxSamples = 1024;
constexpr double kPercentiles[] = {0.01, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99};

template <typename Clock>
int64_t clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

struct Sample {
  int64_t time_ns = 0; // of now_ns(); in a snapshot since the epoch
  double value = 0;
};

struct Series {
  explicit Series(Unit u) : unit(u) {}

  const Unit unit;
  std::mutex mutex; // guards all below
  int64_t total_samples = 0;
  double accumulator = 0;
  std::vector<Sample> ring; // sample n is at n % kMaxSamples
};

// Leaked on purpose: counters are used until the process ends.
struct Registry {
  std::mutex mutex; // guards the maps, not what they point to
  std::map<std::string, std::vector<Counter*>> counters; // more than one where two files count under one name
  std::map<std::string, Series*> series;
};
Registry& registry() {
  static Registry* instance = [] {
    auto* made = new Registry();
    process::keep_sound(made->mutex);
    return made;
  }();
  return *instance;
}

// ---- Snapshots: the report works on copies, so that no lock is held while text is made ----

struct Snapshot {
  Unit unit = Unit::kNumber;
  int64_t total_samples = 0;
  double accumulator = 0;
  std::vector<Sample> samples; // oldest first
};

Snapshot take_snapshot(Series& series) {
  std::lock_guard<std::mutex> lock(series.mutex);
  Snapshot s{series.unit, series.total_samples, series.accumulator, series.ring};
  if (s.samples.size() == kMaxSamples) {
    std::rotate(s.samples.begin(), s.samples.begin() + series.total_samples % kMaxSamples, s.samples.end());
  }
  static const int64_t to_epoch_ns = clock_ns<std::chrono::system_clock>() - now_ns(); // once: snapshots of the same samples are equal
  for (Sample& sample : s.samples) {
    sample.time_ns += to_epoch_ns;
  }
  return s;
}

std::map<std::string, Snapshot> series_with_samples() {
  std::lock_guard<std::mutex> lock(registry().mutex);
  std::map<std::string, Snapshot> found;
  for (auto& [name, series] : registry().series) {
    Snapshot s = take_snapshot(*series);
    if (s.total_samples > 0) {
      found.emplace(name, std::move(s));
    }
  }
  return found;
}

int64_t sum_of(const std::vector<Counter*>& counters) {
  int64_t sum = 0;
  for (const Counter* c : counters) {
    sum += c->value();
  }
  return sum;
}

std::map<std::string, int64_t> nonzero_counters() {
  std::lock_guard<std::mutex> lock(registry().mutex);
  std::map<std::string, int64_t> found;
  for (const auto& [name, counters] : registry().counters) {
    if (int64_t value = sum_of(counters)) {
      found.emplace(name, value);
    }
  }
  return found;
}

template <typename Map>
std::vector<std::string> keys(const Map& map) {
  std::vector<std::string> names;
  std::transform(map.begin(), map.end(), std::back_inserter(names), [](const auto& entry) { return entry.first; });
  return names;
}

// ---- The report ----

void print_rates(const Snapshot& s, std::ostream& out) {
  double seconds = static_cast<double>(s.samples.back().time_ns - s.samples.front().time_ns) / 1e9;
  if (seconds <= 0) {
    return;
  }
  double total = 0;
  for (const Sample& sample : s.samples) {
    total += sample.value;
  }
  out << "  ValueRate: " << value_text(s.unit, total / seconds) << " / second\n";
  out << "  Rate: " << static_cast<double>(s.samples.size()) / seconds << " / second\n";
}

void print_percentiles(const Snapshot& s, std::ostream& out) {
  std::vector<Sample> sorted = s.samples;
  std::sort(sorted.begin(), sorted.end(), [](const Sample& a, const Sample& b) { return a.value < b.value; });
  const char* separator = "  Percentiles: ";
  for (double p : kPercentiles) {
    auto index = static_cast<size_t>(p * static_cast<double>(sorted.size()));
    out << separator << p * 100 << "%=" << value_text(s.unit, sorted[index].value);
    separator = "; ";
  }
  out << "\n";
}

void print_metric(const std::string& name, const Snapshot& s, std::ostream& out) {
  out << "Metric: " << name << "\n  TotalSamples: " << s.total_samples << "\n  Accumulator: " << value_text(s.unit, s.accumulator) << "\n";
  print_rates(s, out);
  print_percentiles(s, out);
}

void print_counter(const std::string& name, int64_t value, std::ostream& out) {
  out << "Counter: " << name << "\n  Value: " << value << "\n";
}

// Prints those of the names that belong to the part and have a value, in the order of the names.
void print_part(bool runtime, const std::vector<std::string>& metrics, const std::vector<std::string>& counters, std::ostream& out) {
  const auto series = series_with_samples();
  for (const std::string& name : metrics) {
    auto found = series.find(name);
    if (found != series.end() && is_runtime_name(name) == runtime) {
      print_metric(name, found->second, out);
    }
  }
  const auto values = nonzero_counters();
  for (const std::string& name : counters) {
    auto found = values.find(name);
    if (found != values.end() && is_runtime_name(name) == runtime) {
      print_counter(name, found->second, out);
    }
  }
}

} // namespace

// ---- Counter, Metric ----

Counter::Counter(const char* name) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  registry().counters[name].push_back(this);
}

struct Metric::Impl : Series {
  using Series::Series;
};

// Metrics of one name share their series, which is never freed.
Metric::Metric(const char* name, Unit unit) {
  std::unique_lock<std::mutex> lock(registry().mutex);
  Series*& series = registry().series[name];
  const bool is_new = !series;
  if (is_new) {
    series = new Impl(unit);
  }
  impl_ = static_cast<Impl*>(series);
  lock.unlock();
  if (is_new) {
    process::keep_sound(impl_->mutex);
  }
}

Metric::~Metric() = default;

void Metric::add(double value) {
  add(value, now_ns());
}

void Metric::add(double value, int64_t time_ns) {
  const Sample sample{time_ns, value};
  std::lock_guard<std::mutex> lock(impl_->mutex);
  if (impl_->ring.size() < kMaxSamples) {
    impl_->ring.push_back(sample);
  } else {
    impl_->ring[impl_->total_samples % kMaxSamples] = sample;
  }
  ++impl_->total_samples;
  impl_->accumulator += value;
}

Metric::Data Metric::data() const {
  Snapshot s = take_snapshot(*impl_);
  Data data{s.total_samples, s.accumulator, {}};
  for (const Sample& sample : s.samples) {
    data.samples.emplace_back(static_cast<double>(sample.time_ns) / 1e9, sample.value);
  }
  return data;
}

int64_t now_ns() {
  return clock_ns<std::chrono::steady_clock>();
}

// ---- Access by name ----

Counter& find_or_create_counter(const std::string& name) {
  {
    std::lock_guard<std::mutex> lock(registry().mutex);
    auto found = registry().counters.find(name);
    if (found != registry().counters.end()) {
      return *found->second.front();
    }
  }
  return *new Counter(name.c_str());
}

std::string report() {
  const auto metrics = metric_names();
  const auto counters = counter_names();
  std::ostringstream out;
  print_part(false, metrics, counters, out);
  print_part(true, metrics, counters, out);
  return out.str();
}

std::string short_report(const std::vector<std::string>& counters, const std::vector<std::string>& metrics) {
  std::vector<std::string> wanted;
  std::copy_if(counters.begin(), counters.end(), std::back_inserter(wanted), [](const auto& name) { return !is_fallback(name); });
  const auto all = counter_names();
  std::copy_if(all.begin(), all.end(), std::back_inserter(wanted), is_fallback);
  std::ostringstream out;
  print_part(false, metrics, wanted, out);
  print_part(true, metrics, wanted, out);
  return out.str();
}

std::vector<std::string> counter_names() {
  return keys(nonzero_counters());
}

std::vector<std::string> metric_names() {
  return keys(series_with_samples());
}

bool find_counter(const std::string& name, int64_t* value) {
  const auto values = nonzero_counters();
  auto found = values.find(name);
  if (found == values.end()) {
    return false;
  }
  *value = found->second;
  return true;
}

bool find_metric(const std::string& name, Metric::Data* data) {
  const auto series = series_with_samples();
  auto found = series.find(name);
  if (found == series.end()) {
    return false;
  }
  // A metric of that name shares the series; its unit counts only when it is new.
  *data = Metric(name.c_str(), found->second.unit).data();
  return true;
}

void clear_counters() {
  std::lock_guard<std::mutex> lock(registry().mutex);
  for (auto& [name, counters] : registry().counters) {
    for (Counter* c : counters) {
      c->value_.store(0, std::memory_order_relaxed);
    }
  }
}

void clear_metrics() {
  std::lock_guard<std::mutex> lock(registry().mutex);
  for (auto& [name, series] : registry().series) {
    std::lock_guard<std::mutex> series_lock(series->mutex);
    series->total_samples = 0;
    series->accumulator = 0;
    series->ring.clear();
  }
}

} // namespace torch_xla::metrics
