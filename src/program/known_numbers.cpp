// Groups of numbers by structure, in memory and on disk.
#include "program/known_numbers.h"

#include <ATen/Context.h>

#include "core/errors.h"
#include "engine/program_store.h"
#include "ir/archive.h"
#include "ir/computation.h"
#include "ir/structure.h"

namespace torch_xla {
namespace {

constexpr size_t kMost = size_t{1} << 12;

std::string key_of(const Hash128& structure) {
  return "numbers " + structure.hex();
}

std::vector<bool> find_drawn(const Trace& trace) {
  std::vector<bool> drawn(trace.scalar_bits().size());
  for (const Computation::Draw& draw : find_draws(trace.graph())) {
    drawn[static_cast<size_t>(draw.seed)] = true;
    drawn[static_cast<size_t>(draw.offset)] = true;
  }
  return drawn;
}

std::vector<bool> find_changing(const Trace& trace) {
  std::vector<bool> changing = find_drawn(trace);
  const bool all = at::globalContext().deterministicAlgorithms();
  for (size_t i = 0; i < changing.size(); ++i) {
    changing[i] = all || changing[i] || trace.changing_numbers()[i];
  }
  return changing;
}

std::optional<NumberGroups> read_note(const Hash128& structure) {
  std::optional<std::string> stored = ProgramStore::get().find_note(key_of(structure));
  if (!stored) {
    return std::nullopt;
  }
  try {
    NumberGroups groups;
    Reader in(*stored);
    in(groups);
    in.finish();
    return groups;
  } catch (const InternalError&) { // a damaged file: nothing is known
    return std::nullopt;
  }
}

} // namespace

KnownNumbers& KnownNumbers::get() {
  static auto* known = new KnownNumbers;
  return *known;
}

std::optional<NumberGroups> KnownNumbers::find_known(const Hash128& structure) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = known_.find(structure);
    if (found != known_.end()) {
      return found->second;
    }
  }
  std::optional<NumberGroups> noted = read_note(structure);
  if (noted) {
    replace(structure, *noted);
  }
  return noted;
}

NumberGroups KnownNumbers::find(const Trace& trace) {
  if (!engine().shares_numbers()) {
    return {};
  }
  const std::vector<uint64_t>& numbers = trace.scalar_bits();
  if (keeps_constants_.load(std::memory_order_relaxed)) {
    return NumberGroups::of_first_run(trace.graph(), numbers, find_drawn(trace));
  }
  std::optional<NumberGroups> known = find_known(structure_of(trace.graph()));
  return known && known->fit(numbers.size()) ? known->refined(trace.graph(), numbers)
                                             : NumberGroups::of_first_run(trace.graph(), numbers, find_changing(trace));
}

bool KnownNumbers::replace(const Hash128& structure, const NumberGroups& groups) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (known_.size() >= kMost) {
    known_.clear(); // and learn again
  }
  auto [known, is_new] = known_.try_emplace(structure, groups);
  const bool differs = !is_new && known->second != groups;
  known->second = groups;
  return differs;
}

void KnownNumbers::note(const Trace& trace, const NumberGroups& groups) {
  if (!engine().shares_numbers() || keeps_constants_.load(std::memory_order_relaxed)) {
    return;
  }
  const Hash128 structure = structure_of(trace.graph());
  if (replace(structure, groups)) {
    Writer out;
    out(groups);
    ProgramStore::get().put_note(key_of(structure), out.take());
  }
}

} // namespace torch_xla
