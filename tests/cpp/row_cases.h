// Cases of the op tables' rows: one line of text each, out of tests/rows, made into a trace of one node with example inputs.
//   aten::gather(f32[4,6], i64[2,6]<6) {0}   # tolerance 1e-4
// Operands: a type with dims is a tensor; without dims (f64 0.5) a number of the program; none is None. After a tensor: <6 draws from
// [0, 6); ^ sorts its elements; ! puts NaN and infinities among them. Attributes as the text form of graphs has them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "core/errors.h"
#include "ir/builder.h"
#include "ir/cursor.h"
#include "ir/promote.h"
#include "ops/registry.h"
#include "ops/tables.h"

namespace torch_xla::testing {

// Bytes of a row-major tensor.
struct HostTensor {
  Type type;
  std::vector<std::byte> data;
};

struct RowCase {
  std::string line;
  Graph trace;
  std::vector<HostTensor> inputs; // by parameter
  std::vector<uint64_t> scalars; // bits, by scalar
  double tolerance = 1e-5;
};

// Element i of a tensor as a double.
inline double read_element(const HostTensor& t, size_t i) {
  const std::byte* at = t.data.data() + i * item_size(t.type.dtype);
  auto as = [&](auto zero) {
    std::memcpy(&zero, at, sizeof(zero));
    return static_cast<double>(zero);
  };
  switch (t.type.dtype) {
    case DType::F64:
      return as(0.0);
    case DType::F32:
      return as(0.0f);
    case DType::I64:
      return as(int64_t{});
    case DType::I32:
      return as(int32_t{});
    case DType::I16:
      return as(int16_t{});
    case DType::I8:
      return as(int8_t{});
    case DType::F16:
      return as(_Float16{});
    case DType::BF16: {
      uint16_t half = 0;
      std::memcpy(&half, at, sizeof(half));
      return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
    }
    default:
      return as(uint8_t{});
  }
}

inline void write_element(HostTensor& t, size_t i, double v) {
  std::byte* at = t.data.data() + i * item_size(t.type.dtype);
  auto put = [&](auto value) { std::memcpy(at, &value, sizeof(value)); };
  switch (t.type.dtype) {
    case DType::F64:
      return put(v);
    case DType::F32:
      return put(static_cast<float>(v));
    case DType::I64:
      return put(static_cast<int64_t>(v));
    case DType::I32:
      return put(static_cast<int32_t>(v));
    case DType::I16:
      return put(static_cast<int16_t>(v));
    case DType::I8:
      return put(static_cast<int8_t>(v));
    case DType::F16:
      return put(static_cast<_Float16>(v));
    case DType::BF16:
      return put(static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(round_to(DType::BF16, v))) >> 16));
    case DType::Bool:
      return put(static_cast<uint8_t>(v != 0));
    default:
      return put(static_cast<uint8_t>(v));
  }
}

class CaseReader {
 public:
  explicit CaseReader(const std::string& line) : case_{line, {}, {}, {}}, text_(line.substr(0, line.find(" #"))), in_(text_) {}

  RowCase run() {
    size_t mark = case_.line.find("# tolerance ");
    case_.tolerance = mark == std::string::npos ? 1e-5 : std::stod(case_.line.substr(mark + 12));
    std::string name = in_.word();
    op_ = find_op(name);
    XLA_ASSERT(op_, "no row ", name);
    in_.expect('(');
    while (!in_.accept(')')) {
      read_operand();
      in_.accept(',');
    }
    read_attributes();
    add_node();
    return std::move(case_);
  }

 private:
  void read_operand() {
    if (in_.accept_word("none")) {
      operands_.push_back(kNoValue);
      return;
    }
    DType dtype = parse_dtype(in_);
    if (in_.peek() != '[') {
      double v = std::stod(in_.word());
      operands_.push_back(case_.trace.add_scalar(dtype));
      case_.scalars.push_back(dtype == DType::F64 ? std::bit_cast<uint64_t>(v) : static_cast<uint64_t>(static_cast<int64_t>(v)));
      return;
    }
    Type type{dtype, parse_dims(in_, '[', ']')};
    operands_.push_back(case_.trace.add_parameter(type));
    case_.inputs.push_back(draw(type));
  }

  HostTensor draw(const Type& type) {
    HostTensor t{type, std::vector<std::byte>(static_cast<size_t>(type.nbytes()))};
    auto count = static_cast<size_t>(type.numel());
    double limit = in_.accept('<') ? std::stod(in_.word()) : 0;
    std::vector<double> values;
    for (size_t i = 0; i < count; ++i) {
      values.push_back(draw_number(type.dtype, limit));
    }
    if (in_.accept('^')) {
      std::sort(values.begin(), values.end());
    }
    if (in_.accept('!')) {
      const double special[] = {std::nan(""), HUGE_VAL, -HUGE_VAL, 0.0, -0.0};
      for (size_t i = 0; i < count; ++i) {
        values[i] = i % 3 == 1 ? special[i / 3 % 5] : values[i];
      }
    }
    for (size_t i = 0; i < count; ++i) {
      write_element(t, i, values[i]);
    }
    return t;
  }

  double draw_number(DType dtype, double limit) {
    if (dtype == DType::Bool) {
      return std::uniform_int_distribution<int>(0, 1)(random_);
    }
    if (is_float(dtype)) {
      return limit > 0 ? std::uniform_real_distribution<double>(0, limit)(random_) : std::uniform_real_distribution<double>(-3, 3)(random_);
    }
    auto top = static_cast<int64_t>(limit);
    bool is_unsigned = dtype == DType::U8;
    return static_cast<double>(std::uniform_int_distribution<int64_t>(top || is_unsigned ? 0 : -9, top ? top - 1 : 9)(random_));
  }

  void read_attributes() {
    if (!in_.accept('{')) {
      return;
    }
    while (!in_.accept('}')) {
      attrs_.push_back(parse_attr(in_, find_op));
      in_.accept(',');
    }
  }

  Type pointwise_result() const {
    std::span<const ValueId> operands{operands_.data(), operands_.size()};
    Dims dims;
    for (ValueId v : operands_) {
      dims = v == kNoValue ? dims : broadcast_dims(dims, case_.trace.type(v).dims);
    }
    DType dtype = promote(case_.trace, operands.subspan(op_->rule == TypeRule::kTail ? 1 : 0));
    switch (op_->rule) {
      case TypeRule::kPromoteFloat:
        return {is_float(dtype) ? dtype : DType::F32, dims};
      case TypeRule::kCompare:
      case TypeRule::kBool:
        return {DType::Bool, dims};
      case TypeRule::kSelf:
        return {case_.trace.type(operands_[0]).dtype, dims};
      default:
        return {dtype, dims};
    }
  }

  void add_node() {
    std::vector<Type> results;
    if (op_->kind == OpKind::kPointwise) {
      results.push_back(pointwise_result());
    } else {
      InferContext context(case_.trace, {operands_.data(), operands_.size()}, attrs_);
      op_->infer(context);
      results = context.results();
    }
    ValueId first = case_.trace.add_node(*op_, operands_, attrs_, results);
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].dtype != DType::Undefined) {
        case_.trace.outputs.push_back(first + static_cast<ValueId>(i));
      }
    }
  }

  RowCase case_;
  std::string text_;
  Cursor in_;
  const Op* op_ = nullptr;
  InlineVec<ValueId, 4> operands_;
  Attrs attrs_;
  std::mt19937 random_{42};
};

// All cases of a file of tests/rows: a line each; empty lines and lines from // on are passed over.
inline std::vector<RowCase> read_row_cases(const std::filesystem::path& path) {
  std::vector<RowCase> cases;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.rfind("//", 0) == 0) {
      continue;
    }
    try {
      cases.push_back(CaseReader(line).run());
    } catch (const std::exception& e) {
      throw InternalError(str(path.string(), ": ", line, ": ", e.what()));
    }
  }
  return cases;
}

inline std::vector<std::filesystem::path> row_case_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("tests/rows")) {
    if (entry.path().extension() == ".cases") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

} // namespace torch_xla::testing
