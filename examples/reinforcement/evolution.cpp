// SPDX-License-Identifier: Apache-2.0
// Evolution strategies on CartPole: training without gradients, batches, data or tensors. A trainer
// only needs to know what an iteration is.
#include <numeric>

#include "examples/command_line.h"
#include "examples/reinforcement/cartpole.h"
#include "tensorpack/tensorpack.h"

using namespace tensorpack;  // NOLINT: an example

namespace {

using Policy = std::array<double, 4>;  // push right when its product with the state is positive

double play(const Policy& policy, uint64_t seed) {
  CartPole game(seed);
  bool done = false;
  while (!done) {
    const auto& s = game.state();
    done = game.step(std::inner_product(s.begin(), s.end(), policy.begin(), 0.0) > 0);
  }
  return static_cast<double>(game.steps());
}

class EvolutionTrainer final : public Trainer {
 public:
  explicit EvolutionTrainer(uint64_t seed) : random_(seed) {
    set_train_op(Op::host("generation", [this] { next_generation(); }));
  }

  /// Of the policy itself, without noise.
  double score() {
    double total = 0;
    for (int i = 0; i < 10; ++i) total += play(policy_, random_());
    return total / 10;
  }

 private:
  // Tries neighbours of the policy and moves it towards the better ones.
  void next_generation() {
    constexpr int kPairs = 8;
    constexpr double kNoise = 0.1, kRate = 0.1;
    std::normal_distribution<double> normal;
    Policy move = {};
    for (int i = 0; i < kPairs; ++i) {
      Policy noise, plus = policy_, minus = policy_;
      for (size_t k = 0; k < noise.size(); ++k) {
        noise[k] = normal(random_);
        plus[k] += kNoise * noise[k];
        minus[k] -= kNoise * noise[k];
      }
      const uint64_t game = random_();  // the same game for both: only the policies differ
      const double advantage = play(plus, game) - play(minus, game);
      const double direction = (advantage > 0) - (advantage < 0);
      for (size_t k = 0; k < noise.size(); ++k) move[k] += direction * noise[k] / kPairs;
    }
    for (size_t k = 0; k < move.size(); ++k) policy_[k] += kRate * move[k];
  }

  Policy policy_ = {};
  std::mt19937_64 random_;
};

void train(int64_t epochs, uint64_t seed, const std::string& logdir) {
  set_logger_dir(logdir, LogDirAction::kBackup);
  EvolutionTrainer trainer(seed);
  const auto report = [&](Callback&) { trainer.monitors().put_scalar("score", trainer.score()); };
  trainer.train_with_defaults({
      .callbacks = {CallbackFactory({.before_train = report, .trigger = report})},
      .steps_per_epoch = 10,
      .max_epoch = epochs,
  });
}

}  // namespace

int main(int argc, char** argv) {
  int64_t epochs = 10;
  uint64_t seed = 1;
  std::string logdir = "train_log/evolution";
  CLI::App app("Learns to balance a pole by evolution.");
  app.option_defaults()->always_capture_default();
  app.add_option("--epochs", epochs, "Epochs of 10 generations")->check(CLI::PositiveNumber);
  app.add_option("--seed", seed, "Seed of everything random");
  app.add_option("--logdir", logdir, "Where numbers and the log go");
  return run_example(app, argc, argv, [&] { train(epochs, seed, logdir); });
}
