// The PJRT C API's structs of arguments for compilers without a device, and for what is known of a program; see c_api.h.
#pragma once

#include "engine/pjrt/c_api.h"
#include "engine/pjrt/c_api_programs.h"

namespace torch_xla::pjrt::c {

struct TopologyDescription;

struct TopologyDescriptionCreate {
  Head head;
  const char* name;
  size_t name_size;
  const NamedValue* options;
  size_t num_options;
  TopologyDescription* topology; // out; the caller destroys it
};
XLA_PJRT_STRUCT_SIZE(TopologyDescriptionCreate, topology);

// TopologyDescription_PlatformName and TopologyDescription_PlatformVersion.
struct TopologyDescriptionText {
  Head head;
  TopologyDescription* topology;
  const char* text; // out
  size_t text_size; // out
};
XLA_PJRT_STRUCT_SIZE(TopologyDescriptionText, text_size);

struct TopologyDescriptionGetDeviceDescriptions {
  Head head;
  TopologyDescription* topology;
  DeviceDescription* const* descriptions; // out
  size_t num_descriptions; // out
};
XLA_PJRT_STRUCT_SIZE(TopologyDescriptionGetDeviceDescriptions, num_descriptions);

struct Compile {
  Head head;
  const TopologyDescription* topology;
  const Program* program;
  const char* options; // a CompileOptionsProto
  size_t options_size;
  Client* client; // may be null
  Executable* executable; // out
};
XLA_PJRT_STRUCT_SIZE(Compile, executable);

struct ExecutableGetCostAnalysis {
  Head head;
  Executable* executable;
  size_t num_properties; // out
  const NamedValue* properties; // out
};
XLA_PJRT_STRUCT_SIZE(ExecutableGetCostAnalysis, properties);

// Called twice: with a program without memory for its code_size, then with room for that.
struct ExecutableOptimizedProgram {
  Head head;
  Executable* executable;
  Program* program; // in and out
};
XLA_PJRT_STRUCT_SIZE(ExecutableOptimizedProgram, program);

} // namespace torch_xla::pjrt::c
