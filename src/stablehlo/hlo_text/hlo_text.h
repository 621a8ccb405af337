// HloText: the operations as the text of an HLO module, which XLA's tools read. Blocks become computations, several results a tuple, and an
// operation missing in HLO a custom call with its name.
#pragma once

#include <map>

#include "stablehlo/text.h"

namespace torch_xla::stablehlo {

class HloText final : public Text {
 public:
  using Text::op;
  using Text::Text;
  Hlos op(
      const std::string& name,
      const Hlos& operands,
      const Attributes& attributes,
      const std::vector<Type>& results,
      const std::vector<Region>& regions) override;
  // HLO has no composites: the body stands in the place of the operation.
  Hlos composite(
      const std::string& name,
      const Hlos& operands,
      const std::string& attributes,
      const std::vector<Type>& results,
      const std::function<Hlos(const Hlos& arguments)>& body) override;
  Hlo constrain(const Hlo& x, const Sharding& sharding) override;
  bool has_manual_regions() const override {
    return false;
  }
  Hlo argument(const Type& type, const ShardingRef& sharding = nullptr) override;
  std::string finish(
      const Hlos& results,
      const std::vector<std::string>& argument_attributes,
      std::span<const std::optional<ShardingRef>> result_shardings = {}) override;

 private:
  struct Computation {
    std::vector<std::string> lines;
    std::map<std::string, size_t> line_of; // line by value name
    std::vector<std::string> parameters; // name and shape
    std::string root;
    std::string result; // its shape
  };

  Hlo constant_text(const std::string& elements, const Type& type) override;
  std::string float_text(double v, DType dtype) const override;

  std::string next_name(const std::string& opcode);
  // Appends an instruction, gives its name.
  std::string instruction(const std::string& shape, const std::string& opcode, const std::string& arguments, const std::string& attributes);
  std::string instruction(const Type& type, const std::string& opcode, const Hlos& operands, const std::string& attributes);
  // A tuple of the operands, with shape and name.
  std::string tuple(const Hlos& operands);
  Hlos elements_of(const std::string& tuple, const std::vector<Type>& types);
  Hlos parameters(const std::vector<Type>& types);
  void set_root(const std::string& name, const std::string& shape);
  std::string broadcast(const Hlo& x, const Type& result, const Dims& mapping);
  // Gives the computation's name.
  std::string region(const Region& region, bool takes_tuple, bool gives_tuple);
  std::string text_of(const Computation& computation, const std::string& name) const;

  Computation current_;
  std::string computations_; // the complete ones
  std::map<std::string, int> numbers_; // the last one by opcode
};

} // namespace torch_xla::stablehlo
