// SPDX-License-Identifier: Apache-2.0
// What there is of LMDB where the library was built without it.
#include "tensorpack/dataflow/format/lmdb.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

Error without_lmdb(const std::filesystem::path& path) {
  return make_error("LMDB",
                    "'{}' is out of reach: the library was built without LMDB. Install it (on "
                    "Debian: liblmdb-dev) and build again.",
                    path.string());
}

}  // namespace

struct LmdbRecords::Impl {};

LmdbRecords::LmdbRecords(std::filesystem::path path, LmdbOptions) { throw without_lmdb(path); }
LmdbRecords::LmdbRecords(LmdbRecords&&) noexcept = default;
LmdbRecords::~LmdbRecords() = default;
void LmdbRecords::start(int64_t) {}
std::optional<DataPoint> LmdbRecords::next() { return std::nullopt; }
int64_t LmdbRecords::skip(int64_t) { return 0; }
std::optional<int64_t> LmdbRecords::size() const { return std::nullopt; }

LmdbData::LmdbData(const std::filesystem::path& path, LmdbOptions options)
    : DecodedRecords(LmdbRecords(path, options)) {}
std::optional<DataPoint> LmdbData::next() { return std::nullopt; }

int64_t save_lmdb(DataFlow&, const std::filesystem::path& path) { throw without_lmdb(path); }

}  // namespace tensorpack
