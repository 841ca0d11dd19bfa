// SPDX-License-Identifier: Apache-2.0
// A convolutional GAN draws clothes after Fashion-MNIST; a picture of samples is written each
// epoch.
#include "examples/gan/dcgan.h"

#include <fmt/format.h>

#include "examples/command_line.h"
#include "examples/gan/gan_trainer.h"
#include "examples/gan/png.h"
#include "tensorpack/utils/fs.h"

using namespace tensorpack;  // NOLINT: an example
using gan::kNoise;

namespace {

struct Flags {
  std::string trainer = "joint";
  int64_t epochs = 20;
  int64_t steps = 400;
  int64_t batch = 64;
  int towers = 1;
  uint64_t seed = 1;
  std::string logdir = "train_log/dcgan";
};

gan::Model dcgan(bool wasserstein) {
  const auto player = [&](std::string scope) {
    return Adam({.lr = wasserstein ? 5e-4 : 2e-4, .beta1 = 0.5, .scope = std::move(scope)});
  };
  return {
      .inputs = {{"image", {-1, 28, 28}}, {"z", {-1, kNoise}}},
      .build_losses =
          [=](const Tensor& image, const Tensor& z) {
            const Tensor real = gan::discriminator(image);
            const Tensor fake = gan::discriminator(gan::generator(z));
            wasserstein ? gan::name_wasserstein_losses(real, fake) : gan::name_losses(real, fake);
          },
      .g_optimizer = player("gen"),
      .d_optimizer = player("discrim"),
  };
}

// Every process has images, and noise, of its own.
DataFlowPtr images_and_noise(int64_t batch_size, uint64_t seed, int rank) {
  const auto replace_label = [generator = torch::make_generator<torch::CPUGeneratorImpl>(
                                  seed + static_cast<uint64_t>(rank))](DataPoint point) {
    point[1] = torch::randn({point[0].size(0), kNoise}, generator);
    return point;
  };
  return FashionMnist("train", {.seed = seed}) | shard() | batch(batch_size) | map(replace_label);
}

// Draws 8 x 8 samples, always from the same noise, and tells how far their mean image is from that
// of the data.
class DrawSamples final : public Callback {
 public:
  DrawSamples(TowerTrainer& trainer, std::filesystem::path dir)
      : trainer_(trainer), dir_(std::move(dir)) {}

  void setup_graph() override { predict_ = trainer_.get_predictor({"z"}, {"gen/image"}); }
  void before_train() override {
    z_ = torch::randn({64, kNoise});
    auto flow = FashionMnist("test") | batch(1000) | take(1);
    data_mean_ = (*flow->next())[0].mean(0);
    trigger();
  }
  void trigger() override {
    const Tensor images = (*predict_)(z_)[0];
    const Tensor gap = (images.mean(0) - data_mean_).abs().mean();
    trainer().monitors().put_scalar("mean_image_gap", gap.item<double>());
    const Tensor grid = (images.view({8, 8, 28, 28}).transpose(1, 2) * 255)
                            .to(torch::kUInt8)
                            .reshape({8 * 28, 8 * 28})
                            .contiguous();
    write_file_atomically(dir_ / fmt::format("samples-{:03}.png", epoch_num()),
                          png::encode(grid.data_ptr<uint8_t>(), 8 * 28, 8 * 28));
  }

 private:
  TowerTrainer& trainer_;
  std::filesystem::path dir_;
  std::optional<OnlinePredictor> predict_;
  Tensor z_, data_mean_;
};

void train(TowerTrainer& trainer, const Flags& flags, OwnedList<Callback> callbacks = {}) {
  callbacks.add(DrawSamples(trainer, *get_logger_dir()));
  callbacks.add(ModelSaver({.max_to_keep = 2}));
  trainer.train_with_defaults({
      .callbacks = std::move(callbacks),
      .steps_per_epoch = flags.steps,
      .max_epoch = flags.epochs,
  });
}

void run(const Flags& flags) {
  set_logger_dir(flags.logdir, LogDirAction::kBackup);
  set_global_seed(flags.seed);
  const DataParallel parallel = distributed({.devices = Devices::cpu(flags.towers)});
  QueueInput input(images_and_noise(flags.batch, flags.seed, parallel.processes->rank()));
  if (flags.trainer == "joint") {
    gan::GANTrainer trainer(dcgan(false), std::move(input), parallel);
    train(trainer, flags);
  } else if (flags.trainer == "separate") {
    gan::SeparateGANTrainer trainer(dcgan(false), std::move(input), {.d_period = 2}, parallel);
    train(trainer, flags);
  } else {
    gan::SeparateGANTrainer trainer(dcgan(true), std::move(input), {.g_period = 3}, parallel);
    train(trainer, flags, {gan::clip_discriminator(0.02)});
  }
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Learns to draw clothes from Fashion-MNIST.");
  app.option_defaults()->always_capture_default();
  app.add_option("--trainer", flags.trainer, "Both updates in one run, in turns, or a clipped WGAN")
      ->check(CLI::IsMember({"joint", "separate", "wgan"}));
  app.add_option("--epochs", flags.epochs, "Epochs to train")->check(CLI::PositiveNumber);
  app.add_option("--steps", flags.steps, "Steps per epoch")->check(CLI::PositiveNumber);
  app.add_option("--batch", flags.batch, "Images per step")->check(CLI::PositiveNumber);
  app.add_option("--towers", flags.towers, "Towers, each with a batch of its own")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", flags.seed, "Seed of everything random");
  app.add_option("--logdir", flags.logdir, "Where pictures, checkpoints and the log go");
  return run_example(app, argc, argv, [&] { run(flags); });
}
