// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/proxy_callback.h"

#include "tensorpack/utils/error.h"

namespace tensorpack {

ProxyCallback::ProxyCallback(Owned<Callback> callback) : callback_(std::move(callback)) {
  TP_CHECK(static_cast<bool>(callback_), "ProxyCallback", "the callback is null. Pass one.");
  set_chief_only(callback_->chief_only());
}

void ProxyCallback::setup_graph() {
  callback_->attach(trainer());
  callback_->setup_graph();
}

std::string ProxyCallback::name() const { return Callback::name() + "(" + callback_->name() + ")"; }

}  // namespace tensorpack
