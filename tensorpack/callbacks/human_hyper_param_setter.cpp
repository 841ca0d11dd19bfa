// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/human_hyper_param_setter.h"

#include <cmath>
#include <sstream>
#include <string_view>
#include <utility>

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
    logging::warning(
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
    std::string text = read_file(path_);
    const std::optional<double> value = value_in(text, /*is_new=*/text != last_text_);
    last_text_ = std::move(text);
    return value;
  } catch (const Error& error) {
    logging::warning("[HumanHyperParamSetter] {}", error.what());
  }
  return std::nullopt;
}

// Warns of what is wrong with a text that is new.
std::optional<double> HumanHyperParamSetter::value_in(const std::string& text, bool is_new) const {
  const std::string wanted = param().readable_name();
  std::optional<double> last;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string_view content = trimmed(line);
    if (content.empty() || content.front() == '#') continue;
    const size_t colon = content.rfind(':');
    const bool has_name = colon != std::string_view::npos && colon > 0;
    const auto value = has_name ? parse_number(trimmed(content.substr(colon + 1))) : std::nullopt;
    if (!value || !std::isfinite(*value)) {
      if (is_new) {
        logging::warning(
            "[HumanHyperParamSetter] '{}' in '{}' is not understood, and left out. Write a line as "
            "{}:0.01.",
            content, path_.string(), wanted);
      }
    } else if (trimmed(content.substr(0, colon)) == wanted) {
      last = value;
    }
  }
  if (!last && is_new) {
    logging::warning("[HumanHyperParamSetter] no line of '{}' sets {}. Write one as {}:0.01.",
                     path_.string(), wanted, wanted);
  }
  return last;
}

}  // namespace tensorpack
