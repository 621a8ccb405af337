// StepGraph: records a program between two points, to run it again on the same tensors without recording: capture and replay.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "program/program_cache.h"
#include "recording/capture.h"

namespace torch_xla {

// Like a CUDA graph: the capture runs nothing and leaves the tensors unchanged; a replay reads their current contents and writes the same
// tensors as the capture. Live tensors made in the capture get values at the first replay. Python numbers are those of the capture; each
// replay draws new random numbers. For one thread at a time; calls take the recording lock.
class StepGraph {
 public:
  ~StepGraph();

  // From here to end() the calling thread records the step: see Capture. Runs pending work first. Throws UserError if it is captured
  // already or another capture is on.
  void begin(int device);
  // Compiles the step. Throws UserError without begin().
  void end();
  // Queues the step; the tensors that it writes have their values after its run. Throws UserError before a capture, and if the storage of a
  // tensor that the step reads has become too small.
  void replay();
  // Forgets the step.
  void reset();

  bool is_captured() const {
    return step_.has_value();
  }
  // The recorded graph (empty before a capture).
  std::string text() const;
  // The step's Python numbers, in the order of their operations, with the user's lines of these. Throws UserError before a capture.
  std::vector<std::pair<double, std::string>> numbers() const;
  // The storages that the step reads, in the order of its parameters, with the user's lines of their first reads; null for constants. They
  // live while the graph holds the step. Throws UserError before a capture.
  std::vector<std::pair<c10::StorageImpl*, std::string>> storages() const;

 private:
  struct Step {
    Graph graph;
    std::vector<Computation::Draw> draws;
    std::vector<Number> numbers; // parallel to Graph::scalars
    std::vector<uint64_t> offsets; // of moving views, behind them
    std::vector<int64_t> lines; // parallel to Graph::nodes
    std::vector<Capture::Input> inputs; // parallel to Graph::parameters; values are constants
    std::vector<Capture::Output> outputs; // computed by nodes
    std::vector<Capture::Output> passed_on; // values of inputs
    Program program; // computes `outputs`; none without nodes
    std::vector<std::vector<size_t>> places; // by output of the program: its positions in `outputs`
    bool has_collectives = false;
  };

  Step take_step();
  bool enqueue_known(const std::vector<Number>& numbers);
  bool run_known(const std::vector<Number>& numbers);
  void append(const std::vector<Number>& numbers) const;

  int device_ = 0;
  std::optional<Capture> capture_;
  std::optional<Step> step_;
};

} // namespace torch_xla
