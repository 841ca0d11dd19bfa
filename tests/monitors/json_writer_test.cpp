// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/json_writer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/monitors/run_epochs.h"
#include "tests/support/capture.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class JSONWriterTest : public testing::Test {
 protected:
  std::string train_quietly(int64_t starting_epoch, int64_t max_epoch) {
    JSONWriter writer({.path = path_});
    return stdout_of([&] { run_epochs(writer, {starting_epoch, max_epoch}); });
  }

  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(dir_.path()), {}));
  }

  nlohmann::json list() const { return nlohmann::json::parse(read_file(path_)); }

  TempDir dir_;
  std::filesystem::path path_ = dir_ / "stats.json";
};

constexpr const char* kOneEpoch =
    "[\n"
    "{\"cost\":1.0,\"epoch_num\":1,\"global_step\":1},\n"
    "{\"cost\":0.5,\"epoch_num\":1,\"error\":0.25,\"global_step\":2}\n"
    "]";

TEST_F(JSONWriterTest, WritesOneObjectPerStepAndJoinsTheLastWithItsEpoch) {
  train_quietly(1, 1);
  EXPECT_EQ(read_file(path_), kOneEpoch);
}

TEST_F(JSONWriterTest, IsAValidListAfterEveryWrite) {
  JSONWriter writer({.path = path_});
  LoopState loop{.steps_per_epoch = 100};
  writer.before_train(loop);
  for (loop.local_step = 0; loop.local_step < 5; ++loop.local_step) {
    writer.process_scalar("x", 1, loop);
    writer.trigger_step(loop);
    EXPECT_EQ(list().size(), static_cast<size_t>(loop.local_step + 1));
  }
}

TEST_F(JSONWriterTest, StepsWithoutScalarsLeaveNoTrace) {
  JSONWriter writer({.path = path_});
  LoopState loop{.local_step = 0, .steps_per_epoch = 9};
  writer.before_train(loop);
  writer.trigger_step(loop);
  writer.trigger_epoch(loop);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(JSONWriterTest, WritesWhatWasReportedBeforeTraining) {
  JSONWriter writer({.path = path_});
  const LoopState loop{};
  writer.process_scalar("error", 0.9, loop);
  writer.before_train(loop);
  EXPECT_EQ(read_file(path_), "[\n{\"epoch_num\":0,\"error\":0.9,\"global_step\":0}\n]");
}

TEST_F(JSONWriterTest, NonFiniteValuesAreNull) {
  JSONWriter writer({.path = path_});
  const LoopState loop{};
  writer.before_train(loop);
  writer.process_scalar("cost", std::numeric_limits<double>::quiet_NaN(), loop);
  writer.trigger_epoch(loop);
  EXPECT_TRUE(list()[0]["cost"].is_null());
}

TEST_F(JSONWriterTest, TheNextEpochContinuesTheFile) {
  train_quietly(1, 1);
  EXPECT_THAT(train_quietly(2, 2), HasSubstr("will append"));
  EXPECT_EQ(list().size(), 4u);
  EXPECT_EQ(list()[3]["global_step"], 4);
  EXPECT_EQ(files(), 1u);
}

TEST_F(JSONWriterTest, AnotherEpochMovesTheFileAway) {
  train_quietly(1, 3);
  EXPECT_THAT(train_quietly(1, 1),
              HasSubstr("ends with epoch 3, but training starts with epoch 1"));
  EXPECT_EQ(read_file(path_), kOneEpoch);
  EXPECT_EQ(files(), 2u);
}

// As after a kill: the checkpoint is that of epoch 1, the statistics have gone further.
TEST_F(JSONWriterTest, AResumedTrainingRemovesTheRowsThatComeAgain) {
  train_quietly(1, 3);
  const std::string uninterrupted = read_file(path_);
  EXPECT_THAT(train_quietly(2, 3), HasSubstr("Removed 4 rows of '"));
  EXPECT_EQ(read_file(path_), uninterrupted);
  EXPECT_EQ(files(), 1u);
}

TEST_F(JSONWriterTest, AnEpochWithoutNumbersDoesNotEndTheFile) {
  train_quietly(1, 1);
  EXPECT_THAT(train_quietly(4, 4), HasSubstr("will append"));
  EXPECT_EQ(list().size(), 4u);
  EXPECT_EQ(files(), 1u);
}

TEST_F(JSONWriterTest, ATrainingFromElsewhereDoesNotRemoveTheRowsOfAnother) {
  train_quietly(1, 3);
  JSONWriter writer({.path = path_});
  // Weights of step 6, and the first epoch of something new.
  stdout_of([&] { writer.before_train({.global_step = 6, .starting_epoch = 1}); });
  EXPECT_FALSE(std::filesystem::exists(path_)) << "it was moved away";
  EXPECT_EQ(files(), 1u);
}

// Writing such a list again would overflow the stack.
TEST_F(JSONWriterTest, AFileSpoiltByOthersIsMovedAwayInTheMiddleOfTraining) {
  for (const std::string& text : {std::string(200'000, '['), std::string("[\0]", 3),
                                  std::string(200'000, '[') + std::string(200'000, ']'),
                                  std::string("\0", 1), std::string("{\"a\":1}")}) {
    JSONWriter writer({.path = path_});
    stdout_of([&] {
      writer.before_train({});
      std::ofstream(path_, std::ios::binary) << text;
      writer.process_scalar("x", 1, {});
      writer.trigger_epoch({});
    });
    EXPECT_EQ(list().size(), 1u);
    std::filesystem::remove(path_);
  }
  EXPECT_EQ(files(), 5u) << "nothing is thrown away";
}

TEST_F(JSONWriterTest, FilesMovedInOneSecondDoNotReplaceEachOther) {
  for (int i = 0; i < 4; ++i) train_quietly(1, 1);
  EXPECT_EQ(files(), 4u);
}

TEST_F(JSONWriterTest, AnyNameCanBeWritten) {
  JSONWriter writer({.path = path_});
  writer.before_train({});
  writer.process_scalar("\"\xff\n", 1, {});
  writer.trigger_epoch({});
  EXPECT_EQ(list().size(), 1u);
}

TEST_F(JSONWriterTest, AFileThatIsNoListIsMovedAway) {
  write_file_atomically(path_, "not JSON");
  EXPECT_THAT(train_quietly(1, 1), HasSubstr("ends with epoch unknown"));
  EXPECT_EQ(read_file(path_), kOneEpoch);
  EXPECT_EQ(files(), 2u);
}

TEST_F(JSONWriterTest, ContinuesAFileWrittenOnOneLine) {
  write_file_atomically(path_, "[{\"cost\": 2, \"epoch_num\": 1, \"global_step\": 2}]");
  train_quietly(2, 2);
  EXPECT_EQ(list().size(), 3u);
  EXPECT_EQ(list()[0]["cost"], 2);
}

TEST_F(JSONWriterTest, AFileCutOffAnywhereLosesOnlyItsLastObject) {
  const std::string whole = kOneEpoch;
  const size_t end_of_first = whole.find("},") + 1;
  for (size_t size = 1; size < whole.size(); ++size) {
    std::ofstream(path_) << whole.substr(0, size);
    const auto list = JSONWriter::load_existing_json(dir_.path());
    ASSERT_TRUE(list.has_value()) << size;
    const bool has_second = size >= whole.rfind('}') + 1;
    EXPECT_EQ(list->size(), has_second ? 2u : size >= end_of_first ? 1u : 0u) << size;
  }
}

TEST_F(JSONWriterTest, ContinuesAFileThatWasCutOff) {
  const std::string whole = kOneEpoch;
  write_file_atomically(path_, whole.substr(0, whole.size() - 8));
  EXPECT_THAT(train_quietly(2, 2), HasSubstr("its last whole row is of step 1 in epoch 1"));
  EXPECT_EQ(list().size(), 3u);
  EXPECT_EQ(list()[0]["global_step"], 1);
  EXPECT_EQ(list()[1]["global_step"], 3);
}

TEST_F(JSONWriterTest, SaysWhatAFileThatWasCutOffHasLost) {
  train_quietly(1, 9);
  const std::string whole = read_file(path_);
  EXPECT_THAT(train_quietly(10, 10), Not(HasSubstr("cut off")));
  write_file_atomically(path_, whole.substr(0, whole.find("},") + 1));
  EXPECT_THAT(train_quietly(10, 10), AllOf(HasSubstr("stats.json' was cut off"),
                                           HasSubstr("of step 1 in epoch 1"), HasSubstr("lost")));
  write_file_atomically(path_, "[\n{\"cost");
  EXPECT_THAT(train_quietly(10, 10), HasSubstr("was cut off: it has no whole row"));
  JSONWriter writer({.path = path_});
  EXPECT_THAT(stdout_of([&] {
                writer.before_train({.starting_epoch = 11});
                write_file_atomically(path_, whole.substr(0, whole.size() - 3));
                writer.process_scalar("x", 1, {});
                writer.trigger_epoch({});
              }),
              HasSubstr("was cut off"));
}

TEST_F(JSONWriterTest, LoadsTheNumbersOfEveryStep) {
  write_file_atomically(path_, R"([{"cost": null, "epoch_num": 1, "name": "x"}, 7])");
  const auto rows = JSONWriter::load_existing_json(dir_.path());
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_TRUE(std::isnan(rows->at(0).at("cost")));
  EXPECT_EQ(rows->at(0).at("epoch_num"), 1);
  EXPECT_FALSE(rows->at(0).contains("name"));
  EXPECT_TRUE(rows->at(1).empty());
}

TEST_F(JSONWriterTest, LoadsTheLastEpochNumber) {
  EXPECT_EQ(JSONWriter::load_existing_epoch_number(dir_.path()), std::nullopt);
  train_quietly(1, 2);
  EXPECT_EQ(JSONWriter::load_existing_epoch_number(dir_.path()), 2);
}

TEST_F(JSONWriterTest, UsesTheLogDirectory) {
  const std::string text = stdout_of([&] {
    set_logger_dir(dir_.path(), LogDirAction::kKeep);
    JSONWriter writer;
    run_epochs(writer, {1, 1});
    EXPECT_EQ(JSONWriter::load_existing_epoch_number(), 1);
    reset_logger_dir();
  });
  EXPECT_EQ(read_file(path_), kOneEpoch);
}

TEST_F(JSONWriterTest, WithoutALogDirectoryWarnsAndWritesNothing) {
  reset_logger_dir();
  JSONWriter writer;
  EXPECT_THAT(stdout_of([&] {
                run_epochs(writer, {1, 1});
              }),
              HasSubstr("there is no log directory"));
  EXPECT_EQ(JSONWriter::load_existing_json(), std::nullopt);
}

TEST_F(JSONWriterTest, AFileThatCannotBeWrittenIsReportedOnce) {
  JSONWriter writer({.path = dir_ / "missing" / "stats.json"});
  const std::string text = stdout_of([&] { run_epochs(writer, {1, 3}); });
  EXPECT_THAT(text, HasSubstr("Training goes on."));
  EXPECT_EQ(text.find("Training goes on."), text.rfind("Training goes on."));
}

}  // namespace
}  // namespace tensorpack
