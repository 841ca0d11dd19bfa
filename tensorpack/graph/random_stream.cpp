// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/random_stream.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <utility>

#include "tensorpack/graph/operator_facts.h"
#include "tensorpack/utils/detail/thread_frame.h"
#include "tensorpack/utils/torch_compat.h"

namespace tensorpack {
namespace {

struct CurrentGenerator {
  at::Generator generator;
};

std::mutex& lending_mutex() {
  static std::mutex mutex;
  return mutex;
}

// Puts the generator where the caller left it to libtorch's default one.
class RandomWatch final : public OperatorWatch {
 public:
  explicit RandomWatch(at::Generator generator) : generator_(std::move(generator)) {}

  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
           torch::jit::Stack* stack) override {
    if (!draws_random_numbers(op)) return pass_on(op, below, stack);
    const c10::IValue* given = nullptr;
    if (const std::optional<size_t> position = generator_argument(op)) {
      c10::IValue& argument = (*stack)[stack->size() - op.schema().arguments().size() + *position];
      if (argument.isNone() && below.has_backend(backend_)) argument = generator_;
      given = &argument;
    }
    if (given != nullptr && !given->isNone()) return pass_on(op, below, stack);
    const LendState lent(generator_);
    pass_on(op, below, stack);
  }

 private:
  at::Generator generator_;
  c10::BackendComponent backend_ = generator_.device().is_cuda() ? c10::BackendComponent::CUDABit
                                                                 : c10::BackendComponent::CPUBit;
};

class SeededWatch final : public OperatorWatch {
 public:
  explicit SeededWatch(uint64_t seed) : seed_(seed) {}

  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
           torch::jit::Stack* stack) override {
    if (!draws_random_numbers(op) || DrawFrom::current().defined()) {
      return pass_on(op, below, stack);
    }
    if (const std::optional<size_t> position = generator_argument(op)) {
      c10::IValue& argument = (*stack)[stack->size() - op.schema().arguments().size() + *position];
      if (!argument.isNone()) return pass_on(op, below, stack);
      if (below.has_backend(c10::BackendComponent::CPUBit)) {
        argument = generator();
        return pass_on(op, below, stack);
      }
    }
    const WatchInside inside;
    pass_on(op, below, stack);
  }

 private:
  const at::Generator& generator() {
    if (!generator_.defined()) generator_ = at::detail::createCPUGenerator(seed_);
    return generator_;
  }

  uint64_t seed_;
  at::Generator generator_;
};

}  // namespace

at::Generator make_generator(c10::Device device, uint64_t seed) {
  // What clone() of libtorch 1.13 returns is never freed, and others may draw from its original.
  if (device.is_cpu()) return at::detail::createCPUGenerator(seed);
  at::Generator generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(seed);
  return generator;
}

struct LendState::Loan {
  explicit Loan(const at::Generator& from)
      : lock(lending_mutex()),
        generator(from),
        standard(at::globalContext().defaultGenerator(from.device())) {
    if (can_share_state(standard)) {
      shared_before = share_state(standard, generator);
    } else {
      state_before = standard.get_state();
      standard.set_state(generator.get_state());
    }
  }
  ~Loan() {
    if (can_share_state(standard)) {
      share_state(standard, shared_before);
    } else {
      generator.set_state(standard.get_state());
      standard.set_state(state_before);
    }
  }

  std::lock_guard<std::mutex> lock;
  at::Generator generator;
  at::Generator standard;
  at::Generator shared_before = {};
  at::Tensor state_before = {};
};

LendState::LendState(const at::Generator& generator) : loan_(std::make_unique<Loan>(generator)) {}

LendState::~LendState() = default;

DrawFrom::DrawFrom(at::Generator generator) {
  auto& current = ThreadFrame::current().get<CurrentGenerator>();
  outer_ = std::exchange(current.generator, generator);
  watch_.emplace(std::make_shared<RandomWatch>(std::move(generator)));
}

DrawFromSeed::DrawFromSeed(uint64_t seed)
    : outer_(std::exchange(ThreadFrame::current().get<CurrentGenerator>().generator, {})),
      watch_(std::make_shared<SeededWatch>(seed)) {}

DrawFromSeed::~DrawFromSeed() {
  ThreadFrame::current().get<CurrentGenerator>().generator = std::move(outer_);
}

DrawFrom::~DrawFrom() {
  ThreadFrame::current().get<CurrentGenerator>().generator = std::move(outer_);
}

at::Generator DrawFrom::current() {
  return ThreadFrame::current().get<CurrentGenerator>().generator;
}

}  // namespace tensorpack
