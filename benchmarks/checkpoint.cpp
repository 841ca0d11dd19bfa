// SPDX-License-Identifier: Apache-2.0
// How long a training of ResNet-50 stands still for a checkpoint, and how fast one is loaded.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "benchmarks/groups.h"
#include "benchmarks/resnet50_shapes.h"
#include "benchmarks/silence.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/checkpoint/checkpoint_writer.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/train/trainer.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/stats.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack::bench {
namespace {

// Weights and their momentum: 204 MB.
void make_variables(Graph& graph) {
  CallScope call(graph);
  int i = 0;
  for (const Shape& shape : resnet50_shapes()) {
    const std::string name = fmt::format("w{}", i++);
    get_variable(name, shape, init::normal(1));
    get_variable(name + "/Momentum", shape, {.role = VariableRole::kGlobal});
  }
}

// Times what follows the callbacks of an epoch: the savers' work. The one before is on the disk by
// then, as it is in a training whose epochs take longer than a save.
class TimeSaving final : public Callback {
 public:
  explicit TimeSaving(std::vector<double>& milliseconds) : milliseconds_(milliseconds) {}
  void trigger_epoch() override {
    wait_for_checkpoints();
    timer_ = Timer();
  }
  void before_epoch() override {
    if (epoch_num() > starting_epoch_) milliseconds_.push_back(1000 * timer_.seconds());
  }
  void before_train() override { starting_epoch_ = trainer().starting_epoch(); }

 private:
  std::vector<double>& milliseconds_;
  Timer timer_;
  int64_t starting_epoch_ = 1;
};

// The first save, too: what it needs was made ready before training.
double save_stall(int saves, bool background) {
  const Silence silence;
  const TempDir dir;
  std::vector<double> milliseconds;
  const auto graph = std::make_shared<Graph>();
  make_variables(*graph);
  Trainer trainer(graph);
  trainer.set_train_op(Op::nothing());
  trainer.train({.callbacks = {ModelSaver({.max_to_keep = 1,
                                           .checkpoint_dir = dir.path(),
                                           .background = background}),
                               TimeSaving(milliseconds)},
                 .steps_per_epoch = 1,
                 .max_epoch = saves + 1});
  return median(milliseconds);
}

void read_bytes(const std::filesystem::path& path) {
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  const at::Tensor bytes = at::empty({size}, at::kByte);
  const int fd = open(path.c_str(), O_RDONLY);
  int64_t done = 0;
  while (done < size) {
    const ssize_t got = read(fd, static_cast<char*>(bytes.data_ptr()) + done, size - done);
    TP_CHECK(got > 0, "bench", "'{}' cannot be read.", path.string());
    done += got;
  }
  close(fd);
}

}  // namespace

void add_checkpoint_benchmarks(Suite& suite) {
  suite.add("checkpoint/resnet50_save_stall_ms", [](const Stopwatch& watch) {
    const int repetitions = watch.repetitions(9);
    const double foreground = save_stall(repetitions, /*background=*/false);
    return Figure{.value = save_stall(repetitions, /*background=*/true),
                  .unit = "ms",
                  .repetitions = repetitions,
                  .note = fmt::format("{:.0f} ms without a background", foreground)};
  });
  suite.add("checkpoint/resnet50_load_vs_read", [](const Stopwatch& watch) {
    const TempDir dir;
    const std::filesystem::path path = dir / "model-0.safetensors";
    Checkpoint checkpoint;
    int i = 0;
    for (const Shape& shape : resnet50_shapes()) {
      checkpoint.variables[fmt::format("w{}", i++)] = at::randn(shape);
    }
    save_checkpoint(path, checkpoint);
    return watch.compare({
        .ours = [&] { load_checkpoint(path); },
        .peer = [&] { read_bytes(path); },
        .peer_name = "read() of the file",
    });
  });
}

}  // namespace tensorpack::bench
