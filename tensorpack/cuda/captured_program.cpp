// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/captured_program.h"

#include <ATen/ATen.h>

#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {

// Ends a piece where an exchange is, and begins the next.
class CapturedProgram::CuttingExchange final : public Exchange {
 public:
  CuttingExchange(const CaptureSpace& space, const at::Generator& generator,
                  const KnownAverages& averages, std::vector<Piece>& pieces)
      : space_(space), generator_(generator), averages_(averages), pieces_(pieces) {
    begin_piece();
  }

  std::vector<at::Tensor> begin(int64_t key, at::TensorList tensors) override {
    end_piece();
    pieces_.push_back(Begin{key, tensors.vec(), averages_.at(key)});
    begin_piece();
    return averages_.at(key);
  }

  void end(int64_t key, at::TensorList averages) override {
    end_piece();
    pieces_.push_back(End{key, averages.vec()});
    begin_piece();
  }

  void end_piece() {
    capture_->end();
    pieces_.push_back(std::move(capture_));
  }

 private:
  void begin_piece() { capture_ = std::make_unique<Capture>(space_, generator_); }

  const CaptureSpace& space_;
  const at::Generator& generator_;
  const KnownAverages& averages_;
  std::vector<Piece>& pieces_;
  std::unique_ptr<Capture> capture_;
};

CapturedProgram::CapturedProgram(const CaptureSpace& space, const at::Generator& generator,
                                 const KnownAverages* averages, const std::function<void()>& work) {
  if (averages == nullptr) {
    auto capture = std::make_unique<Capture>(space, generator);
    work();
    capture->end();
    pieces_.push_back(std::move(capture));
    return;
  }
  CuttingExchange cutting(space, generator, *averages, pieces_);
  const ExchangeScope bound(&cutting);
  work();
  cutting.end_piece();
}

CapturedProgram::~CapturedProgram() = default;

void CapturedProgram::launch() {
  const c10::InferenceMode inference_mode;  // as in the run that made the averages
  for (Piece& piece : pieces_) {
    if (auto* capture = std::get_if<std::unique_ptr<Capture>>(&piece)) {
      (*capture)->launch();
    } else if (const auto* begin = std::get_if<Begin>(&piece)) {
      const auto averages = current_exchange()->begin(begin->key, begin->tensors);
      for (size_t i = 0; i < averages.size(); ++i) {
        if (!averages[i].is_same(begin->averages[i])) begin->averages[i].copy_(averages[i]);
      }
    } else {
      const End& end = std::get<End>(piece);
      current_exchange()->end(end.key, end.averages);
    }
  }
}

}  // namespace tensorpack::cuda
