// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <torch/types.h>

#include <cstring>
#include <fstream>
#include <random>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tests/checkpoint/same.h"

namespace tensorpack::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string file_with(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

class SafetensorsTest : public testing::Test {
 protected:
  std::filesystem::path path() const { return dir_ / "x.safetensors"; }

  SafetensorsFile read_bytes(const std::string& bytes) const {
    write_file_atomically(path(), bytes);
    return read_safetensors(path());
  }

  void expect_refused(const std::string& bytes, const std::string& reason) const {
    EXPECT_THAT([&] { read_bytes(bytes); },
                ThrowsMessage<Error>(
                    AllOf(HasSubstr("[read_safetensors] '" + path().string()), HasSubstr(reason))))
        << bytes.substr(0, 200);
  }

  TempDir dir_;
};

TEST_F(SafetensorsTest, WhatWasWrittenIsReadBack) {
  NamedTensors tensors = {{"scalar", torch::tensor(3.5)},
                          {"empty", torch::empty({0, 4})},
                          {"sliced", torch::arange(12).reshape({3, 4}).t().slice(0, 1, 3)},
                          {"expanded", torch::ones({1}).expand({5})},
                          {"grad/名前 \"quoted\"", torch::rand({2}, torch::requires_grad())}};
  for (const auto type :
       {torch::kDouble, torch::kFloat, torch::kHalf, torch::kBFloat16, torch::kLong, torch::kInt,
        torch::kShort, torch::kChar, torch::kByte, torch::kBool}) {
    tensors[c10::toString(type)] = torch::arange(7).remainder(2).to(type);
  }
  const Metadata metadata = {{"a", "1"}, {"text", "line\nbreak"}};
  write_safetensors(path(), tensors, metadata);
  const auto file = read_safetensors(path());
  EXPECT_EQ(file.metadata, metadata);
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors)
    EXPECT_TRUE(same(file.tensors.at(name), tensor)) << name;
}

TEST_F(SafetensorsTest, LazilyConjugatedViewsAreResolved) {
  const auto imaginary =
      torch::imag(torch::conj(torch::complex(torch::ones({2}), torch::ones({2}))));
  write_safetensors(path(), {{"x", imaginary}});
  EXPECT_TRUE(same(read_safetensors(path()).tensors.at("x"), torch::full({2}, -1.0F)));
}

TEST_F(SafetensorsTest, NothingCanBeWrittenAndRead) {
  write_safetensors(path(), {});
  EXPECT_TRUE(read_safetensors(path()).tensors.empty());
}

// The bytes, so that a change of the layout is noticed here and not by an old file.
TEST_F(SafetensorsTest, LayoutIsThatOfTheFormat) {
  write_safetensors(path(),
                    {{"b", torch::tensor({1, 2}, torch::kByte)}, {"w", torch::tensor(1.0F)}},
                    {{"k", "v"}});
  const std::string header =
      R"({"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  std::string padded = header;
  padded.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(read_file(path()), file_with(padded, std::string("\0\0\x80\x3f\1\2", 6)));
}

TEST_F(SafetensorsTest, EveryTensorIsAlignedToItsElements) {
  write_safetensors(path(), {{"a", torch::ones({3}, torch::kByte)},
                             {"b", torch::ones({3}, torch::kHalf)},
                             {"c", torch::ones({1}, torch::kDouble)}});
  const std::string bytes = read_file(path());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0);
  EXPECT_LT(bytes.find("\"c\""), bytes.find("\"b\""));
  EXPECT_LT(bytes.find("\"b\""), bytes.find("\"a\""));
}

TEST_F(SafetensorsTest, WhatTheFormatCannotHoldIsAnErrorAndLeavesTheOldFile) {
  write_safetensors(path(), {{"x", torch::ones({1})}});
  const std::string before = read_file(path());
  const auto refuses = [&](const NamedTensors& tensors, const char* reason) {
    EXPECT_THAT([&] { write_safetensors(path(), tensors); },
                ThrowsMessage<Error>(HasSubstr(reason)));
  };
  refuses({{"c", torch::ones({1}, torch::kComplexFloat)}}, "'c' is of type ComplexFloat");
  refuses({{"s", torch::eye(2).to_sparse()}}, "layout Sparse");
  refuses({{"u", at::Tensor()}}, "'u' is an undefined tensor");
  refuses({{"__metadata__", torch::ones({1})}}, "must not be called '__metadata__'");
  refuses({{"\xff", torch::ones({1})}}, "not valid UTF-8");
  EXPECT_EQ(read_file(path()), before);
}

// A parser that kept them would take gigabytes for these.
TEST_F(SafetensorsTest, WhatNoHeaderHasIsRefusedWhereItBegins) {
  expect_refused(file_with(std::string(10'000'000, '['), ""), "objects or lists inside");
  expect_refused(file_with(R"({"x":{"shape":[[)", ""), "objects or lists inside");
  std::string numbers = R"({"x":{"shape":[0)";
  for (int i = 0; i < 1'000'000; ++i) numbers += ",0";
  expect_refused(file_with(numbers, ""), "more than 64 numbers");
}

TEST_F(SafetensorsTest, MalformedFilesSayWhatIsWrong) {
  const std::string four(4, '\0');
  const auto entry = [](const char* dtype, const char* shape, const char* offsets) {
    return fmt::format(R"("x":{{"dtype":"{}","shape":{},"data_offsets":{}}})", dtype, shape,
                       offsets);
  };
  const auto object = [](const std::string& inside) { return "{" + inside + "}"; };

  expect_refused("", "it has only 0 bytes");
  expect_refused("1234567", "it has only 7 bytes");
  expect_refused(std::string(8, '\xff') + "{}", "claims a header of 18446744073709551615 bytes");
  expect_refused(file_with("{}", "").substr(0, 9), "claims a header of 2 bytes");
  expect_refused(file_with("", ""), "not valid JSON");
  expect_refused(file_with("{", ""), "not valid JSON");
  expect_refused(file_with("[]", ""), "not a JSON object");
  expect_refused(file_with(R"({"x":3})", ""), "entry of 'x' is not an object");
  expect_refused(file_with(R"({"x":{}})", ""), "no valid 'dtype'");
  expect_refused(file_with(object(entry("F8", "[1]", "[0,4]")), four), "type 'F8'");
  expect_refused(file_with(object(entry("F32", "3", "[0,4]")), four), "no valid 'shape'");
  expect_refused(file_with(object(entry("F32", "[-1]", "[0,4]")), four), "non-negative integers");
  expect_refused(file_with(object(entry("F32", "[1.0]", "[0,4]")), four), "non-negative integers");
  expect_refused(file_with(object(entry("F32", "[1]", "[0]")), four), "1 offsets instead of 2");
  expect_refused(file_with(object(entry("F32", "[1]", "[4,0]")), four), "offsets are 4..0");
  expect_refused(file_with(object(entry("F32", "[2]", "[0,4]")), four), "takes 8 bytes");
  expect_refused(file_with(object(entry("F32", "[4294967296,4294967296]", "[0,4]")), four),
                 "impossible shape");
  expect_refused(file_with(object(entry("F32", "[0,4294967296,4294967296]", "[0,0]")), ""),
                 "impossible shape");
  expect_refused(file_with(object(entry("F32", "[1]", "[0,4]")), "abc"), "cut off");
  expect_refused(file_with(object(entry("F32", "[1]", "[0,4]")), four + "!"),
                 "it goes on for 1 byte after the last tensor");
  expect_refused(file_with(object(entry("F32", "[1]", "[4,8]")), four + four),
                 "belong to no tensor");
  expect_refused(file_with(object(entry("BOOL", "[2]", "[0,2]")), "\1\2"), "other than 0 and 1");
  expect_refused(file_with(object(entry("F32", "[1]", "[0,4]") +
                                  R"(,"y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})"),
                           four),
                 "overlaps");
  expect_refused(
      file_with(object(entry("U8", "[0]", "[0,0]") + "," + entry("U8", "[0]", "[0,0]")), ""),
      "'x' occurs twice");
  expect_refused(file_with(R"({"__metadata__":{"k":1}})", ""),
                 "'k' in '__metadata__' is not a text");
}

TEST_F(SafetensorsTest, MissingFileAndDirectoryAreErrors) {
  EXPECT_THAT([&] { read_safetensors(dir_ / "none"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("cannot open"), HasSubstr("No such file"))));
  EXPECT_THAT([&] { read_safetensors(dir_.path()); },
              ThrowsMessage<Error>(HasSubstr("cannot open")));
}

// Damaged bytes may give another valid file or an Error, and nothing else.
TEST_F(SafetensorsTest, DamagedFilesNeverCrash) {
  write_safetensors(path(),
                    {{"layer/W", torch::rand({3, 4})}, {"flag", torch::ones({3}, torch::kBool)}},
                    {{"step", "7"}});
  const std::string good = read_file(path());
  std::mt19937 rng(1);
  int refused = 0;
  constexpr int kFiles = 3000;
  for (int i = 0; i < kFiles; ++i) {
    std::string bad = good;
    switch (i % 4) {
      case 0:  // one byte
        bad[rng() % bad.size()] = static_cast<char>(rng());
        break;
      case 1:  // several bytes of the header
        for (int k = 0; k < 5; ++k) bad[rng() % (bad.size() - 51)] = static_cast<char>(rng());
        break;
      case 2:
        bad.resize(rng() % bad.size());
        break;
      default: {  // another digit or bracket: JSON that still parses
        const std::string signs = "0123456789,[]{}\"-";
        bad[8 + rng() % (bad.size() - 59)] = signs[rng() % signs.size()];
      }
    }
    // A new name each time: to overwrite a file, some file systems wait for the disk.
    const auto file = dir_ / std::to_string(i);
    std::ofstream(file, std::ios::binary) << bad;
    try {
      read_safetensors(file);
    } catch (const Error&) {
      ++refused;
    }
    std::filesystem::remove(file);
  }
  EXPECT_GT(refused, kFiles / 2);
}

}  // namespace
}  // namespace tensorpack::test
