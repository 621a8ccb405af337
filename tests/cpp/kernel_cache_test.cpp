// Compiled kernels: found again in memory and on disk, linked and freed, and specs that are refused.
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "core/errors.h"
#include "engine/cpu/kernel_compiler.h"
#include "spec_builder.h"

namespace torch_xla::cpu {

namespace {

SpecBuilder add_constant(double c) {
  SpecBuilder k(KernelForm::kPointwise, {}, {}, 16);
  k.store(k.op(Prim::kAdd, {k.load(DType::F32, k.dense()), k.constant(DType::F32, c)}), DType::F32, k.dense());
  return k;
}

TEST(KernelCache, Text) {
  EXPECT_EQ(
      add_constant(1).spec.text(),
      "pointwise outer[] mid[] inner 16\n"
      "buffer f32 [1]\n"
      "buffer f32 [1]\n"
      "%0 = load:f32[] @0\n"
      "%1 = constant:f32[] 0x3ff0000000000000\n"
      "%2 = add:f32[0,1]\n"
      "%3 = store:f32[2] @1\n");
}

TEST(KernelCache, Memory) {
  KernelStats before = kernel_stats();
  Kernel kernel = compile_kernel(add_constant(100).spec);
  EXPECT_EQ(compile_kernel(add_constant(100).spec).fn(), kernel.fn());
  EXPECT_NE(compile_kernel(add_constant(101).spec).fn(), kernel.fn());
  EXPECT_EQ(kernel_stats().compiled, before.compiled + 2);
  EXPECT_EQ(kernel_stats().memory_hits, before.memory_hits + 1);
}

TEST(KernelCache, FreesWhatNobodyOwns) {
  KernelStats before = kernel_stats();
  {
    Kernel kernel = compile_kernel(add_constant(150).spec);
    Kernel copy = kernel;
    kernel = Kernel();
    EXPECT_EQ(kernel_stats().live, before.live + 1);
    std::vector<float> v(16, 1);
    void* buffers[] = {v.data(), v.data()};
    copy(buffers, nullptr, 0, 16);
    EXPECT_EQ(v[15], 151);
  }
  EXPECT_EQ(kernel_stats().live, before.live);
  compile_kernel(add_constant(150).spec);
  EXPECT_EQ(kernel_stats().compiled, before.compiled + 2);
}

struct Mapping {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  std::string protection; // "r-xp"
};

std::vector<Mapping> list_mappings() {
  std::ifstream file("/proc/self/maps");
  std::vector<Mapping> mappings;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Mapping m;
    char dash = 0;
    words >> std::hex >> m.begin >> dash >> m.end >> m.protection;
    mappings.push_back(m);
  }
  return mappings;
}

std::string protection_of(KernelFn fn) {
  auto address = reinterpret_cast<uintptr_t>(fn);
  for (const Mapping& m : list_mappings()) {
    if (m.begin <= address && address < m.end) {
      return m.protection;
    }
  }
  return "";
}

// More than vm.max_map_count, 65530 mostly, would let live at two mappings each.
TEST(LinkedKernels, ManyTakeFewMappings) {
  constexpr int kCount = 35000;
  std::string object = kernel_compiler().compile(add_constant(1).spec, "kernel");
  size_t before = list_mappings().size();
  std::vector<LinkedKernel> codes(kCount);
  auto link_all = [&](int first, int stride) {
    for (int i = first; i < kCount; i += stride) {
      codes[i] = kernel_compiler().link(object, "kernel");
    }
  };
  link_all(0, 1);
  EXPECT_LT(list_mappings().size(), before + 100);
  for (int i = 0; i < kCount; i += 2) {
    codes[i] = {};
  }
  EXPECT_LT(list_mappings().size(), before + 100) << "also with holes";
  link_all(0, 2);
  EXPECT_LT(list_mappings().size(), before + 100);
  EXPECT_EQ(protection_of(codes[0].fn), "r-xp");
  EXPECT_EQ(protection_of(codes[kCount - 1].fn), "r-xp");
  std::set<KernelFn> places;
  for (const auto& code : codes) {
    std::vector<float> v(16, 1);
    void* buffers[] = {v.data(), v.data()};
    code.fn(buffers, nullptr, 0, 16);
    ASSERT_EQ(v[7], 2);
    places.insert(code.fn);
  }
  EXPECT_EQ(places.size(), size_t{kCount});
}

TEST(CompiledObjectTest, IsTheSameWhateverWasCompiledBefore) {
  SpecBuilder b(KernelForm::kRow, {9}, {}, 70);
  int e = b.op(Prim::kExp, {b.load(DType::F32, b.dense())});
  b.store(b.op(Prim::kDiv, {e, b.op(Prim::kReduceSum, {e})}), DType::F32, b.dense());
  const std::string first = kernel_compiler().compile(b.spec, "kernel");
  kernel_compiler().compile(add_constant(1).spec, "kernel");
  EXPECT_EQ(kernel_compiler().compile(b.spec, "kernel"), first);
  std::string beside[2]; // at once, so that one of the threads makes a compiler of its own
  {
    std::jthread thread([&] { beside[0] = kernel_compiler().compile(b.spec, "kernel"); });
    beside[1] = kernel_compiler().compile(b.spec, "kernel");
  }
  EXPECT_EQ(beside[0], first);
  EXPECT_EQ(beside[1], first);
}

TEST(LinkedKernels, DamagedObjectsAreExceptions) {
  std::string object = kernel_compiler().compile(add_constant(1).spec, "kernel");
  EXPECT_THROW(kernel_compiler().link(object, "other"), InternalError);
  EXPECT_THROW(kernel_compiler().link(object.substr(0, 20), "kernel"), InternalError);
  EXPECT_THROW(kernel_compiler().link("", "kernel"), InternalError);
}

TEST(KernelCache, Threads) {
  KernelStats before = kernel_stats();
  std::vector<Kernel> owned[4];
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&owned = owned[t]] {
      for (int i = 0; i < 10; ++i) {
        std::vector<float> v(16, 1);
        owned.push_back(compile_kernel(add_constant(200 + i).spec));
        add_constant(200 + i).run_once({v.data(), v.data()});
        EXPECT_EQ(v[3], 201 + i);
      }
    });
  }
  for (auto& t : threads) {
    t.join();
  }
  EXPECT_EQ(kernel_stats().compiled, before.compiled + 10);
}

// Runs a kernel in a process of its own, as this one would have it in memory afterwards; true if the counts are as said.
bool runs_in_child(const std::string& dir, int64_t compiled, int64_t hits) {
  pid_t child = fork();
  if (child == 0) {
    KernelStats before = kernel_stats();
    set_kernel_cache_dir(dir);
    std::vector<float> v(16, 1);
    add_constant(4711).run_once({v.data(), v.data()});
    KernelStats after = kernel_stats();
    _exit(v[0] == 4712 && after.compiled - before.compiled == compiled && after.disk_hits - before.disk_hits == hits ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void overwrite(const std::filesystem::path& file, const std::string& bytes, int64_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(at, at < 0 ? std::ios::end : std::ios::beg);
  stream << bytes;
}

TEST(KernelCache, Disk) {
  std::string dir = testing::TempDir() + "/xla_kernel_cache_" + std::to_string(getpid()) + "/a";
  EXPECT_TRUE(runs_in_child(dir, 1, 0));
  EXPECT_TRUE(runs_in_child(dir, 0, 1));
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    file = entry.path().extension() == ".o" ? entry.path() : file;
  }
  struct stat info;
  ASSERT_EQ(stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(dir.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  overwrite(file, "damage", -10);
  EXPECT_TRUE(runs_in_child(dir, 1, 0)) << "a damaged file is a miss, and is replaced";
  EXPECT_TRUE(runs_in_child(dir, 0, 1));
  std::filesystem::resize_file(file, 100);
  EXPECT_TRUE(runs_in_child(dir, 1, 0)) << "so is a short one";
  EXPECT_TRUE(runs_in_child("/proc/none", 1, 0)) << "a directory that cannot be written is no error";
  std::filesystem::remove_all(std::filesystem::path(dir).parent_path());
}

TEST(KernelCompilerTest, RefusesToServeOtherSources) {
  kernel_compiler();
  void* library = dlopen("libtorch_xla_compiler.so", RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  auto* get = reinterpret_cast<GetKernelCompiler*>(dlsym(library, kGetKernelCompiler));
  ASSERT_NE(get, nullptr);
  EXPECT_EQ(get("of another build"), nullptr);
  dlclose(library);
}

TEST(KernelErrors, AreExceptions) {
  SpecBuilder k(KernelForm::kPointwise, {}, {}, 16);
  int x = k.load(DType::F32, k.dense());
  k.store(k.op(Prim::kShl, {x, x}), DType::F32, k.dense());
  EXPECT_THROW(compile_kernel(k.spec), InternalError);
  EXPECT_THROW(compile_kernel(k.spec), InternalError) << "also the second time";
}

// LLVM would end the process on these.
TEST(KernelErrors, TypesThatDoNotFit) {
  using Body = std::function<void(SpecBuilder&, int x, int i)>;
  auto expect_refusal = [](const char* what, const Body& body) {
    SpecBuilder k(KernelForm::kPointwise, {}, {}, 16);
    int x = k.load(DType::F32, k.dense());
    body(k, x, k.load(DType::I32, k.dense()));
    EXPECT_THROW(compile_kernel(k.spec), InternalError) << what;
  };
  expect_refusal("operands", [](auto& k, int x, int i) { k.store(k.op(Prim::kAdd, {x, i}), DType::F32, k.dense()); });
  expect_refusal("result", [](auto& k, int x, int) { k.store(k.op(Prim::kAbs, {x}, DType::I32), DType::I32, k.dense()); });
  expect_refusal("bits of floats", [](auto& k, int x, int) { k.store(k.op(Prim::kNot, {x}), DType::F32, k.dense()); });
  expect_refusal("sine of integers", [](auto& k, int, int i) { k.store(k.op(Prim::kSin, {i}), DType::I32, k.dense()); });
  expect_refusal("store", [](auto& k, int x, int) { k.store(x, DType::F64, k.dense()); });
  expect_refusal("predicate", [](auto& k, int x, int i) { k.store(k.op(Prim::kSelect, {i, x, x}), DType::F32, k.dense()); });
  expect_refusal("seed", [](auto& k, int x, int) { k.store(k.random(x, x, k.dense(), 0), DType::I32, k.dense()); });
  expect_refusal("later operand", [](auto& k, int x, int) {
    int sum = k.op(Prim::kAdd, {x, x});
    k.spec.body[sum].args[1] = sum;
    k.store(sum, DType::F32, k.dense());
  });
}

TEST(KernelListingTest, HasIrAndAssembly) {
  KernelListing listing = list_kernel(add_constant(1).spec);
  EXPECT_NE(listing.llvm_ir.find("define void @kernel"), std::string::npos);
  EXPECT_NE(listing.assembly.find("kernel:"), std::string::npos);
}

} // namespace

} // namespace torch_xla::cpu
