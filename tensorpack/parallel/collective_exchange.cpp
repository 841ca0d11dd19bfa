// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/distributed/free_port.h"
#include "tensorpack/parallel/process_exchange.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/worker_team.h"

namespace tensorpack {
namespace {

// Towers as ranks: what makes processes wait for each other makes threads do so.
class CollectiveExchange final : public ExchangeGroup {
 public:
  CollectiveExchange(const std::vector<c10::Device>& devices, bool average)
      : groups_(devices.size()), exchanges_(devices.size()) {
    const int port = free_port();
    WorkerTeam team("tower", devices.size());  // each waits for the others
    const auto failure = team.run([&](size_t i) {
      groups_[i] = ProcessGroup::create(
          {.environment = place_of(i, devices.size(), port), .device = devices[i]});
      exchanges_[i] = make_process_exchange({.processes = groups_[i], .average = average});
    });
    if (failure) std::rethrow_exception(failure->exception);
  }

  Exchange& member(size_t index) override { return exchanges_[index]->member(0); }

  void start() override {
    TP_CHECK(!is_aborted_, "exchange", "a tower has failed before: make another trainer.");
    for (const auto& exchange : exchanges_) exchange->start();
  }

  void abort(size_t index) override {
    is_aborted_ = true;
    groups_[index]->leave("a tower has failed.");
  }

 private:
  static LaunchEnvironment place_of(size_t index, size_t size, int port) {
    const auto rank = static_cast<int>(index);
    const auto towers = static_cast<int>(size);
    return {.rank = rank,
            .size = towers,
            .local_rank = rank,
            .local_size = towers,
            .master_port = port,
            .launcher = "towers"};
  }

  std::vector<std::shared_ptr<ProcessGroup>> groups_;
  std::vector<std::shared_ptr<ExchangeGroup>> exchanges_;
  bool is_aborted_ = false;
};

}  // namespace

std::shared_ptr<ExchangeGroup> make_collective_exchange(const std::vector<c10::Device>& devices,
                                                        bool average) {
  return std::make_shared<CollectiveExchange>(devices, average);
}

}  // namespace tensorpack
