// The messages between the process that records programs and its child that compiles them, over a socket.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/archive.h"
#include "engine/engine.h"

namespace torch_xla::pjrt {

// The socket in the child.
constexpr int kChildSocket = 3;

// The first message: the plugin and its target.
struct OpenRequest {
  std::string plugin;
  std::string topology;
  NamedValues options;
  bool by_client = false;
};

// An error of the plugin's in a reply; empty text: none.
struct ReplyError {
  ErrorKind kind = ErrorKind::Runtime;
  std::string text;
};

struct TargetDevice {
  int id = 0; // its number in compile options
  std::string kind;
  NamedValues attributes;
};

struct OpenReply {
  ReplyError error;
  std::string platform;
  std::string platform_version;
  std::string api_version;
  std::vector<TargetDevice> devices;
};

struct CompileRequest {
  std::string mlir;
  std::string options; // a CompileOptionsProto
};

// Sizes in bytes; -1: unknown.
struct CompileReply {
  ReplyError error;
  uint64_t num_outputs = 0;
  int64_t code_bytes = -1;
  int64_t argument_bytes = -1;
  int64_t output_bytes = -1;
  int64_t aliased_bytes = -1;
  int64_t scratch_bytes = -1;
  int64_t peak_bytes = -1;
  NamedValues costs;
  std::string format;
  std::string optimized;
};

template <typename Archive>
void fields(Archive& archive, OpenRequest& message) {
  archive(message.plugin, message.topology, message.options, message.by_client);
}
template <typename Archive>
void fields(Archive& archive, ReplyError& error) {
  archive(error.kind, error.text);
}
template <typename Archive>
void fields(Archive& archive, TargetDevice& device) {
  archive(device.id, device.kind, device.attributes);
}
template <typename Archive>
void fields(Archive& archive, OpenReply& message) {
  archive(message.error, message.platform, message.platform_version, message.api_version, message.devices);
}
template <typename Archive>
void fields(Archive& archive, CompileRequest& message) {
  archive(message.mlir, message.options);
}
template <typename Archive>
void fields(Archive& archive, CompileReply& message) {
  archive(message.error, message.num_outputs, message.code_bytes, message.argument_bytes, message.output_bytes, message.aliased_bytes);
  archive(message.scratch_bytes, message.peak_bytes, message.costs, message.format, message.optimized);
}

template <typename Message>
std::string pack(const Message& message) {
  Writer out;
  out(message);
  return out.take();
}
template <typename Message>
Message unpack(std::string_view bytes) {
  Message message;
  Reader in(bytes);
  in(message);
  in.finish();
  return message;
}

// Sends a message. False if nobody reads it any more.
bool send_bytes(int socket, std::string_view bytes);
// Waits for a message. False if the other side is gone. `wait` is called before each read, with the socket, and may throw; may be empty.
bool receive_bytes(int socket, std::string& bytes, const std::function<void(int)>& wait = {});

} // namespace torch_xla::pjrt

namespace torch_xla {

template <typename Archive>
void fields(Archive& archive, NamedValues& values) {
  std::vector<std::pair<std::string, NamedValue>> list(values.begin(), values.end());
  archive(list);
  if constexpr (std::is_same_v<Archive, Reader>) {
    values = NamedValues(list.begin(), list.end());
  }
}

} // namespace torch_xla
