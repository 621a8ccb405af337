// The child process that compiles: loads the plugin alone, so that a crash of its compiler ends this process and not the user's.
#include <poll.h>
#include <unistd.h>

#include <thread>

#include "engine/pjrt/child/compiler.h"

namespace torch_xla::pjrt {
namespace {

// Ends the process, whatever it compiles, when the parent is gone.
void end_with_parent() {
  std::thread([] {
    pollfd parent{kChildSocket, POLLRDHUP, 0};
    while (::poll(&parent, 1, -1) < 0) {
    }
    _exit(0);
  }).detach();
}

// The reply of `make`, or one with its error.
template <typename Reply, typename Make>
bool reply(const Make& make) {
  Reply message;
  try {
    message = make();
  } catch (const UserError& error) {
    message.error = {error.kind(), error.what()};
  }
  return send_bytes(kChildSocket, pack(message)) && message.error.text.empty();
}

int serve() {
  std::string bytes;
  if (!receive_bytes(kChildSocket, bytes)) {
    return 1;
  }
  end_with_parent();
  const Compiler* compiler = nullptr;
  const bool opened = reply<OpenReply>([&] {
    compiler = new Compiler(unpack<OpenRequest>(bytes)); // never destroyed: plugins keep threads
    return compiler->describe();
  });
  while (opened && receive_bytes(kChildSocket, bytes)) {
    reply<CompileReply>([&] { return compiler->compile(unpack<CompileRequest>(bytes)); });
  }
  return 0;
}

} // namespace
} // namespace torch_xla::pjrt

int main() {
  _exit(torch_xla::pjrt::serve()); // without the destructors of plugins' objects
}
