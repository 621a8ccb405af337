// Groups of replicas by name, and calls of their backend.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <functional>
#include <string>
#include <vector>

namespace torch_xla {

using GroupRef = c10::intrusive_ptr<c10d::ProcessGroup>;
using WorkRef = c10::intrusive_ptr<c10d::Work>;

// Any thread. A group has a backend for CPU tensors; the store that it gives is the run's. find_group() throws c10::Error for other names.
// remove_group() gives up what was sent and is not received yet.
void add_group(const std::string& name, const GroupRef& group);
void remove_group(const std::string& name);
GroupRef find_group(const std::string& name);

// All three throw c10::Error, which says what replica is lost where that is why they failed, or why an earlier send of the group did.
// Waits for what `start` starts on the group's backend.
void run_on_group(const std::string& name, const std::function<std::vector<WorkRef>(c10d::Backend&)>& start);
// Sends the contiguous tensor and does not wait until it is received. Nobody may write to it any more.
void send_on_group(const std::string& name, const at::Tensor& data, int target, int tag);
// Whether something that was sent is not received yet.
bool is_sending(const std::string& name);

} // namespace torch_xla
