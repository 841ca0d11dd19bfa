// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/operator_watch.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "tensorpack/graph/failure_place.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/graph/variable_scope.h"

namespace tensorpack {
namespace {

// A functionality no release of libtorch up to 2.11 registers anything on. See
// docs/architecture.md.
constexpr auto kWatchKey = c10::DispatchKey::Fake;

// Thread-local debug info travels to autograd's threads with the rest of the caller's state, so
// that each watch sees its own operators and no others.
constexpr auto kWatchSlot = c10::DebugInfoKind::TEST_INFO_2;

OperatorWatch* current_watch() {
  return static_cast<OperatorWatch*>(c10::ThreadLocalDebugInfo::get(kWatchSlot));
}

void see_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
  // What a kernel calls inside is its own business.
  c10::impl::ExcludeDispatchKeyGuard off(kWatchKey);
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kWatchKey);
  OperatorWatch* watch = current_watch();
  try {
    if (watch == nullptr) {
      op.redispatchBoxed(below, stack);
    } else {
      watch->run(op, below, stack);
    }
  } catch (...) {
    FailurePlace::note_operator(name_of(op), VariableScope::current_path());
    throw;
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&see_operator>());
}

void OperatorWatch::pass_on(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                            torch::jit::Stack* stack) const {
  if (outer_ == nullptr) {
    op.redispatchBoxed(below, stack);
  } else {
    outer_->run(op, below, stack);
  }
}

struct WatchScope::Guards {
  explicit Guards(const std::shared_ptr<OperatorWatch>& watch) : slot(kWatchSlot, watch) {}
  c10::DebugInfoGuard slot;
  c10::impl::IncludeDispatchKeyGuard on{kWatchKey};
};

WatchScope::WatchScope(std::shared_ptr<OperatorWatch> watch) {
  watch->outer_ = current_watch();
  guards_ = std::make_unique<Guards>(watch);
}

WatchScope::~WatchScope() = default;

WatchInside::WatchInside() { c10::impl::tls_set_dispatch_key_excluded(kWatchKey, false); }

WatchInside::~WatchInside() { c10::impl::tls_set_dispatch_key_excluded(kWatchKey, true); }

struct Unwatched::Guards {
  c10::impl::ExcludeDispatchKeyGuard off{kWatchKey};
};

Unwatched::Unwatched() : guards_(std::make_unique<Guards>()) {}

Unwatched::~Unwatched() = default;

}  // namespace tensorpack
