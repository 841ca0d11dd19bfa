// SPDX-License-Identifier: Apache-2.0
// Files made to do harm, read as any model is: what they call is refused by its name, and what they
// may call shows no memory of others and writes no constant.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tensorpack/export/export_model.h"
#include "tensorpack/export/exported_model.h"
#include "tensorpack/export/program_file.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/find_operator.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Arguments = std::map<std::string, ExportedArgument>;

ExportedArgument integers(const std::vector<int64_t>& values) {
  std::vector<Extent> extents;
  for (int64_t value : values) extents.push_back({0, value});
  return extents;
}

ExportedArgument integer(int64_t value) { return Extent{0, value}; }

// A file of a few operators over constants.
class Crafted {
 public:
  ValueArgument constant(const Tensor& value) {
    const ValueArgument made = add_value();
    ExportedValue& facts = program_.values.back();
    facts.dtype = value.scalar_type();
    for (int64_t size : value.sizes()) facts.shape.push_back({0, size});
    program_.constants.push_back(
        {.id = made.id, .name = "c" + std::to_string(made.id), .tensor = value});
    return made;
  }
  /// The first result.
  ValueArgument call(const std::string& op, Arguments arguments, size_t results = 1) {
    ExportedNode node{.op = op, .arguments = std::move(arguments)};
    for (size_t i = 0; i < results; ++i) node.results.push_back({.ids = {kNoExportedValue}});
    const ValueArgument made = add_value();
    if (results > 0) node.results[0].ids = {made.id};
    program_.nodes.push_back(std::move(node));
    return made;
  }
  ExportedModel load(ValueArgument output) {
    program_.outputs = {{"y", output.id}};
    const TempDir dir;
    write_program(dir / "crafted", program_);
    return load_exported_model(dir / "crafted");
  }

  ExportedNode& last() { return program_.nodes.back(); }

 private:
  ValueArgument add_value() {
    program_.values.emplace_back();
    return {static_cast<ExportedId>(program_.values.size()) - 1};
  }

  ExportedProgram program_;
};

TEST(CraftedFileTest, OperatorsOfDeniedFamiliesAreRefusedByName) {
  const std::map<std::string, std::vector<std::string>> families = {
      {"files", {"aten::from_file", "aten::from_file.out"}},
      {"storage",
       {"aten::set_", "aten::set_.source_Storage", "aten::set_.source_Tensor",
        "aten::set_.source_Storage_storage_offset", "aten::resize_", "aten::resize_as_"}},
      {"generators",
       {"aten::randn", "aten::bernoulli", "aten::normal_", "aten::dropout", "aten::multinomial"}},
      {"collectives",
       {"tensorpack::exchange_begin", "c10d::allreduce_", "_c10d_functional::all_reduce"}},
      {"unsafe flags",
       {"aten::segment_reduce", "aten::_index_put_impl_", "aten::_unsafe_index.Tensor"}},
      {"pickles and custom classes",
       {"quantized::linear", "quantized::conv2d.new", "prepacked::linear_clamp_run",
        "mkldnn_prepacked::conv2d_run"}},
      {"host reads and callbacks",
       {"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::record_stream",
        "profiler::_record_function_enter_new", "aten::_test_warn_in_autograd"}},
      {"writes to an output", {"aten::add.out", "aten::mm.out", "aten::cat.out"}},
  };
  for (const auto& [family, operators] : families) {
    int known = 0;
    for (const std::string& op : operators) {
      if (try_find_operator(op)) {
        ++known;
        Crafted file;
        const ValueArgument output = file.constant(at::ones({2}));
        file.call(op, {}, try_find_operator(op)->schema().returns().size());
        EXPECT_THAT([&] { file.load(output); },
                    ThrowsMessage<Error>(
                        AllOf(HasSubstr(op.substr(0, op.find('.'))),
                              HasSubstr("is not an operator that an exported program may have"))))
            << family << ": " << op;
      }
    }
    EXPECT_GT(known, 0) << family;
  }
}

// Fills memory that is given back at once, for the next one to take.
void leave_sevens() {
  std::vector<Tensor> many;
  for (int64_t size : {2, 16, 256, 1000, 4096}) {
    for (int i = 0; i < 32; ++i) many.push_back(at::full({size}, 7.));
  }
}

TEST(CraftedFileTest, MemoryOfOthersIsNotShown) {
  const auto sevens = [](Crafted& file, ValueArgument y) {
    const ExportedModel model = file.load(y);
    leave_sevens();
    return model()[0].eq(7).sum().item<int64_t>();
  };
  const auto like = [](Crafted& file) { return file.constant(at::ones({2})); };
  Crafted plain;
  const ValueArgument empty = plain.call("aten::empty.memory_format", {{"size", integers({1000})}});
  EXPECT_EQ(sevens(plain, empty), 0);
  Crafted same;
  EXPECT_EQ(sevens(same, same.call("aten::empty_like", {{"self", like(same)}})), 0);
  Crafted next;
  EXPECT_EQ(sevens(next, next.call("aten::new_empty",
                                   {{"self", like(next)}, {"size", integers({1000})}})),
            0);
  Crafted order;
  EXPECT_EQ(
      sevens(order,
             order.call("aten::median.dim",
                        {{"self", order.call("aten::expand", {{"self", like(order)},
                                                              {"size", integers({1000, 2})}})},
                         {"dim", integer(0)}},
                        2)),
      0);
}

// Behind or between the elements of a tensor, where its storage is larger.
TEST(CraftedFileTest, MemoryThatIsNotOfATensorIsNotReached) {
  const auto thousand = [](Crafted& file, ValueArgument of) {
    return file.call("aten::as_strided", {{"self", of},
                                          {"size", integers({1000})},
                                          {"stride", integers({1})},
                                          {"storage_offset", integer(0)}});
  };
  const Arguments gaps = {{"size", integers({2})}, {"stride", integers({999})}};
  std::vector<Crafted> files(3);
  std::vector<ValueArgument> wide = {files[0].call("aten::empty_strided", gaps)};
  Arguments like = gaps;
  like["self"] = files[1].constant(at::ones({2}));
  wide.push_back(files[1].call("aten::new_empty_strided", like));
  const ValueArgument many = files[2].constant(at::ones({1000}));
  wide.push_back(files[2].call("aten::mse_loss", {{"self", many}, {"target", many}}));
  for (size_t i = 0; i < files.size(); ++i) {
    const ValueArgument y = thousand(files[i], wide[i]);
    EXPECT_THAT([&] { files[i].load(y)(); },
                ThrowsMessage<Error>(HasSubstr("memory that is not of its tensor")));
  }
  Crafted whole;
  const ValueArgument y = thousand(whole, whole.constant(at::ones({1000})));
  EXPECT_EQ(whole.load(y)()[0].sum().item<double>(), 1000);
}

TEST(CraftedFileTest, ConstantsAreNotWrittenThroughOperatorsThatMayReturnTheirArgument) {
  const auto is_refused = [](const std::string& op, Arguments arguments, bool is_list = false) {
    Crafted file;
    const ValueArgument constant = file.constant(at::ones({4}));
    arguments["self"] = constant;
    if (op == "aten::copy") arguments["src"] = constant;
    const ValueArgument view = file.call(op, std::move(arguments));
    file.last().results[0].is_list = is_list;
    const ValueArgument y = file.call("aten::mul_.Tensor", {{"self", view}, {"other", view}});
    EXPECT_THAT([&] { file.load(y); }, ThrowsMessage<Error>(HasSubstr("writes to its constant")))
        << op;
  };
  is_refused("aten::reshape", {{"shape", integers({4})}});
  is_refused("aten::_unsafe_view", {{"size", integers({4})}});
  is_refused("aten::unsafe_split.Tensor", {{"split_size", integer(4)}}, true);
  is_refused("aten::unsafe_split_with_sizes", {{"split_sizes", integers({4})}}, true);
  is_refused("aten::conj_physical", {});
  is_refused("aten::contiguous", {});
  if (try_find_operator("aten::copy")) is_refused("aten::copy", {});
}

TEST(CraftedFileTest, ConstantsAreNotWrittenUnderANameThatMeansAnotherTensorLater) {
  Crafted file;
  const ValueArgument constant = file.constant(at::ones({4}));
  const ValueArgument other = file.call("aten::clone", {{"self", constant}});
  const ValueArgument view = file.call("aten::alias", {{"self", constant}});
  file.call("aten::mul_.Tensor", {{"self", view}, {"other", view}});
  file.call("aten::alias", {{"self", other}});
  file.last().results[0].ids = {view.id};
  EXPECT_THAT([&] { file.load(view); }, ThrowsMessage<Error>(HasSubstr("writes to its constant")));
}

TEST(CraftedFileTest, BatchNormWritesNoStatistics) {
  Crafted file;
  const ValueArgument y = file.call("aten::native_batch_norm",
                                    {{"input", file.constant(at::ones({4, 3}))},
                                     {"weight", {}},
                                     {"bias", {}},
                                     {"running_mean", file.constant(at::zeros({3}))},
                                     {"running_var", file.constant(at::ones({3}))},
                                     {"training", true},
                                     {"momentum", 0.1},
                                     {"eps", 0.1}},
                                    3);
  EXPECT_THAT([&] { file.load(y)(); }, ThrowsMessage<Error>(HasSubstr("statistics")));
}

PredictConfig model_of(const std::function<Tensor(const Tensor&)>& function, TensorSpec input) {
  return {
      .inputs = {std::move(input)},
      .tower_func = [function](const Tensor& x) { named("y", function(x)); },
      .output_names = {"y"},
      .graph = {.seed = 1},
  };
}

TEST(CraftedFileTest, ModelsOfOperatorsThatCheckTheirIndicesAreExported) {
  const auto is_exported = [](const std::function<Tensor(const Tensor&)>& function,
                              const TensorSpec& input) {
    const TempDir dir;
    export_model(model_of(function, input), dir / "model");
    Shape shape = input.shape;
    std::replace(shape.begin(), shape.end(), int64_t{-1}, int64_t{3});
    const Tensor x =
        at::arange(c10::multiply_integers(shape)).remainder(5).view(shape).to(input.dtype);
    const Tensor expected = OfflinePredictor(model_of(function, input))(x)[0];
    EXPECT_TRUE(load_exported_model(dir / "model")(x)[0].equal(expected));
  };
  is_exported(
      [](const Tensor& x) {
        return at::col2im(x, {6, 6}, {2, 2}, {1, 1}, {0, 0}, {2, 2});
      },
      {"x", {-1, 12, 9}});
  is_exported(
      [](const Tensor& x) {
        return at::conv_tbc(x, at::ones({3, 4, 2}), at::ones({2}), 1);
      },
      {"x", {5, -1, 4}});
  is_exported(
      [](const Tensor& x) {
        const auto [y, indices] = at::max_pool2d_with_indices(x, {2, 2});
        return at::max_unpool2d(y, indices, {4, 4});
      },
      {"x", {-1, 3, 4, 4}});
  is_exported(
      [](const Tensor& x) {
        const Tensor offsets = at::arange(x.size(0)) * 2;
        const Tensor table = get_variable("table", {5, 4});
        return std::get<0>(at::embedding_bag(table, x.flatten(), offsets, false, /*mode=*/1));
      },
      {"x", {-1, 2}, at::kLong});
}

TEST(CraftedFileTest, FurtherOperatorsOfLibtorchAreNamedByWhoExportsAndByWhoLoads) {
  const std::string name = "aten::_pdist_forward";
  const TensorSpec input{"x", {4, 3}};
  const auto distances = [](const Tensor& x) { return at::_pdist_forward(x); };
  const TempDir dir;
  EXPECT_THAT([&] { export_model(model_of(distances, input), dir / "model"); },
              ThrowsMessage<Error>(AllOf(HasSubstr(name), HasSubstr("ExportOptions::operators"))));
  export_model(model_of(distances, input), dir / "model", {.operators = {name}});
  EXPECT_THAT([&] { load_exported_model(dir / "model"); },
              ThrowsMessage<Error>(AllOf(HasSubstr(name), HasSubstr("::operators"))));
  const Tensor x = at::arange(12, at::kFloat).view({4, 3});
  const ExportedModel model = load_exported_model(dir / "model", {.operators = {name}});
  EXPECT_TRUE(model(x)[0].equal(distances(x)));
}

}  // namespace
}  // namespace tensorpack
