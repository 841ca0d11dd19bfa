// SPDX-License-Identifier: Apache-2.0
// `tp export` on a file from export_model().
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "tensorpack/export/export_model.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ExportCommandTest : public testing::Test {
 protected:
  ExportCommandTest() {
    export_model(
        {
            .inputs = {{"image", {-1, 3, 8, 8}}},
            .tower_func =
                [](const at::Tensor& image) {
                  const at::Tensor l = Conv2D("conv", image, {.filters = 4, .kernel_size = 3});
                  named("y", BatchNorm("bn", l).relu().flatten(1));
                },
            .output_names = {"y"},
        },
        file_);
  }

  std::string run(std::vector<std::string> arguments, int status = 0) {
    arguments.insert(arguments.begin(), {TENSORPACK_TP, "export"});
    ChildProcess child(std::move(arguments));
    EXPECT_EQ(child.wait(), status) << child.output();
    return child.output();
  }

  TempDir dir_;
  std::string file_ = dir_ / "model.tpx";
};

TEST_F(ExportCommandTest, ShowsInputsOutputsTensorsAndOperators) {
  const std::string output = run({file_, "--show"});
  EXPECT_THAT(output, AllOf(HasSubstr("input  image: Float [batch, 3, 8, 8]"),
                            HasSubstr("output y: Float [batch, 256]"),
                            HasSubstr("tensor conv/W: Float [4, 3, 3, 3]")));
  EXPECT_THAT(output, AllOf(HasSubstr("aten::convolution("), HasSubstr("@conv"),
                            HasSubstr("input=$image"), HasSubstr("5 operators")));
  EXPECT_EQ(run({file_}), output);
}

TEST_F(ExportCommandTest, WritesOnnx) {
  const std::string plain = dir_ / "plain.onnx";
  const std::string folded = dir_ / "folded.onnx";
  EXPECT_THAT(run({file_, "--onnx", plain}), HasSubstr("opset 17"));
  run({file_, "--onnx", folded, "--fold-batch-norm"});
  EXPECT_THAT(read_file(plain), HasSubstr("BatchNormalization"));
  EXPECT_THAT(read_file(folded), AllOf(HasSubstr("Conv"), Not(HasSubstr("BatchNormalization"))));
}

TEST_F(ExportCommandTest, SaysWhatIsWrongWithAFile) {
  write_file_atomically(file_, "not a model");
  EXPECT_THAT(run({file_}, 2), HasSubstr("model.tpx"));
}

}  // namespace
}  // namespace tensorpack
