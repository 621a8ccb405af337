// The hooks through which Python gives source lines.
#include "trace/source_line.h"

#include <atomic>

namespace torch_xla {
namespace {

std::atomic<LocationProvider> location_provider{nullptr};
std::atomic<LocationProvider> call_provider{nullptr};
std::atomic<LocationResolver> location_resolver{nullptr};
std::atomic<FrameReader> frame_reader{nullptr};

} // namespace

void set_location_hooks(LocationProvider provider, LocationProvider call, LocationResolver resolver) {
  location_provider = provider;
  call_provider = call;
  location_resolver = resolver;
}

void set_frame_reader(FrameReader reader) {
  frame_reader = reader;
}

std::vector<std::string> current_frames(size_t most) {
  FrameReader read = frame_reader;
  return read ? read(most) : std::vector<std::string>();
}

int64_t current_location() {
  LocationProvider provide = location_provider.load(std::memory_order_relaxed);
  return provide ? provide() : -1;
}

int64_t current_call() {
  LocationProvider provide = call_provider.load(std::memory_order_relaxed);
  return provide ? provide() : -1;
}

std::string location_text(int64_t id) {
  LocationResolver resolve = location_resolver;
  return id < 0 || !resolve ? std::string() : resolve(id);
}

} // namespace torch_xla
