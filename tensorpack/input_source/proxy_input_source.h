// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/input_source/input_source.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

/// The base of sources that change something about another one: hands everything on to it.
class ProxyInputSource : public InputSource {
 public:
  /// Throws an Error if there is no source.
  explicit ProxyInputSource(Owned<InputSource> source);

  void reset_state(int64_t position = 0) override { source_->reset_state(position); }
  std::optional<DataPoint> next() override { return source_->next(); }
  int64_t position() const override { return source_->position(); }
  std::optional<int64_t> size() const override { return source_->size(); }
  bool end_with_pass() override { return source_->end_with_pass(); }
  bool is_endless() const override { return source_->is_endless(); }
  const InputSource& origin() const override { return source_->origin(); }
  std::string name() const override { return source_->name(); }
  std::shared_ptr<const StageStats> stats() const override { return source_->stats(); }
  void stop() override { source_->stop(); }

 protected:
  InputSource& source() { return *source_; }

 private:
  Owned<InputSource> source_;
};

}  // namespace tensorpack
