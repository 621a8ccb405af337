// Starts the child, talks to it, and tells how it ended.
#include "engine/pjrt/compile_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/env.h"
#include "core/process.h"
#include "engine/pjrt/slow_answer.h"

extern "C" char** environ;

namespace torch_xla::pjrt {
namespace {

constexpr const char* kProgram = "torch_xla_compile";
constexpr int kPollMilliseconds = 50;

// Beside the libraries of all releases of torch.
std::string child_path() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&child_path), &info) == 0) {
    return kProgram;
  }
  std::error_code ignored;
  return std::filesystem::weakly_canonical(info.dli_fname, ignored).parent_path().parent_path() / kProgram;
}

// This process's environment, and those of `extra` that are not set in it, as "NAME=value".
std::vector<std::string> child_environment(const std::map<std::string, std::string>& extra) {
  std::vector<std::string> all;
  std::map<std::string, std::string> missing = extra;
  for (char** entry = environ; *entry; ++entry) {
    all.emplace_back(*entry);
    missing.erase(all.back().substr(0, all.back().find('=')));
  }
  for (const auto& [name, value] : missing) {
    all.push_back(str(name, "=", value));
  }
  return all;
}

// Calls `poll` until the socket can be read.
void wait_readable(int socket, const std::function<void()>& poll) {
  pollfd wanted{socket, POLLIN, 0};
  while (::poll(&wanted, 1, kPollMilliseconds) <= 0) {
    poll();
  }
}

std::string signal_text(int number) {
  const char* name = sigabbrev_np(number);
  const char* text = sigdescr_np(number);
  return str("signal ", number, " (SIG", name ? name : "?", text ? str(", ", text) : "", ")");
}

std::string status_text(int status) {
  if (status == -1) {
    return "for an unknown reason";
  }
  return WIFSIGNALED(status) ? str("by ", signal_text(WTERMSIG(status))) : str("with exit status ", WEXITSTATUS(status));
}

// Writes both texts into a new folder and returns its path; empty if that fails.
std::string keep_texts(const std::string& mlir, const std::string& log) {
  std::error_code failed;
  std::string folder = std::filesystem::temp_directory_path(failed) / "torch_xla_crash_XXXXXX";
  if (failed || !mkdtemp(folder.data())) {
    return "";
  }
  std::ofstream(folder + "/program.mlir") << mlir;
  std::ofstream(folder + "/messages.txt") << log;
  return folder;
}

void throw_if_error(const ReplyError& error) {
  if (!error.text.empty()) {
    throw UserError(error.kind, error.text);
  }
}

// The attributes of the child: a process group of its own, as an interrupt from the terminal is the parent's; no blocked signals.
class SpawnAttributes {
 public:
  SpawnAttributes() {
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnAttributes() {
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;
  const posix_spawnattr_t* get() const {
    return &attributes_;
  }

 private:
  posix_spawnattr_t attributes_;
};

} // namespace

CompileProcess::~CompileProcess() {
  stop();
}

OpenReply CompileProcess::open() {
  std::lock_guard<std::mutex> lock(mutex_);
  stop();
  const SlowAnswer slow(str("the PJRT plugin ", target_.plugin, " to describe ", target_.name));
  return start([] {});
}

CompileReply CompileProcess::compile(const CompileRequest& request, const std::function<void()>& poll) {
  process::check();
  std::lock_guard<std::mutex> lock(mutex_);
  if (child_ == -1) {
    start(poll);
  }
  ftruncate(log_, 0);
  lseek(log_, 0, SEEK_SET); // the child shares the position
  auto reply = unpack<CompileReply>(exchange(pack(request), poll, request.mlir));
  if (env::debug_level() >= 1 && lseek(log_, 0, SEEK_CUR) > 0) {
    env::debug_print("compiler", read_log());
  }
  throw_if_error(reply.error);
  return reply;
}

OpenReply CompileProcess::start(const std::function<void()>& poll) {
  spawn();
  auto reply =
      unpack<OpenReply>(exchange(pack(OpenRequest{target_.plugin, target_.topology, target_.options, target_.by_client}), poll, ""));
  if (!reply.error.text.empty()) {
    stop(); // it has ended
  }
  throw_if_error(reply.error);
  return reply;
}

void CompileProcess::spawn() {
  process::note_use();
  int sockets[2];
  XLA_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0, "no socket for the compiler: ", std::strerror(errno));
  socket_ = sockets[0];
  log_ = memfd_create("torch_xla_compile", MFD_CLOEXEC);
  const std::string path = child_path();
  std::vector<std::string> texts = child_environment(target_.environment);
  std::vector<char*> variables;
  for (std::string& text : texts) {
    variables.push_back(text.data());
  }
  variables.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, log_, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log_, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, sockets[1], kChildSocket);
  const SpawnAttributes attributes;
  char* const arguments[] = {const_cast<char*>(path.c_str()), nullptr};
  const int error = posix_spawn(&child_, path.c_str(), &actions, attributes.get(), arguments, variables.data());
  posix_spawn_file_actions_destroy(&actions);
  close(sockets[1]);
  if (error != 0) {
    child_ = -1;
    stop();
    XLA_CHECK(false, "the program that compiles, ", path, ", cannot be started: ", std::strerror(error), "; install torch_xla again");
  }
}

std::string CompileProcess::exchange(const std::string& message, const std::function<void()>& poll, const std::string& mlir) {
  std::string answer;
  bool answered = false;
  try {
    answered = send_bytes(socket_, message) && receive_bytes(socket_, answer, [&](int socket) { wait_readable(socket, poll); });
  } catch (...) {
    stop();
    throw;
  }
  if (!answered) {
    throw_ended(mlir);
  }
  return answer;
}

void CompileProcess::throw_ended(const std::string& mlir) {
  const std::string log = read_log();
  const std::string how = status_text(stop());
  std::string text = str("the compiler of the PJRT plugin ", target_.plugin, " ended ", how);
  if (mlir.empty()) {
    text += str(" while it opened ", target_.name, log.empty() ? "" : "; it printed:\n", log);
  } else if (std::string folder = keep_texts(mlir, log); !folder.empty()) {
    text += str("; the program's text is in ", folder, "/program.mlir, and what the compiler printed in messages.txt beside it");
  }
  throw UserError(ErrorKind::Runtime, text);
}

int CompileProcess::stop() {
  int status = -1;
  if (child_ != -1 && !process::in_forked_child()) {
    // A child that has closed its socket is about to end by itself, and its status tells why.
    pid_t ended = 0;
    pollfd gone{socket_, POLLRDHUP, 0};
    for (int tries = 0; ended == 0 && tries < 100 && ::poll(&gone, 1, 10) > 0; ++tries) {
      ended = waitpid(child_, &status, WNOHANG);
      if (ended == 0) {
        usleep(10'000);
      }
    }
    if (ended == 0) {
      kill(child_, SIGKILL);
      ended = waitpid(child_, &status, 0);
    }
    status = ended == child_ ? status : -1;
  }
  for (int* descriptor : {&socket_, &log_}) {
    if (*descriptor != -1) {
      close(std::exchange(*descriptor, -1));
    }
  }
  child_ = -1;
  return status;
}

std::string CompileProcess::read_log() const {
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = pread(log_, part, sizeof(part), static_cast<off_t>(text.size()))) > 0;) {
    text.append(part, static_cast<size_t>(got));
  }
  return text;
}

} // namespace torch_xla::pjrt
