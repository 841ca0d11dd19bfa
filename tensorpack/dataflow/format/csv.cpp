// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/format/csv.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ostream>

#include "tensorpack/dataflow/detail/byte_source.h"
#include "tensorpack/dataflow/detail/error_counter.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

// Reads characters, and records made of them.
class CsvReader {
 public:
  CsvReader(const fs::path& path, char separator)
      : path_(path), separator_(separator), source_(path) {}

  // The fields of the next line that is not empty; nullopt at the end of the file.
  std::optional<std::vector<std::string>> next() {
    int first = get();
    while (first == '\n' || first == '\r') first = get();
    if (first == kEnd) return std::nullopt;
    line_ = lines_;
    std::vector<std::string> fields(1);
    for (int c = first; c != kEnd && c != '\n'; c = get()) {
      if (c == '"' && fields.back().empty()) {
        read_quoted(fields.back());
      } else if (c == separator_) {
        fields.emplace_back();
      } else if (c != '\r') {
        fields.back() += static_cast<char>(c);
      }
    }
    return fields;
  }

  // Where the last record began, counted from 1.
  int64_t line() const { return line_; }

 private:
  static constexpr int kEnd = -1;

  void read_quoted(std::string& field) {
    while (true) {
      int c = get();
      TP_CHECK(c != kEnd, "CsvData", "'{}' ends in a quoted field that began in line {}.",
               path_.string(), line_);
      if (c == '"') {
        c = get();
        if (c != '"') {
          unget();
          return;
        }
      }
      field += static_cast<char>(c);
    }
  }

  int get() {
    if (at_ == buffer_.size()) {
      if (is_at_end_) return kEnd;
      buffer_.resize(1 << 16);
      buffer_.resize(source_.read(buffer_.data(), std::ssize(buffer_)));
      at_ = 0;
      is_at_end_ = buffer_.empty();
      if (is_at_end_) return kEnd;
    }
    const char c = buffer_[at_++];
    if (last_ == '\n') ++lines_;
    last_ = c;
    return static_cast<unsigned char>(c);
  }

  // Only for the character that was just got, and not for the end of the file.
  void unget() {
    if (is_at_end_) return;
    --at_;
    last_ = '\0';
  }

  fs::path path_;
  char separator_;
  detail::ByteSource source_;
  std::string buffer_;
  size_t at_ = 0;
  bool is_at_end_ = false;
  char last_ = '\0';
  int64_t lines_ = 1;
  int64_t line_ = 1;
};

template <typename T>
std::optional<T> parse(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::floating_point<T>) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return value;
}

std::string as_field(std::string_view text, char separator) {
  if (text.find_first_of(std::string("\"\r\n") + separator) == std::string_view::npos) {
    return std::string(text);
  }
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + '"';
}

void append_fields(const at::Tensor& tensor, char separator, std::vector<std::string>& fields) {
  if (tensor.scalar_type() == at::kByte && tensor.dim() == 1) {
    fields.push_back(as_field(bytes_view(tensor), separator));
    return;
  }
  const at::Tensor flat = tensor.flatten();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const at::Scalar value = flat[i].item();
    fields.push_back(value.isFloatingPoint() ? fmt::format("{}", value.toDouble())
                                             : fmt::format("{}", value.toLong()));
  }
}

}  // namespace

struct CsvData::Impl {
  Impl(fs::path p, std::vector<CsvComponent> c, CsvOptions o)
      : path(std::move(p)), components(std::move(c)), options(o), errors("CsvData") {
    TP_CHECK(!components.empty(), "CsvData", "there are no components. Name columns.");
    for (const CsvComponent& component : components) {
      TP_CHECK(!component.columns.empty(), "CsvData", "a component has no columns. Name some.");
      TP_CHECK(component.dtype != at::kByte || component.columns.size() == 1, "CsvData",
               "a text takes one column, not {}. Make a component of each.",
               component.columns.size());
    }
    start();
  }

  void start() {
    reader = std::make_unique<CsvReader>(path, options.separator);
    if (options.header && !has_columns) {
      const auto names = reader->next();
      TP_CHECK(names, "CsvData", "'{}' is empty: it has no line with names of columns.",
               path.string());
      find_columns(*names);
    } else if (options.header) {
      reader->next();
    } else if (!has_columns) {
      find_columns({});
    }
  }

  void find_columns(const std::vector<std::string>& names) {
    has_columns = true;
    for (const CsvComponent& component : components) {
      std::vector<size_t>& found = places.emplace_back();
      for (const std::string& column : component.columns) found.push_back(find(names, column));
    }
  }

  size_t find(const std::vector<std::string>& names, const std::string& column) const {
    const auto at = std::find(names.begin(), names.end(), column);
    if (at != names.end()) return at - names.begin();
    const auto number = options.header ? std::nullopt : parse<int64_t>(column);
    TP_CHECK(number && *number >= 0, "CsvData", "'{}' has no column '{}'. {}", path.string(),
             column,
             options.header ? fmt::format("Known: {}.", fmt::join(names, ", "))
                            : "Without a header, columns are numbers from 0.");
    return static_cast<size_t>(*number);
  }

  const std::string& field(const std::vector<std::string>& fields, size_t place) const {
    TP_CHECK(place < fields.size(), "CsvData", "'{}' has {} in line {}, and none at place {}.",
             path.string(), counted(std::ssize(fields), "field"), reader->line(), place);
    return fields[place];
  }

  template <typename T>
  at::Tensor numbers(const std::vector<std::string>& fields, const std::vector<size_t>& columns,
                     at::ScalarType stored) const {
    at::Tensor values = at::empty({std::ssize(columns)}, stored);
    T* to = static_cast<T*>(values.data_ptr());
    for (const size_t column : columns) {
      const std::string& text = field(fields, column);
      const auto value = parse<T>(text);
      TP_CHECK(value, "CsvData",
               "'{}' has '{}' in line {}, column {}, where a finite number of type "
               "{} is wanted.",
               path.string(), text, reader->line(), column, c10::toString(stored));
      *to++ = *value;
    }
    return values;
  }

  at::Tensor make(const std::vector<std::string>& fields, size_t i) const {
    const at::ScalarType dtype = components[i].dtype;
    if (dtype == at::kByte) return bytes(field(fields, places[i][0]));
    at::Tensor values = at::isFloatingType(dtype) ? numbers<double>(fields, places[i], at::kDouble)
                                                  : numbers<int64_t>(fields, places[i], at::kLong);
    values = values.to(dtype);
    return places[i].size() == 1 ? values.squeeze(0) : values;
  }

  DataPoint make(const std::vector<std::string>& fields) const {
    DataPoint point;
    for (size_t i = 0; i < components.size(); ++i) point.push_back(make(fields, i));
    return point;
  }

  fs::path path;
  std::vector<CsvComponent> components;
  CsvOptions options;
  detail::ErrorCounter errors;
  bool has_columns = false;
  std::vector<std::vector<size_t>> places;  // of the columns of each component
  std::unique_ptr<CsvReader> reader;
};

CsvData::CsvData(fs::path path, std::vector<CsvComponent> components, CsvOptions options)
    : impl_(std::make_unique<Impl>(std::move(path), std::move(components), options)) {}
CsvData::CsvData(CsvData&&) noexcept = default;
CsvData::~CsvData() = default;

void CsvData::start(int64_t /*pass*/) { impl_->start(); }

std::optional<DataPoint> CsvData::next() {
  while (const auto fields = impl_->reader->next()) {
    if (impl_->options.on_error == OnError::kThrow) return impl_->make(*fields);
    try {
      return impl_->make(*fields);
    } catch (...) {
      impl_->errors.count("a line");
    }
  }
  return std::nullopt;
}

int64_t save_csv(DataFlow& flow, const fs::path& path, const std::vector<std::string>& columns,
                 char separator) {
  const std::string comma(1, separator);
  int64_t count = 0;
  write_file_atomically(path, [&](std::ostream& out) {
    std::vector<std::string> fields;
    for (const std::string& column : columns) fields.push_back(as_field(column, separator));
    out << fmt::format("{}\n", fmt::join(fields, comma));
    for (; const auto point = flow.next(); ++count) {
      fields.clear();
      for (const at::Tensor& tensor : *point) append_fields(tensor, separator, fields);
      TP_CHECK(fields.size() == columns.size(), "save_csv",
               "datapoint {} makes {}, but is given {}. Name as many.", count,
               counted(std::ssize(fields), "field"), counted(std::ssize(columns), "column"));
      out << fmt::format("{}\n", fmt::join(fields, comma));
    }
  });
  return count;
}

}  // namespace tensorpack
