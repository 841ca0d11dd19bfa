// SPDX-License-Identifier: Apache-2.0
// Modules of torch::nn in a tower function.
//
//   torch::nn::Linear linear(784, 10);                    // made where you like
//   ... [=](Tensor image, Tensor label) {
//         const Tensor logits = adopt("linear", linear)->forward(image.flatten(1));
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace torch::nn {
class Module;
}

namespace tensorpack {

namespace detail {
std::shared_ptr<torch::nn::Module> adopt_module(const std::string& name,
                                                std::shared_ptr<torch::nn::Module> module);
}

/// Makes the parameters of a module variables of the graph, and its buffers model variables, under
/// the scope `name`: "linear/weight", "net/0/bias". They are trained, saved and restored like any
/// other, and begin with the values the module has. Returns the module to call, which trains or
/// predicts as the tower does: the module itself in the first tower and in those that share its
/// variables; in a tower with variables of its own a clone, or the module itself if the tower
/// function has just made it.
///
/// Takes a module holder such as torch::nn::Linear or torch::nn::Sequential, or a shared_ptr.
/// Scopes that replace variables (freeze_variables() and the like) do not see a module's.
template <typename Module>
Module adopt(const std::string& name, Module module) {
  if constexpr (requires { module.ptr(); }) {
    using Contained = typename std::remove_cvref_t<decltype(module.ptr())>::element_type;
    return Module(std::dynamic_pointer_cast<Contained>(detail::adopt_module(name, module.ptr())));
  } else {
    using Contained = typename Module::element_type;
    return std::dynamic_pointer_cast<Contained>(detail::adopt_module(name, std::move(module)));
  }
}

}  // namespace tensorpack
