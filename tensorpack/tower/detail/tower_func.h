// SPDX-License-Identifier: Apache-2.0
// How TowerFunc finds out how many tensors a callable takes.
#pragma once

#include "tensorpack/tower/tower_func.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {
namespace detail {

inline constexpr int kLargestArity = 16;

template <size_t>
using TensorAt = at::Tensor;

template <typename F, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return std::is_invocable_v<F&, TensorAt<I>...>;
}

template <typename F>
inline constexpr bool takes_vector = std::is_invocable_v<F&, const std::vector<at::Tensor>&>;

// The one number of tensors F can be called with; kAnyArity if there are several; -2 if none.
template <typename F>
constexpr int arity_of() {
  int found = -2;
  [&]<size_t... N>(std::index_sequence<N...>) {
    ((takes<F>(std::make_index_sequence<N>{})
          ? void(found = found == -2 ? static_cast<int>(N) : TowerFunc::kAnyArity)
          : void()),
     ...);
  }
  (std::make_index_sequence<kLargestArity + 1>{});
  return found;
}

template <typename R>
std::vector<at::Tensor> as_outputs(R&& result) {
  using T = std::remove_cvref_t<R>;
  static_assert(std::same_as<T, at::Tensor> || std::same_as<T, std::vector<at::Tensor>>,
                "A tower function returns a Tensor (the cost), a std::vector<Tensor>, or nothing.");
  if constexpr (std::same_as<T, at::Tensor>) {
    return {std::forward<R>(result)};
  } else {
    return std::forward<R>(result);
  }
}

template <typename Call>
std::vector<at::Tensor> outputs_of(Call call) {
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
    return {};
  } else {
    return as_outputs(call());
  }
}

}  // namespace detail

template <typename F>
requires(!std::same_as<std::remove_cvref_t<F>, TowerFunc>) TowerFunc::TowerFunc(F function) {
  if constexpr (detail::takes_vector<F>) {
    function_ = [function = std::move(function)](const std::vector<at::Tensor>& inputs) mutable {
      return detail::outputs_of([&]() -> decltype(auto) { return function(inputs); });
    };
  } else {
    constexpr int arity = detail::arity_of<F>();
    static_assert(arity != -2,
                  "A tower function takes torch::Tensor parameters, one per input: "
                  "[](Tensor image, Tensor label) { ... }.");
    static_assert(arity != kAnyArity,
                  "This tower function can be called with different numbers of tensors. Name its "
                  "parameters, or take one const std::vector<Tensor>&.");
    // Clang goes on after a failed assertion, and would build a sequence of 2^64 - 2 numbers.
    if constexpr (arity >= 0) {
      arity_ = arity;
      function_ = [function = std::move(function)](const std::vector<at::Tensor>& inputs) mutable {
        return [&]<size_t... I>(std::index_sequence<I...>) {
          return detail::outputs_of([&]() -> decltype(auto) { return function(inputs[I]...); });
        }
        (std::make_index_sequence<static_cast<size_t>(arity)>{});
      };
    }
  }
}

}  // namespace tensorpack
