// Groups of replicas by name, and calls of their backend.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/agreement.h"
#include "distributed/sends.h"

namespace torch_xla {

using GroupRef = c10::intrusive_ptr<c10d::ProcessGroup>;
using WorkRef = c10::intrusive_ptr<c10d::Work>;

// What a replica has of a group.
struct Member {
  GroupRef group; // has a backend for CPU tensors; the store that it gives is the run's
  int64_t replica; // this one's number in the run
  std::shared_ptr<Sends> sends;
  std::shared_ptr<Agreement> agreement;
  std::string broken = {}; // why nothing can be called any more: two replicas' calls differed
};

// Any thread. `own` has the rank and size in the group, and a store of it alone,
// which nobody else calls. find_member() throws c10::Error for other names, and for
// a broken group.
// remove_group() gives up what was sent and is not received yet.
void add_group(const std::string& name, const GroupRef& group, const GroupRef& own, int64_t replica);
void remove_group(const std::string& name);
Member find_member(const std::string& name);

// All three throw c10::Error, which says what replica is lost where that is why they failed, or why an earlier send of the group did.
// Waits for what `start` starts on the group's backend, which is what all replicas have to call; throws what Agreement does.
void run_on_group(const std::string& name, const Collective& collective, const std::function<std::vector<WorkRef>(c10d::Backend&)>& start);
// As this, of what two replicas do alone.
void run_on_group(const std::string& name, const std::function<std::vector<WorkRef>(c10d::Backend&)>& start);
// Sends the contiguous tensor and does not wait until it is received. Nobody may write to it any more.
void send_on_group(const std::string& name, const at::Tensor& data, int target, int tag);
// Whether something that was sent is not received yet.
bool is_sending(const std::string& name);

} // namespace torch_xla
