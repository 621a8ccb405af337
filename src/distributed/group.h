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
void add_group(const std::string& name, const GroupRef& group);
void remove_group(const std::string& name);
GroupRef find_group(const std::string& name);

// Waits for what `start` starts on the group's backend. Throws c10::Error, which says what replica is lost where that is why it failed.
void run_on_group(const std::string& name, const std::function<std::vector<WorkRef>(c10d::Backend&)>& start);

} // namespace torch_xla
