// torchvision's operations: calls of its CPU kernels, with its own shape rules. Operations with a data-dependent number of boxes (nms) have
// no row.
#include "ops/row.h"
#include "ops/tables.h"

namespace torch_xla {
namespace {

constinit const Op kRows[] = {
    CALL_OF("torchvision::roi_align", kFloats, .traits = kOtherLibrary),
    CALL_OF("torchvision::_roi_align_backward", kFloats, .traits = kOtherLibrary),
    CALL_OF("torchvision::ps_roi_align", kFloats, .traits = kOtherLibrary),
    CALL_OF("torchvision::_ps_roi_align_backward", kFloats, .traits = kOtherLibrary),
    CALL_OF("torchvision::roi_pool", kFloats, .traits = kOtherLibrary),
    CALL_OF("torchvision::_roi_pool_backward", kFloats, .traits = kOtherLibrary),
    CALL_OF("torchvision::ps_roi_pool", kFloats, .traits = kOtherLibrary),
    CALL_OF("torchvision::_ps_roi_pool_backward", kFloats, .traits = kOtherLibrary),
    CALL_OF("torchvision::deform_conv2d", kFloats, .traits = kOtherLibrary),
    CALL_OF("torchvision::_deform_conv2d_backward", kFloats, .traits = kOtherLibrary),
};

} // namespace

std::span<const Op> torchvision_ops() {
  return kRows;
}

} // namespace torch_xla
