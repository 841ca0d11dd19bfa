// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <torch/types.h>

#include "tensorpack/checkpoint/checkpoint_directory.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/capture.h"

namespace tensorpack::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::ThrowsMessage;

namespace fs = std::filesystem;
using std::chrono::minutes;

Checkpoint at_step(int64_t step) {
  return {
      .variables = {{"conv0/W", torch::full({2}, static_cast<float>(step))}},
      .global_step = step,
      .epoch_num = step / 100,
  };
}

std::vector<std::string> names(const std::vector<fs::path>& paths) {
  std::vector<std::string> result;
  for (const auto& path : paths) result.push_back(path.filename());
  return result;
}

std::vector<std::string> model_files(const fs::path& dir) {
  std::vector<std::string> result;
  for (const auto& file : fs::directory_iterator(dir)) {
    if (file.path().extension() == kCheckpointExtension) result.push_back(file.path().filename());
  }
  std::sort(result.begin(), result.end());
  return result;
}

// A clock that stands still until it is told to move.
struct FakeClock {
  std::chrono::system_clock::time_point time{std::chrono::hours(480'000)};

  CheckpointDirectoryOptions keeping(int64_t max_to_keep, double hours) {
    return {.max_to_keep = max_to_keep, .keep_checkpoint_every_n_hours = hours, .now = [this] {
              return time;
            }};
  }
};

TEST(CheckpointTest, WhatWasSavedIsLoaded) {
  const TempDir dir;
  Checkpoint saved = at_step(250);
  saved.training_only = {"conv0/W", "a \"quoted\" name"};
  saved.extra = {{"rng", "17 4"}, {"MaxSaver/best", "{\"value\": 0.5}"}};
  saved.fingerprint = {{{.name = "data", .lines = {"Batch(4)"}}}};
  save_checkpoint(dir / "a.safetensors", saved);
  const Checkpoint loaded = load_checkpoint(dir / "a.safetensors");
  EXPECT_EQ(loaded.global_step, 250);
  EXPECT_EQ(loaded.epoch_num, 2);
  EXPECT_EQ(loaded.training_only, saved.training_only);
  EXPECT_EQ(loaded.extra, saved.extra);
  EXPECT_EQ(loaded.fingerprint, saved.fingerprint);
  EXPECT_EQ(loaded.format, 3);
  ASSERT_EQ(loaded.variables.size(), 1);
  EXPECT_TRUE(torch::equal(loaded.variables.at("conv0/W"), saved.variables.at("conv0/W")));
  EXPECT_EQ(read_safetensors(dir / "a.safetensors").metadata.at("tensorpack_checkpoint"), "3");
}

// Written by version 0.1.0, before format 3.
TEST(CheckpointTest, AFileOfFormat2IsRead) {
  const Checkpoint loaded = load_checkpoint(fs::path(TENSORPACK_SOURCE_DIR) /
                                            "tests/checkpoint/data/format_2.safetensors");
  EXPECT_EQ(loaded.format, 2);
  EXPECT_EQ(loaded.global_step, 8);
  EXPECT_EQ(loaded.epoch_num, 2);
  EXPECT_THAT(loaded.variables, SizeIs(4));
  EXPECT_THAT(loaded.training_only, ElementsAre("global_step", "learning_rate"));
  EXPECT_EQ(loaded.extra.at("callback/MinSaver"), "0x1.8p-1");
  EXPECT_TRUE(loaded.fingerprint.empty());
}

TEST(CheckpointTest, FileDirectoryAndIndexAllNameACheckpoint) {
  const TempDir dir;
  CheckpointDirectory checkpoints(dir.path());
  checkpoints.save(at_step(100));
  checkpoints.save(at_step(200));
  EXPECT_EQ(load_checkpoint(dir.path()).global_step, 200);
  EXPECT_EQ(load_checkpoint(dir / "checkpoint").global_step, 200);
  EXPECT_EQ(load_checkpoint(dir / "model-100.safetensors").global_step, 100);
  EXPECT_EQ(load_checkpoint(dir / "model-100").global_step, 100);
}

TEST(CheckpointTest, MissingFileSuggestsThoseThatAreThere) {
  const TempDir dir;
  CheckpointDirectory(dir.path()).save(at_step(100));
  EXPECT_THAT([&] { load_checkpoint(dir / "modle-100.safetensors"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("no checkpoint 'modle-100.safetensors'"),
                                         HasSubstr("Did you mean 'model-100.safetensors'?"))));
  EXPECT_THAT([&] { load_checkpoint(dir / "none/model-1"); },
              ThrowsMessage<Error>(HasSubstr("There are none.")));
}

TEST(CheckpointTest, EmptyDirectoryAndForeignFilesAreErrors) {
  const TempDir dir;
  EXPECT_THAT([&] { load_checkpoint(dir.path()); },
              ThrowsMessage<Error>(HasSubstr("no checkpoint in the directory")));
  write_safetensors(dir / "w.safetensors", {{"x", torch::ones({1})}});
  EXPECT_THAT([&] { load_checkpoint(dir / "w.safetensors"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("not a checkpoint of this library"),
                                         HasSubstr("read_safetensors()"))));
  const auto refused = [&](const Metadata& metadata, const char* reason) {
    write_safetensors(dir / "w.safetensors", {}, metadata);
    EXPECT_THAT([&] { load_checkpoint(dir / "w.safetensors"); },
                ThrowsMessage<Error>(HasSubstr(reason)));
  };
  refused({{"tensorpack_checkpoint", "99"}}, "format 99");
  refused({{"tensorpack_checkpoint", "1"}}, "no 'global_step'");
  refused({{"tensorpack_checkpoint", "1"}, {"global_step", "7x"}}, "is '7x' instead of an integer");
  refused({{"tensorpack_checkpoint", "1"},
           {"global_step", "1"},
           {"epoch_num", "1"},
           {"fingerprint", "[{}]"}},
          "no fingerprint of a program");
  refused({{"tensorpack_checkpoint", "1"}, {"global_step", "-1"}}, "instead of an integer in 0..");
  refused(
      {{"tensorpack_checkpoint", "1"}, {"global_step", "1"}, {"epoch_num", "9223372036854775807"}},
      "'epoch_num' in the metadata");
  refused({{"tensorpack_checkpoint", "1"},
           {"global_step", "1"},
           {"epoch_num", "1"},
           {"training_only", "{"}},
          "is not a list of names");
}

TEST(CheckpointDirectoryTest, StartsEmptyAndNeedNotExist) {
  const TempDir dir;
  CheckpointDirectory checkpoints(dir / "a/b");
  EXPECT_FALSE(checkpoints.latest());
  EXPECT_THAT(checkpoints.all(), IsEmpty());
  EXPECT_FALSE(fs::exists(dir / "a"));
  EXPECT_EQ(checkpoints.save(at_step(7)), dir / "a/b/model-7.safetensors");
  EXPECT_EQ(checkpoints.latest(), dir / "a/b/model-7.safetensors");
}

TEST(CheckpointDirectoryTest, KeepsTheLastOnes) {
  const TempDir dir;
  FakeClock clock;
  CheckpointDirectory checkpoints(dir.path(), clock.keeping(2, 0));
  for (const int64_t step : {100, 200, 1000}) {
    clock.time += minutes(60);
    checkpoints.save(at_step(step));
  }
  EXPECT_THAT(names(checkpoints.all()),
              ElementsAre("model-200.safetensors", "model-1000.safetensors"));
  EXPECT_THAT(model_files(dir.path()),
              ElementsAre("model-1000.safetensors", "model-200.safetensors"));
}

TEST(CheckpointDirectoryTest, ZeroKeepsAll) {
  const TempDir dir;
  CheckpointDirectory checkpoints(dir.path(), {.max_to_keep = 0});
  for (int64_t step = 0; step < 15; ++step) checkpoints.save(at_step(step));
  EXPECT_EQ(checkpoints.all().size(), 15);
  EXPECT_EQ(model_files(dir.path()).size(), 15);
}

// One checkpoint every 20 minutes, one an hour stays: those saved first after 60, 120, 180 minutes.
TEST(CheckpointDirectoryTest, OneInSoManyHoursStaysForever) {
  const TempDir dir;
  FakeClock clock;
  CheckpointDirectory checkpoints(dir.path(), clock.keeping(2, 1.0));
  for (int64_t minute = 20; minute <= 260; minute += 20) {
    clock.time += minutes(20);
    checkpoints.save(at_step(minute));
  }
  EXPECT_THAT(names(checkpoints.all()),
              ElementsAre("model-80.safetensors", "model-140.safetensors", "model-200.safetensors",
                          "model-240.safetensors", "model-260.safetensors"));
}

TEST(CheckpointDirectoryTest, AfterALongPauseNotEverythingStays) {
  const TempDir dir;
  FakeClock clock;
  CheckpointDirectory checkpoints(dir.path(), clock.keeping(1, 1.0));
  clock.time += minutes(600);
  for (const int64_t step : {1, 2, 3, 4}) {
    clock.time += minutes(1);
    checkpoints.save(at_step(step));
  }
  EXPECT_THAT(names(checkpoints.all()), ElementsAre("model-1.safetensors", "model-4.safetensors"));
}

TEST(CheckpointDirectoryTest, ALaterRunGoesOnWithTheSameList) {
  const TempDir dir;
  FakeClock clock;
  {
    CheckpointDirectory first(dir.path(), clock.keeping(2, 1.0));
    for (const int64_t step : {1, 2, 3, 4}) {
      clock.time += minutes(40);  // step 2 is the one that stays
      first.save(at_step(step));
    }
  }
  CheckpointDirectory second(dir.path(), clock.keeping(2, 1.0));
  EXPECT_EQ(second.latest(), dir / "model-4.safetensors");
  second.save(at_step(5));
  second.save(at_step(6));
  EXPECT_THAT(model_files(dir.path()), ElementsAre("model-2.safetensors", "model-4.safetensors",
                                                   "model-5.safetensors", "model-6.safetensors"))
      << "2 was promised before, 4 was saved after the second hour, 3 had to go";
}

TEST(CheckpointDirectoryTest, SeveralObjectsShareOneList) {
  const TempDir dir;
  CheckpointDirectory two(dir.path(), {.max_to_keep = 2});
  CheckpointDirectory five(dir.path(), {.max_to_keep = 5});
  two.save(at_step(100));
  five.save(at_step(200));
  two.save(at_step(300));
  EXPECT_THAT(model_files(dir.path()),
              ElementsAre("model-200.safetensors", "model-300.safetensors"));
  five.save(at_step(400));
  EXPECT_THAT(
      names(CheckpointDirectory(dir.path()).newest_first()),
      ElementsAre("model-400.safetensors", "model-300.safetensors", "model-200.safetensors"));
}

TEST(CheckpointDirectoryTest, SavingAStepAgainReplacesIt) {
  const TempDir dir;
  CheckpointDirectory checkpoints(dir.path(), {.max_to_keep = 2});
  checkpoints.save(at_step(1));
  checkpoints.save(at_step(2));
  Checkpoint again = at_step(1);
  again.epoch_num = 77;
  checkpoints.save(again);
  EXPECT_EQ(checkpoints.all().size(), 2);
  EXPECT_EQ(checkpoints.latest(), dir / "model-1.safetensors");
  EXPECT_EQ(load_checkpoint(dir.path()).epoch_num, 77);
}

TEST(CheckpointDirectoryTest, LatestIsTheOneSavedLastNotTheHighestStep) {
  const TempDir dir;
  FakeClock clock;
  CheckpointDirectory(dir.path(), clock.keeping(5, 0)).save(at_step(500));
  CheckpointDirectory(dir.path(), clock.keeping(5, 0)).save(at_step(100));
  EXPECT_EQ(load_checkpoint(dir.path()).global_step, 100);
}

TEST(CheckpointDirectoryTest, FindsCheckpointsWithoutAnIndexAndNothingElse) {
  const TempDir dir;
  for (const char* name : {"model-3.safetensors", "max-accuracy.safetensors", "model-x.safetensors",
                           "model-03.safetensors", "model-4.safetensors.tmp", "model-5"}) {
    save_checkpoint(dir / name, at_step(3));
  }
  CheckpointDirectory checkpoints(dir.path());
  EXPECT_THAT(names(checkpoints.all()), ElementsAre("model-3.safetensors"));
  EXPECT_EQ(checkpoints.latest(), dir / "model-3.safetensors");
}

TEST(CheckpointDirectoryTest, ForgetsWhatWasRemovedByHand) {
  const TempDir dir;
  CheckpointDirectory checkpoints(dir.path());
  checkpoints.save(at_step(1));
  checkpoints.save(at_step(2));
  fs::remove(dir / "model-2.safetensors");
  EXPECT_EQ(load_checkpoint(dir.path()).global_step, 1);
}

TEST(CheckpointDirectoryTest, IndexNamesRelativePaths) {
  const TempDir dir;
  CheckpointDirectory checkpoints(dir.path());
  checkpoints.save(at_step(1));
  checkpoints.save(at_step(2));
  const std::string index = read_file(dir / "checkpoint");
  EXPECT_THAT(index, HasSubstr("\"latest\": \"model-2.safetensors\""));
  EXPECT_THAT(index, Not(HasSubstr(dir.path().string())));
}

TEST(CheckpointDirectoryTest, ADamagedIndexIsToldAndTheFilesAreFound) {
  const TempDir dir;
  CheckpointDirectory(dir.path()).save(at_step(1));
  CheckpointDirectory(dir.path()).save(at_step(2));
  for (const char* text :
       {"", "{", "[]", "{\"latest\": 3, \"all\": []}", "{\"all\": [1]}", "\xff"}) {
    write_file_atomically(dir / "checkpoint", text);
    const std::string log =
        stdout_of([&] { EXPECT_EQ(load_checkpoint(dir.path()).global_step, 2) << text; });
    EXPECT_THAT(log, HasSubstr("is not an index of checkpoints"));
  }
}

TEST(CheckpointDirectoryTest, AnIndexCannotLeadOutOfTheDirectory) {
  const TempDir dir;
  fs::create_directory(dir / "other");
  save_checkpoint(dir / "other/model-9.safetensors", at_step(9));
  CheckpointDirectory(dir / "mine").save(at_step(1));
  for (const std::string name :
       {"../other/model-9.safetensors", "/etc/passwd", "model-9.safetensors",
        "model-1.safetensors/../model-1.safetensors"}) {
    write_file_atomically(dir / "mine/checkpoint",
                          fmt::format(R"({{"latest": "{0}", "all": ["{0}", "{0}"]}})", name));
    EXPECT_EQ(load_checkpoint(dir / "mine").global_step, 1) << name;
    EXPECT_THAT(names(CheckpointDirectory(dir / "mine").all()), ElementsAre("model-1.safetensors"));
  }
}

TEST(CheckpointDirectoryTest, TimesThatOverflowDoNoHarm) {
  const TempDir dir;
  CheckpointDirectory(dir.path()).save(at_step(1));
  for (const char* time : {"9223372036854775807", "-9223372036854775808", "0"}) {
    write_file_atomically(
        dir / "checkpoint",
        fmt::format(R"({{"latest": "model-1.safetensors", "all": ["model-1.safetensors"],)"
                    R"("saved_at": {{"model-1.safetensors": {0}}}, "keep_time": {0}}})",
                    time));
    CheckpointDirectory checkpoints(dir.path(),
                                    {.max_to_keep = 1, .keep_checkpoint_every_n_hours = 1e-9});
    checkpoints.save(at_step(2));
    EXPECT_EQ(checkpoints.latest(), dir / "model-2.safetensors");
    CheckpointDirectory(dir.path(), {.keep_checkpoint_every_n_hours = 1e300}).save(at_step(1));
  }
}

TEST(CheckpointDirectoryTest, WithoutAnIndexTheHighestStepIsTheLatestWhateverTheTimes) {
  const TempDir dir;
  CheckpointDirectory checkpoints(dir.path());
  for (const int64_t step : {40, 50, 60}) checkpoints.save(at_step(step));
  fs::remove(dir / "checkpoint");
  // As a copy in any order leaves them.
  fs::last_write_time(dir / "model-40.safetensors", fs::file_time_type::clock::now());
  fs::last_write_time(dir / "model-60.safetensors",
                      fs::file_time_type::clock::now() - std::chrono::hours(5));
  EXPECT_EQ(load_checkpoint(dir.path()).global_step, 60);
}

TEST(CheckpointDirectoryTest, FailedSaveLeavesTheLatestAsItWas) {
  const TempDir dir;
  CheckpointDirectory checkpoints(dir.path(), {.max_to_keep = 1});
  checkpoints.save(at_step(1));
  Checkpoint bad = at_step(2);
  bad.variables["bad"] = at::Tensor();
  EXPECT_THROW(checkpoints.save(bad), Error);
  EXPECT_THAT(names(checkpoints.all()), ElementsAre("model-1.safetensors"));
  EXPECT_EQ(load_checkpoint(dir.path()).global_step, 1);
}

TEST(CheckpointDirectoryTest, AFullDiskCostsTheOldestCheckpointsAndNeverTheLatest) {
  // A directory is in the way of the new file until so many files are left.
  const auto save_when = [](size_t blocked_until) {
    const TempDir place;
    CheckpointDirectory checkpoints(
        place.path(), {.max_to_keep = 4, .free_space = [&](const fs::path& where) -> uint64_t {
                         if (model_files(where).size() == blocked_until) {
                           fs::remove(where / "model-4.safetensors");
                         }
                         return 0;
                       }});
    for (const int64_t step : {1, 2, 3}) checkpoints.save(at_step(step));
    fs::create_directory(place / "model-4.safetensors");
    stdout_of([&] { checkpoints.save(at_step(4)); });
    return names(checkpoints.all());
  };
  // The obstacle counts among the files.
  EXPECT_THAT(save_when(3), ElementsAre("model-3.safetensors", "model-4.safetensors"));
  EXPECT_THAT(save_when(4),
              ElementsAre("model-2.safetensors", "model-3.safetensors", "model-4.safetensors"));
  EXPECT_THROW(save_when(0), Error) << "model-3 has to stay";
}

TEST(CheckpointDirectoryTest, OtherFailuresThanAFullDiskCostNothing) {
  const TempDir dir;
  CheckpointDirectory checkpoints(dir.path());
  checkpoints.save(at_step(1));
  checkpoints.save(at_step(2));
  fs::create_directory(dir / "model-3.safetensors");
  EXPECT_THROW(checkpoints.save(at_step(3)), Error);
  EXPECT_EQ(checkpoints.all().size(), 2);
}

TEST(CheckpointDirectoryTest, NegativeLimitsAreErrors) {
  EXPECT_THAT([] { CheckpointDirectory("x", {.max_to_keep = -1}); },
              ThrowsMessage<Error>(HasSubstr("max_to_keep = -1")));
}

}  // namespace
}  // namespace tensorpack::test
