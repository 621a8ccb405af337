// Random numbers of the device: a philox seed and an offset that moves when a random op is recorded.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace torch_xla {

// State of one generator. As in PyTorch, callers lock `mutex_` around changes; next_philox() and the free functions below do.
class XlaGenerator final : public c10::GeneratorImpl {
 public:
  explicit XlaGenerator(c10::DeviceIndex device, uint64_t seed = c10::default_rng_seed_val);

  static c10::DeviceType device_type() {
    return c10::DeviceType::PrivateUse1;
  }
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
  // Returns the seed and the offset for one op and moves the offset by `increment` (counters of 128 bits).
  std::pair<uint64_t, uint64_t> take(uint64_t increment);

 private:
  XlaGenerator* clone_impl() const override;

  uint64_t seed_;
  uint64_t offset_ = 0;
};

// The generator of ops that name none; made at first use with a seed of the system, never destroyed.
const at::Generator& default_generator(int device = 0);

// (seed, offset) for one recorded op. Thread-safe. Throws UserError when the generator is another device's.
std::pair<uint64_t, uint64_t> next_philox(const std::optional<at::Generator>& generator, uint64_t increment);

// The default generator's state. Thread-safe.
void set_seed(uint64_t seed);
uint64_t get_seed();
void set_rng_state(uint64_t seed, uint64_t offset);
std::pair<uint64_t, uint64_t> get_rng_state();

} // namespace torch_xla
