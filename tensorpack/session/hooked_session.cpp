// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/hooked_session.h"

#include <numeric>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/error_context.h"

namespace tensorpack {
namespace {

void merge_feeds(Feeds& into, Feeds from) {
  for (auto& [name, value] : from) {
    const bool is_new = into.emplace(name, std::move(value)).second;
    TP_CHECK(is_new, "hooked run",
             "the input '{}' is fed twice: by the caller and a hook, or by two hooks. Let one of "
             "them feed it.",
             name);
  }
}

[[noreturn]] void rethrow_from(const Hook& hook, const char* event) {
  rethrow_with(fmt::format("in {}() of {}", event, hook.name()));
}

}  // namespace

HookedSession::HookedSession(Session& session, std::vector<Hook*> hooks)
    : session_(session), hooks_(std::move(hooks)) {}

FetchedValues HookedSession::run(const Op& op, const Fetches& fetches, const Feeds& feeds) {
  TP_CHECK(!should_stop_, "hooked run",
           "op '{}' is run after a stop was requested. Return from run_step() once "
           "hooked_sess().should_stop() is true.",
           op.name());
  RunContext context(op, fetches);
  Fetches all_fetches = fetches;
  Feeds all_feeds = feeds;
  std::vector<size_t> counts(hooks_.size());  // how many tensors each hook asked for
  size_t current = 0;                         // the hook that is being called
  try {
    for (current = 0; current < hooks_.size(); ++current) {
      RunArgs args = hooks_[current]->before_run(context);
      counts[current] = args.fetches.size();
      for (std::string& name : args.fetches) all_fetches.push_back(std::move(name));
      if (!args.feeds.empty()) merge_feeds(all_feeds, std::move(args.feeds));
    }
  } catch (...) {
    rethrow_from(*hooks_[current], "before_run");
  }
  const FetchedValues values = evaluate(op, all_fetches, all_feeds, counts);

  size_t begin = fetches.size();
  static const FetchedValues none;
  try {
    for (current = 0; current < hooks_.size(); ++current) {
      if (counts[current] == 0) {
        hooks_[current]->after_run(context, none);
        continue;
      }
      hooks_[current]->after_run(context, values.slice(begin, begin + counts[current]));
      begin += counts[current];
    }
  } catch (...) {
    rethrow_from(*hooks_[current], "after_run");
  }
  should_stop_ |= context.stop_requested();
  return values.slice(0, fetches.size());
}

// `counts` of the last fetches are those of the hooks. The session knows only that somebody asked
// for what is not there; who, is looked up when that has happened.
FetchedValues HookedSession::evaluate(const Op& op, const Fetches& fetches, const Feeds& feeds,
                                      const std::vector<size_t>& counts) {
  try {
    return session_.run(op, fetches, feeds);
  } catch (const Error&) {
    size_t position = fetches.size() - std::accumulate(counts.begin(), counts.end(), size_t{0});
    for (size_t i = 0; i < counts.size(); ++i) {
      for (size_t end = position + counts[i]; position < end; ++position) {
        session_.check_fetch(op, fetches[position], "before_run() of " + hooks_[i]->name());
      }
    }
    throw;
  }
}

}  // namespace tensorpack
