// Environment variables for the Python package: read by the same parser as those of C++, and declared in the same table.
#include "core/env.h"

#include "core/errors.h"
#include "core/paths.h"
#include "python/bindings.h"

namespace torch_xla {
namespace {

const env::Variable& row_of(const std::string& name) {
  const env::Variable* variable = env::find_variable(name);
  XLA_ASSERT(variable, name, " has no row in core/env_table.h");
  return *variable;
}

template <auto read>
auto read_by_name(const std::string& name) {
  return read(row_of(name));
}

// Why the text is not understood; empty if it is.
std::string problem_of(const env::Variable& variable) {
  try {
    env::check(variable);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

py::list variables() {
  py::list rows;
  for (const env::Variable& variable : env::kVariables) {
    py::dict row;
    row["name"] = variable.name;
    row["accepts"] = env::accepted(variable);
    row["default"] = *variable.unset ? variable.unset : variable.otherwise;
    row["purpose"] = variable.purpose;
    row["readers"] = variable.readers;
    row["value"] = env::find(variable);
    row["problem"] = problem_of(variable);
    rows.append(row);
  }
  return rows;
}

// Why nothing reads them, by name.
py::dict ignored() {
  py::dict reasons;
  for (const env::Ignored& group : env::kIgnored) {
    for (py::handle name : py::str(group.names).attr("split")()) {
      reasons[name] = group.why;
    }
  }
  return reasons;
}

} // namespace

void init_environment(py::module_& m) {
  m.def("_env_text", &read_by_name<&env::text>, py::arg("name"));
  m.def("_env_flag", &read_by_name<&env::flag>, py::arg("name"));
  m.def("_env_integer", &read_by_name<&env::integer>, py::arg("name"));
  m.def("_env_share", &read_by_name<&env::share>, py::arg("name"));
  m.def("_env_is_set", &read_by_name<&env::is_set>, py::arg("name"));
  m.def("_env_parse_flag", &env::parse_flag, py::arg("name"), py::arg("text"));
  m.def("_full_path", &full_path, py::arg("path"));
  m.def("_env_variables", &variables);
  m.def("_env_ignored", &ignored);
}

} // namespace torch_xla
