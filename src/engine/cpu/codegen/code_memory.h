// Memory for the code of kernels: pages of large slabs, so that any number of kernels takes few of the process's mappings.
#pragma once

#include <cstddef>

namespace torch_xla::cpu {

// Whole pages, never writable and executable at once. Freed with the object; the slabs stay for the next kernels.
class CodePages {
 public:
  // Writable. Throws UserError (OutOfMemory) where the system has no more memory or mappings.
  explicit CodePages(size_t bytes);
  ~CodePages();
  CodePages(const CodePages&) = delete;
  CodePages& operator=(const CodePages&) = delete;

  char* data() const {
    return data_;
  }
  // From here on the code can run, and cannot be written. Throws as the constructor.
  void seal();

 private:
  char* data_;
  size_t bytes_; // of whole pages
};

} // namespace torch_xla::cpu
