// Text: builds MLIR text, one operation a line in the generic form, and Hlo, a handle of one of its values. HloText (hlo_text.h) writes the
// same operations as HLO.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/precision.h"
#include "ir/sharding.h"
#include "ir/type.h"
#include "stablehlo/shardy.h"
#include "stablehlo/target.h"

namespace torch_xla::stablehlo {

class Text;
struct Rearranged;

// A value of the text. Valid while its Text lives; cheap to copy.
class Hlo {
 public:
  Hlo() = default;
  Hlo(Text* text, std::string name, Type type) : text_(text), name_(std::move(name)), type_(std::move(type)) {}

  // The same value, with what it was made of.
  Hlo made_of(Rearranged source) const;
  // Null unless reshape() or transpose() made it.
  const Rearranged* source() const {
    return source_.get();
  }

  Text& text() const {
    return *text_;
  }
  const std::string& name() const {
    return name_;
  }
  const Type& type() const {
    return type_;
  }
  DType dtype() const {
    return type_.dtype;
  }
  const Dims& dims() const {
    return type_.dims;
  }
  int64_t dim(size_t i) const {
    return type_.dims[i];
  }
  size_t rank() const {
    return type_.dims.size();
  }

 private:
  Text* text_ = nullptr;
  std::string name_; // "%7" or "%7#1"
  Type type_;
  std::shared_ptr<const Rearranged> source_;
};

// The operand of a reshape or a transpose.
struct Rearranged {
  Hlo operand;
  Dims order; // of the transpose's dims; empty: a reshape
};

using Hlos = std::vector<Hlo>;

// A block of an operation: gets its arguments, returns its results.
struct Region {
  std::vector<Type> arguments;
  std::function<Hlos(const Hlos& arguments)> body;
};

struct Attribute {
  const char* name;
  std::string value;
};
using Attributes = std::vector<Attribute>;

class Text {
 public:
  // The precision of float32 products and convolutions.
  Text(Precision::Level products, Precision::Level convolutions, StableHloTarget target, Dims device_order = {0})
      : products(products), convolutions(convolutions), target(target), shardy_(std::move(device_order)) {}
  virtual ~Text() = default;
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  // Appends "stablehlo.<name>" or, where the name has a dot, that operation of another dialect.
  virtual Hlos op(
      const std::string& name,
      const Hlos& operands,
      const Attributes& attributes,
      const std::vector<Type>& results,
      const std::vector<Region>& regions = {});
  Hlo op(const std::string& name, const Hlos& operands, const Attributes& attributes, Type result);
  // Appends a stablehlo.composite whose decomposition, a function of its own, has this body.
  virtual Hlos composite(
      const std::string& name,
      const Hlos& operands,
      const std::string& attributes, // a dictionary; empty: none
      const std::vector<Type>& results,
      const std::function<Hlos(const Hlos& arguments)>& body);
  // A 0-d constant, or one with equal elements. Floating numbers must be exact in the type; integers are given as int64.
  Hlo constant(double v, const Type& type);
  Hlo constant_int(int64_t v, const Type& type);
  // A constant with these row-major elements: integers for I64 or I32, numbers for a floating type.
  Hlo table(const std::vector<int64_t>& elements, const Type& type);
  Hlo table(const std::vector<double>& elements, const Type& type);

  int64_t num_partitions() const {
    return shardy_.num_devices();
  }
  bool is_partitioned() const {
    return num_partitions() > 1;
  }
  // The partition on that device.
  int64_t partition_of(int64_t device) const {
    return shardy_.partition_of(device);
  }
  // A number for one more collective.
  int64_t next_channel() {
    return ++channels_;
  }
  // What each device computes on its own shards. Shardings are those of operands and results.
  struct ManualRegion {
    Region body;
    std::vector<Sharding> inputs;
    std::vector<Sharding> outputs;
  };
  // False: the shards are written among the values of all devices.
  virtual bool has_manual_regions() const {
    return is_partitioned();
  }
  Hlos manual_computation(const Hlos& operands, const ManualRegion& region, const std::vector<Type>& results);
  // The value in this sharding, as far as its dims are multiples of the tiles; in a program of one device the value itself.
  virtual Hlo constrain(const Hlo& x, const Sharding& sharding);

  // An argument of the function, numbered in order of the calls. A program of one device leaves out the sharding.
  virtual Hlo argument(const Type& type, const ShardingRef& sharding = nullptr);
  // The location of the following operations: a source line ("file:line") or another name; empty: unknown.
  void set_location(const std::string& location);
  // Appends func.return and gives the whole module. argument_attributes are parallel to the arguments. Shardings are parallel to the
  // results; nothing: the compiler chooses.
  virtual std::string finish(
      const Hlos& results,
      const std::vector<std::string>& argument_attributes,
      std::span<const std::optional<ShardingRef>> result_shardings = {});

  const Precision::Level products;
  const Precision::Level convolutions;
  const StableHloTarget target;

 protected:
  // `elements`: one for all, or nested in brackets; empty for no elements.
  virtual Hlo constant_text(const std::string& elements, const Type& type);
  // A number that the type holds exactly.
  virtual std::string float_text(double v, DType dtype) const;
  // The argument of the last set_location().
  const std::string& location() const;

 private:
  Hlo plain_op(const std::string& name, const Hlos& operands, const Type& type);
  std::string next_name();
  void line(const std::string& text);
  void region(const Region& region, const char* terminator);
  std::string location_suffix() const;
  std::string add_function(
      const std::string& name, const std::vector<Type>& arguments, const std::function<Hlos(const Hlos& arguments)>& body);

  std::string sharding_attribute(const ShardingRef& sharding, const Type& type);

  Shardy shardy_;
  std::string body_;
  std::string functions_; // beside @main
  std::set<std::string> function_names_;
  int indent_ = 2;
  int next_ = 0;
  int64_t channels_ = 0;
  std::vector<Type> arguments_;
  std::vector<std::string> argument_shardings_; // as attributes
  std::vector<std::string> locations_; // distinct ones
  std::unordered_map<std::string, int> location_index_;
  int location_ = -1;
};

// The text in quotation marks; a backslash before inner quotation marks and backslashes, control characters by their hexadecimal digits.
std::string quoted(const std::string& v);
// "file.py:12" as its two parts; another text as it is, with an empty second part.
std::pair<std::string, std::string> file_and_line(const std::string& location);

// ---- Parts of attributes ----

std::string tensor_text(const Type& type); // tensor<2x3xf32>
std::string list_text(const Dims& dims); // 0, 1
std::string array_text(const Dims& dims); // array<i64: 0, 1>
std::string pairs_text(const Dims& low, const Dims& high); // dense<[[0, 1], [0, 0]]> : tensor<2x2xi64>
std::string int_text(int64_t v); // 3 : i64
// Adds the precision of a product, if its operands are float32 and the device may not choose.
void add_precision(Attributes& attributes, Precision::Level level, DType dtype);

} // namespace torch_xla::stablehlo
