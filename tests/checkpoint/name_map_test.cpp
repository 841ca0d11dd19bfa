// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/name_map.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/checkpoint/weights_file.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::Key;

const NameMap& names() {
  static const NameMap map{
      .rules = {{"attention/q/W$", "qkv.weight", {.transposed = true, .part = 0, .parts = 2}},
                {"attention/k/W$", "qkv.weight", {.transposed = true, .part = 1, .parts = 2}},
                {"^block(\\d+)/", "h.$1."},
                {"gamma$", "weight"}},
      .ignored = {"\\.mask$"},
  };
  return map;
}

TEST(NameMapTest, RulesAreAppliedOneAfterAnother) {
  EXPECT_EQ(names()("block12/gamma").name, "h.12.weight");
  EXPECT_EQ(names()("block0/attention/k/W").name, "h.0.qkv.weight");
  EXPECT_EQ(names()("block0/attention/k/W").layout,
            (ForeignLayout{.transposed = true, .part = 1, .parts = 2}));
  EXPECT_EQ(names()("other").name, "other");
  EXPECT_EQ(without_prefix("a.b")("a.b/W").name, "W");
  EXPECT_EQ(without_prefix("a.b")("axb/W").name, "axb/W");
}

TEST(NameMapTest, WeightsGoThereAndComeBack) {
  const NamedTensors ours = {{"block0/attention/q/W", at::arange(6).reshape({2, 3})},
                             {"block0/attention/k/W", at::arange(6, 12).reshape({2, 3})},
                             {"block0/gamma", at::ones({2})}};
  NamedTensors theirs = to_foreign(names(), ours);
  EXPECT_THAT(theirs, ElementsAre(Key("h.0.qkv.weight"), Key("h.0.weight")));
  EXPECT_TRUE(at::equal(theirs["h.0.qkv.weight"], at::arange(12).reshape({4, 3}).t()));

  theirs["h.0.mask"] = at::zeros({1});
  theirs["extra"] = at::zeros({1});
  const FromForeign back = from_foreign(
      names(), theirs, {"block0/attention/q/W", "block0/attention/k/W", "block0/gamma", "missing"});
  ASSERT_EQ(back.ours.size(), ours.size());
  for (const auto& [name, tensor] : ours) EXPECT_TRUE(at::equal(back.ours.at(name), tensor));
  EXPECT_THAT(back.unused, ElementsAre("extra"));
}

TEST(NameMapTest, WhatCannotBeDoneIsSaid) {
  const NameMap no_pattern{.rules = {{"(", "x"}}};
  EXPECT_ERROR(no_pattern("a"), "[NameMap]");
  const NameMap two_layouts{
      .rules = {{"a", "b", {.transposed = true}}, {"b", "c", {.part = 0, .parts = 2}}}};
  EXPECT_ERROR(two_layouts("a"), "two rules say how 'a' lies in the file; the second is 'b'");
  const NameMap one_for_two{.rules = {{"[ab]", "c"}}};
  const NamedTensors two = {{"a", at::ones({1})}, {"b", at::ones({1})}};
  EXPECT_ERROR(to_foreign(one_for_two, two), "'a' and 'b' would both be written as 'c'");
  const NamedTensors half = {{"block0/attention/k/W", at::ones({2, 2})}};
  EXPECT_ERROR(to_foreign(names(), half), "part 0 of the 2 that make 'h.0.qkv.weight' is missing");
  const auto read_k = [](const at::Tensor& qkv) {
    from_foreign(names(), {{"h.0.qkv.weight", qkv}}, {"block0/attention/k/W"});
  };
  EXPECT_ERROR(read_k(at::ones({3})),
               "'h.0.qkv.weight' has the shape [3] and cannot be transposed");
  EXPECT_ERROR(read_k(at::ones({2, 3})),
               "'h.0.qkv.weight' has the shape [3, 2] and cannot be divided into 2 parts");
}

TEST(NameMapTest, IsReadFromAText) {
  const TempDir dir;
  write_file_atomically(dir / "rules",
                        "# for tests\n"
                        "attention/q/W$ -> qkv.weight transposed part 1 of 3\n"
                        "\n"
                        "^student/ -> \"\"\n"
                        "ignore mask$\n");
  const NameMap map = read_name_map(dir / "rules");
  EXPECT_EQ(map("student/attention/q/W").name, "qkv.weight");
  EXPECT_EQ(map("student/attention/q/W").layout,
            (ForeignLayout{.transposed = true, .part = 1, .parts = 3}));
  EXPECT_THAT(map.ignored, ElementsAre("mask$"));
  for (const char* wrong : {"a b", "a ->", "a -> b part 3 of 3", "a -> b upside down", "ignore"}) {
    write_file_atomically(dir / "rules", std::string("# a comment\n") + wrong + "\n");
    EXPECT_ERROR(read_name_map(dir / "rules"), std::string("is no rule: '") + wrong);
  }
}

class WeightsFileTest : public testing::Test {
 protected:
  TempDir dir_;
  NamedTensors tensors_ = {{"w", at::arange(4.0)}, {"b", at::ones({})}};
};

TEST_F(WeightsFileTest, OfACheckpointOnlyTheModelIsTaken) {
  const Checkpoint checkpoint{
      .variables = {{"w", at::ones({2})}, {"w/Momentum", at::ones({2})}},
      .training_only = {"w/Momentum"},
  };
  save_checkpoint(dir_ / "model-0.safetensors", checkpoint);
  EXPECT_THAT(read_weights(dir_ / "model-0.safetensors"), ElementsAre(Key("w")));
  EXPECT_THAT(read_weights(dir_ / "model-0"), ElementsAre(Key("w")));
  EXPECT_THAT(read_weights(dir_.path()), ElementsAre(Key("w")));
  EXPECT_FALSE(is_weights_file(dir_ / "model-0.safetensors"));
}

TEST_F(WeightsFileTest, TheExtensionSaysWhichFormatIsWritten) {
  std::vector<std::string> files = {"x.safetensors"};
#ifdef TENSORPACK_HAS_ZLIB
  files.push_back("x.npz");
#endif
  for (const std::string& file : files) {
    write_weights(dir_ / file, tensors_);
    EXPECT_TRUE(is_weights_file(dir_ / file));
    const NamedTensors read = read_weights(dir_ / file);
    EXPECT_THAT(read, ElementsAre(Key("b"), Key("w")));
    EXPECT_TRUE(at::equal(read.at("w"), tensors_.at("w")));
  }
  EXPECT_ERROR(write_weights(dir_ / "x.pt", tensors_), "neither a .safetensors nor an .npz file");
}

TEST_F(WeightsFileTest, AModelInSeveralFilesIsReadByItsIndex) {
  write_safetensors(dir_ / "part-1.safetensors", {{"w", at::ones({2})}});
  write_safetensors(dir_ / "part-2.safetensors", {{"b", at::ones({1})}});
  const std::filesystem::path index = dir_ / "model.safetensors.index.json";
  write_file_atomically(
      index, R"({"weight_map": {"w": "part-1.safetensors", "b": "part-2.safetensors"}})");
  EXPECT_THAT(read_weights(index), ElementsAre(Key("b"), Key("w")));
  write_file_atomically(index, R"({"weight_map": {"w": "../part-1.safetensors"}})");
  EXPECT_ERROR(read_weights(index), "is not a safetensors file beside it");
  write_file_atomically(index, "[]");
  EXPECT_ERROR(read_weights(index), "has no 'weight_map'");
}

}  // namespace
}  // namespace tensorpack
