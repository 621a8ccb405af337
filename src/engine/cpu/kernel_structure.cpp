// Lists the numbers of kernels and keeps their values in the first program of each structure.
#include "engine/cpu/kernel_structure.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "engine/cpu/cost.h"

namespace torch_xla::cpu {
namespace {

using Kind = KernelArgument::Kind;

struct Number {
  Kind kind;
  int32_t at;
  int64_t value;
  bool free = false; // an argument from the first program on
};

// `Spec` may be const.
template <typename Spec, typename Use>
void for_each_stride(Spec& spec, size_t loop, Use use) {
  for (auto& buffer : spec.buffers) {
    use(buffer.strides[loop]);
  }
  for (auto& strides : spec.indices) {
    use(strides[loop]);
  }
}

// Whether the extent of a loop is an argument from the first program on, as a constant does not help the code: the outermost loop, which
// gets its units from outside, and mid loops. Not inner loops, which may need no remainder, and not other outer loops, which divide the
// units by their extents.
bool has_free_extent(const KernelSpec& spec, size_t loop) {
  bool inner = loop + 1 == spec.num_loops();
  bool counts_units = loop == 0 && (!spec.outer.empty() || spec.form == KernelForm::kPointwise);
  return counts_units || (loop >= spec.outer.size() && !inner);
}

// Whether the extent of a mid loop determines the strides: for loops outside of the last one.
bool has_free_strides(const KernelSpec& spec, size_t loop) {
  return !spec.mid.empty() && loop + 2 < spec.num_loops();
}

// Strides of 0 and 1 and back are other instructions; loops of one iteration or none are no loops.
void list_loop_numbers(const KernelSpec& spec, size_t loop, std::vector<Number>& numbers) {
  auto at = static_cast<int32_t>(loop);
  if (spec.extent(loop) > 1) {
    numbers.push_back({Kind::kExtent, at, spec.extent(loop), has_free_extent(spec, loop)});
  }
  size_t first = numbers.size();
  for_each_stride(spec, loop, [&](int64_t stride) {
    auto same = [&](const Number& number) { return number.value == stride; };
    if ((stride > 1 || stride < -1) && std::none_of(numbers.begin() + static_cast<ptrdiff_t>(first), numbers.end(), same)) {
      numbers.push_back({Kind::kStride, at, stride, has_free_strides(spec, loop)});
    }
  });
}

// A power with some constants is another function: a square, a root.
std::vector<bool> find_powers(const KernelSpec& spec) {
  std::vector<bool> of_power(spec.body.size());
  for (const Instr& instr : spec.body) {
    for (size_t i = 0; instr.prim == Prim::kPow && i < instr.args.size(); ++i) {
      of_power[static_cast<size_t>(instr.args[i])] = true;
    }
  }
  return of_power;
}

std::vector<Number> list_numbers(const KernelSpec& spec) {
  std::vector<Number> numbers;
  std::vector<bool> of_power = find_powers(spec);
  for (size_t loop = 0; loop < spec.num_loops(); ++loop) {
    list_loop_numbers(spec, loop, numbers);
  }
  for (size_t i = 0; i < spec.body.size(); ++i) {
    if (spec.body[i].prim == Prim::kConstant && !of_power[i]) {
      numbers.push_back({Kind::kConstant, static_cast<int32_t>(i), static_cast<int64_t>(spec.body[i].imm)});
    }
  }
  return numbers;
}

std::span<const int64_t> bounds_of(const KernelSpec& spec, size_t loop) {
  if (loop + 1 < spec.num_loops()) {
    return kMidBounds;
  }
  switch (spec.form) {
    case KernelForm::kPointwise:
      return kElementBounds;
    case KernelForm::kRow:
      return kRowBounds;
    case KernelForm::kColumn:
      return kColumnBounds;
  }
  return {};
}

// Stands for outer extents whose product is below kManyRows.
constexpr int64_t kFewRows = 2;

// The bound that the code uses in place of the extent in all decisions.
int64_t bound_of(const KernelSpec& spec, size_t loop, int64_t extent) {
  if (loop < spec.outer.size()) {
    return spec.units() < kManyRows ? kFewRows : kManyRows;
  }
  std::span<const int64_t> bounds = bounds_of(spec, loop);
  auto bound = std::lower_bound(bounds.begin(), bounds.end(), extent);
  return bound == bounds.end() ? kAnyExtent : *bound;
}

// Different ones stand for different strides of a loop.
constexpr int64_t kFirstStandIn = int64_t{1} << 40;

ChosenKernel replace_numbers(const KernelSpec& spec, const std::vector<Number>& numbers, const std::vector<bool>& varies, bool bounded) {
  ChosenKernel chosen{spec, {}, {}};
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!varies[i]) {
      continue;
    }
    const Number& number = numbers[i];
    auto loop = static_cast<size_t>(number.at);
    int64_t stands = 0;
    switch (number.kind) {
      case Kind::kExtent:
        stands = bounded ? bound_of(spec, loop, number.value) : 0;
        chosen.spec.extent(loop) = stands;
        break;
      case Kind::kStride:
        stands = kFirstStandIn + static_cast<int64_t>(i);
        for_each_stride(chosen.spec, loop, [&](int64_t& stride) { stride = stride == number.value ? stands : stride; });
        break;
      case Kind::kConstant:
        chosen.spec.body[loop].imm = 0;
        break;
    }
    chosen.spec.arguments.push_back({number.kind, number.at, stands});
    chosen.arguments.push_back(static_cast<uint64_t>(number.value));
  }
  return chosen;
}

KernelNumbers find_numbers(const KernelSpec& spec, const std::vector<Number>& numbers) {
  KernelNumbers found;
  std::string text = replace_numbers(spec, numbers, std::vector<bool>(numbers.size(), true), /*bounded=*/false).spec.text();
  found.structure.add_bytes(text.data(), text.size());
  for (const Number& number : numbers) {
    found.values.push_back(number.value);
  }
  return found;
}

// What is known of the kernels of one structure.
struct Structure {
  uint64_t first_program = 0;
  std::vector<std::vector<int64_t>> values; // by number: those of the first program
  std::vector<bool> varies; // by number
  std::vector<bool> varied; // by number: it varies if an earlier process's numbers count
};

class Structures {
 public:
  static Structures& get() {
    static auto* structures = new Structures; // never destroyed, as programs may be compiled until the process ends
    return *structures;
  }

  uint64_t begin_program() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (structures_.size() > kMaxStructures) {
      structures_.clear(); // to be learned again
      suggested_.clear();
    }
    return ++num_programs_;
  }

  void add(uint64_t program, const KernelNumbers& numbers) {
    std::lock_guard<std::mutex> lock(mutex_);
    Structure& structure = structures_[numbers.structure];
    if (structure.first_program == 0) {
      begin(structure, program, numbers);
    }
    for (size_t i = 0; i < numbers.values.size(); ++i) {
      std::vector<int64_t>& known = structure.values[i];
      if (structure.varies[i] || std::find(known.begin(), known.end(), numbers.values[i]) != known.end()) {
        continue;
      }
      known.push_back(numbers.values[i]);
      structure.varies[i] = structure.first_program != program || known.size() > kMaxVariants;
    }
  }

  void suggest(const KernelNumbers& numbers) {
    std::lock_guard<std::mutex> lock(mutex_);
    suggested_.emplace(numbers.structure, numbers.values);
  }

  // Which of the numbers are arguments from now on; none if another thread's program has cleared the structures.
  std::vector<bool> find(const KernelNumbers& numbers) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = structures_.find(numbers.structure);
    return found == structures_.end() ? std::vector<bool>(numbers.values.size()) : found->second.varies;
  }
  // The same with the numbers of an earlier process; none if they change nothing.
  std::optional<std::vector<bool>> find_varied(const KernelNumbers& numbers) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = structures_.find(numbers.structure);
    return found == structures_.end() || found->second.varied.empty() ? std::nullopt : std::make_optional(found->second.varied);
  }

 private:
  void begin(Structure& structure, uint64_t program, const KernelNumbers& numbers) {
    structure.first_program = program;
    structure.values.resize(numbers.values.size());
    structure.varies.resize(numbers.values.size());
    auto earlier = suggested_.extract(numbers.structure);
    if (earlier && earlier.mapped() != numbers.values) {
      for (size_t i = 0; i < numbers.values.size(); ++i) {
        structure.varied.push_back(earlier.mapped().at(i) != numbers.values[i]);
      }
    }
  }

  std::mutex mutex_;
  std::unordered_map<Hash128, Structure> structures_; // guarded by mutex_
  std::unordered_map<Hash128, std::vector<int64_t>> suggested_; // values by structure; guarded by mutex_
  uint64_t num_programs_ = 0; // guarded by mutex_
};

ChosenKernel choose(const KernelSpec& spec, const std::vector<Number>& numbers, const KernelNumbers& found) {
  std::vector<bool> varies = Structures::get().find(found);
  for (size_t i = 0; i < numbers.size(); ++i) {
    varies[i] = varies[i] || numbers[i].free;
  }
  if (std::optional<std::vector<bool>> varied = Structures::get().find_varied(found)) {
    std::transform(varies.begin(), varies.end(), varied->begin(), varied->begin(), std::logical_or());
    ChosenKernel chosen = replace_numbers(spec, numbers, *varied, /*bounded=*/true);
    if (*varied != varies && has_kernel(chosen.spec)) {
      return chosen;
    }
  }
  return replace_numbers(spec, numbers, varies, /*bounded=*/true);
}

} // namespace

std::vector<ChosenKernel> choose_arguments(std::span<const KernelSpec* const> specs) {
  uint64_t program = Structures::get().begin_program();
  std::vector<std::vector<Number>> numbers;
  std::vector<KernelNumbers> found;
  for (const KernelSpec* spec : specs) {
    numbers.push_back(list_numbers(*spec));
    found.push_back(find_numbers(*spec, numbers.back()));
    Structures::get().add(program, found.back());
  }
  std::vector<ChosenKernel> kernels;
  for (size_t i = 0; i < specs.size(); ++i) {
    kernels.push_back(choose(*specs[i], numbers[i], found[i]));
    kernels.back().numbers = std::move(found[i]);
  }
  return kernels;
}

void suggest_numbers(std::span<const KernelNumbers* const> kernels) {
  for (const KernelNumbers* numbers : kernels) {
    Structures::get().suggest(*numbers);
  }
}

void remember_numbers(std::span<const KernelNumbers* const> kernels) {
  uint64_t program = Structures::get().begin_program();
  for (const KernelNumbers* numbers : kernels) {
    Structures::get().add(program, *numbers);
  }
}

ChosenKernel with_arguments(const KernelSpec& spec, bool all) {
  std::vector<Number> numbers = list_numbers(spec);
  ChosenKernel chosen = replace_numbers(spec, numbers, std::vector<bool>(numbers.size(), all), /*bounded=*/true);
  chosen.numbers = find_numbers(spec, numbers);
  return chosen;
}

} // namespace torch_xla::cpu
