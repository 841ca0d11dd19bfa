// SPDX-License-Identifier: Apache-2.0
// Files that anybody may have written, or damaged: a clear error, never a crash or a wrong model.
#include "tensorpack/export/program_file.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <random>

#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/export/export_model.h"
#include "tensorpack/export/exported_model.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/hash.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

class ProgramFileTest : public testing::Test {
 protected:
  ProgramFileTest() {
    export_model(
        {
            .inputs = {{"x", {-1, 4}}},
            .tower_func =
                [](const at::Tensor& x) {
                  const at::Tensor y = FullyConnected("fc", x, {.units = 3}).relu();
                  named("y", (y * 0.5).view({x.size(0) * 3}));
                },
            .output_names = {"y"},
            .graph = {.seed = 1},
        },
        file_);
    bytes_ = read_file(file_);
    expected_ = load_exported_model(file_)(batch_)[0];
  }

  // Not synchronized to the disk, which takes longer than all the rest.
  void write(const std::string& bytes) const {
    std::ofstream(damaged_, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string program() const { return read_safetensors(file_).metadata.at("program"); }
  // A file whose program was changed by somebody who knows about checksums.
  void write_program_text(const std::string& text) const {
    SafetensorsFile file = read_safetensors(file_);
    file.metadata["program"] = text;
    file.metadata["checksum"] = fmt::format("{:016x}", xxh64(text));
    write_safetensors(damaged_, file.tensors, file.metadata);
  }
  std::string changed(const std::string& from, const std::string& to) const {
    std::string text = program();
    const size_t place = text.find(from);
    EXPECT_NE(place, std::string::npos) << from << " is not in " << text;
    return text.replace(place, from.size(), to);
  }
  auto loading() const {
    return [this] { load_exported_model(damaged_); };
  }

  TempDir dir_;
  std::filesystem::path file_ = dir_ / "model";
  std::filesystem::path damaged_ = dir_ / "damaged";
  std::string bytes_;
  at::Tensor batch_ = at::rand({2, 4});
  at::Tensor expected_;
};

TEST_F(ProgramFileTest, TheSameModelGivesTheSameBytes) {
  write_program(damaged_, read_program(file_));
  EXPECT_EQ(read_file(damaged_), bytes_);
}

TEST_F(ProgramFileTest, AFileCutOffAnywhereIsAnError) {
  for (size_t length = 0; length < bytes_.size(); ++length) {
    write(bytes_.substr(0, length));
    EXPECT_THROW(read_program(damaged_), Error) << length;
  }
}

TEST_F(ProgramFileTest, AFlippedBitIsAnErrorOrChangesNothing) {
  int read = 0;
  for (size_t i = 0; i < bytes_.size(); ++i) {
    std::string damaged = bytes_;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    write(damaged);
    try {
      const ExportedProgram program = read_program(damaged_);
      ++read;
      write_program(damaged_, program);  // the notes on versions may have changed, nothing else
      ASSERT_EQ(read_file(damaged_), bytes_) << "byte " << i;
    } catch (const Error&) {
    }
  }
  EXPECT_LT(read, 40);
}

TEST_F(ProgramFileTest, AbsurdLengthsAreAnError) {
  for (uint64_t length : {uint64_t{1} << 20, uint64_t{1} << 40, ~uint64_t{0}}) {
    std::string damaged = bytes_;
    std::memcpy(damaged.data(), &length, sizeof length);
    write(damaged);
    EXPECT_THAT(loading(), ThrowsMessage<Error>(HasSubstr("header of")));
  }
}

TEST_F(ProgramFileTest, SomebodyElsesFileIsAnError) {
  write_safetensors(damaged_, {{"W", at::ones({2})}});
  EXPECT_THAT(loading(), ThrowsMessage<Error>(
                             AllOf(HasSubstr("damaged"), HasSubstr("not an exported model"))));
  EXPECT_THAT([&] { load_exported_model(dir_ / "nowhere"); },
              ThrowsMessage<Error>(HasSubstr("nowhere")));
}

TEST_F(ProgramFileTest, AnUnknownOperatorIsNamed) {
  write_program_text(changed("aten::relu\"", "aten::rely\""));
  EXPECT_THAT(loading(), ThrowsMessage<Error>(AllOf(HasSubstr("aten::rely is not known"),
                                                    HasSubstr("version of libtorch"))));
}

TEST_F(ProgramFileTest, ANewerFormatIsNamed) {
  write_program_text(changed("\"version\":1", "\"version\":2"));
  EXPECT_THAT(loading(), ThrowsMessage<Error>(HasSubstr("version 2")));
}

TEST_F(ProgramFileTest, WrongArgumentsAreNamed) {
  write_program_text(changed("\"mat1\"", "\"matrix\""));
  EXPECT_THAT(loading(), ThrowsMessage<Error>(
                             AllOf(HasSubstr("aten::addmm"), HasSubstr("no argument 'mat1'"))));
  write_program_text(changed("\"shape\":[{\"batch\":[3,0]}]", "\"shape\":0.5"));
  EXPECT_THAT(loading(),
              ThrowsMessage<Error>(AllOf(HasSubstr("aten::reshape"), HasSubstr("int[]"))));
}

TEST_F(ProgramFileTest, OperatorsThatDoMoreThanComputeAreRefused) {
  write_program_text(changed("aten::relu\"", "aten::rrelu\""));
  EXPECT_THAT(loading(), ThrowsMessage<Error>(HasSubstr("may have")));
}

TEST_F(ProgramFileTest, BracketsWithoutEndAreRefused) {
  write_program_text(std::string(200'000, '['));
  EXPECT_THAT(loading(), ThrowsMessage<Error>(HasSubstr("lists inside of lists")));
}

// Whatever a program says, with checksums that fit: it is refused, or it is run.
TEST_F(ProgramFileTest, NoProgramCrashes) {
  const std::string text = program();
  std::mt19937 random(1);
  const std::vector<std::string> pieces = {"0",
                                           "-1",
                                           "7",
                                           "[",
                                           "]",
                                           "{",
                                           "}",
                                           ",",
                                           "null",
                                           "true",
                                           "\"x\"",
                                           "1e9",
                                           "9223372036854775807",
                                           "\"",
                                           ":",
                                           "{\"batch\":[1,0]}",
                                           "{\"value\":3}"};
  const auto pick = [&](size_t count) { return static_cast<size_t>(random() % count); };
  int loaded = 0;
  for (int i = 0; i < 400; ++i) {
    std::string damaged = text;
    const size_t place = pick(damaged.size());
    switch (pick(4)) {
      case 0:
        damaged.erase(place, 1 + pick(8));
        break;
      case 1:
        damaged.insert(place, pieces[pick(pieces.size())]);
        break;
      case 2: {  // another number
        const size_t digit = damaged.find_first_of("0123456789", place);
        if (digit != std::string::npos) damaged.replace(digit, 1, pieces[pick(3)]);
        break;
      }
      default:
        damaged[place] = static_cast<char>(32 + pick(95));
    }
    write_program_text(damaged);
    try {
      load_exported_model(damaged_)(batch_);
      ++loaded;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(loaded, 0);  // names of layers, for one, mean nothing to the program
  EXPECT_LT(loaded, 200);
}

}  // namespace
}  // namespace tensorpack
