// Cursor: reads characters, words, types and attributes of the text form.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace torch_xla {

class Cursor {
 public:
  explicit Cursor(const std::string& text) : text_(text) {}

  // Throws UserError(Value) that names line and column.
  [[noreturn]] void fail(const std::string& what) const;
  // Skips spaces, line ends and comments (// to the end of the line). The next character, '\0' at the end.
  char peek();
  bool accept(char c);
  void expect(char c);
  bool accept_word(std::string_view word);
  void expect_word(std::string_view word);
  // Letters, digits and the signs of names and numbers; may be empty.
  std::string word();
  int64_t size() const { // of the whole text
    return static_cast<int64_t>(text_.size());
  }
  // The next character, without skipping.
  char raw();

 private:
  const std::string& text_;
  size_t at_ = 0;
};

int64_t parse_int(Cursor& in, const std::string& word);
Attr parse_plain_attr(Cursor& in); // no computation
DType parse_dtype(Cursor& in);
Dims parse_dims(Cursor& in, char open, char close); // "[2,3]"
// An attribute of any kind, with the rows that the look-up knows.
Attr parse_attr(Cursor& in, FindOp find_op);

} // namespace torch_xla
