// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/run_op.h"

#include "tensorpack/utils/error.h"

namespace tensorpack {

RunOp::RunOp(Op op, RunOpOptions options)
    : RunOp([op = std::move(op)](Graph&) { return op; }, options) {}

RunOp::RunOp(std::function<Op(Graph&)> define, RunOpOptions options)
    : define_(std::move(define)), options_(options) {
  TP_CHECK(define_ != nullptr, "RunOp", "the function is empty. Pass one that returns an op.");
  set_chief_only(false);
}

void RunOp::setup_graph() {
  op_ = define_(graph());
  TP_CHECK(static_cast<bool>(op_), "RunOp", "the op is empty. Define it before.");
}

void RunOp::before_train() {
  if (options_.run_before) trainer().sess().run(op_);
}

void RunOp::after_run(RunContext&, const FetchedValues&) {
  if (options_.run_step) trainer().sess().run(op_);
}

void RunOp::trigger() {
  if (options_.run_as_trigger) trainer().sess().run(op_);
}

}  // namespace tensorpack
