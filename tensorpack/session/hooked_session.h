// SPDX-License-Identifier: Apache-2.0
// A session whose runs others can join.
#pragma once

#include <string>
#include <vector>

#include "tensorpack/session/session.h"

namespace tensorpack {

/// What a hook wants to be part of a run.
struct RunArgs {
  Fetches fetches = {};
  Feeds feeds = {};
};

/// One run as hooks see it.
class RunContext {
 public:
  RunContext(const Op& op, const Fetches& fetches) : op_(op), fetches_(fetches) {}

  /// What the caller asked for.
  const Op& op() const { return op_; }
  const Fetches& original_fetches() const { return fetches_; }
  /// Ends training before the next step.
  void request_stop() { stop_requested_ = true; }
  bool stop_requested() const { return stop_requested_; }

 private:
  const Op& op_;
  const Fetches& fetches_;
  bool stop_requested_ = false;
};

/// Joins runs of a HookedSession.
class Hook {
 public:
  virtual ~Hook() = default;
  /// For messages.
  virtual std::string name() const { return "a hook"; }
  /// Called before the run; may ask for tensors and feed inputs.
  virtual RunArgs before_run(RunContext&) { return {}; }
  /// Called after the run with the values of what before_run() asked for, in its order.
  virtual void after_run(RunContext&, const FetchedValues&) {}
};

/// Runs an op together with what every hook asks for, as one evaluation. Hooks are called in order
/// and must outlive the session. Errors name the hook that threw, or asked for what is not there.
class HookedSession {
 public:
  HookedSession(Session& session, std::vector<Hook*> hooks);

  /// As Session::run(). Throws an Error when two feed the same input, and when a stop was
  /// requested.
  FetchedValues run(const Op& op, const Fetches& fetches = {}, const Feeds& feeds = {});

  Session& session() { return session_; }
  /// True once a hook has called request_stop().
  bool should_stop() const { return should_stop_; }
  void request_stop() { should_stop_ = true; }

 private:
  FetchedValues evaluate(const Op& op, const Fetches& fetches, const Feeds& feeds,
                         const std::vector<size_t>& counts);

  Session& session_;
  std::vector<Hook*> hooks_;
  bool should_stop_ = false;
};

}  // namespace tensorpack
