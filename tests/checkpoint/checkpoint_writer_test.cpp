// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/checkpoint_writer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <latch>

#include "tensorpack/utils/fs.h"
#include "tests/support/capture.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class CheckpointWriterTest : public testing::Test {
 protected:
  Checkpoint checkpoint(int64_t step) const {
    return {.variables = {{"w", weight_}}, .global_step = step, .epoch_num = 1};
  }
  at::Tensor saved(int64_t step) const {
    return load_checkpoint(dir_ / fmt::format("model-{}", step)).variables.at("w");
  }

  TempDir dir_;
  at::Tensor weight_ = at::zeros({3, 4});
};

TEST_F(CheckpointWriterTest, WhatChangesAfterwardsIsNotSaved) {
  for (const bool background : {true, false}) {
    CheckpointWriter writer(CheckpointDirectory(dir_.path()), {.background = background});
    for (int64_t step = 1; step <= 3; ++step) {
      weight_.fill_(static_cast<double>(step));
      writer.save(checkpoint(step));
      weight_.fill_(-1);
    }
    EXPECT_EQ(writer.wait(), "");
    for (int64_t step = 1; step <= 3; ++step) {
      EXPECT_TRUE(at::equal(saved(step), at::full({3, 4}, static_cast<double>(step))));
    }
  }
}

// The disk is asked for its free space only after a failure: here that is where a save is held up.
TEST_F(CheckpointWriterTest, SaveDoesNotWaitForTheDisk) {
  std::latch may_go_on(1);
  const auto wait_for_test = [&](const fs::path&) -> uint64_t {
    may_go_on.wait();
    return uint64_t{1} << 40;
  };
  fs::create_directory(dir_ / "model-1.safetensors");  // cannot be replaced by a file
  CheckpointWriter writer(CheckpointDirectory(dir_.path(), {.free_space = wait_for_test}),
                          {.retries = 0});
  stdout_of([&] {
    writer.save(checkpoint(1));
    may_go_on.count_down();  // would never be reached if save() waited
    writer.wait();
  });
  EXPECT_THAT(writer.wait(), HasSubstr("the checkpoint of step 1 was not saved"));
}

TEST_F(CheckpointWriterTest, AFailureIsToldUntilTheNextSuccess) {
  fs::create_directory(dir_ / "model-1.safetensors");
  CheckpointWriter writer(CheckpointDirectory(dir_.path()),
                          {.retries = 1, .seconds_between_retries = 0});
  const std::string log = stdout_of([&] {
    writer.save(checkpoint(1));
    EXPECT_THAT(writer.wait(), HasSubstr("step 1 was not saved"));
    EXPECT_THAT(writer.wait(), HasSubstr("step 1 was not saved"));
    writer.save(checkpoint(2));
    EXPECT_EQ(writer.wait(), "");
  });
  EXPECT_THAT(log, AllOf(HasSubstr("It is tried again."), HasSubstr("step 1 was not saved"),
                         HasSubstr("model-2.safetensors")));
}

TEST_F(CheckpointWriterTest, OthersCanWaitForAllOfThem) {
  CheckpointWriter writer(CheckpointDirectory(dir_.path()));
  writer.save(checkpoint(7));
  wait_for_checkpoints();
  EXPECT_TRUE(fs::exists(dir_ / "model-7.safetensors"));
}

TEST_F(CheckpointWriterTest, ItsEndIsTheEndOfWriting) {
  { CheckpointWriter(CheckpointDirectory(dir_.path())).save(checkpoint(7)); }
  EXPECT_TRUE(fs::exists(dir_ / "model-7.safetensors"));
}

TEST_F(CheckpointWriterTest, VariablesOfAllLayoutsAndShapesAreCopied) {
  CheckpointWriter writer(CheckpointDirectory(dir_.path()));
  const at::Tensor strided = at::arange(24, at::kFloat).reshape({2, 3, 4}).transpose(0, 2);
  const at::Tensor image = at::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  writer.save(
      {.variables = {{"a", strided}, {"b", image}, {"c", at::tensor(3)}}, .global_step = 1});
  // Another shape under the same name gets other memory.
  writer.save({.variables = {{"a", at::ones({2})}}, .global_step = 2});
  writer.wait();
  const NamedTensors first = load_checkpoint(dir_ / "model-1").variables;
  EXPECT_TRUE(at::equal(first.at("a"), strided));
  EXPECT_TRUE(at::equal(first.at("b"), image));
  EXPECT_EQ(first.at("c").item<int64_t>(), 3);
  EXPECT_TRUE(at::equal(load_checkpoint(dir_ / "model-2").variables.at("a"), at::ones({2})));
}

}  // namespace
}  // namespace tensorpack
