// The groups, and the search for lost replicas when a collective fails.
#include "distributed/group.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <unordered_map>

#include "core/errors.h"

namespace torch_xla {
namespace {

// Never destroyed: programs may run until the process ends.
struct Groups {
  std::mutex mutex;
  std::unordered_map<std::string, Member> by_name;
};
Groups& groups() {
  static auto* all = new Groups;
  return *all;
}

Member look_up(const std::string& name) {
  std::lock_guard<std::mutex> lock(groups().mutex);
  auto found = groups().by_name.find(name);
  TORCH_CHECK(found != groups().by_name.end(), "there is no group of replicas named ", name);
  return found->second;
}

// Closes the group's connections, so that the other replicas' calls fail and they look for the reason.
void break_group(const std::string& name, const std::string& why) {
  std::lock_guard<std::mutex> lock(groups().mutex);
  auto found = groups().by_name.find(name);
  if (found != groups().by_name.end()) {
    found->second.group = nullptr;
    found->second.broken = why;
  }
}

// ---- Long waits: each replica writes to the run's store which call it waits in, for the others' errors ----

const std::string kNoWait = "-"; // a store takes no empty values

std::string key_of_wait(int64_t replica) {
  return "waits/" + std::to_string(replica);
}

void show_wait(c10d::Store& store, int64_t replica, const std::string& text) {
  store.set(key_of_wait(replica), std::vector<uint8_t>(text.begin(), text.end()));
}

// "; replica 1 waits in all_reduce(sum) of ...".
std::string describe_waits(c10d::Store& store, int64_t self) {
  std::string text;
  const int64_t replicas = store.add("replicas", 0);
  for (int64_t replica = 0; replica < replicas; ++replica) {
    if (replica != self && store.check({key_of_wait(replica)})) {
      const std::vector<uint8_t> bytes = store.get(key_of_wait(replica));
      const std::string waits(bytes.begin(), bytes.end());
      text += waits == kNoWait ? "" : str("; replica ", replica, " waits in ", waits);
    }
  }
  return text;
}

bool ends_soon(c10d::Work& work) {
  constexpr std::chrono::seconds kSoon(2);
  try {
    return work.wait(kSoon);
  } catch (const std::exception&) { // perhaps an error of the work's own, which the next wait() throws
    return false;
  }
}

std::atomic<bool> shows_wait{false};

void show_no_wait(const Member& member) {
  if (shows_wait.exchange(false)) {
    show_wait(*member.group->getStore(), member.replica, kNoWait);
  }
}

// Waits for the work and publishes the wait meanwhile; after a failure until the next call, as others fail soon after.
void wait_long(c10d::Work& work, const Member& member, const Collective& collective) {
  show_wait(*member.group->getStore(), member.replica, describe(collective) + describe_line());
  shows_wait = true;
  work.wait();
  show_no_wait(member);
}

void wait_for(const std::vector<WorkRef>& works, const Member& member, const Collective& collective) {
  for (const WorkRef& work : works) {
    if (collective.is_transfers) {
      work->wait();
    } else if (!ends_soon(*work)) {
      wait_long(*work, member, collective);
    }
  }
}

// Rethrows the failed call's error with the reason that the stores give.
[[noreturn]] void explain(const std::string& name, const Member& member, const std::string& error) {
  std::string difference;
  try {
    difference = member.agreement->find_difference();
  } catch (const std::exception&) { // the store has ended
  }
  if (!difference.empty()) {
    break_group(name, difference);
    TORCH_CHECK(false, difference);
  }
  c10d::Store& store = *member.group->getStore();
  std::string lost = describe_lost(store), waits;
  try {
    waits = describe_waits(store, member.replica);
  } catch (const std::exception&) {
  }
  TORCH_CHECK(false, lost, error, waits);
}

// Calls `work`, which throws if a replica is lost.
template <class Work>
auto name_lost(const std::string& name, const Member& member, const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    auto torch_error = dynamic_cast<const c10::Error*>(&error);
    explain(name, member, torch_error ? torch_error->what_without_backtrace() : error.what());
  }
}

} // namespace

Member find_member(const std::string& name) {
  Member member = look_up(name);
  TORCH_CHECK(member.group, member.broken);
  return member;
}

void add_group(const std::string& name, const GroupRef& group, const GroupRef& own, int64_t replica) {
  auto agreement = std::make_shared<Agreement>(own->getStore(), own->getRank(), own->getSize(), replica);
  std::lock_guard<std::mutex> lock(groups().mutex);
  groups().by_name[name] = {group, replica, std::make_shared<Sends>(), std::move(agreement)};
}

void remove_group(const std::string& name) {
  std::lock_guard<std::mutex> lock(groups().mutex);
  auto found = groups().by_name.find(name);
  if (found != groups().by_name.end()) {
    found->second.sends->close();
    groups().by_name.erase(found);
  }
}

void run_on_group(const std::string& name, const Collective& collective, const std::function<std::vector<WorkRef>(c10d::Backend&)>& start) {
  Member member = find_member(name);
  name_lost(name, member, [&] {
    member.sends->is_pending(); // throws if one failed
    show_no_wait(member);
    const Agreement::Call call = member.agreement->begin(collective);
    wait_for(start(*member.group->getBackend(c10::DeviceType::CPU)), member, collective);
    member.agreement->end(call);
  });
}

void run_on_group(const std::string& name, const std::function<std::vector<WorkRef>(c10d::Backend&)>& start) {
  Member member = find_member(name);
  name_lost(name, member, [&] {
    member.sends->is_pending();
    for (const WorkRef& work : start(*member.group->getBackend(c10::DeviceType::CPU))) {
      work->wait();
    }
  });
}

void send_on_group(const std::string& name, const at::Tensor& data, int target, int tag) {
  Member member = find_member(name);
  name_lost(name, member, [&] {
    member.sends->is_pending(); // throws if one failed
    member.sends->start(); // before the send, which nobody could wait for
    std::vector<at::Tensor> tensors{data};
    member.sends->add(member.group->getBackend(c10::DeviceType::CPU)->send(tensors, target, tag));
  });
}

bool is_sending(const std::string& name) {
  Member member = look_up(name);
  return member.group && name_lost(name, member, [&] { return member.sends->is_pending(); });
}

} // namespace torch_xla
