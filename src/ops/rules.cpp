// Shape rules that rows of several families share.
#include "ops/rules.h"

#include "core/errors.h"

namespace torch_xla {
namespace {

std::string join(const Dims& dims, const char* separator) {
  std::string text;
  for (size_t i = 0; i < dims.size(); ++i) {
    text += (i ? separator : "") + std::to_string(dims[i]);
  }
  return text;
}

} // namespace

void fall_back(const std::string& reason) {
  throw UserError(ErrorKind::NotImplemented, reason);
}

int64_t wrap_dim(int64_t dim, size_t rank) {
  int64_t n = std::max<int64_t>(static_cast<int64_t>(rank), 1);
  XLA_CHECK_KIND(
      Index, dim >= -n && dim < n, "Dimension out of range (expected to be in range of [", -n, ", ", n - 1, "], but got ", dim, ")");
  return dim < 0 ? dim + n : dim;
}

Dims all_dims(size_t rank) {
  Dims dims;
  for (size_t i = 0; i < rank; ++i) {
    dims.push_back(static_cast<int64_t>(i));
  }
  return dims;
}

Dims wrap_dims(const Dims& dims, size_t rank) {
  if (dims.empty()) {
    return all_dims(rank);
  }
  Dims wrapped;
  for (int64_t dim : dims) {
    int64_t d = wrap_dim(dim, rank);
    bool seen = std::find(wrapped.begin(), wrapped.end(), d) != wrapped.end();
    XLA_CHECK(!seen, "dim ", d, " appears multiple times in the list of dims");
    wrapped.push_back(d);
  }
  // dim 0 or -1 of a 0-d tensor names nothing.
  return rank == 0 ? Dims() : wrapped;
}

bool expands_to(const Dims& from, const Dims& dims) {
  bool fits = from.size() <= dims.size();
  for (size_t i = 1; fits && i <= from.size(); ++i) {
    int64_t extent = from[from.size() - i];
    fits = extent == 1 || extent == dims[dims.size() - i];
  }
  return fits;
}

Dims reduced_dims(const Dims& from, const Dims& over, bool keepdim) {
  Dims result;
  for (size_t i = 0; i < from.size(); ++i) {
    bool reduced = std::find(over.begin(), over.end(), static_cast<int64_t>(i)) != over.end();
    if (!reduced) {
      result.push_back(from[i]);
    } else if (keepdim) {
      result.push_back(1);
    }
  }
  return result;
}

int64_t reduced_count(const Dims& from, const Dims& over) {
  int64_t count = 1;
  for (int64_t d : over) {
    count *= from[d];
  }
  return count;
}

std::string sizes_text(const Dims& dims) {
  return "[" + join(dims, ", ") + "]";
}

std::string product_text(const Dims& dims) {
  return join(dims, "x");
}

DType get_dtype(const InferContext& context, size_t i, DType otherwise) {
  auto dtype = static_cast<DType>(context.get_int(i, static_cast<int64_t>(otherwise)));
  if (!is_native(dtype)) {
    fall_back("no rows for this dtype");
  }
  return dtype;
}

bool get_flag(const InferContext& context, size_t i, size_t flag) {
  return std::get<std::vector<bool>>(context.attr(i)).at(flag);
}

int64_t pick(const Dims& list, size_t i, int64_t otherwise) {
  if (list.size() > 1 && i >= list.size()) {
    fall_back("a list of fewer entries than dims");
  }
  return list.empty() ? otherwise : list.size() == 1 ? list[0] : list[i];
}

DType same_dtype(const InferContext& context, size_t a, size_t b) {
  DType dtype = context.operand(a).dtype;
  if (dtype != context.operand(b).dtype) {
    fall_back("operands of different dtypes");
  }
  return dtype;
}

void require_float(const InferContext& context, size_t i) {
  if (!is_float(context.operand(i).dtype)) {
    fall_back("only rows for floating point types");
  }
}

void require_elements(const InferContext& context) {
  if (context.operand(0).numel() == 0) {
    fall_back("an order of nothing");
  }
}

void require_ordered(const InferContext& context) {
  if (context.operand(0).dtype == DType::Bool) {
    fall_back("an order of bools");
  }
}

void require_fit(const InferContext& context, size_t i) {
  DType dtype = context.operand(0).dtype;
  auto* real = std::get_if<double>(&context.attr(i));
  auto* whole = std::get_if<int64_t>(&context.attr(i));
  if ((real && !fits(*real, dtype)) || (whole && !fits(*whole, dtype))) {
    fall_back("a number that the type cannot hold");
  }
}

void require_rank(const InferContext& context, size_t i, size_t rank, const char* message) {
  if (context.operand(i).dims.empty() && rank > 0) { // ATen's error is another one
    fall_back(message);
  }
  XLA_CHECK(context.operand(i).dims.size() == rank, message);
}

} // namespace torch_xla
