// SPDX-License-Identifier: Apache-2.0
// A damaged checkpoint is never loaded, and never in the way of a whole one.
#include <gmock/gmock.h>
#include <torch/types.h>

#include <fstream>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/checkpoint/checkpoint_directory.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/capture.h"

namespace tensorpack::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

Checkpoint small(int64_t step) {
  return {
      .variables = {{"w", torch::arange(6).reshape({2, 3})},
                    {"mask", torch::ones({3}, torch::kBool)},
                    {"empty", torch::empty({0})}},
      .training_only = {"mask"},
      .global_step = step,
      .epoch_num = 1,
      .extra = {{"generator/cpu", "00ff"}},
  };
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string flipped(std::string bytes, size_t byte, int bit) {
  bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << bit));
  return bytes;
}

TEST(DamageTest, EveryFlippedBitIsNoticed) {
  const TempDir dir;
  const fs::path path = dir / "a.safetensors";
  save_checkpoint(path, small(5));
  const std::string whole = read_file(path);
  for (size_t i = 0; i < whole.size(); ++i) {
    write(path, flipped(whole, i, static_cast<int>(i) % 8));
    EXPECT_THROW(load_checkpoint(path), Error)
        << "byte " << i << " in " << whole.substr(i < 20 ? 0 : i - 20, 40);
  }
  write(path, whole);
  EXPECT_EQ(load_checkpoint(path).global_step, 5);
}

TEST(DamageTest, EveryTruncationIsNoticed) {
  const TempDir dir;
  const fs::path path = dir / "a.safetensors";
  save_checkpoint(path, small(5));
  const std::string whole = read_file(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    write(path, whole.substr(0, size));
    EXPECT_THROW(load_checkpoint(path), Error) << size << " bytes";
  }
}

TEST(DamageTest, TheErrorNamesTheTensor) {
  const TempDir dir;
  const fs::path path = dir / "a.safetensors";
  save_checkpoint(path, small(5));
  const std::string whole = read_file(path);
  write(path, flipped(whole, whole.size() - 10, 0));
  EXPECT_THAT([&] { load_checkpoint(path); },
              ThrowsMessage<Error>(HasSubstr("the checksum of 'w' in")));
}

TEST(DamageTest, FilesOfTheFirstFormatHadNoChecksums) {
  const TempDir dir;
  write_safetensors(dir / "a.safetensors", {{"w", torch::ones({2})}},
                    {{"tensorpack_checkpoint", "1"}, {"global_step", "5"}, {"epoch_num", "1"}});
  EXPECT_EQ(load_checkpoint(dir / "a.safetensors").variables.size(), 1);
}

class NewestCheckpointTest : public testing::Test {
 protected:
  NewestCheckpointTest() {
    CheckpointDirectory checkpoints(dir_.path());
    for (const int64_t step : {20, 40, 60}) checkpoints.save(small(step));
  }

  int64_t step_loaded() {
    int64_t step = 0;
    log_ = stdout_of([&] { step = load_checkpoint(dir_.path()).global_step; });
    return step;
  }

  TempDir dir_;
  std::string log_;
};

TEST_F(NewestCheckpointTest, TheOneBeforeADamagedOneIsUsedAndThatIsTold) {
  const fs::path newest = dir_ / "model-60.safetensors";
  const std::string whole = read_file(newest);
  for (const std::string& bytes :
       {std::string(), whole.substr(0, whole.size() / 2), flipped(whole, whole.size() - 1, 0)}) {
    write(newest, bytes);
    EXPECT_EQ(step_loaded(), 40);
    EXPECT_THAT(log_, HasSubstr("model-60.safetensors'"));
    EXPECT_THAT(log_, HasSubstr("The one before it is tried."));
  }
  write(dir_ / "model-40.safetensors", "");
  EXPECT_EQ(step_loaded(), 20);
}

TEST_F(NewestCheckpointTest, WhenAllAreDamagedThereIsAnError) {
  for (const char* step : {"20", "40", "60"}) {
    write(dir_ / fmt::format("model-{}.safetensors", step), "");
  }
  EXPECT_THAT([&] { step_loaded(); },
              ThrowsMessage<Error>(HasSubstr("has 3 checkpoints, and none that is whole")));
}

TEST_F(NewestCheckpointTest, AFileThatIsNamedMustBeWhole) {
  write(dir_ / "model-60.safetensors", "");
  EXPECT_THROW(load_checkpoint(dir_ / "model-60"), Error);
}

}  // namespace
}  // namespace tensorpack::test
