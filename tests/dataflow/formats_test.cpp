// SPDX-License-Identifier: Apache-2.0
// Files of datapoints: what is written comes back, and damage is found and named.
#include <filesystem>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/format/hdf5.h"
#include "tensorpack/dataflow/format/lmdb.h"
#include "tensorpack/dataflow/format/serialize.h"
#include "tensorpack/dataflow/format/tfrecord.h"
#include "tensorpack/dataflow/from_tensors.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tests/dataflow/matchers.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/capture.h"

namespace tensorpack::test {
namespace {

// All types, empty and scalar shapes, not contiguous, conjugated.
DataPoint everything() {
  DataPoint point{torch::empty({0, 3}), torch::arange(6).reshape({2, 3}).t(),
                  torch::conj(torch::complex(torch::ones({2}), torch::ones({2}))), bytes("text")};
  for (const auto type :
       {torch::kByte, torch::kChar, torch::kShort, torch::kInt, torch::kLong, torch::kHalf,
        torch::kBFloat16, torch::kFloat, torch::kDouble, torch::kBool, torch::kComplexDouble}) {
    point.push_back(torch::ones({3}, type));
    point.push_back(torch::ones({}, type));
  }
  return point;
}

DataFlowPtr ragged(int64_t count) {
  return numbers(count) | map([](DataPoint p) {
           const auto n = p[0].item<int64_t>();
           return DataPoint{p[0], torch::arange(n), bytes(std::string(n, 'x'))};
         });
}

TEST(SerializeTest, EverythingComesBack) {
  const DataPoint point = everything();
  EXPECT_TRUE(same(deserialize(serialize(point)), point));
  EXPECT_TRUE(same(deserialize(bytes(serialize(point))), point)) << "without a copy";
  EXPECT_TRUE(deserialize(serialize({})).empty());
}

TEST(SerializeTest, TheFormatStaysAsItIs) {
  const std::string data = serialize({torch::tensor({1, 2}, torch::kByte)});
  EXPECT_EQ(data, std::string("TPDP\1\0\0\0\1\0\0\0\0\0\0\0"
                              "\0\1\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
                              "\1\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                              48));
}

TEST(SerializeTest, EveryCutIsFound) {
  const std::string whole = serialize(everything());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(deserialize(whole.substr(0, length)), Error) << length;
  }
  EXPECT_THAT(
      [&] { deserialize(whole + "x", "file.bin"); },
      ThrowsMessage<Error>(AllOf(HasSubstr("[file.bin] at offset"), HasSubstr("more bytes"))));
}

TEST(SerializeTest, DamagedHeadersNeverReadBeyondTheEnd) {
  const std::string whole = serialize({torch::ones({2, 3}), torch::tensor(1)});
  for (size_t i = 0; i < 48; ++i) {
    for (const char value : {'\x00', '\x7f', '\xff'}) {
      std::string damaged = whole;
      damaged[i] = value;
      try {
        deserialize(damaged);
      } catch (const Error&) {
        // refused, or harmless; the sanitizers are the judges
      }
    }
  }
  std::string other = whole;
  other[4] = 9;
  EXPECT_ERROR(deserialize(other), "version 9");
}

class FormatsTest : public testing::Test {
 protected:
  void damage(const std::string& name, size_t offset) {
    std::string content = read_file(dir_ / name);
    content[offset] = static_cast<char>(content[offset] ^ 1);
    write_file_atomically(dir_ / name, content);
  }

  void cut(const std::string& name, size_t bytes) {
    const std::string content = read_file(dir_ / name);
    write_file_atomically(dir_ / name, content.substr(0, content.size() - bytes));
  }

  TempDir dir_;
};

TEST_F(FormatsTest, TFRecordsComeBack) {
  EXPECT_EQ(save_tfrecord(*ragged(7), dir_ / "a"), 7);
  const MakeDataFlow make = [&] { return std::make_unique<TFRecordData>(dir_ / "a"); };
  EXPECT_EQ(make()->size(), 7);
  EXPECT_TRUE(same(collect(*make()), collect(*ragged(7))));
  expect_passes_repeat(make);
  expect_skips_as_if_read(make);
}

// As TensorFlow writes it: length 3, its masked checksum, "abc", its masked checksum.
TEST_F(FormatsTest, TFRecordsAreThoseOfTensorFlow) {
  auto flow = FromList({{bytes("abc")}});
  save_tfrecords(flow, dir_ / "a");
  const std::string expected("\x03\0\0\0\0\0\0\0", 8);
  const std::string content = read_file(dir_ / "a");
  EXPECT_THAT(content, SizeIs(8 + 4 + 3 + 4));
  EXPECT_EQ(content.substr(0, 8), expected);
  EXPECT_EQ(content.substr(12, 3), "abc");
  EXPECT_EQ(bytes_view(TFRecords(dir_ / "a").next()->at(0)), "abc");
}

TEST_F(FormatsTest, TFRecordWithAWrongChecksumNamesFileAndOffset) {
  auto flow = FromList({{bytes("first")}, {bytes("second")}, {bytes("third")}});
  save_tfrecords(flow, dir_ / "a");
  const size_t second = 12 + 5 + 4;
  damage("a", second + 12);
  TFRecords records(dir_ / "a");
  EXPECT_EQ(records.size(), 3);
  EXPECT_TRUE(records.next());
  EXPECT_THAT([&] { records.next(); },
              ThrowsMessage<Error>(AllOf(HasSubstr((dir_ / "a").string()),
                                         HasSubstr("wrong checksum in the record at offset 21"))));
  EXPECT_EQ(bytes_view(records.next()->at(0)), "third");

  TFRecords tolerant(dir_ / "a", {.on_error = OnError::kSkip});
  EXPECT_FALSE(tolerant.size());
  const std::string log = stdout_of([&] { EXPECT_THAT(collect(tolerant), SizeIs(2)); });
  EXPECT_THAT(log, AllOf(HasSubstr("left out, 1 so far"), HasSubstr("offset 21")));
}

TEST_F(FormatsTest, TFRecordThatIsCutOffOrHasNoLengthIsAnError) {
  save_tfrecord(*ragged(3), dir_ / "a");
  cut("a", 3);
  EXPECT_ERROR(TFRecords(dir_ / "a"), "is cut off");
  save_tfrecord(*ragged(3), dir_ / "b");
  damage("b", 0);
  EXPECT_ERROR(TFRecords(dir_ / "b"), "wrong checksum at offset 0");
  EXPECT_ERROR(TFRecords(dir_ / "none"), "cannot open");
}

#ifdef TENSORPACK_HAS_LMDB

TEST_F(FormatsTest, LmdbComesBack) {
  EXPECT_EQ(save_lmdb(*ragged(120), dir_ / "a"), 120);
  for (const bool shuffle : {false, true}) {
    const MakeDataFlow make = [&] {
      return std::make_unique<LmdbData>(dir_ / "a", LmdbOptions{.shuffle = shuffle, .seed = 1});
    };
    EXPECT_EQ(make()->size(), 120);
    EXPECT_EQ(same(collect(*make()), collect(*ragged(120))), !shuffle);
    expect_passes_repeat(make);
    expect_true_size(make);
    expect_skips_as_if_read(make);
  }
  EXPECT_ERROR(save_lmdb(*ragged(1), dir_ / "a"), "already");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 1)
      << "something was left behind";
}

TEST_F(FormatsTest, LmdbRecordsHaveTheirKeys) {
  save_lmdb(*ragged(3), dir_ / "a");
  LmdbRecords records(dir_ / "a");
  records.skip(1);
  EXPECT_EQ(bytes_view(records.next()->at(0)), "00000001");
}

TEST_F(FormatsTest, LmdbThatIsNoneIsAnError) {
  write_file_atomically(dir_ / "a", std::string(8192, 'x'));
  EXPECT_ERROR(LmdbData(dir_ / "a"), "cannot open");
  EXPECT_ERROR(LmdbData(dir_ / "none"), "there is no");
  const auto fails =
      numbers(3) | map([](DataPoint) -> DataPoint { throw std::runtime_error("x"); });
  EXPECT_THROW(save_lmdb(*fails, dir_ / "b"), std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "b"));
}

#endif

#ifdef TENSORPACK_HAS_HDF5

TEST_F(FormatsTest, Hdf5ComesBack) {
  for (const auto type : {torch::kByte, torch::kChar, torch::kShort, torch::kInt, torch::kLong,
                          torch::kFloat, torch::kDouble}) {
    const auto rows = torch::arange(6).reshape({3, 2}).to(type);
    auto flow = FromTensors({rows, torch::arange(3)});
    EXPECT_EQ(save_hdf5(flow, dir_ / "a", {"x/data", "label"}), 3);
    EXPECT_TRUE(same(read_hdf5(dir_ / "a", {"x/data", "label"}), {rows, torch::arange(3)})) << type;
  }
}

TEST_F(FormatsTest, Hdf5ErrorsNameTheFile) {
  auto flow = numbers(3);
  save_hdf5(flow, dir_ / "a", {"x"});
  EXPECT_ERROR(read_hdf5(dir_ / "a", {"y"}), "there is no data set 'y' in");
  cut("a", 100);
  EXPECT_ERROR(read_hdf5(dir_ / "a", {"x"}), (dir_ / "a").string());
  flow.start(0);
  EXPECT_ERROR(save_hdf5(flow, dir_ / "b", {"x", "y"}), "has 1 component, but is given 2 names");
}

#endif

TEST(FromTensorsTest, YieldsRows) {
  const MakeDataFlow make = [] {
    return std::make_unique<FromTensors>(
        std::vector{torch::arange(10).reshape({5, 2}), torch::arange(5)});
  };
  expect_passes_repeat(make);
  expect_true_size(make);
  expect_skips_as_if_read(make);
  EXPECT_TRUE(same(*make()->next(), {torch::tensor({0, 1}), torch::tensor(0)}));
  EXPECT_ERROR(FromTensors({torch::ones({2}), torch::ones({3})}),
               "tensor 0 has 2 rows and tensor 1 has 3");
}

}  // namespace
}  // namespace tensorpack::test
