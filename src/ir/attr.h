// Attributes of nodes: the arguments of an operation that are not values.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/hash.h"
#include "core/inline_vec.h"

namespace torch_xla {

struct Computation; // ir/computation.h
using ComputationRef = std::shared_ptr<const Computation>;

// monostate stands for None, Dims for any list of integers. Enumerations (dtype, layout, memory format) are int64.
using Attr = std::variant<
    std::monostate,
    bool,
    int64_t,
    double,
    std::complex<double>,
    Dims,
    std::vector<double>,
    std::vector<bool>,
    std::string,
    ComputationRef>;
using Attrs = std::vector<Attr>;

void hash_attr(const Attr& attr, Hash128& hash);
// Text form: none, true, 3, 0x1.8p+1 (exact), (0x1p+0, 0x0p+0), [1, 2], "text"; for a computation its graph.
std::string attr_text(const Attr& attr);

} // namespace torch_xla
