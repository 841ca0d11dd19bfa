// SPDX-License-Identifier: Apache-2.0
// Where a training or inference loop takes its batches from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

/// Delivers batches, one tensor per input, to one consumer thread.
///
/// A source that was just constructed stands at position 0.
class InputSource {
 public:
  virtual ~InputSource() = default;

  /// Starts again from datapoint number `position` of the endless stream of passes.
  virtual void reset_state(int64_t position = 0) = 0;

  /// The next batch; nullopt at the end of the data and after stop(), until reset_state().
  ///
  /// A failure to produce the data is thrown here, on the consumer's thread.
  virtual std::optional<DataPoint> next() = 0;

  /// The number, in the endless stream of passes, of the datapoint that next() gives: what was made
  /// ahead and not handed out does not count. reset_state(position()) changes nothing.
  virtual int64_t position() const = 0;

  /// Batches per pass over the data; nullopt when it is endless or not known.
  virtual std::optional<int64_t> size() const { return std::nullopt; }

  /// Has every pass end from now on: next() gives nullopt behind its last batch, until
  /// reset_state(). False, and nothing changes, for a source that does not know passes or goes on
  /// to the next one by itself. Called before the first next(), or followed by a reset_state().
  virtual bool end_with_pass() { return false; }

  /// Whether it is known that next() never gives nullopt, but for stop().
  virtual bool is_endless() const { return false; }

  /// The source whose batches this one hands on, or this one itself.
  virtual const InputSource& origin() const { return *this; }

  /// For messages: what the data comes from.
  virtual std::string name() const { return "the input source"; }
  /// Where the time of the source and of the flow behind it goes; null if that is not measured.
  virtual std::shared_ptr<const StageStats> stats() const { return nullptr; }

  /// Ends whatever works ahead. Called after the loop, and by the destructor.
  virtual void stop() {}
};

using InputSourcePtr = std::unique_ptr<InputSource>;

}  // namespace tensorpack
