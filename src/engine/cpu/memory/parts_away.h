// Parts of a block whose pages the system has got back, because what they held is kept in another form: a weight in oneDNN's order.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

namespace torch_xla::cpu {

// Of one block. Any thread.
class PartsAway {
 public:
  // Writes the bytes of the part to memory of its size. Throws UserError. Any thread.
  using Fill = std::function<void(void* to)>;

  PartsAway();
  ~PartsAway();
  bool any() const {
    return are_away_.load();
  }
  // Gives the pages back, except those that the part shares with others. `may_go` is asked when any() is true already.
  void add(char* part, size_t bytes, Fill fill, const std::function<bool()>& may_go);
  void bring_back();

 private:
  struct Part;

  std::atomic<bool> are_away_{false};
  std::vector<Part> parts_; // guarded by the mutex of all blocks' parts
};

} // namespace torch_xla::cpu
