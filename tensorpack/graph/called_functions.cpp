// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/called_functions.h"

#include <ATen/record_function.h>

#include <memory>
#include <vector>

#include "tensorpack/utils/detail/thread_frame.h"

namespace tensorpack {
namespace {

struct FunctionStack {
  std::vector<std::string> names;
};

std::vector<std::string>& names() { return ThreadFrame::current().get<FunctionStack>().names; }

std::unique_ptr<at::ObserverContext> on_enter(const at::RecordFunction& function) {
  names().emplace_back(function.name());
  return nullptr;
}

void on_leave(const at::RecordFunction&, at::ObserverContext*) {
  if (!names().empty()) names().pop_back();
}

}  // namespace

CalledFunctions::CalledFunctions()
    : handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(on_enter, on_leave).scopes({at::RecordScope::FUNCTION}))) {}

CalledFunctions::~CalledFunctions() {
  at::removeCallback(handle_);
  names().clear();
}

std::string CalledFunctions::outermost() { return names().empty() ? "" : names().front(); }

}  // namespace tensorpack
