// Memory for the code of kernels: pages of large slabs, so that many kernels need few mappings of the process.
#pragma once

#include <cstddef>

namespace torch_xla::cpu {

// Whole pages, never writable and executable at once. The destructor frees them; the slabs stay for the next kernels.
class CodePages {
 public:
  // Writable. Throws UserError (OutOfMemory) if the system has no more memory or mappings.
  explicit CodePages(size_t bytes);
  ~CodePages();
  CodePages(const CodePages&) = delete;
  CodePages& operator=(const CodePages&) = delete;

  char* data() const {
    return data_;
  }
  // Makes the code executable and read-only. Throws as the constructor.
  void seal();

 private:
  char* data_;
  size_t bytes_; // of whole pages
};

} // namespace torch_xla::cpu
