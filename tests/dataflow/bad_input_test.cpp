// SPDX-License-Identifier: Apache-2.0
// Bad input as users meet it: every error names the file and the place, or the stage and the
// datapoint, and what to do. More of each format is in its own test.
#include <unistd.h>

#include <filesystem>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/cache.h"
#include "tensorpack/dataflow/dataset/idx.h"
#include "tensorpack/dataflow/dataset/image_folder.h"
#include "tensorpack/dataflow/fake_data.h"
#include "tensorpack/dataflow/format/csv.h"
#include "tensorpack/dataflow/format/hdf5.h"
#include "tensorpack/dataflow/format/lmdb.h"
#include "tensorpack/dataflow/format/tar.h"
#include "tensorpack/dataflow/format/tfrecord.h"
#include "tensorpack/dataflow/from_tensors.h"
#include "tensorpack/dataflow/interleave.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/parallel_map.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/log_once.h"
#include "tests/dataflow/matchers.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/capture.h"

namespace tensorpack::test {
namespace {

// Datapoints of two components of bytes.
DataFlowPtr texts(int64_t count) {
  return numbers(count) | map([](DataPoint p) {
           return DataPoint{bytes(std::string(700, 'x')), bytes(std::to_string(p[0].item<int>()))};
         });
}

class BadInputTest : public testing::Test {
 protected:
  void cut(const std::string& name, size_t bytes) {
    write_file_atomically(dir_ / name, read_file(dir_ / name).substr(0, bytes));
  }
  // The error of a flow that is read to its end.
  static void expect_fails(DataFlow& flow, const std::string& file, const std::string& reason) {
    EXPECT_THAT([&] { collect(flow); },
                ThrowsMessage<Error>(AllOf(HasSubstr(file), HasSubstr(reason))));
  }

  TempDir dir_;
};

#ifdef TENSORPACK_HAS_LMDB
// The file is mapped: a page that is not there would end the process.
TEST_F(BadInputTest, EveryCutOfAnLmdbIsFound) {
  save_lmdb(*texts(200), dir_ / "whole");
  const auto size = std::filesystem::file_size(dir_ / "whole");
  for (size_t kept = 0; kept < size; kept += 3000) {
    std::filesystem::remove(dir_ / "cut");
    write_file_atomically(dir_ / "cut", read_file(dir_ / "whole").substr(0, kept));
    EXPECT_THAT(
        [&] {
          LmdbData flow(dir_ / "cut", {.shuffle = true});
          collect(flow);
        },
        ThrowsMessage<Error>(HasSubstr((dir_ / "cut").string())))
        << kept;
  }
  cut("whole", size - 1);
  EXPECT_ERROR(LmdbData(dir_ / "whole"), "is cut off: it has " + std::to_string(size - 1));
}

// A writer that takes pages at the end of the file and gives them back at once does not write them.
TEST_F(BadInputTest, AnLmdbMayLackPagesThatNothingIsIn) {
  save_lmdb(*texts(200), dir_ / "a");
  std::string content = read_file(dir_ / "a");
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const size_t meta : {size_t{0}, page}) {
    constexpr size_t kLastPage = 136;
    content[meta + kLastPage] = static_cast<char>(content[meta + kLastPage] + 2);
  }
  write_file_atomically(dir_ / "a", content);
  LmdbData flow(dir_ / "a", {.shuffle = true});
  EXPECT_EQ(collect(flow).size(), 200U);
  write_file_atomically(dir_ / "a", content.substr(0, content.size() - page));
  EXPECT_ERROR(LmdbData(dir_ / "a"), "is cut off");
}

TEST_F(BadInputTest, AnLmdbRecordThatIsNoDatapointIsNamedByItsKey) {
  save_lmdb(*texts(3), dir_ / "a");
  std::string content = read_file(dir_ / "a");
  size_t at = 0;
  for (int i = 0; i < 2; ++i) at = content.find("TPDP", at + 1);
  content[at] = 'X';
  write_file_atomically(dir_ / "a", content);
  LmdbData flow(dir_ / "a");
  expect_fails(flow, (dir_ / "a").string(), "key '0000000");
}
#endif

TEST_F(BadInputTest, ATarThatIsCutOffBetweenFilesIsNotTakenForWhole) {
  save_tar(*texts(3), dir_ / "a.tar", {"img", "cls"});
  const size_t size = read_file(dir_ / "a.tar").size();
  cut("a.tar", size - 1024);  // all files are there, the end is not
  TarShard flow(dir_ / "a.tar", {"img", "cls"});
  expect_fails(flow, (dir_ / "a.tar").string(), "the empty block that ends an archive is missing");
  cut("a.tar", 1536);  // after the first file
  EXPECT_ERROR(
      collect(*std::make_unique<TarShard>(dir_ / "a.tar", std::vector<std::string>{"img", "cls"})),
      "at offset 1536");
}

TEST_F(BadInputTest, FoldersAreNoFiles) {
  const std::filesystem::path folder = dir_.path();
  EXPECT_ERROR(TFRecords{folder}, "is a folder");
  EXPECT_ERROR(read_idx(folder), folder.string());
  EXPECT_ERROR(TarShard(folder, {"x"}), folder.string());
  EXPECT_ERROR(CsvData(folder, {{.columns = {"a"}}}), folder.string());
  EXPECT_ERROR(ImageFolder(dir_ / "none"), (dir_ / "none").string());
}

TEST_F(BadInputTest, FilesThatAreNotThereAreNamed) {
  const std::string none = dir_ / "none";
  EXPECT_ERROR(TFRecords(none), none);
  EXPECT_ERROR(read_idx(none), none);
  EXPECT_ERROR(TarShard(none, {"x"}), none);
  EXPECT_ERROR(CsvData(none, {{.columns = {"a"}}}), none);
  EXPECT_ERROR(LmdbData(none), none);
  EXPECT_ERROR(read_hdf5(none, {"x"}), none);
}

#ifdef TENSORPACK_HAS_HDF5
TEST_F(BadInputTest, Hdf5OfAnotherShapeTellsTheShapes) {
  auto data = FromTensors({torch::zeros({3, 2})});
  save_hdf5(data, dir_ / "data", {"x"});
  auto labels = FromTensors({torch::zeros({5})});
  save_hdf5(labels, dir_ / "labels", {"y"});
  EXPECT_ERROR(
      FromTensors({read_hdf5(dir_ / "data", {"x"})[0], read_hdf5(dir_ / "labels", {"y"})[0]}),
      "tensor 0 has 3 rows and tensor 1 has 5: their shapes are [3, 2] and [5]");
}
#endif

TEST_F(BadInputTest, NaNsAmongLabelsAreFoundByLineAndColumn) {
  write_file_atomically(dir_ / "a.csv", "x,label\n1,0\n2,NaN\n3,\n");
  CsvData flow(dir_ / "a.csv", {{.columns = {"label"}, .dtype = torch::kLong}});
  flow.next();
  EXPECT_THAT([&] { flow.next(); },
              ThrowsMessage<Error>(AllOf(HasSubstr((dir_ / "a.csv").string()),
                                         HasSubstr("'NaN' in line 3, column 1"))));
  EXPECT_ERROR(flow.next(), "line 4, column 1");
}

TEST_F(BadInputTest, EmptySetsAreErrorsWhereSomethingIsToBeRead) {
  write_file_atomically(dir_ / "a", "");
  EXPECT_ERROR(read_idx(dir_ / "a"), "cut off inside its header");
  EXPECT_ERROR(TarShard(dir_ / "a", {"x"}), "is cut off");
  EXPECT_ERROR(CsvData(dir_ / "a", {{.columns = {"x"}}}), "is empty");
  EXPECT_ERROR(TFRecords(dir_ / "a") | batch(2), "a pass has 0 datapoints");
  QueueInput source{TFRecords(dir_ / "a")};
  EXPECT_ERROR(source.next(), "of the dataflow has no datapoints");
  EXPECT_ERROR(FromTensors({torch::zeros({0, 3})}) | batch(2), "a pass has 0 datapoints");
}

TEST_F(BadInputTest, FunctionsThatAreEmptyAreFoundWhenTheStageIsMade) {
  using Map = std::function<DataPoint(DataPoint)>;
  EXPECT_ERROR(map(Map()), "[map] the function is empty.");
  EXPECT_ERROR(parallel_map(Map()), "[map] the function is empty.");
  EXPECT_ERROR(map_and_batch(MapFunction(), 2), "[map] the function is empty.");
  EXPECT_ERROR(map_component(0, std::function<at::Tensor(at::Tensor)>()),
               "[map_component] the function is empty.");
  EXPECT_ERROR(filter({}), "[filter] the function is empty.");
  EXPECT_ERROR(fill_batch({.shape = {2}}, {}, 2), "[fill_batch] the function is empty.");
  EXPECT_ERROR(batch_by_key(2, {}), "[batch_by_key] the function is empty.");
  EXPECT_ERROR(interleave({}), "[interleave] the function is empty.");
  EXPECT_ERROR(run_multiple_copies({}), "[run_multiple_copies] the function is empty.");
}

TEST_F(BadInputTest, FunctionsThatChangeTheDataItselfAreToldOf) {
  const auto told = [](DataFlowPtr flow) {
    logging::forget_logged_once();
    return stdout_of([&] {
      for (int64_t pass = 0; pass < 3; ++pass) {
        flow->start(pass);
        while (flow->next()) continue;
      }
    });
  };
  const auto in_place = [](DataPoint p) {
    p[0].add_(1);
    return p;
  };
  const auto anew = [](DataPoint p) { return DataPoint{p[0] + 1}; };
  const auto message = [](const std::string& flow) {
    return HasSubstr("[" + flow + "] its tensors were changed in place during the pass");
  };
  EXPECT_THAT(told(numbers(3) | map(in_place)), message("FromList"));
  EXPECT_THAT(told(numbers(3) | map(anew) | cache() | map(in_place)), message("cache"));
  EXPECT_THAT(told(FromTensors({torch::zeros({3})}) | map(in_place)), message("FromTensors"));
  EXPECT_EQ(told(numbers(3) | map(anew) | map(in_place)), "");
  EXPECT_EQ(told(numbers(3) | batch(3) | map(in_place)), "");
  EXPECT_EQ(told(FromTensors({torch::zeros({3})}) | batch(3) | map(in_place)), "");
}

TEST_F(BadInputTest, DatapointsWithoutComponentsAreNotSelected) {
  EXPECT_ERROR(select({}), "[select] no component is selected");
}

TEST_F(BadInputTest, FakeDataThatCannotBeDrawnIsToldBefore) {
  EXPECT_ERROR(FakeData({{.shape = {-1, 3}}}),
               "[FakeData] the shape [-1, 3] of a component has a negative size.");
  EXPECT_ERROR(FakeData({{.dtype = torch::kLong, .low = 0, .high = 0.5}}),
               "[FakeData] the range 0..0.5 of a component of type Long is empty.");
}

// Whatever stands between a function that throws and the consumer.
TEST_F(BadInputTest, AFunctionThatThrowsIsFoundByStageAndDatapoint) {
  const auto fail_at_five = [](DataPoint p) {
    if (p[0].item<int64_t>() == 5) throw std::invalid_argument("no such word");
    return p;
  };
  const auto message = [](DataFlowPtr flow) {
    QueueInput source(std::move(flow), {.infinite = false});
    try {
      while (source.next()) continue;
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(message(numbers(9) | map(fail_at_five) | batch(2)),
            "[map] datapoint 5 of the pass: no such word");
  EXPECT_EQ(message(numbers(9) | map(fail_at_five) | prefetch(3) | batch(2)),
            "[map] datapoint 5 of the pass: no such word");
  EXPECT_EQ(message(numbers(9) | parallel_map(fail_at_five, {.threads = 2}) | batch(2)),
            "[parallel_map] datapoint 5 of the pass: no such word");
  EXPECT_EQ(message(numbers(9) | map_and_batch(fail_at_five, 2, {.threads = 2})),
            "[map_and_batch] datapoint 5 of the pass: no such word");
}

// A type of the user's own, which somebody may wait for.
struct NoSuchWord : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST_F(BadInputTest, ExceptionsOfTheUsersOwnTypesKeepThemInMap) {
  const auto flow = numbers(3) | map([](DataPoint) -> DataPoint { throw NoSuchWord("x"); });
  EXPECT_THROW(flow->next(), NoSuchWord);
}

}  // namespace
}  // namespace tensorpack::test
