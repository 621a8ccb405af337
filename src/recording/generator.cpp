// Random numbers of the devices: the generators of devices and threads, and their draws.
#include "recording/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "core/devices.h"
#include "core/errors.h"
#include "core/philox.h"
#include "core/process.h"
#include "recording/recording.h"

namespace torch_xla {
namespace {

constexpr int64_t kStateBytes = 2 * sizeof(uint64_t);

c10::Device device_of(c10::DeviceIndex index) {
  XLA_ASSERT(index >= 0, "a generator without a device");
  return {c10::DeviceType::PrivateUse1, index};
}

struct Defaults {
  std::mutex mutex; // guards all below
  std::array<at::Generator, kMaxDevices> generators; // undefined until used
  std::optional<uint64_t> seed; // of later generators
};

thread_local std::map<int, at::Generator> own_generators; // by device

Defaults& defaults() {
  static auto* all = [] {
    auto* made = new Defaults;
    process::keep_sound(made->mutex);
    return made;
  }();
  return *all;
}

} // namespace

XlaGenerator::XlaGenerator(c10::DeviceIndex device, uint64_t seed)
    : c10::GeneratorImpl(device_of(device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::make_shared<PhiloxState>(seed)) {}

void XlaGenerator::set_current_seed(uint64_t seed) {
  state_->seed = seed;
  state_->offset = 0;
}

void XlaGenerator::set_offset(uint64_t offset) {
  state_->offset = offset;
}

uint64_t XlaGenerator::get_offset() const {
  return state_->offset;
}

uint64_t XlaGenerator::current_seed() const {
  return state_->seed;
}

uint64_t XlaGenerator::seed() {
  // 53 bits, as on CUDA: a float64 holds such a seed exactly.
  set_current_seed(c10::detail::getNonDeterministicRandom(true));
  return state_->seed;
}

void XlaGenerator::set_state(const c10::TensorImpl& new_state) {
  at::detail::check_rng_state(new_state);
  XLA_CHECK(new_state.numel() == kStateBytes, "RNG state has ", new_state.numel(), " bytes when it should have ", kStateBytes);
  uint64_t words[2];
  std::memcpy(words, new_state.data(), kStateBytes);
  state_->seed = words[0];
  state_->offset = words[1];
}

c10::intrusive_ptr<c10::TensorImpl> XlaGenerator::get_state() const {
  at::Tensor state = at::detail::empty_cpu({kStateBytes}, at::kByte); // the dispatcher's modes and transforms would give another one
  const uint64_t words[2] = {state_->seed, state_->offset};
  std::memcpy(state.mutable_data_ptr(), words, kStateBytes);
  return state.getIntrusivePtr();
}

std::pair<uint64_t, uint64_t> XlaGenerator::take(uint64_t increment) {
  const uint64_t offset = state_->offset;
  state_->offset += increment;
  return {state_->seed, offset};
}

void XlaGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) {
  auto* other = dynamic_cast<XlaGenerator*>(new_state.get());
  XLA_CHECK(other != nullptr, "expected a generator on device xla, but got one on device ", new_state->device().str());
  state_ = other->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> XlaGenerator::graphsafe_get_state() const {
  auto shared = c10::make_intrusive<XlaGenerator>(device().index());
  shared->state_ = state_;
  return shared;
}

XlaGenerator* XlaGenerator::clone_impl() const {
  auto* copy = new XlaGenerator(device().index(), state_->seed);
  copy->set_offset(state_->offset);
  return copy;
}

const at::Generator& default_generator(int device) {
  Defaults& all = defaults();
  const std::lock_guard<std::mutex> lock(all.mutex);
  at::Generator& generator = all.generators[static_cast<size_t>(device)];
  if (!generator.defined()) {
    generator = at::make_generator<XlaGenerator>(static_cast<c10::DeviceIndex>(device));
    all.seed ? generator.set_current_seed(*all.seed) : static_cast<void>(generator.seed());
  }
  return generator;
}

at::Generator used_generator(int device) {
  const auto own = own_generators.find(device);
  return own == own_generators.end() ? default_generator(device) : own->second;
}

at::Generator set_own_generator(int device, at::Generator generator) {
  at::Generator before = std::exchange(own_generators[device], generator);
  if (!generator.defined()) {
    own_generators.erase(device);
  }
  return before;
}

namespace {

at::Generator find_generator(int device, const MaybeGenerator& generator) {
  at::Generator used = generator.has_value() && generator->defined() ? *generator : used_generator(device);
  XLA_CHECK(
      used.device().is_privateuseone(),
      "expected a generator on device xla, but got one on device ",
      used.device().str(),
      "; make it with torch.Generator(device='xla')");
  return used;
}

} // namespace

std::pair<uint64_t, uint64_t> next_philox(int device, const MaybeGenerator& generator, uint64_t increment) {
  at::Generator used = find_generator(device, generator);
  const std::lock_guard<std::mutex> lock(used.mutex());
  return used.get<XlaGenerator>()->take(increment);
}

void append_draw(Recording& recording, int device, const MaybeGenerator& generator, InlineVec<ValueId, 4>& operands) {
  const auto [seed, offset] = next_philox(device, generator, 1);
  operands.push_back(recording.scalar_int(static_cast<int64_t>(seed)));
  operands.push_back(recording.scalar_int(static_cast<int64_t>(offset)));
}

HostDraw::HostDraw(int device, const MaybeGenerator& generator) : own_(find_generator(device, generator)) {
  const std::lock_guard<std::mutex> lock(own_.mutex());
  const auto [seed, offset] = own_.get<XlaGenerator>()->take(1);
  offset_ = offset;
  host_ = at::make_generator<at::CPUGeneratorImpl>(philox::seed_of_draw(seed, offset));
}

// Draws of other threads since then stay drawn.
HostDraw::~HostDraw() {
  const std::lock_guard<std::mutex> lock(own_.mutex());
  if (!kept_ && own_.get_offset() == offset_ + 1) {
    own_.set_offset(offset_);
  }
}

void set_seed_of_all(uint64_t seed) {
  std::array<at::Generator, kMaxDevices> made;
  {
    Defaults& all = defaults();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.seed = seed;
    made = all.generators;
  }
  for (at::Generator& generator : made) {
    if (generator.defined()) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_current_seed(seed);
    }
  }
}

void set_rng_state(int device, uint64_t seed, uint64_t offset) {
  at::Generator generator = used_generator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
  generator.get<XlaGenerator>()->set_offset(offset);
}

std::pair<uint64_t, uint64_t> get_rng_state(int device) {
  at::Generator generator = used_generator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return {generator.current_seed(), generator.get<XlaGenerator>()->get_offset()};
}

} // namespace torch_xla
