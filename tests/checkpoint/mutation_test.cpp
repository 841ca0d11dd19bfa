// SPDX-License-Identifier: Apache-2.0
// Whatever is in a file, its reader either understands it or says what is wrong with it: no crash,
// no other exception, no memory beyond what the file can hold. TENSORPACK_MUTATIONS=1000000 looks
// longer; in the preset `asan` more is noticed.
#include <gmock/gmock.h>
#include <torch/types.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/checkpoint/checkpoint_directory.h"
#include "tensorpack/checkpoint/name_map.h"
#include "tensorpack/checkpoint/npz.h"
#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/checkpoint/weights_file.h"
#include "tensorpack/monitors/json_writer.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/capture.h"
#include "tests/support/mutator.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

class MutationTest : public testing::Test {
 protected:
  MutationTest() {
    for (const auto type : {torch::kFloat, torch::kHalf, torch::kLong, torch::kBool}) {
      tensors_[c10::toString(type)] = torch::arange(6).remainder(2).reshape({2, 3}).to(type);
    }
    tensors_["empty"] = torch::empty({0, 4});
    tensors_["scalar"] = torch::ones({});
  }

  std::string written(const std::string& name, const std::function<void(const fs::path&)>& write) {
    write(dir_ / name);
    return read_file(dir_ / name);
  }

  /// Reads damaged copies of `files`, each as `name`. Returns how many could be read.
  int read_all(const std::string& name, std::vector<std::string> files,
               const std::function<void(const fs::path&)>& read, int usual = 500) {
    Mutator mutator(std::move(files));
    int readable = 0;
    for (int i = 0; i < mutations(usual); ++i) {
      const std::string bytes = mutator.next();
      std::ofstream(dir_ / name, std::ios::binary) << bytes;
      try {
        read(dir_ / name);
        ++readable;
      } catch (const Error&) {
      } catch (const std::exception& error) {
        ADD_FAILURE() << "mutation " << i << ": " << error.what();
      }
    }
    return readable;
  }

  TempDir dir_;
  NamedTensors tensors_;
};

TEST_F(MutationTest, Safetensors) {
  const std::string whole = written("a.safetensors", [&](const fs::path& path) {
    write_safetensors(path, tensors_, {{"key", "text"}});
  });
  const int readable =
      read_all("a.safetensors", {whole}, [](const fs::path& path) { read_safetensors(path); });
  EXPECT_GT(readable, 0);  // some change only values: else the test would look at nothing
}

#ifdef TENSORPACK_HAS_ZLIB
// np.savez_compressed(file, a=np.zeros(100, np.float32)).
constexpr std::string_view kCompressed =
    "504b030414000000080000002100efb97d1b4b0000001002000005001400612e6e707901001000100200"
    "00000000004b000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e"
    "965f54529498179f5f94920a12774bcc294e058a17672416a402f91a8606063a9a3a0ab50a64032e8651"
    "30a80000504b0102140314000000080000002100efb97d1b4b0000001002000005000000000000000000"
    "0000800100000000612e6e7079504b0506000000000100010033000000820000000000";

std::string from_hex(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

TEST_F(MutationTest, Npz) {
  const std::string whole =
      written("a.npz", [&](const fs::path& path) { write_npz(path, tensors_); });
  const std::string compressed = written("b.npz", [](const fs::path& path) {
    std::ofstream(path, std::ios::binary) << from_hex(kCompressed);
  });
  EXPECT_TRUE(torch::equal(read_npz(dir_ / "b.npz").at("a"), torch::zeros({100})));
  const int readable =
      read_all("a.npz", {whole, compressed}, [](const fs::path& path) { read_npz(path); });
  EXPECT_GT(readable, 0);
}
#endif

// Without checksums, which would keep everything else from being looked at.
TEST_F(MutationTest, TextsOfCheckpoints) {
  const Metadata metadata = {{"tensorpack_checkpoint", "1"},
                             {"global_step", "5"},
                             {"epoch_num", "1"},
                             {"training_only", R"(["w", "v"])"}};
  const auto load = [&](const std::string& key, const std::string& text) {
    Metadata damaged = metadata;
    damaged[key] = text;
    const fs::path path = dir_ / "a.safetensors";
    try {
      write_safetensors(path, {{"w", torch::ones({1})}}, damaged);
      load_checkpoint(path);
    } catch (const Error&) {  // also for what is no UTF-8 and cannot be written
    }
  };
  for (const auto& [key, text] : metadata) {
    Mutator mutator({text});
    for (int i = 0; i < mutations(100); ++i) EXPECT_NO_THROW(load(key, mutator.next())) << key;
  }
}

TEST_F(MutationTest, IndexOfCheckpoints) {
  CheckpointDirectory directory(dir_.path());
  for (const int64_t step : {1, 2}) directory.save({.variables = tensors_, .global_step = step});
  const std::string whole = read_file(dir_ / kCheckpointIndex);
  stdout_of([&] {
    const int readable = read_all(
        kCheckpointIndex, {whole},
        [](const fs::path& path) {
          const CheckpointDirectory opened(path.parent_path());
          for (const fs::path& found : opened.newest_first()) {
            EXPECT_EQ(found.parent_path(), path.parent_path());
            EXPECT_TRUE(fs::exists(found));
          }
          EXPECT_EQ(opened.all().size(), 2);
        },
        500);
    EXPECT_EQ(readable, mutations(500));  // whatever the index says, the files are there
  });
}

TEST_F(MutationTest, IndexOfDividedModels) {
  write_safetensors(dir_ / "part-1.safetensors", {{"w", torch::ones({2})}});
  read_all("m.safetensors.index.json",
           {R"({"metadata": {"total_size": 8}, "weight_map": {"w": "part-1.safetensors"}})"},
           [](const fs::path& path) { read_weights(path); });
}

TEST_F(MutationTest, NameMaps) {
  read_all("rules", {"a(b)$ -> c.$1 transposed part 1 of 3\nignore mask$\n# a comment\n"},
           [](const fs::path& path) { read_name_map(path)("ab"); });
}

TEST_F(MutationTest, Statistics) {
  const std::string whole =
      "[\n{\"cost\":1.0,\"epoch_num\":1,\"global_step\":1},\n"
      "{\"cost\":0.5,\"epoch_num\":1,\"error\":0.25,\"global_step\":2}\n]";
  const fs::path path = dir_ / "stats.json";
  Mutator mutator({whole});
  stdout_of([&] {
    for (int i = 0; i < mutations(200); ++i) {
      std::ofstream(path, std::ios::binary) << mutator.next();
      const LoopState loop{.epoch_num = 1,
                           .global_step = 2,
                           .steps_per_epoch = 2,
                           .starting_epoch = 2,
                           .max_epoch = 3};
      JSONWriter writer({.path = path});
      EXPECT_NO_THROW({
        writer.before_train(loop);
        writer.process_scalar("cost", 1, loop);
        writer.trigger_epoch(loop);
        writer.after_train(loop);
      });
      // What it was damaged to, it is a list now.
      EXPECT_TRUE(JSONWriter::load_existing_json(dir_.path()).has_value());
    }
  });
}

}  // namespace
}  // namespace tensorpack
