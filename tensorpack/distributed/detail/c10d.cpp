// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/distributed/detail/c10d.h"

// libtorch declares only what it was told to be built with. Gloo is in every build for Linux.
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#if defined(TENSORPACK_HAS_NCCL) && !defined(USE_C10D_NCCL)
#define USE_C10D_NCCL
#endif

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef TENSORPACK_HAS_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <mutex>
#include <thread>
#include <utility>

#include "tensorpack/distributed/detail/network.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/torch_compat.h"

namespace tensorpack::detail {

namespace {

using Milliseconds = std::chrono::milliseconds;

#if TORCH_VERSION_MAJOR >= 2
using C10dGroup = c10d::Backend;
#else
using C10dGroup = c10d::ProcessGroup;
#endif

std::vector<uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string to_text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

class C10dStore final : public SharedStore {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override {
    store_->set(key, to_bytes(value));
  }
  std::string get(const std::string& key) override { return to_text(store_->get(key)); }
  bool has(const std::vector<std::string>& keys) override { return store_->check(keys); }
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(key, amount); }
  std::string set_first(const std::string& key, const std::string& value) override {
    return to_text(store_->compareSet(key, {}, to_bytes(value)));
  }

  const c10::intrusive_ptr<c10d::Store>& get() const { return store_; }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

c10::intrusive_ptr<c10d::Store> c10d_store(const TransportOptions& options,
                                           const std::string& prefix) {
  const auto& store = dynamic_cast<C10dStore&>(*options.store);
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store.get());
}

class C10dTransfer : public Transfer {
 public:
  explicit C10dTransfer(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}

  bool wait(Milliseconds at_most) override {
    if (takes_long_) return poll(at_most);
    try {
      work_->wait(at_most);
      return true;
    } catch (const std::exception&) {
      // Too long and failed are both told by an exception, which costs milliseconds to make.
      takes_long_ = true;
      return poll(Milliseconds(0));
    }
  }
  bool done() override { return work_->isCompleted(); }

 protected:
  c10d::Work& work() { return *work_; }

 private:
  bool poll(Milliseconds at_most) {
    const auto until = std::chrono::steady_clock::now() + at_most;
    while (!work_->isCompleted()) {
      if (std::chrono::steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(Milliseconds(1));
    }
    return work_->wait();
  }

  bool takes_long_ = false;
  c10::intrusive_ptr<c10d::Work> work_;
};

/// What c10d's process groups have in common.
template <typename TransferType>
class C10dTransport : public Transport {
 public:
  std::unique_ptr<Transfer> all_reduce(at::Tensor tensor) override {
    std::vector<at::Tensor> tensors = {std::move(tensor)};
    const auto lock = lock_start();
    return std::make_unique<TransferType>(group().allreduce(tensors));
  }
  std::unique_ptr<Transfer> broadcast(at::Tensor tensor, int root) override {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> tensors = {std::move(tensor)};
    const auto lock = lock_start();
    return std::make_unique<TransferType>(group().broadcast(tensors, options));
  }
  std::unique_ptr<Transfer> all_gather(std::vector<at::Tensor> parts, at::Tensor mine) override {
    std::vector<std::vector<at::Tensor>> outputs = {std::move(parts)};
    std::vector<at::Tensor> inputs = {std::move(mine)};
    const auto lock = lock_start();
    return std::make_unique<TransferType>(group().allgather(outputs, inputs));
  }

 protected:
  virtual C10dGroup& group() = 0;
  /// What is held while a collective starts.
  virtual std::unique_lock<std::mutex> lock_start() { return {}; }
};

class GlooTransport final : public C10dTransport<C10dTransfer> {
 public:
  explicit GlooTransport(c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo)
      : gloo_(std::move(gloo)) {}

  bool can_reduce(c10::ScalarType dtype) const override {
    switch (dtype) {
      case c10::kFloat:
      case c10::kDouble:
      case c10::kHalf:
      case c10::kByte:
      case c10::kChar:
      case c10::kInt:
      case c10::kLong:
        return true;
      default:
        return false;
    }
  }

 private:
  C10dGroup& group() override { return *gloo_; }
  // All groups of a process share c10d's flight recorder, which enters each group into a std::map
  // without a lock: groups that start their first collectives at once crash or loop for ever
  // (pytorch #179313, seen with 2.11). Gloo only enqueues here, so the lock is held for
  // microseconds.
  std::unique_lock<std::mutex> lock_start() override {
    static std::mutex recorder;
    return std::unique_lock(recorder);
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
};

// From 2.4 on libtorch's store has libuv serve it by default, which some builds lack (that of
// Debian 13). The other server is in every build.
template <typename Options>
void serve_without_libuv(Options& options) {
  if constexpr (requires { options.useLibUV; }) options.useLibUV = false;
}

}  // namespace

std::shared_ptr<SharedStore> open_store(const StoreOptions& options) {
  c10d::TCPStoreOptions tcp;
  serve_without_libuv(tcp);
  tcp.port = static_cast<uint16_t>(options.port);
  tcp.isServer = options.host;
  tcp.waitWorkers = false;
  tcp.timeout = options.timeout;
  return std::make_shared<C10dStore>(c10::make_intrusive<c10d::PrefixStore>(
      options.prefix, c10::make_intrusive<c10d::TCPStore>(options.address, tcp)));
}

// TCPStore waits without a limit for an answer, and before 2.1 a thread of its own throws at what
// it does not expect. So the first question is asked by a socket of ours.
std::string reason_not_store(const std::string& address, int port,
                             std::chrono::steady_clock::time_point deadline) {
  const std::string question = tcp_store_question();
  if (question.empty()) return "";
  return check_answer(address, port, question, std::string(1, '\0'), deadline);
}

std::shared_ptr<SharedStore> local_store() {
  return std::make_shared<C10dStore>(c10::make_intrusive<c10d::HashStore>());
}

std::unique_ptr<Transport> make_gloo(const TransportOptions& options) {
  auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
  // Gloo by itself binds what the name of the host resolves to, often 127.0.0.1, where nobody else
  // reaches it.
  if (const auto interface = env("GLOO_SOCKET_IFNAME")) {
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(*interface));
  } else {
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
  }
  gloo->threads = 2;
  return std::make_unique<GlooTransport>(c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10d_store(options, "gloo"), options.rank, options.size, gloo));
}

#ifdef TENSORPACK_HAS_NCCL

namespace {

class NcclTransfer final : public C10dTransfer {
 public:
  using C10dTransfer::C10dTransfer;
  // A time limit would make NCCL's wait block the thread until the device is done.
  bool wait(Milliseconds /*at_most*/) override { return work().wait(); }
};

class NcclTransport final : public C10dTransport<NcclTransfer> {
 public:
  explicit NcclTransport(c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl)
      : nccl_(std::move(nccl)) {}
  ~NcclTransport() override {
#if TORCH_VERSION_MAJOR >= 2
    if (nccl_) nccl_->shutdown();
#endif
  }

  bool can_reduce(c10::ScalarType dtype) const override {
    return dtype != c10::kBool && dtype != c10::kShort;
  }
  void interrupt() override {
#if TORCH_VERSION_MAJOR >= 2
    nccl_->abort();
#endif
  }

 private:
  C10dGroup& group() override { return *nccl_; }

  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_;
};

}  // namespace

bool has_nccl() { return true; }

std::unique_ptr<Transport> make_nccl(const TransportOptions& options) {
  auto nccl = c10d::ProcessGroupNCCL::Options::create();
  nccl->timeout = options.timeout;
  return std::make_unique<NcclTransport>(c10::make_intrusive<c10d::ProcessGroupNCCL>(
      c10d_store(options, "nccl"), options.rank, options.size, nccl));
}

#else

bool has_nccl() { return false; }

std::unique_ptr<Transport> make_nccl(const TransportOptions& /*options*/) {
  throw make_error("ProcessGroup",
                   "this build has no NCCL. Build with a libtorch for CUDA and NCCL's header "
                   "nccl.h, or use Gloo.");
}

#endif

}  // namespace tensorpack::detail
