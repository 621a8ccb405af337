// A program that loads the library while it runs: ./loaded PATH-OF-LIBTORCH_XLA
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "check.h"

namespace {

void load(const std::string& path) {
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    ++num_failed;
  }
}

void test_device() {
  at::Tensor x = at::ones({2}, c10::Device("xla"));
  EXPECT(at::equal((x + x).cpu(), at::full({2}, 2.0F)));
}

} // namespace

int main(int, char** argv) {
  EXPECT(c10::Device("xla").type() != c10::kPrivateUse1);
  load(argv[1]);
  test_device();
  load(argv[1]);
  test_device();
  // Another copy, as of a second installation, is told of and changes nothing.
  const std::filesystem::path copy = std::filesystem::temp_directory_path() / ("libtorch_xla_copy_" + std::to_string(getpid()) + ".so");
  std::filesystem::copy_file(argv[1], copy);
  load(copy);
  std::filesystem::remove(copy);
  test_device();
  return failures();
}
