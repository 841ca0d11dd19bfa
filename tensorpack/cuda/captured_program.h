// SPDX-License-Identifier: Apache-2.0
// A captured step that goes through the host where towers exchange gradients.
//
// Note [Capturing an exchange]
// What other towers do cannot be captured with what this one does, unless the exchange consists of
// work on streams alone, as with NCCL. Otherwise the step is captured in pieces, from one exchange
// to the next, and a run launches a piece, does what the exchange does, and launches the next.
// Pieces read and write the same memory in every run, so averages must always come where they came
// before.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "tensorpack/cuda/capture.h"
#include "tensorpack/graph/exchange.h"

namespace tensorpack::cuda {

/// Where the averages of an exchange were, by its key.
using KnownAverages = std::map<int64_t, std::vector<at::Tensor>>;

/// An exchange that remembers where averages were.
class RememberingExchange final : public Exchange {
 public:
  RememberingExchange(Exchange& exchange, KnownAverages& averages)
      : exchange_(exchange), averages_(averages) {}

  std::vector<at::Tensor> begin(int64_t key, at::TensorList tensors) override {
    return averages_[key] = exchange_.begin(key, tensors);
  }
  void end(int64_t key, at::TensorList averages) override { exchange_.end(key, averages); }

 private:
  Exchange& exchange_;
  KnownAverages& averages_;
};

/// What a function issued to a device, in pieces.
class CapturedProgram {
 public:
  /// Calls `work`. `averages` has all exchanges of it that go through the host; the others, and all
  /// if it is null, are captured. Throws what `work` or the capture threw.
  CapturedProgram(const CaptureSpace& space, const at::Generator& generator,
                  const KnownAverages* averages, const std::function<void()>& work);
  ~CapturedProgram();

  /// Runs everything on the current stream, with the exchange that is bound to this thread.
  void launch();

 private:
  class CuttingExchange;
  struct Begin {
    int64_t key;
    std::vector<at::Tensor> tensors;
    std::vector<at::Tensor> averages;
  };
  struct End {
    int64_t key;
    std::vector<at::Tensor> averages;
  };
  using Piece = std::variant<std::unique_ptr<Capture>, Begin, End>;

  std::vector<Piece> pieces_;
};

}  // namespace tensorpack::cuda
