// Several threads at once in the pool and before the executor; also run under ThreadSanitizer (make tsan).
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "engine/cpu/memory/pool.h"
#include "runtime/executor.h"

namespace torch_xla {
namespace {

template <typename Work>
void on_threads(int count, Work work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back(work, i);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// Blocks of all sizes, with a mark at both ends that nobody else may overwrite.
void use_pool(int seed) {
  cpu::Pool& pool = cpu::Pool::get(0);
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<std::pair<char*, size_t>> held;
  for (int i = 0; i < 20000; ++i) {
    if (held.size() > 30 || (random() % 2 && !held.empty())) {
      size_t chosen = random() % held.size();
      auto [data, size] = held[chosen];
      ASSERT_EQ(data[0], static_cast<char>(size));
      ASSERT_EQ(data[size - 1], static_cast<char>(size));
      pool.release(data);
      held.erase(held.begin() + static_cast<ptrdiff_t>(chosen));
    } else {
      size_t size = 1 + (size_t{1} << random() % 22) + random() % 1000;
      auto* data = static_cast<char*>(pool.allocate(size));
      data[0] = data[size - 1] = static_cast<char>(size);
      held.emplace_back(data, size);
    }
    if (i % 500 == 0) {
      pool.empty_cache();
    }
  }
  for (auto [data, size] : held) {
    pool.release(data);
  }
}

TEST(Threads, BlocksOfThePoolStayWhole) {
  int64_t before = cpu::Pool::get(0).bytes_used();
  on_threads(4, use_pool);
  EXPECT_EQ(cpu::Pool::get(0).bytes_used(), before);
}

class Number final : public EngineBuffer {
 public:
  explicit Number(int v) : EngineBuffer({DType::I32, {}}, {}, 0), value(v) {}
  void* host_pointer() const override {
    return const_cast<int*>(&value);
  }
  bool sole_owner() const override {
    return true;
  }
  const int value;
};

// Its input and one.
class Increment final : public Executable {
 public:
  void run(RunArgs& args) override {
    int value = args.inputs.empty() ? 0 : static_cast<Number&>(*args.inputs[0]).value;
    args.outputs = {std::make_shared<Number>(value + 1)};
  }
};

void count_by_runs(int /*thread*/) {
  static std::mutex recording;
  BufferRef last;
  for (int i = 1; i <= 1000; ++i) {
    std::unique_ptr<Run> run = Executor::get(0).new_run();
    run->executable = std::make_shared<Increment>();
    run->inputs = last ? std::vector{last} : std::vector<BufferRef>();
    run->outputs = {std::make_shared<Buffer>(Type{DType::I32, {}}, Dims())};
    last = run->outputs[0];
    {
      std::lock_guard<std::mutex> lock(recording);
      Executor::get(0).enqueue(std::move(run));
    }
    Executor::get(0).wait_for_room();
    if (i % 50 == 0) {
      BufferReader reader(last);
      ASSERT_EQ(static_cast<Number&>(*reader->wait()).value, i);
    }
  }
}

TEST(Threads, EachGetsTheResultsOfItsRuns) {
  on_threads(4, count_by_runs);
  Executor::get(0).drain();
}

// Counts how often it runs.
class Counted final : public Executable {
 public:
  void run(RunArgs& args) override {
    args.outputs = {std::make_shared<Number>(++count)};
  }
  std::atomic<int> count{0};
};

// Short programs run on the thread that would wait for them, if no other is before them.
void give_short_runs(const std::shared_ptr<Counted>& counted, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    std::unique_ptr<Run> run = Executor::get(0).new_run();
    run->executable = counted;
    run->outputs = {std::make_shared<Buffer>(Type{DType::I32, {}}, Dims())};
    {
      const Executor::ShortRuns short_runs(0);
      Executor::get(0).enqueue(std::move(run));
    }
    Executor::get(0).wait_for_room();
  }
}

TEST(Threads, ShortRunsOfManyRunOnce) {
  auto counted = std::make_shared<Counted>();
  counted->usual_run_ns = 0;
  on_threads(8, [&](int) { give_short_runs(counted, 30000); });
  Executor::get(0).drain();
  EXPECT_EQ(counted->count, 8 * 30000);
}

} // namespace
} // namespace torch_xla
