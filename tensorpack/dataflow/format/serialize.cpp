// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/format/serialize.h"

#include <torch/types.h>

#include <bit>
#include <cstring>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[] = "TPDP";
constexpr uint8_t kVersion = 1;
constexpr size_t kAlignment = 16;
// More dimensions than libtorch's operators take.
constexpr uint8_t kMaxDimensions = 64;

struct Header {
  char magic[4] = {};
  uint8_t version = 0;
  uint8_t zeros[3] = {};
  uint32_t components = 0;
  uint32_t zero = 0;
};
struct ComponentHeader {
  uint8_t type = 0;
  uint8_t dimensions = 0;
  uint8_t zeros[6] = {};
};
static_assert(sizeof(Header) == 16 && sizeof(ComponentHeader) == 8);

constexpr size_t aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

at::Tensor plain(const at::Tensor& tensor) {
  TP_CHECK(tensor.defined(), "serialize",
           "a component of the datapoint is an undefined tensor. Give it a value.");
  return tensor.detach().cpu().contiguous().resolve_conj().resolve_neg();
}

size_t header_bytes(int64_t dimensions) {
  return sizeof(ComponentHeader) + static_cast<size_t>(dimensions) * sizeof(int64_t);
}

bool is_known(uint8_t type) {
  switch (static_cast<at::ScalarType>(type)) {
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kFloat:
    case at::kDouble:
    case at::kComplexFloat:
    case at::kComplexDouble:
    case at::kBool:
    case at::kBFloat16:
      return true;
    default:
      return false;
  }
}

// Reads fields one after the other and checks every one of them.
class Reader {
 public:
  Reader(std::string_view bytes, std::string_view where) : bytes_(bytes), where_(where) {}

  template <typename T>
  T take(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }

  const char* take(size_t count, const char* what) {
    check(count <= bytes_.size() - offset_, "is cut off in the {}", what);
    const char* at = bytes_.data() + offset_;
    offset_ += count;
    return at;
  }

  void align() {
    const size_t to = aligned(offset_);
    check(to <= bytes_.size(), "is cut off");
    offset_ = to;
  }

  size_t left() const { return bytes_.size() - offset_; }

  template <typename... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    TP_CHECK(
        condition, where_,
        "at offset {} of {} bytes the datapoint {}. The data is damaged, or was not written by "
        "serialize().",
        offset_, bytes_.size(), fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  std::string_view bytes_;
  std::string_view where_;
  size_t offset_ = 0;
};

struct Component {
  at::ScalarType type = at::kByte;
  std::vector<int64_t> shape = {};
  const char* data = nullptr;
  size_t bytes = 0;
};

Component read_component(Reader& reader) {
  const auto header = reader.take<ComponentHeader>("header of a component");
  reader.check(is_known(header.type), "has a component of unknown type {}", header.type);
  reader.check(header.dimensions <= kMaxDimensions, "has a component of {} dimensions",
               header.dimensions);
  Component component{.type = static_cast<at::ScalarType>(header.type)};
  size_t count = 1;
  for (uint8_t d = 0; d < header.dimensions; ++d) {
    const auto size = reader.take<int64_t>("shape of a component");
    reader.check(size >= 0, "has a component with a dimension of size {}", size);
    reader.check(size == 0 || count <= reader.left() / static_cast<size_t>(size),
                 "claims a shape larger than the data");
    count *= static_cast<size_t>(size);
    component.shape.push_back(size);
  }
  component.bytes = count * c10::elementSize(component.type);
  reader.align();
  component.data = reader.take(component.bytes, "values of a component");
  reader.align();
  return component;
}

std::vector<Component> read(std::string_view bytes, std::string_view where) {
  Reader reader(bytes, where);
  const auto header = reader.take<Header>("header");
  reader.check(std::memcmp(header.magic, kMagic, sizeof(header.magic)) == 0,
               "does not begin with {}", kMagic);
  reader.check(header.version == kVersion, "has version {}, this program reads version {}",
               header.version, kVersion);
  reader.check(header.components <= reader.left() / sizeof(ComponentHeader),
               "claims to have {} components", header.components);
  std::vector<Component> components;
  for (uint32_t i = 0; i < header.components; ++i) components.push_back(read_component(reader));
  reader.check(reader.left() == 0, "has {} more bytes than it should", reader.left());
  return components;
}

}  // namespace

size_t serialized_size(const DataPoint& point) {
  size_t size = sizeof(Header);
  for (const at::Tensor& tensor : point) {
    size = aligned(size + header_bytes(tensor.dim()));
    size = aligned(size + static_cast<size_t>(tensor.numel()) * tensor.element_size());
  }
  return size;
}

void serialize_into(const DataPoint& point, char* to) {
  char* const begin = to;
  Header header{.version = kVersion, .components = static_cast<uint32_t>(point.size())};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  const auto put = [&](const void* from, size_t count) {
    if (count > 0) std::memcpy(to, from, count);
    to += count;
  };
  const auto align = [&] {
    const size_t gap = aligned(static_cast<size_t>(to - begin)) - static_cast<size_t>(to - begin);
    std::memset(to, 0, gap);
    to += gap;
  };
  put(&header, sizeof(header));
  for (const at::Tensor& tensor : point) {
    const at::Tensor values = plain(tensor);
    const ComponentHeader component{.type = static_cast<uint8_t>(values.scalar_type()),
                                    .dimensions = static_cast<uint8_t>(values.dim())};
    put(&component, sizeof(component));
    put(values.sizes().data(), values.sizes().size() * sizeof(int64_t));
    align();
    put(values.data_ptr(), values.nbytes());
    align();
  }
}

std::string serialize(const DataPoint& point) {
  std::string bytes(serialized_size(point), '\0');
  serialize_into(point, bytes.data());
  return bytes;
}

DataPoint deserialize(std::string_view bytes, std::string_view where) {
  DataPoint point;
  for (const Component& component : read(bytes, where)) {
    at::Tensor tensor = at::empty(component.shape, component.type);
    if (component.bytes > 0) std::memcpy(tensor.data_ptr(), component.data, component.bytes);
    point.push_back(std::move(tensor));
  }
  return point;
}

DataPoint deserialize(const at::Tensor& bytes, std::string_view where) {
  TP_CHECK(bytes.scalar_type() == at::kByte && bytes.dim() == 1 && bytes.is_contiguous(), where,
           "a datapoint is read from a contiguous tensor of unsigned bytes in one dimension.");
  const std::string_view view(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes());
  DataPoint point;
  for (const Component& component : read(view, where)) {
    point.push_back(at::from_blob(
        const_cast<char*>(component.data), component.shape, [bytes](void*) {}, component.type));
  }
  return point;
}

}  // namespace tensorpack
