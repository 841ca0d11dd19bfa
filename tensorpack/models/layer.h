// SPDX-License-Identifier: Apache-2.0
// What layers have in common.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// A function applied to a layer's output, such as torch::relu.
using Activation = std::function<at::Tensor(const at::Tensor&)>;

/// One number for height and width, or both: 3 or Size2D(3, 5).
struct Size2D {
  int64_t height = 1;
  int64_t width = 1;
  Size2D(int64_t both) : height(both), width(both) {}  // NOLINT(google-explicit-constructor)
  Size2D(int64_t h, int64_t w) : height(h), width(w) {}
};

/// While it lives, layers called on this thread log the shapes of input and output, each layer
/// once:
///
///   LogShapes log_shapes;                    // in the tower function
///   l = Conv2D("conv0", l, {.filters = 32});  // Conv2D 'conv0': [-1, 3, 28, 28] -> [-1, 32, ...
class [[nodiscard]] LogShapes {
 public:
  LogShapes();
  ~LogShapes();
  LogShapes(const LogShapes&) = delete;
  LogShapes& operator=(const LogShapes&) = delete;

 private:
  bool outer_;
};

namespace detail {
/// Names the output, and logs the shapes inside LogShapes.
at::Tensor finish_layer(const char* layer, const at::Tensor& input, at::Tensor output);
/// "Conv2D 'gen/conv3'", for messages.
std::string layer_place(const char* layer);
/// Throws an Error that names the layer and the shape unless the input has one of these ranks.
void check_rank(const char* layer, const at::Tensor& input, std::initializer_list<int64_t> ranks,
                const char* expected);
/// The output after the activation, if there is one.
at::Tensor activate(at::Tensor output, const std::optional<Activation>& activation);
[[noreturn]] void rethrow_with_place(const char* layer, const at::Tensor& input);
}  // namespace detail

/// Runs the body of a layer under the variable scope `name`: the result is called `<name>/output`,
/// and errors of libtorch are said to come from the layer, with its path and input shape.
template <typename Body>
at::Tensor run_layer(const char* layer, const std::string& name, const at::Tensor& input,
                     Body&& body) {
  VariableScope scope(name);
  try {
    return detail::finish_layer(layer, input, body());
  } catch (...) {
    detail::rethrow_with_place(layer, input);
  }
}

}  // namespace tensorpack
