// The list of all op tables.
#include "ops/tables.h"

#include <array>

namespace torch_xla {

std::span<const std::span<const Op>> op_tables() {
  static const std::array tables{
      unary_ops(),  binary_ops(),  activation_ops(), reduce_ops(),        order_ops(),     softmax_ops(),  norm_ops(),
      loss_ops(),   matmul_ops(),  conv_ops(),       interpolation_ops(), pad_ops(),       index_ops(),    join_ops(),
      random_ops(), create_ops(),  rnn_ops(),        attention_ops(),     optimizer_ops(), quantize_ops(), special_ops(),
      linalg_ops(), complex_ops(), bag_ops(),        collective_ops(),    control_ops(),   shard_ops(),    torchvision_ops(),
  };
  return tables;
}

} // namespace torch_xla
