// The reports of programs for devices that are not there.
#include "engine/compile_only.h"

#include <deque>
#include <mutex>

namespace torch_xla {
namespace {

struct Reports {
  std::mutex mutex;
  std::deque<ProgramReportRef> last; // guarded by mutex
};

Reports& reports() {
  static auto* all = new Reports; // programs may be compiled until the process ends
  return *all;
}

} // namespace

std::vector<ProgramReportRef> program_reports() {
  std::lock_guard<std::mutex> lock(reports().mutex);
  return {reports().last.begin(), reports().last.end()};
}

void add_program_report(ProgramReportRef report) {
  std::lock_guard<std::mutex> lock(reports().mutex);
  reports().last.push_back(std::move(report));
  if (reports().last.size() > kMostReports) {
    reports().last.pop_front();
  }
}

void forget_program_reports() {
  std::lock_guard<std::mutex> lock(reports().mutex);
  reports().last.clear();
}

} // namespace torch_xla
