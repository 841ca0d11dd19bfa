// SPDX-License-Identifier: Apache-2.0
// The layout of version 1, the only one there is, on a machine as that which wrote it: LMDB's files
// are of one word size and byte order.
#include "tensorpack/dataflow/format/lmdb_pages.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tensorpack/utils/error.h"

namespace tensorpack::detail {
namespace {

constexpr size_t kHead = 16;        // of a page: number, flags, where its nodes are
constexpr uint16_t kBranch = 0x01;  // flags of pages
constexpr uint16_t kLeaf = 0x02;
constexpr uint16_t kOverflow = 0x01;  // flag of a node whose value has pages of its own
constexpr uint64_t kNoPage = ~uint64_t{0};

// Offsets in a meta page, of which there are two, the pages 0 and 1.
constexpr size_t kMagic = 16;
constexpr size_t kPageSize = 40;
constexpr size_t kRoot = 128;
constexpr size_t kTransaction = 144;
constexpr size_t kMetaBytes = 152;

template <typename T>
T number_at(std::string_view bytes, size_t at) {
  T value = 0;
  if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

class PageWalk {
 public:
  explicit PageWalk(const std::filesystem::path& path)
      : path_(path), file_(path, std::ios::binary), size_(std::filesystem::file_size(path)) {
    const std::string first = read(0, kMetaBytes);
    TP_CHECK(first.size() == kMetaBytes && number_at<uint32_t>(first, kMagic) == 0xbeefc0de, "LMDB",
             "'{}' is no LMDB, or cut off: it has {} bytes. Get the file again.", path.string(),
             size_);
    page_size_ = number_at<uint32_t>(first, kPageSize);
    check(page_size_ >= 256 && page_size_ <= 1 << 16);
    const std::string second = read(page_size_, kMetaBytes);
    const bool first_is_newer =
        number_at<uint64_t>(first, kTransaction) >= number_at<uint64_t>(second, kTransaction);
    root_ = number_at<uint64_t>(first_is_newer ? first : second, kRoot);
  }

  uint64_t bytes_in_use() {
    use(1, 1);
    if (root_ == kNoPage) return end_;
    std::vector<uint64_t> pages = {root_};
    // A tree has no more pages than the file, whatever a damaged one says.
    for (uint64_t left = size_ / page_size_; !pages.empty(); --left) {
      check(left > 0);
      const uint64_t page = pages.back();
      pages.pop_back();
      use(page, 1);
      if (end_ > size_) break;  // it is cut off: no more to be known
      visit(read(page * page_size_, page_size_), pages);
    }
    return end_;
  }

 private:
  std::string read(uint64_t offset, size_t bytes) {
    std::string result(bytes, '\0');
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(result.data(), static_cast<std::streamsize>(bytes));
    result.resize(static_cast<size_t>(file_.gcount()));
    return result;
  }

  void use(uint64_t first, uint64_t count) { end_ = std::max(end_, (first + count) * page_size_); }

  void visit(const std::string& page, std::vector<uint64_t>& pages) {
    const auto flags = number_at<uint16_t>(page, 10);
    const size_t nodes_end = number_at<uint16_t>(page, 12);
    check(nodes_end >= kHead && nodes_end <= page_size_);
    const size_t nodes = (nodes_end - kHead) / 2;
    for (size_t i = 0; i < nodes; ++i) {
      const size_t node = number_at<uint16_t>(page, kHead + 2 * i);
      const uint64_t low = number_at<uint32_t>(page, node);
      const auto node_flags = number_at<uint16_t>(page, node + 4);
      if ((flags & kBranch) != 0) {
        pages.push_back(low | uint64_t{node_flags} << 32);
      } else if ((flags & kLeaf) != 0 && (node_flags & kOverflow) != 0) {
        const size_t value = node + 8 + number_at<uint16_t>(page, node + 6);
        use(number_at<uint64_t>(page, value), (kHead + low + page_size_ - 1) / page_size_);
      }
    }
  }

  void check(bool holds) const {
    TP_CHECK(holds, "LMDB", "'{}' is damaged. Get the file again.", path_.string());
  }

  std::filesystem::path path_;
  std::ifstream file_;
  uint64_t size_;
  uint64_t page_size_ = 0;
  uint64_t root_ = kNoPage;
  uint64_t end_ = 0;
};

}  // namespace

uint64_t lmdb_bytes_in_use(const std::filesystem::path& file) {
  return PageWalk(file).bytes_in_use();
}

}  // namespace tensorpack::detail
