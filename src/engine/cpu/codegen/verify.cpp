// The types that each primitive has code for, and the rules of its operands and indices.
#include "engine/cpu/codegen/verify.h"

#include "core/errors.h"

namespace torch_xla::cpu {

namespace {

bool takes_floats(Prim p) {
  return !is_bitwise(p) && p != Prim::kReduceAnd && p != Prim::kReduceOr;
}

bool takes_integers(Prim p) {
  return !is_function(p) && p != Prim::kAtan2;
}

bool takes_bools(Prim p) {
  switch (p) {
    case Prim::kNeg:
    case Prim::kSub:
    case Prim::kDiv:
    case Prim::kRem:
    case Prim::kPow:
    case Prim::kShl:
    case Prim::kShrA:
    case Prim::kShrL:
      return false;
    default:
      return takes_integers(p);
  }
}

bool takes(Prim p, DType t) {
  if (is_reduced_float(t) || !is_native(t)) {
    return false;
  }
  return is_float(t) ? takes_floats(p) : t == DType::Bool ? takes_bools(p) : takes_integers(p);
}

class Verifier {
 public:
  explicit Verifier(const KernelSpec& spec) : spec_(spec) {}

  void run() {
    for (at_ = 0; at_ < spec_.body.size(); ++at_) {
      check_instr(spec_.body[at_]);
    }
  }

 private:
  void check(bool ok, const char* what) const {
    XLA_ASSERT(ok, "code generation: ", what, " in instruction %", at_, " of the kernel\n", spec_.text());
  }
  void check_index(const Instr& instr, size_t size) const {
    check(instr.index >= 0 && static_cast<size_t>(instr.index) < size, "an index out of range");
  }
  void check_args(const Instr& instr, size_t count) const {
    check(instr.args.size() == count, "a wrong number of operands");
    for (int32_t a : instr.args) {
      check(a >= 0 && static_cast<size_t>(a) < at_, "an operand that is not computed before");
    }
  }
  DType arg(const Instr& instr, size_t i) const {
    return spec_.body[instr.args[i]].dtype;
  }

  void check_instr(const Instr& instr) const {
    check(is_native(instr.dtype) || instr.dtype == DType::C128, "a type without registers");
    switch (instr.prim) {
      case Prim::kConstant:
        return check_args(instr, 0);
      case Prim::kScalar:
        check_index(instr, spec_.scalars.size());
        return check_args(instr, 0);
      case Prim::kLoad:
        check_args(instr, 0);
        return check_access(instr);
      case Prim::kStore:
        check_args(instr, 1);
        check(arg(instr, 0) == instr.dtype, "a store of another type");
        return check_access(instr);
      case Prim::kIota:
        check_index(instr, spec_.indices.size());
        return check_args(instr, 0);
      case Prim::kRandomBits:
        return check_random(instr);
      case Prim::kConvert:
        return check_args(instr, 1);
      case Prim::kSelect:
        return check_select(instr);
      default:
        return check_compute(instr);
    }
  }

  void check_access(const Instr& instr) const {
    check_index(instr, spec_.buffers.size());
    check(spec_.buffers[instr.index].dtype == instr.dtype, "a buffer of another type");
  }

  void check_random(const Instr& instr) const {
    check_args(instr, 2);
    check_index(instr, spec_.indices.size());
    check(arg(instr, 0) == DType::I64 && arg(instr, 1) == DType::I64, "a seed or offset that is not i64");
    check(instr.dtype == DType::I32 && instr.lane >= 0 && instr.lane < 4, "a random word of another kind than four times i32");
  }

  void check_select(const Instr& instr) const {
    check_args(instr, 3);
    check(arg(instr, 0) == DType::Bool, "a predicate that is not pred");
    check(arg(instr, 1) == instr.dtype && arg(instr, 2) == instr.dtype, "a select of other types than its result's");
  }

  void check_compute(const Instr& instr) const {
    Prim p = instr.prim;
    check(is_unary(p) || is_binary(p) || is_reduce(p), "a primitive that no kernel has");
    check_args(instr, is_binary(p) ? 2 : 1);
    DType t = arg(instr, 0);
    check(!is_binary(p) || arg(instr, 1) == t, "operands of different types");
    check(takes(p, t), "a type that the primitive does not take");
    check(instr.dtype == (gives_bool(p) ? DType::Bool : t), "a result of another type than the operands'");
  }

  const KernelSpec& spec_;
  size_t at_ = 0; // instruction under test
};

} // namespace

void verify_kernel(const KernelSpec& spec) {
  Verifier(spec).run();
}

} // namespace torch_xla::cpu
