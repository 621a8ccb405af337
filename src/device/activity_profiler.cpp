// torch.profiler's view of the device: the step observer's events as Kineto's activities, on tracks of the device and of host threads.
//
// A device has the tracks of profile_tracks.h. What the host does for it (sync, compile and its passes, transfers, fallbacks, waits) is on
// the track of its thread. A step of a run is linked with the operation of PyTorch that recorded the node which it is named by, with an
// arrow from there.
//
// The interface: torch/csrc/profiler/standalone/privateuse1_profiler.h and kineto/IActivityProfiler.h of PyTorch's headers.
#define FMT_HEADER_ONLY // which Kineto's headers use
#define USE_KINETO // the header is empty without
#include <libkineto.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/metrics.h"
#include "core/observer.h"
#include "device/device.h"
#include "device/profile_tracks.h"
#include "tensor/source_line.h"

namespace torch_xla {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;
using observer::Event;
using observer::Phase;

// All but optimizers' steps, which PyTorch tells itself.
constexpr uint32_t kPhases = observer::kAllPhases & ~observer::phase_bits(Phase::kOptimizer);

// An operation of PyTorch, or a range of record_function(), that a thread is in, as Kineto numbers them.
struct Range {
  uint64_t session; // that told of it: what one leaves behind is not the next one's
  uint64_t id;
  std::shared_ptr<const Range> outer; // null, or of the same session
};
using RangeRef = std::shared_ptr<const Range>;

// The innermost ones that this thread is in.
thread_local RangeRef operation;
thread_local RangeRef annotation;

RangeRef of_session(const RangeRef& innermost, uint64_t session) {
  return innermost && innermost->session == session ? innermost : nullptr;
}
void enter(RangeRef& innermost, uint64_t session, uint64_t id) {
  innermost = std::make_shared<Range>(Range{session, id, of_session(innermost, session)});
}
void leave(RangeRef& innermost, uint64_t session) {
  if (RangeRef left = of_session(innermost, session)) {
    innermost = left->outer;
  }
}

ActivityType type_of(Phase phase) {
  if (is_step(phase)) {
    return ActivityType::CONCURRENT_KERNEL;
  }
  // PyTorch's tables take all that is a host's for what the profiler's own thread does, one within another. No thread of a user's waits in
  // the queue, and a trace begins within an operation.
  bool is_annotation = phase == Phase::kRun || phase == Phase::kQueue || phase == Phase::kTrace;
  return is_annotation ? ActivityType::GPU_USER_ANNOTATION : ActivityType::PRIVATEUSE1_RUNTIME;
}

// For a JSON string.
std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text) {
    result += c == '"' || c == '\\' ? std::string{'\\', c} : static_cast<unsigned char>(c) < ' ' ? std::string(1, ' ') : std::string(1, c);
  }
  return result;
}

// One recording by torch.profiler.
class Session final : public libkineto::IActivityProfilerSession, public observer::Observer {
 public:
  ~Session() override {
    end();
  }

  void start() override {
    start_ns_ = metrics::now_ns();
    to_wall_ns_ = wall_ns() - start_ns_;
    observer::add(*this, kPhases);
    start_memory_profiler();
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    end();
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  void on_event(const Event& event) override {
    Entry& entry = entries_.emplace_back();
    entry.event = event;
    entry.name = event.name;
    entry.detail = event.detail;
    entry.thread = libkineto::systemThreadId();
    RangeRef known = of_session(operation, number_);
    entry.operation = known ? known->id : 0;
    entry.annotation = of_session(annotation, number_);
  }

  void pushCorrelationId(uint64_t id) override {
    enter(operation, number_, id);
  }
  void popCorrelationId() override {
    leave(operation, number_);
  }
  void pushUserCorrelationId(uint64_t id) override {
    enter(annotation, number_, id);
  }
  void popUserCorrelationId() override {
    leave(annotation, number_);
  }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, INT64_MAX);
  }
  void processTrace(
      libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback find_linked, int64_t /*start*/, int64_t /*end*/) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span.name = name_of_device();
    buffer_->gpuOpCount = 0;
    link_steps();
    find_tracks();
    for (const Entry& entry : entries_) {
      if (entry.is_linked || entry.event.phase != Phase::kRecord) {
        add_activity(entry, find_linked);
        buffer_->activities.back()->log(logger);
      }
    }
    add_annotations(logger, find_linked);
    entries_.clear();
  }

  std::vector<std::string> errors() override {
    return {};
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::unique_ptr<libkineto::DeviceInfo>(new libkineto::DeviceInfo{0, 0, name_of_device(), name_of_device()});
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> tracks;
    for (int device = 0; device < num_devices_; ++device) {
      for (int32_t track = 0; track < tracks_.size(); ++track) {
        tracks.push_back({track, track < kNumTracks ? track : int32_t{kPrograms}, device, track_name(track)});
      }
    }
    return tracks;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

 private:
  struct Entry {
    Event event; // its texts are gone
    std::string name;
    std::string detail;
    int32_t thread = 0;
    int32_t track = 0; // of its device
    uint64_t operation = 0; // of PyTorch, on whose behalf it happened; 0: none
    RangeRef annotation; // likewise
    bool is_linked = false; // has one end of an arrow
  };

  void end() {
    stop_memory_profiler();
    observer::remove(*this);
  }

  static std::string name_of_device() {
    return "xla";
  }

  // Steps get the operations that recorded their nodes: on the step's device, before its run's sync.
  void link_steps() {
    using Records = std::unordered_map<int32_t, Entry*>; // by node
    std::unordered_map<int, Records> pending; // by device
    std::unordered_map<uint64_t, Records> of_run;
    std::unordered_set<uint64_t> begun; // operations whose arrow has its beginning: at one of the nodes that they recorded
    for (Entry& entry : entries_) {
      const Event& event = entry.event;
      num_devices_ = std::max(num_devices_, event.device + 1);
      if (event.phase == Phase::kRecord && (entry.operation || entry.annotation)) {
        pending[event.device][event.node] = &entry;
      } else if (event.phase == Phase::kSync) {
        of_run[event.run] = std::exchange(pending[event.device], {});
      }
    }
    for (Entry& entry : entries_) {
      Records& records = of_run[entry.event.run];
      auto record = is_step(entry.event.phase) ? records.find(entry.event.node) : records.end();
      if (record != records.end()) {
        entry.operation = record->second->operation;
        entry.annotation = record->second->annotation;
        entry.is_linked = entry.operation;
        record->second->is_linked |= entry.operation && begun.insert(entry.operation).second;
      }
    }
  }

  void find_tracks() {
    std::vector<Entry*> by_start;
    for (Entry& entry : entries_) {
      by_start.push_back(&entry);
    }
    std::stable_sort(by_start.begin(), by_start.end(), [](Entry* a, Entry* b) { return a->event.start_ns < b->event.start_ns; });
    for (Entry* entry : by_start) {
      entry->track = tracks_.take(entry->event, entry->thread);
    }
  }

  void add_activity(const Entry& entry, const libkineto::getLinkedActivityCallback& find_linked) {
    const Event& event = entry.event;
    const ActivityType type = type_of(event.phase);
    const bool on_host = type == ActivityType::PRIVATEUSE1_RUNTIME;
    buffer_->emplace_activity(buffer_->span, type, name_of(entry));
    GenericTraceActivity& activity = *buffer_->activities.back();
    activity.startTime = std::max(event.start_ns, start_ns_) + to_wall_ns_; // a trace may have begun before
    activity.endTime = event.end_ns + to_wall_ns_;
    activity.device = on_host ? getpid() : std::max(event.device, 0);
    activity.resource = on_host ? entry.thread : entry.track;
    activity.threadId = entry.thread;
    if (entry.is_linked) {
      link(activity, entry, find_linked);
    }
    add_metadata(activity, entry);
  }

  // What the steps took that were recorded within the ranges of record_function().
  void add_annotations(libkineto::ActivityLogger& logger, const libkineto::getLinkedActivityCallback& find_linked) {
    struct Time {
      int64_t start_ns = INT64_MAX;
      int64_t end_ns = 0;
    };
    std::map<std::pair<uint64_t, int>, Time> times; // by range and device
    for (const Entry& entry : entries_) {
      for (const Range* range = is_step(entry.event.phase) ? entry.annotation.get() : nullptr; range; range = range->outer.get()) {
        Time& time = times[{range->id, entry.event.device}];
        time = {std::min(time.start_ns, entry.event.start_ns), std::max(time.end_ns, entry.event.end_ns)};
      }
    }
    for (const auto& [key, time] : times) {
      const libkineto::ITraceActivity* range = find_linked(static_cast<int32_t>(key.first));
      if (range) {
        buffer_->emplace_activity(buffer_->span, ActivityType::GPU_USER_ANNOTATION, range->name());
        GenericTraceActivity& activity = *buffer_->activities.back();
        activity.startTime = time.start_ns + to_wall_ns_;
        activity.endTime = time.end_ns + to_wall_ns_;
        activity.device = key.second;
        activity.resource = kAnnotations;
        activity.id = static_cast<int32_t>(key.first);
        activity.linked = range;
        activity.log(logger);
      }
    }
  }

  static std::string name_of(const Entry& entry) {
    const std::string phase = observer::phase_text(entry.event.phase);
    if (is_step(entry.event.phase)) {
      return entry.name;
    }
    return entry.name.empty() ? "xla::" + phase : "xla::" + phase + " " + entry.name;
  }

  // The arrow begins where the operation was recorded.
  static void link(GenericTraceActivity& activity, const Entry& entry, const libkineto::getLinkedActivityCallback& find_linked) {
    activity.id = static_cast<int32_t>(entry.operation);
    activity.linked = find_linked(activity.id);
    activity.flow.id = static_cast<uint32_t>(activity.id);
    activity.flow.type = libkineto::kLinkAsyncCpuGpu;
    activity.flow.start = entry.event.phase == Phase::kRecord;
  }

  static void add_metadata(GenericTraceActivity& activity, const Entry& entry) {
    if (is_step(entry.event.phase)) { // by names that readers of such traces know
      activity.addMetadata("device", entry.event.device);
      activity.addMetadata("stream", activity.resource);
    }
    if (entry.event.run) {
      activity.addMetadata("run", entry.event.run);
    }
    if (std::string line = location_text(entry.event.line); !line.empty()) {
      activity.addMetadataQuoted("line", escaped(line));
    }
    if (!entry.detail.empty()) {
      activity.addMetadataQuoted("detail", escaped(entry.detail));
    }
    if (entry.event.nodes >= 0) {
      activity.addMetadata("nodes", entry.event.nodes);
    }
    if (entry.event.bytes >= 0) {
      activity.addMetadata("bytes", entry.event.bytes);
    }
  }

  static inline std::atomic<uint64_t> num_sessions_{0};

  const uint64_t number_ = ++num_sessions_;
  int64_t start_ns_ = 0; // of the session, by the observer's clock
  int64_t to_wall_ns_ = 0; // Kineto's clock minus the observer's
  int num_devices_ = 1; // that the trace tells of
  std::vector<Entry> entries_; // written by the observer until stop()
  Tracks tracks_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    return name_;
  }
  const std::set<ActivityType>& availableActivities() const override {
    return types_;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types, const libkineto::Config&) override {
    // The host's types are asked for by the activity CPU, too.
    return types.count(ActivityType::CONCURRENT_KERNEL) ? std::make_unique<Session>() : nullptr;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t /*ts_ms*/, int64_t /*duration_ms*/, const std::set<ActivityType>& types, const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "torch_xla";
  const std::set<ActivityType> types_ = {
      ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_USER_ANNOTATION, ActivityType::PRIVATEUSE1_RUNTIME};
};

} // namespace

void register_activity_profiler() {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory([] { return std::make_unique<Profiler>(); });
}

} // namespace torch_xla
