// Views, updates, library calls, donation and the pool.
#include <set>

#include "engine/cpu/memory/pool.h"
#include "engine_harness.h"

namespace torch_xla::testing {
namespace {

TEST(EngineViews, PermuteReshapeSlice) {
  Program p;
  at::Tensor a = at::randn({4, 6, 10});
  Ex x = p.input(a) + 1.0;
  Builder& b = p.b();
  Ex transposed{&b, b.permute(x.id(), {2, 0, 1})};
  Ex flat{&b, b.reshape(transposed.id(), {10, 24})};
  Ex slice{&b, b.view(x.id(), {60, 10, 1}, {4, 3, 5}, {60, 20, 2}, 11)};
  at::Tensor e = a + 1;
  p.check(
      {transposed, flat * 2.0, slice, x.reshape({24, 10}), x},
      {e.permute({2, 0, 1}), e.permute({2, 0, 1}).reshape({10, 24}) * 2, e.as_strided({4, 3, 5}, {60, 20, 2}, 11), e.view({24, 10}), e});
}

TEST(EngineViews, OnOtherMemoryOrder) {
  Program p;
  at::Tensor a = at::randn({2, 8, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  Ex x = p.input(a);
  Builder& b = p.b();
  Ex rows{&b, b.view(x.id(), {128, 16, 4, 1}, {2, 8, 2, 4}, {128, 16, 8, 1}, 4)};
  Ex flat = x.reshape({2, 128});
  p.check({rows, flat}, {a.contiguous().as_strided({2, 8, 2, 4}, {128, 16, 8, 1}, 4), a.reshape({2, 128})});
}

// Outputs lie as the graph asks: by a kernel, a call, a copy of a parameter, and as the parameter itself where it lies so.
TEST(EngineViews, OutputsInOtherOrders) {
  at::Tensor a = at::randn({2, 8, 4, 4});
  at::Tensor rows = at::randn({4, 6});
  at::Tensor columns = at::randn({6, 5}).t().contiguous().t();
  for (bool fusion : {true, false}) {
    Program p;
    Ex x = p.input(a);
    Ex y = p.input(rows);
    Ex z = p.input(columns);
    Ex product = p.library("aten::mm", {y, z}, {}, {{DType::F32, {4, 5}}});
    const Dims channels_last{128, 1, 32, 8};
    p.graph().output_strides = {channels_last, {1, 4}, channels_last, {1, 6}, {}, {1, 4}};
    auto executable = p.compile({x * 2.0, product, x, z, z, y * 3.0}, fusion);
    p.graph().output_strides.clear();
    RunArgs args;
    for (const at::Tensor& t : {a, rows, columns}) {
      args.inputs.push_back(upload(t));
    }
    args.donated.resize(3);
    EngineBufferRef given = args.inputs[2];
    executable->run(args);
    std::vector<at::Tensor> expected{a * 2, rows.mm(columns), a, columns, columns, rows * 3};
    std::vector<Dims> strides{channels_last, {1, 4}, channels_last, {1, 6}, {5, 1}, {1, 4}};
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(args.outputs[i]->strides(), strides[i]) << i;
      EXPECT_TRUE(at::allclose(download(args.outputs[i]), expected[i], 1e-5, 1e-5)) << i;
    }
    EXPECT_EQ(args.outputs[3], given);
  }
}

TEST(EngineUpdates, InPlaceAndCopied) {
  Program p;
  at::Tensor a = at::randn({6, 10});
  at::Tensor u = at::randn({6, 5});
  Ex x = p.input(a);
  Ex update = p.input(u) * 2.0;
  Ex first{&p.b(), p.b().view_update(x.id(), update.id(), {10, 1}, {10, 2}, 1)};
  Ex doubled = first + first;
  Ex second{&p.b(), p.b().view_update(first.id(), p.input(u).id(), {10, 1}, {10, 2}, 0)};
  at::Tensor e1 = a.clone();
  e1.as_strided({6, 5}, {10, 2}, 1).copy_(u * 2);
  at::Tensor e2 = e1.clone();
  e2.as_strided({6, 5}, {10, 2}, 0).copy_(u);
  p.check({second, doubled}, {e2, e1 * 2});
  p.check({second, first}, {e2, e1});
  p.check({second, x}, {e2, a});
}

TEST(EngineUpdates, UpdateWithOwnPart) {
  Program p;
  at::Tensor a = at::randn({8});
  Ex x = p.input(a) * 3.0;
  Ex head{&p.b(), p.b().view(x.id(), {1}, {4}, {1}, 0)};
  Ex y{&p.b(), p.b().view_update(x.id(), head.id(), {1}, {1}, 2)};
  at::Tensor e = a * 3;
  at::Tensor expected = e.clone();
  expected.slice(0, 2, 6).copy_(e.slice(0, 0, 4));
  p.check({y}, {expected});
}

TEST(EngineLibrary, ErrorsNameTheOperation) {
  Program p;
  Ex x = p.input(at::randn({3, 4}));
  Ex index = p.input(at::full({1}, 3, at::kLong));
  Ex y = p.library("aten::index_select", {x, index}, {int64_t{0}}, {{DType::F32, {1, 4}}});
  auto executable = p.compile({y});
  RunArgs args = p.args();
  try {
    executable->run(args);
    FAIL();
  } catch (const StepError& e) {
    EXPECT_NE(std::string(e.what()).find("aten::index_select: "), std::string::npos) << e.what();
  }
}

TEST(EngineMemory, DonatedInputBecomesOutput) {
  Program p;
  at::Tensor a = at::randn({100, 100});
  at::Tensor g = at::randn({100, 100});
  Ex y = p.input(a) - p.input(g) * 0.1;
  auto executable = p.compile({y});
  RunArgs args = p.args();
  args.donated[0] = true;
  void* before = args.inputs[0]->host_pointer();
  executable->run(args);
  EXPECT_EQ(args.outputs[0]->host_pointer(), before);
  EXPECT_TRUE(args.outputs[0]->sole_owner());
  EXPECT_TRUE(at::allclose(download(args.outputs[0]), a - g * 0.1));
}

// As an optimizer's step writes a weight and its two averages in one kernel.
TEST(EngineMemory, EachOfSeveralResultsTakesADonatedInput) {
  Program p;
  std::vector<at::Tensor> values{at::randn({64, 64}), at::randn({64, 64}), at::rand({64, 64})};
  at::Tensor g = at::randn({64, 64});
  Ex weight = p.input(values[0]);
  Ex first = p.input(values[1]) * 0.9 + p.input(g) * 0.1;
  Ex second = p.input(values[2]) * 0.99 + first * first;
  auto executable = p.compile({weight - first / (second + 1.0), first, second});
  RunArgs args = p.args();
  std::set<void*> before;
  for (size_t i : {0, 1, 3}) {
    args.donated[i] = true;
    before.insert(args.inputs[i]->host_pointer());
  }
  executable->run(args);
  std::set<void*> after;
  for (const EngineBufferRef& output : args.outputs) {
    after.insert(output->host_pointer());
  }
  EXPECT_EQ(after, before);
  at::Tensor expected_first = values[1] * 0.9 + g * 0.1;
  at::Tensor expected_second = values[2] * 0.99 + expected_first * expected_first;
  EXPECT_TRUE(at::allclose(download(args.outputs[0]), values[0] - expected_first / (expected_second + 1), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(download(args.outputs[1]), expected_first));
  EXPECT_TRUE(at::allclose(download(args.outputs[2]), expected_second, 1e-4, 1e-5));
}

TEST(EngineMemory, SharedInputIsNotOverwritten) {
  Program p;
  at::Tensor a = at::randn({50});
  auto executable = p.compile({p.input(a) * 2.0});
  RunArgs args = p.args();
  EngineBufferRef kept = args.inputs[0];
  args.donated[0] = false;
  executable->run(args);
  EXPECT_NE(args.outputs[0]->host_pointer(), kept->host_pointer());
  EXPECT_TRUE(at::equal(download(kept), a));
}

TEST(EngineMemory, InputAsOutput) {
  Program p;
  at::Tensor a = at::randn({2, 3});
  Ex x = p.input(a);
  auto executable = p.compile({x, x.reshape({6}), x + 1.0});
  RunArgs args = p.args(true);
  EngineBufferRef input = args.inputs[0];
  executable->run(args);
  EXPECT_EQ(args.outputs[0], input);
  EXPECT_EQ(args.outputs[1]->host_pointer(), input->host_pointer());
  EXPECT_FALSE(args.outputs[1]->sole_owner());
  EXPECT_TRUE(at::allclose(download(args.outputs[2]), a + 1));
  EXPECT_TRUE(at::equal(download(args.outputs[1]), a.view({6})));
}

// A weight, its update, and a call that checks indices before or behind it.
struct Update {
  Update(bool check_first, int64_t index) {
    Ex x = p.input(weight);
    Ex table = p.input(at::ones({4, 2}));
    Ex i = p.input(at::full({1}, index, at::kLong));
    auto pick = [&] { return p.library("aten::index_select", {table, i}, {int64_t{0}}, {{DType::F32, {1, 2}}}); };
    Ex early = check_first ? pick() : x;
    Ex updated = x * 2.0;
    Ex picked = check_first ? early : pick();
    executable = p.compile({updated, picked});
    args = p.args();
    args.donated[0] = true;
    args.restored = args.donated;
    before = args.inputs[0]->host_pointer();
  }

  Program p;
  at::Tensor weight = at::randn({100, 100});
  std::shared_ptr<Executable> executable;
  RunArgs args;
  void* before = nullptr;
};

TEST(EngineMemory, FailedRunsGiveBackWhatIsWanted) {
  for (bool check_first : {true, false}) {
    Update failing(check_first, 9);
    EXPECT_THROW(failing.executable->run(failing.args), StepError);
    ASSERT_NE(failing.args.inputs[0], nullptr);
    EXPECT_TRUE(at::equal(download(failing.args.inputs[0]), failing.weight));
    Update good(check_first, 1);
    good.executable->run(good.args);
    EXPECT_TRUE(at::equal(download(good.args.outputs[0]), good.weight * 2));
    EXPECT_EQ(good.args.outputs[0]->host_pointer() == good.before, check_first); // in place once nothing can fail
  }
}

TEST(EngineMemory, UpdatesOfViewsAreTakenBack) {
  for (int64_t index : {9, 1}) {
    Program p;
    at::Tensor a = at::randn({4, 3});
    Ex x = p.input(a);
    Ex i = p.input(at::full({1}, index, at::kLong));
    const Type type{DType::F32, {4, 3}};
    Attrs second_row{std::vector<int64_t>{3, 1}, std::vector<int64_t>{1}, int64_t{3}};
    Ex row{&p.b(), p.graph().add_node(kViewUpdateOp, {x.id(), p.input(at::ones({3})).id()}, second_row, std::span(&type, 1))};
    Ex picked = p.library("aten::index_select", {row, i}, {int64_t{0}}, {{DType::F32, {1, 3}}});
    auto executable = p.compile({row, picked});
    RunArgs args = p.args();
    args.donated[0] = true;
    args.restored = args.donated;
    void* before = args.inputs[0]->host_pointer();
    if (index == 9) {
      EXPECT_THROW(executable->run(args), StepError);
      EXPECT_TRUE(at::equal(download(args.inputs[0]), a));
    } else {
      executable->run(args);
      EXPECT_EQ(args.outputs[0]->host_pointer(), before);
      EXPECT_TRUE(at::equal(download(args.outputs[1]), at::ones({1, 3})));
    }
  }
}

TEST(EngineMemory, CancelledRunsGiveBackAll) {
  Program p;
  at::Tensor a = at::randn({20, 20});
  Ex x = p.input(a);
  auto executable = p.compile({p.library("aten::mm", {x, x}, {}, {{DType::F32, {20, 20}}}), x * 2.0});
  RunArgs args = p.args(true);
  args.restored = args.donated;
  const std::atomic<uint64_t> first_kept{1};
  args.options.first_kept = &first_kept;
  EXPECT_THROW(executable->run(args), UserError);
  EXPECT_TRUE(at::equal(download(args.inputs[0]), a));
}

TEST(EngineMemory, NothingIsLeftAfterRuns) {
  cpu::Pool& pool = cpu::Pool::get(0);
  int64_t before = pool.bytes_used();
  {
    Program p;
    at::Tensor a = at::randn({200, 200});
    Ex x = p.input(a);
    Ex y = p.library("aten::mm", {x, x}, {}, {{DType::F32, {200, 200}}}).unary(Prim::kTanh);
    p.run({y, y.reduce(Prim::kReduceSum, {0})});
  }
  EXPECT_EQ(pool.bytes_used(), before);
  EXPECT_GE(pool.peak_bytes_used(), before + 2 * 160000);
}

TEST(EngineMemory, LargeTemporariesMakeRoomForOutputs) {
  cpu::Pool& pool = cpu::Pool::get(0);
  constexpr int64_t kExtent = 512; // a megabyte
  constexpr int kCount = 8;
  Program p;
  at::Tensor a = at::randn({kExtent, kExtent}) * 0.1;
  at::Tensor rows = at::zeros({1}, at::kLong);
  Ex x = p.input(a);
  const Type square{DType::F32, {kExtent, kExtent}};
  std::vector<Ex> temporaries, outputs;
  for (int i = 0; i < kCount; ++i) {
    temporaries.push_back(p.library("aten::mm", {i ? temporaries.back() : x, x}, {}, {square}));
  }
  for (int i = kCount; i-- > 0;) { // each is dead when the next output begins
    outputs.push_back(p.library("aten::mm", {outputs.empty() ? x : outputs.back(), temporaries[i]}, {}, {square}));
  }
  outputs.push_back(p.library("aten::embedding", {outputs.back(), p.input(rows)}, {-1, false, false}, {{DType::F32, {1, kExtent}}}));
  int64_t before = pool.bytes_used();
  pool.reset_peaks();
  p.run(outputs);
  EXPECT_LE(pool.peak_bytes_used(), before + (kCount + 4) * kExtent * kExtent * 4);
}

TEST(EnginePool, ReusesAlignedBlocks) {
  cpu::Pool& pool = cpu::Pool::get(0);
  for (size_t size : {0, 1, 64, 65, 512, 513, 1000, 70000, 300000, 1 << 20, (1 << 20) + 1, 5 << 20}) {
    int64_t before = pool.bytes_used();
    void* a = pool.allocate(size);
    void* b = pool.allocate(size);
    EXPECT_NE(a, b);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
    EXPECT_GE(pool.bytes_used() - before, static_cast<int64_t>(2 * size));
    std::memset(a, 1, size);
    std::memset(b, 2, size);
    pool.release(a);
    int64_t reserved = pool.bytes_reserved();
    void* again = pool.allocate(size);
    EXPECT_EQ(pool.bytes_reserved(), reserved);
    pool.release(again);
    pool.release(b);
    EXPECT_EQ(pool.bytes_used(), before);
  }
  pool.empty_cache();
}

// What is freed is one run again, whatever its blocks were.
TEST(EnginePool, LargeBlocksAreCutFromAnyOthers) {
  cpu::Pool& pool = cpu::Pool::get(0);
  pool.empty_cache();
  int64_t before = pool.bytes_reserved();
  constexpr size_t kTogether = size_t{60} << 20;
  for (size_t count : {1, 8, 3, 50, 2, 11}) {
    std::vector<void*> blocks(count);
    for (size_t i = 0; i < count; ++i) { // freed in an order that is not that of their addresses
      blocks[i * 7 % count] = pool.allocate(kTogether / count);
    }
    std::for_each(blocks.begin(), blocks.end(), [&](void* block) { pool.release(block); });
  }
  EXPECT_LE(pool.bytes_reserved() - before, static_cast<int64_t>(kTogether + kTogether / 8));
  pool.empty_cache();
}

// Blocks of one size after the other: what the earlier ones left serves the later ones.
TEST(EnginePool, HoldsLittleMoreThanTheMostThatWasInUse) {
  cpu::Pool& pool = cpu::Pool::get(0);
  pool.empty_cache();
  constexpr size_t kInUse = size_t{96} << 20;
  for (size_t size = 3000; size < (24 << 20); size += size / 3) {
    std::vector<void*> blocks;
    for (size_t sum = 0; sum < kInUse; sum += size) {
      blocks.push_back(pool.allocate(size));
    }
    std::set<char*> starts;
    for (void* block : blocks) {
      auto next = starts.insert(static_cast<char*>(block)).first;
      EXPECT_TRUE(next == starts.begin() || *std::prev(next) + size <= block) << size;
      EXPECT_TRUE(std::next(next) == starts.end() || static_cast<char*>(block) + size <= *std::next(next)) << size;
      pool.release(block);
    }
  }
  EXPECT_LE(pool.bytes_reserved(), pool.peak_bytes_used() * 5 / 4 + (66 << 20));
}

// Blocks that are no multiple of what the system is asked for.
TEST(EnginePool, LeavesNothingBetweenBlocks) {
  cpu::Pool& pool = cpu::Pool::get(0);
  pool.empty_cache();
  int64_t unused = pool.bytes_reserved() - pool.bytes_used();
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) {
    blocks.push_back(pool.allocate((2 << 20) + (1 << 18)));
  }
  EXPECT_LE(pool.bytes_reserved() - pool.bytes_used(), unused + (4 << 20)); // the last chunk's rest, and that of one range of addresses
  std::for_each(blocks.begin(), blocks.end(), [&](void* block) { pool.release(block); });
}

TEST(EnginePool, PeaksStartAgain) {
  cpu::Pool& pool = cpu::Pool::get(0);
  pool.release(pool.allocate(64 << 20));
  EXPECT_GE(pool.peak_bytes_used(), pool.bytes_used() + (64 << 20));
  pool.empty_cache();
  cpu_engine().reset_peak_memory(0);
  EXPECT_EQ(pool.peak_bytes_used(), pool.bytes_used());
  EXPECT_EQ(pool.peak_bytes_reserved(), pool.bytes_reserved());
  pool.release(pool.allocate(1 << 20));
  EXPECT_GE(pool.peak_bytes_used(), pool.bytes_used() + (1 << 20));
  EXPECT_GE(pool.peak_bytes_reserved(), pool.bytes_reserved());
}

// How much is kept depends on the most that was ever in use, whatever figures are asked for.
TEST(EnginePool, PeaksThatStartAgainGiveNothingBack) {
  cpu::Pool& pool = cpu::Pool::get(0);
  pool.empty_cache();
  constexpr size_t kBlock = size_t{150} << 20;
  void* blocks[] = {pool.allocate(kBlock), pool.allocate(2 << 20), pool.allocate(kBlock)};
  pool.release(blocks[0]);
  pool.release(blocks[2]);
  cpu_engine().reset_peak_memory(0);
  void* larger = pool.allocate(kBlock + kBlock / 16);
  EXPECT_GE(pool.bytes_reserved(), static_cast<int64_t>(2 * kBlock));
  pool.release(larger);
  pool.release(blocks[1]);
  pool.empty_cache();
}

TEST(EnginePool, EmptyCacheGivesBackAllButSlabsInUse) {
  cpu::Pool& pool = cpu::Pool::get(0);
  pool.empty_cache();
  int64_t before = pool.bytes_reserved();
  void* large = pool.allocate(50 << 20);
  void* small = pool.allocate(100);
  EXPECT_GE(pool.bytes_reserved(), before + (50 << 20));
  pool.release(large);
  pool.empty_cache();
  EXPECT_LE(pool.bytes_reserved(), before + (4 << 20));
  EXPECT_EQ(cpu::Pool::find(small), &pool);
  std::memset(small, 1, 100);
  pool.release(small);
}

TEST(EnginePool, MoreThanTheMachineHasIsRefused) {
  for (size_t size : {size_t{1} << 44, size_t{1} << 60, ~size_t{0}}) {
    try {
      cpu::Pool::get(0).allocate(size);
      FAIL();
    } catch (const UserError& e) {
      EXPECT_EQ(e.kind(), ErrorKind::OutOfMemory);
      EXPECT_NE(std::string(e.what()).find("can't allocate memory: you tried to allocate"), std::string::npos) << e.what();
    }
  }
}

} // namespace
} // namespace torch_xla::testing
