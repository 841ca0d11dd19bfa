// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/tower_context.h"

#include "tensorpack/utils/detail/thread_frame.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

struct TowerState {
  TowerContext* context = nullptr;
};

TowerContext*& current_context() { return ThreadFrame::current().get<TowerState>().context; }

}  // namespace

TowerContext::TowerContext(Graph& graph, TowerOptions options)
    : options_(std::move(options)),
      call_(graph, {.device = options_.device.value_or(graph.options().device),
                    .may_create_trainable = !options_.shares_variables,
                    .variable_prefix = options_.variable_prefix,
                    .is_prediction = !options_.is_training,
                    .exchanges = options_.exchanges,
                    .bucket_bytes = options_.bucket_bytes,
                    .updates = options_.updates}) {
  TP_CHECK(options_.index >= 0 && options_.index < options_.total, "TowerContext",
           "tower index {} is not below the number of towers, {}. Pass .index in [0, .total).",
           options_.index, options_.total);
  current_context() = this;
}

TowerContext::~TowerContext() { current_context() = nullptr; }

TowerContext* TowerContext::current() { return current_context(); }

TowerContext& get_current_tower_context() {
  TP_CHECK(current_context() != nullptr, "get_current_tower_context",
           "no tower function is being called on this thread. Open a TowerContext first.");
  return *current_context();
}

bool is_training() { return current_context() != nullptr && current_context()->is_training(); }

}  // namespace tensorpack
