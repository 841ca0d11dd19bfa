// SPDX-License-Identifier: Apache-2.0
// Updates on CUDA against those on the CPU.
#include "tensorpack/cuda/update_kernels.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <functional>

#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/optim/kernels.h"
#include "tests/cuda/device.h"

namespace tensorpack::test {
namespace {

using Tensors = std::vector<at::Tensor>;

// Three slots suffice for every optimizer.
struct State {
  Tensors variables, gradients;
  std::array<Tensors, 3> slots;
  at::Tensor lr, step;
};

State make_state(c10::Device device) {
  at::manual_seed(3);
  State state;
  const auto draw = [&](at::IntArrayRef shape) { return at::randn(shape).to(device); };
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{16, 8, 3, 3}, {33}, {}, {7, 5}}) {
    state.variables.push_back(draw(shape));
    state.gradients.push_back(draw(shape));
    for (Tensors& slot : state.slots) slot.push_back(draw(shape).abs());
  }
  // As the variables of convolutions are laid out, and as autograd may leave a gradient.
  const auto lay_out = [](at::Tensor& t) { t = t.contiguous(at::MemoryFormat::ChannelsLast); };
  lay_out(state.variables[0]);
  for (Tensors& slot : state.slots) lay_out(slot[0]);
  state.gradients[3] = state.gradients[3].t().contiguous().t();
  state.variables[3].zero_();  // has no norm to trust
  state.lr = at::full({}, 0.1).to(device);
  state.step = at::full({}, 3, at::kDouble).to(device);
  return state;
}

class UpdateKernelsTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    cuda::link_update_kernels();
  }

  static void expect_same(const std::function<void(const State&)>& update) {
    const State on_cpu = make_state(at::kCPU);
    const State on_cuda = make_state(at::kCUDA);
    const at::NoGradGuard no_grad;
    for (int i = 0; i < 3; ++i) {
      update(on_cpu);
      update(on_cuda);
    }
    const auto compare = [](const Tensors& expected, const Tensors& values, const char* what) {
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::allclose(expected[i], values[i].cpu(), 1e-4, 1e-5)) << what << ' ' << i;
      }
    };
    compare(on_cpu.variables, on_cuda.variables, "variable");
    for (size_t k = 0; k < on_cpu.slots.size(); ++k) {
      compare(on_cpu.slots[k], on_cuda.slots[k], "slot");
    }
  }
};

TEST_F(UpdateKernelsTest, SgdIsThatOfTheCpu) {
  expect_same([](const State& s) { kernels::sgd_(s.variables, {}, s.gradients, s.lr, {}); });
  expect_same([](const State& s) {
    kernels::sgd_(s.variables, s.slots[0], s.gradients, s.lr,
                  {.momentum = 0.9, .nesterov = true, .weight_decay = 0.1});
  });
}

TEST_F(UpdateKernelsTest, AdamIsThatOfTheCpu) {
  for (bool decoupled : {false, true}) {
    expect_same([&](const State& s) {
      kernels::adam_(s.variables, s.slots[0], s.slots[1], s.gradients, s.lr, s.step,
                     {.weight_decay = 0.1, .decoupled = decoupled});
    });
  }
}

// By the kernel of ours for float32, by libtorch's for others.
TEST_F(UpdateKernelsTest, CopiesAreThoseOfTheNewVariables) {
  const at::NoGradGuard no_grad;
  for (const auto type : {at::kFloat, at::kDouble}) {
    State state = make_state(at::kCUDA);
    for (Tensors* list : {&state.variables, &state.gradients, &state.slots[0], &state.slots[1]}) {
      for (at::Tensor& tensor : *list) tensor = tensor.to(type);
    }
    const Tensors& v = state.variables;
    // Of all but the third, the last as rows that are not aligned.
    const Tensors copies = {at::empty_like(v[0], at::kBFloat16),
                            at::empty_like(v[1], at::kBFloat16),
                            at::empty({9, 5}, v[3].options().dtype(at::kBFloat16)).narrow(0, 1, 7)};
    const auto expect_copies = [&] {
      EXPECT_TRUE(at::equal(copies[0], v[0].to(at::kBFloat16)));
      EXPECT_TRUE(at::equal(copies[1], v[1].to(at::kBFloat16)));
      EXPECT_TRUE(at::equal(copies[2], v[3].to(at::kBFloat16)));
    };
    using Sgd = void(at::TensorList, at::TensorList, at::TensorList, const at::Tensor&, double,
                     bool, double, at::TensorList, at::IntArrayRef);
    cuda::sgd_and_copies_operator().typed<Sgd>().call(v, state.slots[0], state.gradients, state.lr,
                                                      0.9, true, 0.1, copies, {0, 1, 3});
    expect_copies();
    using Adam = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                      const at::Tensor&, const at::Tensor&, double, double, double, double, bool,
                      at::TensorList, at::IntArrayRef);
    cuda::adam_and_copies_operator().typed<Adam>().call(v, state.slots[0], state.slots[1],
                                                        state.gradients, state.lr, state.step, 0.9,
                                                        0.999, 1e-8, 0.1, true, copies, {0, 1, 3});
    expect_copies();
  }
}

TEST_F(UpdateKernelsTest, RmsPropIsThatOfTheCpu) {
  expect_same([](const State& s) {
    kernels::rmsprop_(s.variables, s.slots[0], {}, {}, s.gradients, s.lr, {});
  });
  expect_same([](const State& s) {
    for (const at::Tensor& square : s.slots[0]) square.add_(20);  // more than any mean squared
    kernels::rmsprop_(s.variables, s.slots[0], s.slots[1], s.slots[2], s.gradients, s.lr,
                      {.momentum = 0.9, .weight_decay = 0.1});
  });
}

TEST_F(UpdateKernelsTest, AdagradIsThatOfTheCpu) {
  expect_same([](const State& s) {
    kernels::adagrad_(s.variables, s.slots[0], s.gradients, s.lr, {.weight_decay = 0.1});
  });
}

TEST_F(UpdateKernelsTest, LambIsThatOfTheCpu) {
  expect_same([](const State& s) {
    kernels::lamb_(s.variables, s.slots[0], s.slots[1], s.gradients, s.lr, s.step, {});
  });
}

}  // namespace
}  // namespace tensorpack::test
