// SPDX-License-Identifier: Apache-2.0
// Files made to do harm: what they call is refused, and what they may call stays in its memory.
#include "tensorpack/export/detail/allowed_operators.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/library.h>

#include <limits>
#include <map>
#include <regex>
#include <set>

#include "tensorpack/checkpoint/detail/malformed.h"
#include "tensorpack/export/detail/program_function.h"
#include "tensorpack/export/export_model.h"
#include "tensorpack/export/exported_model.h"
#include "tensorpack/export/program_file.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/find_operator.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

using detail::Malformed;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Arguments = std::map<std::string, ExportedArgument>;

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

std::vector<c10::OperatorHandle> all_operators() {
  std::vector<c10::OperatorHandle> operators;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto found = c10::Dispatcher::singleton().findSchema(name);
    if (found.has_value()) operators.push_back(*found);
  }
  return operators;
}

// A program of one operator over constants.
class OneOperator {
 public:
  explicit OneOperator(std::string op, size_t results = 1) {
    node_.op = std::move(op);
    for (size_t i = 0; i < results; ++i) node_.results.push_back({.ids = {kNoExportedValue}});
    node_.results[0].ids = {add_value()};
  }
  OneOperator& tensor(const std::string& name, const at::Tensor& value) {
    const ExportedId id = add_value();
    program_.constants.push_back({.id = id, .name = name, .tensor = value});
    node_.arguments[name] = ValueArgument{id};
    return *this;
  }
  OneOperator& with(const std::string& name, ExportedArgument value) {
    node_.arguments[name] = std::move(value);
    return *this;
  }
  OneOperator& integers(const std::string& name, const std::vector<int64_t>& values) {
    std::vector<Extent> extents;
    for (int64_t value : values) extents.push_back({0, value});
    return with(name, std::move(extents));
  }
  OneOperator& integer(const std::string& name, int64_t value) {
    return with(name, Extent{0, value});
  }
  ExportedProgram program() const {
    ExportedProgram program = program_;
    program.nodes = {node_};
    program.outputs = {{"y", node_.results[0].ids[0]}};
    return program;
  }
  // With tensors as inputs, which keep their strides.
  at::Tensor run() const {
    ExportedProgram with_inputs = program();
    std::vector<at::Tensor> inputs;
    for (const ExportedConstant& constant : std::exchange(with_inputs.constants, {})) {
      const at::Tensor& tensor = constant.tensor;
      with_inputs.inputs.push_back({.spec = {.name = constant.name,
                                             .shape = tensor.sizes().vec(),
                                             .dtype = tensor.scalar_type()},
                                    .id = constant.id});
      inputs.push_back(tensor);
    }
    return detail::ProgramFunction(with_inputs, at::kCPU)(inputs)[0];
  }

 private:
  ExportedId add_value() {
    program_.values.emplace_back();
    return static_cast<ExportedId>(program_.values.size()) - 1;
  }

  ExportedProgram program_;
  ExportedNode node_;
};

TEST(AllowedOperatorsTest, NoOverloadOfADeniedFamilyIsAllowed) {
  for (const char* family : {"from_file",
                             "set",
                             "set_data",
                             "resize",
                             "resize_as",
                             "_resize_output",
                             "record_stream",
                             "pin_memory",
                             "_pin_memory",
                             "is_pinned",
                             "segment_reduce",
                             "_sparse_.*",
                             "sparse_.*",
                             "to_sparse.*",
                             "_nested_.*",
                             "quantize_.*",
                             "quantized_.*",
                             "_empty_affine_quantized",
                             "dequantize",
                             "fbgemm_.*",
                             "_cudnn_.*",
                             "cudnn_.*",
                             "miopen_.*",
                             "mkldnn_.*",
                             "to_mkldnn",
                             "_index_put_impl",
                             "embedding_renorm",
                             "_foreach_.*",
                             "_fused_.*",
                             "_test_.*",
                             "_foobar",
                             "linalg_lu_solve",
                             "linalg_matrix_exp",
                             "_ctc_loss",
                             "_thnn_.*",
                             "_pack_padded_sequence",
                             "_copy_from.*",
                             "to",
                             "rand.*",
                             "normal",
                             "uniform",
                             "bernoulli",
                             "dropout",
                             "rrelu.*",
                             "nonzero",
                             "unique.*",
                             "masked_select",
                             "item",
                             "_local_scalar_dense",
                             ".*pool.*_backward",
                             ".*norm.*_backward",
                             "embedding.*_backward",
                             "_validate_.*",
                             "_cufft_.*",
                             "_assert_async",
                             "_coalesced",
                             "requires_grad"}) {
    const std::regex pattern("aten::" + std::string(family) + "_?");
    int overloads = 0;
    for (const c10::OperatorHandle& op : all_operators()) {
      if (!std::regex_match(op.operator_name().name, pattern)) continue;
      ++overloads;
      EXPECT_FALSE(detail::is_allowed(op)) << full_name(op.operator_name());
    }
    EXPECT_GT(overloads, 0) << family;
  }
}

// What they do to their tensors is seen by operator_campaign.
TEST(AllowedOperatorsTest, WhatIsAllowedTakesTensorsAndNumbersAndReturnsTensors) {
  const std::set<std::string> harmless = {"Tensor",     "int",    "SymInt", "float",
                                          "bool",       "Scalar", "number", "str",
                                          "ScalarType", "Layout", "Device", "MemoryFormat"};
  int allowed = 0;
  for (const c10::OperatorHandle& op : all_operators()) {
    if (!detail::is_allowed(op)) continue;
    ++allowed;
    for (const c10::Argument& argument : op.schema().arguments()) {
      const std::string type = argument.real_type()->str();
      const std::string element =
          std::regex_replace(type, std::regex("\\(\\w\\)|[?\\[\\]0-9]"), "");
      EXPECT_TRUE(harmless.contains(element)) << type << " of " << op.schema();
    }
    for (const c10::Argument& result : op.schema().returns()) {
      EXPECT_THAT(result.type()->str(), testing::AnyOf("Tensor", "Tensor[]")) << op.schema();
    }
  }
  EXPECT_GT(allowed, 400);
}

TEST(AllowedOperatorsTest, AFileCannotReadOrWriteFiles) {
  const TempDir dir;
  const std::filesystem::path path = dir / "made";
  OneOperator from_file("aten::from_file");
  from_file.with("filename", path.string()).with("shared", true).integer("size", 4);
  OneOperator out("aten::from_file.out");
  out.with("filename", path.string())
      .with("shared", true)
      .integer("size", 4)
      .tensor("out", at::ones({4}));
  for (const OneOperator& crafted : {from_file, out}) {
    if (!try_find_operator(crafted.program().nodes[0].op)) continue;
    EXPECT_THAT([&] { crafted.run(); }, ThrowsMessage<Malformed>(HasSubstr("aten::from_file")));
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(AllowedOperatorsTest, FlagsThatLeaveOutChecksAreRefused) {
  const OneOperator crafted = OneOperator("aten::segment_reduce")
                                  .tensor("data", at::ones({2}))
                                  .with("reduce", "sum")
                                  .tensor("lengths", at::full({1}, 400'000'000))
                                  .with("unsafe", true);
  EXPECT_THAT([&] { crafted.run(); }, ThrowsMessage<Malformed>(HasSubstr("may have")));
}

TEST(AllowedOperatorsTest, ConstantsAreNotWritten) {
  const OneOperator crafted = OneOperator("aten::relu_").tensor("self", at::ones({2}));
  EXPECT_THAT([&] { detail::ProgramFunction(crafted.program(), at::kCPU)({}); },
              ThrowsMessage<Malformed>(HasSubstr("constant 'self'")));
}

TEST(AllowedOperatorsTest, NumbersThatStandForNothingAreRefused) {
  const auto zeros = [] { return OneOperator("aten::zeros").integers("size", {2}); };
  EXPECT_EQ(zeros().integer("dtype", static_cast<int64_t>(at::kLong)).run().scalar_type(),
            at::kLong);
  for (int64_t dtype : {-1, 12, 18, 1000}) {
    EXPECT_THAT([&] { zeros().integer("dtype", dtype).run(); },
                ThrowsMessage<Malformed>(HasSubstr("'dtype'")));
  }
  EXPECT_THAT([&] { zeros().integer("layout", 1).run(); },
              ThrowsMessage<Malformed>(HasSubstr("'layout'")));
  EXPECT_THAT([&] { zeros().with("pin_memory", true).run(); },
              ThrowsMessage<Malformed>(HasSubstr("pinned memory")));
  EXPECT_THAT(
      [&] {
        OneOperator("aten::clone").tensor("self", at::ones({2})).integer("memory_format", 9).run();
      },
      ThrowsMessage<Malformed>(HasSubstr("'memory_format'")));
}

// Each of these crashed libtorch 1.13 or gave memory behind a tensor.
TEST(AllowedOperatorsTest, KernelsThatTrustTheirCallersAreNotCalledWithWhatDoesNotFit) {
  const at::Tensor images = at::ones({2, 3, 4, 4});
  const auto norm = [&](bool training, int64_t channels) {
    return OneOperator("aten::native_batch_norm", 3)
        .tensor("input", images)
        .with("weight", {})
        .with("bias", {})
        .tensor("running_mean", at::zeros({channels}))
        .tensor("running_var", at::ones({channels}))
        .with("training", training)
        .with("momentum", 0.1)
        .with("eps", 0.1);
  };
  EXPECT_NO_THROW(norm(false, 3).run());
  const auto group_norm = [&](int64_t batch) {
    return OneOperator("aten::native_group_norm", 3)
        .tensor("input", images)
        .with("weight", {})
        .with("bias", {})
        .integer("N", batch)
        .integer("C", 3)
        .integer("HxW", 16)
        .integer("group", 3)
        .with("eps", 0.1);
  };
  EXPECT_NO_THROW(group_norm(2).run());
  const auto resize = [&](double scale) {
    return OneOperator("aten::upsample_bilinear2d")
        .tensor("self", images)
        .integers("output_size", {8, 8})
        .with("align_corners", false)
        .with("scales_h", scale)
        .with("scales_w", 2.0);
  };
  EXPECT_NO_THROW(resize(2).run());
  const auto alias = [&](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    return OneOperator("aten::_reshape_alias")
        .tensor("self", images)
        .integers("size", sizes)
        .integers("stride", strides);
  };
  EXPECT_NO_THROW(alias({6, 16}, {16, 1}).run());
  const auto convolution = [&](int64_t groups) {
    return OneOperator("aten::convolution")
        .tensor("input", images)
        .tensor("weight", at::ones({3, 3, 1, 1}))
        .with("bias", {})
        .integers("stride", {1, 1})
        .integers("padding", {0, 0})
        .integers("dilation", {1, 1})
        .with("transposed", false)
        .integers("output_padding", {0, 0})
        .integer("groups", groups);
  };
  EXPECT_NO_THROW(convolution(1).run());
  const auto transform = [&](int64_t size) {
    return OneOperator("aten::_fft_c2r")
        .tensor("self", at::ones({4}, at::kComplexFloat))
        .integers("dim", {0})
        .integer("normalization", 0)
        .integer("last_dim_size", size);
  };
  EXPECT_NO_THROW(transform(6).run());
  const at::Tensor one = at::ones({1});
  const auto with_expanded = [&](OneOperator program, const std::string& name, int64_t size) {
    return program.tensor(name, one.expand({size}));
  };
  const auto nearest = [](const std::string& op, size_t dims) {
    OneOperator program(op);
    program.tensor("self", at::ones(std::vector<int64_t>(dims + 2, 4), at::kByte))
        .integers("output_size", std::vector<int64_t>(dims, 8));
    if (dims == 1) return program.with("scales", 1e-300);
    if (dims == 3) program.with("scales_d", 1e-300);
    return program.with("scales_h", 1e-300).with("scales_w", 1e-300);
  };
  const auto sample = [&](const std::string& op, int64_t mode, int64_t padding) {
    const bool is_flat = op.ends_with("2d");
    return OneOperator(op)
        .tensor("input", is_flat ? at::ones({1, 1, 4, 4}) : at::ones({1, 1, 4, 4, 4}))
        .tensor("grid", is_flat ? at::zeros({1, 4, 4, 2}) : at::zeros({1, 4, 4, 4, 3}))
        .integer("interpolation_mode", mode)
        .integer("padding_mode", padding)
        .with("align_corners", false);
  };
  EXPECT_NO_THROW(sample("aten::grid_sampler_2d", 2, 2).run());
  EXPECT_NO_THROW(sample("aten::grid_sampler_3d", 1, 2).run());
  const auto attention = [](const at::Tensor& key) {
    return OneOperator("aten::_scaled_dot_product_flash_attention_for_cpu", 2)
        .tensor("query", at::ones({1, 1, 2, 8}))
        .tensor("key", key)
        .tensor("value", at::ones({1, 1, 2, 8}));
  };
  const auto bag = [](const at::Tensor& offsets) {
    return OneOperator("aten::_embedding_bag_forward_only", 4)
        .tensor("weight", at::ones({4, 2}))
        .tensor("indices", at::tensor({0, 1, 2}, at::kLong))
        .tensor("offsets", offsets);
  };
  EXPECT_NO_THROW(bag(at::tensor({0, 2}, at::kLong)).run());
  const auto strided = [](const at::Tensor& self) {
    return OneOperator("aten::as_strided")
        .tensor("self", self)
        .integers("size", {6})
        .integers("stride", {1})
        .integer("storage_offset", 0);
  };
  EXPECT_NO_THROW(strided(at::ones({6})).run());
  const std::vector<OneOperator> crafted = {
      with_expanded(group_norm(2), "weight", 3),
      with_expanded(group_norm(2), "bias", 3),
      group_norm(2).tensor("input", at::ones({1}).expand({2, 3, 4, 4})),
      nearest("aten::upsample_nearest1d", 1),
      nearest("aten::upsample_nearest2d", 2),
      nearest("aten::upsample_nearest3d", 3),
      nearest("aten::_upsample_nearest_exact1d", 1),
      nearest("aten::_upsample_nearest_exact2d", 2),
      nearest("aten::_upsample_nearest_exact3d", 3),
      sample("aten::grid_sampler_2d", 7, 0),
      sample("aten::grid_sampler_2d", 0, 9),
      sample("aten::grid_sampler_3d", 2, 0),
      sample("aten::grid_sampler_3d", 0, -1),
      attention(at::ones({1}).expand({1, 1, 2, 8})),
      bag(at::zeros({4, 3, 0}, at::kLong)),
      bag(at::zeros({0}, at::kLong)),
      bag(at::tensor({0, 1}, at::kLong)).with("include_last_offset", true),
      strided(at::ones({6}).slice(0, 0, 6, 5)),
      strided(at::ones({12}).narrow(0, 6, 6)),
      OneOperator("aten::index_select")
          .tensor("self", at::ones({}))
          .integer("dim", 0)
          .tensor("index", at::zeros({2}, at::kLong)),
      OneOperator("aten::max_unpool2d")
          .tensor("self", images)
          .tensor("indices", at::zeros({2, 3, 4, 4}, at::kLong))
          .integers("output_size", {}),
      OneOperator("aten::_weight_norm_interface", 2)
          .tensor("v", at::ones({4, 2}))
          .tensor("g", at::ones({1, 1}).expand({4, 1})),
      OneOperator("aten::mse_loss")
          .tensor("self", images)
          .tensor("target", images)
          .integer("reduction", 3),
      norm(false, 1),
      norm(true, 3),
      norm(false, 3).with("running_mean", {}),
      group_norm(200),
      resize(0.01),
      alias({6, 16}, {1000, 1}),
      alias({6}, {-1}),
      convolution(int64_t{1} << 40),
      transform(5000),
      transform(4),
      OneOperator("aten::reflection_pad2d").tensor("self", images).integers("padding", {}),
      OneOperator("aten::replication_pad3d").tensor("self", images).integers("padding", {1}),
      OneOperator("aten::pixel_shuffle")
          .tensor("self", images)
          .integer("upscale_factor", int64_t{1} << 40),
      OneOperator("aten::searchsorted.Tensor")
          .tensor("sorted_sequence", at::arange(4))
          .tensor("self", at::arange(4))
          .tensor("sorter", at::full({4}, 1'000'000)),
      OneOperator("aten::_fft_r2c")
          .tensor("self", images)
          .integers("dim", {1'000'000})
          .integer("normalization", 0)
          .with("onesided", true),
      OneOperator("aten::_weight_norm_interface", 2)
          .tensor("v", at::ones({0, 2}))
          .tensor("g", at::ones({0})),
  };
  for (const OneOperator& program : crafted) {
    const auto op = try_find_operator(program.program().nodes[0].op);
    if (!op || !detail::is_allowed(*op)) continue;  // in this libtorch
    EXPECT_THAT([&] { program.run(); }, ThrowsMessage<Error>(HasSubstr("cannot be run: ")))
        << program.program().nodes[0].op;
  }
}

// Each ended the process by SIGFPE.
TEST(AllowedOperatorsTest, TheLeastIntegerIsDivided) {
  for (const at::ScalarType type : {at::kInt, at::kLong}) {
    const int64_t least = type == at::kInt ? std::numeric_limits<int32_t>::min()
                                           : std::numeric_limits<int64_t>::min();
    const at::Tensor self = at::full({3}, least, type);
    const at::Tensor other = at::tensor({-1, 1, -2}, type);
    const auto result = [&](const std::string& op, const char* mode = nullptr) {
      OneOperator program(op);
      if (mode != nullptr) program.with("rounding_mode", mode);
      return program.tensor("self", self).tensor("other", other).run().to(at::kLong);
    };
    const at::Tensor quotients = at::tensor({least, least, least / -2}, at::kLong);
    EXPECT_TRUE(result("aten::div.Tensor_mode", "trunc").equal(quotients));
    EXPECT_TRUE(result("aten::div.Tensor_mode", "floor").equal(quotients));
    EXPECT_TRUE(result("aten::floor_divide").equal(quotients));
    EXPECT_TRUE(result("aten::fmod.Tensor").equal(at::zeros({3}, at::kLong)));
    EXPECT_TRUE(result("aten::remainder.Tensor").equal(at::zeros({3}, at::kLong)));
    EXPECT_NO_THROW(OneOperator("aten::lcm")
                        .tensor("self", self)
                        .tensor("other", at::full({3}, ~least, type))
                        .run());
    for (const char* op : {"aten::fmod.Scalar", "aten::remainder.Scalar",
                           "aten::floor_divide.Scalar", "aten::div.Scalar_mode"}) {
      const int64_t minus_one = type == at::kInt ? std::numeric_limits<int64_t>::max() : -1;
      OneOperator program = OneOperator(op).tensor("self", self).integer("other", minus_one);
      if (std::string(op).starts_with("aten::div")) program.with("rounding_mode", "trunc");
      EXPECT_THAT([&] { program.run(); }, ThrowsMessage<Error>(HasSubstr("by -1"))) << op;
    }
    EXPECT_THROW(OneOperator("aten::remainder.Scalar_Tensor")
                     .integer("self", least)
                     .tensor("other", other)
                     .run(),
                 Error);
  }
}

TEST(AllowedOperatorsTest, ViewsStayInTheirMemory) {
  const at::Tensor self = at::ones({6});
  EXPECT_THROW(OneOperator("aten::as_strided")
                   .tensor("self", self)
                   .integers("size", {4})
                   .integers("stride", {2})
                   .run(),
               Error);
  EXPECT_THROW(
      OneOperator("aten::_unsafe_view").tensor("self", self).integers("size", {2, 4}).run(), Error);
  EXPECT_THROW(OneOperator("aten::view").tensor("self", self).integers("size", {7}).run(), Error);
  EXPECT_THROW(
      OneOperator("aten::slice_scatter").tensor("self", self).tensor("src", at::ones({7})).run(),
      Error);
}

at::Tensor doubled(const at::Tensor& x) { return x * 2; }

TORCH_LIBRARY(tensorpack_test_of_export, library) { library.def("doubled(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(tensorpack_test_of_export, CPU, library) { library.impl("doubled", doubled); }

TEST(AllowedOperatorsTest, OperatorsOfOtherLibrariesAreNamedByWhoLoadsTheFile) {
  const TempDir dir;
  const std::string name = "tensorpack_test_of_export::doubled";
  export_model(
      {
          .inputs = {{"x", {-1, 2}}},
          .tower_func =
              [&](const at::Tensor& x) {
                torch::jit::Stack stack = {x};
                try_find_operator(name)->callBoxed(&stack);
                named("y", stack[0].toTensor() + 1);
              },
          .output_names = {"y"},
      },
      dir / "model");
  const at::Tensor x = at::ones({3, 2});
  EXPECT_TRUE(load_exported_model(dir / "model", {.operators = {name}})(x)[0].equal(x * 2 + 1));
  EXPECT_THAT([&] { load_exported_model(dir / "model"); },
              ThrowsMessage<Error>(testing::AllOf(HasSubstr(name), HasSubstr("::operators"))));
}

}  // namespace
}  // namespace tensorpack
