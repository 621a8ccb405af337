// Calls that become one library call with types by ATen's shape rule.
#include "aten/call_row.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>

#include "aten/fallback.h"
#include "aten/missing_operators.h"
#include "aten/native_call.h"
#include "aten/result_strides.h"
#include "core/errors.h"
#include "engine/engine.h"
#include "ir/builder.h"
#include "ops/registry.h"
#include "recording/copy.h"
#include "recording/generator.h"
#include "recording/recording.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

bool is_complex_value(const c10::IValue& value) {
  if (value.isTensor()) {
    return value.toTensor().defined() && value.toTensor().is_complex();
  }
  return value.isComplexDouble();
}

// The type of a number beside complex or other tensors, to promote them as in eager.
c10::ScalarType number_type(const at::Tensor& number, const at::Tensor& beside) {
  if (!number.unsafeGetTensorImpl()->is_wrapped_number()) {
    return number.scalar_type();
  }
  c10::ScalarType floating =
      c10::isIntegralType(beside.scalar_type(), true) ? c10::get_default_dtype_as_scalartype() : c10::toRealValueType(beside.scalar_type());
  return number.is_complex() ? c10::toComplexType(floating) : number.is_floating_point() ? floating : number.scalar_type();
}

// Numbers (0-d CPU tensors) become device tensors: values of the call, outside the program's key.
void upload_numbers(BoxedCall& call) {
  auto ours = [](const at::Tensor& t) { return t.defined() && is_xla_tensor(t); };
  auto first = std::find_if(call.tensors.begin(), call.tensors.end(), ours);
  for (at::Tensor& t : call.tensors) {
    if (first != call.tensors.end() && t.defined() && t.device().is_cpu() && t.dim() == 0) {
      t = t.to(first->device(), number_type(t, *first));
    }
  }
}

// For an operation whose attributes are numbers.
bool has_bool(const BoxedCall& call) {
  auto is_bool = [](const at::Tensor& t) { return t.defined() && t.scalar_type() == c10::ScalarType::Bool; };
  return std::any_of(call.tensors.begin(), call.tensors.end(), is_bool) ||
      std::any_of(call.attrs.begin(), call.attrs.end(), [](const Attr& attr) { return std::holds_alternative<bool>(attr); });
}

// Whether a complex number meets real tensors and a real result: ATen's kernel refuses to convert it.
bool has_number_of_no_use(const BoxedCall& call, const std::vector<ResultShape>& results) {
  auto is_number = [](const Attr& attr) { return std::holds_alternative<std::complex<double>>(attr); };
  auto is_complex_tensor = [](const at::Tensor& t) { return t.defined() && t.is_complex(); };
  auto is_real = [](const ResultShape& shape) { return is_float(shape.type.dtype) || is_integral(shape.type.dtype, false); };
  return std::any_of(call.attrs.begin(), call.attrs.end(), is_number) &&
      std::none_of(call.tensors.begin(), call.tensors.end(), is_complex_tensor) && std::any_of(results.begin(), results.end(), is_real);
}

// For a row that promotes its operands. Null if the call is not complex, or has one operand: its result may be real (abs).
ResultShapes infer_promoted(const Op& op, const BoxedCall& call) {
  if (call.tensors.size() + call.attrs.size() < 2) {
    return nullptr;
  }
  at::native::ResultTypeState types{};
  ResultShape shape;
  for (const at::Tensor& t : call.tensors) {
    if (!t.defined()) {
      return nullptr;
    }
    types = at::native::update_result_type_state(t, types);
    shape.type.dims = broadcast_dims(shape.type.dims, to_dims(t.sizes()));
  }
  const DType common = to_dtype(at::native::result_type(types));
  if (!is_complex(common)) {
    return nullptr;
  }
  shape.type.dtype = gives_bool(op.rule) ? DType::Bool : common;
  shape.strides =
      iterator_strides(shape.type.dims, std::vector<PointwiseArg>(call.tensors.begin(), call.tensors.end()), {.common = common});
  return std::make_shared<const std::vector<ResultShape>>(1, std::move(shape));
}

// Waits for a written result of the call; results without elements need not be written.
void wait_for_one(const std::vector<at::Tensor>& results) {
  auto written = std::find_if(results.begin(), results.end(), [](const at::Tensor& t) { return t.defined() && t.numel() > 0; });
  if (written != results.end()) {
    wait_for_value(*written);
  }
}

} // namespace

bool has_complex(c10::ArrayRef<c10::IValue> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& argument) {
    c10::ArrayRef<c10::IValue> items = argument.isTensorList() ? argument.toListRef() : c10::ArrayRef<c10::IValue>(argument);
    return std::any_of(items.begin(), items.end(), is_complex_value);
  });
}

bool has_complex(const BoxedCall& call) {
  auto is_complex_number = [](const Attr& attr) { return std::holds_alternative<std::complex<double>>(attr); };
  return std::any_of(call.attrs.begin(), call.attrs.end(), is_complex_number) ||
      std::any_of(call.tensors.begin(), call.tensors.end(), [](const at::Tensor& t) { return t.defined() && t.is_complex(); });
}

bool refuses_complex(const Op& op, const BoxedCall& call) {
  auto is_complex_number = [](const Attr& attr) { return std::holds_alternative<std::complex<double>>(attr); };
  if (op.kind != OpKind::kLibrary || !op.infer || std::any_of(call.attrs.begin(), call.attrs.end(), is_complex_number)) {
    return false;
  }
  Graph graph;
  InlineVec<ValueId, 4> operands;
  for (int operand : call.order) {
    if (operand < 0) {
      operands.push_back(graph.add_scalar(DType::F64));
      continue;
    }
    const at::Tensor& t = call.tensors[static_cast<size_t>(operand)];
    DType dtype = t.defined() ? to_dtype(t.scalar_type()) : DType::Undefined;
    DType standing_in = dtype == DType::C128 ? DType::BF16 : is_complex(dtype) ? DType::F16 : dtype;
    operands.push_back(t.defined() ? graph.add_parameter(Type{standing_in, to_dims(t.sizes())}) : kNoValue);
  }
  try {
    InferContext context(graph, std::span(operands.begin(), operands.size()), call.attrs);
    op.infer(context);
    return false;
  } catch (const UserError&) {
    return true;
  }
}

CallRow::CallRow(const RowOverload& row) : row_(row), functional_(get_operator(row.op->name)) {
  const Op& own = get_op(row.op->name);
  promotes_ = promotes(own.rule) ? &own : nullptr;
  for (const c10::Argument& argument : row.handle->schema().arguments()) {
    roles_.push_back(role_of(argument, *row.op));
  }
  if (std::optional<int> index = row.handle->schema().argumentIndexWithName("check_errors")) {
    check_errors_ = static_cast<size_t>(*index);
  }
}

void CallRow::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  c10::ArrayRef<c10::IValue> arguments = torch::jit::last(*stack, roles_.size());
  try {
    BoxedCall call = take_apart(arguments, roles_, *row_.op);
    std::string obstacle = find_obstacle_of_types(call);
    ResultShapes shapes;
    if (obstacle.empty()) {
      upload_numbers(call);
      // ATen's products read conjugated and negated operands as stored; a library call does not know these bits.
      call.tensors = without_bits(std::move(call.tensors));
      shapes = promotes_ ? infer_promoted(*promotes_, call) : nullptr; // ATen's rule is Python code: its first call takes a second
      shapes = shapes ? shapes : infer_by_aten(functional_, arguments, call);
      obstacle = find_obstacle_of_result(call, shapes);
    }
    if (!obstacle.empty()) {
      run_fallback(op, stack, obstacle);
      return;
    }
    std::vector<at::Tensor> results = record(call, *shapes);
    if (row_.convention == Convention::kInplace) {
      results = {call.tensors[0]};
    }
    if (is_told_at_call(arguments)) {
      with_torch_errors([&results] { wait_for_one(results); });
    }
    torch::jit::drop(*stack, roles_.size());
    for (size_t i = 0; i < row_.handle->schema().returns().size(); ++i) {
      stack->emplace_back(std::move(results[i]));
    }
    row_.counter->add();
  } catch (const UserError& error) {
    if (error.kind() != ErrorKind::NotImplemented) {
      throw_as_torch_error(error);
    }
    run_fallback(op, stack, error.what());
  }
}

std::optional<std::vector<at::Tensor>> CallRow::try_record(BoxedCall& call) {
  const bool is_plain = std::all_of(
      call.tensors.begin(), call.tensors.end(), [](const at::Tensor& t) { return !t.defined() || (is_xla_tensor(t) && !has_bits(t)); });
  if (!is_plain || (row_.op->traits & kToldAtCall) || !find_obstacle_of_types(call).empty()) {
    return std::nullopt;
  }
  const ResultShapes shapes = find_known_shapes(functional_, call);
  if (!find_obstacle_of_result(call, shapes).empty()) {
    return std::nullopt;
  }
  std::optional<std::vector<at::Tensor>> results = try_call([&] { return record(call, *shapes); });
  row_.counter->add(results ? 1 : 0);
  return results;
}

bool CallRow::is_told_at_call(c10::ArrayRef<c10::IValue> arguments) const {
  return (row_.op->traits & kToldAtCall) && (!check_errors_ || arguments[*check_errors_].toBool());
}

std::string CallRow::find_obstacle_of_types(const BoxedCall& call) const {
  if (!call.device) {
    return "no tensor of the device";
  }
  if (!engine().runs_library_calls()) {
    return "it has no form for plugins";
  }
  for (const at::Tensor& t : call.tensors) {
    bool ours = t.defined() && is_xla_tensor(t);
    if (t.defined() && !ours && !(t.device().is_cpu() && t.dim() == 0)) {
      return "a tensor on another device";
    }
    if (t.defined() && !is_recordable(to_dtype(t.scalar_type()))) {
      return str("no rows for dtype ", c10::toString(t.scalar_type()));
    }
  }
  bool collective = row_.op->traits & kCollective;
  if (!collective && !call.tensors.empty() && call.tensors[0].defined() && call.tensors[0].numel() == 0) {
    return "a tensor without elements, which ATen may refuse";
  }
  if (!takes_dtype(*row_.op, call)) {
    return str("ATen refuses ", c10::toString(call.tensors[0].scalar_type()));
  }
  if ((row_.op->traits & kNoBoolOperand) && has_bool(call)) {
    return "ATen refuses operands of type Bool";
  }
  bool differ = (row_.op->traits & kSameDtype) && call.tensors.front().scalar_type() != call.tensors.back().scalar_type();
  return !differ && has_valid_parameters(*row_.op, call) ? "" : "ATen refuses these parameters";
}

std::string CallRow::find_obstacle_of_result(const BoxedCall& call, const ResultShapes& shapes) const {
  if (!shapes) {
    return "ATen has no shape rule for this call, or refuses it";
  }
  if (has_number_of_no_use(call, *shapes)) {
    return "ATen refuses a complex number beside these tensors";
  }
  for (const ResultShape& shape : *shapes) {
    if (shape.type.dtype != DType::Undefined && !is_recordable(shape.type.dtype)) {
      return str("no rows for dtype ", dtype_name(shape.type.dtype));
    }
  }
  for (size_t i = 0; i < call.outs.size(); ++i) {
    const at::Tensor& out = call.outs[i];
    bool reads = (row_.op->traits & kReadsWhileWriting) &&
        std::any_of(call.tensors.begin(), call.tensors.end(), [&](const at::Tensor& t) { return t.is_same(out); });
    if (!is_xla_tensor(out) || overlaps_itself(out) || to_dtype(out.scalar_type()) != (*shapes)[i].type.dtype || reads) {
      return "the out tensor cannot be written natively";
    }
  }
  if (row_.convention != Convention::kInplace) {
    return "";
  }
  const at::Tensor& self = call.tensors[0];
  const Type& type = (*shapes)[0].type;
  bool magnitude = self.is_complex() && is_float(type.dtype); // ATen refuses abs_ of complex numbers
  bool fits = to_ref(type.dims) == self.sizes() && c10::canCast(to_scalar_type(type.dtype), self.scalar_type()) && !magnitude;
  return fits && !overlaps_itself(self) ? "" : "a result that does not fit the tensor which it is written into";
}

// ATen's shape rule treats Meta tensors as a GPU's; those kernels may return another order than the CPU's. The row's layout decides.
Dims CallRow::strides_of(const BoxedCall& call, const ResultShape& shape, size_t i) const {
  bool known = row_.op->layout != ResultLayout::kRowMajor;
  return known ? result_strides(*row_.op, call, call.attrs, shape.type, i) : shape.strides;
}

std::vector<at::Tensor> CallRow::record(BoxedCall& call, const std::vector<ResultShape>& shapes) const {
  for (size_t i = 0; i < call.outs.size(); ++i) {
    keep_operands(call, i, shapes[i].type.dims);
    resize_out(call.outs[i], shapes[i].type.dims, strides_of(call, shapes[i], i));
  }
  Recording recording(*call.device);
  InlineVec<ValueId, 4> operands;
  for (const at::Tensor& t : call.tensors) {
    operands.push_back(t.defined() ? recording.read_operand(t) : kNoValue);
  }
  if (row_.op->traits & kRandom) {
    append_draw(recording, *call.device, call.generator, operands);
  }
  std::vector<Type> types;
  std::vector<Dims> strides;
  for (size_t i = 0; i < shapes.size(); ++i) {
    types.push_back(shapes[i].type);
    if (row_.convention == Convention::kFunctional) {
      strides.push_back(strides_of(call, shapes[i], i));
    }
  }
  ValueId first = recording.node(*row_.op, std::move(operands), std::move(call.attrs), types);
  std::vector<at::Tensor> results;
  if (row_.convention == Convention::kInplace) {
    recording.write_converted(call.tensors[0], first);
    return results;
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    ValueId value = first + static_cast<ValueId>(i);
    if (row_.convention == Convention::kOut) {
      recording.write_converted(call.outs[i], value);
      results.push_back(call.outs[i]);
    } else {
      results.push_back(types[i].dtype == DType::Undefined ? at::Tensor() : recording.wrap(value, strides[i]));
    }
  }
  return results;
}

} // namespace torch_xla
