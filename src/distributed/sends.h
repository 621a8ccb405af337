// What a group's replica has sent and others have not received yet: a program goes on meanwhile.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>

namespace torch_xla {

// A thread of its own waits for the sends, one after the other. Any thread. Owned by shared_ptr.
class Sends : public std::enable_shared_from_this<Sends> {
 public:
  // Starts the thread, unless it runs; before the first add(). Throws UserError where there is none to be had.
  void start();
  // Keeps the work, which keeps what it sends, until that is received or fails.
  void add(c10::intrusive_ptr<c10d::Work> work);
  // Whether something is not received yet. Throws what a send has thrown, once; those behind it are dropped then.
  bool is_pending();
  // Gives up what is not received, and ends the thread.
  void close();

 private:
  void thread_main();

  std::mutex mutex_; // guards all below; not held while a send is waited for
  std::condition_variable changed_;
  bool has_thread_ = false;
  bool is_closed_ = false;
  std::deque<c10::intrusive_ptr<c10d::Work>> works_; // the first one is waited for
  std::exception_ptr error_;
};

} // namespace torch_xla
