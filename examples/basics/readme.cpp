// SPDX-License-Identifier: Apache-2.0
// The program on the front page.
#include "tensorpack/tensorpack.h"

using namespace tensorpack;

Model fashion_model() {
  return {
      .inputs = {{"image", {-1, 28, 28}}, {"label", {-1}, torch::kLong}},
      .build_graph =
          [](Tensor image, Tensor label) {        // any callable over N tensors
            auto l = image.unsqueeze(1) * 2 - 1;  // plain libtorch
            ArgScope scope(Conv2DOptions{.kernel_size = 3, .activation = torch::relu});
            l = Conv2D("conv0", l, {.filters = 32});  // variables conv0/W, conv0/b
            l = MaxPooling("pool0", l, 2);
            auto logits = FullyConnected("fc", l, {.units = 10});
            named("accuracy", (logits.argmax(1) == label).to(torch::kFloat32).mean());
            return named("cost", torch::cross_entropy_loss(logits, label));
          },
      .optimizer = Adam({.lr = 1e-3}),
  };
}

int main() {
  return run_main([] {  // ends an error, or Ctrl-C, with its message and a status
    set_logger_dir("train_log/readme");
    TrainConfig config{
        .model = fashion_model(),
        .data = QueueInput(FashionMnist("train") | shuffle(10'000) | batch(128)),
        .callbacks = {ModelSaver(),
                      InferenceRunner(FashionMnist("test") | batch(256, {.remainder = true}),
                                      {ScalarStats({"accuracy", "cost"})})},
        .max_epoch = 10,
    };
    launch_train_with_config(std::move(config), SimpleTrainer());
  });
}
