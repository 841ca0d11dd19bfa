// SPDX-License-Identifier: Apache-2.0
// Convolutions as cuDNN has them: a problem, the kernels it offers, and a plan for one of them.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <string>
#include <vector>

namespace tensorpack::cuda {

/// Output = input * weight; the result is the one of the three that is computed of the other two.
/// What a transposed convolution makes is the gradient of an input.
struct ConvolutionProblem {
  enum class Result { kOutput, kInput, kWeight };
  /// Where the elements of a tensor lie.
  struct Layout {
    std::vector<int64_t> sizes = {};
    std::vector<int64_t> strides = {};
  };

  Result result = Result::kOutput;
  c10::ScalarType type = c10::kFloat;
  bool tf32 = false;  ///< products of float32 may round their operands to 10 bits
  Layout input = {};
  Layout weight = {};
  Layout output = {};
  std::vector<int64_t> stride = {};
  std::vector<int64_t> padding = {};
  std::vector<int64_t> dilation = {};
  bool beside = false;  ///< other work runs at the same time

  /// All of it in a line: equal for equal problems alone.
  std::string text() const;
};

/// The memory of a problem's tensors, aligned to kConvolutionAlignment bytes.
struct ConvolutionMemory {
  void* input = nullptr;
  void* weight = nullptr;
  void* output = nullptr;
  void* workspace = nullptr;
};
constexpr size_t kConvolutionAlignment = 16;

/// A descriptor of cuDNN's, owned.
struct DestroyDescriptor {
  void operator()(void* descriptor) const;
};
using Descriptor = std::unique_ptr<void, DestroyDescriptor>;

/// One kernel, ready to run a problem on the device of its handle.
class ConvolutionPlan {
 public:
  /// Of what text() gave. Throws Error if cuDNN does not take it.
  ConvolutionPlan(void* handle, const std::string& text);
  /// Of a configuration that was offered. Throws Error if cuDNN cannot run it here.
  ConvolutionPlan(void* handle, const Descriptor& configuration);

  int64_t workspace_bytes() const;
  /// From which the plan can be made again, by the same cuDNN on a device of the same kind.
  std::string text() const;
  /// On the handle's stream. Throws Error if cuDNN cannot.
  void run(void* handle, const ConvolutionMemory& memory) const;

 private:
  Descriptor plan_;
};

/// The kernels that cuDNN offers for a problem, its first choice first.
struct ConvolutionOffer {
  std::vector<Descriptor> described = {};  ///< what the configurations refer to
  std::vector<Descriptor> configurations = {};
};

/// No more than `most`, or all of them for 0. Among a limited number is none that has to be
/// compiled, which takes half a second each and hardly ever wins. Throws Error if cuDNN does not
/// know such a problem.
ConvolutionOffer offer_for(void* handle, const ConvolutionProblem& problem, int most);

}  // namespace tensorpack::cuda
