// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/dump_as_image.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tensorpack/callbacks/fetch_spec.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {

DumpTensorAsImage::DumpTensorAsImage(std::string tensor_name, DumpImageOptions options)
    : tensor_name_(std::move(tensor_name)), options_(std::move(options)) {
  TP_CHECK(!tensor_name_.empty(), "DumpTensorAsImage",
           "the name is empty. Pass that of a tensor or a variable.");
  TP_CHECK(std::isfinite(options_.scale), "DumpTensorAsImage",
           "the scale is {}. Pass a number that brings the values to 0..255.", options_.scale);
  if (options_.prefix.empty()) options_.prefix = tensor_name_;
}

void DumpTensorAsImage::before_train() {
  fetched_ = {};
  const Op& op = trainer().train_op();
  if (op) fetch_spec(graph(), op, tensor_name_, name());
}

RunArgs DumpTensorAsImage::before_run(RunContext& context) {
  if (graph().variables().find(tensor_name_) != nullptr) return {};
  const bool has_it = context.op().has_output(tensor_name_) || context.op().has_input(tensor_name_);
  if (!has_it || !trainer().loop().is_last_step_of_epoch()) return {};
  return {.fetches = {tensor_name_}};
}

void DumpTensorAsImage::after_run(RunContext&, const FetchedValues& values) {
  if (!values.empty()) fetched_ = values;
}

void DumpTensorAsImage::trigger() {
  if (const Variable* variable = graph().variables().find(tensor_name_)) {
    const at::Tensor value = [&] {
      const auto lock = graph().lock_variables();
      return variable->tensor.detach().clone();
    }();
    dump(value);
  } else if (!fetched_.empty()) {
    dump(fetched_[0]);
    fetched_ = {};
  } else {
    logging::warning("[{}] there is no value of '{}': it is taken in the last step of an epoch.",
                     name(), tensor_name_);
  }
}

void DumpTensorAsImage::dump(const at::Tensor& tensor) const {
  const at::Tensor mapped = options_.map_func ? options_.map_func(tensor) : tensor;
  TP_CHECK(mapped.defined(), name(),
           "map_func made an undefined tensor of '{}' [{}]. Have it return the pictures.",
           tensor_name_, fmt::join(tensor.sizes(), ", "));
  const std::vector<Image> images =
      to_images(mapped.cpu().to(at::kDouble) * options_.scale, options_.layout);
  std::string prefix = options_.prefix;
  std::replace(prefix.begin(), prefix.end(), '/', '-');
  for (size_t i = 0; i < images.size(); ++i) {
    const std::string number = images.size() == 1 ? "" : fmt::format("-{}", i);
    if (const auto dir = get_logger_dir()) {
      write_file_atomically(*dir / fmt::format("{}-ep{:03}{}.png", prefix, epoch_num(), number),
                            images[i].png());
    }
    trainer().monitors().put_image(
        options_.prefix + (images.size() == 1 ? "" : fmt::format("/{}", i)), images[i]);
  }
}

}  // namespace tensorpack
