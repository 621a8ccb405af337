// Cursor: the characters and words of the text form, and the readers of what graphs are made of.
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
  // The next character that counts, '\0' at the end. Passes over spaces, line ends and comments from // to the end of the line.
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
  // The next character as it is.
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
