// SPDX-License-Identifier: Apache-2.0
// `tp ls`, `show`, `diff`, `average` and `convert`.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tensorpack/checkpoint/checkpoint_directory.h"
#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/checkpoint/weights_file.h"
#include "tensorpack/utils/fs.h"
#include "tests/programs/model_program.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class ModelCommandsTest : public testing::Test {
 protected:
  ModelCommandsTest() {
    CheckpointDirectory directory(dir_.path());
    for (const int64_t step : {100, 200}) {
      directory.save({.variables = {{"conv0/W", at::full({2, 3}, static_cast<float>(step))},
                                    {"conv0/W/Momentum", at::ones({2, 3})},
                                    {"steps", at::tensor(step)}},
                      .training_only = {"conv0/W/Momentum"},
                      .global_step = step,
                      .epoch_num = step / 100,
                      .extra = {{"note", "a text"}}});
    }
  }

  /// The exit status of `tp-model <words>`, which is what `tp` starts, where the checkpoints are.
  /// It is run in this process: to load libtorch takes longer than any command.
  int tp(const std::vector<std::string>& words) {
    const fs::path here = fs::current_path();
    fs::current_path(dir_.path());
    const Outcome outcome = run_tp(words);
    fs::current_path(here);
    output_ = outcome.output;
    return outcome.status;
  }
  /// The same in a process.
  int tp_process(const std::vector<std::string>& words) {
    std::string command = "cd '" + dir_.path().string() + "' && '" TENSORPACK_TP "'";
    for (const std::string& word : words) command += " '" + word + "'";
    ChildProcess process({"/bin/bash", "-c", command});
    const int status = process.wait();
    output_ = process.output();
    return status;
  }
  at::Tensor weight(const std::string& file, const std::string& name = "conv0/W") const {
    return read_weights(dir_ / file).at(name);
  }

  TempDir dir_;
  std::string output_;
};

TEST_F(ModelCommandsTest, LsListsCheckpointsByStep) {
  EXPECT_EQ(tp_process({"ls"}), 0) << output_;
  EXPECT_THAT(output_, ContainsRegex("step +epoch +tensors +size +saved +file"));
  EXPECT_THAT(output_, ContainsRegex(" 100 +1 +3 .* model-100.safetensors\n"));
  EXPECT_THAT(output_, ContainsRegex(" 200 +2 +3 .* model-200.safetensors +latest\n"));
}

TEST_F(ModelCommandsTest, LsFindsDamage) {
  {
    std::fstream file(dir_ / "model-100.safetensors", std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  EXPECT_EQ(tp({"ls", "--verify"}), 1);
  EXPECT_THAT(output_, ContainsRegex("model-100.safetensors +damaged"));
  EXPECT_THAT(output_, ContainsRegex("model-200.safetensors +latest, whole"));
  EXPECT_EQ(tp({"ls", "/no/such/directory"}), 2);
  EXPECT_THAT(output_, HasSubstr("'/no/such/directory' is no directory"));
}

TEST_F(ModelCommandsTest, LsDoesNotCallBareWeightsDamaged) {
  const fs::path path = dir_ / "model-300.safetensors";
  write_safetensors(path, {{"W", at::ones({2})}});
  EXPECT_EQ(tp({"ls", "--verify"}), 0) << output_;
  EXPECT_THAT(output_, ContainsRegex("model-300.safetensors +weights without checksums"));
  fs::resize_file(path, fs::file_size(path) - 1);
  EXPECT_EQ(tp({"ls", "--verify"}), 1) << output_;
  EXPECT_THAT(output_, ContainsRegex("model-300.safetensors +damaged"));
}

TEST_F(ModelCommandsTest, ShowTellsWhatIsInAFile) {
  EXPECT_EQ(tp({"show", "."}), 0) << output_;
  EXPECT_THAT(output_, AllOf(HasSubstr("global_step: 200"), HasSubstr("note: a text"),
                             ContainsRegex("conv0/W +Float +\\[2, 3\\] +24 B"),
                             HasSubstr("3 tensors, 13 elements, 56 B")));
  EXPECT_EQ(tp({"show", "model-100", "conv0/W$", "--stats"}), 0) << output_;
  EXPECT_THAT(output_,
              AllOf(ContainsRegex("24 B +100 +0 +100 +100 +0\n"), Not(HasSubstr("Momentum"))));
  EXPECT_EQ(tp({"show", "model-300"}), 2);
  EXPECT_THAT(output_, HasSubstr("there is no checkpoint 'model-300'"));
}

TEST_F(ModelCommandsTest, DiffTellsWhatIsDifferent) {
  EXPECT_EQ(tp({"diff", "model-100", "model-100"}), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("2 tensors the same, 0 not"));
  EXPECT_EQ(tp({"diff", "model-100", "model-200"}), 1);
  EXPECT_THAT(output_, HasSubstr("! conv0/W: it differs in 6 of 6 elements, by up to 100"));
  EXPECT_EQ(tp({"diff", "model-100", "model-200", "--tolerance", "100"}), 0) << output_;
  write_weights(dir_ / "x.safetensors", {{"conv0/W", at::ones({2})}, {"b", at::ones({1})}});
  EXPECT_EQ(tp({"diff", "model-100", "x.safetensors"}), 1);
  EXPECT_THAT(output_, AllOf(HasSubstr("! conv0/W: Float [2, 3] and Float [2]"),
                             HasSubstr("< steps: only in"), HasSubstr("> b: only in")));
}

TEST_F(ModelCommandsTest, AverageTakesTheMeanOfFloats) {
  EXPECT_EQ(tp({"average", "model-100", "model-200", "-o", "mean.safetensors"}), 0) << output_;
  EXPECT_TRUE(at::equal(weight("mean.safetensors"), at::full({2, 3}, 150.F)));
  EXPECT_EQ(weight("mean.safetensors", "steps").item<int64_t>(), 200);
  EXPECT_EQ(read_weights(dir_ / "mean.safetensors").size(), 2);
  write_weights(dir_ / "x.safetensors", {{"conv0/W", at::ones({2})}});
  EXPECT_EQ(tp({"average", "model-100", "x.safetensors", "-o", "y.safetensors"}), 2);
  EXPECT_THAT(output_, HasSubstr("Average files of one model"));
  EXPECT_FALSE(fs::exists(dir_ / "y.safetensors"));
}

TEST_F(ModelCommandsTest, ConvertChangesNamesThereAndBack) {
  write_file_atomically(dir_ / "rules", "^conv0/W$ -> conv1.weight transposed\n");
  EXPECT_EQ(tp({"convert", "model-100", "theirs.safetensors", "--names", "rules"}), 0) << output_;
  EXPECT_TRUE(at::equal(weight("theirs.safetensors", "conv1.weight"), at::full({3, 2}, 100.F)));
  EXPECT_EQ(tp({"convert", "theirs.safetensors", "ours.safetensors", "--names", "rules", "--like",
                "model-200"}),
            0)
      << output_;
  EXPECT_EQ(tp({"diff", "model-100", "ours.safetensors"}), 0) << output_;
  EXPECT_EQ(tp({"convert", "ours.safetensors", "x.safetensors", "--names", "rules", "--like",
                "model-200"}),
            2);
  EXPECT_THAT(output_, HasSubstr("there is no 'conv1.weight', from which 'conv0/W' would be made"));
}

#ifdef TENSORPACK_HAS_ZLIB
TEST_F(ModelCommandsTest, ConvertChangesFormats) {
  EXPECT_EQ(tp({"convert", "model-100", "x.npz"}), 0) << output_;
  EXPECT_EQ(tp({"diff", "model-100", "x.npz"}), 0) << output_;
  write_weights(dir_ / "half.safetensors", {{"w", at::ones({2}, at::kBFloat16)}});
  EXPECT_EQ(tp({"convert", "half.safetensors", "half.npz"}), 2);
  EXPECT_THAT(output_, HasSubstr("Cast it to float32"));
  EXPECT_EQ(tp({"convert", "half.safetensors", "half.npz", "--float32"}), 0) << output_;
  EXPECT_TRUE(at::equal(weight("half.npz", "w"), at::ones({2})));
}
#endif

TEST_F(ModelCommandsTest, HelpShowsAnExample) {
  EXPECT_EQ(tp_process({"--help"}), 0);
  for (const char* command : {"ls", "show", "diff", "average", "convert"}) {
    EXPECT_THAT(output_, HasSubstr(std::string("tp ") + command));
  }
  for (const char* command : {"ls", "show", "diff", "average", "convert", "export", "cifar10"}) {
    EXPECT_EQ(tp({command, "--help"}), 0);
    EXPECT_THAT(output_, HasSubstr("Example:"));
  }
  for (const char* command : {"completion", "launch", "watch"}) {
    EXPECT_EQ(tp_process({command, "--help"}), 0);
    EXPECT_THAT(output_, HasSubstr("Example:"));
  }
}

TEST_F(ModelCommandsTest, WrongWordsAreAnErrorOfTheCommand) {
  EXPECT_EQ(tp_process({}), 2);
  EXPECT_THAT(output_, AllOf(HasSubstr("Usage: tp"), HasSubstr("tp ls train_log/mine")));
  EXPECT_EQ(tp_process({"lss"}), 2);
  EXPECT_THAT(output_,
              HasSubstr("tp: there is no command 'lss'. The commands are new, run, launch, ls, "));
  EXPECT_EQ(tp_process({"launch"}), 2);
  EXPECT_THAT(output_, HasSubstr("tp launch: command is required. See tp launch --help."));
  EXPECT_EQ(tp({"diff", "model-100"}), 2);
  EXPECT_EQ(output_, "tp diff: second is required. See tp diff --help.\n");
  EXPECT_EQ(tp({"diff", "model-100", "model-200", "--tolerance", "-1"}), 2);
  EXPECT_THAT(output_, HasSubstr("[tp diff] --tolerance is -1."));
  EXPECT_EQ(tp({"show", "model-100", "--stat"}), 2);
  EXPECT_THAT(output_, HasSubstr("--stat"));
  EXPECT_EQ(tp({"show", "model-100", "no such name"}), 2);
  EXPECT_THAT(output_,
              HasSubstr("no tensor in 'model-100' has a name that matches 'no such name'"));
  EXPECT_EQ(tp({"average", ".", "-o", "x.safetensors"}), 2);
  EXPECT_THAT(output_, HasSubstr("'.' alone has nothing to be averaged with"));
}

TEST_F(ModelCommandsTest, WeightsDoNotReplaceACheckpoint) {
  const std::string before = read_file(dir_ / "model-100.safetensors");
  EXPECT_EQ(tp({"convert", "model-100", "model-100.safetensors"}), 2);
  EXPECT_THAT(output_, HasSubstr("'model-100.safetensors' is a checkpoint"));
  EXPECT_EQ(tp({"average", "model-100", "model-200", "-o", "model-100.safetensors"}), 2);
  EXPECT_THAT(output_, HasSubstr("'model-100.safetensors' is a checkpoint"));
  EXPECT_EQ(read_file(dir_ / "model-100.safetensors"), before);
  for (int i = 0; i < 2; ++i) {  // what holds weights alone may be written again
    EXPECT_EQ(tp({"convert", "model-100", "x.safetensors"}), 0) << output_;
  }
}

// What bash would offer for the word at the end of `line`.
TEST_F(ModelCommandsTest, BashCompletesCommandsOptionsAndFiles) {
  const auto complete = [&](const std::string& line) {
    const std::string script =
        "cd '" + dir_.path().string() + "' && source <('" TENSORPACK_TP "' completion) && " +
        "COMP_WORDS=(" + line + ") && COMP_WORDS[0]='" TENSORPACK_TP "' && " +
        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && _tp && echo \"${COMPREPLY[*]}\"";
    ChildProcess bash({"/bin/bash", "-c", script});
    EXPECT_EQ(bash.wait(), 0) << bash.output();
    return bash.output();
  };
  EXPECT_EQ(complete("tp l"), "launch ls\n");
  EXPECT_EQ(complete("tp convert --na"), "--names\n");
  EXPECT_EQ(complete("tp convert --f"), "--float32\n");
  EXPECT_EQ(complete("tp launch --max"), "--max-restarts\n");
  EXPECT_EQ(complete("tp launch --ep"), "\n");  // which its example gives to another program
  EXPECT_EQ(complete("tp show model-1"), "model-100.safetensors\n");
}

}  // namespace
}  // namespace tensorpack
