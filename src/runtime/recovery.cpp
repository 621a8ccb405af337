// The part of a trace before a failed operation, run once more, operation by operation.
#include "runtime/recovery.h"

#include <map>

#include "core/errors.h"
#include "core/metrics.h"
#include "runtime/executor.h"

namespace torch_xla {
namespace {

// The number of the failed operation; -1 if the error does not come from an operation's values.
int32_t failed_node(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const StepError& e) {
    return e.kind() == ErrorKind::OutOfMemory ? -1 : e.location();
  } catch (...) {
    return -1;
  }
}

// What is wanted of a run up to a node. Values are numbered in the order of recording.
class Recovery {
 public:
  Recovery(Run& run, int32_t node)
      : run_(run), recorded_(*run.recorded), end_(recorded_.graph.nodes[static_cast<size_t>(node)].first_result) {
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      if (run.outputs[i] && is_known(recorded_.graph.outputs[i])) {
        want(recorded_.graph.outputs[i], recorded_.graph.strides_of_output(i));
      }
    }
    for (const Recorded::Overwritten& write : recorded_.overwritten) {
      if (is_known(write.value)) {
        last_writes_[write.previous.get()] = &write;
      }
    }
    for (const auto& [previous, write] : last_writes_) {
      want(write->value, {});
    }
  }

  // Throws the error of a run.
  void compute() {
    Graph part = recorded_.graph;
    part.outputs = wanted_;
    part.output_strides = orders_;
    RunArgs args;
    for (const BufferRef& input : run_.inputs) {
      args.inputs.push_back(input->get());
    }
    args.donated.resize(args.inputs.size());
    args.scalars = run_.args.scalars;
    args.options = run_.args.options;
    args.options.tell = {}; // the failed run's
    engine().run_in_order(part, run_.device)->run(args);
    outputs_ = std::move(args.outputs);
  }

  void hand_out() {
    for (size_t i = 0; i < run_.outputs.size(); ++i) {
      if (run_.outputs[i] && is_known(recorded_.graph.outputs[i])) {
        run_.outputs[i]->set_running(computed(recorded_.graph.outputs[i]));
        run_.outputs[i]->set_ready();
        run_.outputs[i] = nullptr;
      }
    }
    for (const auto& [previous, write] : last_writes_) {
      previous->buffer = KeptBuffer(std::make_shared<Buffer>(computed(write->value), recorded_.graph.type(write->value).dtype));
      previous->dtype = write->dtype;
      previous->dims = write->dims;
      previous->strides = write->strides;
    }
  }

 private:
  bool is_known(ValueId v) const {
    return v < end_;
  }
  // Asks for v, in its strides as an output of the run if it is one.
  void want(ValueId v, const Dims& strides) {
    if (position_.emplace(v, wanted_.size()).second) {
      wanted_.push_back(v);
      orders_.push_back(strides);
    }
  }
  const EngineBufferRef& computed(ValueId v) const {
    return outputs_[position_.at(v)];
  }

  Run& run_;
  const Recorded& recorded_;
  const ValueId end_; // the first value that is not there when the node fails
  std::vector<ValueId> wanted_;
  std::vector<Dims> orders_; // parallel to wanted_
  std::map<ValueId, size_t> position_; // in wanted_
  std::map<Previous*, const Recorded::Overwritten*> last_writes_;
  std::vector<EngineBufferRef> outputs_;
};

// The error, with the reason why its tensors cannot get the values recorded before it.
std::exception_ptr tell_both(const std::exception_ptr& error, const char* why) {
  try {
    std::rethrow_exception(error);
  } catch (const StepError& e) {
    return std::make_exception_ptr(
        StepError(e.kind(), str(e.what(), "\n(the operations recorded before it are lost as well: ", why, ")"), e.location()));
  }
}

} // namespace

std::exception_ptr recover(Run& run, std::exception_ptr error) {
  static metrics::Counter recovered("RecoveredRun");
  for (int32_t node = failed_node(error); run.recorded && node >= 0;) {
    try {
      Recovery recovery(run, node);
      recovery.compute();
      recovery.hand_out();
      recovered.add();
      return error;
    } catch (const std::exception& e) {
      const int32_t earlier = failed_node(std::current_exception());
      if (earlier < 0 || earlier >= node) {
        return tell_both(error, e.what());
      }
      error = std::current_exception();
      node = earlier;
    }
  }
  return error;
}

} // namespace torch_xla
