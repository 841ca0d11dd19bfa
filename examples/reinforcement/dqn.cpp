// SPDX-License-Identifier: Apache-2.0
// A deep Q-network learns CartPole from its own games: a callback plays and fills a memory, which
// is the dataflow that the trainer learns from.
#include <deque>
#include <numeric>

#include "examples/command_line.h"
#include "examples/reinforcement/cartpole.h"
#include "examples/reinforcement/replay.h"
#include "tensorpack/tensorpack.h"

using namespace tensorpack;  // NOLINT: an example

namespace {

constexpr double kDiscount = 0.99;

// The value of pushing left and right.
Tensor q_network(const std::string& scope_name, const Tensor& state) {
  VariableScope scope(scope_name, Reuse::kAuto);
  Tensor l = FullyConnected("fc0", state, {.units = 64, .activation = torch::relu});
  l = FullyConnected("fc1", l, {.units = 64, .activation = torch::relu});
  return FullyConnected("q", l, {.units = 2});
}

Tensor dqn_cost(const Tensor& state, const Tensor& action, const Tensor& next_state,
                const Tensor& fell) {
  const Tensor q = named("q", q_network("online", state));
  // One network chooses the next move, the other judges it: a single one is too optimistic.
  const Tensor choice = q_network("online", next_state).argmax(1, /*keepdim=*/true);
  const Tensor next_q = q_network("target", next_state).gather(1, choice).squeeze(1).detach();
  const Tensor expected = -fell + kDiscount * (1 - fell) * next_q;  // only a fall counts
  const Tensor value = q.gather(1, action.unsqueeze(1)).squeeze(1);
  const Tensor cost = named("cost", torch::mse_loss(value, expected));
  add_moving_summary(cost);
  return cost;
}

class DQNTrainer final : public TowerTrainer {
 public:
  explicit DQNTrainer(Owned<InputSource> input) {
    setup_tower({{"state", {-1, 4}},
                 {"action", {-1}, torch::kLong},
                 {"next_state", {-1, 4}},
                 {"fell", {-1}}},
                std::move(input), dqn_cost);
    const auto update = [adam = Adam({.lr = 5e-4})](TowerContext& tower) mutable {
      minimize(adam, tower.tensor("cost"), "^online/");
    };
    set_train_op(define("train_op", update));
  }

  /// An op that copies the network that learns to the one that judges.
  static Op define_copy(Graph& graph) {
    return graph.define({.name = "update_target", .body = [&](const auto&) {
                           torch::NoGradGuard no_grad;
                           for (Variable* online : graph.variables().trainable("^online/")) {
                             const std::string name = "target" + online->name.substr(6);
                             graph.variables().at(name).tensor.copy_(online->tensor);
                           }
                           return NamedTensors();
                         }});
  }
};

// Plays with the newest network, mostly at random in the beginning.
class Player final : public Callback {
 public:
  Player(DQNTrainer& trainer, std::shared_ptr<ReplayMemory> memory, uint64_t seed)
      : trainer_(trainer), memory_(std::move(memory)), game_(seed), random_(seed) {}

  void setup_graph() override { q_ = trainer_.get_predictor({"state"}, {"q"}); }
  void before_train() override {
    for (int i = 0; i < 500; ++i) play(/*exploration=*/1);
  }
  void trigger_step() override {
    const double progress = static_cast<double>(global_step()) / 3000;
    for (int i = 0; i < 2; ++i) play(std::max(0.02, 1 - progress));
  }
  void trigger() override {
    if (scores_.empty()) return;
    const double total = std::accumulate(scores_.begin(), scores_.end(), 0.0);
    trainer().monitors().put_scalar("score", total / static_cast<double>(scores_.size()));
  }

 private:
  void play(double exploration) {
    const CartPole::State state = game_.state();
    std::uniform_real_distribution<double> uniform;
    const bool action = uniform(random_) < exploration ? uniform(random_) < 0.5 : best(state);
    const bool done = game_.step(action);
    memory_->add(state, action, game_.state(), game_.has_fallen());
    if (!done) return;
    scores_.push_back(game_.steps());
    if (scores_.size() > 20) scores_.pop_front();
    game_.reset();
  }

  bool best(CartPole::State state) const {
    const Tensor q = (*q_)(torch::from_blob(state.data(), {1, 4}).clone())[0];
    return q.argmax().item<int64_t>() == 1;
  }

  DQNTrainer& trainer_;
  std::shared_ptr<ReplayMemory> memory_;
  CartPole game_;
  std::mt19937_64 random_;
  std::optional<OnlinePredictor> q_;
  std::deque<int64_t> scores_;  // steps of the last games
};

void train(int64_t epochs, uint64_t seed, const std::string& logdir) {
  set_logger_dir(logdir, LogDirAction::kBackup);
  set_global_seed(seed);
  auto memory = std::make_shared<ReplayMemory>(50'000);
  // Not a QueueInput: what is learned must not be older than what was played.
  DQNTrainer trainer(FeedInput(Replay(memory, /*batch=*/64)));
  trainer.train_with_defaults({
      .callbacks = {Player(trainer, memory, seed),
                    PeriodicTrigger(RunOp(DQNTrainer::define_copy), {.every_k_steps = 500})},
      .steps_per_epoch = 500,
      .max_epoch = epochs,
  });
}

}  // namespace

int main(int argc, char** argv) {
  int64_t epochs = 40;
  uint64_t seed = 1;
  std::string logdir = "train_log/dqn";
  CLI::App app("Learns to balance a pole with a deep Q-network.");
  app.option_defaults()->always_capture_default();
  app.add_option("--epochs", epochs, "Epochs of 500 steps")->check(CLI::PositiveNumber);
  app.add_option("--seed", seed, "Seed of everything random");
  app.add_option("--logdir", logdir, "Where numbers and the log go");
  return run_example(app, argc, argv, [&] { train(epochs, seed, logdir); });
}
