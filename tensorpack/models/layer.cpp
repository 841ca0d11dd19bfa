// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/layer.h"

#include <fmt/ranges.h>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::detail {

at::Tensor finish_layer(at::Tensor output) { return named("output", std::move(output)); }

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
