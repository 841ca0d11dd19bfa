// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/layer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/utils/detail/thread_frame.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/error_context.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

struct ShapeLog {
  bool is_on = false;
};

bool& logs_shapes() { return ThreadFrame::current().get<ShapeLog>().is_on; }

// The size of the batch does not belong to the layer.
std::string shape_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.dim() == 0) return "[]";
  Shape shape = tensor.sizes().vec();
  shape[0] = -1;
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

LogShapes::LogShapes() : outer_(std::exchange(logs_shapes(), true)) {}

LogShapes::~LogShapes() { logs_shapes() = outer_; }

}  // namespace tensorpack

namespace tensorpack::detail {

at::Tensor finish_layer(const char* layer, const at::Tensor& input, at::Tensor output) {
  if (logs_shapes()) {
    logging::info_once("{}: {} -> {}", layer_place(layer), shape_of(input), shape_of(output));
  }
  return layer_output(std::move(output));
}

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
  } catch (const c10::OutOfMemoryError&) {
    throw;  // less memory may do
  } catch (const std::exception& error) {
    if (!is_plain(error)) throw;  // ours, which say where, and those that somebody may wait for
    const std::string shape =
        input.defined() ? fmt::format("[{}]", fmt::join(input.sizes(), ", ")) : "undefined";
    throw make_error(fmt::format("{} '{}', input {}", layer, VariableScope::current_path(), shape),
                     "{}", describe(error));
  }
}

}  // namespace tensorpack::detail
