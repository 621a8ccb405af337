// Calls functions of other libraries by address: generated code sees no symbols of the process, as Python loads libraries privately.
#include "engine/cpu/codegen/external.h"

#include <dlfcn.h>

#include <llvm/IR/Module.h>

#include "core/errors.h"
#include "engine/cpu/codegen/loops.h"
#include "engine/cpu/codegen/math.h"

namespace torch_xla::cpu {

namespace {

struct External {
  Prim prim;
  const char* name; // in libm, for double
  const char* accuracy; // suffix of Sleef's name
};

constexpr External kExternals[] = {
    {Prim::kExp, "exp", "_u10"},
    {Prim::kExpm1, "expm1", "_u10"},
    {Prim::kLog, "log", "_u10"},
    {Prim::kLog1p, "log1p", "_u10"},
    {Prim::kSin, "sin", "_u10"},
    {Prim::kCos, "cos", "_u10"},
    {Prim::kTan, "tan", "_u10"},
    {Prim::kTanh, "tanh", "_u10"},
    {Prim::kAsin, "asin", "_u10"},
    {Prim::kAcos, "acos", "_u10"},
    {Prim::kAtan, "atan", "_u10"},
    {Prim::kSinh, "sinh", "_u10"},
    {Prim::kCosh, "cosh", "_u10"},
    {Prim::kErf, "erf", "_u10"},
    {Prim::kErfc, "erfc", "_u15"},
    {Prim::kPow, "pow", "_u10"},
    {Prim::kAtan2, "atan2", "_u10"},
    {Prim::kRem, "fmod", ""},
};

const External& get_external(Prim prim) {
  for (const External& e : kExternals) {
    if (e.prim == prim) {
      return e;
    }
  }
  throw InternalError(str("code generation: no function for ", prim_name(prim)));
}

std::string libm_name(const External& e, DType t) {
  return t == DType::F32 ? std::string(e.name) + "f" : e.name;
}

std::string sleef_name(const External& e, DType t, int lanes) {
  return str("Sleef_", e.name, t == DType::F32 ? "f" : "d", lanes, e.accuracy);
}

void* open_loaded(const char* library) {
  return dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
}

Value* call(const Vec& v, const std::string& name, llvm::ArrayRef<Value*> args) {
  llvm::Type* type = args[0]->getType();
  llvm::SmallVector<llvm::Type*, 2> types(args.size(), type);
  auto callee = v.ir.GetInsertBlock()->getModule()->getOrInsertFunction(name, llvm::FunctionType::get(type, types, false));
  auto* result = v.ir.CreateCall(callee, args);
  result->setDoesNotAccessMemory();
  result->setDoesNotThrow();
  result->addFnAttr(llvm::Attribute::WillReturn);
  return result;
}

Value* call_by_lanes(const Vec& v, const std::string& name, llvm::ArrayRef<Value*> args) {
  Value* result = llvm::PoisonValue::get(args[0]->getType());
  for (int i = 0; i < v.width; ++i) {
    llvm::SmallVector<Value*, 2> lane;
    for (Value* a : args) {
      lane.push_back(v.ir.CreateExtractElement(a, i));
    }
    result = v.ir.CreateInsertElement(result, call(v, name, lane), i);
  }
  return result;
}

// One call for each register of the vectors.
Value* call_parts(const Vec& v, const External& e, DType t, llvm::ArrayRef<Value*> args) {
  int lanes = t == DType::F32 ? v.isa.lanes() : v.isa.lanes() / 2;
  if (v.width <= lanes) {
    return call(v, sleef_name(e, t, v.width), args);
  }
  return v.by_parts(lanes, args, [&](const Vec& part, llvm::ArrayRef<Value*> x) { return call(part, sleef_name(e, t, lanes), x); });
}

// Sleef's fmod gives NaN where a / b overflows. There whole multiples of b are first subtracted from a.
Value* call_fmod(const Vec& v, const External& e, DType t, Value* a, Value* b) {
  auto& ir = v.ir;
  Value* infinity = v.like(a, __builtin_inf());
  Value* overflows = ir.CreateAnd(ir.CreateFCmpOEQ(v.abs(ir.CreateFDiv(a, b)), infinity), ir.CreateFCmpOLT(v.abs(a), infinity));
  Value* steps = ir.CreateSelect(ir.CreateOrReduce(overflows), ir.getInt64(2), ir.getInt64(0));
  Value* factor = v.like(a, t == DType::F32 ? 0x1p126 : 0x1p1022);
  Value* multiple = ir.CreateFMul(b, factor);
  auto reduce = [&](Value*, llvm::ArrayRef<Value*> c) { return Carried{call_parts(v, e, t, {c[0], c[1]}), multiple}; };
  Carried reduced = emit_loop(ir, ir.getInt64(0), steps, 1, {a, ir.CreateFMul(multiple, factor)}, reduce);
  return call_parts(v, e, t, {reduced[0], b});
}

// Sleef's sinh and cosh overflow with e^|x|, a little before their results do.
Value* call_hyperbolic(const Vec& v, const External& e, DType t, Value* x) {
  auto& ir = v.ir;
  Value* root = emit_math(v, Prim::kExp, t, ir.CreateFMul(v.abs(x), v.like(x, 0.5)));
  Value* half = ir.CreateFMul(root, ir.CreateFMul(root, v.like(x, 0.5)));
  Value* large = ir.CreateFCmpOGT(v.abs(x), v.like(x, t == DType::F32 ? 88 : 709));
  return ir.CreateSelect(large, e.prim == Prim::kSinh ? v.copysign(half, x) : half, call_parts(v, e, t, {x}));
}

Value* call_sleef(const Vec& v, const External& e, DType t, llvm::ArrayRef<Value*> args) {
  switch (e.prim) {
    case Prim::kRem:
      return call_fmod(v, e, t, args[0], args[1]);
    case Prim::kSinh:
    case Prim::kCosh:
      return call_hyperbolic(v, e, t, args[0]);
    default:
      return call_parts(v, e, t, args);
  }
}

} // namespace

std::vector<std::pair<std::string, void*>> external_symbols() {
  std::vector<std::pair<std::string, void*>> symbols;
  void* libm = dlopen("libm.so.6", RTLD_LAZY);
  void* torch = open_loaded("libtorch_cpu.so");
  auto add = [&](void* library, const std::string& name) {
    void* address = library ? dlsym(library, name.c_str()) : nullptr;
    if (address) {
      symbols.emplace_back(name, address);
    }
  };
  for (const External& e : kExternals) {
    for (DType t : {DType::F32, DType::F64}) {
      add(libm, libm_name(e, t));
      add(torch, sleef_name(e, t, t == DType::F32 ? 16 : 8));
      add(torch, sleef_name(e, t, t == DType::F32 ? 8 : 4));
    }
  }
  return symbols;
}

Value* call_external(const Vec& v, Prim prim, DType dtype, llvm::ArrayRef<Value*> args) {
  const External& e = get_external(prim);
  if (v.width == 1) {
    return call(v, libm_name(e, dtype), args);
  }
  return v.isa.sleef ? call_sleef(v, e, dtype, args) : call_by_lanes(v, libm_name(e, dtype), args);
}

} // namespace torch_xla::cpu
