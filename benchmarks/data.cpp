// SPDX-License-Identifier: Apache-2.0
// How fast data comes.
#include <fcntl.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "benchmarks/groups.h"
#include "benchmarks/peer_process.h"
#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/dataset/fashion_mnist.h"
#include "tensorpack/dataflow/fake_data.h"
#include "tensorpack/dataflow/format/lmdb.h"
#include "tensorpack/dataflow/from_generator.h"
#include "tensorpack/dataflow/from_tensors.h"
#include "tensorpack/dataflow/image/image_batch.h"
#include "tensorpack/dataflow/image/labeled_files.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/dataflow/remote/zmq.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/stop_flag.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack::bench {
namespace {

// Costs nothing, so that what comes behind it can be seen.
class SameAgain final : public DataFlow {
 public:
  explicit SameAgain(DataPoint point) : point_(std::move(point)) {}
  std::optional<DataPoint> next() override { return point_; }

 private:
  DataPoint point_;
};

DataFlowPtr same_again(DataPoint point) { return std::make_unique<SameAgain>(std::move(point)); }

Figure fashion_mnist(const Stopwatch& watch) {
  constexpr int64_t kBatch = 128;
  const PeerProcess peer = PeerProcess::python("dataloader.py", {std::to_string(kBatch), "2"});
  const auto flow = FashionMnist("train") | batch(kBatch) | repeat();
  return watch.compare({
      .ours = [&] { flow->next(); },
      .peer = peer,
      .peer_name = "torch DataLoader, 2 workers",
      .min_seconds = 1,
  });
}

// The usual pipeline over images in memory, and the same where a stage makes tensors of the rows.
Figure shuffled_rows(const Stopwatch& watch) {
  constexpr int64_t kImages = 20'000;
  constexpr int64_t kBatch = 128;
  const auto images = [] {
    return FromTensors({torch::ones({kImages, 32, 32, 3}, torch::kByte), torch::arange(kImages)});
  };
  const auto rows = images() | shuffle({.seed = 1}) | batch(kBatch) | repeat();
  const auto tensors = images() | map([](DataPoint point) { return point; }) |
                       shuffle({.seed = 1}) | batch(kBatch) | repeat();
  return watch.compare({
      .ours = [&] { rows->next(); },
      .peer = [&] { tensors->next(); },
      .peer_name = "a tensor for each row, stacked",
      .min_seconds = 0.3,
  });
}

// Photographs as training on ImageNet needs them: a random part, resized, mirrored, normalised.
Figure jpeg(const Stopwatch& watch) {
  constexpr int64_t kBatch = 64;
  constexpr int64_t kThreads = 2;
  const TempDir dir;
  const PeerProcess peer = PeerProcess::python(
      "jpeg_loader.py", {dir.path().string(), std::to_string(kBatch), std::to_string(kThreads)});
  std::vector<LabeledFile> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    files.push_back({entry.path(), std::ssize(files)});
  }
  const auto flow = LabeledFiles(std::move(files), {.shuffle = true}) | repeat() |
                    image_batch(kBatch, {.mirror = 0.5,
                                         .reads_files = true,
                                         .mean = {123.675, 116.28, 103.53},
                                         .std = {58.395, 57.12, 57.375},
                                         .threads = kThreads});
  // What was made while the other side was timed does not count.
  const auto seconds = [&](int64_t batches) {
    for (int i = 0; i < 4; ++i) flow->next();
    const Timer timer;
    for (int64_t i = 0; i < batches; ++i) flow->next();
    return timer.seconds();
  };
  Figure figure = watch.compare({
      .ours = seconds,
      .peer = peer,
      .peer_name = "torchvision's DataLoader, 2 workers",
      .repetitions = 5,
      .min_seconds = 4,
  });
  figure.note = fmt::format("{:.0f} images/s", 1e6 * kBatch / figure.ours.value());
  return figure;
}

// What a stage with a thread costs a datapoint, whichever of the two threads is slower.
Figure prefetch_hop(const Stopwatch& watch) {
  const DataPoint point{torch::ones({1})};
  const auto plain = same_again(point);
  const auto ahead = same_again(point) | prefetch(64);
  const auto medians = watch.alternate({
      .sides = {[&] { ahead->next(); }, [&] { plain->next(); }},
  });
  return {.value = medians[0] - medians[1],
          .unit = "us",
          .ours = medians[0],
          .peer = medians[1],
          .peer_name = "no stage",
          .repetitions = watch.repetitions(9)};
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// How much memory a full queue takes, as a part of what its datapoints do.
Figure prefetch_memory(const Stopwatch&) {
  constexpr int64_t kSlots = 64;
  constexpr int64_t kBytes = 32 << 20;
  const int64_t before = resident_bytes();
  std::atomic<int64_t> made = 0;
  const auto flow = FromGenerator([&made](int64_t) -> Generator<DataPoint> {
                      while (true) {
                        DataPoint point{torch::ones({kBytes}, torch::kByte)};
                        ++made;
                        co_yield point;
                      }
                    }) |
                    prefetch(kSlots);
  int64_t most = 0;
  for (int64_t taken = 0; taken < 2 * kSlots; ++taken) {
    flow->next();
    while (taken == 0 && made < kSlots) std::this_thread::yield();
    most = std::max(most, resident_bytes() - before);
  }
  return {.value = static_cast<double>(most) / (kSlots * kBytes), .unit = "of its datapoints"};
}

// A plain file read in pieces of the same size.
class PlainFile {
 public:
  PlainFile(const std::filesystem::path& path, size_t piece)
      : file_(open(path.c_str(), O_RDONLY)), buffer_(piece) {}
  ~PlainFile() { close(file_); }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  void read_piece() {
    if (read(file_, buffer_.data(), buffer_.size()) == static_cast<ssize_t>(buffer_.size())) return;
    lseek(file_, 0, SEEK_SET);
    TP_CHECK(read(file_, buffer_.data(), buffer_.size()) > 0, "bench", "the file cannot be read.");
  }

 private:
  int file_;
  std::vector<char> buffer_;
};

Figure lmdb(const Stopwatch& watch) {
#ifndef TENSORPACK_HAS_LMDB
  throw Skip("the library was built without LMDB");
#endif
  constexpr int64_t kRecords = 1000;
  constexpr int64_t kBytes = 100'000;
  const TempDir dir;
  auto data = FakeData({{.shape = {kBytes}, .dtype = torch::kByte, .high = 256}},
                       {.size = kRecords, .random = false});
  save_lmdb(data, dir / "lmdb");
  std::ofstream(dir / "plain", std::ios::binary) << std::string(kRecords * kBytes, 'x');
  const auto records = LmdbRecords(dir / "lmdb") | repeat();
  PlainFile plain(dir / "plain", kBytes);
  return watch.compare({
      .ours = [&] { records->next(); },
      .peer = [&] { plain.read_piece(); },
      .peer_name = "read() into one buffer",
  });
}

// Sends in a thread until it is destroyed; ZeroMQ makes no difference between threads and
// processes.
class Sender {
 public:
  Sender(const std::string& address, int64_t bytes)
      : thread_([this, address, bytes] {
          const StopScope scope(stopping_);
          const auto flow = same_again({torch::zeros({bytes}, torch::kByte)});
          send_dataflow_zmq(*flow, address);
        }) {}
  ~Sender() {
    stopping_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

Figure zmq(const Stopwatch& watch) {
#ifndef TENSORPACK_HAS_ZEROMQ
  throw Skip("the library was built without ZeroMQ");
#endif
  constexpr int64_t kBytes = 1 << 20;
  const std::string address = "tcp://127.0.0.1:58231";
  RemoteDataZMQ flow({address}, {.timeout_seconds = 20});
  const Sender sender(address, kBytes);
  Figure figure = watch.measure({.step = [&] { flow.next(); }, .min_seconds = 0.5});
  figure.value = static_cast<double>(kBytes) / figure.value / 1e3;
  figure.unit = "GB/s";
  return figure;
}

}  // namespace

void add_data_benchmarks(Suite& suite) {
  suite.add("data/fashion_mnist_vs_dataloader", fashion_mnist);
  suite.add("data/jpeg_vs_torchvision", jpeg);
  suite.add("data/lmdb_vs_page_cache", lmdb);
  suite.add("data/prefetch_hop_us", prefetch_hop);
  suite.add("data/prefetch_memory", prefetch_memory);
  suite.add("data/shuffled_rows_vs_stacked", shuffled_rows);
  suite.add("data/zmq_gb_per_s", zmq);
}

}  // namespace tensorpack::bench
