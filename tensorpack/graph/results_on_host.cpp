// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/results_on_host.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensorpack/graph/host_copy.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

int64_t size_of(const at::Storage& storage) { return static_cast<int64_t>(storage.nbytes()); }

at::Tensor contents_of(const at::Storage& storage) {
  return at::empty({0}, at::TensorOptions(at::kByte).device(storage.device()))
      .set_(storage, 0, {size_of(storage)}, {1});
}

// What a storage contained, on the host, in pieces: page-locked memory comes in chunks of this
// size.
class Contents {
 public:
  explicit Contents(const at::Storage& storage) : bytes_(size_of(storage)) {
    const at::Tensor contents = contents_of(storage);
    for (int64_t begin = 0; begin < bytes_; begin += kPiece) {
      pieces_.push_back(host_copy(contents.narrow(0, begin, size_of_piece(begin))));
    }
  }

  at::Tensor on(c10::Device device) const {
    const at::Tensor fresh = at::empty({bytes_}, at::TensorOptions(at::kByte).device(device));
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const int64_t begin = static_cast<int64_t>(i) * kPiece;
      fresh.narrow(0, begin, size_of_piece(begin)).copy_(pieces_[i]);
    }
    return fresh;
  }

 private:
  static constexpr int64_t kPiece = int64_t{1} << 25;

  int64_t size_of_piece(int64_t begin) const { return std::min(kPiece, bytes_ - begin); }

  int64_t bytes_;
  std::vector<at::Tensor> pieces_;
};

template <typename Visit>
void for_each_storage(c10::ArrayRef<c10::IValue> values, const Visit& visit) {
  const auto look_at = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage()) visit(tensor.storage());
  };
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      look_at(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) look_at(tensor);
    } else if (value.isOptionalTensorList()) {
      for (const c10::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        if (tensor) look_at(*tensor);
      }
    } else if (value.isStorage()) {
      visit(value.toStorage());
    }
  }
}

thread_local std::optional<ResultsOnHostOptions> options_of_functions;

// Autograd may call it from threads of its own.
class Swap final : public OperatorWatch {
 public:
  Swap(c10::Device device, ResultsOnHostOptions options)
      : device_(device), options_(options), limit_(options.enough_on_device) {}

  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
           torch::jit::Stack* stack) override {
    std::vector<const void*> used;
    {
      const std::lock_guard lock(mutex_);
      for_each_storage(torch::jit::last(*stack, op.schema().arguments().size()),
                       [&](const at::Storage& storage) {
                         begin_use(storage);
                         used.push_back(storage.unsafeGetStorageImpl());
                       });
    }
    const auto end_uses = [&] {
      for (const void* address : used) --seen_.at(address).uses;
    };
    try {
      pass_on(op, below, stack);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      end_uses();
      throw;
    }
    const std::lock_guard lock(mutex_);
    end_uses();
    for_each_storage(torch::jit::last(*stack, op.schema().returns().size()),
                     [&](const at::Storage& storage) { add(storage, /*is_result=*/true); });
    if (most_added_ > limit_) move_to_host();
  }

  void bring_all_back() {
    const Unwatched unwatched;
    const std::lock_guard lock(mutex_);
    for (auto& [address, memory] : seen_) {
      if (memory.is_on_host && !memory.storage.expired()) {
        bring_back(at::Storage(memory.storage.lock()), memory);
      }
    }
  }

  ResultsOnHost came_to() const { return came_to_; }

 private:
  // The weak reference keeps the address from being used again, yet lets the memory go.
  struct Memory {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    bool is_result = false;  // made by an operator that was seen: nobody else knows it
    bool is_on_host = false;
    int uses = 0;  // by operators that are running
    int64_t last_use = 0;
  };

  Memory& add(const at::Storage& storage, bool is_result) {
    const auto [found, is_new] =
        seen_.try_emplace(storage.unsafeGetStorageImpl(),
                          Memory{.storage = storage.getWeakStorageImpl(), .is_result = is_result});
    if (is_new && is_result) most_added_ += size_of(storage);
    found->second.last_use = ++clock_;
    return found->second;
  }

  void begin_use(const at::Storage& storage) {
    Memory& memory = add(storage, /*is_result=*/false);
    ++memory.uses;
    bring_back(storage, memory);
  }

  // Memory that is not resizable is only looked at, and somebody else's.
  bool may_move(const at::Storage& storage, const Memory& memory) const {
    return memory.uses == 0 && storage.resizable() && size_of(storage) >= options_.smallest_bytes;
  }

  // What was used longest ago first, until no more than the share is left.
  void move_to_host() {
    struct Candidate {
      at::Storage storage;
      Memory* memory;
    };
    std::vector<Candidate> candidates;
    int64_t all = 0, on_device = 0;
    for (auto entry = seen_.begin(); entry != seen_.end();) {
      Memory& memory = entry->second;
      if (memory.storage.expired() && memory.uses == 0) {
        entry = seen_.erase(entry);
        continue;
      }
      ++entry;
      const at::Storage storage(memory.storage.lock());
      if (!storage || !memory.is_result || storage.device() != device_) continue;
      all += size_of(storage);
      if (memory.is_on_host) continue;
      on_device += size_of(storage);
      if (may_move(storage, memory)) candidates.push_back({storage, &memory});
    }
    came_to_.most = std::max(came_to_.most, all);
    limit_ = std::max(
        {options_.enough_on_device, came_to_.most - options_.most_on_host,
         static_cast<int64_t>(options_.share_on_device * static_cast<double>(came_to_.most))});
    if (on_device > limit_) {
      std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
        return a.memory->last_use < b.memory->last_use;
      });
    }
    for (const Candidate& candidate : candidates) {
      if (on_device <= limit_) break;
      on_device -= move_to_host(candidate.storage, *candidate.memory);
    }
    came_to_.most_on_device = std::max(came_to_.most_on_device, on_device);
    most_added_ = on_device;
  }

  // The storage owns what it contained, on the host. Returns how many bytes that are.
  int64_t move_to_host(const at::Storage& storage, Memory& memory) {
    const at::NoGradGuard no_grad;
    const int64_t bytes = size_of(storage);
    if (device_.is_cuda()) HostCopiesAhead::want(bytes);  // as much is likely to follow
    auto contents = std::make_unique<Contents>(storage);
    storage.set_data_ptr(at::DataPtr(
        nullptr, contents.release(), [](void* those) { delete static_cast<Contents*>(those); },
        device_));
    memory.is_on_host = true;
    came_to_.moved += bytes;
    return bytes;
  }

  void bring_back(const at::Storage& storage, Memory& memory) {
    if (!memory.is_on_host) return;
    const at::NoGradGuard no_grad;
    const auto* contents = static_cast<const Contents*>(storage.data_ptr().get_context());
    storage.set_data_ptr(contents->on(device_).storage().set_data_ptr(at::DataPtr()));
    memory.is_on_host = false;
    most_added_ += size_of(storage);
  }

  const c10::Device device_;
  const ResultsOnHostOptions options_;
  std::mutex mutex_;
  std::unordered_map<const void*, Memory> seen_;
  int64_t clock_ = 0;
  int64_t limit_;           // of results on the device
  int64_t most_added_ = 0;  // no fewer than are there: those that were let go are not noticed
  ResultsOnHost came_to_;
};

}  // namespace

ResultsOnHostScope::ResultsOnHostScope(std::optional<ResultsOnHostOptions> options)
    : before_(std::exchange(options_of_functions, options)) {}

ResultsOnHostScope::~ResultsOnHostScope() { options_of_functions = before_; }

NamedTensors ResultsOnHostScope::run(const std::function<NamedTensors()>& function,
                                     c10::Device device) {
  if (!options_of_functions) return function();
  NamedTensors results;
  const ResultsOnHost came_to =
      run_with_results_on_host([&] { results = function(); }, device, *options_of_functions);
  const auto say = [](int64_t bytes) { return humanize_bytes(static_cast<std::uint64_t>(bytes)); };
  logging::debug("Of {} of a function's results {} were on {} at once.", say(came_to.most),
                 say(came_to.most_on_device), device.str());
  return results;
}

ResultsOnHost run_with_results_on_host(const std::function<void()>& function, c10::Device device,
                                       ResultsOnHostOptions options) {
  const auto swap = std::make_shared<Swap>(device, options);
  try {
    const WatchScope watch(swap);
    function();
  } catch (...) {
    swap->bring_all_back();
    throw;
  }
  swap->bring_all_back();
  return swap->came_to();
}

}  // namespace tensorpack
