// Donated memory: the user marks tensors, and the next step that takes them may overwrite their memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "program/sync.h"
#include "runtime/buffer.h"

namespace torch_xla {

class LazyValue;
struct DeviceState;

// Sets or removes the tensor's mark. False, without effect, for a pending or uninitialized value. Once a step has taken the marked value,
// reads of the tensor throw until it is written again. Throws UserError for a tensor of another device.
bool set_buffer_donation(const at::Tensor& tensor, bool on);
bool buffer_donation(const at::Tensor& tensor);
// Whether a step has taken the tensor's memory, or its run has failed.
bool has_lost_value(const at::Tensor& tensor);
// The same, once a user has got that error and no earlier content is left: reads throw until the tensor is written again. False for a
// tensor without its own memory on the device, such as a sparse one.
bool is_lost_for_good(const at::Tensor& tensor);
// Whether runs within a step (for a read) take marked memory too; false at first.
void set_donation_within_steps(bool on);
bool donation_within_steps();

// While it lives, the run of a sync with this cause may take its marked inputs. Without keep(), as after a failed compile, the destructor
// returns them to their tensors, still marked. The caller holds the recording lock meanwhile.
class GivenAway {
 public:
  GivenAway(DeviceState& state, const std::vector<BufferRef>& inputs, SyncCause cause);
  ~GivenAway();
  GivenAway(const GivenAway&) = delete;
  GivenAway& operator=(const GivenAway&) = delete;
  // The run has taken them.
  void keep();

 private:
  DeviceState& state_;
  std::vector<std::pair<LazyValue*, BufferRef>> taken_; // with the mark's reference to the value
};

} // namespace torch_xla
