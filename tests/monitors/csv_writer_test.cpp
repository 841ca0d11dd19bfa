// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/csv_writer.h"

#include <gmock/gmock.h>

#include <fstream>

#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/monitors/run_epochs.h"
#include "tests/support/capture.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;

class CSVWriterTest : public testing::Test {
 protected:
  std::string train(int64_t starting_epoch, int64_t max_epoch) {
    CSVWriter writer({.path = path_});
    return stdout_of([&] { run_epochs(writer, {starting_epoch, max_epoch}); });
  }

  TempDir dir_;
  std::filesystem::path path_ = dir_ / "stats.csv";
};

TEST_F(CSVWriterTest, ANewScalarGetsAColumnThatIsEmptyInEarlierRows) {
  train(1, 1);
  EXPECT_EQ(read_file(path_), "epoch_num,global_step,cost,error\n1,1,1,\n1,2,0.5,0.25\n");
}

TEST_F(CSVWriterTest, AResumedTrainingRemovesTheRowsThatComeAgain) {
  train(1, 3);
  const std::string uninterrupted = read_file(path_);
  train(2, 3);
  EXPECT_EQ(read_file(path_), uninterrupted);
}

TEST_F(CSVWriterTest, ContinuesAFileThatWasCutOff) {
  train(1, 2);
  const std::string uninterrupted = read_file(path_);
  train(1, 1);
  const std::string one = read_file(path_);
  std::ofstream(path_, std::ios::app) << "2,3,0.33";
  train(2, 2);
  EXPECT_EQ(read_file(path_), uninterrupted);
}

TEST_F(CSVWriterTest, AFileOfAnotherTrainingIsMovedAway) {
  write_file_atomically(path_, "a,b\n1,2\n");
  EXPECT_THAT(train(2, 2), HasSubstr("moved to 'stats.csv."));
  train(1, 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 3);
}

TEST_F(CSVWriterTest, NamesWithCommasAndQuotesAreReadBack) {
  for (const int64_t epoch : {1, 2}) {
    stdout_of([&] {
      CSVWriter writer({.path = path_});
      const LoopState loop{.epoch_num = epoch, .global_step = epoch, .starting_epoch = epoch};
      writer.before_train(loop);
      writer.process_scalar("a,\"b\"", static_cast<double>(epoch), loop);
      writer.trigger_epoch(loop);
    });
  }
  EXPECT_EQ(read_file(path_), "epoch_num,global_step,\"a,\"\"b\"\"\"\n1,1,1\n2,2,2\n");
}

TEST_F(CSVWriterTest, WithoutALogDirectoryWarnsAndWritesNothing) {
  reset_logger_dir();
  CSVWriter writer;
  EXPECT_THAT(stdout_of([&] { writer.before_train({}); }), HasSubstr("there is no log directory"));
}

TEST_F(CSVWriterTest, AFileThatCannotBeWrittenIsReportedOnce) {
  path_ = dir_ / "missing" / "stats.csv";
  const std::string text = train(1, 3);
  EXPECT_THAT(text, HasSubstr("Training goes on."));
  EXPECT_EQ(text.find("Training goes on."), text.rfind("Training goes on."));
}

}  // namespace
}  // namespace tensorpack
