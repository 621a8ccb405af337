// Operators in our tables and lists that this PyTorch release lacks.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace torch_xla {

struct MissingOperator : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The operator of that name, with namespace and overload. Throws MissingOperator if there is none, and adds it to missing_operators().
c10::OperatorHandle get_operator(const std::string& name);

// Registers the kernel from `make` for the operator; leaves it out if the kernel needs a missing operator.
template <typename Library, typename Make>
void implement(Library& library, const char* name, Make make) {
  try {
    library.impl(name, make());
  } catch (const MissingOperator&) { // noted
  }
}

// In alphabetical order: operators that rows and kernels need, and those with a kernel of ours but no schema.
std::vector<std::string> missing_operators();

} // namespace torch_xla
