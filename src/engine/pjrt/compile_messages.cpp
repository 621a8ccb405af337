// Messages as bytes on a socket: their size, then themselves.
#include "engine/pjrt/compile_messages.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace torch_xla::pjrt {
namespace {

constexpr size_t kLargestPart = size_t{1} << 20;

bool send_all(int socket, const char* data, size_t size) {
  while (size > 0) {
    ssize_t sent = send(socket, data, std::min(size, kLargestPart), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) {
      continue;
    }
    if (sent <= 0) {
      return false;
    }
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, char* data, size_t size, const std::function<void(int)>& wait) {
  while (size > 0) {
    if (wait) {
      wait(socket);
    }
    ssize_t got = recv(socket, data, std::min(size, kLargestPart), 0);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    data += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

} // namespace

bool send_bytes(int socket, std::string_view bytes) {
  const uint64_t size = bytes.size();
  return send_all(socket, reinterpret_cast<const char*>(&size), sizeof(size)) && send_all(socket, bytes.data(), bytes.size());
}

bool receive_bytes(int socket, std::string& bytes, const std::function<void(int)>& wait) {
  uint64_t size = 0;
  if (!receive_all(socket, reinterpret_cast<char*>(&size), sizeof(size), wait)) {
    return false;
  }
  bytes.resize(size);
  return receive_all(socket, bytes.data(), size, wait);
}

} // namespace torch_xla::pjrt
