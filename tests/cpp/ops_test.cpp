// The op tables: every row is complete, shape rules give ATen's results and errors, expansions are well-formed graphs.
#include <gtest/gtest.h>

#include <set>

#include "core/errors.h"
#include "ir/graph.h"
#include "ops/registry.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

const Type kMatrix{DType::F32, {4, 6}};
const Type kHalfMatrix{DType::BF16, {4, 6}};
const Type kNoOperand{DType::Undefined, {}};

// One call of a row: operands are parameters, but those of 0-d F64 or I64 are numbers of the program.
class Call {
 public:
  Call(const char* name, std::vector<Type> operands, Attrs attrs) : op_(*find_op(name)), attrs_(std::move(attrs)) {
    for (const Type& type : operands) {
      operands_.push_back(type.dtype == DType::Undefined ? kNoValue : graph_.add_parameter(type));
    }
  }
  void add_number(DType dtype) {
    operands_.push_back(graph_.add_scalar(dtype));
  }
  std::vector<Type> infer() {
    InferContext context(graph_, span(), attrs_);
    op_.infer(context);
    return context.results();
  }
  // The expansion's results; the graph is verified.
  std::vector<Type> expand() {
    std::vector<Type> types = infer();
    Builder builder(graph_);
    ExpandContext context(builder, span(), attrs_, types);
    op_.expand(context);
    std::vector<Type> got;
    for (ValueId v : context.out()) {
      got.push_back(v == kNoValue ? Type{DType::Undefined, {}} : graph_.type(v));
    }
    verify_graph(graph_);
    EXPECT_EQ(got, types) << op_.name;
    return got;
  }
  Type body(DType compute, const Type& result) {
    Builder builder(graph_);
    Node node;
    node.op = &op_;
    node.attrs = attrs_;
    Ex value = op_.body(BodyArgs(builder, node, span(), compute, result));
    verify_graph(graph_);
    return value.type();
  }
  const Node& first_node() const { // of an expansion or a body
    return graph_.nodes.at(0);
  }

 private:
  std::span<const ValueId> span() const {
    return {operands_.data(), operands_.size()};
  }
  const Op& op_;
  Graph graph_;
  InlineVec<ValueId, 4> operands_;
  Attrs attrs_;
};

std::vector<int64_t> list(std::initializer_list<int64_t> v) {
  return v;
}

std::string error_of(Call call) {
  try {
    call.infer();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(OpTables, RowsAreComplete) {
  std::set<std::string> names;
  for (std::span<const Op> table : op_tables()) {
    EXPECT_FALSE(table.empty());
    for (const Op& op : table) {
      ASSERT_TRUE(op.name);
      EXPECT_TRUE(names.insert(op.name).second) << op.name;
      bool pointwise = op.body && !op.infer && !op.expand;
      bool composite = !op.body && op.infer && op.expand;
      bool library = !op.body && (op.infer || op.dtypes || (op.traits & kOwnKernel));
      EXPECT_TRUE(op.kind == OpKind::kPointwise ? pointwise : op.kind == OpKind::kComposite ? composite : library) << op.name;
      EXPECT_EQ(find_op(op.name), &op);
      EXPECT_TRUE(!op.if_none || get_op(op.if_none).kind == op.kind) << op.name;
      bool of_calls = op.out_form || op.kernel_layout || op.reads != kByStrides || op.written != Written::kAll;
      EXPECT_TRUE(op.kind == OpKind::kLibrary || !of_calls) << op.name;
    }
  }
  EXPECT_GT(names.size(), 300u);
}

// What one operation alone needs is a field of its row.
TEST(OpTables, NoTraitIsTheNameOfARow) {
  for (uint32_t trait = 1; trait != 0; trait <<= 1) {
    std::vector<const char*> names;
    for (std::span<const Op> table : op_tables()) {
      for (const Op& op : table) {
        if (op.traits & trait) {
          names.push_back(op.name);
        }
      }
    }
    EXPECT_NE(names.size(), 1u) << names.front() << " has a trait of its own";
  }
}

TEST(OpTables, RowsOfAPrimitiveAreThatPrimitive) {
  for (std::span<const Op> table : op_tables()) {
    for (const Op& op : table) {
      if (op.prim == Prim::kNone) {
        continue;
      }
      Call call(
          op.name, op.body ? std::vector<Type>{kMatrix, kMatrix} : std::vector<Type>{}, {static_cast<int64_t>(DType::F32), list({4, 6})});
      op.body ? (void)call.body(DType::F32, kMatrix) : (void)call.expand();
      EXPECT_EQ(call.first_node().op->prim, op.prim) << op.name;
      EXPECT_TRUE(op.prim != Prim::kConstant || std::get<double>(call.first_node().attrs[0]) == 0) << op.name;
    }
  }
}

// Each body of a floating point row of plain tensors builds a graph of the broadcast extents.
TEST(OpTables, BodiesBuildWellFormedGraphs) {
  for (std::span<const Op> table : {unary_ops(), binary_ops(), activation_ops()}) {
    for (const Op& op : table) {
      if (!op.body || std::string_view(op.name).find("bitwise") != std::string_view::npos) {
        continue;
      }
      for (DType dtype : {DType::F32, DType::BF16, DType::F64}) {
        Type type{dtype, {4, 6}};
        Call call(op.name, {type, type, type}, {Attr(), Attr(), Attr()});
        call.add_number(DType::F64);
        call.add_number(DType::I64);
        EXPECT_EQ(call.body(compute_type(dtype), type).dims, type.dims) << op.name;
      }
    }
  }
}

TEST(OpTables, Reductions) {
  EXPECT_EQ(Call("aten::sum.dim_IntList", {kHalfMatrix}, {list({-1}), true, Attr()}).expand(), (std::vector<Type>{{DType::BF16, {4, 1}}}));
  EXPECT_EQ(Call("aten::sum", {{DType::I32, {4, 6}}}, {Attr()}).expand(), (std::vector<Type>{{DType::I64, {}}}));
  EXPECT_EQ(Call("aten::var_mean.correction", {kMatrix}, {list({0}), int64_t{1}, false}).expand().size(), 2u);
  EXPECT_EQ(Call("aten::any.dim", {{DType::U8, {4, 6}}}, {int64_t{0}, false}).expand(), (std::vector<Type>{{DType::U8, {6}}}));
  EXPECT_EQ(Call("aten::linalg_vector_norm", {kMatrix}, {2.0, Attr(), false, Attr()}).expand(), (std::vector<Type>{{DType::F32, {}}}));
  EXPECT_EQ(Call("aten::topk", {kMatrix}, {int64_t{2}, int64_t{-1}, true, true}).infer()[1], (Type{DType::I64, {4, 2}}));
}

TEST(OpTables, Norms) {
  Type weight{DType::F32, {6}};
  EXPECT_EQ(Call("aten::_softmax", {kHalfMatrix}, {int64_t{-1}, false}).expand(), (std::vector<Type>{kHalfMatrix}));
  // bf16 input with f32 parameters: f32 statistics.
  auto layer = Call("aten::native_layer_norm", {kHalfMatrix, weight, kNoOperand}, {list({6}), 1e-5}).expand();
  EXPECT_EQ(layer[1], (Type{DType::F32, {4, 1}}));
  Type image{DType::F32, {2, 6, 3, 3}};
  auto trained = Call("aten::native_batch_norm", {image, weight, weight, weight, weight}, {true, 0.1, 1e-5}).expand();
  EXPECT_EQ(trained[4], weight);
  auto evaluated = Call("aten::native_batch_norm", {image, weight, weight, weight, weight}, {false, 0.1, 1e-5}).expand();
  EXPECT_EQ(evaluated[1], (Type{DType::F32, {0}}));
  EXPECT_EQ(evaluated[3].dtype, DType::Undefined);
  std::vector<bool> mask{true, false, true};
  auto gradients =
      Call("aten::native_batch_norm_backward", {image, image, weight, weight, weight, weight, weight}, {true, 1e-5, mask}).expand();
  EXPECT_EQ(gradients[1].dtype, DType::Undefined);
  EXPECT_EQ(gradients[2], weight);
}

TEST(OpTables, LibraryShapes) {
  Type image{DType::F32, {2, 4, 9, 9}};
  Attrs conv{list({2, 1}), list({1}), list({1, 1}), false, list({0, 0}), int64_t{1}};
  EXPECT_EQ(Call("aten::convolution", {image, {DType::F32, {6, 4, 3, 3}}, kNoOperand}, conv).infer()[0], (Type{DType::F32, {2, 6, 5, 9}}));
  Attrs pool{list({3}), list({2}), list({1}), list({1}), true};
  EXPECT_EQ(Call("aten::max_pool2d_with_indices", {image}, pool).infer()[1], (Type{DType::I64, {2, 4, 5, 5}}));
  Type index{DType::I64, {7, 1}};
  // Indices that are not adjacent come first.
  EXPECT_EQ(
      Call("aten::index.Tensor", {image, kNoOperand, index, kNoOperand, index}, {int64_t{4}}).infer()[0], (Type{DType::F32, {7, 1, 2, 9}}));
  EXPECT_EQ(Call("aten::cat", {kMatrix, kMatrix}, {int64_t{2}, int64_t{-1}}).infer()[0], (Type{DType::F32, {4, 12}}));
  EXPECT_EQ(Call("aten::constant_pad_nd", {kMatrix}, {list({1, -2}), 0.0}).expand()[0], (Type{DType::F32, {4, 5}}));
}

TEST(OpTables, RandomRows) {
  Call uniform("aten::uniform_", {kHalfMatrix}, {});
  Call dropout("aten::native_dropout", {kMatrix}, {true});
  uniform.add_number(DType::F64);
  for (Call* call : {&uniform, &dropout}) {
    call->add_number(DType::F64);
    call->add_number(DType::I64);
    call->add_number(DType::I64);
  }
  EXPECT_EQ(uniform.expand(), (std::vector<Type>{kHalfMatrix}));
  EXPECT_EQ(dropout.expand()[1], (Type{DType::Bool, {4, 6}}));
}

TEST(OpTables, ErrorsAreAtens) {
  EXPECT_EQ(
      error_of(Call("aten::sum.dim_IntList", {kMatrix}, {list({5}), false, Attr()})),
      "Dimension out of range (expected to be in range of [-2, 1], but got 5)");
  EXPECT_EQ(
      error_of(Call("aten::sum.dim_IntList", {kMatrix}, {list({0, -2}), false, Attr()})),
      "dim 0 appears multiple times in the list of dims");
  EXPECT_EQ(error_of(Call("aten::mm", {kMatrix, kMatrix}, {})), "mat1 and mat2 shapes cannot be multiplied (4x6 and 4x6)");
  EXPECT_EQ(
      error_of(Call("aten::amax", {{DType::F32, {0, 3}}}, {list({0}), false})), "amax(): Expected reduction dim 0 to have non-zero size.");
  EXPECT_EQ(
      error_of(Call("aten::cat", {kMatrix, {DType::F32, {4, 5}}}, {int64_t{2}, int64_t{0}})),
      "Sizes of tensors must match except in dimension 0. Expected size 6 but got size 5 for tensor number 1 in the list.");
}

} // namespace
} // namespace torch_xla
