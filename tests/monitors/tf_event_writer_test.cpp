// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/tf_event_writer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <regex>
#include <set>

#include "tensorpack/monitors/event_file.h"
#include "tensorpack/utils/crc32c.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/monitors/run_epochs.h"
#include "tests/support/act_at.h"
#include "tests/support/capture.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Crc32cTest, GivesThePublishedValues) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
}

class TFEventWriterTest : public testing::Test {
 protected:
  std::string train_quietly(int64_t starting_epoch, int64_t max_epoch,
                            TFEventWriterOptions options = {}) {
    options.dir = dir_.path();
    TFEventWriter writer(options);
    return stdout_of([&] { run_epochs(writer, {starting_epoch, max_epoch, false}); });
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(dir_.path())) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  std::vector<std::string> events() const {
    std::vector<std::string> all;
    for (const fs::path& file : files()) {
      for (std::string& event : read_events(file)) all.push_back(std::move(event));
    }
    return all;
  }

  // Of the events that have one.
  std::vector<int64_t> steps() const {
    std::vector<int64_t> steps;
    for (const std::string& event : events()) {
      if (step_of_event(event) > 0) steps.push_back(step_of_event(event));
    }
    return steps;
  }

  TempDir dir_;
};

// What Debian's protoc makes of a message; "" without protoc.
std::string decode(const std::string& message, const std::string& type = "Event") {
  if (std::system("command -v protoc > /dev/null") != 0) return "";
  const TempDir dir;
  write_file_atomically(dir / "message", message);
  const fs::path protos = fs::path(TENSORPACK_SOURCE_DIR) / "tests/monitors";
  const std::string command = fmt::format(
      "protoc --proto_path='{0}' --decode=tensorboard.{1} '{0}/event.proto' < '{2}' > '{3}'",
      protos.string(), type, (dir / "message").string(), (dir / "text").string());
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  // What the clock said is left out; that it was asked is not.
  const std::string text =
      std::regex_replace(read_file(dir / "text"), std::regex("wall_time: [0-9.e+]+\n"), "");
  return std::regex_replace(text, std::regex("_time_secs: 1[0-9.e+]+\n"), "_time_secs: now\n");
}

#define SKIP_WITHOUT_PROTOC()                                       \
  if (std::system("command -v protoc > /dev/null") != 0) {          \
    GTEST_SKIP() << "protoc is not installed (tools/setup --test)"; \
  }

class DecodedEventsTest : public TFEventWriterTest {
 protected:
  // The event after the one with the version of the file.
  template <typename Report>
  std::string decoded(const Report& report) {
    TFEventWriter writer({.dir = dir_.path()});
    const LoopState loop{.global_step = 7};
    writer.before_train(loop);
    report(writer, loop);
    writer.after_train(loop);
    const auto all = events();
    EXPECT_GE(all.size(), 2u);
    return decode(all.at(1));
  }

  // The data of the plugin for hyper-parameters: a message in an event.
  static std::string plugin_data_of(const std::string& event) {
    const size_t name = event.find("hparams\x12");  // field 2 comes after the plugin's name
    std::string bytes = event.substr(name + 8);
    size_t size = 0;
    size_t i = 0;
    for (int shift = 0;; shift += 7) {
      size |= (static_cast<size_t>(bytes.at(i)) & 0x7f) << shift;
      if ((bytes[i++] & 0x80) == 0) break;
    }
    return bytes.substr(i, size);
  }
};

TEST_F(DecodedEventsTest, AFileBeginsWithItsVersion) {
  SKIP_WITHOUT_PROTOC();
  decoded(
      [](TFEventWriter& writer, const LoopState& loop) { writer.process_scalar("x", 1, loop); });
  EXPECT_EQ(decode(events()[0]), "file_version: \"brain.Event:2\"\n");
}

TEST_F(DecodedEventsTest, Scalars) {
  SKIP_WITHOUT_PROTOC();
  EXPECT_EQ(decoded([](TFEventWriter& writer, const LoopState& loop) {
              writer.process_scalar("train/cost", 0.25, loop);
            }),
            "step: 7\n"
            "summary {\n  value {\n    tag: \"train/cost\"\n    simple_value: 0.25\n  }\n}\n");
}

TEST_F(DecodedEventsTest, Images) {
  SKIP_WITHOUT_PROTOC();
  const std::string text = decoded([](TFEventWriter& writer, const LoopState& loop) {
    writer.process_image("sample", Image(at::zeros({2, 5, 3})), loop);
  });
  EXPECT_THAT(text,
              HasSubstr("tag: \"sample\"\n    image {\n      height: 2\n      width: 5\n      "
                        "colorspace: 3\n      encoded_image_string: \"\\211PNG"));
}

TEST_F(DecodedEventsTest, Histograms) {
  SKIP_WITHOUT_PROTOC();
  const std::string text = decoded([](TFEventWriter& writer, const LoopState& loop) {
    writer.process_histogram("w", make_histogram(at::tensor({1.0, 2.0, 5.0}), 2), loop);
  });
  EXPECT_THAT(text,
              HasSubstr("histo {\n      min: 1\n      max: 5\n      num: 3\n      sum: 8\n"
                        "      sum_squares: 30\n      bucket_limit: 3\n      bucket_limit: 5\n"
                        "      bucket: 2\n      bucket: 1\n"));
}

TEST_F(DecodedEventsTest, Texts) {
  SKIP_WITHOUT_PROTOC();
  const std::string text = decoded([](TFEventWriter& writer, const LoopState& loop) {
    writer.process_text("note", "**bold**", loop);
  });
  EXPECT_THAT(text, HasSubstr("tensor {\n      dtype: DT_STRING\n      tensor_shape {\n      }\n"
                              "      string_val: \"**bold**\"\n"));
  EXPECT_THAT(text, HasSubstr("plugin_name: \"text\""));
}

TEST_F(DecodedEventsTest, HyperParams) {
  SKIP_WITHOUT_PROTOC();
  const std::string text = decoded([](TFEventWriter& writer, const LoopState& loop) {
    writer.process_hyper_params({{"lr", "0.5"}, {"model", "lenet"}, {"resume", "true"}}, loop);
  });
  EXPECT_THAT(text, HasSubstr("tag: \"_hparams_/session_start_info\""));
  EXPECT_EQ(
      decode(plugin_data_of(events()[1]), "HParamsPluginData"),
      "session_start_info {\n"
      "  hparams {\n    key: \"lr\"\n    value {\n      number_value: 0.5\n    }\n  }\n"
      "  hparams {\n    key: \"model\"\n    value {\n      string_value: \"lenet\"\n    }\n  }\n"
      "  hparams {\n    key: \"resume\"\n    value {\n      bool_value: true\n    }\n  }\n"
      "  start_time_secs: now\n"
      "}\n");
  ASSERT_EQ(events().size(), 3u);
  EXPECT_THAT(decode(events()[2]), HasSubstr("tag: \"_hparams_/session_end_info\""));
  EXPECT_EQ(decode(plugin_data_of(events()[2]), "HParamsPluginData"),
            "session_end_info {\n  status: STATUS_SUCCESS\n  end_time_secs: now\n}\n");
}

// It may be resumed, and succeed then.
TEST_F(TFEventWriterTest, ATrainingThatEndsEarlyHasNoStatus) {
  TFEventWriter writer({.dir = dir_.path()});
  writer.process_hyper_params({{"lr", "0.5"}}, {});
  writer.before_train({.max_epoch = 2});
  writer.after_train({.epoch_num = 1, .max_epoch = 2});
  EXPECT_EQ(events().size(), 2u);
}

// What follows `key` in the lines of a decoded message.
std::vector<std::string> values_of(const std::string& text, const std::string& key) {
  const std::regex pattern(key + ": \"(.*)\"");
  std::vector<std::string> values;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
    values.push_back((*match)[1]);
  }
  return values;
}

TEST_F(TFEventWriterTest, TheGraphOfAStepIsAGraphDef) {
  SKIP_WITHOUT_PROTOC();
  FakeTrainer trainer;
  stdout_of([&] { trainer.train({}, TFEventWriter({.dir = dir_.path()})); });
  std::vector<std::string> graphs;
  for (const std::string& event : events()) {
    if (decode(event).find("graph_def:") != std::string::npos) graphs.push_back(event);
  }
  ASSERT_EQ(graphs.size(), 1u);
  const std::string text = decode(graphs[0], "GraphEvent");
  EXPECT_THAT(text, HasSubstr("step: 1\n"));
  EXPECT_THAT(text, HasSubstr("versions {\n    producer: 22\n  }"));
  EXPECT_EQ(text.find("  5: "), std::string::npos) << "fields that GraphDef does not have";
  const std::vector<std::string> names = values_of(text, "    name");
  EXPECT_THAT(names, testing::IsSupersetOf({"w", "add_", "cost", "scope/twice"}));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  for (const std::string& input : values_of(text, "    input")) {
    EXPECT_THAT(names, testing::Contains(input.substr(0, input.find(':'))));
  }
  EXPECT_THAT(values_of(text, "    op"), testing::IsSupersetOf({"Variable", "Identity"}));
  EXPECT_THAT(text, HasSubstr("key: \"_output_shapes\"\n      value {\n        list {\n"
                              "          shape {\n            dim {\n              size: 3\n"))
      << "of the vector";
}

// TensorBoard takes the first event that has some.
TEST_F(TFEventWriterTest, AllHyperParamsOfARunAreInOneEvent) {
  FakeTrainer trainer;
  const auto report = [&] { trainer.monitors().put_hyper_params({{"mine", "7"}}); };
  stdout_of([&] {
    trainer.train({ActAt("before_train", 0, report)}, TFEventWriter({.dir = dir_.path()}));
  });
  std::vector<std::string> found;
  for (const std::string& event : events()) {
    if (event.find("_hparams_/session_start_info") != std::string::npos) found.push_back(event);
  }
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0], testing::AllOf(HasSubstr("mine"), HasSubstr("steps_per_epoch"),
                                       HasSubstr("precision"), HasSubstr("FakeTrainer")));
}

TEST_F(DecodedEventsTest, ANumberThatIsTooLongToBeExactIsAText) {
  SKIP_WITHOUT_PROTOC();
  const std::string text = decoded([](TFEventWriter& writer, const LoopState& loop) {
    writer.process_hyper_params({{"seed", "11010797487776243060"}, {"steps", "20"}}, loop);
  });
  EXPECT_THAT(text, HasSubstr("11010797487776243060"));
}

TEST_F(TFEventWriterTest, WritesAnEventForEveryValue) {
  train_quietly(1, 2);
  EXPECT_EQ(files().size(), 1u);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4));
}

TEST_F(TFEventWriterTest, WritesWhatWasReportedBeforeTraining) {
  TFEventWriter writer({.dir = dir_.path()});
  writer.process_scalar("early", 1, {.global_step = 3});
  writer.before_train({.global_step = 3, .starting_epoch = 2});
  EXPECT_THAT(steps(), ElementsAre(3));
}

TEST_F(TFEventWriterTest, EpochsCanHaveFilesOfTheirOwn) {
  train_quietly(1, 2, {.split_files = true});
  EXPECT_EQ(files().size(), 3u);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4));
}

// As after a kill: the checkpoint is that of epoch 1, the events have gone further.
TEST_F(TFEventWriterTest, AResumedTrainingRemovesTheEventsThatComeAgain) {
  train_quietly(1, 3);
  EXPECT_THAT(train_quietly(2, 3), HasSubstr("Removed 4 events of steps after 2"));
  EXPECT_EQ(files().size(), 2u);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(TFEventWriterTest, ATrainingFromTheStartMovesTheFilesOfAnotherAway) {
  train_quietly(1, 3);
  EXPECT_THAT(train_quietly(1, 1), HasSubstr("are moved to '"));
  EXPECT_THAT(steps(), ElementsAre(1, 2));
  size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(dir_.path())) {
    if (!entry.is_directory()) continue;
    ++folders;
    for (const auto& file : fs::directory_iterator(entry.path())) {
      EXPECT_EQ(read_events(file.path()).size(), 7u);
    }
  }
  EXPECT_EQ(folders, 1u);
}

TEST_F(TFEventWriterTest, AFileCutOffAnywhereLosesOnlyItsLastEvent) {
  train_quietly(1, 1);
  const fs::path file = files()[0];
  const std::string whole = read_file(file);
  const std::vector<std::string> all = read_events(file);
  ASSERT_EQ(all.size(), 3u);
  for (size_t size = whole.size() - all[2].size() - 16; size < whole.size(); ++size) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    EXPECT_EQ(read_events(file).size(), 2u) << size;
  }
}

TEST_F(TFEventWriterTest, ADamagedByteIsNoticed) {
  train_quietly(1, 1);
  const fs::path file = files()[0];
  std::string bytes = read_file(file);
  bytes[bytes.size() - 6] ^= 1;
  write_file_atomically(file, bytes);
  EXPECT_EQ(read_events(file).size(), 2u);
}

TEST_F(TFEventWriterTest, AResumedTrainingRepairsAFileThatWasCutOff) {
  train_quietly(1, 1);
  const fs::path file = files()[0];
  const std::string whole = read_file(file);
  write_file_atomically(file, whole.substr(0, whole.size() - 3));
  train_quietly(2, 2);
  EXPECT_THAT(steps(), ElementsAre(1, 3, 4));
}

TEST_F(TFEventWriterTest, WithoutALogDirectoryWarnsAndWritesNothing) {
  reset_logger_dir();
  TFEventWriter writer;
  EXPECT_THAT(
      stdout_of([&] { run_epochs(writer, {.first = 1, .last = 1, .reports_error = false}); }),
      HasSubstr("there is no log directory"));
}

TEST_F(TFEventWriterTest, ADirectoryThatCannotBeMadeIsReportedOnceAndTrainingGoesOn) {
  write_file_atomically(dir_ / "file", "");
  TFEventWriter writer({.dir = dir_ / "file/sub"});
  const std::string text =
      stdout_of([&] { run_epochs(writer, {.first = 1, .last = 2, .reports_error = false}); });
  EXPECT_THAT(text, HasSubstr("training goes on"));
  EXPECT_EQ(text.find("training goes on"), text.rfind("training goes on"));
}

}  // namespace
}  // namespace tensorpack
