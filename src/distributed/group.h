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

// A replica's membership of a group.
struct Member {
  GroupRef group; // has a backend for CPU tensors; its store is the run's
  int64_t replica; // this replica's number in the run
  std::shared_ptr<Sends> sends;
  std::shared_ptr<Agreement> agreement;
  std::string broken = {}; // why calls are refused: two replicas' calls differed
};

// Any thread. `own` has the rank and size in the group, and a store that only this group uses. find_member() throws c10::Error for unknown
// names and broken groups. remove_group() gives up sends that are not received yet.
void add_group(const std::string& name, const GroupRef& group, const GroupRef& own, int64_t replica);
void remove_group(const std::string& name);
Member find_member(const std::string& name);

// All three throw c10::Error. It names the lost replica, if there is one, or the error of an earlier send of the group. Waits for the works
// that `start` starts on the group's backend; all replicas must call the same collective. Throws Agreement's errors.
void run_on_group(const std::string& name, const Collective& collective, const std::function<std::vector<WorkRef>(c10d::Backend&)>& start);
// The same for transfers between two replicas.
void run_on_group(const std::string& name, const std::function<std::vector<WorkRef>(c10d::Backend&)>& start);
// Sends the contiguous tensor without waiting for its receipt. It must not be written any more.
void send_on_group(const std::string& name, const at::Tensor& data, int target, int tag);
// Whether a send is not received yet.
bool is_sending(const std::string& name);

} // namespace torch_xla
