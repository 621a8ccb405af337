// Memory that a user gives away: tensors marked so, whose memory the next step that takes them may write over.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "program/sync.h"
#include "runtime/buffer.h"

namespace torch_xla {

class LazyValue;
struct DeviceState;

// Marks the tensor, or takes the mark back. False, without any effect, for a value that is pending or was never written. Once a step has
// taken the marked value, whoever reads the tensor gets an error until it is written anew. Throws UserError for a tensor of another device.
bool set_buffer_donation(const at::Tensor& tensor, bool on);
bool buffer_donation(const at::Tensor& tensor);
// Whether a step has taken the tensor's memory, or its run has failed.
bool has_lost_value(const at::Tensor& tensor);
// Whether that has been told and the tensor held nothing before: whoever reads it gets the error until it is written anew. False for a
// tensor without memory of its own on the device, as a sparse one.
bool is_lost_for_good(const at::Tensor& tensor);
// Whether runs in the middle of a step (for a read) take marked memory too; off at first.
void set_donation_within_steps(bool on);
bool donation_within_steps();

// While it lives the run of a sync with this cause may have the marked ones of its inputs. Without keep(), as where no program can be
// compiled, they are their tensors' again at its end, marked as before. The recording lock is held meanwhile.
class GivenAway {
 public:
  GivenAway(DeviceState& state, const std::vector<BufferRef>& inputs, SyncCause cause);
  ~GivenAway();
  GivenAway(const GivenAway&) = delete;
  GivenAway& operator=(const GivenAway&) = delete;
  // The run has them.
  void keep();

 private:
  DeviceState& state_;
  std::vector<std::pair<LazyValue*, BufferRef>> taken_; // with the mark's reference to the value
};

} // namespace torch_xla
