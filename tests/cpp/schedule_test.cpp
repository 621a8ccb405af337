// Schedules: what the verifier says of faults that are put into right ones, and what the text tells.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/errors.h"
#include "engine/cpu/schedule/verify.h"
#include "ir/builder.h"
#include "ops/registry.h"

namespace torch_xla::cpu {
namespace {

Schedule schedule_of(const Graph& graph, bool fusion = true) {
  return make_schedule(graph, 0, fusion);
}

// A product, a normalization of its rows, a product of some of these, which is written into a parameter, and a reduction of it.
class ScheduleTest : public ::testing::Test {
 protected:
  ScheduleTest() {
    const Type matrix{DType::F32, {16, 16}};
    x_ = graph_.add_parameter({DType::F32, {32, 16}});
    weight_ = graph_.add_parameter(matrix);
    cache_ = graph_.add_parameter({DType::F32, {32, 16}});
    scale_ = graph_.add_parameter({DType::F32, {16}});
    ValueId rows = multiply(x_, weight_, 32);
    Ex centered = ex(rows) - mean(ex(rows));
    Ex normal = centered * (mean(centered * centered) + 1e-5).unary(Prim::kRsqrt) * ex(scale_);
    ValueId half = builder_.view(normal.id(), {16, 1}, {16, 16}, {16, 1}, 64);
    ValueId product = multiply(half, weight_, 16);
    ValueId updated = builder_.view_update(cache_, product, {16, 1}, {16, 1}, 32);
    Ex doubled = ex(x_) * 2.0;
    graph_.outputs = {updated, ex(product).unary(Prim::kTanh).reduce(Prim::kReduceMax, {1}).id(), doubled.id()};
    s_ = schedule_of(graph_);
  }

  Ex ex(ValueId v) {
    return {&builder_, v};
  }
  static Ex mean(Ex x) {
    return x.reduce(Prim::kReduceSum, {1}) * (1.0 / 16);
  }
  ValueId multiply(ValueId a, ValueId b, int64_t rows) {
    const Type type{DType::F32, {rows, 16}};
    const ValueId operands[] = {a, b};
    return builder_.library(*find_op("aten::mm"), operands, {}, std::span(&type, 1));
  }

  // ---- Parts of the schedule ----

  size_t find_step(const std::function<bool(const Step&)>& fits) const {
    auto found = std::find_if(s_.steps.begin(), s_.steps.end(), fits);
    EXPECT_NE(found, s_.steps.end());
    return static_cast<size_t>(found - s_.steps.begin());
  }
  size_t row_step() const {
    return find_step([](const Step& step) { return step.form == KernelForm::kRow; });
  }
  const Node& last_product() const {
    auto is_product = [](const Node& node) { return node.op->kind == OpKind::kLibrary; };
    return *std::find_if(s_.laid_out.graph.nodes.rbegin(), s_.laid_out.graph.nodes.rend(), is_product);
  }
  size_t last_product_step() const {
    return find_step(
        [&](const Step& step) { return step.kind == StepKind::kLibrary && &s_.laid_out.graph.nodes[step.node] == &last_product(); });
  }
  ValueId view() const {
    return last_product().operands[0];
  }
  Memory& memory(ValueId v) {
    return s_.plan.memories[s_.plan.memory_of[v]];
  }
  ValueId normal() const {
    return s_.steps[row_step()].stores[0];
  }
  // What the rows' kernel reads.
  ValueId rows() const {
    return s_.kernels[row_step()].operands[0].root;
  }
  int32_t buffer_of(ValueId v) const {
    const std::vector<KernelOperand>& operands = s_.kernels[row_step()].operands;
    auto found = std::find_if(operands.begin(), operands.end(), [&](const KernelOperand& operand) { return operand.root == v; });
    return static_cast<int32_t>(found - operands.begin());
  }

  void expect_fault(void (*verify)(const Schedule&, const char* stage), const std::string& message) const {
    try {
      verify(s_, "stage");
      ADD_FAILURE() << "no fault was found";
    } catch (const InternalError& e) {
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
    }
  }

  Graph graph_;
  Builder builder_{graph_};
  ValueId x_, weight_, cache_, scale_;
  Schedule s_;
};

TEST_F(ScheduleTest, RightOnesPass) {
  for (bool fusion : {true, false}) {
    s_ = schedule_of(graph_, fusion);
    for (auto verify : {verify_layout, verify_groups, verify_steps, verify_kernels, verify_accesses, verify_memory}) {
      EXPECT_NO_THROW(verify(s_, "stage")) << schedule_text(s_);
    }
  }
}

TEST_F(ScheduleTest, TextTellsMemoriesAndSteps) {
  std::string text = schedule_text(s_);
  for (const char* part :
       {"arena of ", "memory 2: parameter 2, 2048 bytes", "in place of memory 2 where that is donated", "step 0: aten::mm of %"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

// ---- Layout ----

TEST_F(ScheduleTest, PlaceOutOfBounds) {
  s_.laid_out.places[view()].offset += 256;
  expect_fault(verify_layout, str("schedule, stage, %", view(), ": lies at 320 to 576 of its root"));
}

TEST_F(ScheduleTest, ViewOutsideOfItsRoot) {
  s_.laid_out.places[view()].root = cache_;
  expect_fault(verify_layout, str("schedule, stage, %", view(), ": lies in %", cache_, ", its operand in %", normal()));
}

TEST_F(ScheduleTest, ViewElsewhereInItsRoot) {
  s_.laid_out.places[view()].offset -= 16;
  expect_fault(verify_layout, "does not lie where its node says");
}

TEST_F(ScheduleTest, ViewThatIsMoved) {
  s_.laid_out.places[view()].moved_by = 0;
  expect_fault(verify_layout, "is moved by another number than its node says");
}

TEST_F(ScheduleTest, OutputInAnotherOrder) {
  ValueId output = s_.laid_out.graph.outputs[1];
  s_.laid_out.places[output].strides = {2, 1};
  expect_fault(verify_layout, str("output %", output, ": does not lie in the requested order"));
}

// ---- Groups and steps ----

TEST_F(ScheduleTest, GroupBeforeItsOperand) {
  int of_rows = s_.groups.of_value[normal()];
  int of_product = s_.groups.of_value[rows()];
  std::swap(s_.groups.list[of_rows], s_.groups.list[of_product]);
  for (int g : {of_rows, of_product}) {
    for (ValueId v : s_.groups.list[g].values) {
      s_.groups.of_value[v] = g;
    }
  }
  expect_fault(verify_groups, str("is in group ", of_product, ", but its operand %", rows(), " is stored by group ", of_rows));
}

TEST_F(ScheduleTest, GroupOfOtherReductions) {
  s_.groups.list[s_.groups.of_value[normal()]].reduced = 1;
  expect_fault(verify_groups, "reduces other dims than group");
}

TEST_F(ScheduleTest, ReadBeforeWrite) {
  std::swap(s_.steps[row_step()], s_.steps[last_product_step()]);
  expect_fault(verify_steps, str("reads %", view(), ", which no step before it stores"));
}

TEST_F(ScheduleTest, StoreMissing) {
  s_.steps[row_step()].stores.clear();
  expect_fault(verify_steps, str("reads %", view(), ", which no step before it stores"));
}

TEST_F(ScheduleTest, FormThatIsNotThatOfTheReductions) {
  s_.steps[row_step()].form = KernelForm::kPointwise;
  expect_fault(verify_steps, "its form is not that of its reductions");
}

// ---- Kernels ----

TEST_F(ScheduleTest, WrongStride) {
  BuiltKernel& kernel = s_.kernels[row_step()];
  kernel.spec.buffers.back().strides[0] = 8;
  expect_fault(verify_kernels, str("does not walk over %", normal(), " as it lies in memory"));
}

// As many elements over as long a span, but each of another row.
TEST_F(ScheduleTest, SwappedStrides) {
  BuiltKernel& kernel = s_.kernels[row_step()];
  for (ValueId v : {rows(), normal()}) {
    Dims& strides = kernel.spec.buffers[buffer_of(v)].strides;
    ASSERT_EQ(strides, (Dims{16, 1}));
    strides = {1, 8};
  }
  expect_fault(verify_kernels, str("does not walk over %", rows(), " as it lies in memory"));
}

// Each buffer alone is walked over as a whole, but elements of other rows come together.
TEST(ScheduleKernels, TransposedOperand) {
  Graph graph;
  Builder builder{graph};
  ValueId x = graph.add_parameter({DType::F32, {8, 16}});
  ValueId y = graph.add_parameter({DType::F32, {16, 8}});
  ValueId turned = builder.permute(y, {1, 0});
  graph.outputs = {builder.binary(Prim::kAdd, x, turned)};
  Schedule s = schedule_of(graph);
  KernelBuffer& buffer = s.kernels.at(0).spec.buffers[1];
  ASSERT_EQ(buffer.strides, (Dims{1, 8}));
  EXPECT_NO_THROW(verify_kernels(s, "stage"));
  buffer.strides = {16, 1};
  EXPECT_THROW(verify_kernels(s, "stage"), InternalError);
}

// A long loop is cut for the threads and a transposing one is tiled: both meet the elements that their values have.
TEST(ScheduleKernels, SplitAndTiledLoops) {
  for (const Dims& dims : {Dims{3, 65536}, Dims{64, 1024}}) {
    Graph graph;
    Builder builder{graph};
    ValueId x = graph.add_parameter({DType::F32, dims});
    ValueId y = graph.add_parameter({DType::F32, {dims[1], dims[0]}});
    ValueId turned = dims[0] == 3 ? builder.broadcast(builder.iota({3, 1}, 0, DType::F32), dims) : builder.permute(y, {1, 0});
    graph.outputs = {builder.binary(Prim::kAdd, x, turned)};
    Schedule s = schedule_of(graph);
    EXPECT_GT(s.kernels.at(0).spec.outer.size(), 1u) << s.kernels[0].spec.text();
    EXPECT_NO_THROW(verify_kernels(s, "stage")) << s.kernels[0].spec.text();
  }
}

TEST(ScheduleKernels, IndexOfAnotherDim) {
  Graph graph;
  Builder builder{graph};
  ValueId x = graph.add_parameter({DType::I64, {8, 16}});
  graph.outputs = {builder.binary(Prim::kAdd, x, builder.iota({8, 16}, 0, DType::I64))};
  Schedule s = schedule_of(graph);
  EXPECT_NO_THROW(verify_kernels(s, "stage"));
  s.kernels.at(0).spec.indices.at(0) = {0, 1};
  EXPECT_THROW(verify_kernels(s, "stage"), InternalError);
}

TEST_F(ScheduleTest, AccessBeyondTheBuffer) {
  s_.kernels[row_step()].operands.back().byte_offset = 4;
  expect_fault(verify_kernels, str("accesses %", normal(), " up to byte 2052 of %", normal(), ", which has 2048"));
}

TEST_F(ScheduleTest, AccessThatIsMoved) {
  s_.kernels[row_step()].operands.back().moved_by = 0;
  expect_fault(verify_kernels, str("%", normal(), " is moved by another number"));
}

TEST_F(ScheduleTest, LoadOfWhatTheKernelStores) {
  s_.kernels[row_step()].operands.back().written = false;
  expect_fault(verify_kernels, str("loads %", normal(), ", which it stores itself"));
}

TEST_F(ScheduleTest, InPlaceAtOtherAddresses) {
  s_.kernels[row_step()].in_place.emplace_back(buffer_of(scale_), buffer_of(normal()));
  expect_fault(verify_kernels, str("%", normal(), " is in place of %", scale_, " at other addresses"));
}

TEST_F(ScheduleTest, InPlaceInAnEarlySweep) {
  BuiltKernel& kernel = s_.kernels[row_step()];
  Instr& store = kernel.spec.body.back();
  store.args = {0}; // what was loaded, before any reduction
  expect_fault(verify_kernels, str("%", normal(), " is in place of %", rows(), ", which a later sweep may read"));
}

// ---- Accesses: faults that the memory plan is made from, so that its own rules hold ----

TEST_F(ScheduleTest, CallThatIsTakenForInfallible) {
  s_ = schedule_of(graph_, /*fusion=*/false);
  size_t call = last_product_step();
  ASSERT_TRUE(s_.accesses[call].can_fail);
  for (StepAccess& access : s_.accesses) {
    access.can_fail = false;
  }
  s_.plan = plan_memory(s_.laid_out, s_.accesses);
  EXPECT_NO_THROW(verify_memory(s_, "stage"));
  expect_fault(verify_accesses, "can fail, but is planned otherwise");
}

TEST_F(ScheduleTest, CallWhoseMemoryIsNotItsOwn) {
  s_ = schedule_of(graph_, /*fusion=*/false);
  for (StepAccess& access : s_.accesses) {
    access.adopts = false;
  }
  s_.plan = plan_memory(s_.laid_out, s_.accesses);
  EXPECT_NO_THROW(verify_memory(s_, "stage"));
  expect_fault(verify_accesses, "gets its memory from ATen, but is planned otherwise");
}

TEST_F(ScheduleTest, WriteThatIsNotSaid) {
  s_.accesses[row_step()].writes.clear();
  expect_fault(verify_accesses, str("step ", row_step(), ": writes other values than its nodes do: %", normal()));
}

TEST_F(ScheduleTest, ReadThatIsNotSaid) {
  std::erase(s_.accesses[row_step()].reads, scale_);
  expect_fault(verify_accesses, str("step ", row_step(), ": reads other values than its nodes do: %", scale_));
}

TEST_F(ScheduleTest, UpdateThatIsTakenForAWholeWrite) {
  size_t update = find_step([](const Step& step) { return step.kind == StepKind::kUpdate; });
  s_.accesses[update].is_update = false;
  expect_fault(verify_accesses, "writes a part, but is planned otherwise");
}

TEST_F(ScheduleTest, ErrorsNameTheStage) {
  try {
    s_.accesses.clear();
    verify_accesses(s_, "accesses");
    ADD_FAILURE() << "no fault was found";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("schedule, accesses: 0 accesses for"), std::string::npos) << e.what();
  }
}

// ---- Memory plan ----

TEST_F(ScheduleTest, OverlappingMemory) {
  Memory& rows = memory(normal());
  Memory& product = memory(last_product().result());
  ASSERT_EQ(rows.home, Memory::Home::kArena);
  ASSERT_EQ(product.home, Memory::Home::kArena);
  product.offset = rows.offset + 448;
  expect_fault(verify_memory, str("overlaps memory ", s_.plan.memory_of[normal()], ", which lives at the same time"));
}

TEST_F(ScheduleTest, ArenaTooSmall) {
  s_.plan.arena_bytes -= 64;
  expect_fault(verify_memory, str("of ", s_.plan.arena_bytes));
}

TEST_F(ScheduleTest, TwoValuesInOneMemory) {
  ValueId product = last_product().result();
  s_.plan.memory_of[normal()] = s_.plan.memory_of[product];
  memory(product).bytes = 2048;
  expect_fault(verify_memory, str("step ", row_step(), ": uses memory ", s_.plan.memory_of[product], ", which lives from step"));
}

TEST_F(ScheduleTest, CallOverItsOperand) {
  ValueId product = last_product().result();
  s_.laid_out.graph.values[product].type.dims = {32, 16}; // of one size with what it reads
  s_.plan.memory_of[product] = s_.plan.memory_of[normal()];
  memory(product).last = static_cast<int32_t>(s_.steps.size()) - 1;
  expect_fault(verify_memory, str("writes %", product, " over %", normal(), ", which it reads elsewhere"));
}

TEST_F(ScheduleTest, KernelInPlaceWithoutLeave) {
  s_.kernels[row_step()].in_place.clear();
  expect_fault(verify_memory, str("writes %", normal(), " over %", rows(), ", which it reads elsewhere"));
}

TEST_F(ScheduleTest, ReadOfWhatWasWrittenOver) {
  s_.laid_out.graph.nodes[s_.steps[last_product_step()].node].operands[0] = rows();
  expect_fault(
      verify_memory, str("reads %", rows(), ", but memory ", s_.plan.memory_of[rows()], " holds %", normal(), " since step ", row_step()));
}

TEST_F(ScheduleTest, DonorThatIsNeeded) {
  size_t update = find_step([](const Step& step) { return step.kind == StepKind::kUpdate; });
  ValueId updated = s_.laid_out.graph.nodes[s_.steps[update].node].result();
  ASSERT_EQ(memory(updated).donors, std::vector<int32_t>{s_.plan.memory_of[cache_]});
  memory(updated).donors = {s_.plan.memory_of[weight_]};
  expect_fault(verify_memory, str("takes over %", weight_, ", which does not end at the step"));
}

TEST_F(ScheduleTest, ReleasedTooEarly) {
  int32_t m = s_.plan.memory_of[weight_];
  int32_t last = memory(weight_).last;
  std::erase(s_.plan.released[last], m);
  s_.plan.released[last - 1].push_back(m);
  expect_fault(verify_memory, str("memory ", m, ": is released at step ", last - 1, ", not at step ", last));
}

TEST_F(ScheduleTest, DiesTooEarly) {
  --memory(weight_).last;
  expect_fault(verify_memory, str("uses memory ", s_.plan.memory_of[weight_], ", which lives from step 0"));
}

TEST_F(ScheduleTest, OutputWithoutABlock) {
  ValueId output = s_.laid_out.graph.outputs[1];
  memory(output).home = Memory::Home::kArena;
  expect_fault(verify_memory, str("output %", output, " lies in the arena"));
}

TEST_F(ScheduleTest, NotTaken) {
  ValueId output = s_.laid_out.graph.outputs[1];
  s_.plan.taken[memory(output).first].clear();
  expect_fault(verify_memory, str("is taken at step -1, not at step ", memory(output).first));
}

TEST_F(ScheduleTest, FailureBehindTheLastFallibleStep) {
  s_.accesses.back().can_fail = true;
  expect_fault(verify_memory, "is the last that can fail");
}

} // namespace
} // namespace torch_xla::cpu
