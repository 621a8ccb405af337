// Programs that are a function of the test, for the tests of the executors.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/executor.h"

namespace torch_xla {

class FunctionProgram : public Executable {
 public:
  explicit FunctionProgram(std::function<void(RunArgs&)> body) : body_(std::move(body)) {}
  void run(RunArgs& args) override {
    body_(args);
  }
  bool is_alone() const override {
    return finds_no_processor;
  }

  bool finds_no_processor = false; // beside its own

 private:
  std::function<void(RunArgs&)> body_;
};

} // namespace torch_xla
