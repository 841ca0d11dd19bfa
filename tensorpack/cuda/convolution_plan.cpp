// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/convolution_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tensorpack/cuda/cudnn.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {
namespace {

using Result = ConvolutionProblem::Result;

// Tensors have numbers by which a plan finds their memory.
constexpr int64_t kInputId = 'x', kWeightId = 'w', kOutputId = 'y';

void check(int result, const char* what) {
  TP_CHECK(result == 0, "convolutions", "cuDNN cannot {}: {}. libtorch's convolution is used.",
           what, cudnn().error_text(result));
}

// ---- descriptors; the numbers are cudnnBackendAttributeName_t

Descriptor make(int type) {
  void* descriptor = nullptr;
  check(cudnn().create(type, &descriptor), "make a descriptor");
  return Descriptor(descriptor);
}

void finish(const Descriptor& descriptor) {
  check(cudnn().finalize(descriptor.get()), "take a description");
}

template <typename T>
void set(const Descriptor& descriptor, int attribute, int type, const T& value) {
  check(cudnn().set(descriptor.get(), attribute, type, 1, &value), "take an attribute");
}

void set(const Descriptor& descriptor, int attribute, const std::vector<int64_t>& values) {
  check(cudnn().set(descriptor.get(), attribute, Cudnn::kInt64, static_cast<int64_t>(values.size()),
                    values.data()),
        "take an attribute");
}

void set(const Descriptor& descriptor, int attribute, const Descriptor& value) {
  set(descriptor, attribute, Cudnn::kDescriptor, value.get());
}

int data_type(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
      return 0;
    case c10::kHalf:
      return 2;
    case c10::kBFloat16:
      return 9;
    default:
      throw make_error("convolutions", "there is none of {}.", c10::toString(type));
  }
}

Descriptor tensor(int64_t id, const ConvolutionProblem::Layout& layout, c10::ScalarType type) {
  Descriptor made = make(Cudnn::kTensor);
  set(made, 900, {static_cast<int64_t>(kConvolutionAlignment)});
  set(made, 901, Cudnn::kDataType, data_type(type));
  set(made, 902, layout.sizes);
  set(made, 903, layout.strides);
  set(made, 906, {id});
  finish(made);
  return made;
}

Descriptor geometry_of(const ConvolutionProblem& problem) {
  Descriptor made = make(Cudnn::kConvolution);
  constexpr int kCrossCorrelation = 1;
  set(made, 100, Cudnn::kDataType, data_type(c10::kFloat));  // sums are float32
  set(made, 101, Cudnn::kConvolutionMode, kCrossCorrelation);
  set(made, 102, problem.dilation);
  set(made, 103, problem.stride);
  set(made, 104, problem.padding);
  set(made, 105, problem.padding);
  set(made, 106, {static_cast<int64_t>(problem.stride.size())});
  finish(made);
  return made;
}

// Where each kind of operation has its attributes: alpha, beta, geometry, weight, input, output.
struct OperationAttributes {
  int type, alpha, beta, geometry, weight, input, output;
};

OperationAttributes attributes_of(Result result) {
  switch (result) {
    case Result::kOutput:
      return {Cudnn::kForward, 700, 701, 702, 703, 704, 705};
    case Result::kInput:
      return {Cudnn::kBackwardData, 706, 707, 708, 709, 710, 711};
    case Result::kWeight:
      return {Cudnn::kBackwardFilter, 712, 713, 714, 715, 716, 717};
  }
  throw InternalError("a convolution without a result");
}

// The graph comes last; the others must outlive it.
std::vector<Descriptor> graph_of(void* handle, const ConvolutionProblem& problem) {
  const OperationAttributes at = attributes_of(problem.result);
  Descriptor geometry = geometry_of(problem);
  Descriptor input = tensor(kInputId, problem.input, problem.type);
  Descriptor weight = tensor(kWeightId, problem.weight, problem.type);
  Descriptor output = tensor(kOutputId, problem.output, problem.type);
  Descriptor operation = make(at.type);
  set(operation, at.geometry, geometry);
  set(operation, at.weight, weight);
  set(operation, at.input, input);
  set(operation, at.output, output);
  set(operation, at.alpha, Cudnn::kFloat, 1.0f);
  set(operation, at.beta, Cudnn::kFloat, 0.0f);
  finish(operation);
  Descriptor graph = make(Cudnn::kGraph);
  set(graph, 800, Cudnn::kHandle, handle);
  set(graph, 801, operation);
  finish(graph);
  std::vector<Descriptor> made;
  for (Descriptor* one : {&geometry, &input, &weight, &output, &operation, &graph}) {
    made.push_back(std::move(*one));
  }
  return made;
}

// ---- what is offered

Descriptor heuristics_of(const Descriptor& graph, int mode) {
  Descriptor heuristics = make(Cudnn::kHeuristics);
  set(heuristics, 201, graph);
  set(heuristics, 200, Cudnn::kHeuristicsMode, mode);
  finish(heuristics);
  return heuristics;
}

std::vector<Descriptor> results_of(const Descriptor& heuristics) {
  int64_t count = 0;
  check(cudnn().get(heuristics.get(), 202, Cudnn::kDescriptor, 0, &count, nullptr),
        "say how many kernels there are");
  std::vector<Descriptor> found;
  std::vector<void*> places;
  for (int64_t i = 0; i < count; ++i) {
    found.push_back(make(Cudnn::kEngineConfig));
    places.push_back(found.back().get());
  }
  if (count == 0) return found;
  check(cudnn().get(heuristics.get(), 202, Cudnn::kDescriptor, count, &count, places.data()),
        "offer kernels");
  found.resize(static_cast<size_t>(count));
  return found;
}

// What cuDNN notes of the engine of a configuration.
std::vector<int> notes_of(const Descriptor& configuration, int attribute, int type) {
  const Descriptor engine = make(Cudnn::kEngine);
  void* place = engine.get();
  int64_t count = 0;
  check(cudnn().get(configuration.get(), 300, Cudnn::kDescriptor, 1, &count, &place),
        "tell the engine");
  std::array<int, 32> notes = {};
  check(cudnn().get(engine.get(), attribute, type, notes.size(), &count, notes.data()),
        "describe an engine");
  return {notes.begin(), notes.begin() + std::min<int64_t>(count, notes.size())};
}

bool has(const std::vector<int>& notes, int note) {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

// Numbers of cudnnBackendNumericalNote_t.
bool rounds_as_asked(const Descriptor& configuration, const ConvolutionProblem& problem) {
  constexpr int kTensorCore = 0, kDownConvertInputs = 1, kReducedPrecisionSums = 2;
  const std::vector<int> notes = notes_of(configuration, 1303, Cudnn::kNumericalNote);
  if (has(notes, kReducedPrecisionSums)) return false;
  if (problem.type != c10::kFloat) return true;
  return !has(notes, kDownConvertInputs) && (problem.tf32 || !has(notes, kTensorCore));
}

bool has_to_be_compiled(const Descriptor& configuration) {
  constexpr int kRuntimeCompilation = 0;  // of cudnnBackendBehaviorNote_t
  return has(notes_of(configuration, 1305, Cudnn::kBehaviorNote), kRuntimeCompilation);
}

}  // namespace

std::string ConvolutionProblem::text() const {
  const auto layout = [](const Layout& of) {
    return fmt::format("{} / {}", fmt::join(of.sizes, ","), fmt::join(of.strides, ","));
  };
  constexpr std::array kResults = {"output", "input", "weight"};
  return fmt::format(
      "{} in {}{}: input {}; weight {}; output {}; stride {}; padding {}; dilation {}{}",
      kResults[static_cast<size_t>(result)], c10::toString(type), tf32 ? " (tf32)" : "",
      layout(input), layout(weight), layout(output), fmt::join(stride, ","),
      fmt::join(padding, ","), fmt::join(dilation, ","), beside ? "; beside other work" : "");
}

void DestroyDescriptor::operator()(void* descriptor) const { cudnn().destroy(descriptor); }

ConvolutionPlan::ConvolutionPlan(void* handle, const std::string& text)
    : plan_(make(Cudnn::kPlan)) {
  set(plan_, 400, Cudnn::kHandle, handle);
  check(cudnn().set(plan_.get(), 405, Cudnn::kChar, static_cast<int64_t>(text.size()), text.data()),
        "read a plan");
  finish(plan_);
}

ConvolutionPlan::ConvolutionPlan(void* handle, const Descriptor& configuration)
    : plan_(make(Cudnn::kPlan)) {
  set(plan_, 400, Cudnn::kHandle, handle);
  set(plan_, 401, configuration);
  finish(plan_);
}

int64_t ConvolutionPlan::workspace_bytes() const {
  int64_t bytes = 0, count = 0;
  check(cudnn().get(plan_.get(), 402, Cudnn::kInt64, 1, &count, &bytes), "tell its workspace");
  return bytes;
}

std::string ConvolutionPlan::text() const {
  int64_t size = 0;
  check(cudnn().get(plan_.get(), 405, Cudnn::kChar, 0, &size, nullptr), "write a plan");
  std::string text(static_cast<size_t>(size), '\0');
  check(cudnn().get(plan_.get(), 405, Cudnn::kChar, size, &size, text.data()), "write a plan");
  return text;
}

void ConvolutionPlan::run(void* handle, const ConvolutionMemory& memory) const {
  const Descriptor pack = make(Cudnn::kVariantPack);
  const std::array<void*, 3> tensors = {memory.input, memory.weight, memory.output};
  set(pack, 1000, {kInputId, kWeightId, kOutputId});
  check(cudnn().set(pack.get(), 1001, Cudnn::kPointer, tensors.size(), tensors.data()),
        "take tensors");
  set(pack, 1003, Cudnn::kPointer, memory.workspace);
  finish(pack);
  check(cudnn().execute(handle, plan_.get(), pack.get()), "run a convolution");
}

ConvolutionOffer offer_for(void* handle, const ConvolutionProblem& problem, int most) {
  // cudnnBackendHeurMode_t: those that suit the problem, and those that nearly always work.
  constexpr int kBySuitability = 3, kFallback = 2;
  ConvolutionOffer offer{.described = graph_of(handle, problem)};
  const size_t graph = offer.described.size() - 1;
  for (const int mode : {kBySuitability, kFallback}) {
    offer.described.push_back(heuristics_of(offer.described[graph], mode));
    for (Descriptor& configuration : results_of(offer.described.back())) {
      if (most > 0 && static_cast<int>(offer.configurations.size()) == most) return offer;
      if (!rounds_as_asked(configuration, problem)) continue;
      if (most > 0 && has_to_be_compiled(configuration)) continue;
      offer.configurations.push_back(std::move(configuration));
    }
  }
  return offer;
}

}  // namespace tensorpack::cuda
