// torch.accelerator.Graph: capture and replay of a step on the current device.
#include <ATen/core/GraphImplInterface.h>

#include <fstream>

#include "device/device.h"
#include "replay/step_graph.h"
#include "trace/torch_errors.h"

namespace torch_xla {
namespace {

// Pools and modes of capture have no effect here: values have no addresses, and a capture ignores other threads.
class XlaGraph final : public at::GraphImplInterface {
 public:
  void capture_begin(at::MempoolId_t /*pool*/, at::GraphCaptureMode /*mode*/) override {
    with_torch_errors([this] { graph_.begin(current_device()); });
  }
  void capture_end() override {
    with_torch_errors([this] { graph_.end(); });
  }
  // The end of the capture has compiled it.
  void instantiate() override {
    TORCH_CHECK(graph_.is_captured(), "the graph has no step to instantiate: capture one first");
  }
  void replay() override {
    with_torch_errors([this] { graph_.replay(); });
  }
  void reset() override {
    with_torch_errors([this] { graph_.reset(); });
  }
  at::MempoolId_t pool() const override {
    return {0, 0};
  }
  void enable_debug_mode() override {}
  // Writes the recorded graph as text.
  void debug_dump(const std::string& path) override {
    std::ofstream file(path);
    file << graph_.text();
    TORCH_CHECK(file.good(), "cannot write the captured graph to ", path);
  }

 private:
  StepGraph graph_;
};

} // namespace

// The registry knows classes by their devices' names in upper case.
void register_graphs() {
  auto make = [](const at::GraphImplArgs&) -> std::unique_ptr<at::GraphImplInterface> { return std::make_unique<XlaGraph>(); };
  at::GraphImplRegistry()->Register("XLA", make);
}

} // namespace torch_xla
