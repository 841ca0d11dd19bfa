// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/env.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "tensorpack/utils/error.h"

namespace tensorpack {

namespace {

template <typename Number>
std::optional<Number> env_number(const char* name, const char* kind) {
  const std::optional<std::string> text = env(name);
  if (!text) return std::nullopt;
  Number number{};
  const char* end = text->data() + text->size();
  const auto [parsed, error] = std::from_chars(text->data(), end, number);
  TP_CHECK(error == std::errc() && parsed == end && std::isfinite(static_cast<double>(number)),
           name, "the environment variable must be {}, got '{}'. Correct it or unset it.", kind,
           *text);
  return number;
}

void assign(const std::string& name, const std::optional<std::string>& value) {
  if (value) {
    ::setenv(name.c_str(), value->c_str(), /*overwrite=*/1);
  } else {
    ::unsetenv(name.c_str());
  }
}

}  // namespace

std::optional<std::string> env(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<std::int64_t> env_int(const char* name) {
  return env_number<std::int64_t>(name, "an integer");
}

std::optional<double> env_double(const char* name) { return env_number<double>(name, "a number"); }

std::vector<std::string> command_line() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline");
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

ScopedEnv::ScopedEnv(std::string name, const std::optional<std::string>& value)
    : name_(std::move(name)) {
  if (const char* before = std::getenv(name_.c_str())) before_ = before;
  assign(name_, value);
}

ScopedEnv::~ScopedEnv() { assign(name_, before_); }

}  // namespace tensorpack
