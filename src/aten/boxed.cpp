// The boxed kernel of all rows without an unboxed one: takes a call apart by its schema into operands and attributes.
#include <ATen/MemoryOverlap.h>
#include <c10/core/DefaultDtype.h>
#include <torch/library.h>

#include "aten/boxed_call.h"
#include "aten/call_row.h"
#include "aten/fallback.h"
#include "aten/native_call.h"
#include "aten/other_form.h"
#include "aten/result_strides.h"
#include "aten/rows.h"
#include "core/errors.h"
#include "ir/builder.h"
#include "ops/registry.h"
#include "recording/generator.h"
#include "recording/recording.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

constexpr int64_t kMaxRank = 64; // TensorIterator's

class BoxedRow final : public RowKernel {
 public:
  explicit BoxedRow(const RowOverload& row) : row_(row) {
    const std::vector<c10::Argument>& arguments = row.handle->schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      roles_.push_back(role_of(arguments[i], *row.op));
      if (arguments[i].type()->kind() == c10::TypeKind::TensorType) {
        required_.push_back(i);
      }
    }
    if_none_ = row.op->if_none ? &get_op(row.op->if_none) : nullptr;
    if (row.op->traits & kComplex) {
      RowOverload form = row;
      form.op = &library_form(*row.op);
      complex_ = std::make_unique<CallRow>(form);
    }
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    if (complex_ && has_complex(torch::jit::last(*stack, roles_.size()))) {
      BoxedCall call = take_apart(torch::jit::last(*stack, roles_.size()), roles_, *row_.op);
      if (refuses_complex(*row_.op, call)) {
        run_fallback(op, stack, "ATen refuses these complex operands");
      } else {
        check_written(call);
        (*complex_)(op, keys, stack);
      }
      return;
    }
    if (lacks_tensor(torch::jit::last(*stack, roles_.size()))) {
      run_fallback(op, stack, "an undefined tensor");
      return;
    }
    try {
      BoxedCall call = take_apart(torch::jit::last(*stack, roles_.size()), roles_, *row_.op);
      std::optional<OtherForm> other = find_other_form(*row_.op, row_.convention, call);
      if (std::optional<std::string> obstacle = other ? std::nullopt : find_obstacle(call)) {
        if (row_.op->kind == OpKind::kPointwise && row_.convention == Convention::kInplace) {
          check_apart(call.tensors[0], pointwise_args(call)); // the CPU would see separate copies
        }
        run_fallback(op, stack, *obstacle);
        return;
      }
      std::vector<at::Tensor> results;
      if (other) {
        results = record_pointwise(other->row, call, other->args(), {});
      } else {
        results = record(call);
      }
      if (row_.convention == Convention::kInplace) {
        results = {call.tensors[0]};
      }
      finish(stack, std::move(results));
      row_.counter->add();
    } catch (const UserError& error) {
      // Of several errors the CPU raises eager's: an out tensor's may come before the row's.
      if (error.kind() != ErrorKind::NotImplemented && row_.convention != Convention::kOut) {
        throw_as_torch_error(error);
      }
      run_fallback(op, stack, error.what());
    }
  }

  std::optional<std::vector<at::Tensor>> try_record(BoxedCall& call) override {
    const bool has_none = std::any_of(call.tensors.begin(), call.tensors.end(), [](const at::Tensor& t) { return !t.defined(); });
    if (has_none || has_complex(call) || find_other_form(*row_.op, row_.convention, call) || find_obstacle(call)) {
      return std::nullopt;
    }
    std::optional<std::vector<at::Tensor>> results = try_call([&] { return record(call); });
    row_.counter->add(results ? 1 : 0);
    return results;
  }

 private:
  bool lacks_tensor(c10::ArrayRef<c10::IValue> arguments) const {
    return std::any_of(
        required_.begin(), required_.end(), [&](size_t i) { return !arguments[i].isTensor() || !arguments[i].toTensor().defined(); });
  }

  // Throws if the written memory overlaps an operand, as far as ATen's kernel checks.
  void check_written(const BoxedCall& call) const {
    bool inplace = row_.convention == Convention::kInplace;
    std::span<const at::Tensor> written = inplace ? std::span(call.tensors).first(1) : std::span<const at::Tensor>(call.outs);
    for (const at::Tensor& t : written) {
      if (row_.op->kind == OpKind::kPointwise) {
        check_apart(t, pointwise_args(call));
      } else if (row_.op->traits & kReadsWhileWriting) {
        check_separate(t, std::span(call.tensors).subspan(inplace ? 1 : 0));
      }
    }
  }

  // The reason that the call cannot be recorded; nothing if it can.
  std::optional<std::string> find_obstacle(const BoxedCall& call) const {
    for (const at::Tensor& t : call.tensors) {
      if (t.defined() && !(is_xla_tensor(t) ? is_native_tensor(t) : is_native(to_dtype(t.scalar_type())))) {
        return str("no rows for dtype ", c10::toString(t.scalar_type()));
      }
      if (t.defined() && t.dim() > kMaxRank) {
        return "too many dims";
      }
    }
    if (reads_by_mask(*row_.op, call)) {
      return "indexing by a mask gives a shape that depends on data";
    }
    if (is_call(*row_.op) && !engine().runs_library_calls()) {
      return "it has no form for plugins";
    }
    for (const c10::Scalar& s : call.numbers) {
      if (!is_native(to_dtype(s.type()))) {
        return "no rows for complex numbers, nor for integers beyond int64";
      }
    }
    for (const at::Tensor& t : call.outs) {
      if (!is_writable_out(t)) {
        return "the out tensor cannot be written natively";
      }
    }
    if (row_.convention == Convention::kInplace && overlaps_itself(call.tensors[0])) {
      return "a tensor whose elements share memory cannot be written natively";
    }
    if (row_.op->kind == OpKind::kPointwise && !is_native_call(row_of(call), pointwise_args(call))) {
      return "an argument of a type or on a device that the row does not compute on";
    }
    if (row_.op->kind == OpKind::kPointwise && !call.outs.empty() && !is_native_out(row_of(call), pointwise_args(call), call.outs[0])) {
      return "an out tensor of another dtype than the result";
    }
    if (!takes_dtype(*row_.op, call) || !has_valid_parameters(*row_.op, call)) {
      return "ATen refuses these parameters";
    }
    return call.device ? std::nullopt : std::make_optional<std::string>("no tensor of the device");
  }

  const Op& row_of(const BoxedCall& call) const {
    return if_none_ && std::holds_alternative<std::monostate>(call.attrs[0]) ? *if_none_ : *row_.op;
  }

  // The results; none in place.
  std::vector<at::Tensor> record(BoxedCall& call) {
    if (row_.op->kind == OpKind::kPointwise) {
      const Op& row = row_of(call); // by the attributes
      return record_pointwise(row, call, pointwise_args(call), std::move(call.attrs));
    }
    return record_node(call);
  }

  std::vector<at::Tensor> record_pointwise(const Op& op, const BoxedCall& call, std::span<const PointwiseArg> args, Attrs attrs) const {
    switch (row_.convention) {
      case Convention::kFunctional:
        return {record_functional(op, args, std::move(attrs))};
      case Convention::kInplace:
        record_inplace(op, call.tensors[0], args, std::move(attrs));
        return {};
      case Convention::kOut:
        record_out(op, call.outs[0], args, std::move(attrs));
        return {call.outs[0]};
    }
    return {};
  }

  std::vector<at::Tensor> record_node(BoxedCall& call) {
    auto read = [&](Recording& recording) {
      InlineVec<ValueId, 4> operands = read_operands(recording, call);
      if (is_lifted(call)) {
        operands[0] = recording.convert(operands[0], to_dtype(c10::get_default_dtype_as_scalartype()));
      }
      return operands;
    };
    std::optional<Recording> recording(std::in_place, *call.device);
    InlineVec<ValueId, 4> operands = read(*recording);
    std::vector<Type> types = infer(recording->graph(), operands, call.attrs);
    if (row_.convention == Convention::kOut) {
      recording.reset();
      check_outs(call, types);
      resize_outs(call, types);
      recording.emplace(*call.device);
      // Resizing may have cut the trace, so the operands are read again.
      operands = read(*recording);
    } else if (row_.convention == Convention::kInplace) {
      check_inplace(call, types[0]);
    }
    if (row_.op->traits & kRandom) {
      append_draw(*recording, *call.device, call.generator, operands);
    }
    ValueId first = recording->node(*row_.op, std::move(operands), std::move(call.attrs), types);
    return deliver(*recording, call, first, types);
  }

  // The trace does not know the program's default dtype.
  bool is_lifted(const BoxedCall& call) const {
    return promotes(row_.op->rule) && c10::isIntegralType(call.tensors[0].scalar_type(), true) &&
        std::holds_alternative<double>(call.attrs[0]);
  }

  static InlineVec<ValueId, 4> read_operands(Recording& recording, const BoxedCall& call) {
    InlineVec<ValueId, 4> operands;
    for (int operand : call.order) {
      if (operand < 0) {
        operands.push_back(recording.scalar(call.numbers[static_cast<size_t>(-1 - operand)]));
      } else {
        const at::Tensor& t = call.tensors[static_cast<size_t>(operand)];
        operands.push_back(t.defined() ? recording.read_operand(t) : kNoValue);
      }
    }
    return operands;
  }

  std::vector<Type> infer(const Graph& trace, const InlineVec<ValueId, 4>& operands, const Attrs& attrs) const {
    InferContext context(trace, std::span(operands.begin(), operands.size()), attrs);
    row_.op->infer(context);
    return std::move(context.results());
  }

  // ATen's operations differ in the allowed conversions of results and operands as out: the CPU decides.
  void check_outs(const BoxedCall& call, const std::vector<Type>& types) const {
    for (size_t i = 0; i < call.outs.size(); ++i) {
      const at::Tensor& out = call.outs[i];
      if (to_dtype(out.scalar_type()) != types[i].dtype) {
        throw UserError(ErrorKind::NotImplemented, "an out tensor of another dtype than the result");
      }
      auto is_out = [&](const at::Tensor& t) { return t.is_same(out); };
      if ((row_.op->traits & kReadsWhileWriting) && std::any_of(call.tensors.begin(), call.tensors.end(), is_out)) {
        throw UserError(ErrorKind::NotImplemented, "an out tensor that is an operand");
      }
    }
  }

  void resize_outs(BoxedCall& call, const std::vector<Type>& types) const {
    for (size_t i = 0; i < call.outs.size(); ++i) {
      keep_operands(call, i, types[i].dims);
      resize_out(call.outs[i], types[i].dims, result_strides(*row_.op, call, call.attrs, types[i], i));
      if (row_.op->traits & kReadsWhileWriting) {
        check_separate(call.outs[i], call.tensors);
      }
    }
  }

  // For ATen one element written by a mask, or to rows by index_fill_, is a number, even as a view; the tensor may be the mask.
  void check_separate(const at::Tensor& written, std::span<const at::Tensor> operands) const {
    auto is_mask = [](const at::Tensor& t) { return t.defined() && t.scalar_type() == c10::ScalarType::Bool; };
    const at::Tensor& last = operands.back();
    bool masked = last.defined() && last.numel() == 1 && std::any_of(operands.begin(), operands.end() - 1, is_mask);
    bool has_number = masked || ((row_.op->traits & kFills) && last.defined() && last.dim() == 0);
    for (const at::Tensor& t : has_number ? operands.first(operands.size() - 1) : operands) {
      bool is_itself = masked && is_mask(t) && is_xla_tensor(t) && at::get_overlap_status(written, t) == at::MemOverlapStatus::Full;
      if (is_xla_tensor(t) && !is_itself) {
        at::assert_no_overlap(written, t);
      }
    }
  }

  void check_inplace(const BoxedCall& call, const Type& type) const {
    const at::Tensor& self = call.tensors[0];
    if (to_ref(type.dims) != self.sizes() || !c10::canCast(to_scalar_type(type.dtype), self.scalar_type())) {
      throw UserError(ErrorKind::NotImplemented, "a result that does not fit the tensor which it is written into");
    }
    check_written(call);
  }

  std::vector<at::Tensor> deliver(Recording& recording, const BoxedCall& call, ValueId first, const std::vector<Type>& types) const {
    std::vector<at::Tensor> results;
    if (row_.convention == Convention::kInplace) {
      recording.write_converted(call.tensors[0], first);
      return results;
    }
    const Attrs& attrs = recording.graph().nodes.back().attrs; // the call's have moved there
    for (size_t i = 0; i < types.size(); ++i) {
      ValueId value = first + static_cast<ValueId>(i);
      if (row_.convention == Convention::kOut) {
        recording.write_converted(call.outs[i], value);
        results.push_back(call.outs[i]);
      } else if (types[i].dtype == DType::Undefined) {
        results.emplace_back();
      } else {
        results.push_back(recording.wrap(value, result_strides(*row_.op, call, attrs, types[i], i)));
      }
    }
    return results;
  }

  void finish(torch::jit::Stack* stack, std::vector<at::Tensor> results) const {
    torch::jit::drop(*stack, roles_.size());
    size_t returns = row_.handle->schema().returns().size();
    for (size_t i = 0; i < returns; ++i) {
      stack->emplace_back(std::move(results[i]));
    }
  }

  RowOverload row_;
  std::vector<size_t> required_; // arguments that must be defined
  const Op* if_none_ = nullptr; // the row of that name
  std::unique_ptr<CallRow> complex_; // for calls with complex numbers; may be null
};

template <class Kernel>
c10::BoxedKernel make_kernel(const RowOverload& row, RowKernel** made) {
  auto kernel = std::make_unique<Kernel>(row);
  *made = kernel.get();
  return c10::BoxedKernel::makeFromFunctor(std::move(kernel));
}

} // namespace

c10::BoxedKernel make_boxed_kernel(const RowOverload& row, RowKernel** made) {
  RowKernel* unused = nullptr;
  made = made ? made : &unused;
  bool by_shape_rule = row.op->kind == OpKind::kLibrary && !row.op->infer; // ATen's: the row has none
  return by_shape_rule ? make_kernel<CallRow>(row, made) : make_kernel<BoxedRow>(row, made);
}

void register_boxed(torch::Library& library, const RowOverload& row) {
  library.impl(c10::toString(row.handle->operator_name()).c_str(), torch::CppFunction::makeFromBoxedKernel(make_boxed_kernel(row)));
}

} // namespace torch_xla
