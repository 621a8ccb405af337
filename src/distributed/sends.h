// A replica's sends that others have not received yet: its program goes on meanwhile.
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
  // Starts the thread, unless it runs; before the first add(). Throws UserError if no thread can be started.
  void start();
  // Keeps the work, and so its data, until the send is received or fails.
  void add(c10::intrusive_ptr<c10d::Work> work);
  // Whether a send is not received yet. Throws the error of a failed send, once, and drops the later sends.
  bool is_pending();
  // Gives up sends that are not received, and ends the thread.
  void close();

 private:
  void thread_main();

  std::mutex mutex_; // guards all below; not held during a wait for a send
  std::condition_variable changed_;
  bool has_thread_ = false;
  bool is_closed_ = false;
  std::deque<c10::intrusive_ptr<c10d::Work>> works_; // the thread waits for the first one
  std::exception_ptr error_;
};

} // namespace torch_xla
