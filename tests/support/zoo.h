// SPDX-License-Identifier: Apache-2.0
// Models of many kinds, small, to hold executors and optimizers to the same numbers.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/session/session.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// A loss, and a regular expression for the variables it trains.
struct ZooLoss {
  at::Tensor value = {};
  std::string variables = {};
};

/// A model as plain functions over tensors and get_variable(). Names its "prediction".
struct ZooModel {
  std::string name = {};
  std::vector<TensorSpec> inputs = {};
  std::function<std::vector<ZooLoss>(const std::vector<at::Tensor>&)> build = {};
  /// A batch that depends on the seed alone.
  std::function<std::vector<at::Tensor>(uint64_t seed)> make_batch = {};
};

enum class ZooOptimizer { kSgd, kMomentum, kAdam };
std::string to_string(ZooOptimizer optimizer);

/// All of them.
const std::vector<ZooModel>& zoo();

/// Defines one training step of the model: losses ("loss0" ...), gradients, update.
Op define_training(Graph& graph, const ZooModel& model, ZooOptimizer optimizer);

/// A model and how it is trained.
struct ZooCase {
  const ZooModel* model = nullptr;
  ZooOptimizer optimizer = ZooOptimizer::kSgd;
};
void PrintTo(const ZooCase& c, std::ostream* out);
std::string name_of(const ZooCase& c);
/// Every model with every optimizer.
std::vector<ZooCase> all_zoo_cases();

struct ZooOutcome {
  std::vector<std::vector<at::Tensor>> losses = {};  // of each step; a GAN has two
  std::map<std::string, at::Tensor> variables = {};  // at the end, on the host
};

/// Makes some steps from a fixed seed.
ZooOutcome train(const ZooCase& c, int steps, SessionOptions options,
                 c10::Device device = c10::kCPU);

}  // namespace tensorpack
