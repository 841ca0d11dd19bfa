// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/format/lmdb.h"

#include <lmdb.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>

#include "tensorpack/dataflow/format/lmdb_pages.h"
#include "tensorpack/dataflow/format/serialize.h"
#include "tensorpack/dataflow/rng.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

// Records per transaction: to commit each would cost a synchronisation with the disk.
constexpr int64_t kCommitEvery = 5000;
// A list of all keys, which Tensorpack's databases have.
constexpr std::string_view kKeyList = "__keys__";

std::string_view view(const MDB_val& value) {
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

MDB_val value_of(std::string_view bytes) {
  return {bytes.size(), const_cast<char*>(bytes.data())};  // LMDB only reads it
}

struct CloseEnv {
  void operator()(MDB_env* env) const { mdb_env_close(env); }
};
struct AbortTxn {
  void operator()(MDB_txn* txn) const { mdb_txn_abort(txn); }
};
using Env = std::unique_ptr<MDB_env, CloseEnv>;
using Txn = std::unique_ptr<MDB_txn, AbortTxn>;

void check(int code, const char* where, const fs::path& path, const char* what) {
  TP_CHECK(code == MDB_SUCCESS, where, "cannot {} '{}': {}. Check that it is a whole LMDB file.",
           what, path.string(), mdb_strerror(code));
}

Env open_env(const char* where, const fs::path& path, unsigned flags, size_t map_size) {
  MDB_env* raw = nullptr;
  check(mdb_env_create(&raw), where, path, "prepare");
  Env env(raw);
  if (map_size > 0) check(mdb_env_set_mapsize(raw, map_size), where, path, "prepare");
  check(mdb_env_open(raw, path.c_str(), flags, 0644), where, path, "open");
  return env;
}

Txn begin(const char* where, const fs::path& path, MDB_env* env, unsigned flags) {
  MDB_txn* raw = nullptr;
  check(mdb_txn_begin(env, nullptr, flags, &raw), where, path, "read");
  return Txn(raw);
}

MDB_dbi open_dbi(const char* where, const fs::path& path, MDB_txn* txn) {
  MDB_dbi dbi = 0;
  check(mdb_dbi_open(txn, nullptr, 0, &dbi), where, path, "read");
  return dbi;
}

// Fills a new database; grows its map when it is full.
class Writer {
 public:
  explicit Writer(const fs::path& path)
      : path_(path), env_(open_env("save_lmdb", path, MDB_NOSUBDIR | MDB_NOSYNC, kFirstSize)) {}

  void add(const DataPoint& point) {
    pending_.push_back({fmt::format("{:08}", count_++), serialize(point)});
    pending_bytes_ += pending_.back().value.size();
    constexpr size_t kCommitBytes = size_t{64} << 20;
    if (std::ssize(pending_) == kCommitEvery || pending_bytes_ > kCommitBytes) commit();
  }

  int64_t finish() {
    commit();
    check(mdb_env_sync(env_.get(), 1), "save_lmdb", path_, "write");
    return count_;
  }

 private:
  struct Record {
    std::string key;
    std::string value;
  };

  void commit() {
    int code = try_commit();
    while (code == MDB_MAP_FULL) {
      MDB_envinfo info;
      mdb_env_info(env_.get(), &info);
      check(mdb_env_set_mapsize(env_.get(), info.me_mapsize * 2), "save_lmdb", path_, "enlarge");
      code = try_commit();
    }
    check(code, "save_lmdb", path_, "write");
    pending_.clear();
    pending_bytes_ = 0;
  }

  int try_commit() {
    Txn txn = begin("save_lmdb", path_, env_.get(), 0);
    const MDB_dbi dbi = open_dbi("save_lmdb", path_, txn.get());
    for (const Record& record : pending_) {
      MDB_val key = value_of(record.key);
      MDB_val value = value_of(record.value);
      if (const int code = mdb_put(txn.get(), dbi, &key, &value, MDB_APPEND)) return code;
    }
    return mdb_txn_commit(txn.release());
  }

  static constexpr size_t kFirstSize = size_t{1} << 28;

  fs::path path_;
  Env env_;
  std::vector<Record> pending_;
  size_t pending_bytes_ = 0;
  int64_t count_ = 0;
};

}  // namespace

struct LmdbRecords::Impl {
  Impl(fs::path p, LmdbOptions options)
      : path(std::move(p)), shuffle(options.shuffle), seed(options.seed) {
    TP_CHECK(fs::exists(path), "LMDB", "there is no '{}'. Check the path.", path.string());
    const unsigned directory = fs::is_directory(path) ? 0 : MDB_NOSUBDIR;
    const unsigned read_ahead = shuffle ? MDB_NORDAHEAD : 0;
    env = open_env("LMDB", path, MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS | directory | read_ahead, 0);
    check_length();
    txn = begin("LMDB", path, env.get(), MDB_RDONLY);
    dbi = open_dbi("LMDB", path, txn.get());
    MDB_cursor* raw = nullptr;
    check(mdb_cursor_open(txn.get(), dbi, &raw), "LMDB", path, "read");
    cursor.reset(raw);
    MDB_stat stat;
    check(mdb_stat(txn.get(), dbi, &stat), "LMDB", path, "read");
    MDB_val key = value_of(kKeyList);
    MDB_val value;
    has_key_list = mdb_get(txn.get(), dbi, &key, &value) == MDB_SUCCESS;
    size = static_cast<int64_t>(stat.ms_entries) - (has_key_list ? 1 : 0);
    if (shuffle) find_keys();
  }

  // LMDB maps the file into memory: to read beyond its end would kill the process.
  void check_length() const {
    MDB_envinfo info;
    MDB_stat stat;
    check(mdb_env_info(env.get(), &info), "LMDB", path, "read");
    check(mdb_env_stat(env.get(), &stat), "LMDB", path, "read");
    const fs::path file = fs::is_directory(path) ? path / "data.mdb" : path;
    const size_t size = fs::file_size(file);
    if (size >= (info.me_last_pgno + 1) * stat.ms_psize) return;
    const uint64_t needed = detail::lmdb_bytes_in_use(file);
    TP_CHECK(
        size >= needed, "LMDB",
        "'{}' is cut off: it has {} bytes, and its pages take at least {}. Get the file again.",
        file.string(), size, needed);
  }

  void find_keys() {
    MDB_val key;
    MDB_val value;
    keys.reserve(size);
    for (int code = mdb_cursor_get(cursor.get(), &key, &value, MDB_FIRST); code != MDB_NOTFOUND;
         code = mdb_cursor_get(cursor.get(), &key, &value, MDB_NEXT)) {
      check(code, "LMDB", path, "read");
      if (view(key) != kKeyList) keys.push_back(key);  // points into the file
    }
  }

  void start(int64_t number) {
    pass = number;
    position = 0;
    cursor_is_set = false;
    order.clear();
  }

  // The next record in the order of the file.
  DataPoint next_in_order() {
    MDB_val key;
    MDB_val value;
    do {
      step(key, value);
    } while (view(key) == kKeyList);
    return {bytes(view(key)), bytes(view(value))};
  }

  void step(MDB_val& key, MDB_val& value) {
    const MDB_cursor_op op = cursor_is_set ? MDB_NEXT : MDB_FIRST;
    cursor_is_set = true;
    check(mdb_cursor_get(cursor.get(), &key, &value, op), "LMDB", path, "read");
  }

  DataPoint next_shuffled() {
    if (order.empty()) {
      Rng rng(seed.value(), pass);
      order = random_permutation(size, rng);
    }
    MDB_val key = keys[order[position]];
    MDB_val value;
    check(mdb_get(txn.get(), dbi, &key, &value), "LMDB", path, "read");
    return {bytes(view(key)), bytes(view(value))};
  }

  // Moves over keys without looking at values, which therefore are not read from the disk.
  int64_t skip(int64_t count) {
    count = std::min(count, size - position);
    for (int64_t i = 0; !shuffle && i < count; ++i) {
      MDB_val key;
      MDB_val value;
      do {
        step(key, value);
      } while (view(key) == kKeyList);
    }
    position += count;
    return count;
  }

  struct CloseCursor {
    void operator()(MDB_cursor* c) const { mdb_cursor_close(c); }
  };

  fs::path path;
  bool shuffle;
  StageSeed seed;
  Env env;
  Txn txn;
  std::unique_ptr<MDB_cursor, CloseCursor> cursor;
  MDB_dbi dbi = 0;
  bool has_key_list = false;
  int64_t size = 0;
  std::vector<MDB_val> keys;
  std::vector<int64_t> order;  // of this pass, once a record was asked for
  int64_t pass = 0;
  int64_t position = 0;
  bool cursor_is_set = false;
};

LmdbRecords::LmdbRecords(fs::path path, LmdbOptions options)
    : impl_(std::make_unique<Impl>(std::move(path), options)) {}
LmdbRecords::LmdbRecords(LmdbRecords&&) noexcept = default;
LmdbRecords::~LmdbRecords() = default;

void LmdbRecords::start(int64_t pass) { impl_->start(pass); }

std::optional<DataPoint> LmdbRecords::next() {
  if (impl_->position == impl_->size) return std::nullopt;
  DataPoint record = impl_->shuffle ? impl_->next_shuffled() : impl_->next_in_order();
  ++impl_->position;
  return record;
}

int64_t LmdbRecords::skip(int64_t count) { return impl_->skip(count); }
std::optional<int64_t> LmdbRecords::size() const { return impl_->size; }

LmdbData::LmdbData(const fs::path& path, LmdbOptions options)
    : DecodedRecords(LmdbRecords(path, options)), path_(path) {}

std::optional<DataPoint> LmdbData::next() {
  const auto record = records_.next();
  if (!record) return std::nullopt;
  return deserialize((*record)[1], fmt::format("LmdbData '{}', key '{}'", path_.string(),
                                               bytes_view((*record)[0])));
}

int64_t save_lmdb(DataFlow& flow, const fs::path& path) {
  TP_CHECK(!fs::exists(path), "save_lmdb", "there is a '{}' already. Remove it, or choose another.",
           path.string());
  fs::path unfinished = path;
  unfinished += ".unfinished";
  fs::path lock = unfinished;
  lock += "-lock";
  int64_t count = 0;
  try {
    fs::remove(unfinished);
    Writer writer(unfinished);
    while (const auto point = flow.next()) writer.add(*point);
    count = writer.finish();
  } catch (...) {
    fs::remove(unfinished);
    fs::remove(lock);
    throw;
  }
  fs::remove(lock);
  fs::rename(unfinished, path);
  return count;
}

}  // namespace tensorpack
