// SPDX-License-Identifier: Apache-2.0
// Training one model on several batches at a time: where the towers are, whose variables they use,
// and how their gradients come together.
//
// Every tower takes a batch of its own from the input: a step trains on (batch) x (towers) x
// (processes) examples. Nothing is split.
#pragma once

#include <c10/core/Device.h>

#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "tensorpack/distributed/process_group.h"
#include "tensorpack/graph/exchange.h"
#include "tensorpack/parallel/process_exchange.h"
#include "tensorpack/tower/tower_context.h"

namespace tensorpack {

/// The devices of the towers, one for each: several towers may share a device.
class Devices {
 public:
  /// The one of the graph.
  Devices() = default;
  /// GPUs by number, as gpus().
  Devices(std::initializer_list<int> gpus);
  Devices(std::vector<c10::Device> devices) : devices_(std::move(devices)) {}  // NOLINT: implicit

  /// A number alone could be how many GPUs there are, or which one.
  template <std::integral Number>
  Devices(Number /*number*/) {  // NOLINT: implicit
    static_assert(!std::integral<Number>,
                  "A number alone does not name devices. Write Devices::first(n) for GPUs 0 to "
                  "n - 1, Devices::gpus({n}) for GPU n, or Devices::cpu(n) for towers on the CPU.");
  }

  /// GPUs 0 to count - 1.
  static Devices first(int count);
  /// GPUs by number.
  static Devices gpus(const std::vector<int>& numbers);
  /// So many towers on the CPU.
  static Devices cpu(int towers);
  /// All GPUs that can be seen, or one tower on the CPU where there are none.
  static Devices visible();

  const std::vector<c10::Device>& list() const { return devices_; }
  /// How many towers there are; at least one.
  size_t size() const { return devices_.empty() ? 1 : devices_.size(); }

 private:
  std::vector<c10::Device> devices_;
};

/// Whose variables the towers of a process use, and when these are updated.
enum class ParallelMode {
  kReplicated,       ///< a copy per tower; gradients are averaged, and every copy is updated alike
  kParameterServer,  ///< one set for all; averaged gradients are applied once
  kAsync,            ///< one set for all; every tower applies its own gradients, without waiting
};

struct DataParallel {
  Devices devices = {};
  ParallelMode mode = ParallelMode::kReplicated;
  /// Gradients are averaged over all towers and processes, otherwise added up. With kAsync: each
  /// tower's gradients are divided by the number of towers.
  bool average = true;
  /// kParameterServer and kAsync: where variables are kept, each on the device that has the fewest
  /// elements yet; all on the first tower's device if empty.
  std::vector<c10::Device> variable_devices = {};
  /// The processes that train together, each with these towers; null for this one alone.
  std::shared_ptr<ProcessGroup> processes = {};
  /// What gradients are cast to between processes.
  Compression compression = Compression::kNone;
  /// How much of the gradients is exchanged at a time; on CUDA more than kDefaultBucketBytes if
  /// empty.
  std::optional<int64_t> bucket_bytes = {};
  /// Whether copies of variables are made equal to those of the first tower of the first process at
  /// the end of every epoch, too, and not only before training. What is not trained by gradients,
  /// like moving averages, differs until then.
  bool sync_every_epoch = true;
  /// Whether the end of every epoch compares, bit by bit, what steps change alike in all towers and
  /// processes: trainable and global variables but not accumulated gradients. A difference is an
  /// Error. Turn it off where they round differently, as processors of different kinds may.
  bool check_equal = true;

  /// Whether gradients have to be exchanged at all.
  bool is_parallel() const {
    return devices.size() > 1 || (processes != nullptr && processes->size() > 1);
  }
};

/// Throws an Error for what cannot be done together.
void check(const DataParallel& parallel);

/// What a graph for these towers is made with. Of several processes, those without a seed take over
/// the chief's, so that one number repeats the run of all: each calls it at the same time.
GraphOptions with_devices(GraphOptions options, const DataParallel& parallel);

/// Tower number `index` of the process, in training.
TowerOptions tower_options(const DataParallel& parallel, int index);

/// A new exchange between all of them, for one op.
std::shared_ptr<ExchangeGroup> make_exchange(const DataParallel& parallel);

}  // namespace tensorpack
