// Trains the network of examples/train_digits.py on the digits, on the device `xla`, with torch::nn and torch::optim.
//
//     python prepare.py data && ./train_digits data/digits.pt
#include <torch/torch.h>
#include <torch_xla/torch_xla.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>

constexpr int64_t kBatchSize = 64;
constexpr int64_t kTraining = 1437; // of 1,797 images; the others are for the test
constexpr int kEpochs = 5;
constexpr double kLeastAccuracy = 0.95;

struct Digits {
  torch::Tensor images; // float32[N, 1, 8, 8]
  torch::Tensor labels; // int64[N]
};

// Of a file that Python's torch.save() has written. Throws c10::Error for one that is none.
Digits load_digits(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file, "cannot read ", path);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto tensors = torch::pickle_load(bytes).toGenericDict();
  return {tensors.at("images").toTensor(), tensors.at("labels").toTensor()};
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("dropout1", dropout1);
    register_module("dropout2", dropout2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  // Log-probabilities float32[N, 10] of images float32[N, 1, 8, 8].
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(conv1(x));
    x = torch::relu(conv2(x));
    x = dropout1(torch::max_pool2d(x, 2));
    x = torch::relu(fc1(x.flatten(1)));
    return torch::log_softmax(fc2(dropout2(x)), /*dim=*/1);
  }

  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 32, 3).padding(1)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(32, 64, 3).padding(1)};
  torch::nn::Dropout dropout1{0.25};
  torch::nn::Dropout dropout2{0.5};
  torch::nn::Linear fc1{64 * 4 * 4, 128};
  torch::nn::Linear fc2{128, 10};
};
TORCH_MODULE(Net);

// One pass over the images, which are on the CPU. Returns the mean loss.
double train_epoch(Net& model, torch::optim::Optimizer& optimizer, const Digits& digits, torch::Device device) {
  model->train();
  std::vector<torch::Tensor> losses;
  for (const auto& batch : torch::randperm(digits.labels.size(0)).split(kBatchSize)) {
    auto images = digits.images.index_select(0, batch).to(device);
    auto labels = digits.labels.index_select(0, batch).to(device);
    optimizer.zero_grad();
    auto loss = torch::nll_loss(model(images), labels);
    loss.backward();
    optimizer.step();
    torch_xla::sync(); // what was recorded runs while the next step is recorded
    losses.push_back(loss.detach());
  }
  return torch::stack(losses).mean().item<double>();
}

double accuracy(Net& model, const Digits& digits, torch::Device device) {
  torch::NoGradGuard no_grad;
  model->eval();
  auto predicted = model(digits.images.to(device)).argmax(1);
  return predicted.eq(digits.labels.to(device)).to(torch::kFloat).mean().item<double>();
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: train_digits FOLDER/digits.pt" << std::endl;
    return EXIT_FAILURE;
  }
  Digits all = load_digits(argv[1]);
  Digits training{all.images.slice(0, 0, kTraining), all.labels.slice(0, 0, kTraining)};
  Digits test{all.images.slice(0, kTraining), all.labels.slice(0, kTraining)};

  torch::manual_seed(1);
  torch::Device device = torch_xla::device();
  Net model;
  model->to(device);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.06).momentum(0.9));
  torch::optim::StepLR scheduler(optimizer, /*step_size=*/1, /*gamma=*/0.8);
  double reached = 0;
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    double loss = train_epoch(model, optimizer, training, device);
    reached = accuracy(model, test, device);
    scheduler.step();
    std::cout << device << " epoch " << epoch << ": loss " << loss << ", test accuracy " << 100 * reached << " %" << std::endl;
  }
  std::cout << "programs compiled: " << torch_xla::counter_value("UncachedCompile").value_or(0) << std::endl;
  return reached >= kLeastAccuracy ? EXIT_SUCCESS : EXIT_FAILURE;
}
