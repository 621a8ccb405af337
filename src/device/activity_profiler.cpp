// torch.profiler's view of the device: the step observer's events as Kineto's activities, on tracks of the device and of host threads.
//
// A device has the tracks of profile_tracks.h. The host's work for it (sync, compile and its passes, transfers, fallbacks, waits) is on the
// track of the thread that does it. An arrow links a step of a run with the operation of PyTorch that recorded the step's node.
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
#include <utility>
#include <vector>

#include "core/metrics.h"
#include "core/observer.h"
#include "device/device.h"
#include "device/host_ranges.h"
#include "device/profile_entries.h"
#include "device/profile_tracks.h"
#include "trace/source_line.h"

namespace torch_xla {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;
using observer::Event;
using observer::Phase;

// All except what has no length; PyTorch reports optimizers' steps itself.
constexpr uint32_t kPhases = observer::kAllPhases & ~observer::phase_bits(Phase::kOptimizer, Phase::kReplicated);

ActivityType type_of(Phase phase) {
  if (is_step(phase)) {
    return ActivityType::CONCURRENT_KERNEL;
  }
  // PyTorch's tables take all host activities for nested work of the profiler's own thread. No thread of a user's waits in the queue, and a
  // trace begins within an operation.
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

using Entry = ProfileEntry;

// One recording by torch.profiler.
class Session final : public libkineto::IActivityProfilerSession, public observer::Observer {
 public:
  ~Session() override {
    end();
  }

  void start() override {
    start_ns_ = metrics::now_ns();
    to_wall_ns_ = wall_ns() - start_ns_;
    if (all_threads()) {
      host_.start(number_);
      max_entries_ = HostRanges::kMaxEntries; // a client outside the process does not see its memory use
    }
    observer::add(*this, kPhases);
    start_memory_profiler();
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    end();
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  void on_event(const Event& event) override {
    if (entries_.size() >= max_entries_) {
      return;
    }
    Entry& entry = entries_.emplace_back();
    entry.event = event;
    entry.name = event.name;
    entry.detail = event.detail;
    entry.thread = libkineto::systemThreadId();
    RangeRef known = innermost_range(RangeKind::kOperation, number_);
    entry.operation = known ? known->id : 0;
    entry.annotation = innermost_range(RangeKind::kAnnotation, number_);
  }

  void pushCorrelationId(uint64_t id) override {
    enter_range(RangeKind::kOperation, number_, id);
  }
  void popCorrelationId() override {
    leave_range(RangeKind::kOperation, number_);
  }
  void pushUserCorrelationId(uint64_t id) override {
    enter_range(RangeKind::kAnnotation, number_, id);
  }
  void popUserCorrelationId() override {
    leave_range(RangeKind::kAnnotation, number_);
  }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, INT64_MAX);
  }
  void processTrace(
      libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback find_linked, int64_t /*start*/, int64_t /*end*/) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span.name = name_of_device();
    buffer_->gpuOpCount = 0;
    add_ranges(logger);
    auto find = [&](int32_t id) {
      auto range = ranges_.find(static_cast<uint64_t>(id));
      return range == ranges_.end() ? find_linked(id) : range->second;
    };
    link_steps(entries_);
    find_tracks();
    for (const Entry& entry : entries_) {
      if (entry.is_linked || entry.event.phase != Phase::kRecord) {
        add_activity(entry, find);
        buffer_->activities.back()->log(logger);
      }
    }
    add_annotations(logger, find);
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
  void end() {
    stop_memory_profiler();
    observer::remove(*this);
    std::vector<HostRanges::Entry> ranges = host_.stop();
    host_entries_.insert(host_entries_.end(), ranges.begin(), ranges.end());
  }

  // From one time of the observer's clock to another.
  GenericTraceActivity& add(ActivityType type, const std::string& name, int64_t start_ns, int64_t end_ns) {
    buffer_->emplace_activity(buffer_->span, type, name);
    GenericTraceActivity& activity = *buffer_->activities.back();
    activity.startTime = std::max(start_ns, start_ns_) + to_wall_ns_; // a trace may have begun before
    activity.endTime = end_ns + to_wall_ns_;
    return activity;
  }

  // The ranges that torch.profiler adds itself if it records the thread.
  void add_ranges(libkineto::ActivityLogger& logger) {
    for (const HostRanges::Entry& entry : host_entries_) {
      const bool is_operation = entry.kind == RangeKind::kOperation;
      const ActivityType type = is_operation ? ActivityType::CPU_OP : ActivityType::USER_ANNOTATION;
      GenericTraceActivity& activity = add(type, entry.name, entry.start_ns, entry.end_ns);
      activity.device = getpid();
      activity.resource = activity.threadId = entry.thread;
      activity.id = static_cast<int32_t>(entry.id);
      activity.addMetadata("External id", entry.id);
      activity.log(logger);
      ranges_.emplace(entry.id, &activity);
    }
    host_entries_.clear();
  }

  static std::string name_of_device() {
    return "xla";
  }

  void find_tracks() {
    std::vector<Entry*> by_start;
    for (Entry& entry : entries_) {
      by_start.push_back(&entry);
      num_devices_ = std::max(num_devices_, entry.event.device + 1);
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
    GenericTraceActivity& activity = add(type, name_of(entry), event.start_ns, event.end_ns);
    activity.device = on_host ? getpid() : std::max(event.device, 0);
    activity.resource = on_host ? entry.thread : entry.track;
    activity.threadId = entry.thread;
    if (entry.is_linked) {
      link(activity, entry, find_linked);
    }
    add_metadata(activity, entry);
  }

  // The time of the steps recorded within ranges of record_function().
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
        GenericTraceActivity& activity = add(ActivityType::GPU_USER_ANNOTATION, range->name(), time.start_ns, time.end_ns);
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
  int num_devices_ = 1; // devices in the trace
  size_t max_entries_ = SIZE_MAX;
  std::vector<Entry> entries_; // written by the observer until stop()
  HostRanges host_; // used if all threads are recorded
  std::vector<HostRanges::Entry> host_entries_; // those that have ended
  std::unordered_map<uint64_t, const libkineto::ITraceActivity*> ranges_; // the same, by id, in buffer_
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
