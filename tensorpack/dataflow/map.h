// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/on_error.h"
#include "tensorpack/dataflow/rng.h"

namespace tensorpack {

using MapFunction = std::function<std::optional<DataPoint>(DataPoint, Rng&)>;

struct MapOptions {
  OnError on_error = OnError::kThrow;
  /// Where the random numbers of functions come from; by default global_seed().
  std::optional<uint64_t> seed = {};
};

namespace detail {

/// What a user passes to map() and its relatives, brought to one form.
struct MapWork {
  MapFunction function;
  bool keeps_all = true;  ///< whether it never drops a datapoint
};

[[noreturn]] void throw_empty_function();

// What can be empty; lambdas cannot.
template <typename Function>
struct IsStdFunction : std::false_type {};
template <typename Signature>
struct IsStdFunction<std::function<Signature>> : std::true_type {};

template <typename Function>
MapWork map_work(Function function) {
  if constexpr (IsStdFunction<Function>::value) {
    if (function == nullptr) throw_empty_function();
  }
  constexpr bool is_random = std::invocable<Function&, DataPoint, Rng&>;
  using Result =
      typename std::conditional_t<is_random, std::invoke_result<Function&, DataPoint, Rng&>,
                                  std::invoke_result<Function&, DataPoint>>::type;
  constexpr bool keeps_all = std::convertible_to<Result, DataPoint>;
  static_assert(
      keeps_all || std::convertible_to<Result, std::optional<DataPoint>>,
      "map: the function must return DataPoint, or std::optional<DataPoint> to drop some");
  if constexpr (is_random) {
    return {std::move(function), keeps_all};
  } else {
    return {[function = std::move(function)](DataPoint point, Rng&) mutable {
              return std::optional<DataPoint>(function(std::move(point)));
            },
            keeps_all};
  }
}

Stage map_stage(MapWork work, MapOptions options);

}  // namespace detail

template <typename Function>
concept MapsDataPoints =
    std::invocable<Function&, DataPoint> || std::invocable<Function&, DataPoint, Rng&>;

/// Applies `function` to every datapoint; one that returns std::optional drops those it maps to
/// nullopt, and the size of the result is then not known. What it throws reaches the consumer.
///
/// A function that takes an Rng as well gets one of its own for every datapoint, so that what it
/// draws does not depend on what else was read. What torch::rand() and other operators draw in a
/// function, on the CPU, belongs to the datapoint as well.
///
/// A function that drops nothing is not called for datapoints that are skipped: what it returns
/// should depend on its arguments alone.
template <MapsDataPoints Function>
Stage map(Function function, MapOptions options = {}) {
  return detail::map_stage(detail::map_work(std::move(function)), options);
}

/// map() by another name, for a file with `using namespace std`, where `map` may mean std::map.
template <MapsDataPoints Function>
Stage map_data(Function function, MapOptions options = {}) {
  return map(std::move(function), options);
}

namespace detail {

/// From tensors to tensors; undefined drops the datapoint.
struct ComponentWork {
  std::function<at::Tensor(at::Tensor)> function;
  bool keeps_all = true;  ///< whether it says that it never drops a datapoint
};

template <typename Function>
ComponentWork component_work(Function function) {
  if constexpr (IsStdFunction<Function>::value) {
    if (function == nullptr) return {};
  }
  if constexpr (std::convertible_to<std::invoke_result_t<Function&, at::Tensor>, at::Tensor>) {
    return {std::move(function)};
  } else {
    return {[function = std::move(function)](at::Tensor tensor) mutable {
              std::optional<at::Tensor> mapped = function(std::move(tensor));
              return mapped ? std::move(*mapped) : at::Tensor();
            },
            /*keeps_all=*/false};
  }
}

Stage map_component_stage(size_t index, ComponentWork work, MapOptions options);

}  // namespace detail

/// Applies `function`, from tensor to tensor, to the component at place `index`. Where it returns
/// an undefined tensor, the datapoint is dropped.
///
/// One that drops datapoints should return std::optional<Tensor>: then the size of the result is
/// not known, and what is skipped is counted exactly. Otherwise the size counts what is dropped,
/// and a warning tells of it.
template <std::invocable<at::Tensor> Function>
Stage map_component(size_t index, Function function, MapOptions options = {}) {
  return detail::map_component_stage(index, detail::component_work(std::move(function)), options);
}

/// The same for the first component.
template <std::invocable<at::Tensor> Function>
Stage map_component(Function function, MapOptions options = {}) {
  return map_component(0, std::move(function), options);
}

/// Keeps the datapoints for which `keep` is true.
Stage filter(std::function<bool(const DataPoint&)> keep);

/// The components at these places, in this order.
Stage select(std::vector<size_t> components);

}  // namespace tensorpack
