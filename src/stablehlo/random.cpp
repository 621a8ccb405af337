// Philox 4x32-10 in integer arithmetic: the same counters and keys as the CPU engine's, so the same bits.
// After Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3 (SC 2011).
#include "stablehlo/random.h"

#include "core/philox.h"

namespace torch_xla::stablehlo {
namespace {

Hlo low_word(Hlo x) {
  return x.text().op("convert", {x}, {}, {DType::U32, x.dims()});
}

Hlo high_word(Hlo x) {
  return low_word(binary("shift_right_logical", x, x.text().constant_int(32, x.type())));
}

Hlo full_product(Hlo x, int64_t multiplier) {
  Hlo wide = x.text().op("convert", {x}, {}, {DType::U64, x.dims()});
  return wide * x.text().constant_int(multiplier, wide.type());
}

Hlo exclusive_or(Hlo a, Hlo b) {
  return binary("xor", a, b);
}

Hlo as_unsigned(Hlo x) {
  return x.text().op("bitcast_convert", {x}, {}, {DType::U64, x.dims()});
}

} // namespace

std::array<Hlo, 4> write_random_bits(Hlo seed, Hlo offset, const Dims& dims) {
  Text& text = seed.text();
  seed = as_unsigned(seed);
  offset = as_unsigned(offset);
  Hlo index = iota(text, {num_elements(dims)}, 0, DType::U64);
  std::array<Hlo, 4> c{low_word(index), high_word(index), low_word(offset), high_word(offset)};
  Hlo key0 = low_word(seed);
  Hlo key1 = high_word(seed);
  for (int round = 0; round < philox::kRounds; ++round) {
    Hlo p0 = full_product(c[0], philox::kMultiplier0);
    Hlo p1 = full_product(c[2], philox::kMultiplier1);
    Hlo word0 = exclusive_or(exclusive_or(high_word(p1), c[1]), key0);
    Hlo word2 = exclusive_or(exclusive_or(high_word(p0), c[3]), key1);
    c = {word0, low_word(p1), word2, low_word(p0)};
    key0 = key0 + text.constant_int(philox::kWeyl0, key0.type());
    key1 = key1 + text.constant_int(philox::kWeyl1, key1.type());
  }
  for (Hlo& word : c) {
    word = text.op("bitcast_convert", {word}, {}, {DType::I32, word.dims()});
    word = reshape(broadcast(word, {num_elements(dims)}), dims);
  }
  return c;
}

} // namespace torch_xla::stablehlo
