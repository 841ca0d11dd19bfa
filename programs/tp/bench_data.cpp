// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/bench_data.h"

#include <filesystem>
#include <memory>

#include "programs/tp/command.h"
#include "tensorpack/dataflow/dataset/image_folder.h"
#include "tensorpack/dataflow/format/lmdb.h"
#include "tensorpack/dataflow/format/tar.h"
#include "tensorpack/dataflow/format/tfrecord.h"
#include "tensorpack/dataflow/image/image_batch.h"
#include "tensorpack/dataflow/inspect.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

struct BenchDataFlags {
  fs::path path;
  int64_t count = 200;
  int64_t batch = 64;
  int64_t size = 224;
  int64_t threads = 0;
  std::vector<std::string> extensions = {"jpg", "cls"};
};

// As a training reads images: parts of them, mirrored or not, brought to one size.
Stage training_batches(const BenchDataFlags& flags, bool reads_files) {
  return image_batch(flags.batch, {.size = {.height = flags.size, .width = flags.size},
                                   .mirror = 0.5,
                                   .reads_files = reads_files,
                                   .dtype = at::kByte,
                                   .threads = flags.threads});
}

DataFlowPtr open_data(const BenchDataFlags& flags) {
  const std::string extension = flags.path.extension();
  TP_CHECK(fs::exists(flags.path), "bench-data", "'{}' does not exist.", flags.path.string());
  if (extension == ".tfrecord" || extension == ".tfrecords") {
    return TFRecords(flags.path) | prefetch(flags.batch);
  }
  if (extension == ".tar") {
    return TarShard(flags.path, flags.extensions) | training_batches(flags, false);
  }
  if (extension == ".lmdb" || extension == ".mdb" || fs::exists(flags.path / "data.mdb")) {
    return LmdbRecords(flags.path) | prefetch(flags.batch);
  }
  TP_CHECK(
      fs::is_directory(flags.path), "bench-data",
      "'{}' is no folder of images, .lmdb, .tfrecord or .tar. Time a pipeline of your own with "
      "test_speed().",
      flags.path.string());
  return ImageFolderFiles(flags.path, {.shuffle = true}) | training_batches(flags, true);
}

int bench_data(const BenchDataFlags& flags) {
  const DataFlowPtr flow = open_data(flags);
  test_speed(*flow, {.count = flags.count, .warmup = 1});
  return 0;
}

}  // namespace

void add_bench_data(CLI::App& app, int& status) {
  const auto flags = std::make_shared<BenchDataFlags>();
  CLI::App* command = app.add_subcommand(
      "bench-data", "Measure how fast data is read on this machine, and where the time goes.");
  command
      ->add_option(
          "path", flags->path,
          "A folder with a folder of images for each class, a tar shard of images, an LMDB "
          "or a TFRecord file")
      ->required();
  command->add_option("--count", flags->count, "Batches of images, or records, to read")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--batch", flags->batch, "Images of a batch, or records read ahead")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--size", flags->size, "Height and width that images are brought to")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "Threads that decode images; 0: all cores")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--extensions", flags->extensions,
                   "Files of a datapoint in a tar shard, the image first")
      ->delimiter(',')
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  tp bench-data imagenet/train --batch 256\n"
      "  tp bench-data train.lmdb --count 10000\n"
      "  tp bench-data shard-0001.tar --extensions jpg,cls");
  command->callback(reporting_errors(status, [flags] { return bench_data(*flags); }));
}

}  // namespace tensorpack
