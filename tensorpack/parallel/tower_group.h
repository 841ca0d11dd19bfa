// SPDX-License-Identifier: Apache-2.0
// What the exchanges between the towers of a process have in common.
//
// Note [A bucket's way]
// Every tower brings its tensors of a bucket in begin() and goes on. The last one to come does what
// can be done ahead (on_all_here). In end() a tower waits until all have come, and then has its
// averages made (deliver). Towers count themselves in and out by atomic counters, which are set
// back when no tower runs; locks are taken for a bucket's first step only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tensorpack/graph/exchange.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// An ExchangeGroup whose members are the towers of this process.
class TowerGroup : public ExchangeGroup {
 public:
  explicit TowerGroup(size_t towers);
  ~TowerGroup() override;

  Exchange& member(size_t index) final;
  void start() final;
  void abort(size_t index) final;

 protected:
  /// A tensor whose elements lie in one piece of memory, in any order of dimensions.
  struct Layout {
    std::vector<int64_t> sizes = {};
    std::vector<int64_t> strides = {};
    int64_t elements = 0;
  };

  /// What is exchanged under one key.
  struct Bucket {
    virtual ~Bucket() = default;
    std::vector<Layout> layouts = {};                    // of the tensors, in all towers
    std::vector<std::vector<at::Tensor>> given = {};     // by tower
    std::vector<std::vector<at::Tensor>> averages = {};  // by tower; the same in every step
    std::atomic<uint32_t> brought = 0;                   // how many towers have come
    std::atomic<uint32_t> is_ready = 0;   // 1 when all have, and on_all_here() has run
    std::atomic<uint32_t> delivered = 0;  // how many have their averages
  };

  size_t towers() const { return members_.size(); }

  virtual std::unique_ptr<Bucket> make_bucket() const { return std::make_unique<Bucket>(); }
  /// Where the averages of a tower will be: called once for each.
  virtual std::vector<at::Tensor> make_averages(Bucket& bucket, size_t index);
  /// On the thread of a tower that has brought its tensors.
  virtual void on_brought(Bucket& /*bucket*/, size_t /*index*/) {}
  /// On the thread of the tower that came last, when all have brought their tensors.
  virtual void on_all_here(Bucket& /*bucket*/) {}
  /// Makes the averages of a tower, on its thread, when all have come. What it does for others must
  /// be followed by wait_for_delivery().
  virtual void deliver(Bucket& bucket, size_t index) = 0;

  /// In deliver(): waits until all towers have come here.
  void wait_for_delivery(Bucket& bucket) const;
  virtual bool is_capturable() const { return false; }

 private:
  class Member;
  Bucket& find_or_make_bucket(int64_t key, at::TensorList tensors);

  std::vector<std::unique_ptr<Member>> members_;
  std::mutex mutex_;  // of what follows, while a member meets a bucket for the first time
  std::vector<std::unique_ptr<Bucket>> buckets_;  // by key
  bool is_aborted_ = false;
};

}  // namespace tensorpack
