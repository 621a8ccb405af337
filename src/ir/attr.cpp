// Hash and text form of attributes.
#include "ir/attr.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "ir/computation.h"

namespace torch_xla {
namespace {

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

uint64_t double_bits(double v) {
  uint64_t bits;
  std::memcpy(&bits, &v, sizeof(bits));
  return bits;
}

std::string double_text(double v) {
  if (!std::isfinite(v)) {
    const char* text = std::isnan(v) ? "nan" : "inf";
    return std::signbit(v) ? std::string("-") + text : text;
  }
  char text[40];
  std::snprintf(text, sizeof(text), "%a", v);
  return text;
}

std::string string_text(const std::string& v) {
  std::string text = "\"";
  for (char c : v) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[5];
      std::snprintf(code, sizeof(code), "\\x%02x", static_cast<unsigned char>(c));
      text += code;
    } else {
      text += c;
    }
  }
  return text + '"';
}

std::string element_text(int64_t v) {
  return std::to_string(v);
}
std::string element_text(double v) {
  return double_text(v);
}
std::string element_text(bool v) {
  return v ? "true" : "false";
}

std::string computation_text(const Computation& v) {
  std::string text = print_graph(v.graph);
  text.pop_back(); // its last line's end
  return text;
}

// An empty list does not show its kind by its elements: `empty` does.
template <typename List>
std::string list_text(const List& list, const char* empty) {
  if (list.empty()) {
    return empty;
  }
  std::string text;
  for (typename List::value_type v : list) {
    text += (text.empty() ? "[" : ", ") + element_text(v);
  }
  return text + "]";
}

} // namespace

void hash_attr(const Attr& attr, Hash128& hash) {
  hash.add(attr.index());
  std::visit(
      Overloaded{
          [](std::monostate) {},
          [&](bool v) { hash.add(v); },
          [&](int64_t v) { hash.add(static_cast<uint64_t>(v)); },
          [&](double v) { hash.add(double_bits(v)); },
          [&](std::complex<double> v) {
            hash.add(double_bits(v.real()));
            hash.add(double_bits(v.imag()));
          },
          [&](const Dims& v) { hash.add_bytes(v.data(), v.size() * sizeof(int64_t)); },
          [&](const std::vector<double>& v) { hash.add_bytes(v.data(), v.size() * sizeof(double)); },
          [&](const std::vector<bool>& v) {
            hash.add(v.size());
            for (bool b : v) {
              hash.add(b);
            }
          },
          [&](const std::string& v) { hash.add_bytes(v.data(), v.size()); },
          [&](const ComputationRef& v) { hash.add(v->hash); },
      },
      attr);
}

std::string attr_text(const Attr& attr) {
  return std::visit(
      Overloaded{
          [](std::monostate) { return std::string("none"); },
          [](bool v) { return element_text(v); },
          [](int64_t v) { return element_text(v); },
          [](double v) { return double_text(v); },
          [](std::complex<double> v) { return "(" + double_text(v.real()) + ", " + double_text(v.imag()) + ")"; },
          [](const Dims& v) { return list_text(v, "[]"); },
          [](const std::vector<double>& v) { return list_text(v, "[f64]"); },
          [](const std::vector<bool>& v) { return list_text(v, "[pred]"); },
          [](const std::string& v) { return string_text(v); },
          [](const ComputationRef& v) { return computation_text(*v); },
      },
      attr);
}

} // namespace torch_xla
