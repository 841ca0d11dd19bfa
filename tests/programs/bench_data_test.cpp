// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/dataflow/fake_data.h"
#include "tensorpack/dataflow/format/lmdb.h"
#include "tensorpack/dataflow/format/tar.h"
#include "tensorpack/dataflow/format/tfrecord.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/png.h"
#include "tests/programs/model_program.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class BenchDataTest : public testing::Test {
 protected:
  Outcome bench(const std::string& name, const std::vector<std::string>& options = {}) {
    std::vector<std::string> words = {"bench-data", dir_ / name, "--count=5", "--batch=2",
                                      "--size=16"};
    words.insert(words.end(), options.begin(), options.end());
    return run_tp(words);
  }

  // That the command worked, and said what takes the time.
  static void expect_report(const Outcome& outcome, const std::string& stage) {
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_THAT(outcome.output,
                AllOf(ContainsRegex("5 datapoints in .* per second"), HasSubstr(stage)));
  }

  TempDir dir_;
};

#ifdef TENSORPACK_HAS_OPENCV
std::string random_png() {
  const at::Tensor image = at::randint(256, {40, 30, 3}, at::kByte);
  return encode_png({image.data_ptr<uint8_t>(), static_cast<size_t>(image.numel())}, 40, 30, 3);
}

TEST_F(BenchDataTest, MakesBatchesOfAFolderOfImages) {
  for (const char* name : {"cat", "dog"}) {
    std::filesystem::create_directories(dir_ / "images" / name);
    write_file_atomically(dir_ / "images" / name / "1.png", random_png());
  }
  expect_report(bench("images"), "image_batch");
}

TEST_F(BenchDataTest, MakesBatchesOfATarShard) {
  FromList points({{bytes(random_png()), bytes("0")}, {bytes(random_png()), bytes("1")}});
  save_tar(points, dir_ / "a.tar", {"png", "cls"});
  expect_report(bench("a.tar", {"--extensions=png"}), "image_batch");
  const Outcome wrong = bench("a.tar");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.output, HasSubstr("jpg"));
}
#endif

TEST_F(BenchDataTest, ReadsRecordsOfTFRecord) {
  FakeData points({{.shape = {100}, .dtype = at::kByte, .high = 256}}, {.size = 3});
  save_tfrecords(points, dir_ / "a.tfrecord");
  expect_report(bench("a.tfrecord"), "prefetch");
}

#ifdef TENSORPACK_HAS_LMDB
TEST_F(BenchDataTest, ReadsRecordsOfLmdb) {
  FakeData points({{.shape = {100}}}, {.size = 3});
  save_lmdb(points, dir_ / "a.lmdb");
  expect_report(bench("a.lmdb"), "prefetch");
}
#endif

TEST_F(BenchDataTest, SaysWhatItCannotRead) {
  EXPECT_THAT(bench("none").output, HasSubstr("does not exist"));
  write_file_atomically(dir_ / "a.txt", "text");
  const Outcome outcome = bench("a.txt");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, HasSubstr("is no folder of images"));
}

}  // namespace
}  // namespace tensorpack
