// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/passes.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tensorpack/export/detail/program_function.h"
#include "tensorpack/export/detail/program_uses.h"

namespace tensorpack {
namespace {

ExportedId tensor_argument(const ExportedNode& node, const char* name) {
  const auto found = node.arguments.find(name);
  if (found == node.arguments.end()) return kNoExportedValue;
  const auto* value = std::get_if<ValueArgument>(&found->second);
  return value == nullptr ? kNoExportedValue : value->id;
}

bool is_flag(const ExportedNode& node, const char* name, bool expected) {
  const auto found = node.arguments.find(name);
  return found != node.arguments.end() && found->second == ExportedArgument(expected);
}

double number_argument(const ExportedNode& node, const char* name) {
  return std::get<double>(node.arguments.at(name));
}

class BatchNormFolding {
 public:
  explicit BatchNormFolding(ExportedProgram& program) : program_(program) {
    for (const ExportedConstant& constant : program.constants) {
      if (constant.tensor.defined()) constants_[constant.id] = constant.tensor;
    }
    const detail::ProgramUses uses(program);
    for (size_t id = 0; id < program.values.size(); ++id) {
      use_counts_.push_back(uses.count(static_cast<ExportedId>(id)));
    }
  }

  void run() {
    std::map<ExportedId, size_t> convolutions;  // by result
    std::vector<ExportedNode> kept;
    for (ExportedNode& node : program_.nodes) {
      if (node.op == "aten::convolution" && is_flag(node, "transposed", false)) {
        convolutions[node.results[0].ids[0]] = kept.size();
      }
      const auto convolution = convolutions.find(tensor_argument(node, "input"));
      if (convolution != convolutions.end() && fold(kept[convolution->second], node)) continue;
      kept.push_back(std::move(node));
    }
    program_.nodes = std::move(kept);
  }

 private:
  at::Tensor constant(const ExportedNode& node, const char* name,
                      const at::Tensor& standard) const {
    const ExportedId id = tensor_argument(node, name);
    if (id == kNoExportedValue) return standard;
    const auto found = constants_.find(id);
    return found == constants_.end() ? at::Tensor() : found->second;
  }

  ValueArgument add(const at::Tensor& tensor, const std::string& name) {
    const auto id = static_cast<ExportedId>(program_.values.size());
    ExportedValue value{.dtype = tensor.scalar_type()};
    for (int64_t size : tensor.sizes()) value.shape.push_back({0, size});
    program_.values.push_back(std::move(value));
    program_.constants.push_back({.id = id, .name = name, .tensor = tensor});
    return {id};
  }

  bool fold(ExportedNode& convolution, const ExportedNode& norm) {
    const bool is_norm =
        (norm.op == "aten::native_batch_norm" && is_flag(norm, "training", false)) ||
        norm.op == "aten::_native_batch_norm_legit_no_training";
    const ExportedId between = convolution.results[0].ids[0];
    if (!is_norm || use_counts_[between] != 1) return false;
    for (size_t i = 1; i < norm.results.size(); ++i) {
      for (ExportedId id : norm.results[i].ids) {
        if (id != kNoExportedValue && use_counts_[id] > 0) return false;
      }
    }
    const at::Tensor weight = constant(convolution, "weight", {});
    if (!weight.defined() || weight.scalar_type() != at::kFloat) return false;
    const at::Tensor ones = at::ones({weight.size(0)});
    const at::Tensor bias = constant(convolution, "bias", at::zeros_like(ones));
    const at::Tensor gamma = constant(norm, "weight", ones);
    const at::Tensor beta = constant(norm, "bias", at::zeros_like(ones));
    const at::Tensor mean = constant(norm, "running_mean", {});
    const at::Tensor variance = constant(norm, "running_var", {});
    for (const at::Tensor& tensor : {bias, gamma, beta, mean, variance}) {
      if (!tensor.defined() || tensor.numel() != ones.numel()) return false;
    }
    at::NoGradGuard no_grad;
    const at::Tensor scale =
        gamma.to(at::kDouble) / (variance.to(at::kDouble) + number_argument(norm, "eps")).sqrt();
    Shape spread(static_cast<size_t>(weight.dim()), 1);
    spread[0] = -1;
    const std::string layer = norm.layer.empty() ? "batch_norm" : norm.layer;
    convolution.arguments["weight"] =
        add((weight.to(at::kDouble) * scale.view(spread)).to(at::kFloat), layer + "/folded_W");
    convolution.arguments["bias"] =
        add(((bias.to(at::kDouble) - mean) * scale + beta).to(at::kFloat), layer + "/folded_b");
    convolution.results[0] = norm.results[0];
    return true;
  }

  ExportedProgram& program_;
  std::map<ExportedId, at::Tensor> constants_;
  std::vector<int64_t> use_counts_;
};

bool has_varying_literal(const ExportedNode& node) {
  return std::any_of(node.arguments.begin(), node.arguments.end(), [](const auto& argument) {
    const auto* extent = std::get_if<Extent>(&argument.second);
    if (extent != nullptr) return !extent->is_fixed();
    const auto* extents = std::get_if<std::vector<Extent>>(&argument.second);
    return extents != nullptr && std::any_of(extents->begin(), extents->end(),
                                             [](const Extent& e) { return !e.is_fixed(); });
  });
}

// Constants that nothing uses any more.
void remove_unused_constants(ExportedProgram& program) {
  const detail::ProgramUses uses(program);
  std::erase_if(program.constants,
                [&](const ExportedConstant& constant) { return uses.count(constant.id) == 0; });
}

}  // namespace

void fold_batch_norm(ExportedProgram& program) {
  BatchNormFolding(program).run();
  remove_unused_constants(program);
}

void fold_constants(ExportedProgram& program) {
  const detail::ProgramUses uses(program);
  std::vector<char> is_constant(program.values.size(), 0);
  ExportedProgram part{.unit = program.unit, .values = program.values};
  for (const ExportedConstant& constant : program.constants) {
    const auto* number = std::get_if<Extent>(&constant.number);
    const bool varies = !constant.tensor.defined() && number != nullptr && !number->is_fixed();
    is_constant[constant.id] = !varies;
    if (!varies) part.constants.push_back(constant);
  }
  std::vector<ExportedNode> varying;
  for (const ExportedNode& node : program.nodes) {
    bool folds = !has_varying_literal(node);
    detail::for_each_argument(node, [&](ExportedId id) { folds &= is_constant[id] != 0; });
    detail::for_each_result(node, [&](ExportedId id) { folds &= !uses.is_written(id); });
    if (!folds) {
      varying.push_back(node);
      continue;
    }
    detail::for_each_result(node, [&](ExportedId id) { is_constant[id] = 1; });
    part.nodes.push_back(node);
  }
  if (part.nodes.empty()) return;
  program.nodes = std::move(varying);
  const detail::ProgramUses remaining(program);
  for (const ExportedNode& node : part.nodes) {
    detail::for_each_result(node, [&](ExportedId id) {
      if (remaining.count(id) > 0) part.outputs.push_back({node.layer, id});
    });
  }
  at::NoGradGuard no_grad;
  const std::vector<at::Tensor> tensors = detail::ProgramFunction(part, at::kCPU)({});
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& layer = part.outputs[i].name;
    program.constants.push_back(
        {.id = part.outputs[i].id,
         .name = (layer.empty() ? "" : layer + "/") + "folded" + std::to_string(part.outputs[i].id),
         .tensor = tensors[i]});
  }
  remove_unused_constants(program);
}

}  // namespace tensorpack
