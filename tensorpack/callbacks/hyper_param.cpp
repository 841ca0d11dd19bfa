// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/hyper_param.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <cmath>

#include "tensorpack/graph/chief_only.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

AnyHyperParam::AnyHyperParam(std::string variable)
    : param_(std::make_unique<GraphVarParam>(std::move(variable))) {}

void GraphVarParam::setup(Graph& graph) {
  graph_ = &graph;
  variable_ = &graph.variables().at(name_);
  TP_CHECK(variable_->tensor.numel() > 0, "GraphVarParam",
           "'{}' has the shape [{}] and no elements to set. Name another variable.", name_,
           fmt::join(variable_->tensor.sizes(), ", "));
}

void GraphVarParam::set_value(double value) {
  TP_CHECK(at::isFloatingType(variable_->tensor.scalar_type()) || value == std::floor(value),
           "GraphVarParam", "'{}' holds integers and cannot become {}. Give it a whole number.",
           name_, value);
  const auto lock = graph_->lock_variables();
  const at::Tensor& tensor = variable_->tensor;
  variable_->assign(at::full(tensor.sizes(), value, tensor.options().requires_grad(false)));
}

double GraphVarParam::get_value() const {
  const auto lock = graph_->lock_variables();
  return variable_->tensor.detach().to(at::kDouble).mean().item<double>();
}

bool GraphVarParam::is_in_checkpoints() const { return variable_->is_saved(); }

void ObjAttrParam::set_value(double value) {
  ChiefOnlyScope::check_settable(name_);
  set_(value);
}

}  // namespace tensorpack
