// Programs on disk: their bytes, the keys by which they are found, and files that are damaged or another's.
#include "engine/program_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "core/archive.h"
#include "core/metrics.h"
#include "engine/cpu/kernel.h"
#include "engine/cpu/program/plan.h"
#include "engine_harness.h"
#include "ir/archive.h"
#include "ir/graph.h"
#include "ir/structure.h"

namespace torch_xla {
namespace {

namespace fs = std::filesystem;

// ---- Values as bytes ----

TEST(Archive, GivesBackWhatWasWritten) {
  const Attrs attrs{
      std::monostate(),
      true,
      int64_t{-7},
      -0.0,
      std::nan(""),
      std::complex<double>(1, -2),
      std::vector<int64_t>{1, 2},
      std::vector<double>(),
      std::vector<bool>{true, false, true},
      std::string("a\0b", 3)};
  const Dims dims{1, 2, 3, 4, 5, 6, 7}; // more than lie in place
  Writer out;
  out(attrs, dims, std::string(), Hash128{1, 2}, std::vector<std::vector<int32_t>>{{}, {3}}, DType::BF16, false);
  const std::string bytes = out.take();

  Attrs read_attrs;
  Dims read_dims;
  std::string text = "x";
  Hash128 hash;
  std::vector<std::vector<int32_t>> lists;
  DType dtype = DType::F32;
  bool flag = true;
  Reader in(bytes);
  in(read_attrs, read_dims, text, hash, lists, dtype, flag);
  in.finish();
  ASSERT_EQ(read_attrs.size(), attrs.size());
  for (size_t i = 0; i < attrs.size(); ++i) {
    EXPECT_EQ(read_attrs[i].index(), attrs[i].index());
    EXPECT_EQ(attr_text(read_attrs[i]), attr_text(attrs[i]));
  }
  EXPECT_EQ(read_dims, dims);
  EXPECT_EQ(text, "");
  EXPECT_TRUE(hash == (Hash128{1, 2}));
  EXPECT_EQ(lists, (std::vector<std::vector<int32_t>>{{}, {3}}));
  EXPECT_EQ(dtype, DType::BF16);
  EXPECT_FALSE(flag);
}

TEST(Archive, BytesThatAreNoSuchValueThrow) {
  Writer out;
  out(std::vector<std::string>{"one", "two"}, Attrs{int64_t{1}});
  const std::string bytes = out.take();
  auto read = [](std::string_view some) {
    std::vector<std::string> list;
    Attrs attrs;
    Reader in(some);
    in(list, attrs);
    in.finish();
  };
  EXPECT_NO_THROW(read(bytes));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(read(std::string_view(bytes).substr(0, size)), InternalError) << size;
  }
  EXPECT_THROW(read(bytes + "x"), InternalError);
  EXPECT_THROW(read(std::string(bytes.size(), '\xff')), InternalError) << "a size that no memory holds";
}

struct Large {
  std::string text;
  std::array<char, 4096> rest{};
};
template <typename Archive>
void fields(Archive& archive, Large& large) {
  archive(large.text);
}

TEST(Archive, ANumberOfElementsThatIsWrongTakesNoMemory) {
  std::string bytes(64 << 20, '\x7f'); // the first text is longer than the bytes
  const uint64_t count = bytes.size() - sizeof count; // an element may take a byte, so this many may come
  std::memcpy(bytes.data(), &count, sizeof count);
  std::vector<Large> list; // that many would take 256 GB
  Reader in(bytes);
  EXPECT_THROW(in(list), InternalError);
}

// ---- Keys ----

std::string key_of(const char* text) {
  return graph_key(parse_graph(text, find_op));
}

TEST(GraphKey, DiffersWithAllThatDecidesOnTheProgram) {
  const std::vector<const char*> graphs = {
      "graph(%0: f32[4,4], %1: f64 scalar) {\n  %2: f32[4,4] = aten::add.Tensor(%0, %0, %1)\n  return %2\n}\n",
      "graph(%0: f32[4,4], %1: i64 scalar) {\n  %2: f32[4,4] = aten::add.Tensor(%0, %0, %1)\n  return %2\n}\n",
      "graph(%0: f32[4,4]{1,4}, %1: f64 scalar) {\n  %2: f32[4,4] = aten::add.Tensor(%0, %0, %1)\n  return %2\n}\n",
      "graph(%0: f32[4,4], %1: f64 scalar) {\n  %2: f32[4,4] = aten::sub.Tensor(%0, %0, %1)\n  return %2\n}\n",
      "graph(%0: f32[2,8], %1: f64 scalar) {\n  %2: f32[2,8] = aten::add.Tensor(%0, %0, %1)\n  return %2\n}\n",
      "graph(%0: f32[4,4], %1: f64 scalar) {\n  %2: f32[4,4] = aten::add.Tensor(%0, %0, %1)\n  return %2, %0\n}\n",
      "graph(%0: f32[4,4]) {\n  %1: f32[4] = aten::sum.dim_IntList(%0) {[0], false, none}\n  return %1\n}\n",
      "graph(%0: f32[4,4]) {\n  %1: f32[4] = aten::sum.dim_IntList(%0) {[1], false, none}\n  return %1\n}\n"};
  for (size_t i = 0; i < graphs.size(); ++i) {
    for (size_t j = 0; j < graphs.size(); ++j) {
      EXPECT_EQ(key_of(graphs[i]) == key_of(graphs[j]), i == j) << graphs[i] << graphs[j];
    }
  }
}

TEST(GraphKey, DoesNotDependOnTheUsersLines) {
  Graph graph = parse_graph("graph(%0: f32[4]) {\n  %1: f32[4] = aten::relu(%0)\n  return %1\n}\n", find_op);
  std::string key = graph_key(graph);
  graph.nodes[0].location = 12;
  EXPECT_EQ(graph_key(graph), key);
}

TEST(GraphKey, TellsFormsOfARowApart) {
  Graph graph = parse_graph("graph(%0: f32[4]) {\n  %1: f32[4] = aten::relu(%0)\n  return %1\n}\n", find_op);
  std::string key = graph_key(graph);
  graph.nodes[0].op = &library_form(*graph.nodes[0].op);
  EXPECT_NE(graph_key(graph), key);
}

// ---- The store ----

int64_t count_of(const char* name) {
  int64_t value = 0;
  metrics::find_counter(name, &value);
  return value;
}

// A kernel, a call that adopts, one that writes into planned memory, a write through a view, a number and an input that goes through.
constexpr const char* kTrace = R"(graph(%0: f32[16,16], %1: f32[16,16], %2: f64 scalar) {
  %3: f32[16,16] = aten::mm(%0, %1)
  %4: f32[16,16] = aten::add.Tensor(%3, %0, %2)
  %5: f32[16,16], %6: i64[16,16] = aten::sort(%4) {1, false}
  %7: f32[8,4] = view(%5) {[16, 1], [16, 1], 4}
  %8: f32[8,4] = aten::relu(%7)
  %9: f32[16,16] = view_update(%5, %8) {[16, 1], [16, 1], 0}
  return %9, %6, %4, %1
}
)";

class ProgramStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(parent_);
    open();
    trace_ = parse_graph(kTrace, find_op);
  }
  void TearDown() override {
    cpu::set_kernel_cache_dir("");
    fs::remove_all(parent_);
  }

  void open(bool read_only = false) {
    cpu::set_kernel_cache_dir(parent_ / "cache", read_only);
    store_.set_directory(parent_ / "cache/programs", read_only);
  }
  ProgramKey key(const CompileOptions& options = {}) const {
    return store_.key_of(cpu_engine(), trace_, structure_of(trace_), options);
  }
  std::shared_ptr<Executable> compile() {
    CompileOptions options;
    options.stored = &stored_;
    return cpu_engine().compile_trace(trace_, options);
  }
  // Which programs of other keys leave alone.
  std::shared_ptr<Executable> find() {
    return store_.find(cpu_engine(), key(), {});
  }
  static std::vector<at::Tensor> run(Executable& executable) {
    at::Tensor a = at::arange(256, at::kFloat).reshape({16, 16}).sin();
    at::Tensor b = at::arange(256, at::kFloat).reshape({16, 16}).cos();
    RunArgs args;
    args.inputs = {testing::upload(a), testing::upload(b)};
    args.donated.assign(2, false);
    args.scalars = {std::bit_cast<uint64_t>(0.5)};
    executable.run(args);
    std::vector<at::Tensor> results;
    for (const EngineBufferRef& output : args.outputs) {
      results.push_back(testing::download(output));
    }
    return results;
  }
  // Empty where there is none.
  fs::path file_of(const std::string& key) const {
    fs::path path = parent_ / "cache/programs" / (ObjectCache::hash_of(key).hex() + ".o");
    return fs::exists(path) ? path : fs::path();
  }
  fs::path file() const {
    return file_of(key().program);
  }
  static std::string read(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static void write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  const fs::path parent_ = fs::path(::testing::TempDir()) / ("xla_program_store_" + std::to_string(getpid()));
  ProgramStore store_;
  Graph trace_;
  std::string stored_;
};

TEST_F(ProgramStoreTest, RestoredProgramComputesTheSame) {
  int64_t hits = count_of("PersistentCacheHit"), misses = count_of("PersistentCacheMiss");
  EXPECT_FALSE(find());
  auto compiled = compile();
  store_.put(key(), stored_);
  std::vector<at::Tensor> expected = run(*compiled);
  compiled.reset(); // with its kernels, which are on disk
  auto restored = find();
  ASSERT_TRUE(restored);
  EXPECT_EQ(count_of("PersistentCacheHit") - hits, 1);
  EXPECT_EQ(count_of("PersistentCacheMiss") - misses, 1);
  std::vector<at::Tensor> got = run(*restored);
  ASSERT_EQ(got.size(), 4u);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
  }
  EXPECT_EQ(restored->text(), "");
}

TEST_F(ProgramStoreTest, WithoutADirectoryNothingIsKept) {
  store_.set_directory("", false);
  EXPECT_TRUE(key().empty());
  int64_t misses = count_of("PersistentCacheMiss");
  store_.put(key(), "program");
  EXPECT_FALSE(find());
  EXPECT_EQ(count_of("PersistentCacheMiss"), misses) << "nothing was looked for";
}

TEST_F(ProgramStoreTest, ProgramsWithoutAFormForFilesAreCounted) {
  int64_t before = count_of("PersistentCacheNotStored");
  store_.put(key(), "");
  EXPECT_EQ(count_of("PersistentCacheNotStored"), before + 1);
  EXPECT_TRUE(file().empty());
}

TEST_F(ProgramStoreTest, OtherSettingsAreAMiss) {
  auto compiled = compile();
  store_.put(key(), stored_);
  EXPECT_TRUE(find());
  env::set_fusion(false);
  EXPECT_FALSE(find());
  env::set_fusion(true);
  CompileOptions options;
  options.precision.products = Precision::kHigh;
  EXPECT_FALSE(store_.find(cpu_engine(), key(options), options));
  at::globalContext().setUserEnabledMkldnn(false);
  EXPECT_FALSE(find());
  at::globalContext().setUserEnabledMkldnn(true);
  EXPECT_TRUE(find());
}

TEST_F(ProgramStoreTest, ReadOnlyNothingIsWritten) {
  fs::remove_all(parent_);
  open(/*read_only=*/true);
  auto compiled = compile();
  store_.put(key(), stored_);
  EXPECT_FALSE(fs::exists(parent_)) << "not even the directory";
  open();
  store_.put(key(), stored_);
  fs::last_write_time(file(), fs::file_time_type::clock::now() - std::chrono::hours(2));
  auto written = fs::last_write_time(file());
  open(/*read_only=*/true);
  EXPECT_TRUE(find());
  EXPECT_EQ(fs::last_write_time(file()), written);
}

TEST_F(ProgramStoreTest, MissingKernelsAreAMiss) {
  auto compiled = compile();
  store_.put(key(), stored_);
  compiled.reset();
  ASSERT_TRUE(find());
  for (const auto& entry : fs::directory_iterator(parent_ / "cache")) {
    if (entry.path().extension() == ".o") {
      fs::remove(entry.path());
    }
  }
  EXPECT_FALSE(find());
}

TEST_F(ProgramStoreTest, DamagedFilesAreMisses) {
  auto compiled = compile();
  store_.put(key(), stored_);
  const std::string good = read(file());
  std::mt19937 random(0);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1u << (random() % 8));
    }
    write(file(), bytes);
    EXPECT_TRUE(!find() || bytes == good) << i;
  }
  for (size_t size = 0; size < good.size(); size += 97) {
    write(file(), good.substr(0, size));
    EXPECT_FALSE(find()) << size;
  }
  write(file(), good);
  EXPECT_TRUE(find());
}

TEST_F(ProgramStoreTest, AStructureTeachesByItsFirstProgram) {
  EXPECT_FALSE(store_.teach(cpu_engine(), key()));
  auto compiled = compile();
  store_.put(key(), stored_);
  const ProgramKey first = key();
  const std::string good = read(file_of(first.structure));
  ProgramKey other = first;
  other.program += "another size";
  store_.put(other, stored_);
  EXPECT_EQ(read(file_of(first.structure)), good);
  EXPECT_TRUE(store_.teach(cpu_engine(), other));
  write(file_of(first.structure), good.substr(0, good.size() / 2));
  EXPECT_FALSE(store_.teach(cpu_engine(), other));
  write(file_of(first.structure), good);
  EXPECT_TRUE(store_.teach(cpu_engine(), other));
  fs::remove(file());
  EXPECT_FALSE(store_.teach(cpu_engine(), other)) << "the first program is gone";
  other.structure.clear();
  EXPECT_FALSE(store_.teach(cpu_engine(), other));
}

TEST_F(ProgramStoreTest, FilesOfAnotherUserAreMisses) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can give a file to another user";
  }
  auto compiled = compile();
  store_.put(key(), stored_);
  EXPECT_TRUE(find());
  ASSERT_EQ(chown(file().c_str(), 12345, 12345), 0);
  EXPECT_FALSE(find());
}

TEST_F(ProgramStoreTest, BytesThatAreNoPlanAreMisses) {
  auto compiled = compile();
  for (size_t size = 0; size < stored_.size(); ++size) {
    EXPECT_THROW(cpu::read_plan(std::string_view(stored_).substr(0, size)), InternalError) << size;
  }
  EXPECT_EQ(cpu::write_plan(cpu::read_plan(stored_)), stored_);
  store_.put(key(), stored_.substr(0, stored_.size() - 1)); // intact for the cache of files
  EXPECT_FALSE(find());
}

TEST_F(ProgramStoreTest, FlippedBitsOfAPlanNeverEndTheProcess) {
  auto compiled = compile();
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = stored_;
    bytes[random() % bytes.size()] ^= static_cast<char>(1u << (random() % 8));
    try {
      cpu::read_plan(bytes);
    } catch (const InternalError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

// A call that was planned to bring its own memory.
TEST_F(ProgramStoreTest, CallsThatAreNotAsPlannedAreAMiss) {
  auto compiled = compile();
  cpu::Plan plan = cpu::read_plan(stored_);
  ASSERT_FALSE(plan.calls.empty());
  for (cpu::LibraryStep& step : plan.calls) {
    step.call.out_form.clear();
  }
  store_.put(key(), cpu::write_plan(plan));
  EXPECT_FALSE(find());
  plan.calls[0].call.name = "aten::no_such_operation";
  store_.put(key(), cpu::write_plan(plan));
  EXPECT_FALSE(find());
}

} // namespace
} // namespace torch_xla
