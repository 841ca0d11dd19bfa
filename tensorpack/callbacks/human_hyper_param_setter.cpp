// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/human_hyper_param_setter.h"

#include <cmath>
#include <sstream>
#include <string_view>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

HumanHyperParamSetter::HumanHyperParamSetter(AnyHyperParam param,
                                             HumanHyperParamSetterOptions options)
    : HyperParamSetter(std::move(param)), options_(std::move(options)) {
  TP_CHECK(!options_.file_name.empty(), "HumanHyperParamSetter",
           "the file name is empty. Pass one such as hyper.txt.");
}

void HumanHyperParamSetter::before_train() {
  const auto dir = get_logger_dir();
  path_ = dir                                ? *dir / options_.file_name
          : options_.file_name.is_absolute() ? options_.file_name
                                             : std::filesystem::path();
  if (path_.empty() && trainer().is_chief()) {
    log::warning(
        "[HumanHyperParamSetter] there is no log directory to look for '{}' in. Call "
        "set_logger_dir() first.",
        options_.file_name.string());
  }
  HyperParamSetter::before_train();
}

std::optional<double> HumanHyperParamSetter::next_value() {
  std::error_code ignored;
  if (path_.empty() || !std::filesystem::exists(path_, ignored)) return std::nullopt;
  try {
    std::istringstream lines(read_file(path_));
    for (std::string line; std::getline(lines, line);) {
      const size_t colon = line.rfind(':');
      if (colon == std::string::npos) continue;
      if (trimmed(std::string_view(line).substr(0, colon)) != param().readable_name()) continue;
      const std::optional<double> value = parse_number(trimmed(line.substr(colon + 1)));
      if (value && std::isfinite(*value)) return value;
      log::warning("[HumanHyperParamSetter] '{}' in '{}' gives no number.", line, path_.string());
    }
  } catch (const Error& error) {
    log::warning("[HumanHyperParamSetter] {}", error.what());
  }
  return std::nullopt;
}

}  // namespace tensorpack
