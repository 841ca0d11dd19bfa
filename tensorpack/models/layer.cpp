// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/layer.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::detail {

at::Tensor finish_layer(at::Tensor output) { return named("output", std::move(output)); }

std::string layer_place(const char* layer) {
  return fmt::format("{} '{}'", layer, VariableScope::current_path());
}

void check_rank(const char* layer, const at::Tensor& input, std::initializer_list<int64_t> ranks,
                const char* expected) {
  TP_CHECK(input.defined(), layer_place(layer), "the input is undefined. Compute it first.");
  TP_CHECK(std::find(ranks.begin(), ranks.end(), input.dim()) != ranks.end(), layer_place(layer),
           "the input must be {}, got [{}]. Use unsqueeze or reshape first.", expected,
           fmt::join(input.sizes(), ", "));
}

at::Tensor activate(at::Tensor output, const std::optional<Activation>& activation) {
  return activation && *activation ? (*activation)(output) : output;
}

void rethrow_with_place(const char* layer, const at::Tensor& input) {
  try {
    throw;
  } catch (const Error&) {
    throw;  // already says where
  } catch (const InternalError&) {
    throw;
  } catch (const StopTraining&) {
    throw;
  } catch (const std::exception& error) {
    const std::string shape =
        input.defined() ? fmt::format("[{}]", fmt::join(input.sizes(), ", ")) : "undefined";
    throw make_error(fmt::format("{} '{}', input {}", layer, VariableScope::current_path(), shape),
                     "{}", describe(error));
  }
}

}  // namespace tensorpack::detail
