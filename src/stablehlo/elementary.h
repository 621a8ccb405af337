// Functions of one floating number that StableHLO has no operation for, as formulas: CHLO's operations are for few compilers but XLA's.
#pragma once

#include "stablehlo/hlo.h"

namespace torch_xla::stablehlo {

Hlo asin(Hlo x);
Hlo acos(Hlo x);
Hlo atan(Hlo x);
Hlo sinh(Hlo x);
Hlo cosh(Hlo x);

} // namespace torch_xla::stablehlo
