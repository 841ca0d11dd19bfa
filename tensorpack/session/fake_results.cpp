// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/fake_results.h"

#include <ATen/ATen.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include "tensorpack/graph/captured_tensor.h"
#include "tensorpack/graph/interpreter.h"
#include "tensorpack/graph/operator_facts.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/graph/random_stream.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

constexpr int64_t kAlignment = 64;

bool has_plain_memory(const Value& value) { return value.storage_bytes >= 0; }

// Its results are arguments, or parts of their memory.
bool is_view(const c10::OperatorHandle& op) {
  static const std::set<std::string> undeclared = {
      "aten::_unsafe_view",
      "aten::unsafe_chunk",
      "aten::unsafe_split",
      "aten::unsafe_split_with_sizes",
  };
  if (undeclared.contains(op.operator_name().name)) return true;
  const auto& returns = op.schema().returns();
  return !returns.empty() && std::all_of(returns.begin(), returns.end(), [](const auto& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

}  // namespace

// Addresses that read as 0 and take no memory as long as nothing is written to them.
class FakeResults::Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(std::max(bytes, kAlignment)) {
    void* const start = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TP_CHECK(start != MAP_FAILED, "verify", "there are no addresses for {} bytes of results.",
             bytes);
    start_ = static_cast<char*>(start);
  }
  ~Memory() { munmap(start_, static_cast<size_t>(bytes_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  static int64_t aligned(int64_t bytes) {
    return (bytes + kAlignment) / kAlignment * kAlignment;  // of an empty tensor, too
  }
  int64_t bytes_left() const { return bytes_ - used_; }
  /// Whether anyone has read or written what was taken: then a page was put there.
  bool was_looked_at() const {
    if (used_ == 0) return false;
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> pages((static_cast<size_t>(used_) + page - 1) / page);
    if (mincore(start_, static_cast<size_t>(used_), pages.data()) != 0) return true;
    return std::any_of(pages.begin(), pages.end(), [](unsigned char is) { return (is & 1) != 0; });
  }
  bool contains(const void* address) const {
    return address >= start_ && address < start_ + bytes_;
  }
  char* take(int64_t bytes) { return start_ + std::exchange(used_, used_ + aligned(bytes)); }

 private:
  int64_t bytes_;
  char* start_ = nullptr;
  int64_t used_ = 0;
};

FakeResults::FakeResults(const Trace& trace) : trace_(trace) {
  for (const Node& node : trace.nodes) {
    std::optional<Call> call = call_of(node);
    if (!call) continue;
    bytes_ += call->bytes;
    std::vector<Call>& known = calls_[&node.op.schema()];
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const Call& other) {
      return have_equal_shapes(*other.node, node);
    });
    if (!is_known) known.push_back(std::move(*call));
  }
}

std::shared_ptr<FakeResults::Memory> FakeResults::reserve() const {
  return std::make_shared<Memory>(bytes_);
}

std::optional<FakeResults::Call> FakeResults::call_of(const Node& node) const {
  if (node.is_view || node.changes_metadata ||
      leaves_result_uninitialised(node.op.operator_name().name)) {
    return std::nullopt;
  }
  bool are_plain = true;
  node.for_each_argument([&](ValueId id) { are_plain &= has_plain_memory(value(id)); });
  if (!are_plain) return std::nullopt;
  Call call{&node};
  for (const Result& result : node.results) {
    if (result.ids.empty() && !result.is_list) return std::nullopt;  // not a tensor
    std::vector<Source>& sources = call.results.emplace_back();
    for (const ValueId id : result.ids) {
      const std::optional<Source> source = source_of(node, id);
      if (!source) return std::nullopt;
      sources.push_back(*source);
      if (source->shape == kNoValue) continue;
      call.bytes += Memory::aligned(value(source->shape).storage_bytes);
    }
  }
  return call;
}

std::optional<FakeResults::Source> FakeResults::source_of(const Node& node, ValueId id) const {
  if (id == kNoValue) return Source{};
  const auto& arguments = node.op.schema().arguments();
  std::optional<Source> found;
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const std::vector<ValueId>& ids = node.arguments[i].ids;
    const auto position = std::find(ids.begin(), ids.end(), id);
    if (position == ids.end()) continue;
    const bool is_written =
        arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
    if (!found || is_written) {
      found = Source{.argument = static_cast<int32_t>(i),
                     .position = static_cast<int32_t>(position - ids.begin())};
    }
    if (is_written) break;
  }
  if (found) return found;
  // New memory, that of this result alone.
  const StorageId storage = value(id).storage;
  int sharing = 0;
  node.for_each_argument(
      [&](ValueId other) { sharing += value(other).storage == storage ? 1 : 0; });
  node.for_each_result([&](ValueId other) { sharing += value(other).storage == storage ? 1 : 0; });
  if (sharing != 1 || !has_plain_memory(value(id))) return std::nullopt;
  return Source{.shape = id};
}

bool FakeResults::has_shape_of(const at::Tensor& tensor, ValueId id) const {
  if (id == kNoValue || !tensor.defined()) return id == kNoValue && !tensor.defined();
  const Value& recorded = value(id);
  return tensor.layout() == at::kStrided && tensor.sizes() == recorded.sizes &&
         tensor.strides() == recorded.strides && tensor.dtype() == recorded.options.dtype() &&
         tensor.device() == recorded.options.device() && !tensor.is_conj() && !tensor.is_neg() &&
         is_wrapped_number(tensor) == is_wrapped_number(recorded.tensor);
}

bool FakeResults::have_shapes_of(const c10::IValue& tensors, const Argument& argument) const {
  const auto are_equal = [&](const auto& list, auto tensor_of) {
    if (list.size() != argument.ids.size()) return false;
    for (size_t i = 0; i < list.size(); ++i) {
      if (!has_shape_of(tensor_of(list[i]), argument.ids[i])) return false;
    }
    return true;
  };
  switch (argument.kind) {
    case Argument::Kind::kTensor:
      return tensors.isTensor() && has_shape_of(tensors.toTensor(), argument.ids[0]);
    case Argument::Kind::kTensorList:
      return tensors.isTensorList() &&
             are_equal(tensors.toTensorVector(), [](const at::Tensor& tensor) { return tensor; });
    case Argument::Kind::kOptionalTensorList:
      return tensors.isOptionalTensorList() &&
             are_equal(tensors.toOptionalTensorVector(),
                       [](const auto& tensor) { return tensor.value_or(at::Tensor()); });
    case Argument::Kind::kLiteral:
      break;
  }
  return is_same_literal(argument.literal, tensors);
}

bool FakeResults::is_call_of(const Node& node, c10::ArrayRef<c10::IValue> arguments) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!have_shapes_of(arguments[i], node.arguments[i])) return false;
  }
  return true;
}

bool FakeResults::have_equal_shapes(const Node& a, const Node& b) const {
  const auto is_equal = [&](ValueId x, ValueId y) {
    if (x == kNoValue || y == kNoValue) return x == y;
    return value(x).sizes == value(y).sizes && value(x).strides == value(y).strides &&
           value(x).options.dtype() == value(y).options.dtype() &&
           value(x).options.device() == value(y).options.device() &&
           is_wrapped_number(value(x).tensor) == is_wrapped_number(value(y).tensor);
  };
  return std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end(),
                    [&](const Argument& x, const Argument& y) {
                      return x.kind == y.kind &&
                             std::equal(x.ids.begin(), x.ids.end(), y.ids.begin(), y.ids.end(),
                                        is_equal) &&
                             is_same_literal(x.literal, y.literal);
                    });
}

const FakeResults::Call* FakeResults::find_call(const c10::OperatorHandle& op,
                                                c10::ArrayRef<c10::IValue> arguments) const {
  const auto known = calls_.find(&op.schema());
  if (known == calls_.end()) return nullptr;
  const auto call =
      std::find_if(known->second.begin(), known->second.end(),
                   [&](const Call& other) { return is_call_of(*other.node, arguments); });
  return call == known->second.end() ? nullptr : &*call;
}

std::vector<c10::IValue> FakeResults::results_of(const Call& call,
                                                 c10::ArrayRef<c10::IValue> arguments,
                                                 const std::shared_ptr<Memory>& memory) const {
  const auto tensor_from = [&](const Source& source) -> at::Tensor {
    if (source.argument >= 0) {
      const c10::IValue& argument = arguments[static_cast<size_t>(source.argument)];
      const auto position = static_cast<size_t>(source.position);
      if (argument.isTensor()) return argument.toTensor();
      if (argument.isTensorList()) return argument.toTensorVector()[position];
      return *argument.toOptionalTensorVector()[position];
    }
    if (source.shape == kNoValue) return {};
    const Value& shape = value(source.shape);
    return at::for_blob(memory->take(shape.storage_bytes), shape.sizes)
        .strides(shape.strides)
        .deleter([memory](void*) {})
        .options(shape.options)
        .target_device(shape.options.device())
        .make_tensor();
  };
  std::vector<c10::IValue> results;
  for (size_t i = 0; i < call.results.size(); ++i) {
    std::vector<at::Tensor> tensors;
    for (const Source& source : call.results[i]) tensors.push_back(tensor_from(source));
    if (call.node->results[i].is_list) {
      results.emplace_back(std::move(tensors));
    } else {
      results.emplace_back(std::move(tensors.at(0)));
    }
  }
  return results;
}

namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// Whether the operator runs within a LendState (see random_stream.h): one cannot be in another.
bool is_lent_state(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!draws_random_numbers(op) || !DrawFrom::current().defined()) return false;
  const std::optional<size_t> generator = generator_argument(op);
  const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
  return !generator || arguments[*generator].isNone();
}

// Where a tensor lies. Keeps neither it nor its memory, as autograd and the recorder ask for the
// number of their owners.
struct Place {
  WeakStorage storage;
  int64_t offset;
  const void* address() const { return storage._unsafe_get_target(); }
};

std::vector<Place> places_of(c10::ArrayRef<c10::IValue> values) {
  std::vector<Place> places;
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    places.push_back({tensor.storage().getWeakStorageImpl(), tensor.storage_offset()});
  };
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
    } else if (value.isOptionalTensorList()) {
      for (const auto& tensor : value.toOptionalTensorVector()) add(tensor.value_or(at::Tensor()));
    }
  }
  return places;
}

// Autograd may call it from threads of its own.
class FakeRun final : public OperatorWatch {
 public:
  FakeRun(const Op& op, const std::vector<at::Tensor>& inputs, const FakeResults& results,
          StateGuard& guard)
      : op_(op), results_(results), guard_(guard), memory_(results.reserve()) {
    for (const at::Tensor& input : inputs) stays_.insert(input.data_ptr());
  }

  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
           torch::jit::Stack* stack) override {
    const std::string& name = op.operator_name().name;
    const bool is_empty = leaves_result_uninitialised(name);
    {
      const std::lock_guard lock(mutex_);
      if (!has_computed_ && fake(op, stack)) return;
      const bool is_real = is_empty || is_view(op) || reads_only_metadata(name);
      if (!has_computed_ && (!is_real || changes_metadata(op))) {
        compute("it calls " + name_of(op), is_lent_state(op, *stack));
      }
    }
    pass_on(op, below, stack);
    if (!is_empty) return;
    const std::lock_guard lock(mutex_);
    if (has_computed_) return;
    for (const Place& place : places_of(torch::jit::last(*stack, op.schema().returns().size()))) {
      made_.emplace(place.address(), Made{place.storage});
    }
  }

  /// Whether a result is still there, when the function has returned.
  bool has_kept_results() const { return memory_.use_count() > 1; }

  /// Makes up for the calls so far. From now on operators compute. `has_lent_state`: what they draw
  /// from libtorch's default generator counts where it should.
  void compute(const std::string& reason, bool has_lent_state) {
    logging::debug("Op '{}' computes to be compared: {}.", op_.name(), reason);
    const Unwatched unwatched;
    const at::NoGradGuard no_grad;
    has_computed_ = true;
    guard_.save_what_is_written_by(results_.trace());
    std::unordered_map<const void*, const Deferred*> last_uses;
    for (const Deferred& call : calls_) {
      for (const Place& place : call.arguments) last_uses[place.address()] = &call;
    }
    for (const Deferred& call : calls_) {
      make_up_for(call, has_lent_state);
      for (const Place& place : call.arguments) {
        if (last_uses.at(place.address()) == &call) made_.erase(place.address());
      }
    }
    calls_.clear();
    made_.clear();
  }
  void compute_what_is_kept(const Recording& recording) {
    try {
      compute("it keeps a result", false);
    } catch (...) {
      recording.foreign.restore();
      throw;
    }
    recording.foreign.restore();
  }
  bool has_computed() const { return has_computed_; }
  bool was_looked_at() const { return memory_->was_looked_at(); }

 private:
  struct Deferred {
    const FakeResults::Call* call;
    std::vector<Place> arguments;  // of those that are tensors
    std::vector<Place> results;
  };
  // Memory that was made for nothing but this call of the function.
  struct Made {
    WeakStorage storage;
    at::Storage contents = {};  // where nobody else has them; nothing of what empty() made
  };

  // What the operator returns; false if that is not known.
  bool fake(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const auto arguments = torch::jit::last(*stack, count);
    const FakeResults::Call* const call = results_.find_call(op, arguments);
    if (call == nullptr || call->bytes > memory_->bytes_left()) return false;
    copy_what_may_go(arguments);
    std::vector<c10::IValue> results = results_.results_of(*call, arguments, memory_);
    calls_.push_back({call, places_of(arguments), places_of(results)});
    torch::jit::drop(*stack, count);
    for (c10::IValue& result : results) stack->push_back(std::move(result));
    return true;
  }

  // Memory of the host that a tensor only refers to, as one of from_blob() does, which the recorder
  // keeps a copy of.
  void copy_what_may_go(c10::ArrayRef<c10::IValue> arguments) {
    for (const Place& place : places_of(arguments)) {
      const at::Storage storage(place.storage.lock());
      const bool is_referred_to = storage.allocator() == nullptr && storage.device().is_cpu() &&
                                  !memory_->contains(storage.data());
      if (!is_referred_to || stays_.contains(storage.data())) continue;
      if (made_.contains(place.address())) continue;
      const auto bytes = static_cast<int64_t>(storage.nbytes());
      at::Tensor copy =
          at::from_blob(const_cast<void*>(storage.data()), {bytes}, at::kByte).clone();
      made_.emplace(place.address(), Made{place.storage, copy.storage()});
    }
  }

  void make_up_for(const Deferred& call, bool has_lent_state) {
    Node node = *call.call->node;
    if (has_lent_state) node.generator = {};
    std::vector<c10::IValue> slots;
    for (Argument& argument : node.arguments) {
      for (ValueId& id : argument.ids) {
        if (id == kNoValue) continue;
        slots.emplace_back(tensor_at(call.arguments[slots.size()], id));
        id = static_cast<ValueId>(slots.size()) - 1;
      }
    }
    const size_t first = slots.size();
    for (Result& result : node.results) {
      for (ValueId& id : result.ids) {
        if (id == kNoValue) continue;
        slots.emplace_back();
        id = static_cast<ValueId>(slots.size()) - 1;
      }
    }
    run_node(node, slots);
    size_t next = 0;
    for (const std::vector<FakeResults::Source>& result : call.call->results) {
      for (const FakeResults::Source& source : result) {
        if (source.argument < 0 && source.shape == kNoValue) continue;  // undefined
        const Place& place = call.results[next];
        if (source.shape != kNoValue) give(place, slots[first + next].toTensor(), source.shape);
        ++next;
      }
    }
  }

  // The argument that lies there.
  at::Tensor tensor_at(const Place& place, ValueId id) {
    const Value& shape = results_.trace().values[static_cast<size_t>(id)];
    at::Storage storage(place.storage.lock());
    if (!storage) {
      const auto made = made_.find(place.address());
      TP_ASSERT(made != made_.end());
      at::Storage& contents = made->second.contents;
      if (!contents) {
        contents = at::empty({shape.storage_bytes}, shape.options.dtype(at::kByte)).storage();
      }
      storage = contents;
    }
    at::Tensor tensor =
        at::empty({0}, shape.options).set_(storage, place.offset, shape.sizes, shape.strides);
    if (is_wrapped_number(shape.tensor)) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
  }

  // What a fake tensor stands for.
  void give(const Place& place, at::Tensor contents, ValueId id) {
    const Value& shape = results_.trace().values[static_cast<size_t>(id)];
    TP_ASSERT(contents.sizes() == shape.sizes && contents.strides() == shape.strides);
    if (contents.storage_offset() != 0) {
      contents = at::empty_strided(shape.sizes, shape.strides, shape.options).copy_(contents);
    }
    const at::Storage fake(place.storage.lock());
    if (fake) {
      fake.set_data_ptr(contents.storage().set_data_ptr(at::DataPtr()));
    } else {
      made_.insert_or_assign(place.address(), Made{place.storage, contents.storage()});
    }
  }

  const Op op_;
  const FakeResults& results_;
  StateGuard& guard_;
  std::shared_ptr<FakeResults::Memory> memory_;
  std::mutex mutex_;
  std::vector<Deferred> calls_;
  std::unordered_map<const void*, Made> made_;
  std::unordered_set<const void*> stays_;  // where the inputs lie
  bool has_computed_ = false;
};

}  // namespace

std::optional<FakeRecording> record_on_fake_results(Graph& graph, const Op& op,
                                                    const std::vector<at::Tensor>& inputs,
                                                    const FakeResults& results, StateGuard& guard) {
  // Whatever goes wrong here goes wrong again, or does not, when the function computes.
  try {
    const auto run = std::make_shared<FakeRun>(op, inputs, results, guard);
    RecordedOp recorded;
    {
      const WatchScope watch(run);
      recorded = record_op(graph, op, inputs);
    }
    recorded.recording.outputs.clear();
    if (run->has_kept_results()) run->compute_what_is_kept(recorded.recording);
    if (!run->was_looked_at()) {
      return FakeRecording{std::move(recorded.recording), run->has_computed()};
    }
    logging::debug("Op '{}' computes to be compared: the host looks at a result.", op.name());
  } catch (const std::exception& error) {
    logging::debug("Op '{}' computes to be compared: {}", op.name(), error.what());
  }
  return std::nullopt;
}

}  // namespace tensorpack
