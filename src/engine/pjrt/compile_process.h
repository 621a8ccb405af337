// The child process that compiles for a target, as the process that records programs sees it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <mutex>
#include <string>

#include "engine/compile_only.h"
#include "engine/pjrt/compile_messages.h"

namespace torch_xla::pjrt {

// Started at the first use and after each end. Any thread; one call at a time.
class CompileProcess {
 public:
  explicit CompileProcess(CompileTarget target) : target_(std::move(target)) {}
  ~CompileProcess();
  CompileProcess(const CompileProcess&) = delete;
  CompileProcess& operator=(const CompileProcess&) = delete;

  const CompileTarget& target() const {
    return target_;
  }
  // Throws UserError if the plugin cannot be loaded or does not know the target.
  OpenReply open();
  // `poll` is called now and then; where it throws, the compile ends. Throws UserError with the plugin's message if it refuses the program;
  // if the child ends by itself, one that names the signal and the files with the program's text and the child's messages.
  CompileReply compile(const CompileRequest& request, const std::function<void()>& poll);

 private:
  // The members below are called with the mutex.
  OpenReply start(const std::function<void()>& poll);
  void spawn();
  // The child's answer. `mlir`: the program, for the error if it ends.
  std::string exchange(const std::string& message, const std::function<void()>& poll, const std::string& mlir);
  [[noreturn]] void throw_ended(const std::string& mlir);
  // Ends the child, if there is one. Returns its status as waitpid() gives it, -1 if that is unknown.
  int stop();
  std::string read_log() const;

  const CompileTarget target_;
  std::mutex mutex_; // guards all below
  pid_t child_ = -1;
  int socket_ = -1;
  int log_ = -1; // what the child prints, in memory
};

} // namespace torch_xla::pjrt
