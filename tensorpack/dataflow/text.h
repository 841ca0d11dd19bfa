// SPDX-License-Identifier: Apache-2.0
// Text for language models: from characters to tokens, from tokens to datapoints.
//
//   const auto tokenizer = BytePairTokenizer::train(text, 1000);
//   auto train = TokenWindows(tokenizer.encode(text), {.length = 128}) | shuffle() | batch(32);
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

/// Turns texts into numbers and back, character by character.
///
/// Characters are those of UTF-8. They are numbered by their place in the alphabet of the text that
/// the tokenizer was made of, so that the same text gives the same numbers.
class CharTokenizer {
 public:
  /// For the characters of `text`.
  explicit CharTokenizer(std::string_view text);

  int64_t size() const { return std::ssize(characters_); }

  /// int64 [n]. Throws Error, which names the place, for a character that was not in the text.
  at::Tensor encode(std::string_view text) const;
  std::string decode(const at::Tensor& tokens) const;

 private:
  std::vector<std::string> characters_;
  struct Numbers;
  std::shared_ptr<const Numbers> numbers_;
};

/// Turns texts into numbers and back by byte-pair encoding: tokens 0..255 are bytes, and each
/// further one is a pair of tokens that was frequent where it was trained. Words, which begin with
/// the blank before them, are encoded each by itself. Any text can be encoded.
class BytePairTokenizer {
 public:
  /// Finds `size` - 256 pairs, the most frequent one first; fewer if no pair comes twice.
  static BytePairTokenizer train(std::string_view text, int64_t size);

  /// Reads what save() wrote.
  static BytePairTokenizer load(const std::filesystem::path& path);

  /// Writes one pair a line, all or nothing.
  void save(const std::filesystem::path& path) const;

  int64_t size() const { return 256 + std::ssize(pairs_); }

  at::Tensor encode(std::string_view text) const;
  std::string decode(const at::Tensor& tokens) const;

 private:
  using Pair = std::pair<int32_t, int32_t>;

  explicit BytePairTokenizer(std::vector<Pair> pairs);
  void append_word(std::string_view word, std::vector<int64_t>& tokens) const;

  std::vector<Pair> pairs_;
  struct Numbers;
  std::shared_ptr<const Numbers> numbers_;  // of the tokens that pairs make
  std::vector<std::string> texts_;          // of all tokens
};

struct TokenWindowsOptions {
  int64_t length = 128;
  /// From the beginning of one window to that of the next; 0: its length.
  int64_t stride = 0;
};

/// Yields pieces of a text for training a model to say what comes next: {tokens: [length], the same
/// shifted by one: [length]}. They share memory with `tokens`.
class TokenWindows final : public DataFlow {
 public:
  /// Throws Error if there are not enough tokens for one window.
  explicit TokenWindows(at::Tensor tokens, TokenWindowsOptions options = {});

  void start(int64_t /*pass*/) override { position_ = 0; }
  std::optional<DataPoint> next() override;
  int64_t skip(int64_t count) override;
  std::optional<int64_t> size() const override { return size_; }

 private:
  at::Tensor tokens_;
  TokenWindowsOptions options_;
  int64_t size_ = 0;
  int64_t position_ = 0;
};

}  // namespace tensorpack
