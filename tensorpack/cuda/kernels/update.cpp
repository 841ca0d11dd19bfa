// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/update.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/kernels/sizes.h"
#include "tensorpack/cuda/kernels/tensor_table.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/torch_compat.h"

namespace tensorpack::cuda {
namespace {

using at::Tensor;

constexpr size_t kTensorsOfUpdates = 64;
constexpr size_t kSlots = 2;

// Variables, gradients, slots and copies, where all gradients have one type.
constexpr size_t kFirstSlot = 2;
constexpr size_t kCopies = kFirstSlot + kSlots;
using UpdateLists = TensorLists<kCopies + 1>;

constexpr const char* kStoreCopy = R"cuda(
// Rows of what is put together need not be aligned.
__device__ __forceinline__ void store_copy(C* c, const float (&f)[W]) {
  if ((unsigned long long)c % sizeof(Vector<C, W>) == 0) {
    store<W>(c, f);
  } else {
    for (int k = 0; k < W; ++k) from_float(f[k], c[k]);
  }
}
)cuda";

// The parts of for_elements(), with what kernels that write copies have in between.
constexpr const char* kElements = R"cuda(
__device__ __forceinline__ float to_float(double v) { return (float)v; }

// Calls update(variable, gradient, slot 0, slot 1) for the elements of this block.
template <class Update>
__device__ __forceinline__ void for_elements(const Table& table, Update update) {
  const Part part = part_of_block(table);
  float* p = (float*)table.data[0][part.tensor];
  const G* g = (const G*)table.data[1][part.tensor];
  float *a = (float*)table.data[2][part.tensor], *b = (float*)table.data[3][part.tensor];
)cuda";

constexpr const char* kPlaceOfCopy = R"cuda(  C* c = (C*)table.data[4][part.tensor];
)cuda";

constexpr const char* kVectors =
    R"cuda(  for (long long i = part.begin + threadIdx.x * W; i < part.end; i += kThreads * W) {
    if (i + W <= part.end) {
      float fp[W], fg[W], fa[W] = {}, fb[W] = {};
      unpack<W>(load<W>(p + i), fp);
      unpack<W>(load<W>(g + i), fg);
      if (kUsed > 0) unpack<W>(load<W>(a + i), fa);
      if (kUsed > 1) unpack<W>(load<W>(b + i), fb);
#pragma unroll
      for (int k = 0; k < W; ++k) update(fp[k], fg[k], fa[k], fb[k]);
      store<W>(p + i, fp);
      if (kUsed > 0) store<W>(a + i, fa);
      if (kUsed > 1) store<W>(b + i, fb);
)cuda";

constexpr const char* kVectorOfCopy = R"cuda(      if (c != nullptr) store_copy(c + i, fp);
)cuda";

constexpr const char* kRest = R"cuda(      continue;
    }
    for (long long k = i; k < part.end; ++k) {
      float unused = 0.f;
      update(p[k], to_float(g[k]), kUsed > 0 ? a[k] : unused, kUsed > 1 ? b[k] : unused);
)cuda";

constexpr const char* kElementOfCopy = R"cuda(      if (c != nullptr) from_float(p[k], c[k]);
)cuda";

constexpr const char* kEnd = R"cuda(    }
  }
}
)cuda";

std::string elements_text(bool has_copies) {
  return has_copies ? fmt::format("{}{}{}{}{}{}{}{}", kStoreCopy, kElements, kPlaceOfCopy, kVectors,
                                  kVectorOfCopy, kRest, kElementOfCopy, kEnd)
                    : fmt::format("{}{}{}{}", kElements, kVectors, kRest, kEnd);
}

constexpr const char* kSgd = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads)
sgd_update(Table table, const L* lr, float momentum, float weight_decay, int nesterov) {
  const float rate = to_float(*lr);
  for_elements(table, [&](float& p, float g, float& velocity, float&) {
    g += weight_decay * p;
    if (kUsed > 0) {
      velocity = momentum * velocity + g;
      g = nesterov ? g + momentum * velocity : velocity;
    }
    p -= rate * g;
  });
}
)cuda";

// 1 - beta^step, from the logarithm of beta, which keeps its digits.
constexpr const char* kAdam = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads)
adam_update(Table table, const L* lr, const S* step, float rest1, float rest2, float log_beta1,
            float log_beta2, float epsilon, float weight_decay, int decoupled) {
  const float rate = to_float(*lr), count = to_float(*step);
  const float beta1 = 1.f - rest1, beta2 = 1.f - rest2;
  const float step_size = rate / -expm1f(count * log_beta1);
  const float scale = 1.f / sqrtf(-expm1f(count * log_beta2));
  for_elements(table, [&](float& p, float g, float& m, float& v) {
    if (decoupled) p -= rate * weight_decay * p; else g += weight_decay * p;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    p -= step_size * m / (sqrtf(v) * scale + epsilon);
  });
}
)cuda";

std::string number_type(const Tensor& number) {
  return number.scalar_type() == at::kDouble ? "double" : "float";
}

bool is_number(const Tensor& tensor, c10::Device device) {
  return tensor.numel() == 1 && tensor.device() == device &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble);
}

std::map<c10::ScalarType, UpdateLists> by_gradient_type(const UpdateTensors& tensors) {
  TP_ASSERT(tensors.slots.size() <= kSlots);
  std::map<c10::ScalarType, UpdateLists> found;
  for (size_t i = 0; i < tensors.variables.size(); ++i) {
    UpdateLists& lists = found[tensors.gradients[i].scalar_type()];
    lists[0].push_back(tensors.variables[i]);
    lists[1].push_back(tensors.gradients[i]);
    for (size_t k = 0; k < tensors.slots.size(); ++k) {
      if (!tensors.slots[k].empty()) lists[kFirstSlot + k].push_back(tensors.slots[k][i]);
    }
    if (!tensors.copies.empty()) lists[kCopies].push_back(tensors.copies[i]);
  }
  return found;
}

// Without copies, which may lie anywhere.
int vector_width(const UpdateLists& lists) {
  constexpr int kWidest = 4;
  for (size_t k = 0; k < kCopies; ++k) {
    for (const Tensor& tensor : lists[k]) {
      if (!is_aligned(tensor, kWidest)) return 1;
    }
  }
  return kWidest;
}

size_t used_slots(const UpdateLists& lists) {
  size_t used = kSlots;
  while (used > 0 && lists[kFirstSlot + used - 1].empty()) --used;
  return used;
}

// The type of the copies; nothing if there are none.
std::optional<c10::ScalarType> type_of_copies(const std::vector<Tensor>& copies) {
  for (const Tensor& copy : copies) {
    if (copy.defined()) return copy.scalar_type();
  }
  return std::nullopt;
}

TensorLists<kCopies> without_copies(const UpdateLists& lists) {
  TensorLists<kCopies> others;
  std::copy_n(lists.begin(), kCopies, others.begin());
  return others;
}

// Launches the kernel `name`, which `body` defines, over all tables of the lists.
template <typename... Values>
void launch_update(const std::string& name, const UpdateLists& lists, const std::string& types,
                   const char* body, const Launcher& launcher, Values... values) {
  const int64_t chunk = chunk_of(lists[0]);
  const auto launch = [&](const auto& used, const std::string& type_of_copy) {
    const KernelSource kernel{
        name, prelude() +
                  fmt::format("using G = {};\n{}{}constexpr int W = {}, kUsed = {};\n",
                              kernel_type(lists[1][0].scalar_type()), types, type_of_copy,
                              vector_width(lists), used_slots(lists)) +
                  tensor_table(used.size(), kTensorsOfUpdates, chunk) +
                  elements_text(!type_of_copy.empty()) + body};
    for_each_table<kTensorsOfUpdates>(used, chunk,
                                      [&](const auto& table, const LaunchShape& shape) {
                                        launcher(kernel, shape, table, values...);
                                      });
  };
  if (const auto type = type_of_copies(lists[kCopies])) {
    launch(lists, fmt::format("using C = {};\n", kernel_type(*type)));
  } else {
    launch(without_copies(lists), "");
  }
}

}  // namespace

std::vector<Tensor> CopiesOfVariables::of_each(size_t variables) const {
  if (copies.empty()) return {};
  std::vector<Tensor> found(variables);
  for (size_t i = 0; i < copies.size(); ++i) found.at(places[i]) = copies[i];
  return found;
}

void CopiesOfVariables::write(at::TensorList variables) const {
  std::vector<Tensor> copied;
  for (int64_t place : places) copied.push_back(variables.at(place));
  if (!copied.empty()) copy_together(copies, copied);
}

bool fits_update(const UpdateTensors& tensors, const Tensor& lr) {
  const auto type = type_of_copies(tensors.copies);
  if (type && (!has_kernel_type(*type) || *type == at::kFloat)) return false;
  for (size_t i = 0; i < tensors.variables.size(); ++i) {
    const Tensor& variable = tensors.variables[i];
    const auto is_like = [&](const Tensor& tensor) {
      return tensor.strides() == variable.strides() && tensor.device() == variable.device();
    };
    const auto is_slot_right = [&](const std::vector<Tensor>& slot) {
      return slot.empty() || (is_like(slot[i]) && slot[i].scalar_type() == at::kFloat);
    };
    const auto is_copy_right = [&] {
      return tensors.copies.empty() || !tensors.copies[i].defined() ||
             (is_like(tensors.copies[i]) && tensors.copies[i].scalar_type() == type);
    };
    if (variable.scalar_type() != at::kFloat || !variable.is_non_overlapping_and_dense() ||
        !is_number(lr, variable.device()) || !is_like(tensors.gradients[i]) ||
        !has_kernel_type(tensors.gradients[i].scalar_type()) || !is_copy_right() ||
        !std::all_of(tensors.slots.begin(), tensors.slots.end(), is_slot_right)) {
      return false;
    }
  }
  return true;
}

void sgd_update(const UpdateTensors& tensors, const Tensor& lr, const SgdUpdate& options,
                const Launcher& launcher) {
  const std::string types = fmt::format("using L = {};\n", number_type(lr));
  for (const auto& [type, lists] : by_gradient_type(tensors)) {
    launch_update("sgd_update", lists, types, kSgd, launcher, lr.data_ptr(),
                  static_cast<float>(options.momentum), static_cast<float>(options.weight_decay),
                  static_cast<int>(options.nesterov));
  }
}

void adam_update(const UpdateTensors& tensors, const Tensor& lr, const Tensor& step,
                 const AdamUpdate& options, const Launcher& launcher) {
  const std::string types =
      fmt::format("using L = {};\nusing S = {};\n", number_type(lr), number_type(step));
  for (const auto& [type, lists] : by_gradient_type(tensors)) {
    launch_update("adam_update", lists, types, kAdam, launcher, lr.data_ptr(), step.data_ptr(),
                  static_cast<float>(1 - options.beta1), static_cast<float>(1 - options.beta2),
                  static_cast<float>(std::log(options.beta1)),
                  static_cast<float>(std::log(options.beta2)), static_cast<float>(options.epsilon),
                  static_cast<float>(options.weight_decay), static_cast<int>(options.decoupled));
  }
}

}  // namespace tensorpack::cuda
