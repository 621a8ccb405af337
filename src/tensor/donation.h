// Memory that a user gives away: tensors marked so, whose memory the next step that takes them may write over.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/buffer.h"
#include "tensor/api.h"

namespace torch_xla {

struct RecorderState;

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

// Lets the run of a sync with this cause have the marked ones of its inputs. The caller holds the recording lock.
void give_marked_away(RecorderState& state, const std::vector<BufferRef>& inputs, SyncCause cause);

} // namespace torch_xla
