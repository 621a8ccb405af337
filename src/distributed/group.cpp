// The groups, and who is lost where a collective fails.
#include "distributed/group.h"

#include <chrono>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace torch_xla {
namespace {

// Never destroyed: programs may run until the process ends.
struct Groups {
  std::mutex mutex;
  std::unordered_map<std::string, GroupRef> by_name;
};
Groups& groups() {
  static auto* all = new Groups;
  return *all;
}

// Each replica counts up its own key about once a second: torch_xla/_world.py.
std::vector<int64_t> read_heartbeats(c10d::Store& store, int64_t replicas) {
  std::vector<int64_t> beats;
  for (int64_t rank = 0; rank < replicas; ++rank) {
    beats.push_back(store.add("heartbeat/" + std::to_string(rank), 0));
  }
  return beats;
}

// Numbers of the replicas that have ended or stand still, "1, 3". Who finds them first tells the others, which lose that one next.
std::string find_lost(c10d::Store& store) {
  constexpr std::chrono::milliseconds kThreeBeats(3000);
  const std::string key = "lost";
  if (!store.check({key})) {
    int64_t replicas = store.add("replicas", 0);
    std::vector<int64_t> before = read_heartbeats(store, replicas);
    std::this_thread::sleep_for(kThreeBeats);
    std::vector<int64_t> after = read_heartbeats(store, replicas);
    std::string lost;
    for (size_t rank = 0; rank < after.size(); ++rank) {
      lost += before[rank] == after[rank] ? (lost.empty() ? "" : ", ") + std::to_string(rank) : "";
    }
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

} // namespace

void add_group(const std::string& name, const GroupRef& group) {
  std::lock_guard<std::mutex> lock(groups().mutex);
  groups().by_name[name] = group;
}

void remove_group(const std::string& name) {
  std::lock_guard<std::mutex> lock(groups().mutex);
  groups().by_name.erase(name);
}

GroupRef find_group(const std::string& name) {
  std::lock_guard<std::mutex> lock(groups().mutex);
  auto found = groups().by_name.find(name);
  TORCH_CHECK(found != groups().by_name.end(), "there is no group of replicas named ", name);
  return found->second;
}

void run_on_group(const std::string& name, const std::function<std::vector<WorkRef>(c10d::Backend&)>& start) {
  GroupRef group = find_group(name);
  try {
    std::vector<WorkRef> works = start(*group->getBackend(c10::DeviceType::CPU));
    for (const WorkRef& work : works) {
      work->wait();
    }
  } catch (const std::exception& error) {
    auto torch_error = dynamic_cast<const c10::Error*>(&error);
    TORCH_CHECK(false, describe_lost(*group), torch_error ? torch_error->what_without_backtrace() : error.what());
  }
}

} // namespace torch_xla
