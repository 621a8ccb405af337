// The functions of the public header, the errors of runs, and how programs end: each case is a process of its own.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/wait.h>
#include <torch_xla/torch_xla.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "check.h"

namespace {

at::Tensor ones(at::IntArrayRef sizes) {
  return at::ones(sizes, torch_xla::device());
}

// A product that takes the device some time.
at::Tensor long_work() {
  at::Tensor x = ones({512, 512});
  for (int i = 0; i < 20; ++i) {
    x = x.mm(x) / 512;
  }
  return x;
}

// The text of the error that the function throws, "none" if it throws none.
template <typename Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "none";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// ---- The header ----
int call_functions() {
  setenv("CPU_NUM_DEVICES", "2", 1);
  EXPECT(torch_xla::device_count() == 2);
  EXPECT(torch_xla::device() == c10::Device("xla:0"));
  EXPECT(torch_xla::device(1) == c10::Device("xla:1"));
  EXPECT(contains(error_of([] { torch_xla::device(2); }), "device index 2 does not exist: there are 2 xla devices"));
  EXPECT(!torch_xla::counter_value("MarkStep"));
  {
    const c10::DeviceGuard guard(torch_xla::device(1));
    EXPECT(torch_xla::device() == c10::Device("xla:1"));
    at::Tensor x = long_work();
    torch_xla::sync();
    torch_xla::wait_device_ops();
    EXPECT(x.sum().item<float>() == 512 * 512);
  }
  torch_xla::sync(/*wait=*/true);
  EXPECT(torch_xla::counter_value("MarkStep") == 2);
  EXPECT(torch_xla::counter_value("aten::nonzero").value_or(0) == 0);
  EXPECT(ones({3}).nonzero().size(0) == 3);
  EXPECT(torch_xla::counter_value("aten::nonzero") == 1);
  EXPECT(contains(torch_xla::metrics_report(), "Counter: aten::nonzero"));
  return failures();
}

int refuse_devices() {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  at::Tensor x = ones({2});
  for (c10::DeviceIndex index : {1, 63, 64, 100, 127}) {
    const c10::Device none(c10::DeviceType::PrivateUse1, index);
    const c10::Stream stream(c10::Stream::UNSAFE, none, 0);
    auto is_refused = [index](const auto& call) { // with c10::Error
      return contains(error_of(call), "device index " + std::to_string(index) + " does not exist: there is one xla device, xla:0");
    };
    EXPECT(is_refused([&] { torch_xla::device(index); }));
    EXPECT(is_refused([&] { const c10::DeviceGuard changed(none); }));
    EXPECT(is_refused([&] { at::empty({2}, none); }));
    EXPECT(is_refused([&] { at::full({2}, 3, none); }));
    EXPECT(is_refused([&] { at::rand({2}, none); }));
    EXPECT(is_refused([&] { at::arange(3, none); }));
    EXPECT(is_refused([&] { x.to(none); }));
    EXPECT(is_refused([&] { at::ones({2}).to(none); }));
    EXPECT(is_refused([&] { guard.getStream(none); }));
    EXPECT(is_refused([&] { guard.getDefaultStream(none); }));
    EXPECT(is_refused([&] { guard.getNewStream(none); }));
    EXPECT(is_refused([&] { guard.exchangeStream(stream); }));
    EXPECT(is_refused([&] { guard.queryStream(stream); }));
    EXPECT(is_refused([&] { guard.synchronizeStream(stream); }));
    EXPECT(is_refused([&] { guard.synchronizeDevice(index); }));
    EXPECT(is_refused([&] { guard.getDeviceCapability(none); }));
    EXPECT(is_refused([&] { c10::Event(c10::DeviceType::PrivateUse1).record(stream); }));
    EXPECT(torch_xla::device().index() == 0);
  }
  return failures();
}

int refuse_an_engine() {
  setenv("PJRT_DEVICE", "NOTHING", 1);
  EXPECT(contains(error_of([] { torch_xla::device(); }), "PJRT_DEVICE=NOTHING is not known"));
  EXPECT(contains(error_of([] { at::ones({2}, c10::Device("xla")); }), "PJRT_DEVICE=NOTHING is not known"));
  return failures();
}

// ---- Errors ----
at::Tensor pick(int64_t index) {
  return at::arange(3, torch_xla::device()).index_select(0, at::full({1}, index, at::TensorOptions(at::kLong).device("xla")));
}

int throw_errors() {
  EXPECT(contains(error_of([] { ones({2, 3}).mm(ones({2, 3})); }), "mat1 and mat2 shapes cannot be multiplied"));
  at::Tensor bad = pick(7);
  std::string told = error_of([&] { bad.item<int64_t>(); });
  EXPECT(contains(told, "index out of range") && contains(told, "aten::index_select") && !contains(told, ".py"));
  EXPECT(contains(error_of([&] { bad.cpu(); }), "index out of range"));
  EXPECT(pick(2).item<int64_t>() == 2);
  at::Tensor unread = pick(-9);
  EXPECT(contains(error_of([] { torch_xla::sync(/*wait=*/true); }), "index out of range"));
  EXPECT(error_of([] { torch_xla::sync(/*wait=*/true); }) == "none");
  return failures();
}

int fork_a_child() {
  at::Tensor x = ones({2});
  torch_xla::sync(/*wait=*/true);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = contains(error_of([] { ones({2}); }), "Cannot re-initialize XLA in forked subprocess");
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT(status == 0);
  EXPECT(x.sum().item<float>() == 2);
  return failures();
}

// ---- The end of the process ----
int end_with_work_queued() {
  at::Tensor first = long_work();
  torch_xla::sync();
  at::Tensor second = long_work() + first;
  torch_xla::sync();
  return 0;
}

int end_with_work_recorded() {
  static at::Tensor kept = long_work(); // destroyed after main()
  return 0;
}

at::Tensor global;

int end_with_a_global_tensor() {
  global = long_work();
  torch_xla::sync();
  return 0;
}

int end_by_an_exception() {
  at::Tensor x = long_work();
  torch_xla::sync();
  throw std::runtime_error("thrown out of main()");
}

// Autograd has a thread of its own for the device here, as the calling one is not the main thread.
int end_by_exit_of_a_thread() {
  std::thread([] {
    at::Tensor x = ones({8}).requires_grad_();
    (x * x).sum().backward();
    torch_xla::sync(/*wait=*/true);
    std::exit(3);
  }).join();
  return 0;
}

int end_with_work_of_a_thread() {
  static at::Tensor kept;
  std::thread([] {
    kept = long_work();
    torch_xla::sync();
  }).join();
  return 0;
}

int end_with_an_untold_error() {
  static at::Tensor bad = pick(7);
  torch_xla::sync();
  return 0;
}

struct Case {
  const char* name;
  int (*run)();
  int status = 0; // as waitpid() tells it, if it is a signal
  const char* text = ""; // among what it writes
};

const Case kCases[] = {
    {"functions", call_functions},
    {"devices", refuse_devices},
    {"engine", refuse_an_engine},
    {"errors", throw_errors},
    {"fork", fork_a_child},
    {"queued", end_with_work_queued},
    {"recorded", end_with_work_recorded},
    {"global", end_with_a_global_tensor},
    {"exception", end_by_an_exception, SIGABRT, "thrown out of main()"},
    {"work of a thread", end_with_work_of_a_thread},
    {"exit of a thread", end_by_exit_of_a_thread, 3 << 8},
    {"untold", end_with_an_untold_error, 1 << 8, "Exception ignored in a program of the XLA device that nobody waited for"},
};

// Runs the case in a process of its own.
void run_case(const char* program, const Case& c) {
  const std::string command = std::string("ulimit -c 0; exec '") + program + "' '" + c.name + "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  while (size_t count = fread(buffer, 1, sizeof(buffer), pipe)) {
    output.append(buffer, count);
  }
  const int status = pclose(pipe);
  const bool good = status == c.status && contains(output, c.text) && (*c.text || output.empty());
  std::printf("%s: %s\n", c.name, good ? "good" : "NOT good");
  if (!good) {
    std::printf("status %#x, expected %#x, text \"%s\"\n%s\n", status, c.status, c.text, output.c_str());
    ++num_failed;
  }
}

} // namespace

int main(int argc, char** argv) {
  for (const Case& c : kCases) {
    if (argc == 1) {
      run_case(argv[0], c);
    } else if (argv[1] == std::string(c.name)) {
      return c.run();
    }
  }
  return argc == 1 ? failures() : EXIT_FAILURE;
}
