// Operators that our tables and lists name and that the PyTorch at hand lacks, as releases take some away.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace torch_xla {

struct MissingOperator : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The operator of that name, with its namespace and overload. MissingOperator where there is none, which missing_operators() tells from
// then on.
c10::OperatorHandle get_operator(const std::string& name);

// Registers the kernel that `make` gives for the operator, or leaves it out where an operator that the kernel needs is missing.
template <typename Library, typename Make>
void implement(Library& library, const char* name, Make make) {
  try {
    library.impl(name, make());
  } catch (const MissingOperator&) { // noted
  }
}

// In alphabetical order: those that rows and kernels need, and those that have a kernel of ours and no schema.
std::vector<std::string> missing_operators();

} // namespace torch_xla
