// SPDX-License-Identifier: Apache-2.0
// Data on its way to a trainer: sources, stages, threads, files, speed.
// docs/tutorial/dataflow.md, efficient-dataflow.md and input-source.md explain it.
#include <fmt/format.h>

#include <filesystem>

#include "tensorpack/tensorpack.h"

using namespace tensorpack;  // NOLINT: an example

namespace {

// A source of one's own: a coroutine.
FromGenerator squares() {
  return FromGenerator([]() -> Generator<DataPoint> {
    for (int64_t i = 0; i < 1000; ++i) {
      const Tensor image = torch::full({8, 8}, static_cast<double>(i));
      const Tensor name = bytes("square of " + std::to_string(i));
      co_yield datapoint(image, number(i * i), name);
    }
  });
}

// A source of one's own: a class.
class Countdown final : public DataFlow {
 public:
  explicit Countdown(int64_t from) : from_(from), left_(from) {}
  void start(int64_t /*pass*/) override { left_ = from_; }
  std::optional<DataPoint> next() override {
    if (left_ == 0) return std::nullopt;
    return DataPoint{number(left_--)};
  }
  std::optional<int64_t> size() const override { return from_; }

 private:
  int64_t from_;
  int64_t left_;
};

// What a map function that needs random numbers looks like.
DataPoint jitter(DataPoint point, Rng& rng) {
  const double shift = static_cast<double>(rng.below(1000)) / 1000;
  return {point[0] + shift, point[1]};
}

void pipeline() {
  DataFlowPtr train = squares() | select({0, 1}) | shuffle(200, {.seed = 1}) |
                      map(jitter, {.seed = 2}) | batch(32, {.remainder = true});
  for (DataPoint& p : datapoints(*train)) {
    fmt::print("{}\n", describe(p));
    break;
  }
}

void combined() {
  DataFlowPtr both = concat({squares(), squares() | take(10)});
  DataFlowPtr pairs = join({squares() | select({0}), squares() | select({1})});
  DataFlowPtr mixed = random_choose({squares(), squares() | repeat()}, {.weights = {1, 3}});
  DataFlowPtr counted = Countdown(10) | batch(5);
  for (DataFlow* flow : {both.get(), pairs.get(), mixed.get(), counted.get()}) {
    fmt::print("{}\n", describe(*flow->next()));
  }
}

void threads() {
  DataFlowPtr train = squares() | select({0, 1}) | shuffle(200, {.seed = 1}) | prefetch(16) |
                      map_and_batch(jitter, 32, {.threads = 2, .seed = 2}) | prefetch(4);
  const Speed speed = test_speed(*train, {.count = 200, .warmup = 20});
  fmt::print("{:.0f} batches per second\n", speed.datapoints_per_second);
}

void bad_data() {
  const auto decode = [](DataPoint point) {
    TP_CHECK(point[1].item<int64_t>() != 49, "decode", "{} is no picture.", bytes_view(point[2]));
    return point;
  };
  DataFlowPtr train = squares() | parallel_map(decode, {.on_error = OnError::kSkip});
  int64_t count = 0;
  while (train->next()) ++count;
  fmt::print("{} of 1000 datapoints could be read\n", count);
}

void files() {
  FromGenerator flow = squares();
  save_tfrecord(flow, "squares.tfrecord");
  DataFlowPtr train = TFRecordData("squares.tfrecord") | shuffle(100) | select({0, 1});
  fmt::print("{}\n", describe(*train->next()));
  std::filesystem::remove("squares.tfrecord");
}

// A folder of squares in two shades, one class each.
void write_pictures(const std::filesystem::path& dir) {
  for (const uint8_t shade : {50, 200}) {
    const auto folder = dir / (shade < 128 ? "dark" : "light");
    std::filesystem::create_directories(folder);
    for (int i = 0; i < 4; ++i) {
      const std::vector<uint8_t> pixels(64 * 48 * 3, shade);
      write_file_atomically(folder / fmt::format("{}.png", i), encode_png(pixels, 48, 64, 3));
    }
  }
}

[[maybe_unused]] void images() {
  const TempDir dir;
  write_pictures(dir.path());
  DataFlowPtr train = ImageFolderFiles(dir.path(), {.shuffle = true}) |
                      image_batch(4, {.size = {.height = 32, .width = 32},
                                      .mirror = 0.5,
                                      .reads_files = true,
                                      .mean = {123.675, 116.28, 103.53},
                                      .std = {58.395, 57.12, 57.375}});
  fmt::print("{}\n", describe(*train->next()));

  DataFlowPtr test = ImageFolderFiles(dir.path()) |
                     image_batch(4, {.size = {.height = 32, .width = 32},
                                     .crop = central_area({.height = 32, .width = 32}, 224 / 256.),
                                     .reads_files = true,
                                     .dtype = torch::kByte});
  fmt::print("{}\n", describe(*test->next()));
}

void resume() {
  DataFlowPtr train = squares() | select({0, 1}) | shuffle(200, {.seed = 1}) | batch(32);
  train->start(3);  // the fourth pass,
  train->skip(10);  // from its eleventh batch on
  train->next();
}

Tensor cost(const Tensor& x, const Tensor& y) {
  return named("cost", (get_variable("w", {}) * x.mean({1, 2}) - y).square().mean());
}

void training() {
  DataFlowPtr train = squares() | select({0, 1}) | map(jitter) | batch(32);
  PrintStages stages(*train);
  launch_train_with_config(
      {
          .model = Model{.inputs = {{"x", {-1, 8, 8}}, {"y", {-1}, torch::kLong}},
                         .build_graph = cost,
                         .optimizer = SGD({.lr = 1e-12})},
          .data = QueueInput(std::move(train), {.capacity = 20}),
          .callbacks = {std::move(stages)},
          .steps_per_epoch = 20,
          .max_epoch = 1,
      },
      SimpleTrainer());
}

}  // namespace

int main() {
  return run_main([] {
    pipeline();
    combined();
    threads();
    bad_data();
    files();
#ifdef TENSORPACK_HAS_OPENCV  // reads PNGs
    images();
#endif
    resume();
    training();
  });
}
