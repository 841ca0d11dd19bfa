// SPDX-License-Identifier: Apache-2.0
#include "tests/graph/probe.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/program.h"
#include "tensorpack/graph/recorder.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

void seed(uint64_t number) {
  auto generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(number);
}

bool is_same(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (a.is_sparse()) return is_same(a.to_dense(), b.to_dense());
  return at::allclose(a, b, /*rtol=*/0, /*atol=*/0, /*equal_nan=*/true);
}

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      copies.emplace_back();
      continue;
    }
    copies.push_back(tensor.detach().clone().set_requires_grad(tensor.requires_grad()));
  }
  return copies;
}

NamedTensors name_all(const Tensors& tensors) {
  NamedTensors named;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined()) named.emplace("out" + std::to_string(i), tensors[i]);
  }
  return named;
}

Recording record_probe(const Probe& probe, const Tensors& batch) {
  const Tensors inputs = copies_of(batch);
  RecordOptions options{.inputs = inputs, .check_undeclared_writes = true};
  for (size_t i = 0; i < inputs.size(); ++i) {
    options.input_names.push_back("in" + std::to_string(i));
  }
  options.function = [&] { return name_all(probe.function(inputs)); };
  return record(options);
}

// The first output that differs from the function's, or "".
std::string replay(const Probe& probe, Trace trace, bool optimized,
                   const std::vector<Tensors>& batches) {
  std::vector<std::string> names;
  for (const auto& [name, id] : trace.outputs) names.push_back(name);
  std::vector<NamedTensors> expected;
  probe.reset();
  for (const Tensors& batch : batches) {
    seed(5);
    expected.push_back(name_all(copies_of(probe.function(copies_of(batch)))));
  }
  probe.reset();
  if (optimized) optimize(trace, names);
  Program program(trace, names, {.largest_kept_buffer = optimized ? 1 << 16 : 0});
  for (size_t i = 0; i < batches.size(); ++i) {
    Tensors inputs;
    for (const at::Tensor& tensor : copies_of(batches[i])) inputs.push_back(tensor.detach());
    seed(5);
    const Tensors values = program.run(inputs);
    for (size_t k = 0; k < names.size(); ++k) {
      if (!is_same(expected[i].at(names[k]), values[k])) {
        return names[k] + " of batch " + std::to_string(i) +
               (optimized ? ", optimized" : ", as recorded");
      }
    }
  }
  return "";
}

}  // namespace

std::function<Tensors()> randn(std::vector<std::vector<int64_t>> shapes, bool requires_grad) {
  return [=] {
    Tensors tensors;
    for (const auto& shape : shapes) {
      tensors.push_back(at::randn(shape).set_requires_grad(requires_grad));
    }
    return tensors;
  };
}

Tensors gradients(const at::Tensor& of, const Tensors& by, bool create_graph) {
  return torch::autograd::grad({of}, by, {}, c10::nullopt, create_graph, /*allow_unused=*/true);
}

void check_probe(const Probe& probe) {
  seed(11);
  const std::vector<Tensors> batches{probe.make_inputs(), probe.make_inputs(), probe.make_inputs()};
  probe.reset();
  if (probe.behaviour == Behaviour::kRefused) {
    try {
      record_probe(probe, batches[0]);
      FAIL() << "it was recorded, but should be refused with: " << probe.message;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(probe.message));
    }
    return;
  }
  const Recording recording = record_probe(probe, batches[0]);
  EXPECT_THAT(recording.remarks, testing::Not(testing::Contains(testing::HasSubstr("undeclared"))));
  const std::vector<Tensors> others{batches[1], batches[2], batches[0]};
  const std::string plain = replay(probe, recording.trace, false, others);
  const std::string optimized = replay(probe, recording.trace, true, others);
  if (probe.behaviour == Behaviour::kFrozen) {
    EXPECT_NE(plain + optimized, "") << "the host's value was not frozen after all";
  } else {
    EXPECT_EQ(plain, "") << dump_text(recording.trace);
    EXPECT_EQ(optimized, "") << dump_text(recording.trace);
  }
}

}  // namespace tensorpack
