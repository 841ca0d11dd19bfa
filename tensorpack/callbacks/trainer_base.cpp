// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/trainer_base.h"

#include "tensorpack/utils/error.h"

namespace tensorpack {

TrainerBase::TrainerBase() : session_(std::make_shared<SharedSession>()) {}

Monitors& TrainerBase::monitors() {
  TP_CHECK(monitors_ != nullptr, "monitors",
           "they exist from setup_callbacks() on. Use them in before_train() or later.");
  return *monitors_;
}

void TrainerBase::claim_file(const std::filesystem::path& file, const std::string& owner) {
  const auto [found, is_new] = owners_of_files_.emplace(file.lexically_normal(), owner);
  TP_CHECK(is_new, owner, "'{}' is written by {}, too. Give each a .filename of its own.",
           file.string(), found->second == owner ? "another " + owner : found->second);
}

Session& SharedSession::get() const {
  TP_CHECK(session != nullptr, "sess",
           "the session exists from initialize() on. Use it in before_train() or later.");
  return *session;
}

Session& TrainerBase::sess() { return session_->get(); }

void TrainerBase::open_session(SessionOptions options) {
  session_->graph = graph_;
  session_->session = std::make_unique<Session>(*graph_, options);
}

HookedSession& TrainerBase::hooked_sess() {
  TP_CHECK(hooked_sess_ != nullptr, "hooked_sess",
           "the session exists from initialize() on. Use it in before_train() or later.");
  return *hooked_sess_;
}

TowerHandle TrainerBase::build_prediction_tower(PredictionTowerOptions options) {
  throw make_error("prediction tower",
                   "'{}' cannot be built: this trainer has no tower function. Use a TowerTrainer, "
                   "or give the callback a tower function of its own.",
                   options.name);
}

}  // namespace tensorpack
