// Loops: stablehlo.while over the turn's number, the carried values, the joined results, and all values that the turns read.
#include <bit>

#include "ir/computation.h"
#include "stablehlo/call.h"
#include "stablehlo/structured.h"

namespace torch_xla::stablehlo {
namespace {

Hlo shift_and_xor(const Hlo& z, int shift) {
  return binary("xor", z, binary("shift_right_logical", z, z.text().constant_int(shift, z.type())));
}

Hlo times(const Hlo& z, uint64_t factor) {
  return z * z.text().constant_int(std::bit_cast<int64_t>(factor), z.type());
}

// As seed_of_turn() computes it.
Hlo write_seed_of_turn(const Hlo& seed, const Hlo& turn) {
  Hlo z = seed + times(convert(turn, DType::I64) + 1, kTurnStep);
  z = times(shift_and_xor(z, kTurnShifts[0]), kTurnMix[0]);
  z = times(shift_and_xor(z, kTurnShifts[1]), kTurnMix[1]);
  return shift_and_xor(z, kTurnShifts[2]);
}

// The places of one slice along dim 0.
Hlos starts_of(const Hlo& index, size_t rank) {
  Hlos starts(rank, index - index);
  starts[0] = index;
  return starts;
}

Hlo slice_of(const Hlo& x, const Hlo& index) {
  Dims one = with(x.dims(), 0, 1);
  return reshape(dynamic_slice(x, starts_of(index, x.rank()), one), without(x.dims(), 0));
}

class LoopWriter {
 public:
  explicit LoopWriter(Call& c)
      : c_(c),
        body_(body_of(c.attr(kLoopBody))),
        carried_(static_cast<size_t>(c.get_int(kLoopCarried))),
        sliced_(static_cast<size_t>(c.get_int(kLoopSliced))),
        joined_(body_.graph.outputs.size() - carried_) {}

  void write() {
    Hlos init = first_values();
    if (!c_.is_none(kLoopTrips) && c_.get_int(kLoopTrips) == 0) { // their slices would have no element to read
      set_results(init);
      return;
    }
    set_results(while_loop(init, [this](const Hlos& v) { return goes_on(v); }, [this](const Hlos& v) { return turn(v); }));
  }

 private:
  // In the order of the loop's values: the turn's number, carried, joined, then the other operands.
  Hlos first_values() {
    Text& text = c_.text();
    // Compilers find the number of turns in a plain counter; 64 bits are two words to a TPU.
    const DType counter = c_.is_none(kLoopTrips) ? DType::I64 : index_type(c_.get_int(kLoopTrips));
    Hlos values{text.constant_int(0, {counter, {}})};
    for (size_t i = 0; i < carried_; ++i) {
      values.push_back(c_[i]);
    }
    for (size_t i = 0; i < joined_; ++i) {
      values.push_back(text.constant_int(0, c_.result_type(carried_ + i)));
    }
    for (size_t i = carried_; i < c_.size(); ++i) {
      values.push_back(c_[i]);
    }
    return values;
  }

  Hlo goes_on(const Hlos& v) const {
    return c_.is_none(kLoopTrips) ? v[carried_] : v[0] < static_cast<double>(c_.get_int(kLoopTrips));
  }

  Hlos turn(const Hlos& v) {
    Hlo index = c_.get_bool(kLoopReverse) ? static_cast<double>(c_.get_int(kLoopTrips) - 1) - v[0] : v[0];
    Hlos results = write_computation(c_.text(), body_.graph, arguments(v, index));
    Hlos next{v[0] + 1};
    next.insert(next.end(), results.begin(), results.begin() + static_cast<ptrdiff_t>(carried_));
    for (size_t i = carried_; i < results.size(); ++i) {
      const Hlo& joined = v[1 + i];
      next.push_back(dynamic_update_slice(joined, reshape(results[i], with(joined.dims(), 0, 1)), starts_of(index, joined.rank())));
    }
    next.insert(next.end(), v.begin() + static_cast<ptrdiff_t>(next.size()), v.end());
    return next;
  }

  // The body's arguments in one turn.
  Hlos arguments(const Hlos& v, const Hlo& index) {
    Hlos given(v.begin() + 1, v.begin() + 1 + static_cast<ptrdiff_t>(carried_));
    size_t rest = 1 + carried_ + joined_;
    for (size_t i = rest; i < v.size(); ++i) {
      given.push_back(i < rest + sliced_ ? slice_of(v[i], index) : v[i]);
    }
    size_t scalars = body_.graph.parameters.size();
    for (const Computation::Draw& draw : body_.draws) {
      Hlo& seed = given[scalars + static_cast<size_t>(draw.seed)];
      seed = write_seed_of_turn(seed, index);
    }
    return given;
  }

  void set_results(const Hlos& v) {
    for (size_t i = 0; i < c_.num_results(); ++i) {
      c_.set(i, v[1 + i]);
    }
  }

  Call& c_;
  const Computation& body_;
  size_t carried_;
  size_t sliced_;
  size_t joined_;
};

void write_loop(Call& c) {
  LoopWriter(c).write();
}

constexpr Writer kWriters[] = {
    {"xla::loop", write_loop},
};

} // namespace

std::span<const Writer> control_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
