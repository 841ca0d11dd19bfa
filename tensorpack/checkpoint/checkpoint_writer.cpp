// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/checkpoint_writer.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tensorpack/checkpoint/non_finite.h"
#include "tensorpack/utils/copy_bytes.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/share_work.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/thread.h"
#include "tensorpack/utils/wait_for_device.h"

namespace tensorpack {
namespace {

// How many checkpoints are being written in this process.
struct Pending {
  std::mutex mutex;
  std::condition_variable none;
  int count = 0;
};

Pending& pending() {
  static Pending* const instance = new Pending;  // threads may still use it when the program ends
  return *instance;
}

struct CountAsPending {
  CountAsPending() {
    const std::lock_guard lock(pending().mutex);
    ++pending().count;
  }
  ~CountAsPending() {
    const std::lock_guard lock(pending().mutex);
    if (--pending().count == 0) pending().none.notify_all();
  }
  CountAsPending(const CountAsPending&) = delete;
  CountAsPending& operator=(const CountAsPending&) = delete;
};

// As the tensor lies in memory, so that copying is nothing but moving bytes; locked in memory where
// a device copies to it.
at::Tensor buffer_for(const at::Tensor& tensor) {
  const auto options = tensor.options().device(at::kCPU).pinned_memory(tensor.is_cuda());
  return at::zeros_like(tensor, options, at::MemoryFormat::Preserve);  // zeros, to have the pages
}

bool fits(const at::Tensor& buffer, const at::Tensor& tensor) {
  return buffer.defined() && buffer.sizes() == tensor.sizes() &&
         buffer.scalar_type() == tensor.scalar_type();
}

bool can_be_copied(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided;
}

struct Bytes {
  void* to;
  const void* from;
  size_t count;
};

// Whether to copy a tensor is to copy one range of bytes.
bool lies_alike(const at::Tensor& buffer, const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_non_overlapping_and_dense() && !tensor.is_conj() &&
         !tensor.is_neg() && buffer.strides() == tensor.strides();
}

// In small pieces, so that all threads have something to do to the end.
void split(std::vector<Bytes>& pieces, Bytes bytes) {
  constexpr size_t kPiece = size_t{1} << 20;
  for (size_t at = 0; at < bytes.count; at += kPiece) {
    pieces.push_back({static_cast<char*>(bytes.to) + at, static_cast<const char*>(bytes.from) + at,
                      std::min(kPiece, bytes.count - at)});
  }
}

// Until what was started on these devices has arrived.
void synchronize(const std::vector<c10::Device>& devices) {
  for (const c10::Device& device : devices) {
    const c10::impl::VirtualGuardImpl backend(device.type());
    c10::Event copied(device.type());
    copied.record(backend.getStream(device));
    wait_for(copied);
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(Write write, CheckpointWriterOptions options)
    : write_(std::move(write)), options_(std::move(options)) {
  TP_CHECK(options_.retries >= 0 && options_.seconds_between_retries >= 0, "CheckpointWriter",
           "retries {} and seconds_between_retries {} must not be negative.", options_.retries,
           options_.seconds_between_retries);
}

CheckpointWriter::CheckpointWriter(CheckpointDirectory directory, CheckpointWriterOptions options)
    : CheckpointWriter(
          [directory = std::move(directory)](const Checkpoint& checkpoint) mutable {
            logging::info("Model saved to '{}'.", directory.save(checkpoint).string());
          },
          std::move(options)) {}

CheckpointWriter::~CheckpointWriter() { wait(); }

void CheckpointWriter::reserve(const NamedTensors& variables) {
  if (!options_.background) return;
  wait();
  for (const auto& [name, tensor] : variables) {
    if (can_be_copied(tensor) && !fits(copies_[name], tensor)) copies_[name] = buffer_for(tensor);
  }
}

NamedTensors CheckpointWriter::copy(const NamedTensors& variables) {
  reserve(variables);
  const at::NoGradGuard no_grad;
  NamedTensors copied;
  std::vector<c10::Device> devices;  // that copy by themselves
  std::vector<Bytes> pieces;         // for our threads to copy
  for (const auto& [name, tensor] : variables) {
    if (!can_be_copied(tensor)) {
      copied.emplace(name, tensor);
      continue;
    }
    at::Tensor& buffer = copies_.at(name);
    copied.emplace(name, buffer);
    if (lies_alike(buffer, tensor)) {
      split(pieces, {buffer.data_ptr(), tensor.data_ptr(), tensor.nbytes()});
      continue;
    }
    buffer.copy_(tensor, /*non_blocking=*/true);
    const bool is_new = std::find(devices.begin(), devices.end(), tensor.device()) == devices.end();
    if (!tensor.is_cpu() && is_new) devices.push_back(tensor.device());
  }
  const size_t threads = pieces.size() / 8;  // else starting them takes longer than copying
  share_work(pieces.size(), threads, [&](size_t i) {
    copy_bytes_past_caches(pieces[i].to, pieces[i].from, pieces[i].count);
  });
  synchronize(devices);
  return copied;
}

void CheckpointWriter::save(Checkpoint checkpoint) {
  wait();
  failure_.clear();
  is_refused_ = false;
  if (!options_.background) {
    failure_ = write_or_refuse(checkpoint);
    return;
  }
  checkpoint.variables = copy(checkpoint.variables);
  writing_ = std::async(std::launch::async, [this, checkpoint = std::move(checkpoint),
                                             count = std::make_unique<CountAsPending>()]() mutable {
    const auto until_done = std::move(count);
    set_thread_name("checkpoint");
    single_threaded_ops();
    return write_or_refuse(checkpoint);
  });
}

std::string CheckpointWriter::wait() {
  if (writing_.valid()) failure_ = writing_.get();
  return failure_;
}

void CheckpointWriter::allow_non_finite(std::set<std::string> names) {
  wait();
  may_be_non_finite_ = std::move(names);
}

void CheckpointWriter::check_not_refused() {
  if (!is_refused_.load(std::memory_order_relaxed)) return;
  const std::string refusal = wait();
  failure_.clear();
  is_refused_ = false;
  throw make_error(options_.owner,
                   "{} Training ends, because it cannot get rid of them, and would go on without "
                   "being saved. Go on from the checkpoint before, with a smaller learning rate or "
                   "clipped gradients; CheckNumerics finds the operator they come from.",
                   refusal);
}

std::string CheckpointWriter::write_or_refuse(const Checkpoint& checkpoint) {
  std::vector<std::string> names = find_non_finite(checkpoint.variables);
  std::erase_if(names, [&](const std::string& name) { return may_be_non_finite_.contains(name); });
  if (names.empty()) return try_to_write(checkpoint);
  constexpr size_t kMost = 8;
  const std::string others =
      names.size() > kMost ? fmt::format(" and {} more", names.size() - kMost) : "";
  const int64_t count = std::ssize(names);
  names.resize(std::min(names.size(), kMost));
  const std::string refusal = fmt::format(
      "the checkpoint of step {} was not saved: {} of it {} NaN or infinite numbers ({}{}). The "
      "one "
      "before stays the newest. Where such numbers are right, name the variable in "
      ".may_be_non_finite.",
      checkpoint.global_step, counted(count, "variable"), count == 1 ? "has" : "have", join(names),
      others);
  logging::error("[{}] {}", options_.owner, refusal);
  is_refused_ = true;
  return refusal;
}

// Returns why it failed; nothing may be thrown out of a thread.
std::string CheckpointWriter::try_to_write(const Checkpoint& checkpoint) {
  for (int64_t attempt = 0;; ++attempt) {
    try {
      write_(checkpoint);
      return "";
    } catch (const std::exception& error) {
      if (attempt == options_.retries) {
        const std::string failure = fmt::format("the checkpoint of step {} was not saved: {}",
                                                checkpoint.global_step, error.what());
        logging::error("[{}] {}", options_.owner, failure);
        return failure;
      }
      logging::warning("[{}] {} It is tried again.", options_.owner, error.what());
      std::this_thread::sleep_for(std::chrono::duration<double>(options_.seconds_between_retries));
    }
  }
}

void wait_for_checkpoints() {
  std::unique_lock lock(pending().mutex);
  pending().none.wait(lock, [] { return pending().count == 0; });
}

}  // namespace tensorpack
