// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/detail/pass_order.h"
#include "tensorpack/dataflow/detail/row_source.h"

namespace tensorpack {

/// Data sets that are distributed as MNIST is: two IDX files of images and labels for each of the
/// sets "train" and "test". See Mnist and FashionMnist.
class IdxImages : public DataFlow, public detail::RowSource {
 public:
  void start(int64_t pass) final { order_.start(pass); }
  std::optional<DataPoint> next() final;
  std::optional<DataPoint> next_rows(int64_t count) final;
  int64_t skip(int64_t count) final { return order_.skip(count); }
  std::optional<int64_t> size() const final { return order_.size(); }

 protected:
  struct Source {
    std::filesystem::path dir = {};
    std::string where_from = {};  ///< what to do when the files are missing
    std::optional<bool> shuffle = {};
    std::optional<uint64_t> seed = {};
  };

  IdxImages(std::string_view where, std::string_view name, const Source& source);

 private:
  void copy_image(int64_t index, float* to) const;
  int64_t label(int64_t index) const;

  at::Tensor images_;
  at::Tensor labels_;
  detail::PassOrder order_;
};

}  // namespace tensorpack
