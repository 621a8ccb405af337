// Eight threads that record at once, with streams, events and random numbers; also run under ThreadSanitizer (make tsan).
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "torch_xla/torch_xla.h"

namespace torch_xla {
namespace {

constexpr int kThreads = 8;
constexpr int kRounds = 100;

void on_threads(const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back(work, i);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

at::TensorOptions on_device() {
  return at::TensorOptions().device(device());
}

c10::Stream new_stream() {
  return c10::impl::VirtualGuardImpl(device().type()).getNewStream(device());
}

TEST(RecordingThreads, EachHasItsValues) {
  at::Tensor shared = at::arange(8, on_device().dtype(at::kFloat));
  at::Tensor rows = at::zeros({kThreads, 8}, on_device());
  on_threads([&](int i) {
    at::Tensor own = at::full({8}, i, on_device().dtype(at::kFloat));
    for (int round = 1; round <= kRounds; ++round) {
      own = own + shared;
      rows[i].add_(shared);
      if (round % 4 == i % 4) {
        sync(/*wait=*/i % 2 == 0);
      }
      if (round % 8 == i) {
        ASSERT_EQ(own[7].item<float>(), static_cast<float>(i + 7 * round));
      }
    }
    ASSERT_EQ(own.cpu().sum().item<float>(), static_cast<float>(8 * i + 28 * kRounds));
  });
  EXPECT_TRUE(at::equal(rows.cpu(), shared.cpu().mul(kRounds).expand({kThreads, 8})));
}

// One thread's events are the next one's to wait for.
TEST(RecordingThreads, EventsOfOthers) {
  std::vector<c10::Event> events;
  for (int i = 0; i < kThreads; ++i) {
    events.emplace_back(device().type(), i % 2 ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT);
  }
  std::vector<at::Tensor> values(kThreads);
  std::mutex mutex; // guards events and values
  on_threads([&](int i) {
    c10::StreamGuard guard(new_stream());
    for (int round = 0; round < kRounds; ++round) {
      at::Tensor value = at::full({4}, round, on_device()) * 2;
      std::lock_guard<std::mutex> lock(mutex);
      values[static_cast<size_t>(i)] = value;
      events[static_cast<size_t>(i)].record(guard.current_stream());
      c10::Event& other = events[static_cast<size_t>((i + 1) % kThreads)];
      other.block(guard.current_stream());
      round % 3 ? (void)other.query() : other.synchronize();
      if (const at::Tensor& seen = values[static_cast<size_t>((i + 1) % kThreads)]; seen.defined() && round % 5 == 0) {
        ASSERT_EQ(seen[0].item<int64_t>() % 2, 0);
      }
    }
  });
}

TEST(RecordingThreads, TimesOfTheirOwnEvents) {
  on_threads([](int i) {
    c10::Event start(device().type(), c10::EventFlag::BACKEND_DEFAULT), end(device().type(), c10::EventFlag::BACKEND_DEFAULT);
    for (int round = 0; round < kRounds; ++round) {
      c10::StreamGuard guard(new_stream());
      start.record(guard.current_stream());
      at::Tensor value = at::full({16}, i, on_device()) + round;
      end.record(guard.current_stream());
      end.synchronize();
      ASSERT_TRUE(start.query() && end.query());
      ASSERT_GE(start.elapsedTime(end), 0);
      ASSERT_EQ(value[15].item<int64_t>(), i + round);
    }
  });
}

// The default generator, and one that all threads share; half of them look at states and set seeds meanwhile.
TEST(RecordingThreads, RandomNumbers) {
  at::Generator common = at::globalContext().getAcceleratorHooksInterface(device().type()).getNewGenerator(0);
  on_threads([&](int i) {
    at::Generator generator = i % 2 ? common : at::globalContext().defaultGenerator(device());
    for (int round = 0; round < kRounds; ++round) {
      at::Tensor numbers = at::rand({64}, generator, on_device());
      if (i % 4 == 0) {
        std::lock_guard<std::mutex> lock(generator.mutex());
        generator.set_current_seed(generator.current_seed() + 1);
        generator.set_state(generator.get_state());
      } else if (round % 4 == 0) {
        at::Tensor seen = numbers.cpu();
        ASSERT_TRUE(seen.min().item<float>() >= 0 && seen.max().item<float>() < 1);
      }
    }
  });
  wait_device_ops();
}

} // namespace
} // namespace torch_xla
