// The plugin of the child process and its target: compiles programs for hardware that is not there.
#pragma once

#include <string>

#include "engine/pjrt/compile_messages.h"
#include "engine/pjrt/plugin.h"

namespace torch_xla::pjrt {

// One thread. Lives as long as the process.
class Compiler {
 public:
  // Loads the plugin and makes the target's topology, or its client. Throws UserError.
  explicit Compiler(const OpenRequest& request);
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  // What the target is; the error is empty.
  OpenReply describe() const;
  // Throws UserError if the plugin refuses the program.
  CompileReply compile(const CompileRequest& request) const;

 private:
  // A compiled program and what has to be destroyed with it.
  struct Program {
    c::Executable* executable = nullptr;
    c::LoadedExecutable* loaded = nullptr; // by a client
  };

  void open_topology(const OpenRequest& request);
  void open_client(const OpenRequest& request);
  TargetDevice describe_device(c::DeviceDescription* description) const;
  std::vector<c::DeviceDescription*> descriptions() const;
  Program compile_program(const CompileRequest& request) const;
  void destroy(const Program& program) const;
  void read_memory(c::Executable* executable, CompileReply& reply) const;
  void read_costs(c::Executable* executable, CompileReply& reply) const;

  PluginRef plugin_;
  c::TopologyDescription* topology_ = nullptr; // null: by the client
  c::Client* client_ = nullptr;
};

} // namespace torch_xla::pjrt
