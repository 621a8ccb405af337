// The metrics report: names, order and the writing of values.
#include <gtest/gtest.h>

#include <chrono>
#include <sstream>
#include <thread>

#include "core/metrics_text.h"
#include "core/observer.h"

namespace torch_xla::metrics {
namespace {

class MetricsTest : public testing::Test {
 protected:
  void SetUp() override {
    clear_counters();
    clear_metrics();
  }
  void TearDown() override {
    clear_counters();
    clear_metrics();
  }
};

void wait_a_little() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST_F(MetricsTest, WritesValues) {
  EXPECT_EQ(value_text(Unit::kTime, 320), "000.320us");
  EXPECT_EQ(value_text(Unit::kTime, 83562320), "083ms562.320us");
  EXPECT_EQ(value_text(Unit::kTime, 1148534011), "01s148ms534.011us");
  EXPECT_EQ(value_text(Unit::kTime, 739660495), "739ms660.495us");
  EXPECT_EQ(value_text(Unit::kTime, 86400e9 + 61e9), "01d00h01m01s000ms000.000us");
  EXPECT_EQ(value_text(Unit::kTime, 999.9996e3), "001ms000.000us");
  EXPECT_EQ(value_text(Unit::kBytes, 80), "80.00B");
  EXPECT_EQ(value_text(Unit::kBytes, 72376), "70.68KB");
  EXPECT_EQ(value_text(Unit::kNumber, 4), "4.00");
}

TEST_F(MetricsTest, CountersAreFoundByName) {
  static Counter first("TestCounter");
  static Counter second("TestCounter");
  int64_t value = 0;
  EXPECT_FALSE(find_counter("TestCounter", &value));
  first.add();
  second.add(2);
  ASSERT_TRUE(find_counter("TestCounter", &value));
  EXPECT_EQ(value, 3);
  EXPECT_EQ(&find_or_create_counter("TestCounter"), &first);
  EXPECT_EQ(&find_or_create_counter("TestNew"), &find_or_create_counter("TestNew"));
  EXPECT_EQ(counter_names(), std::vector<std::string>{"TestCounter"});
  clear_counters();
  EXPECT_TRUE(counter_names().empty());
}

TEST_F(MetricsTest, KeepsTheLastSamples) {
  Metric metric("TestSeries", Unit::kNumber);
  for (int i = 0; i < 1030; ++i) {
    metric.add(i);
  }
  Metric::Data data = metric.data();
  EXPECT_EQ(data.total_samples, 1030);
  EXPECT_EQ(data.accumulator, 1029.0 * 1030 / 2);
  ASSERT_EQ(data.samples.size(), 1024u);
  EXPECT_EQ(data.samples.front().second, 6);
  EXPECT_EQ(data.samples.back().second, 1029);
}

TEST_F(MetricsTest, OneSampleHasNoRates) {
  Metric("TensorsGraphSize", Unit::kNumber).add(39);
  EXPECT_EQ(
      report(),
      "Metric: TensorsGraphSize\n  TotalSamples: 1\n  Accumulator: 39.00\n"
      "  Percentiles: 1%=39.00; 5%=39.00; 10%=39.00; 20%=39.00; 50%=39.00; 80%=39.00; 90%=39.00; 95%=39.00; 99%=39.00\n");
}

TEST_F(MetricsTest, SamplesOverTimeHaveRates) {
  Metric metric("OutboundData", Unit::kBytes);
  metric.add(4);
  wait_a_little();
  metric.add(8188);
  std::vector<std::string> lines = split_lines(report());
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[2], "  Accumulator: 8.00KB");
  EXPECT_EQ(lines[3].rfind("  ValueRate: ", 0), 0u);
  EXPECT_NE(lines[3].find("B / second"), std::string::npos);
  EXPECT_EQ(lines[4].rfind("  Rate: ", 0), 0u);
  EXPECT_EQ(lines[5].rfind("  Percentiles: 1%=4.00B; 5%=4.00B; 10%=4.00B; 20%=4.00B; 50%=8.00KB; ", 0), 0u) << lines[5];
}

// The names in their order.
std::vector<std::string> titles(const std::string& text) {
  std::vector<std::string> found;
  for (const std::string& line : split_lines(text)) {
    if (line[0] != ' ') {
      found.push_back(line.substr(line.find(": ") + 2));
    }
  }
  return found;
}

void fill_sample() {
  for (const char* name : {"aten::nonzero", "MarkStep", "xla::add", "CachedCompile"}) {
    find_or_create_counter(name).add();
  }
  for (const char* name : {"ExecuteTime", "LazyTracing", "CompileTime"}) {
    Metric(name, Unit::kTime).add(1);
  }
}

TEST_F(MetricsTest, LazyTensorPartIsFirst) {
  fill_sample();
  EXPECT_EQ(
      titles(report()),
      (std::vector<std::string>{"LazyTracing", "CachedCompile", "xla::add", "CompileTime", "ExecuteTime", "MarkStep", "aten::nonzero"}));
}

TEST_F(MetricsTest, ShortReportHasTheNamedOnesAndFallbacks) {
  fill_sample();
  EXPECT_EQ(
      titles(short_report({"CachedCompile", "MarkStep", "Absent"}, {"ExecuteTime", "CompileTime"})),
      (std::vector<std::string>{"CachedCompile", "ExecuteTime", "CompileTime", "MarkStep", "aten::nonzero"}));
}

TEST_F(MetricsTest, EventsOfTheObserverAreCounted) {
  {
    observer::Span span(observer::Phase::kUpload, observer::kNoDevice);
    span.set_bytes(12);
    wait_a_little();
  }
  Metric::Data data;
  ASSERT_TRUE(find_metric("TransferToDeviceTime", &data));
  EXPECT_EQ(data.total_samples, 1);
  EXPECT_GE(data.accumulator, 1e6);
  ASSERT_TRUE(find_metric("OutboundData", &data));
  EXPECT_EQ(data.accumulator, 12);
  EXPECT_FALSE(find_metric("InboundData", &data));
}

TEST_F(MetricsTest, ThreadsLoseNothing) {
  static Counter counter("TestThreads");
  Metric metric("TestThreads", Unit::kNumber);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        counter.add();
        metric.add(1);
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  EXPECT_EQ(counter.value(), 4000);
  EXPECT_EQ(metric.data().accumulator, 4000);
}

} // namespace
} // namespace torch_xla::metrics
