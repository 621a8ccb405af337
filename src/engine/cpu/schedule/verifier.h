// Shared by the verifiers of a schedule: the place under test, for errors.
#pragma once

#include <string>

#include "core/errors.h"
#include "engine/cpu/schedule/pipeline.h"
#include "ir/strides.h"

namespace torch_xla::cpu {

class Verifier {
 protected:
  Verifier(const char* stage, const Schedule& schedule)
      : s_(schedule), graph_(schedule.laid_out.graph), places_(schedule.laid_out.places), stage_(stage) {}

  template <typename... Args>
  void check(bool ok, const Args&... what) const {
    if (__builtin_expect(!ok, 0)) {
      throw InternalError(str("schedule, ", stage_, where_, ": ", what...));
    }
  }
  // Sets the part of the schedule under test: ", step 3".
  template <typename... Args>
  void enter(const Args&... where) {
    where_ = str(", ", where...);
  }

  ValueId root(ValueId v) const {
    return places_[v].root;
  }
  int64_t span(ValueId v) const {
    return span_elements(graph_.type(v).dims, places_[v].strides);
  }
  int64_t bytes(ValueId v) const {
    return span(v) * static_cast<int64_t>(item_size(graph_.type(v).dtype));
  }
  bool is(ValueId v, ValueKind kind) const {
    return graph_.values[v].kind == kind;
  }

  const Schedule& s_;
  const Graph& graph_;
  const std::vector<Place>& places_;

 private:
  const char* stage_;
  std::string where_;
};

} // namespace torch_xla::cpu
