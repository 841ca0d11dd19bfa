// SPDX-License-Identifier: Apache-2.0
// A DataFlow yields datapoints, pass after pass; stages joined with `|` transform it.
//
//   DataFlowPtr train = FashionMnist("train") | shuffle(10'000) | map(jitter) | batch(128);
//   for (DataPoint& p : datapoints(*train)) { use(p[0], p[1]); }
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

namespace detail {
[[noreturn]] void throw_no_component(size_t index, size_t components);
}

/// One element of a dataflow: a tensor per component, for example {image, label}. Reads as a vector
/// does, but [i] throws Error where there is no such component.
class DataPoint {
  using Components = std::vector<at::Tensor>;

 public:
  using value_type = Components::value_type;
  using iterator = Components::iterator;
  using const_iterator = Components::const_iterator;

  DataPoint() = default;
  DataPoint(std::initializer_list<at::Tensor> components) : components_(components) {}
  DataPoint(Components components)  // NOLINT: implicit
      : components_(std::move(components)) {}

  at::Tensor& operator[](size_t index) {
    check(index);
    return components_[index];
  }
  const at::Tensor& operator[](size_t index) const {
    check(index);
    return components_[index];
  }
  at::Tensor& at(size_t index) { return (*this)[index]; }
  const at::Tensor& at(size_t index) const { return (*this)[index]; }
  at::Tensor& front() { return (*this)[0]; }
  const at::Tensor& front() const { return (*this)[0]; }
  at::Tensor& back() { return (*this)[size() - 1]; }
  const at::Tensor& back() const { return (*this)[size() - 1]; }

  size_t size() const { return components_.size(); }
  bool empty() const { return components_.empty(); }
  iterator begin() { return components_.begin(); }
  iterator end() { return components_.end(); }
  const_iterator begin() const { return components_.begin(); }
  const_iterator end() const { return components_.end(); }

  void reserve(size_t count) { components_.reserve(count); }
  void push_back(at::Tensor component) { components_.push_back(std::move(component)); }
  void insert(const_iterator position, at::Tensor component) {
    components_.insert(position, std::move(component));
  }
  void erase(const_iterator position) { components_.erase(position); }

  /// The components, for a function that takes a vector; its own operator[] is not checked.
  const Components& components() const& { return components_; }
  /// Moves the components out.
  Components components() && { return std::move(components_); }

 private:
  void check(size_t index) const {
    if (index >= size()) [[unlikely]]
      detail::throw_no_component(index, size());
  }

  Components components_;
};

/// A datapoint of these tensors: for co_yield, where GCC 12 does not take `DataPoint{image,
/// label}`.
template <std::convertible_to<at::Tensor>... Tensors>
DataPoint datapoint(Tensors&&... tensors) {
  DataPoint point;
  point.reserve(sizeof...(tensors));
  (point.push_back(std::forward<Tensors>(tensors)), ...);
  return point;
}

/// A source of datapoints. One instance has one consumer, and is used by one thread at a time.
///
/// A flow that was just constructed stands at the beginning of pass 0.
class DataFlow {
 public:
  virtual ~DataFlow() = default;

  /// Positions the flow at the beginning of pass number `pass`, 0-based; legal at any time.
  ///
  /// What a pass yields depends on the flow's seed and `pass` alone, so that any pass can be
  /// reproduced. A flow without passes (endless, or the same each time) may ignore the number.
  virtual void start(int64_t /*pass*/) {}

  /// The next datapoint, or nullopt at the end of the pass and from then on until start().
  virtual std::optional<DataPoint> next() = 0;

  /// Goes on to where `count` calls of next() would lead, and returns how many datapoints that
  /// passes over: fewer than `count` only at the end of the pass.
  ///
  /// By default they are read and dropped. A flow that can do with less overrides it; what follows
  /// must be the same. One whose datapoints never come again, such as those of a simulator, returns
  /// `count`: a training that goes on after a restart does not wait for as many new ones then.
  virtual int64_t skip(int64_t count) {
    int64_t skipped = 0;
    while (skipped < count && next()) ++skipped;
    return skipped;
  }

  /// The exact number of datapoints in a pass; nullopt when it is endless or not known.
  virtual std::optional<int64_t> size() const { return std::nullopt; }

  /// Whether it is known that a pass never ends. Stages hand this on, so that what would wait for
  /// the end of a pass can refuse the flow.
  virtual bool is_endless() const { return false; }
};

using DataFlowPtr = std::unique_ptr<DataFlow>;

/// What the library's stages return. Any callable from DataFlowPtr to DataFlowPtr is a stage.
using Stage = std::function<DataFlowPtr(DataFlowPtr)>;

template <typename S>
concept DataFlowStage = std::is_invocable_r_v<DataFlowPtr, S, DataFlowPtr>;

class StageStats;

namespace detail {
/// Has the flow's time taken, see stage_stats.h. `inputs` are those it takes its datapoints from.
std::shared_ptr<StageStats> meter(DataFlowPtr& flow,
                                  std::vector<std::shared_ptr<StageStats>> inputs = {});
}  // namespace detail

/// Puts `stage` behind `flow`.
template <DataFlowStage S>
DataFlowPtr operator|(DataFlowPtr flow, S&& stage) {
  auto input = detail::meter(flow);
  DataFlowPtr result = std::invoke(std::forward<S>(stage), std::move(flow));
  detail::meter(result, {std::move(input)});
  return result;
}

/// Puts `stage` behind a flow held by value, which is moved in.
template <std::derived_from<DataFlow> Flow, DataFlowStage S>
DataFlowPtr operator|(Flow flow, S&& stage) {
  return std::make_unique<Flow>(std::move(flow)) | std::forward<S>(stage);
}

}  // namespace tensorpack
