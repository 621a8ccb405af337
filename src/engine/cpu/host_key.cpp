// Asks the processor as LLVM does, and keeps the answers as they are.
#include "engine/cpu/host_key.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <cstdint>

#include "core/hash.h"

namespace torch_xla::cpu {
namespace {

#ifdef __x86_64__
enum Register : unsigned { kEax = 1, kEbx = 2, kEcx = 4, kEdx = 8 };

// The leaves that LLVM reads (TargetParser/Host.cpp); the others differ by the core that runs this.
constexpr struct {
  unsigned leaf, subleaf, registers;
} kLeaves[] = {
    {0x0, 0, kEbx | kEcx | kEdx}, // the vendor
    {0x1, 0, kEax | kEcx | kEdx},
    {0x7, 0, kEbx | kEcx | kEdx},
    {0x7, 1, kEax | kEbx | kEcx | kEdx},
    {0xd, 1, kEax},
    {0x14, 0, kEbx},
    {0x19, 0, kEbx},
    {0x24, 0, kEbx},
    {0x80000001, 0, kEcx | kEdx},
    {0x80000008, 0, kEbx},
};

void add_processor(Hash128& hash) {
  bool saves_registers = false;
  for (const auto& [leaf, subleaf, registers] : kLeaves) {
    unsigned answers[4] = {};
    __get_cpuid_count(leaf, subleaf, &answers[0], &answers[1], &answers[2], &answers[3]);
    for (unsigned i = 0; i < 4; ++i) {
      hash.add(registers >> i & 1 ? answers[i] : 0);
    }
    saves_registers |= leaf == 1 && (answers[2] & bit_OSXSAVE) != 0;
  }
  if (saves_registers) { // the registers that the system saves
    uint32_t low = 0;
    uint32_t high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    hash.add(low);
    hash.add(high);
  }
}
#else
void add_processor(Hash128& hash) {
  for (unsigned long what : {AT_HWCAP, AT_HWCAP2}) {
    hash.add(getauxval(what));
  }
}
#endif

} // namespace

bool has_sleef() {
  void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return torch && dlsym(torch, "Sleef_powf16_u10");
}

std::string host_key() {
  Hash128 hash;
  add_processor(hash);
  hash.add(has_sleef());
  return hash.hex();
}

} // namespace torch_xla::cpu
