// SPDX-License-Identifier: Apache-2.0
// Numbers that are changed while a training runs.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tensorpack/graph/graph.h"

namespace tensorpack {

/// A number that a HyperParamSetter can set. Two are built in: GraphVarParam and ObjAttrParam.
class HyperParam {
 public:
  virtual ~HyperParam() = default;

  /// Called once, before training: throws an Error when there is nothing to set.
  virtual void setup(Graph& /*graph*/) {}
  /// The built-in ones throw an Error in a callback that runs in the chief process alone while
  /// others train, too.
  virtual void set_value(double value) = 0;
  virtual double get_value() const = 0;
  /// For messages and for the file of HumanHyperParamSetter.
  virtual std::string readable_name() const = 0;
  /// Whether programs read it from a variable. Otherwise the functions of ops may read it on the
  /// host, and ops are recorded again when it is set.
  virtual bool is_variable() const { return false; }
  /// Whether checkpoints have it anyway.
  virtual bool is_in_checkpoints() const { return false; }
};

/// A variable of the graph, such as "learning_rate". One with a shape is set to the number in all
/// of its elements, and its value is their mean. Copies that towers have of it are set too. Throws
/// Error in setup() when there is none, or it has no elements; later when a number that is not
/// whole is given to a variable of integers.
class GraphVarParam final : public HyperParam {
 public:
  explicit GraphVarParam(std::string name) : name_(std::move(name)) {}

  void setup(Graph& graph) override;
  void set_value(double value) override;
  double get_value() const override;
  std::string readable_name() const override { return name_; }
  bool is_variable() const override { return true; }
  bool is_in_checkpoints() const override;

 private:
  std::string name_;
  Graph* graph_ = nullptr;
  Variable* variable_ = nullptr;
};

/// An attribute of an object, which must outlive the training:
///
///   ObjAttrParam("noise", augmentor.noise)
///
/// A tower function may read it: each time it is set, ops are recorded again, which takes about as
/// long as an eager step. What changes at every step is better a variable.
class ObjAttrParam final : public HyperParam {
 public:
  template <typename Number>
  requires std::integral<Number> || std::floating_point<Number> ObjAttrParam(std::string name,
                                                                             Number& attribute)
      : ObjAttrParam(
            std::move(name), [&attribute] { return static_cast<double>(attribute); },
            [&attribute](double value) { attribute = static_cast<Number>(value); }) {}

  /// For what is not a plain number.
  ObjAttrParam(std::string name, std::function<double()> get, std::function<void(double)> set)
      : name_(std::move(name)), get_(std::move(get)), set_(std::move(set)) {}

  void set_value(double value) override;
  double get_value() const override { return get_(); }
  std::string readable_name() const override { return name_; }

 private:
  std::string name_;
  std::function<double()> get_;
  std::function<void(double)> set_;
};

/// What setters take: the name of a variable, or a HyperParam.
class AnyHyperParam {
 public:
  AnyHyperParam(const char* variable)  // NOLINT: implicit
      : AnyHyperParam(std::string(variable)) {}
  AnyHyperParam(std::string variable);  // NOLINT: implicit
  template <std::derived_from<HyperParam> T>
  AnyHyperParam(T param)  // NOLINT: implicit
      : param_(std::make_unique<T>(std::move(param))) {}

  HyperParam* operator->() const { return param_.get(); }
  HyperParam& operator*() const { return *param_; }

 private:
  std::unique_ptr<HyperParam> param_;
};

}  // namespace tensorpack
