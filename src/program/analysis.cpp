// The analyses: an observer that prints a block for each compile and run, in the original's words, as its tools expect.
#include "program/analysis.h"

#include <algorithm>
#include <cstdio>

#include "core/env.h"
#include "core/errors.h"
#include "core/log_file.h"
#include "program/sync.h"
#include "trace/recorder.h"
#include "trace/source_line.h"

namespace torch_xla {
namespace {

// The values of the variables, each read once.
struct Settings {
  int64_t level = env::is_set(env::variable("PT_XLA_DEBUG_LEVEL")) ? env::integer(env::variable("PT_XLA_DEBUG_LEVEL"))
      : env::flag(env::variable("PT_XLA_DEBUG"))                   ? 100
                                                                   : 0;
  std::string path = env::text(env::variable("PT_XLA_DEBUG_FILE"));
  size_t most_frames = static_cast<size_t>(env::integer(env::variable("PT_XLA_DEBUG_MAX_FRAME")));
  bool is_master = env::integer_or(env::variable("LOCAL_RANK"), 0) == 0;
};

// Lines behind one prefix, between rules.
class Block {
 public:
  explicit Block(const char* prefix) : prefix_(prefix), text_("\n") {
    add(std::string(80, '='));
  }
  void add(const std::string& line) {
    text_ += str(prefix_, ": ", line, "\n");
  }
  std::string finish() {
    add(std::string(80, '-'));
    add(std::string(80, '='));
    return std::move(text_);
  }

 private:
  const char* prefix_;
  std::string text_;
};

std::string size_line(const char* what, int64_t bytes) {
  char gigabytes[32] = "Unknown ";
  if (bytes >= 0) {
    std::snprintf(gigabytes, sizeof(gigabytes), "%.6f", static_cast<double>(bytes) / (1024.0 * 1024 * 1024));
  }
  return str(what, ": ", gigabytes, " GB");
}

class Printer final : public observer::Observer {
 public:
  explicit Printer(const Settings& settings) : settings_(settings), file_("PT_XLA_DEBUG_FILE", settings.path) {}

  void on_event(const observer::Event& event) override {
    if (!event.program || !Recorder::current().is_lazy()) {
      return;
    }
    if (event.phase == observer::Phase::kCompile) {
      file_.append(describe(event, "Compilation Analysis", "Compilation Cause"));
      file_.append(describe_sizes(*event.program));
    } else if (settings_.level > 1) {
      file_.append(describe(event, "Execution Analysis", "Execution Cause"));
    }
  }

 private:
  std::string describe(const observer::Event& event, const char* prefix, const char* cause) const {
    Block block(prefix);
    block.add(cause);
    block.add(str("  ", event.phase == observer::Phase::kCompile ? event.detail : event.name));
    block.add("Graph Info: ");
    if (!graph_name().empty()) {
      block.add("  Graph Name: " + graph_name());
    }
    block.add(str("  Graph Hash: ", event.program->hash));
    block.add(str("  Number of Graph Inputs: ", event.program->inputs));
    block.add(str("  Number of Graph Outputs: ", event.program->outputs));
    block.add("Python Frame Triggered Execution: ");
    std::vector<std::string> frames = current_frames(settings_.most_frames + 1);
    for (size_t i = 0; i < frames.size(); ++i) {
      block.add(i < settings_.most_frames ? "  " + frames[i] : "  ..........");
    }
    return block.finish();
  }

  static std::string describe_sizes(const observer::Program& program) {
    Block block("Post Compilation Analysis");
    block.add(size_line("Graph input size", program.input_bytes));
    block.add(size_line("Graph output size", program.output_bytes));
    block.add(size_line("Aliased Input size", program.aliased_bytes));
    block.add(size_line("Intermediate tensor size", program.scratch_bytes));
    block.add(size_line("Compiled program size", program.code_bytes));
    return block.finish();
  }

  const Settings settings_;
  LogFile file_;
};

bool start() {
  Settings settings;
  if (settings.level <= 0 || !settings.is_master) {
    return false;
  }
  observer::add(
      *new Printer(settings), observer::phase_bits(observer::Phase::kCompile, observer::Phase::kSync)); // for as long as the process lives
  return true;
}

// Tensors and numbers. All numbers of random nodes count as one input, the generator's state; numbers that make a tensor (torch.ones) do
// not count.
int64_t count_inputs(const Graph& graph) {
  auto is_scalar = [&](ValueId v) { return v != kNoValue && graph.values[v].kind == ValueKind::kScalar; };
  std::vector<bool> counted(graph.values.size());
  bool draws = false;
  for (const Node& node : graph.nodes) {
    bool random = node.op->traits & kRandom;
    draws = draws || random;
    bool makes = std::all_of(node.operands.begin(), node.operands.end(), is_scalar);
    for (ValueId v : node.operands) {
      if (is_scalar(v) && !random && !makes) {
        counted[v] = true;
      }
    }
  }
  return static_cast<int64_t>(graph.parameters.size()) + std::count(counted.begin(), counted.end(), true) + draws;
}

} // namespace

bool start_analysis() {
  static const bool started = start();
  return started;
}

ProgramFacts::ProgramFacts(const Trace& trace, const Program& program, const std::vector<bool>& donated) {
  const Graph& graph = trace.graph();
  Hash128 hash = trace.key();
  hash.add_bytes(program.output_bits.data(), program.output_bits.size() * sizeof(uint64_t));
  hash_ = hash.hex();
  program_.hash = hash_;
  program_.inputs = count_inputs(graph);
  program_.outputs = static_cast<int64_t>(program.outputs.size());
  for (size_t i = 0; i < graph.parameters.size(); ++i) {
    int64_t bytes = graph.type(graph.parameters[i]).nbytes();
    program_.input_bytes += bytes;
    program_.aliased_bytes += donated[i] ? bytes : 0;
  }
  for (ValueId v : program.outputs) {
    program_.output_bytes += graph.type(v).nbytes();
  }
  program_.scratch_bytes = program.executable->scratch_bytes();
  program_.code_bytes = program.executable->code_bytes();
}

} // namespace torch_xla
