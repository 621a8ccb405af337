// The lexical level of the text form.
#include "ir/cursor.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "core/errors.h"

namespace torch_xla {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || (c != '\0' && std::string_view("_.:+-").find(c) != std::string_view::npos);
}

} // namespace

void Cursor::fail(const std::string& what) const {
  size_t line = 1 + static_cast<size_t>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'));
  size_t start = at_ == 0 ? std::string::npos : text_.rfind('\n', at_ - 1);
  size_t column = start == std::string::npos ? at_ + 1 : at_ - start;
  throw UserError(ErrorKind::Value, str("line ", line, ", column ", column, ": ", what));
}

char Cursor::peek() {
  while (at_ < text_.size()) {
    if (text_.compare(at_, 2, "//") == 0) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
      ++at_;
    } else {
      return text_[at_];
    }
  }
  return '\0';
}

bool Cursor::accept(char c) {
  bool found = peek() == c;
  at_ += found;
  return found;
}

void Cursor::expect(char c) {
  if (!accept(c)) {
    fail(str("expected '", c, "'"));
  }
}

bool Cursor::accept_word(std::string_view word) {
  peek();
  size_t end = at_ + word.size();
  bool found = text_.compare(at_, word.size(), word) == 0 && (end >= text_.size() || !is_word(text_[end]));
  at_ += found ? word.size() : 0;
  return found;
}

void Cursor::expect_word(std::string_view word) {
  if (!accept_word(word)) {
    fail(str("expected '", word, "'"));
  }
}

std::string Cursor::word() {
  peek();
  size_t start = at_;
  while (at_ < text_.size() && is_word(text_[at_])) {
    ++at_;
  }
  return text_.substr(start, at_ - start);
}

char Cursor::raw() {
  if (at_ == text_.size()) {
    fail("the text ends inside a string");
  }
  return text_[at_++];
}

int64_t parse_int(Cursor& in, const std::string& word) {
  char* end = nullptr;
  int64_t v = std::strtoll(word.c_str(), &end, 10);
  if (word.empty() || *end) {
    in.fail("'" + word + "' is no integer");
  }
  return v;
}

namespace {

bool is_double_text(const std::string& word) {
  std::string_view body = word;
  if (!body.empty() && body[0] == '-') {
    body.remove_prefix(1);
  }
  return body == "inf" || body == "nan" || body.find_first_of("xp.") != std::string_view::npos;
}

double parse_double(Cursor& in, const std::string& word) {
  char* end = nullptr;
  double v = std::strtod(word.c_str(), &end);
  if (word.empty() || *end) {
    in.fail("'" + word + "' is no number");
  }
  return v;
}

std::string parse_string(Cursor& in) {
  in.expect('"');
  std::string text;
  for (char c = in.raw(); c != '"'; c = in.raw()) {
    if (c == '\\' && (c = in.raw()) == 'x') {
      char code[3] = {in.raw(), in.raw(), '\0'};
      c = static_cast<char>(std::strtol(code, nullptr, 16));
    }
    text += c;
  }
  return text;
}

std::complex<double> parse_complex(Cursor& in) {
  in.expect('(');
  double real = parse_double(in, in.word());
  in.expect(',');
  double imaginary = parse_double(in, in.word());
  in.expect(')');
  return {real, imaginary};
}

Attr parse_element(Cursor& in) {
  std::string word = in.word();
  if (word == "none") {
    return std::monostate();
  }
  if (word == "true" || word == "false") {
    return word == "true";
  }
  if (is_double_text(word)) {
    return parse_double(in, word);
  }
  return parse_int(in, word);
}

// The rest of a list after its first element, of the element's kind.
template <typename T>
std::vector<T> parse_list(Cursor& in, T first) {
  std::vector<T> list{first};
  while (in.accept(',')) {
    Attr next = parse_element(in);
    if (!std::holds_alternative<T>(next)) {
      in.fail("the list mixes kinds");
    }
    list.push_back(std::get<T>(next));
  }
  in.expect(']');
  return list;
}

Attr parse_list(Cursor& in) {
  in.expect('[');
  if (in.accept(']')) {
    return Dims();
  }
  if (in.accept_word("f64")) {
    in.expect(']');
    return std::vector<double>();
  }
  if (in.accept_word("pred")) {
    in.expect(']');
    return std::vector<bool>();
  }
  Attr first = parse_element(in);
  if (auto* i = std::get_if<int64_t>(&first)) {
    return parse_list(in, *i);
  }
  if (auto* d = std::get_if<double>(&first)) {
    return parse_list(in, *d);
  }
  if (auto* b = std::get_if<bool>(&first)) {
    return parse_list(in, *b);
  }
  in.fail("a list holds integers, doubles or flags");
}

} // namespace

Attr parse_plain_attr(Cursor& in) {
  if (in.peek() == '"') {
    return parse_string(in);
  }
  if (in.peek() == '(') {
    return parse_complex(in);
  }
  return in.peek() == '[' ? parse_list(in) : parse_element(in);
}

Dims parse_dims(Cursor& in, char open, char close) {
  Dims dims;
  in.expect(open);
  if (in.accept(close)) {
    return dims;
  }
  do {
    dims.push_back(parse_int(in, in.word()));
  } while (in.accept(','));
  in.expect(close);
  return dims;
}

DType parse_dtype(Cursor& in) {
  std::string name = in.word();
  DType dtype = find_dtype(name.data(), name.size());
  if (dtype == DType::Undefined && name != dtype_name(dtype)) {
    in.fail("'" + name + "' is no element type");
  }
  return dtype;
}

} // namespace torch_xla
