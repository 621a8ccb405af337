// The observer's events as events of a backend, the form in which PyTorch's profiler takes ranges of threads that it does not watch.
#include "device/host_profile.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/metrics.h"
#include "core/torch_release.h"
#include "device/device.h"

namespace torch_xla {
namespace {

using observer::Phase;

// Events that take a thread's time, each once: recorded operations are PyTorch's own ranges, and a wait in the queue takes no thread's
// time.
constexpr uint32_t kPhases = observer::phase_bits(
    Phase::kSync,
    Phase::kCompile,
    Phase::kPass,
    Phase::kRun,
    Phase::kKernel,
    Phase::kLibrary,
    Phase::kUpdate,
    Phase::kUpload,
    Phase::kDownload,
    Phase::kFallback,
    Phase::kWait);

} // namespace

HostProfile::HostProfile() : profile_(c10::ThreadLocalDebugInfo::current()), to_wall_ns_(wall_ns() - metrics::now_ns()) {
  observer::add(*this, kPhases);
}

HostProfile::~HostProfile() {
  close();
}

void HostProfile::close() {
  observer::remove(*this);
  profile_ = nullptr;
}

void HostProfile::on_event(const observer::Event& event) {
  if (profiles_all_threads()) { // such a profile takes no such events
    return;
  }
  // In whole microseconds that lie within the range, so that one range still lies within another.
  const int64_t start_us = (event.start_ns + to_wall_ns_ + 999) / 1000;
  const int64_t end_us = std::max(start_us, (event.end_ns + to_wall_ns_) / 1000);
  std::string name = std::string("xla::") + observer::phase_text(event.phase);
  if (!event.name.empty()) {
    name.append(" ").append(event.name);
  }
  auto before = c10::ThreadLocalDebugInfo::current();
  c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(profile_);
  torch::autograd::profiler::reportBackendEventToActiveKinetoProfiler(
      start_us, end_us, /*debug_handle=*/-1, at::RecordScope::FUNCTION, name, "xla");
  c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(std::move(before));
}

} // namespace torch_xla
