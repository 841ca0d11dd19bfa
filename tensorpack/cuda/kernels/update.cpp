// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/update.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {
namespace {

using at::Tensor;

constexpr size_t kTensors = 64;  // in a table: parameters of a kernel have 4 KB
constexpr size_t kSlots = 2;
constexpr int kThreads = 256;
constexpr int64_t kSmallChunk = 1024, kLargeChunk = 4096;  // elements of a block
constexpr int64_t kManyElements = int64_t{1} << 22;

// As the kernels declare it.
struct Table {
  void* variable[kTensors] = {};
  void* gradient[kTensors] = {};
  void* slot[kSlots][kTensors] = {};
  long long elements[kTensors] = {};
  int first_block[kTensors] = {};
  int tensors = 0;
};

constexpr const char* kTable = R"cuda(
struct Table {
  float* variable[kTensors];
  const G* gradient[kTensors];
  float* slot[2][kTensors];
  long long elements[kTensors];
  int first_block[kTensors];
  int tensors;
};
__device__ __forceinline__ float to_float(double v) { return (float)v; }

// Calls update(variable, gradient, slot 0, slot 1) for the elements of this block.
template <class Update>
__device__ __forceinline__ void for_elements(const Table& table, Update update) {
  int low = 0, high = table.tensors;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first_block[middle] <= (int)blockIdx.x) low = middle; else high = middle;
  }
  float* p = table.variable[low];
  const G* g = table.gradient[low];
  float *a = table.slot[0][low], *b = table.slot[1][low];
  const long long begin = (long long)(blockIdx.x - table.first_block[low]) * kChunk;
  const long long end = min(begin + kChunk, table.elements[low]);
  for (long long i = begin + threadIdx.x * W; i < end; i += blockDim.x * W) {
    if (i + W <= end) {
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
      continue;
    }
    for (long long k = i; k < end; ++k) {
      float unused = 0.f;
      update(p[k], to_float(g[k]), kUsed > 0 ? a[k] : unused, kUsed > 1 ? b[k] : unused);
    }
  }
}
)cuda";

constexpr const char* kSgd = R"cuda(
extern "C" __global__ void __launch_bounds__(256)
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
extern "C" __global__ void __launch_bounds__(256)
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

bool is_aligned(const Tensor& tensor, int width) {
  return reinterpret_cast<uintptr_t>(tensor.data_ptr()) %
             (static_cast<uintptr_t>(width) * tensor.element_size()) ==
         0;
}

// Those of one type of gradient, a table at a time.
class TableBuilder {
 public:
  TableBuilder(const UpdateTensors& tensors, std::vector<size_t> members)
      : tensors_(tensors), members_(std::move(members)) {
    int64_t elements = 0;
    for (size_t i : members_) {
      elements += tensors.variables[i].numel();
      if (!is_aligned(tensors.variables[i], width_) || !is_aligned(tensors.gradients[i], width_)) {
        width_ = 1;
      }
      for (const auto& slot : tensors.slots) {
        used_ = std::max(used_, slot.empty() ? 0 : &slot - tensors.slots.data() + 1);
        if (!slot.empty() && !is_aligned(slot[i], width_)) width_ = 1;
      }
    }
    chunk_ = elements > kManyElements ? kLargeChunk : kSmallChunk;
  }

  std::string head() const {
    return prelude() + fmt::format(
                           "using G = {};\nconstexpr int kTensors = {}, W = {}, kUsed = {};\n"
                           "constexpr long long kChunk = {};\n",
                           kernel_type(tensors_.gradients[members_[0]].scalar_type()), kTensors,
                           width_, used_, chunk_);
  }

  template <typename Launch>
  void for_each_table(Launch launch) const {
    for (size_t first = 0; first < members_.size(); first += kTensors) {
      Table table;
      int64_t blocks = 0;
      for (size_t i = first; i < std::min(members_.size(), first + kTensors); ++i) {
        blocks += add(table, members_[i], static_cast<int>(blocks));
      }
      if (blocks == 0) continue;
      launch(table,
             LaunchShape{.grid = {static_cast<unsigned>(blocks), 1}, .block = {kThreads, 1}});
    }
  }

 private:
  int64_t add(Table& table, size_t member, int first_block) const {
    const int64_t elements = tensors_.variables[member].numel();
    if (elements == 0) return 0;
    const int place = table.tensors++;
    table.variable[place] = tensors_.variables[member].data_ptr();
    table.gradient[place] = tensors_.gradients[member].data_ptr();
    for (size_t k = 0; k < tensors_.slots.size(); ++k) {
      if (!tensors_.slots[k].empty()) table.slot[k][place] = tensors_.slots[k][member].data_ptr();
    }
    table.elements[place] = elements;
    table.first_block[place] = first_block;
    return (elements + chunk_ - 1) / chunk_;
  }

  const UpdateTensors& tensors_;
  std::vector<size_t> members_;
  int width_ = 4;
  std::ptrdiff_t used_ = 0;
  int64_t chunk_ = kSmallChunk;
};

std::vector<TableBuilder> by_gradient_type(const UpdateTensors& tensors) {
  TP_ASSERT(tensors.slots.size() <= kSlots);
  std::map<c10::ScalarType, std::vector<size_t>> members;
  for (size_t i = 0; i < tensors.variables.size(); ++i) {
    members[tensors.gradients[i].scalar_type()].push_back(i);
  }
  std::vector<TableBuilder> builders;
  for (auto& [type, of_type] : members) builders.emplace_back(tensors, std::move(of_type));
  return builders;
}

}  // namespace

bool fits_update(const UpdateTensors& tensors, const Tensor& lr) {
  for (size_t i = 0; i < tensors.variables.size(); ++i) {
    const Tensor& variable = tensors.variables[i];
    const auto is_like = [&](const Tensor& tensor) {
      return tensor.strides() == variable.strides() && tensor.device() == variable.device();
    };
    const auto is_slot_right = [&](const std::vector<Tensor>& slot) {
      return slot.empty() || (is_like(slot[i]) && slot[i].scalar_type() == at::kFloat);
    };
    if (variable.scalar_type() != at::kFloat || !variable.is_non_overlapping_and_dense() ||
        !is_number(lr, variable.device()) || !is_like(tensors.gradients[i]) ||
        !has_kernel_type(tensors.gradients[i].scalar_type()) ||
        !std::all_of(tensors.slots.begin(), tensors.slots.end(), is_slot_right)) {
      return false;
    }
  }
  return true;
}

void sgd_update(const UpdateTensors& tensors, const Tensor& lr, const SgdUpdate& options,
                const Launcher& launcher) {
  for (const TableBuilder& builder : by_gradient_type(tensors)) {
    const KernelSource kernel{
        "sgd_update",
        builder.head() + fmt::format("using L = {};\n", number_type(lr)) + kTable + kSgd};
    builder.for_each_table([&](const Table& table, const LaunchShape& shape) {
      launcher(kernel, shape, table, lr.data_ptr(), static_cast<float>(options.momentum),
               static_cast<float>(options.weight_decay), static_cast<int>(options.nesterov));
    });
  }
}

void adam_update(const UpdateTensors& tensors, const Tensor& lr, const Tensor& step,
                 const AdamUpdate& options, const Launcher& launcher) {
  for (const TableBuilder& builder : by_gradient_type(tensors)) {
    const KernelSource kernel{"adam_update", builder.head() +
                                                 fmt::format("using L = {};\nusing S = {};\n",
                                                             number_type(lr), number_type(step)) +
                                                 kTable + kAdam};
    builder.for_each_table([&](const Table& table, const LaunchShape& shape) {
      launcher(kernel, shape, table, lr.data_ptr(), step.data_ptr(),
               static_cast<float>(1 - options.beta1), static_cast<float>(1 - options.beta2),
               static_cast<float>(std::log(options.beta1)),
               static_cast<float>(std::log(options.beta2)), static_cast<float>(options.epsilon),
               static_cast<float>(options.weight_decay), static_cast<int>(options.decoupled));
    });
  }
}

}  // namespace tensorpack::cuda
