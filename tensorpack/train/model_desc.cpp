// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/model_desc.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <typeinfo>

#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/class_name.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

struct ModelCosts {
  std::map<const void*, at::Tensor> of_model;
};

using detail::CostOfCall;

namespace {

// Costs are kept with the call, and go with it.
TowerContext& call_in_progress(const char* what) {
  TowerContext* tower = TowerContext::current();
  TP_CHECK(tower != nullptr, "ModelDesc",
           "cost is {} outside of a call of the model: every call has its own. Use it in "
           "build_graph(); a callback fetches the tensor \"cost\".",
           what);
  return *tower;
}

[[noreturn]] void throw_incomplete(const ModelDesc& model, const char* what, const char* method) {
  throw make_error("ModelDesc", "{} does not say {}. Override {}().", class_name(typeid(model)),
                   what, method);
}

// In prediction there need be no cost.
std::vector<at::Tensor> cost_of_call(ModelDesc& model, const std::vector<at::Tensor>& inputs) {
  model.build_graph(inputs);
  if (model.cost.is_set()) return {model.cost};
  TP_CHECK(!is_training(), "ModelDesc",
           "{}::build_graph() has not set the cost. Assign the scalar to minimise: cost = ...",
           class_name(typeid(model)));
  return {};
}

}  // namespace

template <typename Value>
CostOfCall<Value>& detail::CostOfCall<Value>::operator=(const CostOfCall& other) {
  const Value& cost = other;
  return *this = cost;
}

template <typename Value>
CostOfCall<Value>& detail::CostOfCall<Value>::operator=(Value cost) {
  std::shared_ptr<ModelCosts>& costs = call_in_progress("set").model_costs();
  if (!costs) costs = std::make_shared<ModelCosts>();
  costs->of_model[this] = std::move(cost);
  return *this;
}

template <typename Value>
detail::CostOfCall<Value>::operator const Value&() const {
  call_in_progress("read");
  TP_CHECK(is_set(), "ModelDesc",
           "cost is read before it is set in this call. Assign it in build_graph() first.");
  return TowerContext::current()->model_costs()->of_model.at(this);
}

template <typename Value>
const Value* detail::CostOfCall<Value>::operator->() const {
  const Value& cost = *this;
  return &cost;
}

template <typename Value>
bool detail::CostOfCall<Value>::is_set() const {
  TowerContext* tower = TowerContext::current();
  return tower != nullptr && tower->model_costs() && tower->model_costs()->of_model.contains(this);
}

template class detail::CostOfCall<at::Tensor>;

std::vector<TensorSpec> ModelDesc::_get_inputs() {
  throw_incomplete(*this, "what its inputs are", "inputs");
}

void ModelDesc::_build_graph(const std::vector<at::Tensor>&) {
  throw_incomplete(*this, "how its cost is computed", "build_graph");
}

Owned<Optimizer> ModelDesc::_get_optimizer() {
  throw_incomplete(*this, "how its cost is minimised", "optimizer");
}

Model detail::model_of(std::shared_ptr<ModelDesc> desc) {
  TP_CHECK(desc != nullptr, "ModelDesc", "the model is null. Pass an object.");
  return {.inputs = desc->inputs(),
          .build_graph =
              [desc](const std::vector<at::Tensor>& inputs) { return cost_of_call(*desc, inputs); },
          .optimizer = desc->optimizer()};
}

}  // namespace tensorpack
