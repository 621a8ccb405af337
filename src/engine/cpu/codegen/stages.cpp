// Assigns the instructions of a kernel to stages and sweeps, and decides which values are recomputed and which are kept in the row's
// scratch memory.
#include "engine/cpu/codegen/stages.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "core/errors.h"
#include "engine/cpu/cost.h"

namespace torch_xla::cpu {

namespace {

bool same_address(const KernelSpec& spec, const KernelBuffer& a, const KernelBuffer& b) {
  if (item_size(a.dtype) != item_size(b.dtype)) {
    return false;
  }
  for (size_t d = 0; d < spec.num_loops(); ++d) {
    if (spec.extent(d) != 1 && a.strides[d] != b.strides[d]) {
      return false;
    }
  }
  return true;
}

int own_cost(const KernelSpec& spec, const Instr& instr) {
  if (instr.prim == Prim::kLoad) {
    int64_t stride = spec.buffers[instr.index].strides.back();
    return stride == 1 || stride == 0 ? 1 : kGatherCost;
  }
  return sweep_cost(instr.prim, instr.dtype);
}

class StageFinder {
 public:
  explicit StageFinder(const KernelSpec& spec) : spec_(spec), count_(static_cast<int>(spec.body.size())) {}

  Stages run() {
    stages_.varies.resize(count_);
    stages_.scratch_slot.assign(count_, -1);
    stage_.resize(count_);
    cost_.resize(count_);
    for (int i = 0; i < count_; ++i) {
      classify(i);
    }
    delay_aliasing_stores();
    size_t stages = 1 + (count_ ? *std::max_element(stage_.begin(), stage_.end()) : 0);
    stages_.sweeps.resize(stages);
    stages_.row_values.resize(stages);
    stages_.row_stores.resize(stages);
    place_scalars();
    for (size_t s = 0; s < stages; ++s) {
      plan_sweep(static_cast<int>(s));
    }
    return std::move(stages_);
  }

 private:
  const Instr& at(int i) const {
    return spec_.body[i];
  }
  bool varies(int i, int bits) const {
    return stages_.varies[i] & bits;
  }
  bool reduces(int i) const {
    return is_reduce(at(i).prim);
  }
  bool stores(int i) const {
    return at(i).prim == Prim::kStore;
  }
  // Computed outside the sweeps.
  bool is_scalar(int i) const {
    return !varies(i, kMid | kInner);
  }
  // Whether the instruction makes its sweep run.
  bool is_root(int i) const {
    return reduces(i) || (stores(i) && !is_scalar(i));
  }

  // The loops of extent above one along which it moves.
  uint8_t loops_of(const Dims& strides) const {
    size_t loops = spec_.num_loops();
    XLA_ASSERT(strides.size() == loops, "a kernel's buffer has ", strides.size(), " strides for ", loops, " loops");
    uint8_t bits = 0;
    for (size_t d = 0; d < loops; ++d) {
      if (strides[d] != 0 && spec_.extent(d) != 1) {
        bits |= d < spec_.outer.size() ? kOuter : d + 1 < loops ? kMid : kInner;
      }
    }
    return bits;
  }

  uint8_t varies_of(const Instr& instr) const {
    if (is_reduce(instr.prim)) {
      return spec_.form == KernelForm::kRow ? kOuter : kOuter | kInner;
    }
    uint8_t bits = 0;
    for (int32_t a : instr.args) {
      bits |= stages_.varies[a];
    }
    if (instr.prim == Prim::kLoad || instr.prim == Prim::kStore) {
      bits |= loops_of(spec_.buffers[instr.index].strides);
    } else if (instr.prim == Prim::kIota || instr.prim == Prim::kRandomBits) {
      bits |= loops_of(spec_.indices[instr.index]);
    }
    return bits;
  }

  // A reduction's stage is that of its sweep; what uses it is one stage later.
  void classify(int i) {
    stages_.varies[i] = varies_of(at(i));
    int cost = own_cost(spec_, at(i));
    for (int32_t a : at(i).args) {
      stage_[i] = std::max(stage_[i], stage_[a] + (reduces(a) ? 1 : 0));
      cost += varies(a, kInner) && !reduces(a) ? cost_[a] : 0;
    }
    cost_[i] = std::min(cost, kMaxSweepCost);
    if (spec_.form == KernelForm::kColumn && stores(i) && !varies(i, kMid)) {
      stage_[i] = 1;
    }
  }

  bool aliases_load(const KernelBuffer& stored) const {
    return std::any_of(spec_.body.begin(), spec_.body.end(), [&](const Instr& instr) {
      return instr.prim == Prim::kLoad && same_address(spec_, spec_.buffers[instr.index], stored);
    });
  }

  // An output that may be written over an input is stored in the last sweep that has work, as later sweeps may read the input again.
  void delay_aliasing_stores() {
    if (spec_.form != KernelForm::kRow) {
      return;
    }
    int last = 0;
    for (int i = 0; i < count_; ++i) {
      last = is_root(i) ? std::max(last, stage_[i]) : last;
    }
    for (int i = 0; i < count_; ++i) {
      if (stores(i) && !is_scalar(i) && aliases_load(spec_.buffers[at(i).index])) {
        stage_[i] = last;
      }
    }
  }

  void place_scalars() {
    for (int i = 0; i < count_; ++i) {
      if (!is_scalar(i) || reduces(i)) {
        continue;
      }
      if (varies(i, kOuter)) {
        (stores(i) ? stages_.row_stores : stages_.row_values)[stage_[i]].push_back(i);
      } else {
        (stores(i) ? stages_.fixed_stores : stages_.fixed).push_back(i);
      }
    }
  }

  void plan_sweep(int stage) {
    Sweep& sweep = stages_.sweeps[stage];
    std::vector<char> needed(count_);
    for (int i = count_ - 1; i >= 0; --i) {
      bool root = is_root(i) && stage_[i] == stage;
      if (root) {
        place_root(sweep, i);
      } else if (!needed[i] || is_scalar(i) || reduces(i) || reload(sweep, i)) {
        continue;
      } else {
        (varies(i, kInner) ? sweep.values : sweep.mid_values).push_back(i);
        first_.emplace(i, stage);
      }
      for (int32_t a : at(i).args) {
        needed[a] = true;
      }
    }
    for (auto* list : {&sweep.mid_values, &sweep.values, &sweep.reloads, &sweep.reduces, &sweep.mid_stores, &sweep.stores}) {
      std::reverse(list->begin(), list->end());
    }
  }

  void place_root(Sweep& sweep, int i) {
    if (reduces(i)) {
      sweep.reduces.push_back(i);
    } else {
      (varies(i, kInner) ? sweep.stores : sweep.mid_stores).push_back(i);
    }
  }

  // An upper bound; for a kernel for rows of any size it may exceed an int64.
  double row_elements() const {
    return std::accumulate(spec_.mid.begin(), spec_.mid.end(), static_cast<double>(spec_.inner), [](double n, int64_t extent) {
      return n * static_cast<double>(extent);
    });
  }

  // True if the value is read from scratch: an earlier sweep has computed it, at a price, and there is room.
  bool reload(Sweep& sweep, int i) {
    auto first = first_.find(i);
    if (first == first_.end() || spec_.form != KernelForm::kRow || !varies(i, kInner) || cost_[i] < kSpillCost) {
      return false;
    }
    if (stages_.scratch_slot[i] < 0) {
      double bytes = row_elements() * static_cast<double>(item_size(compute_type(at(i).dtype)));
      if (scratch_bytes_ + bytes > kRowScratchBytes) {
        return false;
      }
      scratch_bytes_ += bytes;
      stages_.scratch_slot[i] = static_cast<int>(stages_.scratch_types.size());
      stages_.scratch_types.push_back(at(i).dtype);
      stages_.sweeps[first->second].spills.push_back(i);
    }
    sweep.reloads.push_back(i);
    return true;
  }

  const KernelSpec& spec_;
  const int count_;
  Stages stages_;
  std::vector<int> stage_;
  std::vector<int> cost_; // of recomputing the value in a sweep, loads included
  std::unordered_map<int, int> first_; // the first sweep that computes a value
  double scratch_bytes_ = 0;
};

} // namespace

Stages find_stages(const KernelSpec& spec) {
  return StageFinder(spec).run();
}

} // namespace torch_xla::cpu
