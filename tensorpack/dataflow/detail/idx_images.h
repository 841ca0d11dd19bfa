// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tensorpack/dataflow/detail/row_flow.h"

namespace tensorpack {

/// Data sets that are distributed as MNIST is: two IDX files of images and labels for each of the
/// sets "train" and "test". See Mnist and FashionMnist.
class IdxImages : public detail::RowFlow {
 public:
  DataPoint row(int64_t number) const final;
  DataPoint stack_rows(const std::vector<int64_t>& numbers) const final;

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
};

}  // namespace tensorpack
