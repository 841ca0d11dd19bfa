// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/dataset/fashion_mnist.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "tensorpack/dataflow/dataset/idx.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tests/dataflow/numbers.h"

namespace tensorpack::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace fs = std::filesystem;

// Where Debian's package puts the data.
const fs::path kDebian = "/usr/share/datasets/fashion-mnist";

std::string idx_bytes(const std::vector<int>& shape, const std::string& data) {
  std::string bytes("\0\0\x08", 3);
  bytes.push_back(static_cast<char>(shape.size()));
  for (const int size : shape) {
    bytes += std::string("\0\0", 2);
    bytes.push_back(static_cast<char>(size >> 8));
    bytes.push_back(static_cast<char>(size));
  }
  return bytes + data;
}

// Three images, of which image i has all pixels i * 51, with label 7 - i.
void write_small_set(const fs::path& dir, const std::string& prefix) {
  std::string pixels;
  for (int i = 0; i < 3; ++i) pixels += std::string(28 * 28, static_cast<char>(i * 51));
  write_file_atomically(dir / (prefix + "-images-idx3-ubyte"), idx_bytes({3, 28, 28}, pixels));
  write_file_atomically(dir / (prefix + "-labels-idx1-ubyte"), idx_bytes({3}, "\7\6\5"));
}

TEST(IdxTest, ReadsShapeAndBytes) {
  const TempDir dir;
  write_file_atomically(dir / "a", idx_bytes({2, 3}, "abcdef"));
  EXPECT_TRUE(
      torch::equal(read_idx(dir / "a"), torch::arange('a', 'g').to(torch::kByte).reshape({2, 3})));
}

TEST(IdxTest, EveryDefectNamesTheFileAndWhatWasFound) {
  const TempDir dir;
  const auto refused = [&](const std::string& bytes, const std::string& reason) {
    write_file_atomically(dir / "a", bytes);
    EXPECT_THAT([&] { read_idx(dir / "a"); },
                ThrowsMessage<Error>(AllOf(HasSubstr((dir / "a").string()), HasSubstr(reason))));
  };
  refused("", "cut off inside its header");
  refused(std::string("\0\0\x08\1\0", 5), "cut off inside its header");
  refused("<html>", "begins with 3c 68 74 6d");
  refused(std::string("\0\0\x0d\1\0\0\0\1\0\0\0\0", 12), "begins with 00 00 0d 01");
  refused(idx_bytes({2, 3}, "abcde"), "takes 6 bytes of data, but only 5");
  refused(idx_bytes({2, 3}, "abcdefg"), "goes on after the 6 bytes");
  refused(std::string("\0\0\x08\3\x7f\xff\xff\xff\x7f\xff\xff\xff\x7f\xff\xff\xff", 16),
          "impossible shape");
  refused(std::string("\0\0\x08\2\0\1\0\0\0\1\0\0", 12), "impossible shape [65536, 65536]");
  EXPECT_THAT([&] { read_idx(dir / "none"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("cannot open"), HasSubstr("No such file"))));
}

TEST(FashionMnistTest, ReadsPlainFilesScaledAndInOrder) {
  const TempDir dir;
  write_small_set(dir.path(), "t10k");
  auto flow = FashionMnist("test", {.dir = dir.path()});
  EXPECT_EQ(flow.size(), 3);
  const auto points = collect(flow);
  ASSERT_EQ(points.size(), 3);
  EXPECT_TRUE(same(points[2], {torch::full({28, 28}, 0.4F), torch::tensor(5)}));
}

TEST(FashionMnistTest, TrainingSetIsShuffledByDefault) {
  const TempDir dir;
  write_small_set(dir.path(), "train");
  const auto orders = [&](FashionMnistOptions options) {
    options.dir = dir.path();
    auto flow = FashionMnist("train", options);
    std::set<std::vector<int64_t>> seen;
    for (int64_t pass = 0; pass < 100; ++pass) {
      std::vector<int64_t> labels;
      flow.start(pass);
      for (const auto& point : collect(flow)) labels.push_back(point[1].item<int64_t>());
      seen.insert(labels);
    }
    return seen.size();
  };
  EXPECT_EQ(orders({.seed = 1}), 6);
  EXPECT_EQ(orders({.shuffle = false}), 1);
}

TEST(FashionMnistTest, KeepsTheContract) {
  const TempDir dir;
  write_small_set(dir.path(), "train");
  const MakeDataFlow make = [&] {
    return std::make_unique<FashionMnist>("train",
                                          FashionMnistOptions{.dir = dir.path(), .seed = 1});
  };
  expect_keeps_the_contract(make);
  expect_movable(FashionMnist("train", {.dir = dir.path(), .seed = 1}));
}

TEST(FashionMnistTest, EnvironmentNamesTheDirectory) {
  const TempDir dir;
  fs::create_directory(dir / "fashion-mnist");
  write_small_set(dir / "fashion-mnist", "t10k");
  ::setenv("TENSORPACK_DATASET", dir.path().c_str(), 1);
  const auto size = FashionMnist("test").size();
  ::unsetenv("TENSORPACK_DATASET");
  EXPECT_EQ(size, 3);
}

TEST(FashionMnistTest, MissingFilesSayWhereTheyComeFrom) {
  const TempDir dir;
  EXPECT_THAT([&] { FashionMnist("train", {.dir = dir.path()}); },
              ThrowsMessage<Error>(AllOf(HasSubstr("train-images-idx3-ubyte.gz"),
                                         HasSubstr(dir.path().string()),
                                         HasSubstr("apt install dataset-fashion-mnist"))));
}

TEST(FashionMnistTest, UnknownSetSuggestsTheRightOne) {
  EXPECT_THAT([] { FashionMnist("trian"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("no set 'trian'"), HasSubstr("'train'?"))));
}

TEST(FashionMnistTest, LabelsAndImagesMustAgree) {
  const TempDir dir;
  write_small_set(dir.path(), "train");
  write_file_atomically(dir / "train-labels-idx1-ubyte", idx_bytes({2}, "\1\2"));
  EXPECT_THAT([&] { FashionMnist("train", {.dir = dir.path()}); },
              ThrowsMessage<Error>(HasSubstr("labels have the shape [2] for 3 images")));
  write_file_atomically(dir / "train-images-idx3-ubyte", idx_bytes({2, 1, 1}, "ab"));
  EXPECT_THAT([&] { FashionMnist("train", {.dir = dir.path()}); },
              ThrowsMessage<Error>(HasSubstr("[2, 1, 1], not [N, 28, 28]")));
}

class RealFashionMnistTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(kDebian)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  }
};

TEST_F(RealFashionMnistTest, TestSetIsTheOnePublished) {
  auto flow = FashionMnist("test", {.dir = kDebian});
  EXPECT_EQ(flow.size(), 10'000);
  std::vector<int64_t> per_class(10);
  double sum = 0;
  while (auto point = flow.next()) {
    ++per_class[(*point)[1].item<int64_t>()];
    sum += (*point)[0].sum(torch::kDouble).item<double>();
  }
  EXPECT_THAT(per_class, testing::Each(1000));
  EXPECT_NEAR(sum / 7'840'000, 0.2868, 1e-3);
}

TEST_F(RealFashionMnistTest, TrainingSetIsTheOnePublished) {
  auto flow = FashionMnist("train", {.dir = kDebian, .shuffle = false});
  EXPECT_EQ(flow.size(), 60'000);
  const auto first = *flow.next();
  EXPECT_EQ(first[0].sizes(), (std::vector<int64_t>{28, 28}));
  EXPECT_EQ(first[0].scalar_type(), torch::kFloat);
  EXPECT_FLOAT_EQ(first[0].max().item<float>(), 1.0F);
  EXPECT_TRUE(same(DataPoint{first[1]}, {torch::tensor(9)}));
}

TEST_F(RealFashionMnistTest, TruncatedArchiveIsAnError) {
  const TempDir dir;
  const std::string name = "t10k-labels-idx1-ubyte.gz";
  fs::copy(kDebian / "t10k-images-idx3-ubyte.gz", dir.path());
  write_file_atomically(dir / name, read_file(kDebian / name).substr(0, 3000));
  EXPECT_THAT([&] { FashionMnist("test", {.dir = dir.path()}); },
              ThrowsMessage<Error>(AllOf(HasSubstr((dir / name).string()), HasSubstr("cut off"),
                                         HasSubstr("unexpected end of file"))));
}

// The data comes out whole, and only what follows it, which nobody asks for, tells.
TEST_F(RealFashionMnistTest, EveryFlippedBitAndEveryMissingByteOfAnArchiveIsAnError) {
  const TempDir dir;
  const std::string whole = read_file(kDebian / "t10k-labels-idx1-ubyte.gz");
  const fs::path path = dir / "labels.gz";
  const auto refused = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_THROW(read_idx(path), Error);
  };
  for (size_t missing = 1; missing <= 16; ++missing) {
    SCOPED_TRACE(missing);
    refused(whole.substr(0, whole.size() - missing));
  }
  const size_t data = whole.find('\0', 10) + 1;  // after the name of the file in the header
  for (size_t i = data; i < whole.size(); i += 1 + (whole.size() - data) / 300) {
    SCOPED_TRACE(i);
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ (1 << i % 8));
    refused(flipped);
  }
  for (size_t i = whole.size() - 8; i < whole.size(); ++i) {
    SCOPED_TRACE(i);
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    refused(flipped);
  }
  for (const std::string& behind : {std::string("x"), std::string("\0\0x", 3), std::string("\x1f"),
                                    std::string("\x1f\x8b"), std::string(1 << 19, '\1')}) {
    SCOPED_TRACE(behind.size());
    refused(whole + behind);
  }
  std::ofstream(path, std::ios::binary) << whole << std::string(512, '\0');  // as tapes have it
  EXPECT_EQ(read_idx(path).numel(), 10000);
}

}  // namespace
}  // namespace tensorpack::test
