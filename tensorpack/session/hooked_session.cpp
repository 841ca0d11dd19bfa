// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/hooked_session.h"

#include "tensorpack/utils/error.h"

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
  for (size_t i = 0; i < hooks_.size(); ++i) {
    RunArgs args = hooks_[i]->before_run(context);
    counts[i] = args.fetches.size();
    for (std::string& name : args.fetches) all_fetches.push_back(std::move(name));
    if (!args.feeds.empty()) merge_feeds(all_feeds, std::move(args.feeds));
  }
  const FetchedValues values = session_.run(op, all_fetches, all_feeds);

  size_t begin = fetches.size();
  static const FetchedValues none;
  for (size_t i = 0; i < hooks_.size(); ++i) {
    if (counts[i] == 0) {
      hooks_[i]->after_run(context, none);
      continue;
    }
    hooks_[i]->after_run(context, values.slice(begin, begin + counts[i]));
    begin += counts[i];
  }
  should_stop_ |= context.stop_requested();
  return values.slice(0, fetches.size());
}

}  // namespace tensorpack
