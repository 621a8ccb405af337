// Size and canonical text of a kernel.
#include "engine/cpu/kernel.h"

#include <charconv>

namespace torch_xla::cpu {

namespace {

// The text is made for each kernel of each program that is planned: streams take several times as long.
template <typename T>
void write_number(std::string& out, T value, int base = 10) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), value, base).ptr);
}

template <typename T, uint32_t N>
void write(std::string& out, const InlineVec<T, N>& v) {
  out += '[';
  for (size_t i = 0; i < v.size(); ++i) {
    out += i ? "," : "";
    write_number(out, v[i]);
  }
  out += ']';
}

const char* form_name(KernelForm form) {
  switch (form) {
    case KernelForm::kPointwise:
      return "pointwise";
    case KernelForm::kRow:
      return "row";
    case KernelForm::kColumn:
      return "column";
  }
  return "?";
}

void write(std::string& out, const Instr& instr) {
  ((out += prim_name(instr.prim)) += ':') += dtype_name(instr.dtype);
  write(out, instr.args);
  if (instr.index >= 0) {
    write_number(out += " @", instr.index);
  }
  if (instr.lane) {
    write_number(out += " lane ", instr.lane);
  }
  if (instr.prim == Prim::kConstant) {
    write_number(out += " 0x", instr.imm, 16);
  }
  out += '\n';
}

void write(std::string& out, const KernelArgument& argument) {
  constexpr const char* kNames[] = {"extent", "stride", "constant"};
  ((out += "argument ") += kNames[static_cast<size_t>(argument.kind)]) += ' ';
  write_number(out, argument.at);
  write_number(out += ' ', argument.value);
  out += '\n';
}

void write_signature(std::string& out, const KernelSpec& spec) {
  for (const KernelBuffer& b : spec.buffers) {
    ((out += "buffer ") += dtype_name(b.dtype)) += ' ';
    write(out, b.strides);
    out += '\n';
  }
  for (DType t : spec.scalars) {
    ((out += "scalar ") += dtype_name(t)) += '\n';
  }
  for (const Dims& strides : spec.indices) {
    write(out += "index ", strides);
    out += '\n';
  }
  for (const KernelArgument& argument : spec.arguments) {
    write(out, argument);
  }
}

} // namespace

int64_t& KernelSpec::extent(size_t loop) {
  if (loop < outer.size()) {
    return outer[loop];
  }
  loop -= outer.size();
  return loop < mid.size() ? mid[loop] : inner;
}

int64_t KernelSpec::units() const {
  int64_t rows = num_elements(outer);
  switch (form) {
    case KernelForm::kPointwise:
      return outer.empty() ? inner : rows;
    case KernelForm::kRow:
      return rows;
    case KernelForm::kColumn:
      return rows * ((inner + kColumnBlock - 1) / kColumnBlock);
  }
  return 0;
}

std::string KernelSpec::text() const {
  std::string out;
  (out += form_name(form)) += " outer";
  write(out, outer);
  write(out += " mid", mid);
  write_number(out += " inner ", inner);
  out += '\n';
  write_signature(out, *this);
  for (size_t i = 0; i < body.size(); ++i) {
    write_number(out += '%', i);
    write(out += " = ", body[i]);
  }
  return out;
}

} // namespace torch_xla::cpu
