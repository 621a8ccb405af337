// Size and canonical text of a kernel.
#include "engine/cpu/kernel.h"

#include <sstream>

namespace torch_xla::cpu {

namespace {

template <typename T, uint32_t N>
void write(std::ostream& out, const InlineVec<T, N>& v) {
  out << '[';
  for (size_t i = 0; i < v.size(); ++i) {
    out << (i ? "," : "") << v[i];
  }
  out << ']';
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

void write(std::ostream& out, const Instr& instr) {
  out << prim_name(instr.prim) << ':' << dtype_name(instr.dtype);
  write(out, instr.args);
  if (instr.index >= 0) {
    out << " @" << instr.index;
  }
  if (instr.lane) {
    out << " lane " << instr.lane;
  }
  if (instr.prim == Prim::kConstant) {
    out << " 0x" << std::hex << instr.imm << std::dec;
  }
  out << '\n';
}

void write(std::ostream& out, const KernelArgument& argument) {
  constexpr const char* kNames[] = {"extent", "stride", "constant"};
  out << "argument " << kNames[static_cast<size_t>(argument.kind)] << ' ' << argument.at << ' ' << argument.value << '\n';
}

void write_signature(std::ostream& out, const KernelSpec& spec) {
  for (const KernelBuffer& b : spec.buffers) {
    out << "buffer " << dtype_name(b.dtype) << ' ';
    write(out, b.strides);
    out << '\n';
  }
  for (DType t : spec.scalars) {
    out << "scalar " << dtype_name(t) << '\n';
  }
  for (const Dims& strides : spec.indices) {
    out << "index ";
    write(out, strides);
    out << '\n';
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
  std::ostringstream out;
  out << form_name(form) << " outer";
  write(out, outer);
  out << " mid";
  write(out, mid);
  out << " inner " << inner << '\n';
  write_signature(out, *this);
  for (size_t i = 0; i < body.size(); ++i) {
    out << '%' << i << " = ";
    write(out, body[i]);
  }
  return out.str();
}

} // namespace torch_xla::cpu
