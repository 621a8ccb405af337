// Random numbers of the devices: a philox seed, and an offset that each recorded random op moves.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "ir/graph.h"

namespace torch_xla {

class Recording;

// A place in the stream of random numbers. Two generators may share one (graphsafe_set_state).
struct PhiloxState {
  uint64_t seed = c10::default_rng_seed_val;
  uint64_t offset = 0;
};

// A generator. As in PyTorch, callers lock `mutex_` around changes; next_philox() and the free functions below do so. Two generators that
// share a state may be used by one thread at a time.
class XlaGenerator final : public c10::GeneratorImpl {
 public:
  explicit XlaGenerator(c10::DeviceIndex device, uint64_t seed = c10::default_rng_seed_val);

  // Sets the seed and puts the offset back to 0.
  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  // Takes a seed from the system, sets and returns it.
  uint64_t seed() override;
  // The state is a uint8[16] tensor on the CPU: seed, then offset, in the machine's byte order.
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  // Both generators share one state from here on. Throws UserError for a generator of another kind of device.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) override;
  // A generator that shares this one's state and keeps it when this one gets another.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
  // Returns the seed and the offset for one op and moves the offset by `increment` (counters of 128 bits).
  std::pair<uint64_t, uint64_t> take(uint64_t increment);

 private:
  XlaGenerator* clone_impl() const override;

  std::shared_ptr<PhiloxState> state_; // never null
};

// The generator of the device's ops without one; made at first use with the system's seed or set_seed_of_all()'s, never destroyed.
const at::Generator& default_generator(int device);

// The calling thread's generator for ops without one: its own, else the default one.
at::Generator used_generator(int device);
// Sets the calling thread's own generator for the device; an undefined one removes it. Returns the previous one.
at::Generator set_own_generator(int device, at::Generator generator);

using MaybeGenerator = std::optional<at::Generator>; // none: the device's default one

// (seed, offset) for one op recorded on the device. Thread-safe. Throws UserError when the generator is another kind of device's.
std::pair<uint64_t, uint64_t> next_philox(int device, const MaybeGenerator& generator, uint64_t increment);
// Appends such a seed and offset to a random op's operands. Call it last before recording the node: a refused call leaves the generator
// unchanged.
void append_draw(Recording& recording, int device, const MaybeGenerator& generator, InlineVec<ValueId, 4>& operands);

// A CPU generator for one call of ATen's CPU kernel, seeded by a draw from the device's. Takes the draw back if the call is refused.
class HostDraw {
 public:
  HostDraw(int device, const MaybeGenerator& generator);
  ~HostDraw();
  HostDraw(const HostDraw&) = delete;
  HostDraw& operator=(const HostDraw&) = delete;

  const at::Generator& generator() const {
    return host_;
  }
  // The call was accepted.
  void keep() {
    kept_ = true;
  }

 private:
  at::Generator own_;
  uint64_t offset_ = 0;
  at::Generator host_;
  bool kept_ = false;
};

// The state of the default generators, or of used_generator(). Thread-safe.
void set_seed_of_all(uint64_t seed); // without asking an engine for the number of devices
void set_rng_state(int device, uint64_t seed, uint64_t offset);
std::pair<uint64_t, uint64_t> get_rng_state(int device);

} // namespace torch_xla
