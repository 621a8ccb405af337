// The executor's order, back-pressure and errors.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "core/errors.h"
#include "function_program.h"
#include "runtime/executor.h"
#include "runtime/interrupt.h"
#include "runtime/wait.h"

namespace torch_xla {
namespace {

const Type kType{DType::F32, {4}};

// Of one output.
std::unique_ptr<Run> make_run(std::shared_ptr<Executable> executable, std::vector<BufferRef> inputs) {
  std::unique_ptr<Run> run = Executor::get(0).new_run();
  run->executable = std::move(executable);
  run->args.donated.resize(inputs.size());
  run->inputs = std::move(inputs);
  run->outputs = {std::make_shared<Buffer>(kType, Dims())};
  run->describe = [](std::span<const int64_t>, int32_t location) { return str("\nline ", location); };
  return run;
}

BufferRef enqueue(std::vector<BufferRef> inputs, std::function<void(RunArgs&)> body) {
  auto run = make_run(std::make_shared<FunctionProgram>(std::move(body)), std::move(inputs));
  BufferRef output = run->outputs[0];
  Executor::get(0).enqueue(std::move(run));
  Executor::get(0).wait_for_room();
  return output;
}

EngineBufferRef make_payload() {
  static const float data[4] = {};
  return cpu_engine().upload(0, kType, {}, data);
}

void fill(RunArgs& args) {
  args.outputs = {make_payload()};
}

TEST(Executor, RunsInOrder) {
  std::vector<int> order;
  std::vector<BufferRef> outputs;
  for (int i = 0; i < 20; ++i) {
    outputs.push_back(enqueue({}, [&order, i](RunArgs& args) {
      order.push_back(i);
      fill(args);
    }));
  }
  EXPECT_NE(outputs.back()->wait(), nullptr);
  Executor::get(0).drain();
  EXPECT_TRUE(Executor::get(0).idle());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(order[i], i);
    EXPECT_EQ(outputs[i]->state(), Buffer::State::kReady);
  }
}

// Notes the thread of each of its runs.
std::shared_ptr<FunctionProgram> make_noting_program(std::vector<std::thread::id>& threads) {
  return std::make_shared<FunctionProgram>([&threads](RunArgs& args) {
    threads.push_back(std::this_thread::get_id());
    fill(args);
  });
}

// Its thread leaves the processors to others then.
void let_device_rest() {
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

TEST(Executor, AShortProgramRunsOnTheThreadThatWaitsForIt) {
  std::vector<std::thread::id> threads;
  auto program = make_noting_program(threads);
  bool needs_results = true;
  bool reads = true;
  auto run_here = [&](bool waits_for_others = false) {
    auto run = make_run(program, {});
    run->waits_for_others = waits_for_others;
    BufferRef output = run->outputs[0];
    {
      const Executor::ShortRuns short_runs(0, needs_results);
      Executor::get(0).enqueue(std::move(run));
    }
    reads ? static_cast<void>(output->wait()) : Executor::get(0).drain();
    return threads.back() == std::this_thread::get_id();
  };
  EXPECT_FALSE(run_here()) << "how long it takes is not known yet";
  program->usual_run_ns = 1000;
  EXPECT_FALSE(run_here()) << "the device's thread has the processors";
  for (int i = 0; i < 20; ++i) {
    run_here();
  }
  EXPECT_TRUE(run_here()) << "after many short ones";
  program->usual_run_ns = 70'000;
  EXPECT_TRUE(run_here());
  let_device_rest();
  program->usual_run_ns = 1000;
  EXPECT_TRUE(run_here());
  EXPECT_FALSE(run_here(/*waits_for_others=*/true));
  needs_results = reads = false;
  let_device_rest();
  EXPECT_TRUE(run_here()) << "as the last ones were read";
  let_device_rest();
  EXPECT_FALSE(run_here()) << "the thread goes on without its results";
  reads = true;
  for (int i = 0; i < 30; ++i) {
    run_here();
  }
  EXPECT_TRUE(run_here()) << "the thread reads each run's results before it queues the next one";
  reads = false;
  run_here();
  program->finds_no_processor = true;
  let_device_rest();
  program->usual_run_ns = 1000;
  EXPECT_TRUE(run_here()) << "there is no other processor";
  let_device_rest();
  program->usual_run_ns = 1'000'000;
  EXPECT_FALSE(run_here());
  EXPECT_TRUE(Executor::get(0).idle());
}

TEST(Executor, OneLongRunDoesNotMakeAShortProgramLong) {
  auto pause = std::chrono::milliseconds(3);
  auto program = std::make_shared<FunctionProgram>([&](RunArgs& args) {
    std::this_thread::sleep_for(pause);
    fill(args);
  });
  program->usual_run_ns = 20'000;
  auto run = [&] {
    Executor::get(0).enqueue(make_run(program, {}));
    Executor::get(0).drain();
    return program->usual_run_ns.load();
  };
  EXPECT_EQ(run(), 25'000);
  for (int i = 0; i < 30; ++i) {
    run();
  }
  EXPECT_GE(run(), 3'000'000) << "it has become a long one";
  pause = std::chrono::milliseconds(0);
  EXPECT_LT(run(), 3'000'000);
}

TEST(Executor, WhatComesBehindTheCallersRunWaitsForIt) {
  std::vector<std::thread::id> threads;
  auto program = make_noting_program(threads);
  program->usual_run_ns = 1000;
  std::vector<int> order;
  BufferRef other;
  auto first = std::make_shared<FunctionProgram>([&](RunArgs& args) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    order.push_back(1);
    fill(args);
  });
  first->usual_run_ns = 1000;
  auto run = make_run(first, {});
  BufferRef output = run->outputs[0];
  {
    let_device_rest();
    const Executor::ShortRuns short_runs(0);
    Executor::get(0).enqueue(std::move(run));
    std::thread([&] {
      other = enqueue({}, [&](RunArgs& args) {
        order.push_back(2);
        fill(args);
      });
    }).join();
    EXPECT_EQ(output->state(), Buffer::State::kQueued);
  }
  EXPECT_EQ(output->state(), Buffer::State::kReady);
  other->wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(Executor, TheCallersRunTellsItsError) {
  auto program = std::make_shared<FunctionProgram>([](RunArgs&) { throw UserError(ErrorKind::Runtime, "no"); });
  program->usual_run_ns = 1000;
  auto run = make_run(program, {});
  BufferRef output = run->outputs[0];
  {
    let_device_rest();
    const Executor::ShortRuns short_runs(0);
    Executor::get(0).enqueue(std::move(run));
  }
  EXPECT_THROW(output->wait(), UserError);
  EXPECT_NO_THROW(Executor::get(0).drain()) << "it has been told";
}

// Whether it tells, or not, at its beginning.
class TellingProgram final : public FunctionProgram {
 public:
  using FunctionProgram::FunctionProgram;
  bool leaves_processor() const override {
    return true;
  }
};

// Whether a thread that waits for a first run goes on at once while a second one, which stays until then, is running behind it. It looks
// every 50 ms in any case.
bool wait_for_the_first(const std::function<std::shared_ptr<Executable>(const std::atomic<bool>& go)>& make_second) {
  std::atomic<bool> begin{false};
  std::atomic<bool> go{false};
  BufferRef first = enqueue({}, [&](RunArgs& args) {
    while (!begin || wait::num_waiting() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    fill(args);
  });
  Executor::get(0).enqueue(make_run(make_second(go), {}));
  begin = true;
  const auto start = std::chrono::steady_clock::now();
  first->wait();
  const bool at_once = std::chrono::steady_clock::now() - start < std::chrono::milliseconds(40);
  go = true;
  Executor::get(0).drain();
  return at_once;
}

TEST(Executor, TheNextRunTellsThatTheLastHasEnded) {
  bool gets_to_tell = false;
  auto run_until = [&](RunArgs& args, const std::atomic<bool>& go) {
    gets_to_tell = args.options.tell != nullptr;
    if (gets_to_tell) {
      args.options.tell();
    }
    while (!go) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    fill(args);
  };
  auto is_told_at_once = [&](auto make) {
    bool at_once = false;
    for (int i = 0; i < 5 && !at_once; ++i) { // where another process has the processors
      at_once = wait_for_the_first([&](const std::atomic<bool>& go) { return make([&](RunArgs& args) { run_until(args, go); }); });
    }
    return at_once;
  };
  EXPECT_TRUE(is_told_at_once([](auto body) { return std::make_shared<TellingProgram>(body); }));
  EXPECT_TRUE(gets_to_tell);
  EXPECT_TRUE(is_told_at_once([](auto body) { return std::make_shared<FunctionProgram>(body); }));
  EXPECT_FALSE(gets_to_tell) << "the executor has told it";
}

TEST(Executor, HoldsBackTheRecorder) {
  std::atomic<bool> go{false};
  std::atomic<int> queued{0};
  std::thread recorder([&] {
    for (int i = 0; i < 5; ++i) {
      enqueue({}, [&](RunArgs& args) {
        while (!go) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        fill(args);
      });
      ++queued;
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(queued.load(), Executor::kMaxQueued);
  go = true;
  recorder.join();
  Executor::get(0).drain();
}

TEST(Executor, ErrorsReachWhoeverAsksFirst) {
  BufferRef failed = enqueue({}, [](RunArgs&) { throw StepError(ErrorKind::Value, "bad step", 7); });
  BufferRef dependent = enqueue({failed}, fill);
  for (const BufferRef& buffer : {failed, dependent}) {
    try {
      buffer->wait();
      FAIL();
    } catch (const UserError& e) {
      EXPECT_STREQ(e.what(), "bad step\nline 7");
      EXPECT_EQ(e.kind(), ErrorKind::Value);
    }
  }
  EXPECT_NO_THROW(Executor::get(0).drain()); // the reads have told
  enqueue({}, [](RunArgs&) { throw StepError(ErrorKind::Value, "bad step", 7); });
  EXPECT_THROW(Executor::get(0).drain(), UserError);
  EXPECT_NO_THROW(Executor::get(0).drain());
  EXPECT_NO_THROW(enqueue({}, fill)->wait());
}

TEST(Executor, DonationTakesThePayload) {
  auto input = std::make_shared<Buffer>(make_payload());
  std::unique_ptr<torch_xla::Run> run = Executor::get(0).new_run();
  run->executable = std::make_shared<FunctionProgram>([](RunArgs& args) {
    EXPECT_EQ(args.inputs[0].use_count(), 1);
    args.outputs = {args.inputs[0]};
  });
  run->inputs = {input};
  run->args.donated = {true};
  run->outputs = {std::make_shared<Buffer>(kType, Dims())};
  BufferRef output = run->outputs[0];
  Executor::get(0).enqueue(std::move(run));
  EXPECT_NE(output->wait()->host_pointer(), nullptr);
  EXPECT_THROW(input->wait(), UserError); // its memory is gone
}

TEST(Executor, FailedRunsGiveBackWhatTensorsHeld) {
  auto before = std::make_shared<Buffer>(make_payload());
  auto kept = std::make_shared<Previous>();
  kept->buffer = KeptBuffer(before);
  auto replace = [&](std::function<void(RunArgs&)> body) {
    std::unique_ptr<torch_xla::Run> run = make_run(std::make_shared<FunctionProgram>(std::move(body)), {before});
    run->args.donated = run->args.restored = {true};
    run->replaced = {kept};
    BufferRef output = run->outputs[0];
    Executor::get(0).enqueue(std::move(run));
    return output;
  };
  EXPECT_THROW(replace([](RunArgs&) { throw UserError(ErrorKind::Value, "bad step"); })->wait(), UserError);
  EXPECT_TRUE(before->may_have_value());
  EXPECT_NO_THROW(before->wait());
  EXPECT_EQ(kept->buffer.get(), before);
  auto lost = [](RunArgs& args) {
    args.inputs[0].reset();
    throw UserError(ErrorKind::Value, "bad step");
  };
  auto intact = std::make_shared<Buffer>(make_payload());
  std::swap(before, intact);
  EXPECT_THROW(replace(lost)->wait(), UserError);
  EXPECT_FALSE(before->may_have_value());
  std::swap(before, intact);
  EXPECT_NO_THROW(replace(fill)->wait());
  EXPECT_EQ(kept->buffer.get(), nullptr);
  Executor::get(0).drain();
}

// Runs until it is told to end, or cancelled.
void run_long(RunArgs& args, const std::atomic<bool>& go) {
  while (!go) {
    XLA_CHECK(!args.options.is_cancelled(), kCancelled);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  fill(args);
}

TEST(Executor, CancelledRunsFailAndNobodyIsTold) {
  std::atomic<bool> go{false};
  std::vector<BufferRef> outputs;
  for (int i = 0; i < 2; ++i) {
    outputs.push_back(enqueue({}, [&](RunArgs& args) { run_long(args, go); }));
  }
  wait::cancel_runs();
  for (const BufferRef& output : outputs) {
    EXPECT_EQ(output->wait_for_end(), Buffer::State::kFailed);
    EXPECT_FALSE(output->has_news());
  }
  EXPECT_NO_THROW(Executor::get(0).drain());
  EXPECT_NO_THROW(enqueue({}, fill)->wait());
  EXPECT_THROW(enqueue({outputs[0]}, fill)->wait(), UserError); // what it costs later is told
  EXPECT_NO_THROW(Executor::get(0).drain());
}

TEST(Executor, ErrorsAreToldAsSoonAsTheyAreKnown) {
  EXPECT_NO_THROW(Executor::get(0).check_news());
  BufferRef failed = enqueue({}, [](RunArgs&) { throw UserError(ErrorKind::Value, "bad step"); });
  failed->wait_for_end();
  EXPECT_TRUE(failed->has_news());
  EXPECT_THROW(Executor::get(0).check_news(), UserError);
  EXPECT_FALSE(failed->has_news());
  EXPECT_NO_THROW(Executor::get(0).check_news());
}

TEST(Executor, TheEndOfTheProcessDoesNotWaitForEver) {
  using std::chrono::milliseconds;
  EXPECT_TRUE(Executor::finish(milliseconds(0)));
  std::atomic<bool> go{false};
  enqueue({}, [&](RunArgs& args) { run_long(args, go); });
  EXPECT_TRUE(Executor::finish(milliseconds(1))); // cancels
  enqueue({}, [&](RunArgs& args) {
    while (!go) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    fill(args);
  });
  EXPECT_FALSE(Executor::finish(milliseconds(1))); // hangs
  go = true;
  EXPECT_TRUE(Executor::finish(std::chrono::seconds(60)));
  Executor::get(0).drain();
}

// A program whose device goes on by itself: `end` is the wait for it.
class AsynchronousProgram final : public FunctionProgram {
 public:
  AsynchronousProgram(std::function<void(RunArgs&)> body, std::function<void()> end)
      : FunctionProgram(std::move(body)), end_(std::move(end)) {}
  bool is_asynchronous() const override {
    return true;
  }
  std::function<void()> start(RunArgs& args) override {
    run(args);
    return end_;
  }

 private:
  std::function<void()> end_;
};

BufferRef enqueue_asynchronous(std::vector<BufferRef> inputs, std::function<void(RunArgs&)> body, std::function<void()> end) {
  auto run = make_run(std::make_shared<AsynchronousProgram>(std::move(body), std::move(end)), std::move(inputs));
  BufferRef output = run->outputs[0];
  Executor::get(0).enqueue(std::move(run));
  return output;
}

TEST(Executor, StartsTheNextRunBeforeTheEndOfTheLast) {
  std::atomic<bool> queued{false};
  std::vector<std::string> log; // of the executor's thread
  auto start = [&](const char* what) {
    return [&, what](RunArgs& args) {
      while (!queued) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      log.push_back(what);
      fill(args);
    };
  };
  auto end = [&](const char* what) { return [&log, what] { log.push_back(what); }; };
  BufferRef first = enqueue_asynchronous({}, start("start 1"), end("end 1"));
  BufferRef second = enqueue_asynchronous({first}, start("start 2"), end("end 2"));
  queued = true;
  BufferRef last = enqueue({second}, start("run 3")); // runs alone
  EXPECT_NO_THROW(last->wait());
  EXPECT_EQ(log, (std::vector<std::string>{"start 1", "start 2", "end 1", "end 2", "run 3"}));
  EXPECT_EQ(first->state(), Buffer::State::kReady);
  EXPECT_EQ(second->state(), Buffer::State::kReady);
}

TEST(Executor, ErrorsOfTheDeviceFailTheOutputs) {
  BufferRef failed = enqueue_asynchronous({}, fill, [] { throw UserError(ErrorKind::OutOfMemory, "no room"); });
  BufferRef other = enqueue_asynchronous({}, fill, [] {});
  EXPECT_NO_THROW(other->wait());
  EXPECT_THROW(failed->wait(), UserError);
  EXPECT_NO_THROW(Executor::get(0).drain()); // the read has told
  EXPECT_THROW(enqueue({failed}, fill)->wait(), UserError);
  Executor::get(0).drain();
}

TEST(Executor, WaitsPollForSignals) {
  static std::atomic<int> polls;
  polls = 0;
  static constexpr interrupt::Hooks hooks{
      .hear =
          [] {
            if (++polls == 2) {
              throw UserError(ErrorKind::Runtime, "interrupted");
            }
          },
      .is_pending = [] { return false; },
      .raise_default = [] {},
      .begin_thread = [] {},
      .release_gil = []() -> void* { return nullptr; },
      .take_gil = [](void*) {}};
  interrupt::set_hooks(&hooks);
  std::atomic<bool> go{false};
  BufferRef output = enqueue({}, [&](RunArgs& args) {
    while (!go) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    fill(args);
  });
  EXPECT_THROW(output->wait(), UserError);
  interrupt::set_hooks(nullptr);
  go = true;
  EXPECT_NO_THROW(output->wait());
}

TEST(Executor, ForkedChildGetsAnError) {
  BufferRef ready = enqueue({}, fill);
  ready->wait();
  pid_t child = fork();
  if (child == 0) {
    bool thrown = false;
    try {
      enqueue({}, fill);
    } catch (const UserError&) {
      thrown = true;
    }
    ready.reset();
    _exit(thrown ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_NO_THROW(enqueue({}, fill)->wait());
}

} // namespace
} // namespace torch_xla
