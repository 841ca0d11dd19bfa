// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/encoded_batch.h"

#include <ATen/EmptyTensor.h>

#include <cstring>

#include "tensorpack/dataflow/detail/batch_count.h"
#include "tensorpack/dataflow/detail/collate.h"
#include "tensorpack/dataflow/image/detail/image_file.h"
#include "tensorpack/dataflow/image/detail/packed_images.h"
#include "tensorpack/dataflow/image/detail/plain_jpeg.h"
#include "tensorpack/dataflow/parallel_map.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

constexpr const char* kName = "encoded_batch";

// What fallen back on is brought to bytes, three for each pixel.
ImageBatchOptions as_pixels(ImageBatchOptions options) {
  options.dtype = at::kByte;
  options.channels_last = true;
  return options;
}

class PacksImages {
 public:
  explicit PacksImages(const ImageBatchOptions& options)
      : options_(options), pixels_(as_pixels(options)) {}

  DataPoint operator()(DataPoint point, Rng& rng) const {
    const detail::ImageFile file(point, options_.reads_files, kName);
    const auto image = detail::open_image(
        {.bytes = file.bytes(), .name = file.name(), .max_pixels = options_.max_pixels});
    const detail::ImageChoice choice = detail::choose(options_, *image, file.name(), rng);
    auto [bytes, numbers] = detail::is_plain_jpeg(file.bytes())
                                ? detail::pack({.bytes = file.bytes(),
                                                .size = image->size(),
                                                .choice = choice,
                                                .name = file.name()})
                                : decoded(*image, choice, file.name());
    point[0] = std::move(bytes);
    point.insert(point.begin() + 1, std::move(numbers));
    return point;
  }

 private:
  std::pair<at::Tensor, at::Tensor> decoded(detail::ImageReader& image,
                                            const detail::ImageChoice& choice,
                                            std::string_view name) const {
    const at::Tensor batch = pixels_.empty_batch(1);
    at::Tensor row = batch.select(0, 0);
    pixels_.fill(image, choice, row);
    const std::string_view bytes(static_cast<const char*>(row.data_ptr()), batch.numel());
    return detail::pack(
        {.bytes = bytes,
         .is_jpeg = false,
         .size = options_.size,
         .choice = {.area = {.width = options_.size.width, .height = options_.size.height}},
         .name = name});
  }

  ImageBatchOptions options_;
  detail::ImageFiller pixels_;
};

at::Tensor joined(const std::vector<at::Tensor>& parts) {
  int64_t size = 0;
  for (const at::Tensor& part : parts) size += part.numel();
  at::Tensor all(at::detail::empty_cpu({size}, at::kByte));
  auto* to = static_cast<char*>(all.data_ptr());
  for (const at::Tensor& part : parts) {
    std::memcpy(to, part.data_ptr(), part.numel());
    to += part.numel();
  }
  return all;
}

// Joins the first components of datapoints and stacks the others.
class JoinedBatch final : public DataFlow,
                          public detail::ThreadedStage,
                          public detail::DescribedStage {
 public:
  JoinedBatch(DataFlowPtr flow, int64_t size, bool remainder)
      : flow_(std::move(flow)), count_{.size = size, .remainder = remainder} {
    count_.check(flow_->size(), kName);
  }

  void start(int64_t pass) override { flow_->start(pass); }

  std::optional<DataPoint> next() override {
    std::vector<at::Tensor> firsts;
    detail::Collator others(count_.size);
    while (others.rows() < count_.size) {
      auto point = flow_->next();
      if (!point) break;
      firsts.push_back(std::move(point->front()));
      point->erase(point->begin());
      others.add(*point);
    }
    if (firsts.empty()) return std::nullopt;
    if (others.rows() < count_.size && !count_.remainder) {
      stats_->left_out += others.rows();
      return std::nullopt;
    }
    DataPoint batch = others.take();
    batch.insert(batch.begin(), joined(firsts));
    return batch;
  }

  int64_t skip(int64_t count) override {
    return count_.batches_of(flow_->skip(count_.points_of(count)));
  }

  std::optional<int64_t> size() const override { return count_.batches_of(flow_->size()); }
  bool is_endless() const override { return flow_->is_endless(); }

  detail::StatsPtr stats() const override { return stats_; }
  std::optional<std::string> data_options() const override {
    return fmt::format("{}{}", count_.size, count_.remainder ? ", remainder" : "");
  }

 private:
  DataFlowPtr flow_;
  detail::BatchCount count_;
  detail::StatsPtr stats_ = std::make_shared<StageStats>("join_batch", 0, 0);
};

}  // namespace

Stage encoded_batch(int64_t size, ImageBatchOptions options) {
  detail::check_options(options, kName);
  TP_CHECK(size > 0 && options.capacity > 0, kName,
           "the batch size {} and the capacity {} must be positive.", size, options.capacity);
  const ParallelMapOptions parallel{.threads = options.threads,
                                    .capacity = options.capacity * size,
                                    .on_error = options.on_error,
                                    .seed = options.seed,
                                    .name = kName};
  return [=, remainder = options.remainder,
          packs = PacksImages(options)](DataFlowPtr flow) -> DataFlowPtr {
    return std::make_unique<JoinedBatch>(std::move(flow) | parallel_map(packs, parallel), size,
                                         remainder);
  };
}

}  // namespace tensorpack
