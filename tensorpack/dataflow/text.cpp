// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/text.h"

#include <torch/types.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <sstream>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// The bytes of the character at `at`; a byte that begins none stands for itself.
std::string_view character_at(std::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  const size_t length = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  return text.substr(at, length);
}

at::Tensor tensor_of(const std::vector<int64_t>& tokens) { return at::tensor(tokens, at::kLong); }

template <typename Visit>
void for_each_token(const char* where, const at::Tensor& tokens, int64_t size, Visit visit) {
  const at::Tensor flat = tokens.to(at::kCPU, at::kLong).contiguous();
  const int64_t* values = flat.data_ptr<int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    TP_CHECK(values[i] >= 0 && values[i] < size, where,
             "token {} at place {} is not one of the {} tokens.", values[i], i, size);
    visit(values[i]);
  }
}

// Words begin with the blank, line break or other sign before them.
std::vector<std::string_view> words_of(std::string_view text) {
  const auto is_letter = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || static_cast<uint8_t>(c) >= 0x80;
  };
  std::vector<std::string_view> words;
  size_t begin = 0;
  for (size_t i = 1; i <= text.size(); ++i) {
    if (i < text.size() && is_letter(text[i])) continue;
    words.push_back(text.substr(begin, i - begin));
    begin = i;
  }
  return words;
}

using Tokens = std::vector<int32_t>;

Tokens bytes_of(std::string_view word) {
  Tokens tokens;
  for (const char c : word) tokens.push_back(static_cast<uint8_t>(c));
  return tokens;
}

void merge(Tokens& tokens, std::pair<int32_t, int32_t> pair, int32_t merged) {
  size_t to = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool is_pair =
        i + 1 < tokens.size() && tokens[i] == pair.first && tokens[i + 1] == pair.second;
    tokens[to++] = is_pair ? merged : tokens[i];
    if (is_pair) ++i;
  }
  tokens.resize(to);
}

// The text as different words, and how often each comes; and where every pair of tokens is.
class PairCounter {
 public:
  using Pair = std::pair<int32_t, int32_t>;

  explicit PairCounter(std::string_view text) {
    std::map<std::string_view, int64_t> counts;
    for (const std::string_view word : words_of(text)) ++counts[word];
    for (const auto& [word, count] : counts) {
      words_.push_back({bytes_of(word), count});
      count_pairs(words_.size() - 1, 1);
    }
  }

  // The most frequent pair; of several, the one with the smallest numbers.
  std::optional<Pair> best() const {
    const auto best = std::max_element(
        pairs_.begin(), pairs_.end(),
        [](const auto& a, const auto& b) { return a.second.count < b.second.count; });
    if (best == pairs_.end() || best->second.count < 2) return std::nullopt;
    return best->first;
  }

  void merge_all(Pair pair, int32_t merged) {
    const std::set<size_t> words = pairs_[pair].words;
    for (const size_t word : words) {
      count_pairs(word, -1);
      merge(words_[word].tokens, pair, merged);
      count_pairs(word, 1);
    }
    pairs_.erase(pair);
  }

 private:
  struct Word {
    Tokens tokens;
    int64_t count = 0;
  };
  struct Places {
    int64_t count = 0;
    std::set<size_t> words = {};
  };

  void count_pairs(size_t word, int64_t sign) {
    const auto& [tokens, count] = words_[word];
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      Places& places = pairs_[{tokens[i], tokens[i + 1]}];
      places.count += sign * count;
      if (sign > 0) places.words.insert(word);
    }
  }

  std::vector<Word> words_;
  std::map<Pair, Places> pairs_;
};

}  // namespace

struct CharTokenizer::Numbers {
  std::map<std::string, int64_t, std::less<>> of_character;
};

CharTokenizer::CharTokenizer(std::string_view text) {
  auto numbers = std::make_shared<Numbers>();
  std::set<std::string_view> characters;
  for (size_t i = 0; i < text.size(); i += character_at(text, i).size()) {
    characters.insert(character_at(text, i));
  }
  for (const std::string_view character : characters) {
    numbers->of_character.emplace(character, std::ssize(characters_));
    characters_.emplace_back(character);
  }
  numbers_ = std::move(numbers);
}

at::Tensor CharTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> tokens;
  tokens.reserve(text.size());
  for (size_t i = 0; i < text.size(); i += character_at(text, i).size()) {
    const auto found = numbers_->of_character.find(character_at(text, i));
    TP_CHECK(found != numbers_->of_character.end(), "CharTokenizer",
             "the character '{}' at offset {} was not in the text the tokenizer was made of.",
             character_at(text, i), i);
    tokens.push_back(found->second);
  }
  return tensor_of(tokens);
}

std::string CharTokenizer::decode(const at::Tensor& tokens) const {
  std::string text;
  for_each_token("CharTokenizer", tokens, size(),
                 [&](int64_t token) { text += characters_[token]; });
  return text;
}

struct BytePairTokenizer::Numbers {
  std::map<Pair, int32_t> of_pair;
};

BytePairTokenizer::BytePairTokenizer(std::vector<Pair> pairs) : pairs_(std::move(pairs)) {
  auto numbers = std::make_shared<Numbers>();
  for (int c = 0; c < 256; ++c) texts_.emplace_back(1, static_cast<char>(c));
  for (const Pair& pair : pairs_) {
    numbers->of_pair.emplace(pair, static_cast<int32_t>(texts_.size()));
    texts_.push_back(texts_[pair.first] + texts_[pair.second]);
  }
  numbers_ = std::move(numbers);
}

BytePairTokenizer BytePairTokenizer::train(std::string_view text, int64_t size) {
  TP_CHECK(size >= 256, "BytePairTokenizer",
           "{} tokens are too few: the 256 bytes are tokens already.", size);
  PairCounter counter(text);
  std::vector<Pair> pairs;
  while (std::ssize(pairs) < size - 256) {
    const auto best = counter.best();
    if (!best) break;
    counter.merge_all(*best, static_cast<int32_t>(256 + pairs.size()));
    pairs.push_back(*best);
  }
  return BytePairTokenizer(std::move(pairs));
}

BytePairTokenizer BytePairTokenizer::load(const std::filesystem::path& path) {
  std::istringstream lines(read_file(path));
  std::string title;
  std::getline(lines, title);
  TP_CHECK(title == "byte-pairs 1", "BytePairTokenizer",
           "'{}' does not begin with 'byte-pairs 1'. Check that save() wrote it.", path.string());
  std::vector<Pair> pairs;
  Pair pair;
  while (lines >> pair.first >> pair.second) {
    const auto known = static_cast<int32_t>(256 + pairs.size());
    TP_CHECK(pair.first >= 0 && pair.second >= 0 && pair.first < known && pair.second < known,
             "BytePairTokenizer", "'{}' line {}: the pair {} {} has a token that is not there yet.",
             path.string(), pairs.size() + 2, pair.first, pair.second);
    pairs.push_back(pair);
  }
  TP_CHECK(lines.eof(), "BytePairTokenizer", "'{}' line {} is not a pair of numbers.",
           path.string(), pairs.size() + 2);
  return BytePairTokenizer(std::move(pairs));
}

void BytePairTokenizer::save(const std::filesystem::path& path) const {
  std::string lines = "byte-pairs 1\n";
  for (const Pair& pair : pairs_) lines += fmt::format("{} {}\n", pair.first, pair.second);
  write_file_atomically(path, lines);
}

// Merges the pair that was found first in training, again and again.
void BytePairTokenizer::append_word(std::string_view word, std::vector<int64_t>& tokens) const {
  const auto& numbers = numbers_->of_pair;
  Tokens parts = bytes_of(word);
  while (parts.size() > 1) {
    auto best = numbers.end();
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = numbers.find({parts[i], parts[i + 1]});
      const bool is_better =
          found != numbers.end() && (best == numbers.end() || found->second < best->second);
      if (is_better) best = found;
    }
    if (best == numbers.end()) break;
    merge(parts, best->first, best->second);
  }
  tokens.insert(tokens.end(), parts.begin(), parts.end());
}

at::Tensor BytePairTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> tokens;
  for (const std::string_view word : words_of(text)) append_word(word, tokens);
  return tensor_of(tokens);
}

std::string BytePairTokenizer::decode(const at::Tensor& tokens) const {
  std::string text;
  for_each_token("BytePairTokenizer", tokens, size(),
                 [&](int64_t token) { text += texts_[token]; });
  return text;
}

TokenWindows::TokenWindows(at::Tensor tokens, TokenWindowsOptions options)
    : tokens_(std::move(tokens)), options_(options) {
  if (options_.stride == 0) options_.stride = options_.length;
  TP_CHECK(options_.length > 0 && options_.stride > 0, "TokenWindows",
           "the length {} and the stride {} must be positive.", options_.length, options_.stride);
  TP_CHECK(tokens_.dim() == 1 && tokens_.size(0) > options_.length, "TokenWindows",
           "a window of {} and the token after it do not fit into {} in {}.", options_.length,
           counted(tokens_.numel(), "token"), counted(tokens_.dim(), "dimension"));
  size_ = (tokens_.size(0) - 1 - options_.length) / options_.stride + 1;
}

std::optional<DataPoint> TokenWindows::next() {
  if (position_ == size_) return std::nullopt;
  const int64_t first = position_++ * options_.stride;
  return DataPoint{tokens_.narrow(0, first, options_.length),
                   tokens_.narrow(0, first + 1, options_.length)};
}

int64_t TokenWindows::skip(int64_t count) {
  count = std::min(count, size_ - position_);
  position_ += count;
  return count;
}

}  // namespace tensorpack
