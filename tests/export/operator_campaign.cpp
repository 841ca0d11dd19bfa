// SPDX-License-Identifier: Apache-2.0
// Runs every operator that a file may call, as a loaded program would, with thousands of arguments
// of which many do not fit. See usage() below.
//
// All tensors end or begin at a guard page. A call is made twice, over memory that held other
// bytes; what differs shows the memory of others. The calls run in a child process, so that a crash
// is a failure that names the operator and its arguments: a call follows from the seed, the
// operator and its number, and the parent process makes the same ones to describe them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "tensorpack/export/detail/allowed_operators.h"
#include "tensorpack/export/detail/program_function.h"
#include "tensorpack/export/detail/program_uses.h"
#include "tensorpack/utils/find_operator.h"

namespace tensorpack {
namespace {

using Kind = c10::TypeKind;
constexpr auto kLeast = std::numeric_limits<int64_t>::min();
constexpr auto kMost = std::numeric_limits<int64_t>::max();

// ------------------------------------------------------------------ memory between guard pages

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 64;
// Kernels of BLAS read a few bytes behind matrices, and ignore them. What does matter of these
// bytes shows in the results; who writes to them is found when the block is given back.
constexpr size_t kMargin = 64;
constexpr size_t kLargestBlock = size_t{16} << 20;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

struct Memory {
  int before = 0;                  ///< what every byte of new memory is
  bool begins_at_a_guard = false;  ///< or it ends at one
  bool was_overrun = false;        ///< somebody wrote behind a block, before the guard page
};
Memory memory;

struct Block {
  char* pages;
  size_t size;  // of the pages between the guards
  size_t bytes;
  int before;
};

std::map<void*, Block>& blocks() {
  static auto* const all = new std::map<void*, Block>;
  return *all;
}

void* take(size_t bytes) {
  TORCH_CHECK(bytes <= kLargestBlock, "not enough memory: this is ", bytes, " bytes");
  const size_t size = round_up(bytes + kMargin, kPage);
  void* const map = mmap(nullptr, size + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK(map != MAP_FAILED, "not enough memory");
  char* const pages = static_cast<char*>(map) + kPage;
  TORCH_CHECK(mprotect(pages, size, PROT_READ | PROT_WRITE) == 0, "not enough memory");
  std::memset(pages, memory.before, size);
  char* const data =
      memory.begins_at_a_guard ? pages : pages + size - round_up(bytes + kMargin, kAlignment);
  blocks()[data] = {pages, size, bytes, memory.before};
  return data;
}

void give_back(void* data) {
  if (data == nullptr) return;
  const auto found = blocks().find(data);
  const Block& block = found->second;
  const auto* const from = static_cast<const char*>(data);
  for (const char* c = block.pages; c < block.pages + block.size; ++c) {
    const bool is_outside = c < from || c >= from + block.bytes;
    if (is_outside && *c != static_cast<char>(block.before)) memory.was_overrun = true;
  }
  munmap(block.pages - kPage, block.size + 2 * kPage);
  blocks().erase(found);
}

// Overrides what the version at hand has; see cpu_allocator.cpp.
class GuardedAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const { return make(bytes); }
  c10::DataPtr allocate(size_t bytes) { return make(bytes); }
  c10::DeleterFnPtr raw_deleter() const { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }

 private:
  static c10::DataPtr make(size_t bytes) {
    void* data = bytes == 0 ? nullptr : take(bytes);
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
};

// ------------------------------------------------------------------------------ random arguments

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  /// In [first, last].
  int64_t number(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(engine_() % static_cast<uint64_t>(last - first + 1));
  }
  bool chance(double probability) {
    return static_cast<double>(engine_() >> 11) * 0x1p-53 < probability;
  }
  template <typename T>
  T one_of(const std::vector<T>& pool) {
    return pool[static_cast<size_t>(number(0, std::ssize(pool) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

bool contains(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return text.find(word) != std::string::npos; });
}

// One call of an operator, and what it is given.
class Call {
 public:
  Call(const std::string& name, const c10::OperatorHandle& op, uint64_t seed) : random_(seed) {
    node_.op = name;
    wildness_ = random_.one_of<double>({0, 0, 0.1, 0.1, 0.4});
    const std::vector<at::ScalarType> types = {
        at::kFloat,        at::kFloat,    at::kFloat, at::kFloat, at::kDouble,
        at::kLong,         at::kLong,     at::kByte,  at::kInt,   at::kBool,
        at::kComplexFloat, at::kBFloat16, at::kHalf,  at::kChar,  at::kShort};
    type_ = random_.one_of(types);
    if (is_op({"_fft_c2"}) && random_.chance(0.8)) type_ = at::kComplexFloat;
    if (is_op({"upsample"}) && random_.chance(0.3)) type_ = at::kByte;
    if (is_op({"div", "mod", "remainder", "lcm", "gcd"}) && random_.chance(0.4)) {
      type_ = random_.one_of<at::ScalarType>({at::kLong, at::kInt});
      wildness_ = 0.6;
    }
    const int64_t rank = random_rank();
    for (int64_t i = 0; i < rank; ++i) {
      shape_.push_back(random_.one_of<int64_t>({1, 2, 2, 3, 4, 4, 5, 8}));
    }
    if (rank > 0 && random_.chance(0.05)) shape_[random_.number(0, rank - 1)] = 0;
    if (rank > 1 && random_.chance(contains(name, {"linalg", "mm", "cholesky"}) ? 0.7 : 0.2))
      shape_[rank - 1] = shape_[rank - 2];
    for (const c10::Argument& argument : op.schema().arguments()) {
      if (argument.default_value().has_value() && random_.chance(0.3)) continue;
      node_.arguments[argument.name()] = value_of(argument, argument.real_type());
    }
    for (const c10::Argument& result : op.schema().returns()) {
      ExportedResult ids;
      ids.is_list = result.type()->kind() == Kind::ListType;
      const bool is_tensor = ids.is_list || result.type()->kind() == Kind::TensorType;
      for (int64_t i = is_tensor ? (ids.is_list ? random_.number(1, 4) : 1) : 0; i > 0; --i) {
        ids.ids.push_back(add_value());
        program_.outputs.push_back({fmt::format("y{}", program_.outputs.size()), ids.ids.back()});
      }
      node_.results.push_back(ids);
    }
    program_.nodes = {node_};
  }

  const ExportedProgram& program() const { return program_; }
  const std::vector<at::Tensor>& inputs() const { return inputs_; }
  const std::string& text() const { return text_; }

 private:
  ExportedId add_value() {
    program_.values.emplace_back();
    return static_cast<ExportedId>(program_.values.size()) - 1;
  }

  bool is_op(std::initializer_list<const char*> words) const { return contains(node_.op, words); }

  // One that the operator may take.
  int64_t random_rank() {
    if (random_.chance(0.7)) {
      if (is_op({"1d"})) return 3;
      if (is_op({"2d", "conv", "batch_norm", "im2col", "group_norm", "affine_grid"})) return 4;
      if (is_op({"3d"})) return 5;
      if (is_op({"bmm", "_tbc", "col2im"})) return 3;
      if (is_op({"mm", "mv", "linalg", "cholesky", "triangular", "embedding"})) return 2;
      if (is_op({"addr", "dot"})) return 1;
    }
    return random_.one_of<int64_t>({0, 1, 2, 2, 3, 3, 4, 4, 4, 5});
  }

  // The shape that an argument of this name would often have; nothing if it is the common one.
  std::optional<std::vector<int64_t>> likely_shape(const std::string& name) {
    const int64_t rank = std::ssize(shape_);
    std::vector<int64_t> shape = shape_;
    if (is_op({"col2im"}) && random_.chance(0.9))
      return std::vector<int64_t>{2, 8, random_.one_of<int64_t>({1, 4, 9})};
    if (is_op({"_tbc"}) && name == "bias") return std::vector<int64_t>{2};
    if (is_op({"_tbc"}) && name == "weight") return std::vector<int64_t>{2, extent(2), 2};
    if (is_op({"conv"}) && name == "weight") {
      shape.assign(static_cast<size_t>(rank), random_.number(1, 3));
      if (rank > 1) shape[0] = shape[1] = extent(1);
      return shape;
    }
    if (is_op({"embedding_bag"}) && name != "weight") {
      return std::vector<int64_t>{contains(name, {"offsets"}) ? random_.number(1, 5) : extent(0)};
    }
    if (contains(name, {"vec"})) return std::vector<int64_t>{extent(rank - 1)};
    if (name == "theta") return std::vector<int64_t>{extent(0), rank - 2, rank - 1};
    if (is_op({"embedding"}) && name == "weight") return shape;
    if (contains(name, {"weight", "bias", "running", "mean", "var"})) {
      return std::vector<int64_t>{extent(1)};
    }
    if (rank > 0 && name == "grid") {
      shape.erase(shape.begin() + std::min<int64_t>(1, rank - 1));
      shape.push_back(rank - 2);
      return shape;
    }
    if (rank > 1 && name == "target" && is_op({"nll"})) {
      shape.erase(shape.begin() + 1);
      return shape;
    }
    if (contains(name, {"offsets"}) || (contains(name, {"ind"}) && random_.chance(0.5))) {
      return std::vector<int64_t>{random_.number(1, 5)};
    }
    return std::nullopt;
  }

  bool is_wild() { return random_.chance(wildness_); }

  int64_t extent(int64_t dim) const {
    return dim >= 0 && dim < std::ssize(shape_) ? shape_[static_cast<size_t>(dim)] : 1;
  }

  int64_t integer(const std::string& name) {
    const int64_t rank = std::ssize(shape_);
    if (is_op({"col2im"}) && !is_wild()) {
      if (name == "output_size") return random_.one_of<int64_t>({2, 3, 4});
      if (name == "kernel_size") return 2;
      return name == "padding" ? 0 : random_.number(1, 2);
    }
    if (is_wild()) {
      return random_.one_of<int64_t>({kLeast, kLeast + 1, kMost, kMost / 2, -1, -2, -100, 0, 7, 9,
                                      1000, int64_t{1} << 31, int64_t{1} << 32, int64_t{1} << 40,
                                      -(int64_t{1} << 40), int64_t{1} << 62});
    }
    if (contains(name, {"dim", "axis"}))
      return random_.number(-rank, std::max<int64_t>(rank, 1) - 1);
    if (name == "N") return extent(0);
    if (name == "C" || name == "num_embeddings" || name == "num_weights") return extent(1);
    if (contains(name, {"pad"}) && name != "padding_mode") return random_.number(0, 2);
    if (name == "HxW") {
      int64_t product = 1;
      for (int64_t i = 2; i < rank; ++i) product *= extent(i);
      return product;
    }
    if (contains(name, {"group"})) return random_.chance(0.8) ? 1 : extent(1);
    if (contains(name, {"reduction", "mode", "normalization"})) return random_.number(0, 2);
    if (name == "last_dim_size") return 2 * extent(rank - 1) - 2;
    if (contains(name, {"size", "stride", "dilation", "factor", "step", "n", "k"})) {
      return random_.number(1, 4);
    }
    return random_.number(0, 3);
  }

  std::vector<Extent> integers(const std::string& name, int64_t length) {
    const int64_t rank = std::ssize(shape_);
    std::vector<int64_t> values;
    if (contains(name, {"size", "shape", "split"}) && !contains(name, {"kernel", "output"}) &&
        random_.chance(0.5)) {
      values = shape_;
      if (random_.chance(0.3)) std::shuffle(values.begin(), values.end(), std::mt19937());
    } else if (name == "stride" && length == 0 && random_.chance(0.5)) {
      values.assign(shape_.size(), 1);
      for (int64_t i = rank - 1; i > 0; --i)
        values[i - 1] = values[i] * std::max<int64_t>(extent(i), 1);
    } else if (contains(name, {"dim"}) && rank > 0 && random_.chance(0.8)) {
      for (int64_t i = 0; i < rank; ++i) {
        if (random_.chance(0.5)) values.push_back(i);
      }
    } else {
      int64_t count = random_.one_of<int64_t>({rank, rank - 2, 1, 2, 3, 4, 6});
      if (length != 0 && random_.chance(0.8)) count = length;
      if (is_op({"conv", "upsample"})) count = rank - 2;
      if (is_op({"pad"}) && length != 0 && random_.chance(0.5)) count = 2 * (rank - 2);
      for (int64_t i = 0; i < count; ++i) values.push_back(integer(name));
      if (is_op({"upsample"}) && random_.chance(0.6)) {
        for (int64_t i = 0; i < count; ++i) values[i] = 2 * extent(rank - count + i);
      }
    }
    std::vector<Extent> extents;
    for (int64_t& value : values) {
      if (is_wild()) value = integer(name);
      extents.push_back({0, value});
    }
    return extents;
  }

  double real() {
    if (is_wild()) {
      return random_.one_of<double>({1e-300, -1e-300, 1e300, -1e300, 5e-324, 1e18, -1, 0,
                                     std::nan(""), std::numeric_limits<double>::infinity(),
                                     -std::numeric_limits<double>::infinity()});
    }
    return random_.one_of<double>({0, 1, 0.5, 2, 2, 0.1, 1e-5});
  }

  // A view of memory of its own, in one of many layouts.
  at::Tensor with_layout(const at::Tensor& value) {
    const auto shape = value.sizes();
    if (value.dim() == 0) return value.clone();
    const int64_t dim = random_.number(0, value.dim() - 1);
    switch (random_.number(0, 9)) {
      case 0:  // stride 0 everywhere
        if (value.numel() == 0) break;
        return value.flatten().narrow(0, 0, 1).clone().expand(shape);
      case 1:  // in one dimension
        if (value.size(dim) == 0) break;
        return value.narrow(dim, 0, 1).clone().expand(shape);
      case 2:
        return value.transpose(0, dim).contiguous().transpose(0, dim);
      case 3: {  // with gaps
        std::vector<int64_t> wide = shape.vec();
        wide[dim] *= 2;
        const at::Tensor base = at::zeros(wide, value.options());
        base.slice(dim, 1, {}, 2).copy_(value);
        return base.slice(dim, 1, {}, 2);
      }
      case 4: {  // elements that overlap
        if (value.dim() != 1 || value.numel() < 2) break;
        const int64_t half = (value.numel() + 1) / 2;
        return value.narrow(0, 0, half + 1)
            .clone()
            .unfold(0, 2, 1)
            .narrow(0, 0, half)
            .reshape({-1})
            .narrow(0, 0, value.numel());
      }
      case 5:
        if (value.is_complex()) return value.clone().conj();
        break;
      default:
        break;
    }
    return value.clone();
  }

  at::Tensor content(const std::string& name, const std::vector<int64_t>& shape,
                     at::ScalarType type) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    const bool is_index = contains(name, {"ind", "target", "offsets", "sorter"});
    const bool is_extreme = is_wild();
    if (!at::isIntegralType(type, /*includeBool=*/true)) {
      at::Tensor values = at::empty({count}, at::kDouble);
      auto* const data = values.data_ptr<double>();
      for (int64_t i = 0; i < count; ++i) {
        data[i] = is_extreme
                      ? 50 * real()
                      : static_cast<double>(random_.number(is_op({"entropy"}) ? 0 : -4, 4)) / 4;
      }
      return values.to(type).view(shape);
    }
    at::Tensor values = at::empty({count}, at::kLong);
    auto* const data = values.data_ptr<int64_t>();
    const std::vector<int64_t> extremes = {kLeast, kLeast, kMost, -1, -1, 0, 255, 1000, -100};
    for (int64_t i = 0; i < count; ++i) {
      data[i] = is_extreme ? random_.one_of(extremes) : random_.number(is_index ? 0 : -2, 2);
    }
    // The least and the most stay so in narrower types.
    if (is_extreme && type == at::kInt) values = values.clamp(INT32_MIN, INT32_MAX);
    if (is_extreme && type == at::kShort) values = values.clamp(INT16_MIN, INT16_MAX);
    if (is_extreme && type == at::kChar) values = values.clamp(INT8_MIN, INT8_MAX);
    return values.to(type).view(shape);
  }

  ExportedId tensor(const std::string& name) {
    std::vector<int64_t> shape = shape_;
    const int64_t rank = std::ssize(shape);
    const auto likely = likely_shape(name);
    if (random_.chance(0.1 + wildness_ / 4)) {
      const int64_t other = random_.chance(0.5) ? rank : random_.number(0, 5);
      shape.clear();
      for (int64_t i = 0; i < other; ++i) shape.push_back(random_.one_of<int64_t>({0, 1, 2, 3, 4}));
    } else if (likely.has_value() && random_.chance(0.8)) {
      shape = *likely;
      for (int64_t& size : shape) size = std::max<int64_t>(size, 0);
    }
    at::ScalarType type = type_;
    if (contains(name, {"ind", "offsets"}) && !is_wild()) type = at::kLong;
    if (is_op({"nll"}) && name == "target") type = at::kLong;
    if (is_op({"embedding_bag"}) && !contains(name, {"ind", "offsets"}) && !is_wild()) {
      type = at::kFloat;
    }
    if (name == "pivots") type = at::kInt;
    if (contains(name, {"mask", "condition"}) && random_.chance(0.7)) type = at::kBool;
    if (is_wild()) type = random_.one_of<at::ScalarType>({at::kLong, at::kFloat, at::kByte});
    at::Tensor value = content(name, shape, type);
    if (name == "offsets" && value.dim() == 1 && !is_wild()) {
      value = at::arange(value.numel()).clamp_max(extent(0)).to(type);
    }
    if (random_.chance(is_op({"embedding_bag"}) ? 0.2 : 0.7)) value = with_layout(value);
    const ExportedId id = add_value();
    inputs_.push_back(value);
    program_.inputs.push_back({.spec = {.name = name}, .id = id});
    text_ += fmt::format("\n      tensor {}: {} {} strides {}{}", name, c10::toString(type),
                         c10::str(value.sizes()), c10::str(value.strides()),
                         value.numel() <= 16 ? c10::str(" of\n", value) : "");
    return id;
  }

  ExportedArgument list_of(const c10::Argument& argument, const c10::TypePtr& element) {
    const bool is_optional = element->kind() == Kind::OptionalType;
    if (element->kind() == Kind::TensorType || is_optional) {
      ValuesArgument values;
      for (int64_t i = random_.number(0, 3); i > 0; --i) {
        values.ids.push_back(is_optional && random_.chance(0.3) ? kNoExportedValue
                                                                : tensor(argument.name()));
      }
      return values;
    }
    if (element->kind() == Kind::FloatType) {
      std::vector<double> values(std::max<size_t>(shape_.size(), 2) - 2);
      for (double& value : values) value = random_.chance(0.7) ? 2 : real();
      return values;
    }
    if (element->kind() == Kind::BoolType) return std::vector<bool>{random_.chance(0.5), true};
    std::vector<Extent> values = integers(argument.name(), argument.N().value_or(0));
    text_ += fmt::format("\n      {}:", argument.name());
    for (const Extent& value : values) text_ += fmt::format(" {}", value.offset);
    return values;
  }

  ExportedArgument value_of(const c10::Argument& argument, const c10::TypePtr& type) {
    const std::string& name = argument.name();
    const auto said = [&](auto value) -> ExportedArgument {
      text_ += fmt::format("\n      {}: {}", name, value);
      if constexpr (std::is_same_v<decltype(value), int64_t>) {
        return Extent{0, value};
      } else {
        return value;
      }
    };
    switch (type->kind()) {
      case Kind::OptionalType:
        if (random_.chance(0.4)) return {};
        return value_of(argument, type->expectRef<c10::OptionalType>().getElementType());
      case Kind::TensorType:
        return ValueArgument{tensor(name)};
      case Kind::ListType:
        return list_of(argument, type->expectRef<c10::ListType>().getElementType());
      case Kind::BoolType:
        return said(random_.chance(0.5));
      case Kind::FloatType:
        return said(contains(name, {"scales"}) && !is_wild() ? 2.0 : real());
      case Kind::NumberType:
        if (at::isFloatingType(type_) || random_.chance(0.2)) return said(real());
        return said(integer(name));
      case Kind::ScalarTypeType:
        return said(is_wild() ? static_cast<int64_t>(at::kBFloat16)
                              : static_cast<int64_t>(random_.chance(0.7) ? type_ : at::kFloat));
      case Kind::LayoutType:
        return said(int64_t{0});
      case Kind::MemoryFormatType:
        return said(random_.number(0, 3));
      case Kind::DeviceObjType:
        return DeviceOfProgram{};
      case Kind::StringType:
        return said(random_.one_of<std::string>(
            {"sum",  "mean",  "amax", "amin",     "prod", "trunc",   "floor",   "none",
             "tanh", "L",     "U",    "ij",       "left", "right",   "reduced", "complete",
             "r",    "gesvd", "add",  "multiply", "",     "nonsense"}));
      default:
        return said(integer(name));
    }
  }

  Random random_;
  double wildness_;
  at::ScalarType type_;
  std::vector<int64_t> shape_;
  ExportedProgram program_;
  ExportedNode node_;
  std::vector<at::Tensor> inputs_;
  std::string text_;
};

// ---------------------------------------------------------------------------------- one call

std::string bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Storage& storage = tensor.storage();
  return {static_cast<const char*>(tensor.storage().data()), storage.nbytes()};
}

struct Outcome {
  bool ran = false;
  std::vector<std::string> results;  ///< the bytes of their elements
  std::string complaint;
};

// A program that overwrites what the call returns must know that it writes to the input.
bool knows_alias(const Call& call, size_t output, size_t input) {
  ExportedProgram program = call.program();
  ExportedNode write;
  write.op = "aten::zero_";
  write.arguments["self"] = ValueArgument{program.outputs[output].id};
  write.results = {{.ids = {kNoExportedValue}}};
  program.nodes.push_back(write);
  return detail::ProgramUses(program).is_written(program.inputs[input].id);
}

Outcome outcome_of(const Call& call) {
  Outcome outcome;
  std::vector<std::string> before;
  for (const at::Tensor& input : call.inputs()) before.push_back(bytes_of(input));
  std::vector<at::Tensor> results;
  try {
    results = detail::ProgramFunction(call.program(), at::kCPU)(call.inputs());
    for (const at::Tensor& result : results) {
      // What the storage holds besides cannot be seen: see check_strided().
      outcome.results.push_back(bytes_of(result.defined() ? result.contiguous().clone() : result));
    }
    outcome.ran = true;
  } catch (const std::exception&) {
  }
  const detail::ProgramUses uses(call.program());
  for (size_t i = 0; i < before.size(); ++i) {
    const at::Tensor& input = call.inputs()[i];
    if (bytes_of(input) != before[i] && !uses.is_written(call.program().inputs[i].id)) {
      outcome.complaint = "wrote to an argument, which its schema does not say";
    }
    for (size_t k = 0; k < results.size(); ++k) {
      if (results[k].defined() && results[k].numel() > 0 && results[k].is_alias_of(input) &&
          !knows_alias(call, k, i)) {
        outcome.complaint = "returned the memory of an argument, which its schema does not say";
      }
    }
  }
  return outcome;
}

struct Operator {
  std::string name;
  c10::OperatorHandle handle;
};

Outcome run_once(const Operator& op, uint64_t seed, int before) {
  memory.before = before;
  memory.begins_at_a_guard = seed % 3 == 0;
  return outcome_of(Call(op.name, op.handle, seed));
}

std::string difference(const Outcome& first, const Outcome& second) {
  if (first.ran != second.ran) return "runs or does not run by what was in its memory before";
  for (size_t i = 0; i < first.results.size(); ++i) {
    const auto [a, b] = std::mismatch(first.results[i].begin(), first.results[i].end(),
                                      second.results[i].begin(), second.results[i].end());
    if (a == first.results[i].end()) continue;
    return fmt::format(
        "shows what was in its memory before (result {}, byte {} is {:02x} or {:02x})", i,
        a - first.results[i].begin(), static_cast<unsigned char>(*a),
        static_cast<unsigned char>(*b));
  }
  return {};
}

// Empty if nothing is wrong.
std::string run_twice(const Operator& op, uint64_t seed, bool* ran) {
  memory.was_overrun = false;
  const Outcome first = run_once(op, seed, 0x3f);
  *ran = first.ran;
  if (!first.complaint.empty()) return first.complaint;
  if (memory.was_overrun) return "wrote behind a tensor";
  if (!first.ran) return {};
  return difference(first, run_once(op, seed, 0x41));
}

// ------------------------------------------------------------------------------- the campaign

std::vector<Operator> allowed_operators(const std::string& part_of_name) {
  std::map<std::string, c10::OperatorHandle> found;
  for (const c10::OperatorName& id : c10::Dispatcher::singleton().getAllOpNames()) {
    const std::string name = id.overload_name.empty() ? id.name : id.name + "." + id.overload_name;
    if (name.find(part_of_name) == std::string::npos) continue;
    const auto op = try_find_operator(name);
    if (!op.has_value() || !detail::is_allowed(*op)) continue;
    // Names of dimensions have no form in a file.
    if (contains(id.overload_name, {"dimname", "Dimname", "names"})) continue;
    found.emplace(name, *op);
  }
  std::vector<Operator> operators;
  for (const auto& [name, handle] : found) operators.push_back({name, handle});
  return operators;
}

// Of the calls of one operator; shared with the child that makes them.
struct Progress {
  int64_t next = 0;
  int64_t ran = 0;
  char complaint[256] = {};
};

class Campaign {
 public:
  Campaign(uint64_t seed, int64_t calls, int64_t only)
      : seed_(seed),
        calls_(calls),
        only_(only),
        progress_(static_cast<Progress*>(mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}

  void run(const Operator& op) {
    *progress_ = {};
    if (only_ >= 0) progress_->next = only_;
    const int64_t end = only_ >= 0 ? only_ + 1 : calls_;
    int complaints = 0;
    while (progress_->next < end && complaints < kComplaints) {
      const pid_t child = fork();
      if (child == 0) run_calls(op, end);
      int status = 0;
      waitpid(child, &status, 0);
      const int64_t call = progress_->next - 1;
      std::string what = progress_->complaint;
      if (WIFSIGNALED(status)) {
        if (WTERMSIG(status) == SIGPROF) {  // much time is not harm
          ++slow_;
          continue;
        }
        what = fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                           strsignal(WTERMSIG(status)));
      }
      if (what.empty()) continue;
      ++complaints;
      ++failures_;
      memory = {};
      std::cout << fmt::format("{} {}, call {}:{}", op.name, what, call,
                               Call(op.name, op.handle, seed_of(op, call)).text())
                << std::endl;
      progress_->complaint[0] = 0;
    }
    calls_made_ += progress_->next;
    calls_that_ran_ += progress_->ran;
    if (progress_->ran == 0) never_ran_.push_back(op.name);
  }

  // 0 if all is well. A campaign over all operators must reach most of them.
  int report(size_t operators, bool is_of_all) const {
    std::cout << fmt::format(
        "{} operators, {} calls, {} of them ran, {} took too long, {} failed\n", operators,
        calls_made_, calls_that_ran_, slow_, failures_);
    if (!never_ran_.empty()) std::cout << "never ran:";
    for (const std::string& name : never_ran_) std::cout << " " << name;
    std::cout << std::endl;
    return failures_ == 0 && (!is_of_all || never_ran_.size() <= operators / 20) ? 0 : 1;
  }

 private:
  static constexpr int kComplaints = 2;  // of one operator

  uint64_t seed_of(const Operator& op, int64_t call) const {
    uint64_t hash = seed_;
    for (char c : op.name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return (hash ^ static_cast<uint64_t>(call)) * 0x9e3779b97f4a7c15;
  }

  [[noreturn]] void run_calls(const Operator& op, int64_t end) {
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(1);
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const rlimit address_space = {rlim_t{8} << 30, rlim_t{8} << 30};
    setrlimit(RLIMIT_AS, &address_space);
    const itimerval limit = {{0, 0}, {1, 0}};  // of CPU time
    while (progress_->next < end) {
      setitimer(ITIMER_PROF, &limit, nullptr);
      const int64_t call = progress_->next++;
      bool ran = false;
      const std::string complaint = run_twice(op, seed_of(op, call), &ran);
      progress_->ran += ran;
      if (complaint.empty()) continue;
      std::strncpy(progress_->complaint, complaint.c_str(), sizeof(Progress::complaint) - 1);
      break;
    }
    _exit(0);
  }

  uint64_t seed_;
  int64_t calls_;
  int64_t only_;
  Progress* progress_;
  int64_t calls_made_ = 0;
  int64_t calls_that_ran_ = 0;
  int64_t slow_ = 0;
  int64_t failures_ = 0;
  std::vector<std::string> never_ran_;
};

int usage() {
  std::cerr << "operator_campaign [--seed N] [--calls N, of each operator] [--operator PART] "
               "[--only CALL]\n";
  return 2;
}

int main_of(const std::vector<std::string>& arguments) {
  uint64_t seed = 1;
  int64_t calls = 100;
  int64_t only = -1;
  std::string part;
  for (size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const std::string& value = arguments[i + 1];
    if (arguments[i] == "--seed")
      seed = std::stoull(value);
    else if (arguments[i] == "--calls")
      calls = std::stoll(value);
    else if (arguments[i] == "--operator")
      part = value;
    else if (arguments[i] == "--only")
      only = std::stoll(value);
    else
      return usage();
  }
  if (arguments.size() % 2 != 0) return usage();
  at::set_num_threads(1);
  static auto* const allocator = new GuardedAllocator;
  c10::SetCPUAllocator(allocator, /*priority=*/255);
  const at::NoGradGuard no_grad;
  Campaign campaign(seed, calls, only);
  const std::vector<Operator> operators = allowed_operators(part);
  for (const Operator& op : operators) campaign.run(op);
  return campaign.report(operators.size(), part.empty() && only < 0);
}

}  // namespace
}  // namespace tensorpack

int main(int argc, char** argv) { return tensorpack::main_of({argv + 1, argv + argc}); }
