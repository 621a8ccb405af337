// The groups, and who is lost where a collective fails.
#include "distributed/group.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "distributed/sends.h"

namespace torch_xla {
namespace {

struct Member {
  GroupRef group;
  std::shared_ptr<Sends> sends;
};

// Never destroyed: programs may run until the process ends.
struct Groups {
  std::mutex mutex;
  std::unordered_map<std::string, Member> by_name;
};
Groups& groups() {
  static auto* all = new Groups;
  return *all;
}

Member find_member(const std::string& name) {
  std::lock_guard<std::mutex> lock(groups().mutex);
  auto found = groups().by_name.find(name);
  TORCH_CHECK(found != groups().by_name.end(), "there is no group of replicas named ", name);
  return found->second;
}

// Each replica counts up its own key about once a second: torch_xla/_world.py.
std::vector<int64_t> read_heartbeats(c10d::Store& store, int64_t replicas) {
  std::vector<int64_t> beats;
  for (int64_t rank = 0; rank < replicas; ++rank) {
    beats.push_back(store.add("heartbeat/" + std::to_string(rank), 0));
  }
  return beats;
}

// Numbers of the replicas that do not count while others count on, "1, 3". Their beats are the clock: on a machine that stands still for a
// while nobody is lost.
std::string find_silent(c10d::Store& store, int64_t replicas) {
  constexpr int64_t kBeats = 3;
  constexpr std::chrono::milliseconds kPause(200);
  constexpr int kMaxPauses = 75;
  if (replicas == 0) {
    return ""; // threads of one process: nobody counts
  }
  std::vector<int64_t> before = read_heartbeats(store, replicas);
  std::vector<int64_t> after = before;
  auto counted_on = [&] {
    return !std::equal(before.begin(), before.end(), after.begin(), [](int64_t b, int64_t a) { return a - b < kBeats; });
  };
  for (int i = 0; i < kMaxPauses && !counted_on(); ++i) {
    std::this_thread::sleep_for(kPause);
    after = read_heartbeats(store, replicas);
  }
  std::string silent;
  for (size_t rank = 0; rank < after.size() && counted_on(); ++rank) {
    silent += before[rank] == after[rank] ? (silent.empty() ? "" : ", ") + std::to_string(rank) : "";
  }
  return silent;
}

// Those that have ended or stand still. Who finds them first tells the others, which lose that one next.
std::string find_lost(c10d::Store& store) {
  const std::string key = "lost";
  if (!store.check({key})) {
    std::string lost = find_silent(store, store.add("replicas", 0));
    if (lost.empty()) {
      return lost;
    }
    if (!store.check({key})) {
      store.set(key, std::vector<uint8_t>(lost.begin(), lost.end()));
    }
  }
  std::vector<uint8_t> lost = store.get(key);
  return {lost.begin(), lost.end()};
}

std::string describe_lost(c10d::ProcessGroup& group) {
  try {
    std::string lost = find_lost(*group.getStore());
    return lost.empty() ? lost : "replica " + lost + " has ended or does not answer; ";
  } catch (const std::exception&) {
    return "the process that keeps the run's store has ended; ";
  }
}

// Calls `work`, which throws if a replica is lost.
template <class Work>
auto name_lost(c10d::ProcessGroup& group, const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    auto torch_error = dynamic_cast<const c10::Error*>(&error);
    TORCH_CHECK(false, describe_lost(group), torch_error ? torch_error->what_without_backtrace() : error.what());
  }
}

} // namespace

void add_group(const std::string& name, const GroupRef& group) {
  std::lock_guard<std::mutex> lock(groups().mutex);
  groups().by_name[name] = {group, std::make_shared<Sends>()};
}

void remove_group(const std::string& name) {
  std::lock_guard<std::mutex> lock(groups().mutex);
  auto found = groups().by_name.find(name);
  if (found != groups().by_name.end()) {
    found->second.sends->close();
    groups().by_name.erase(found);
  }
}

GroupRef find_group(const std::string& name) {
  return find_member(name).group;
}

void run_on_group(const std::string& name, const std::function<std::vector<WorkRef>(c10d::Backend&)>& start) {
  Member member = find_member(name);
  name_lost(*member.group, [&] {
    member.sends->is_pending(); // throws if one failed
    std::vector<WorkRef> works = start(*member.group->getBackend(c10::DeviceType::CPU));
    for (const WorkRef& work : works) {
      work->wait();
    }
  });
}

void send_on_group(const std::string& name, const at::Tensor& data, int target, int tag) {
  Member member = find_member(name);
  name_lost(*member.group, [&] {
    member.sends->is_pending(); // throws if one failed
    member.sends->start(); // before the send, which nobody could wait for
    std::vector<at::Tensor> tensors{data};
    member.sends->add(member.group->getBackend(c10::DeviceType::CPU)->send(tensors, target, tag));
  });
}

bool is_sending(const std::string& name) {
  Member member = find_member(name);
  return name_lost(*member.group, [&] { return member.sends->is_pending(); });
}

} // namespace torch_xla
