// Writes the texts of all cases of tests/rows, each behind a comment with its case, to the file that XLA_ROW_TEXTS names, in the forms for
// the platform of XLA_ROW_PLATFORM: tools/compilers compiles them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "passes/passes.h"
#include "row_cases.h"
#include "stablehlo/writer.h"

namespace torch_xla {
namespace {

TEST(RowTexts, AreWritten) {
  const char* path = std::getenv("XLA_ROW_TEXTS");
  if (!path) {
    GTEST_SKIP() << "XLA_ROW_TEXTS names no file; `make test-compilers` does";
  }
  const char* platform = std::getenv("XLA_ROW_PLATFORM");
  const StableHloOptions options{.target = find_stablehlo_target(platform ? platform : "")};
  std::ofstream file(path);
  for (const auto& cases : testing::row_case_files()) {
    for (const testing::RowCase& c : testing::read_row_cases(cases)) {
      std::string line = c.line.substr(0, c.line.find(" #"));
      file << "// " << line << "\n" << write_stablehlo(run_passes(c.trace, 0, {.keeps = has_stablehlo_form}), options);
    }
  }
  EXPECT_TRUE(file.flush().good()) << path;
}

} // namespace
} // namespace torch_xla
