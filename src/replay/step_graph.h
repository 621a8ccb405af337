// StepGraph: what a program records between two points, to be run again on the same tensors without being recorded: capture and replay.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "program/program_cache.h"
#include "recording/capture.h"

namespace torch_xla {

// As a CUDA graph: capturing runs nothing, and leaves the tensors as they were; a replay reads what the tensors hold then and writes the
// same tensors that the capture has written. Tensors that were made in the capture and live on have values after the first replay. Python
// numbers are those of the capture, random numbers are new ones in each replay. For one thread at a time; calls take the recording lock.
class StepGraph {
 public:
  ~StepGraph();

  // From here to end() the calling thread records the step: see Capture. Runs what is pending before. Throws UserError where it is captured
  // already, or another capture is on.
  void begin(int device);
  // Compiles the step. Throws UserError without begin().
  void end();
  // Queues the step; values of the tensors that it writes are there when it has run. Throws UserError before a capture, and where the
  // storage of a tensor that the step reads has become too small for it.
  void replay();
  // Forgets the step.
  void reset();

  bool is_captured() const {
    return step_.has_value();
  }
  // The recorded graph (empty before a capture).
  std::string text() const;
  // The Python numbers of the step, in the order of the operations that take them, with the user's lines of these. Throws UserError before
  // a capture.
  std::vector<std::pair<double, std::string>> numbers() const;
  // The storages that the step reads, in the order of its parameters; null for constants. They live as long as the graph holds the step.
  // With the user's lines of the operations that read them first. Throws UserError before a capture.
  std::vector<std::pair<c10::StorageImpl*, std::string>> storages() const;

 private:
  struct Step {
    Graph graph;
    std::vector<Computation::Draw> draws;
    std::vector<Number> numbers; // parallel to Graph::scalars
    std::vector<uint64_t> offsets; // of moving views, behind them
    std::vector<int64_t> lines; // parallel to Graph::nodes
    std::vector<Capture::Input> inputs; // parallel to Graph::parameters; values are constants
    std::vector<Capture::Output> outputs; // what nodes compute
    std::vector<Capture::Output> passed_on; // what is an input's value
    Program program; // of `outputs`; without nodes there is none
    std::vector<std::vector<size_t>> places; // by output of the program: which of `outputs` it is
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
