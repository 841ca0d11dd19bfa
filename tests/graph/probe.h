// SPDX-License-Identifier: Apache-2.0
// Small programs that are recorded on one batch and replayed on others.
#pragma once

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

namespace tensorpack {

using Tensors = std::vector<at::Tensor>;

/// How the replay of a probe must behave.
enum class Behaviour {
  kEqual,    ///< bitwise as the function, on every batch
  kRefused,  ///< recording throws an Error whose text contains Probe::message
  kFrozen,   ///< differs, because a value was decided on the host: what verification is for
};

/// One odd program.
struct Probe {
  std::string name = {};  // letters and digits
  std::function<Tensors()> make_inputs = {};
  std::function<Tensors(Tensors)> function = {};
  Behaviour behaviour = Behaviour::kEqual;
  std::string message = {};
  /// Puts state that the function captured back to its start.
  std::function<void()> reset = [] {};
};

inline void PrintTo(const Probe& probe, std::ostream* out) { *out << probe.name; }

/// Normal numbers of the given shapes, which require gradients.
std::function<Tensors()> randn(std::vector<std::vector<int64_t>> shapes, bool requires_grad = true);

inline const std::function<Tensors()> kSquare = randn({{4, 4}});

/// The gradients of a scalar; undefined for what it does not depend on.
Tensors gradients(const at::Tensor& of, const Tensors& by, bool create_graph = false);

/// Records, replays on three batches with and without passes, and expects the probe's behaviour
/// and no undeclared write.
void check_probe(const Probe& probe);

class ProbeTest : public testing::TestWithParam<Probe> {};

inline std::string probe_name(const testing::TestParamInfo<Probe>& info) { return info.param.name; }

}  // namespace tensorpack

/// One test for each probe of a table.
#define TP_PROBES(suite, table)                                               \
  class suite : public ::tensorpack::ProbeTest {};                            \
  TEST_P(suite, BehavesAsExpected) { ::tensorpack::check_probe(GetParam()); } \
  INSTANTIATE_TEST_SUITE_P(All, suite, testing::ValuesIn(table), ::tensorpack::probe_name)
