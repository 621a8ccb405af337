// Lookup of operators that may be missing, and the list of the missing ones.
#include "aten/missing_operators.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "core/errors.h"

namespace torch_xla {
namespace {

struct Asked {
  std::mutex mutex;
  std::set<std::string> missing;
};

Asked& asked() {
  static auto* asked = new Asked;
  return *asked;
}

bool has_kernel_of_ours(const c10::OperatorHandle& op) {
  auto keys = {c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1, c10::DispatchKey::AutocastPrivateUse1};
  return std::any_of(keys.begin(), keys.end(), [&op](c10::DispatchKey key) { return op.hasKernelForDispatchKey(key); });
}

} // namespace

c10::OperatorHandle get_operator(const std::string& name) {
  auto found = c10::Dispatcher::singleton().findSchema(torch::jit::parseName(name));
  if (!found) {
    std::lock_guard<std::mutex> lock(asked().mutex);
    asked().missing.insert(name);
    throw MissingOperator(str("PyTorch has no operator ", name));
  }
  return *found;
}

std::vector<std::string> missing_operators() {
  std::unique_lock<std::mutex> lock(asked().mutex);
  std::set<std::string> all = asked().missing;
  lock.unlock();
  for (const c10::OperatorHandle& op : c10::Dispatcher::singleton().findDanglingImpls()) {
    if (op.operator_name().getNamespace() == "aten" && has_kernel_of_ours(op)) {
      all.insert(c10::toString(op.operator_name()));
    }
  }
  return {all.begin(), all.end()};
}

} // namespace torch_xla
