// SPDX-License-Identifier: Apache-2.0
// Every example learns something within seconds.
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tensorpack/monitors/json_writer.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

class ExamplesTest : public testing::Test {
 protected:
  // Two threads that wait for each other on a busy machine take longer than one.
  ExamplesTest() { setenv("OMP_NUM_THREADS", "1", /*overwrite=*/0); }

  // Runs an example to its end and returns its output.
  std::string run(const std::string& name, std::vector<std::string> flags) {
    const std::string program = TENSORPACK_EXAMPLES "/" + name;
    if (!fs::exists(program)) {
      skipped_ = true;
      return "";
    }
    flags.insert(flags.begin(), program);
    ChildProcess child(std::move(flags));
    EXPECT_EQ(child.wait(), 0) << child.output();
    return child.output();
  }

  // What the run reported under a name, in order.
  std::vector<double> history(const std::string& name) const {
    std::vector<double> values;
    const auto rows = JSONWriter::load_existing_json(dir_.path() / "log");
    for (const auto& row : rows.value_or(std::vector<JSONWriter::Row>())) {
      if (row.contains(name)) values.push_back(row.at(name));
    }
    EXPECT_FALSE(values.empty()) << name;
    return values.empty() ? std::vector<double>{0} : values;
  }

  TempDir dir_;
  std::string logdir_ = dir_ / "log";
  bool skipped_ = false;
};

// Sixteen images, in the form of Fashion-MNIST.
void write_images(const fs::path& dir, const std::string& prefix) {
  fs::create_directories(dir);
  const std::string count("\0\0\0\x10", 4);
  const std::string side("\0\0\0\x1c", 4);
  write_file_atomically(
      dir / (prefix + "-images-idx3-ubyte"),
      std::string("\0\0\x08\x03", 4) + count + side + side + std::string(16 * 28 * 28, '\x40'));
  write_file_atomically(dir / (prefix + "-labels-idx1-ubyte"),
                        std::string("\0\0\x08\x01", 4) + count + std::string(16, '\x03'));
}

TEST_F(ExamplesTest, TheDefaultOneIsResumedWhereItWasEnded) {
  const std::string program = TENSORPACK_EXAMPLES "/fashion_mnist";
  if (!fs::exists(program)) GTEST_SKIP() << "the examples are not built";
  for (const char* prefix : {"train", "t10k"}) write_images(dir_ / "data", prefix);
  std::vector<std::string> command = {program,   "--data", dir_ / "data", "--logdir", logdir_,
                                      "--batch", "8",      "--epochs",    "100000"};
  {
    ChildProcess child(command);
    EXPECT_TRUE(child.read_until("model-4.safetensors")) << child.output();
    child.send(SIGTERM);
    EXPECT_EQ(child.wait(), 128 + SIGTERM);
    EXPECT_THAT(child.output(), testing::HasSubstr("add: --resume --logdir " + logdir_));
  }
  const int64_t epochs = *JSONWriter::load_existing_epoch_number(logdir_) + 1;
  command.back() = std::to_string(epochs);
  command.push_back("--resume");
  ChildProcess child(command);
  EXPECT_EQ(child.wait(), 0) << child.output();
  EXPECT_EQ(history("cost").size(), static_cast<size_t>(epochs));
}

TEST_F(ExamplesTest, DataflowShowsWhatItSays) {
  const std::string output = run("dataflow", {});
  if (skipped_) GTEST_SKIP() << "the examples are not built";
  EXPECT_THAT(output, testing::HasSubstr("999 of 1000 datapoints could be read"));
  EXPECT_THAT(output, testing::HasSubstr("map_and_batch"));
}

TEST_F(ExamplesTest, EveryLevelOfUseFitsTheLine) {
  for (const char* level : {"high", "class", "middle", "low", "none"}) {
    const std::string output = run("three_levels", {level});
    if (skipped_) GTEST_SKIP() << "the examples are not built";
    const size_t last = output.rfind("cost: ");
    ASSERT_NE(last, std::string::npos) << level << output;
    EXPECT_LT(std::stod(output.substr(last + 6)), 1e-3) << level;
  }
}

TEST_F(ExamplesTest, TwoOptimizersLearnToClassify) {
  run("two_optimizers", {"--epochs", "2", "--steps", "150", "--logdir", logdir_});
  if (skipped_) GTEST_SKIP() << "the examples are not built";
  EXPECT_GT(history("validation_accuracy").back(), 0.75);
  EXPECT_LT(history("cost").back(), history("cost").front());
}

TEST_F(ExamplesTest, WhatIsWatchedIsWritten) {
  const std::string output =
      run("watch_and_steer", {"--epochs", "2", "--steps", "100", "--logdir", logdir_});
  if (skipped_) GTEST_SKIP() << "the examples are not built";
  EXPECT_GT(history("validation_accuracy").back(), 0.65);
  EXPECT_EQ(history("activation-summary/conv1-rms").size(), 2u);
  EXPECT_THAT(output, testing::HasSubstr("| epoch | validation_accuracy |"));
  EXPECT_THAT(output, testing::HasSubstr("Profile of a step at global_step 10"));
  EXPECT_TRUE(fs::exists(fs::path(logdir_) / "max-validation_accuracy.safetensors"));
  EXPECT_TRUE(fs::exists(fs::path(logdir_) / "stats.csv"));
}

TEST_F(ExamplesTest, AnExportedModelRunsWhereItsSourceIsNot) {
  run("train_and_export", {"--logdir", logdir_});
  const std::string output = run("run_exported_model", {logdir_ + "/circle.tpx"});
  if (skipped_) GTEST_SKIP() << "the examples are not built";
  const auto probability = [&](const std::string& point) {
    const std::string text = point + " is inside with probability ";
    const size_t found = output.find(text);
    return found == std::string::npos ? -1.0 : std::stod(output.substr(found + text.size()));
  };
  EXPECT_GT(probability("( 0.0,  0.0)"), 0.9) << output;
  EXPECT_GE(probability("( 0.9,  0.9)"), 0.0) << output;
  EXPECT_LT(probability("( 0.9,  0.9)"), 0.1) << output;
  EXPECT_TRUE(fs::exists(logdir_ + "/circle.onnx"));
}

TEST_F(ExamplesTest, EvolutionLearnsToBalance) {
  run("evolution", {"--epochs", "6", "--logdir", logdir_});
  if (skipped_) GTEST_SKIP() << "the examples are not built";
  EXPECT_LT(history("score").front(), 20) << "before training";
  EXPECT_GT(history("score").back(), 300);
}

TEST_F(ExamplesTest, DQNLearnsToBalance) {
  run("dqn", {"--epochs", "30", "--logdir", logdir_});
  if (skipped_) GTEST_SKIP() << "the examples are not built";
  EXPECT_LT(history("score").front(), 60) << "random play";
  EXPECT_GT(history("score").back(), 100);
}

class GANTest : public ExamplesTest, public testing::WithParamInterface<const char*> {};

TEST_P(GANTest, SamplesComeNearerToTheData) {
  run("dcgan", {"--trainer", GetParam(), "--epochs", "3", "--steps", "100", "--batch", "32",
                "--logdir", logdir_});
  if (skipped_) GTEST_SKIP() << "the examples are not built";
  const std::vector<double> gap = history("mean_image_gap");
  ASSERT_EQ(gap.size(), 4);
  EXPECT_LT(gap.back(), 0.85 * gap.front());
  std::ifstream picture(dir_ / "log" / "samples-003.png", std::ios::binary);
  std::string signature(8, '\0');
  picture.read(signature.data(), 8);
  EXPECT_EQ(signature, "\x89PNG\r\n\x1a\n");
}

INSTANTIATE_TEST_SUITE_P(Family, GANTest, testing::Values("joint", "separate", "wgan"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(ExamplesTest, AModuleOfLibtorchLearnsToClassify) {
  const std::string output = run("torch_module", {"--epochs", "1", "--steps", "200"});
  if (skipped_) GTEST_SKIP() << "the examples are not built";
  const size_t last = output.rfind("validation_accuracy: ");
  ASSERT_NE(last, std::string::npos) << output;
  EXPECT_GT(std::stod(output.substr(last + 21)), 0.7);
}

TEST_F(ExamplesTest, LayersThatShareWeightsLearnToCompare) {
  const std::string output = run("layers", {});
  if (skipped_) GTEST_SKIP() << "the examples are not built";
  const size_t last = output.rfind("validation_accuracy: ");
  ASSERT_NE(last, std::string::npos) << output;
  EXPECT_GT(std::stod(output.substr(last + 21)), 0.95);
}

TEST_F(ExamplesTest, DevicesTrainsAndTalksAlone) {
  run("devices", {"processes", "--logdir", logdir_});
  if (skipped_) GTEST_SKIP() << "the examples are not built";
  EXPECT_LT(history("validation_cost").back(), 0.1 * history("validation_cost").front());
  EXPECT_THAT(run("devices", {"group", "--logdir", logdir_}), testing::HasSubstr("rank 0 saw 5"));
}

TEST_F(ExamplesTest, TheProgramOnTheFrontPageStartsToTrain) {
  const std::string program = TENSORPACK_EXAMPLES "/readme";
  if (!fs::exists(program)) GTEST_SKIP() << "the examples are not built";
  ChildProcess child({"/bin/sh", "-c", "cd " + dir_.path().string() + " && exec " + program});
  EXPECT_TRUE(child.read_until("Start epoch 1 ...")) << child.output();
  EXPECT_TRUE(fs::exists(dir_.path() / "train_log/readme/log.log"));
}

}  // namespace
}  // namespace tensorpack
