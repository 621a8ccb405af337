// Loads a module that Python has scripted, runs it on the device `xla`, and saves it from there.
//
//     python prepare.py data && ./load_module data
#include <torch/script.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

// The tensors of a file that Python's torch.save() has written.
c10::impl::GenericDict load_tensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file, "cannot read ", path);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return torch::jit::pickle_load(bytes).toGenericDict();
}

bool check(const char* what, torch::jit::Module& module, const torch::Tensor& input, const torch::Tensor& expected) {
  torch::NoGradGuard no_grad;
  auto output = module.forward({input}).toTensor();
  bool equal = output.device() == input.device() && torch::allclose(output.cpu(), expected, /*rtol=*/1e-5, /*atol=*/1e-6);
  std::cout << what << " on " << output.device() << ": " << (equal ? "Python's values" : "NOT Python's values") << std::endl;
  return equal;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: load_module FOLDER" << std::endl;
    return EXIT_FAILURE;
  }
  const std::string folder = argv[1];
  const torch::Device xla("xla:0");
  auto example = load_tensors(folder + "/example.pt");
  auto input = example.at("input").toTensor();
  auto expected = example.at("output").toTensor();

  auto module = torch::jit::load(folder + "/module.pt", xla);
  bool good = check("the scripted module", module, input.to(xla), expected);
  module.save(folder + "/module_of_xla.pt");

  auto again = torch::jit::load(folder + "/module_of_xla.pt"); // to the device that it was saved from
  good &= check("saved from xla, loaded", again, input.to(xla), expected);
  auto on_the_cpu = torch::jit::load(folder + "/module_of_xla.pt", torch::kCPU);
  good &= check("saved from xla, loaded", on_the_cpu, input, expected);
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
