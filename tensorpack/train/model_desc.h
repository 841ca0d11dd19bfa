// SPDX-License-Identifier: Apache-2.0
// A model as a class, the form that Tensorpack's documents use:
//
//   class MyModel : public ModelDesc {
//     std::vector<TensorSpec> inputs() override { return {{"x", {-1, 784}}, {"y", {-1}}}; }
//     void build_graph(const std::vector<Tensor>& inputs) override {
//       ...
//       cost = torch::mse_loss(prediction, inputs[1]);
//     }
//     Owned<Optimizer> optimizer() override { return SGD({.lr = 0.1}); }
//   };
//
//   TrainConfig config{.model = MyModel(), .dataflow = ...};
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorpack/train/model.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// The name of a TensorSpec in Tensorpack's older documents.
using InputDesc = TensorSpec;

namespace detail {

// ModelDesc::Cost. A template, so that operators of tensors are found for it, too: cost + 1.
template <typename Value>
class CostOfCall {
 public:
  CostOfCall() = default;
  CostOfCall(const CostOfCall&) = delete;
  CostOfCall& operator=(const CostOfCall& other);
  CostOfCall& operator=(Value cost);
  /// Throws an Error before it is set.
  operator const Value&() const;  // NOLINT: implicit
  const Value* operator->() const;

  /// Whether it is set in the call in progress.
  bool is_set() const;
};

}  // namespace detail

/// Base of models written as classes, which AnyModel turns into a Model. Override inputs(),
/// build_graph() and optimizer(), or their older names, which begin with an underscore.
class ModelDesc {
 public:
  /// The scalar to minimise, used as a Tensor. Every call of build_graph() has its own, so that
  /// several towers may call it at once; outside of a call there is none, and using it throws an
  /// Error.
  using Cost = detail::CostOfCall<at::Tensor>;

  virtual ~ModelDesc() = default;

  /// The signature of the inputs that build_graph() takes.
  virtual std::vector<TensorSpec> inputs() { return _get_inputs(); }
  /// Builds one replica of the model of one tensor per input, and sets `cost`. It is a tower
  /// function, and keeps the rules of one.
  virtual void build_graph(const std::vector<at::Tensor>& inputs) { _build_graph(inputs); }
  virtual Owned<Optimizer> optimizer() { return _get_optimizer(); }

  virtual std::vector<TensorSpec> _get_inputs();
  virtual void _build_graph(const std::vector<at::Tensor>& inputs);
  virtual Owned<Optimizer> _get_optimizer();

  Cost cost;

 protected:
  // Of derived classes alone: a copy of the base would be no model.
  ModelDesc() = default;
  ModelDesc(const ModelDesc&) {}
  ModelDesc& operator=(const ModelDesc&) { return *this; }
};

namespace detail {

template <typename T>
concept DerivedModel = std::derived_from<std::remove_cvref_t<T>, ModelDesc>;
template <typename T>
concept OwnsModelDesc = std::convertible_to<T, std::shared_ptr<ModelDesc>> ||
    std::convertible_to<T, std::unique_ptr<ModelDesc>>;

Model model_of(std::shared_ptr<ModelDesc> desc);

template <typename T>
std::shared_ptr<ModelDesc> share_model(T&& desc) {
  if constexpr (std::convertible_to<T, std::shared_ptr<ModelDesc>>) {
    return std::forward<T>(desc);
  } else if constexpr (OwnsModelDesc<T>) {
    return std::unique_ptr<ModelDesc>(std::forward<T>(desc));
  } else {
    using Value = std::remove_cvref_t<T>;
    static_assert(!std::is_lvalue_reference_v<T>,
                  "Write std::move(model) to give it away, or make it a std::shared_ptr: a copy "
                  "would be used in its place.");
    static_assert(!std::same_as<Value, ModelDesc>,
                  "Pass an object of the derived class, or a std::unique_ptr to one: of a "
                  "ModelDesc& only the base would be moved.");
    if constexpr (!std::is_lvalue_reference_v<T> && !std::same_as<Value, ModelDesc>) {
      return std::make_shared<Value>(std::forward<T>(desc));
    } else {
      return nullptr;
    }
  }
}

}  // namespace detail

/// A Model, from a Model or from an object of a class derived from ModelDesc: a temporary,
/// std::move(object), or a std::unique_ptr or std::shared_ptr to one. Throws an Error for a null
/// pointer. inputs() and optimizer() are called at once, build_graph() by trainers.
struct AnyModel : Model {
  AnyModel() = default;
  AnyModel(Model model) : Model(std::move(model)) {}  // NOLINT: implicit
  template <typename T>
  requires(detail::DerivedModel<T> || detail::OwnsModelDesc<T>) AnyModel(T&& desc)  // NOLINT
      : Model(detail::model_of(detail::share_model(std::forward<T>(desc)))) {}
};

}  // namespace tensorpack
