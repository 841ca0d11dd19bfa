// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/report/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace tensorpack::report {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
// Two bytes in three of a usual report are points: this many stay below one MB.
constexpr size_t kMaxPoints = 60'000;
constexpr size_t kMaxHistograms = 1500;

// Digits that no chart shows are not written: the numbers are most of the file. What is not finite
// has no JSON number.
void append_number(std::string& to, double value) {
  if (std::isnan(value)) {
    to += "\"nan\"";
  } else if (std::isinf(value)) {
    to += value > 0 ? "\"inf\"" : "\"-inf\"";
  } else {
    fmt::format_to(std::back_inserter(to), "{:.7g}", value);
  }
}

double read_number(const json& number) {
  if (number.is_number()) return number.get<double>();
  if (number == "inf") return std::numeric_limits<double>::infinity();
  if (number == "-inf") return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

// Names and texts may not be UTF-8. '<' stands in strings alone, where its number means the same.
void append_json(std::string& to, const json& value) {
  for (const char c : value.dump(-1, ' ', false, json::error_handler_t::replace)) {
    if (c == '<') {
      to += "\\u003c";
    } else {
      to += c;
    }
  }
}

// Writes `[item,item]` or `{name:item,name:item}`; `append` writes one item.
template <typename Items, typename Append>
void append_list(std::string& to, const char (&brackets)[3], const Items& items, Append append) {
  to += brackets[0];
  bool is_first = true;
  for (const auto& item : items) {
    if (!std::exchange(is_first, false)) to += ',';
    append(item);
  }
  to += brackets[1];
}

int64_t milliseconds(const Point& point) {
  return static_cast<int64_t>(std::llround(1000 * point.seconds));
}

// Steps and times as differences, which have fewer digits.
void append_series(std::string& to, const Series& series, size_t max_buckets) {
  const std::vector<Point> points = series.points(max_buckets);
  fmt::format_to(std::back_inserter(to), "{{\"count\":{},\"steps\":", series.count());
  Point last;
  append_list(to, "[]", points, [&](const Point& point) {
    fmt::format_to(std::back_inserter(to), "{}", point.step - std::exchange(last, point).step);
  });
  to += ",\"times\":";
  last = {};
  append_list(to, "[]", points, [&](const Point& point) {
    fmt::format_to(std::back_inserter(to), "{}",
                   milliseconds(point) - milliseconds(std::exchange(last, point)));
  });
  to += ",\"values\":";
  append_list(to, "[]", points, [&](const Point& point) { append_number(to, point.value); });
  to += '}';
}

// The newest, and of the others so many at equal distances.
template <typename T, typename Append>
void append_history(std::string& to, const History<T>& history, size_t max_items, Append append) {
  const auto& items = history.items();
  const size_t most = std::max<size_t>(max_items, 1);
  const size_t every = (items.size() + most - 1) / most;
  std::vector<const typename History<T>::Item*> kept;
  for (size_t i = 0; i < items.size(); ++i) {
    if ((items.size() - 1 - i) % every == 0) kept.push_back(&items[i]);
  }
  append_list(to, "[]", kept, [&](const auto* item) {
    fmt::format_to(std::back_inserter(to), "{{\"step\":{},", item->step);
    append(item->value);
    to += '}';
  });
}

void append_histogram(std::string& to, const HistogramData& histogram) {
  to += "\"low\":";
  append_number(to, histogram.low);
  to += ",\"high\":";
  append_number(to, histogram.high);
  to += ",\"counts\":";
  append_list(to, "[]", histogram.counts, [&](double count) { append_number(to, count); });
}

// {name: item} for a map, by a function that writes the item.
template <typename Map, typename Append>
void append_map(std::string& to, const char* key, const Map& map, Append append) {
  fmt::format_to(std::back_inserter(to), ",\n\"{}\":", key);
  append_list(to, "{}", map, [&](const auto& entry) {
    append_json(to, entry.first);
    to += ':';
    append(entry.second);
  });
}

json to_object(const Layer& layer) {
  json object = {{"path", layer.path},
                 {"shape", layer.shape},
                 {"parameters", layer.parameters},
                 {"count", layer.count},
                 {"operators", layer.operators}};
  if (layer.time) {
    object["forward"] = layer.time->forward;
    object["backward"] = layer.time->backward;
    object["bytes"] = layer.time->bytes;
  }
  return object;
}

json to_object(const Parameter& parameter) {
  return {{"name", parameter.name},         {"shape", parameter.shape},
          {"elements", parameter.elements}, {"bytes", parameter.bytes},
          {"dtype", parameter.dtype},       {"device", parameter.device},
          {"trained", parameter.is_trained}};
}

json to_object(const StageReport& stage) {
  return {{"name", stage.name},
          {"threads", stage.threads},
          {"busy", stage.busy_seconds},
          {"no_input", stage.upstream_wait_seconds},
          {"no_room", stage.downstream_wait_seconds},
          {"queue", stage.queue_depth},
          {"capacity", stage.capacity}};
}

json to_object(const Progress& progress) {
  return {{"epoch", progress.epoch}, {"max_epoch", progress.max_epoch},
          {"step", progress.step},   {"steps_per_epoch", progress.steps_per_epoch},
          {"state", progress.state}, {"written", progress.written}};
}

template <typename T>
json to_objects(const std::vector<T>& items) {
  json list = json::array();
  for (const T& item : items) list.push_back(to_object(item));
  return list;
}

Series read_series(const json& object, int64_t step) {
  const json& steps = object.at("steps");
  const json& times = object.at("times");
  const json& values = object.at("values");
  std::vector<Point> points;
  int64_t at = 0;
  int64_t time = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    at += steps.at(i).get<int64_t>();
    time += times.at(i).get<int64_t>();
    if (at > step) break;
    points.push_back({at, static_cast<double>(time) / 1000, read_number(values.at(i))});
  }
  const auto share = static_cast<double>(points.size()) / static_cast<double>(steps.size());
  const auto count = object.at("count").get<double>();
  return {points, static_cast<int64_t>(count * share)};
}

template <typename T, typename Read>
std::map<std::string, History<T>> read_histories(const json& object, int64_t step, Read read) {
  std::map<std::string, History<T>> histories;
  for (const auto& [name, items] : object.items()) {
    for (const json& item : items) {
      const auto at = item.at("step").get<int64_t>();
      if (at <= step) histories[name].add(at, read(item));
    }
  }
  return histories;
}

}  // namespace

std::string to_json(const Data& data) {
  std::string text = fmt::format("{{\"version\":{},\n\"name\":", kVersion);
  append_json(text, data.name);
  const size_t max_buckets = std::clamp<size_t>(
      kMaxPoints / 2 / std::max<size_t>(data.scalars.size(), 1), 16, Series::kMaxBuckets);
  append_map(text, "scalars", data.scalars,
             [&](const Series& series) { append_series(text, series, max_buckets); });
  constexpr size_t kAll = History<std::string>::kMaxItems;
  append_map(text, "images", data.images, [&](const auto& history) {
    append_history(text, history, kAll, [&](const std::string& png) {
      text += "\"png\":";
      append_json(text, png);
    });
  });
  const size_t max_items = kMaxHistograms / std::max<size_t>(data.histograms.size(), 1);
  append_map(text, "histograms", data.histograms, [&](const auto& history) {
    append_history(text, history, max_items,
                   [&](const HistogramData& item) { append_histogram(text, item); });
  });
  append_map(text, "texts", data.texts, [&](const auto& history) {
    append_history(text, history, kAll, [&](const std::string& words) {
      text += "\"text\":";
      append_json(text, words);
    });
  });
  const json rest = {{"progress", to_object(data.progress)},
                     {"layers", to_objects(data.layers)},
                     {"parameters", to_objects(data.parameters)},
                     {"stages", to_objects(data.stages)},
                     {"flags", data.flags},
                     {"configuration", data.configuration},
                     {"environment", data.environment},
                     {"log", data.log}};
  for (const auto& [key, value] : rest.items()) {
    fmt::format_to(std::back_inserter(text), ",\n\"{}\":", key);
    append_json(text, value);
  }
  text += '}';
  return text;
}

std::optional<Data> resume_from_json(std::string_view text, int64_t step) {
  try {
    const json object = json::parse(text);
    if (object.at("version") != kVersion) return std::nullopt;
    Data data;
    for (const auto& [name, series] : object.at("scalars").items()) {
      Series kept = read_series(series, step);
      if (kept.empty()) continue;
      data.seconds = std::max(data.seconds, kept.points(1).back().seconds);
      data.scalars[name] = std::move(kept);
    }
    data.images = read_histories<std::string>(object.at("images"), step, [](const json& item) {
      return item.at("png").get<std::string>();
    });
    data.histograms =
        read_histories<HistogramData>(object.at("histograms"), step, [](const json& item) {
          return HistogramData{.low = item.at("low").get<double>(),
                               .high = item.at("high").get<double>(),
                               .counts = item.at("counts").get<std::vector<double>>()};
        });
    data.texts = read_histories<std::string>(object.at("texts"), step, [](const json& item) {
      return item.at("text").get<std::string>();
    });
    if (data.scalars.empty() && data.images.empty() && data.histograms.empty()) {
      return std::nullopt;
    }
    return data;
  } catch (const json::exception&) {
    return std::nullopt;  // written by another version, or by others
  }
}

}  // namespace tensorpack::report
