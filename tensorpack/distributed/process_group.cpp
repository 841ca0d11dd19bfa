// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/distributed/process_group.h"

#include <utility>

#include "tensorpack/distributed/detail/c10d_group.h"
#include "tensorpack/distributed/detail/rendezvous.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/signals.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

namespace {

class NoWork final : public ProcessGroup::Work {
 public:
  void wait() override {}
};

/// A process alone: everything is done before it begins.
class GroupOfOne final : public ProcessGroup {
 public:
  explicit GroupOfOne(ProcessGroupOptions options) : ProcessGroup(std::move(options)) {}

  std::unique_ptr<Work> all_reduce(const at::Tensor& /*tensor*/) override {
    return std::make_unique<NoWork>();
  }
  void broadcast(const at::Tensor& /*tensor*/, int root) override {
    TP_CHECK(root == 0, "broadcast", "there is no rank {}: this process is alone.", root);
  }
  std::vector<std::string> all_gather(const std::string& bytes) override { return {bytes}; }
  void barrier() override {}
  void check() override {}
  void check_after(std::chrono::milliseconds /*waited*/) override {}
  void share_signal(int signal) override {
    if (signal_ == 0 || signal != kSignalToSave) signal_ = signal;
  }
  int shared_signal() const override { return signal_ == kSignalToSave ? 0 : signal_; }
  int agreed_signal(int64_t /*step*/) override {
    return signal_ == kSignalToSave ? std::exchange(signal_, 0) : signal_;
  }
  bool ends_here() const override { return shared_signal() != 0; }
  void set_step(int64_t /*step*/) override {}
  void leave(const std::string& /*reason*/) override {}
  void stop(const std::string& /*reason*/) override {}

 private:
  int signal_ = 0;
};

}  // namespace

std::chrono::milliseconds default_collective_timeout() {
  const double seconds = env_double("TENSORPACK_TIMEOUT").value_or(300);
  TP_CHECK(seconds > 0, "TENSORPACK_TIMEOUT", "the timeout must be positive, got {} s.", seconds);
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

std::shared_ptr<ProcessGroup> ProcessGroup::create(ProcessGroupOptions options) {
  const LaunchEnvironment& place = options.environment;
  TP_CHECK(place.size >= 1 && place.rank >= 0 && place.rank < place.size, "ProcessGroup",
           "there is no rank {} among {}.", place.rank, counted(place.size, "process"));
  TP_CHECK(options.timeout.count() > 0, "ProcessGroup", "the timeout must be positive, got {} ms.",
           options.timeout.count());
  // Most users have one process: they pay nothing.
  if (place.size == 1 && options.backend == CollectiveBackend::kAuto) {
    return std::make_shared<GroupOfOne>(std::move(options));
  }
  return detail::make_c10d_group(options, detail::meet(place, options.timeout));
}

}  // namespace tensorpack
