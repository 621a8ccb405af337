// Devices that are compiled for and not there: the target that XLA_COMPILE_ONLY names, and what its compiler says of programs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace torch_xla {

// Hardware that a plugin compiles for.
struct CompileTarget {
  std::string name; // the value of XLA_COMPILE_ONLY
  std::string plugin; // path of its shared object
  std::string topology; // PJRT's name of it
  NamedValues options; // of the topology; of the client, if there is one
  std::map<std::string, std::string> environment; // of the process that compiles, for variables that are not set
  bool by_client = false; // the plugin compiles by a client, and has no topologies
};

// Finds the target of that name for a value of PJRT_DEVICE other than CPU and LIBRARY, or nothing if there is no such plugin. engine()
// calls it, without locks; set it before.
using TargetFinder = std::optional<CompileTarget> (*)(const std::string& device, const std::string& target);
void set_target_finder(TargetFinder find);

// What the compiler says of a program. Sizes are in bytes, on one device; -1: it does not say.
struct ProgramReport {
  int device = 0;
  int num_devices = 1; // over which it runs
  std::string line; // the user's, of the program's last operation; empty where it is not known
  int64_t operations = 0; // of the program as it was given to the compiler
  int64_t compile_ns = 0; // 0: from the disk
  int64_t memory_bytes = 0; // of the device; 0: unknown
  std::string error; // empty: it compiled
  int64_t code_bytes = -1;
  int64_t argument_bytes = -1;
  int64_t output_bytes = -1;
  int64_t aliased_bytes = -1; // of outputs that take an argument's memory
  int64_t scratch_bytes = -1;
  int64_t peak_bytes = -1;
  NamedValues costs; // the plugin's own names: "flops", "bytes accessed"
  std::string format; // of the optimized program: "hlo"
  std::string optimized; // its bytes; empty if the plugin gives none
};
using ProgramReportRef = std::shared_ptr<const ProgramReport>;

// How many reports are kept.
constexpr size_t kMostReports = 256;
// The reports of the last programs, in their order. Thread-safe, as are the functions below.
std::vector<ProgramReportRef> program_reports();
void add_program_report(ProgramReportRef report);
void forget_program_reports();

} // namespace torch_xla
