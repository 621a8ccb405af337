// Matrix products: dot_general, and the sums that the add* rows make.
#include <optional>

#include "stablehlo/call.h"
#include "stablehlo/structured.h"

namespace torch_xla::stablehlo {
namespace {

Hlo matrix_product(Hlo a, Hlo b) {
  if (std::optional<Hlo> x = with_split_rows(a)) {
    Hlo product = dot(*x, b, {}, {}, {static_cast<int64_t>(x->rank()) - 1}, {0});
    return reshape(product, {a.dim(0), b.dim(1)});
  }
  if (a.source() && a.source()->order == Dims{1, 0}) { // a weight's gradient
    std::optional<Hlo> x = with_split_rows(a.source()->operand);
    std::optional<Hlo> y = with_split_rows(b);
    if (x && y && with(x->dims(), x->rank() - 1, y->dims().back()) == y->dims()) {
      return dot(*x, *y, {}, {}, all_but_last(*x), all_but_last(*y));
    }
  }
  return dot(a, b, {}, {}, {1}, {0});
}

// The matrices of x before a reshape joined their two dims of batches, or nothing.
std::optional<Hlo> with_two_batches(const Hlo& x) {
  if (!x.source()) {
    return std::nullopt;
  }
  const auto& [operand, order] = *x.source();
  if (order == Dims{0, 2, 1}) {
    std::optional<Hlo> two = with_two_batches(operand);
    return two ? std::optional(transpose(*two, {0, 1, 3, 2})) : std::nullopt;
  }
  // A part of equal ones, as query, key and value, has a first dim of one element.
  const size_t first = operand.rank() == 5 && operand.dim(0) == 1 ? 1 : 0;
  const Dims dims(operand.dims().data() + first, operand.rank() - first);
  bool joins = order.empty() && dims.size() == 4 && dims[2] == x.dim(1) && dims[3] == x.dim(2);
  return joins ? std::optional(reshape(operand, dims)) : std::nullopt;
}

// One batch becomes a product of matrices: XLA's CPU client cannot run it as a batch with transposed bfloat16. Two dims of batches (a
// sequence's and a head's) stay two: joined, they cost TPUs a copy where a transpose stands before.
Hlo batch_product(Hlo a, Hlo b) {
  if (a.dim(0) == 1) {
    Hlo product = matrix_product(reshape(a, {a.dim(1), a.dim(2)}), reshape(b, {b.dim(1), b.dim(2)}));
    return reshape(product, {1, product.dim(0), product.dim(1)});
  }
  std::optional<Hlo> x = with_two_batches(a);
  std::optional<Hlo> y = with_two_batches(b);
  if (!x && !y) {
    return dot(a, b, {0}, {0}, {2}, {1});
  }
  const Hlo& known = x ? *x : *y;
  auto split = [&](const Hlo& z) { return reshape(z, {known.dim(0), known.dim(1), z.dim(1), z.dim(2)}); };
  Hlo product = dot(x ? *x : split(a), y && y->dim(0) == known.dim(0) ? *y : split(b), {0, 1}, {0, 1}, {3}, {2});
  return reshape(product, {a.dim(0), a.dim(1), b.dim(2)});
}

// Batches are summed too.
Hlo summed_product(Hlo a, Hlo b) {
  return dot(a, b, {}, {}, {0, 2}, {0, 1});
}

Hlo vector_product(Hlo a, Hlo b) {
  return dot(a, b, {}, {}, {static_cast<int64_t>(a.rank()) - 1}, {0});
}

Hlo outer_product(Hlo a, Hlo b) {
  return broadcast_in_dim(a, {a.dim(0), b.dim(0)}, {0}) * b;
}

using Product = Hlo (*)(Hlo a, Hlo b);

template <Product P>
void write_product(Call& c) {
  c.set(0, P(c[0], c[1]));
}

Hlo scaled(Hlo x, double factor) {
  return factor == 1 ? x : x * factor;
}

// beta * self + alpha * product; attributes beta, alpha. With beta 0 self is ignored, also NaN. A bias is added to split rows.
template <Product P>
Hlo sum(Call& c) {
  Hlo joined = P(c[1], c[2]);
  std::optional<Hlo> split = c[0].rank() == 1 ? with_split_rows(joined) : std::nullopt;
  Hlo product = split ? *split : joined;
  product = scaled(convert(product, compute_type(product.dtype())), c.get_double(1, 1));
  double beta = c.get_double(0, 1);
  Hlo total = beta == 0 ? product : scaled(c.computed(0), beta) + product;
  return split ? reshape(total, joined.dims()) : total;
}

template <Product P>
void write_sum(Call& c) {
  c.set(0, sum<P>(c));
}

// The outer product is computed before it is summed, in float32 for the 16-bit floats.
void write_addr(Call& c) {
  Hlo product = scaled(outer_product(c.computed(1), c.computed(2)), c.get_double(1, 1));
  double beta = c.get_double(0, 1);
  c.set(0, beta == 0 ? product : scaled(c.computed(0), beta) + product);
}

// Attribute 2: gelu, else relu.
void write_addmm_activation(Call& c) {
  Hlo x = sum<matrix_product>(c);
  c.set(0, c.get_bool(2) ? gelu(x) : maximum(x, constant_like(x, 0)));
}

constexpr Writer kWriters[] = {
    {"aten::mm", write_product<matrix_product>},
    {"aten::bmm", write_product<batch_product>},
    {"aten::mv", write_product<vector_product>},
    {"aten::dot", write_product<vector_product>},
    {"aten::vdot", write_product<vector_product>},
    {"aten::addmm", write_sum<matrix_product>},
    {"aten::_addmm_activation", write_addmm_activation},
    {"aten::baddbmm", write_sum<batch_product>},
    {"aten::addbmm", write_sum<summed_product>},
    {"aten::addmv", write_sum<vector_product>},
    {"aten::addr", write_addr},
};

} // namespace

std::span<const Writer> matmul_writers() {
  return kWriters;
}

} // namespace torch_xla::stablehlo
