// Engine: compiles a lowered graph to an executable and runs it. Nothing above this folder knows which engine runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/errors.h"
#include "ir/graph.h"

namespace torch_xla {

// Memory of one value on the engine's device. Immutable by contract once a run has filled it, except by donation.
class EngineBuffer {
 public:
  EngineBuffer(Type type, Dims strides) : type_(std::move(type)), strides_(std::move(strides)) {}
  virtual ~EngineBuffer() = default;
  EngineBuffer(const EngineBuffer&) = delete;
  EngineBuffer& operator=(const EngineBuffer&) = delete;

  const Type& type() const {
    return type_;
  }
  // Memory order in elements; covers the buffer densely.
  const Dims& strides() const {
    return strides_;
  }
  // Address of element 0, or null where the host cannot read the memory.
  virtual void* host_pointer() const = 0;
  // True when no other EngineBuffer shares the memory: only then may it be written in place.
  virtual bool sole_owner() const = 0;

 private:
  Type type_;
  Dims strides_;
};
using EngineBufferRef = std::shared_ptr<EngineBuffer>;

// Global switches of the recording thread that a run must see.
struct RunOptions {
  int threads = 0; // 0: the engine's own choice
  bool deterministic = false;
};

struct RunArgs {
  std::vector<EngineBufferRef> inputs; // parallel to Graph::parameters; the run drops each at its last use
  std::vector<bool> donated; // inputs[i] has no other reader: its memory may become an output's
  std::vector<uint64_t> scalars; // parallel to Graph::scalars: double or int64 bits
  RunOptions options;
  std::vector<EngineBufferRef> outputs; // filled by the run, parallel to Graph::outputs
};

// A step of a run failed; location() is its node's in the graph that was compiled.
class StepError : public UserError {
 public:
  StepError(ErrorKind kind, const std::string& what, int32_t location) : UserError(kind, what), location_(location) {}
  int32_t location() const {
    return location_;
  }

 private:
  int32_t location_;
};

class Executable {
 public:
  virtual ~Executable() = default;
  // Runs to the end on the calling thread (and the engine's pool). Throws UserError; then donated inputs may be lost, nothing else is.
  virtual void run(RunArgs& args) = 0;
  // Called on the thread that hands in a run, before the run starts: frees what that thread keeps of the engine's processors.
  virtual void prepare_caller() {}
  // Bytes of scratch memory a run needs beside inputs and outputs.
  virtual int64_t scratch_bytes() const = 0;
  // Steps in the order in which they run, for dumps.
  virtual std::string text() const = 0;
};

struct EngineMemoryInfo {
  int64_t bytes_used = 0; // held by live buffers
  int64_t bytes_limit = 0;
  int64_t peak_bytes_used = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Takes a lowered graph (primitives, views, library calls). Thread-safe.
  virtual std::shared_ptr<Executable> compile(Graph graph) = 0;
  // Uninitialized buffer with dense strides (empty: row-major). Throws UserError when memory is out.
  virtual EngineBufferRef allocate(const Type& type, const Dims& strides) = 0;
  // Wraps memory that the caller owns; `release` is called once, when the last user is gone.
  virtual EngineBufferRef adopt(const Type& type, const Dims& strides, void* data, std::function<void()> release) = 0;
  virtual EngineMemoryInfo memory_info() const = 0;
};

// The embedded CPU engine; never destroyed.
Engine& cpu_engine();

} // namespace torch_xla
