// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/distributed/detail/c10d_group.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tensorpack/distributed/detail/call_within.h"
#include "tensorpack/distributed/detail/network.h"
#include "tensorpack/distributed/detail/signs_of_life.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/signals.h"
#include "tensorpack/utils/stop_flag.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/wait_for_device.h"

namespace tensorpack::detail {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// When a connection broke, a rank without a sign for so long is the one that is gone.
constexpr milliseconds kSilenceOfTheDead{2500};
/// So long before the timeout ends the signs of all ranks are watched.
constexpr seconds kWatchBeforeTimeout{5};
/// How long the others are waited for after a signal, so that all save together: the chief may be
/// busy with validation. Schedulers kill what has not ended after 30 s.
constexpr seconds kPatienceAfterSignal{25};
constexpr seconds kPatienceForLeftGroups{1};
/// Between looks at the news while a collective does not end.
constexpr milliseconds kSlice{200};

std::string seconds_of(milliseconds time) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(time).count());
}

std::string name_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(names);
}

/// A tensor in the form that is exchanged: flat, on the transport's device, of a dtype it can take.
class Exchanged {
 public:
  Exchanged(const at::Tensor& tensor, c10::Device device, c10::ScalarType dtype)
      : tensor_(tensor.detach()),
        flat_(tensor_.to(device, dtype).contiguous().view({-1})),
        is_copy_(!flat_.is_alias_of(tensor_)) {}

  const at::Tensor& flat() const { return flat_; }
  /// Brings back what was exchanged if it was a copy.
  void bring_back() {
    if (is_copy_) tensor_.copy_(flat_.view(tensor_.sizes()));
  }

 private:
  at::Tensor tensor_;
  at::Tensor flat_;
  bool is_copy_;
};

/// The connections of a group that this process has left. Other ranks may still be in a collective
/// with it, which would fail if its connections ended.
struct LeftGroup {
  std::unique_ptr<Transport> gloo{};
  std::unique_ptr<Transport> nccl{};
  std::shared_ptr<SharedStore> hosted{};
  std::shared_ptr<SharedStore>
      store{};  // null if work is unfinished: a destructor would wait for it
  int size = 0;

  bool is_unused() const {
    try {
      return store && SignsOfLife::all_have_left(*store, size);
    } catch (const std::exception&) {
      return false;  // the process that hosts the store is gone
    }
  }
  // All but the hosted store: libtorch's connections to a store that has ended poll without end.
  void close() {
    gloo.reset();
    store.reset();
  }
};

/// Keeps the connections of groups that were left until all ranks have left and this process
/// connects another group.
class LeftGroups {
 public:
  static void add(LeftGroup group) {
    const std::lock_guard lock(mutex);
    all().push_back(std::move(group));
  }
  /// Does not wait for long: a store whose host is cut off does not answer, and its group is never
  /// closed then.
  static void close_unused() {
    std::unique_lock lock(mutex);
    if (all().empty()) return;
    std::vector<LeftGroup> groups = std::exchange(all(), {});
    lock.unlock();
    call_within("left_groups", kPatienceForLeftGroups, [groups = std::move(groups)]() mutable {
      for (LeftGroup& group : groups) {
        if (group.is_unused()) group.close();
        add(std::move(group));
      }
      return true;
    });
  }

 private:
  // Never destroyed.
  static std::vector<LeftGroup>& all() {
    static auto* const instance = new std::vector<LeftGroup>;
    return *instance;
  }
  static inline std::mutex mutex;
};

class C10dGroup final : public ProcessGroup, public std::enable_shared_from_this<C10dGroup> {
 public:
  C10dGroup(const ProcessGroupOptions& options, Meeting meeting);
  ~C10dGroup() override;

  std::unique_ptr<Work> all_reduce(const at::Tensor& tensor) override;
  void broadcast(const at::Tensor& tensor, int root) override;
  std::vector<std::string> all_gather(const std::string& bytes) override;
  void barrier() override;
  void check() override;
  void check_after(milliseconds waited) override;
  void share_signal(int signal) override { signs_->share_signal(signal); }
  int shared_signal() const override { return signs_->shared_signal(); }
  int agreed_signal(int64_t step) override;
  bool ends_here() const override { return ends_here_; }
  void set_step(int64_t step) override { signs_->set_step(step); }
  void leave(const std::string& reason) override;
  void stop(const std::string& reason) override;
  bool has_left() const override { return left_; }
  bool is_capturable() const override { return nccl_ != nullptr; }

 private:
  class AllReduce;

  std::string where() const { return describe_place(environment()); }
  Transport& transport_for(const at::Tensor& tensor) {
    return nccl_ && tensor.is_cuda() ? *nccl_ : *gloo_;
  }
  c10::Device device_for(const at::Tensor& tensor) {
    return nccl_ && tensor.is_cuda() ? tensor.device() : c10::Device(c10::kCPU);
  }
  int64_t begin(std::string what);
  /// Calls what begins a transfer, which throws where a connection broke before.
  template <typename Function>
  std::unique_ptr<Transfer> start(int64_t collective, Function&& function);
  void wait(Transfer& transfer, int64_t collective);
  template <typename Function>
  void run(int64_t collective, Function&& function) {
    wait(*start(collective, function), collective);
  }

  News gone(const std::vector<int>& ranks, const std::vector<Sign>& signs) const;
  /// From now on the group is of no more use.
  void note_failure(const std::string& text);
  void check_failure();
  [[noreturn]] void fail(const std::string& text);
  [[noreturn]] void fail_by(const News& news);
  [[noreturn]] void fail_by_error(const std::string& error, int64_t collective);
  [[noreturn]] void fail_by_timeout(int64_t collective);
  [[noreturn]] void fail_by_store();
  void connect_gpus(const ProcessGroupOptions& options, const TransportOptions& transport);
  void leave(News::Kind kind, const std::string& reason);

  const milliseconds timeout_;
  const std::shared_ptr<SharedStore> store_;
  const std::shared_ptr<SharedStore> hosted_;  // for the others; null in all but rank 0
  std::unique_ptr<Transport> gloo_;
  std::unique_ptr<Transport> nccl_;
  std::atomic<Transport*> to_interrupt_ = nullptr;
  std::unique_ptr<SignsOfLife> signs_;  // its thread calls the transports: it goes first
  // Several towers may be in the group at once: one waits while another starts an all-reduce.
  std::atomic<bool> unfinished_ = false;  // a transfer may still be under way
  std::atomic<bool> left_ = false;
  std::atomic<bool> ends_here_ = false;
  std::mutex failure_mutex_;
  std::string failure_;                     // the text of the first
  std::optional<WaitCheck> while_waiting_;  // for a GPU
};

/// An all-reduce under way. One that is dropped unfinished leaves its memory to the transport.
class C10dGroup::AllReduce final : public ProcessGroup::Work {
 public:
  AllReduce(std::shared_ptr<C10dGroup> group, Exchanged exchanged,
            std::unique_ptr<Transfer> transfer, int64_t number)
      : group_(std::move(group)),
        exchanged_(std::move(exchanged)),
        transfer_(std::move(transfer)),
        number_(number) {}
  ~AllReduce() override {
    if (transfer_ && !transfer_->done()) group_->unfinished_ = true;
  }

  void wait() override {
    if (!transfer_) return;
    group_->wait(*transfer_, number_);
    group_->signs_->set_met_all();
    transfer_.reset();
    exchanged_.bring_back();
  }

 private:
  std::shared_ptr<C10dGroup> group_;
  Exchanged exchanged_;
  std::unique_ptr<Transfer> transfer_;
  int64_t number_;
};

C10dGroup::C10dGroup(const ProcessGroupOptions& options, Meeting meeting)
    : ProcessGroup(options),
      timeout_(options.timeout),
      store_(meeting.store),
      hosted_(meeting.hosted) {
  LeftGroups::close_unused();
  signs_ = std::make_unique<SignsOfLife>(SignsOfLifeOptions{
      .store = meeting.store_for_signs,
      .environment = environment(),
      .longest_silence = std::clamp<milliseconds>(timeout_, seconds(10), seconds(30)),
      .on_missing = [this] {
        if (Transport* transport = to_interrupt_) transport->interrupt();
      }});
  // Longer than ours: we know more about why, and say it first.
  const TransportOptions transport{.store = meeting.store,
                                   .rank = rank(),
                                   .size = size(),
                                   .timeout = timeout_ + 2 * kWatchBeforeTimeout,
                                   .address = meeting.address};
  try {
    gloo_ = make_gloo(transport);
  } catch (const std::exception& error) {
    fail_by_error(fmt::format("connecting all ranks with each other from {} failed: {}",
                              meeting.address, describe(error)),
                  /*collective=*/1);
  }
  connect_gpus(options, transport);
}

/// Which GPU it is can be seen from inside a process only through what makes it visible.
std::string name_gpu(c10::Device device) {
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot_id);
  const int index = device.has_index() ? device.index() : 0;
  return fmt::format("{} {} {} {}", host_name(), boot_id, env("CUDA_VISIBLE_DEVICES").value_or(""),
                     index);
}

void C10dGroup::connect_gpus(const ProcessGroupOptions& options,
                             const TransportOptions& transport) {
  if (!options.device.is_cuda() || options.backend == CollectiveBackend::kGloo) return;
  if (options.backend == CollectiveBackend::kAuto) {
    if (!has_nccl()) {
      logging::warning_once("This build has no NCCL: tensors go from GPU to GPU through the host.");
      return;
    }
    const std::vector<std::string> gpus = all_gather(name_gpu(options.device));
    if (std::set<std::string>(gpus.begin(), gpus.end()).size() < gpus.size()) {
      logging::warning_once(
          "Several processes share a GPU, which NCCL does not allow: tensors go "
          "through the host.");
      return;
    }
  }
  nccl_ = make_nccl(transport);
  to_interrupt_ = nccl_.get();
  while_waiting_.emplace([this](milliseconds waited) { check_after(waited); });
}

C10dGroup::~C10dGroup() {
  while_waiting_.reset();
  if (!left_) signs_->leave(News::Kind::kDone, "it closed its process group.");
  signs_.reset();
  if (!left_ && !unfinished_) return;
  const bool can_close = !unfinished_ && !nccl_;
  LeftGroups::add({.gloo = std::move(gloo_),
                   .nccl = std::move(nccl_),
                   .hosted = hosted_,
                   .store = can_close ? store_ : nullptr,
                   .size = size()});
}

void C10dGroup::note_failure(const std::string& text) {
  unfinished_ = true;
  const std::lock_guard lock(failure_mutex_);
  if (failure_.empty()) failure_ = text;
}

void C10dGroup::check_failure() {
  const std::lock_guard lock(failure_mutex_);
  if (failure_.empty()) return;
  throw make_error(where(), "the process group is of no more use after this failure: {}", failure_);
}

void C10dGroup::fail(const std::string& text) {
  note_failure(text);
  throw make_error(where(), "{}", text);
}

void C10dGroup::fail_by(const News& news) {
  if (news.kind == News::Kind::kStopped) {
    note_failure(news.text);
    throw StopTraining(news.text);
  }
  fail(news.kind == News::Kind::kGone ? news.text : fmt::format("{} {}", news.text, kHowToGoOn));
}

void C10dGroup::fail_by_store() {
  const auto step = signs_->last_step(0);
  fail(fmt::format(
      "{} is gone or cannot be reached any more: {}:{} has not answered for {}{}. Look at its "
      "output and at the network, and start the job again.",
      environment().launcher_hosts_store ? "the launcher" : "rank 0", environment().master_address,
      environment().master_port, seconds_of(signs_->store_silence()),
      step && !environment().launcher_hosts_store ? fmt::format(", last seen in step {}", *step)
                                                  : std::string()));
}

std::vector<int> silent_ranks(const std::vector<Sign>& signs, milliseconds limit) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < signs.size(); ++rank) {
    if (signs[rank].silence >= limit) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

News C10dGroup::gone(const std::vector<int>& ranks, const std::vector<Sign>& signs) const {
  const Sign& sign = signs[static_cast<size_t>(ranks.front())];
  return {.kind = News::Kind::kGone,
          .text = fmt::format("{} {} gone: no sign of life for {}, last seen in step {}. {}",
                              name_ranks(ranks), ranks.size() == 1 ? "is" : "are",
                              seconds_of(sign.silence),
                              signs_->last_step(ranks.front()).value_or(sign.step), kHowToGoOn)};
}

/// Of a broken connection one knows neither who broke it nor why: the signs of life tell.
void C10dGroup::fail_by_error(const std::string& error, int64_t collective) {
  const std::vector<Sign> signs = signs_->look(kSilenceOfTheDead + seconds(1), collective);
  if (const auto news = signs_->news_against(collective)) fail_by(*news);
  if (signs.empty()) fail_by_store();
  const std::vector<int> silent = silent_ranks(signs, kSilenceOfTheDead);
  if (!silent.empty()) {
    signs_->tell(gone(silent, signs));
    fail_by(signs_->news_against(collective).value_or(gone(silent, signs)));
  }
  fail(fmt::format(
      "a collective failed, though all ranks are alive: {}. Look at the network between "
      "them and at what they say.",
      error));
}

void C10dGroup::fail_by_timeout(int64_t collective) {
  const std::vector<Sign> signs = signs_->look(kSilenceOfTheDead, collective);
  if (const auto news = signs_->news_against(collective)) fail_by(*news);
  if (signs.empty()) fail_by_store();

  News news;
  const std::vector<int> silent = silent_ranks(signs, kSilenceOfTheDead);
  std::vector<int> absent;
  std::vector<int> elsewhere;
  std::vector<int> behind;
  const Sign& own = signs[static_cast<size_t>(rank())];
  for (int other = 0; other < size(); ++other) {
    const Sign& sign = signs[static_cast<size_t>(other)];
    if (sign.collectives < collective) {
      absent.push_back(other);
    } else if (sign.collectives == own.collectives && sign.collective != own.collective) {
      elsewhere.push_back(other);
    } else if (sign.step < own.step) {
      behind.push_back(other);
    }
  }
  if (!silent.empty()) {
    news = gone(silent, signs);
  } else if (!absent.empty()) {
    const Sign& sign = signs[static_cast<size_t>(absent.front())];
    const bool one = absent.size() == 1;
    news.text = fmt::format(
        "{} {} alive but {} not come to this collective for {}; {} in step {}. Ranks that do not "
        "do the same number of steps, or one that waits for something else, look like this; a "
        "longer timeout is set by TENSORPACK_TIMEOUT, in seconds.",
        name_ranks(absent), one ? "is" : "are", one ? "has" : "have", seconds_of(timeout_),
        one ? "it is" : fmt::format("rank {} is", absent.front()), sign.step);
  } else if (!elsewhere.empty()) {
    const Sign& sign = signs[static_cast<size_t>(elsewhere.front())];
    news.text = fmt::format(
        "rank {} is in another collective than rank {}: {} in step {}, not {} in step {}. All "
        "ranks must call the same collectives in the same order.",
        elsewhere.front(), rank(), sign.collective, sign.step, own.collective, own.step);
  } else if (!behind.empty()) {
    const Sign& sign = signs[static_cast<size_t>(behind.front())];
    news.text = fmt::format(
        "{} {} alive but behind: rank {} is in step {}, and rank {} has waited in step {} for {}. "
        "A longer timeout is set by TENSORPACK_TIMEOUT, in seconds.",
        name_ranks(behind), behind.size() == 1 ? "is" : "are", behind.front(), sign.step, rank(),
        own.step, seconds_of(timeout_));
  } else {
    news.text = fmt::format(
        "all ranks have come to this collective ({}), but it has not ended for {}. Is the network "
        "between them cut? The interface is chosen by GLOO_SOCKET_IFNAME.",
        own.collective, seconds_of(timeout_));
  }
  signs_->tell(news);
  fail_by(signs_->news_against(collective).value_or(news));
}

void C10dGroup::check() {
  TP_CHECK(
      !left_, where(),
      "this process has left the group, as at the end of a training, and can take part no more. "
      "Create another group.");
  check_failure();
  const auto news = signs_->news();
  if (news && news->kind != News::Kind::kDone) fail_by(*news);
}

// What was captured counts no collectives: the steps tell who is behind.
void C10dGroup::check_after(milliseconds waited) {
  check();
  if (waited >= timeout_) fail_by_timeout(signs_->collectives());
}

int C10dGroup::agreed_signal(int64_t step) {
  const int signal = signs_->agreed_signal(step);
  ends_here_ = signal != 0 && signal != kSignalToSave;
  return signal;
}

int64_t C10dGroup::begin(std::string what) {
  check();
  if (const auto news = signs_->news_against(signs_->collectives() + 1)) fail_by(*news);
  return signs_->begin_collective(std::move(what));
}

template <typename Function>
std::unique_ptr<Transfer> C10dGroup::start(int64_t collective, Function&& function) {
  try {
    return function();
  } catch (const std::exception& error) {
    fail_by_error(describe(error), collective);
  }
}

// Another thread has made the error. (A function of its own for tests/tsan.supp, which names it.)
std::string describe_failed_transfer(const std::exception& error) { return describe(error); }

void C10dGroup::wait(Transfer& transfer, int64_t collective) {
  const auto begun = Clock::now();
  const auto watch_at = begun + std::max<milliseconds>(timeout_ - kWatchBeforeTimeout, kSlice);
  std::optional<SignsOfLife::WatchAll> watching;
  PatienceAfterSignal patience(kPatienceAfterSignal);
  for (;;) {
    check_failure();
    try {
      if (transfer.wait(kSlice)) break;
    } catch (const std::exception& error) {
      fail_by_error(describe_failed_transfer(error), collective);
    }
    if (const auto news = signs_->news_against(collective)) fail_by(*news);
    if (Clock::now() >= begun + timeout_) fail_by_timeout(collective);
    if (const int signal = patience.signal_when_over()) {
      note_failure("a signal ended this process while it waited for the others.");
      throw Interrupted(signal);
    }
    if (!watching && Clock::now() >= watch_at) watching.emplace(*signs_);
  }
}

std::string describe_collective(const char* what, const at::Tensor& tensor) {
  return fmt::format("{} of {} {}", what, tensor.numel(), c10::toString(tensor.scalar_type()));
}

/// What a tensor is cast to for a sum all-reduce: the smallest dtype that loses nothing.
c10::ScalarType dtype_to_reduce(const Transport& transport, c10::ScalarType dtype) {
  if (transport.can_reduce(dtype)) return dtype;
  return c10::isFloatingType(dtype) ? c10::kFloat : c10::kLong;
}

void check_tensor(const std::string& where, const at::Tensor& tensor) {
  TP_CHECK(tensor.defined() && tensor.layout() == c10::kStrided, where,
           "processes exchange dense tensors, and this one is {}. Make it dense.",
           tensor.defined() ? "sparse" : "undefined");
}

std::unique_ptr<ProcessGroup::Work> C10dGroup::all_reduce(const at::Tensor& given) {
  check_tensor(where(), given);
  const at::Tensor tensor = given.is_complex() ? at::view_as_real(given) : given;
  const int64_t number = begin(describe_collective("all_reduce", tensor));
  Transport& transport = transport_for(tensor);
  Exchanged exchanged(tensor, device_for(tensor), dtype_to_reduce(transport, tensor.scalar_type()));
  // Nothing to add up, which libtorch's versions treat differently.
  auto transfer = tensor.numel() == 0
                      ? nullptr
                      : start(number, [&] { return transport.all_reduce(exchanged.flat()); });
  return std::make_unique<AllReduce>(shared_from_this(), std::move(exchanged), std::move(transfer),
                                     number);
}

void C10dGroup::broadcast(const at::Tensor& tensor, int root) {
  check_tensor(where(), tensor);
  TP_CHECK(root >= 0 && root < size(), where(), "there is no rank {} to broadcast from.", root);
  const int64_t number = begin(describe_collective("broadcast", tensor));
  if (tensor.numel() == 0) return;
  Exchanged exchanged(tensor, device_for(tensor), tensor.scalar_type());
  // As bytes: a copy needs no arithmetic, so that every dtype will do.
  const at::Tensor bytes =
      (tensor.is_complex() ? at::view_as_real(exchanged.flat()).view({-1}) : exchanged.flat())
          .view(c10::kByte);
  run(number, [&] { return transport_for(tensor).broadcast(bytes, root); });
  exchanged.bring_back();
}

std::vector<std::string> C10dGroup::all_gather(const std::string& bytes) {
  const int64_t number = begin("all_gather");
  const auto count = static_cast<size_t>(size());
  const at::Tensor lengths = at::zeros({size()}, c10::kLong);
  auto* length = lengths.data_ptr<int64_t>();
  length[rank()] = static_cast<int64_t>(bytes.size());
  run(number, [&] { return gloo_->all_reduce(lengths); });

  const int64_t longest = std::max<int64_t>(1, *std::max_element(length, length + size()));
  const at::Tensor mine = at::zeros({longest}, c10::kByte);
  std::memcpy(mine.data_ptr(), bytes.data(), bytes.size());
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < count; ++i) parts.push_back(at::empty({longest}, c10::kByte));
  run(number, [&] { return gloo_->all_gather(parts, mine); });
  signs_->set_met_all();

  std::vector<std::string> texts;
  for (size_t i = 0; i < count; ++i) {
    texts.emplace_back(static_cast<const char*>(parts[i].data_ptr()),
                       static_cast<size_t>(length[i]));
  }
  return texts;
}

void C10dGroup::barrier() {
  const int64_t number = begin("barrier");
  const at::Tensor token = at::zeros({1}, c10::kByte);
  run(number, [&] { return gloo_->all_reduce(token); });
  signs_->set_met_all();
}

void C10dGroup::leave(const std::string& reason) { leave(News::Kind::kFailed, reason); }

void C10dGroup::stop(const std::string& reason) { leave(News::Kind::kStopped, reason); }

void C10dGroup::leave(News::Kind kind, const std::string& reason) {
  if (left_.exchange(true)) return;
  signs_->leave(kind, reason);
}

}  // namespace

std::shared_ptr<ProcessGroup> make_c10d_group(const ProcessGroupOptions& options, Meeting meeting) {
  return std::make_shared<C10dGroup>(options, std::move(meeting));
}

}  // namespace tensorpack::detail
