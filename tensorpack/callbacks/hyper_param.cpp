// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/hyper_param.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <cmath>

#include "tensorpack/graph/chief_only.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

void GraphVarParam::setup(Graph& graph) {
  graph_ = &graph;
  variable_ = &graph.variables().at(name_);
  TP_CHECK(variable_->tensor.dim() == 0, "GraphVarParam",
           "'{}' has the shape [{}]; only a 0-d variable can be set.", name_,
           fmt::join(variable_->tensor.sizes(), ", "));
}

void GraphVarParam::set_value(double value) {
  TP_CHECK(at::isFloatingType(variable_->tensor.scalar_type()) || value == std::floor(value),
           "GraphVarParam", "'{}' holds integers and cannot become {}. Give it a whole number.",
           name_, value);
  const auto lock = graph_->lock_variables();
  variable_->assign(at::scalar_tensor(value, variable_->tensor.options().requires_grad(false)));
}

double GraphVarParam::get_value() const {
  const auto lock = graph_->lock_variables();
  return variable_->tensor.item<double>();
}

bool GraphVarParam::is_in_checkpoints() const { return variable_->is_saved(); }

void ObjAttrParam::set_value(double value) {
  ChiefOnlyScope::check_settable(name_);
  set_(value);
}

}  // namespace tensorpack
