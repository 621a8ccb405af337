// Values as bytes and back, for files of this build: one list of a type's members serves both directions.
//
// A type takes part by a function `fields(archive, value)` in its namespace that names its members once: archive(value.a, value.b). Numbers
// and enumerations keep their layout in memory, so only the build and the machine that wrote a file can read it.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/errors.h"
#include "core/hash.h"
#include "core/inline_vec.h"

namespace torch_xla {

namespace detail {

template <typename T>
constexpr bool is_plain = (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) || std::is_enum_v<T>;

} // namespace detail

// Appends values to bytes.
class Writer {
 public:
  template <typename... Ts>
  void operator()(const Ts&... values) {
    (write(values), ...);
  }
  std::string take() {
    return std::move(bytes_);
  }

 private:
  template <typename T>
  void write(const T& value) {
    if constexpr (detail::is_plain<T>) {
      append(&value, sizeof(T));
    } else {
      fields(*this, const_cast<T&>(value)); // fields() only reads the value here
    }
  }
  void write(bool value) {
    bytes_.push_back(value ? 1 : 0);
  }
  void write(std::monostate) {}
  void write(const std::complex<double>& value) {
    (*this)(value.real(), value.imag());
  }
  void write(const std::string& value) {
    write_size(value.size());
    append(value.data(), value.size());
  }
  void write(std::string_view value) {
    write_size(value.size());
    append(value.data(), value.size());
  }
  void write(const Hash128& value) {
    (*this)(value.lo, value.hi);
  }
  template <typename T>
  void write(const std::vector<T>& list) {
    write_list(list);
  }
  void write(const std::vector<bool>& list) {
    write_size(list.size());
    for (bool element : list) {
      write(element);
    }
  }
  template <typename T, uint32_t N>
  void write(const InlineVec<T, N>& list) {
    write_list(list);
  }
  template <typename T, typename U>
  void write(const std::pair<T, U>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <typename... Ts>
  void write(const std::variant<Ts...>& value) {
    write(static_cast<uint8_t>(value.index()));
    std::visit([this](const auto& held) { write(held); }, value);
  }

  void write_size(size_t size) {
    write(static_cast<uint64_t>(size));
  }
  template <typename List>
  void write_list(const List& list) {
    using T = typename std::decay_t<decltype(*list.begin())>;
    write_size(list.size());
    if constexpr (detail::is_plain<T>) {
      append(list.data(), list.size() * sizeof(T));
    } else {
      for (const auto& element : list) {
        write(static_cast<const T&>(element));
      }
    }
  }
  void append(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
  }

  std::string bytes_;
};

// Reads what a Writer has written, in the same order. Throws InternalError where the bytes end early or cannot be a value of the type.
class Reader {
 public:
  // The bytes live as long as the reader.
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <typename... Ts>
  void operator()(Ts&... values) {
    (read(values), ...);
  }
  // Throws if bytes are left.
  void finish() const {
    XLA_ASSERT(rest_.empty(), rest_.size(), " bytes too many");
  }

 private:
  template <typename T>
  void read(T& value) {
    if constexpr (detail::is_plain<T>) {
      std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    } else {
      fields(*this, value);
    }
  }
  void read(bool& value) {
    value = take(1)[0] != 0;
  }
  void read(std::monostate&) {}
  void read(std::complex<double>& value) {
    double real = 0, imaginary = 0;
    (*this)(real, imaginary);
    value = {real, imaginary};
  }
  void read(std::string& value) {
    value = take(read_size(1));
  }
  void read(Hash128& value) {
    (*this)(value.lo, value.hi);
  }
  template <typename T>
  void read(std::vector<T>& list) {
    read_list(list);
  }
  void read(std::vector<bool>& list) {
    list.resize(read_size(1));
    for (size_t i = 0; i < list.size(); ++i) {
      list[i] = take(1)[0] != 0;
    }
  }
  template <typename T, uint32_t N>
  void read(InlineVec<T, N>& list) {
    read_list(list);
  }
  template <typename T, typename U>
  void read(std::pair<T, U>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <typename... Ts>
  void read(std::variant<Ts...>& value) {
    uint8_t index = 0;
    read(index);
    XLA_ASSERT(index < sizeof...(Ts), "alternative ", int{index});
    read_alternative(value, index, std::index_sequence_for<Ts...>());
  }
  template <typename Variant, size_t... Is>
  void read_alternative(Variant& value, size_t index, std::index_sequence<Is...>) {
    ((Is == index ? read(value.template emplace<Is>()) : void()), ...);
  }

  // The number of elements; `element`: the least bytes that one takes.
  size_t read_size(size_t element) {
    uint64_t size = 0;
    read(size);
    XLA_ASSERT(size <= rest_.size() / element, size, " elements in ", rest_.size(), " bytes");
    return static_cast<size_t>(size);
  }
  template <typename List>
  void read_list(List& list) {
    using T = typename std::decay_t<decltype(*list.begin())>;
    if constexpr (detail::is_plain<T>) {
      list.resize(read_size(sizeof(T)));
      if (!list.empty()) {
        std::memcpy(list.data(), take(list.size() * sizeof(T)).data(), list.size() * sizeof(T));
      }
    } else {
      const size_t size = read_size(1);
      list.clear();
      list.reserve(std::min(size, rest_.size() / sizeof(T))); // a wrong size must not allocate
      for (size_t i = 0; i < size; ++i) {
        T element{};
        read(element);
        list.push_back(std::move(element));
      }
    }
  }
  std::string_view take(size_t size) {
    XLA_ASSERT(size <= rest_.size(), "the bytes end early");
    std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
};

} // namespace torch_xla
