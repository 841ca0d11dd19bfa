// SPDX-License-Identifier: Apache-2.0
// Statistics over a validation pass. None of them reports anything for a pass without data.
#pragma once

#include "tensorpack/callbacks/inferencer.h"
#include "tensorpack/utils/stats.h"

namespace tensorpack {

/// The mean of scalars, each of which is a mean over its batch: batches count by their samples, so
/// that the result is the mean over all samples, however the data is cut into batches. A scalar
/// that is a sum over the batch needs an Inferencer of its own. Reported as `<prefix>_<name>`, or
/// `<name>` when the prefix is empty.
class ScalarStats final : public Inferencer {
 public:
  explicit ScalarStats(std::vector<std::string> names, std::string prefix = "validation");

  std::vector<std::string> fetches() const override { return names_; }
  void check(const std::vector<TensorSpec>& specs) const override;
  void before_inference() override;
  void on_fetches(const std::vector<at::Tensor>& values) override;
  std::vector<std::string> reports() const override;
  std::map<std::string, double> after_inference() override;

 private:
  std::vector<std::string> names_;
  std::string prefix_;
  // For each scalar, its values by the samples of the batch: batches of one size are averaged as
  // they are.
  std::vector<std::map<int64_t, StatCounter>> stats_;
};

/// The share of ones in a 1-D tensor of zeros and ones over all datapoints; exact however the data
/// is cut into batches.
class ClassificationError final : public Inferencer {
 public:
  explicit ClassificationError(std::string wrong_tensor_name = "incorrect_vector",
                               std::string summary_name = "validation_error");

  std::vector<std::string> fetches() const override { return {wrong_tensor_name_}; }
  void check(const std::vector<TensorSpec>& specs) const override;
  void before_inference() override;
  void on_fetches(const std::vector<at::Tensor>& values) override;
  std::vector<std::string> reports() const override;
  std::map<std::string, double> after_inference() override;

 private:
  std::string wrong_tensor_name_;
  std::string summary_name_;
  double wrong_ = 0;
  int64_t total_ = 0;
};

/// `<prefix>_precision` and `<prefix>_recall` of predictions and labels that are zeros and ones. A
/// ratio of nothing is 0.
class BinaryClassificationStats final : public Inferencer {
 public:
  BinaryClassificationStats(std::string pred_tensor_name, std::string label_tensor_name,
                            std::string prefix = "val");

  std::vector<std::string> fetches() const override { return {pred_name_, label_name_}; }
  void check(const std::vector<TensorSpec>& specs) const override;
  void before_inference() override;
  void on_fetches(const std::vector<at::Tensor>& values) override;
  std::vector<std::string> reports() const override;
  std::map<std::string, double> after_inference() override;

 private:
  std::string pred_name_;
  std::string label_name_;
  std::string prefix_;
  BinaryStatistics stats_;
  bool has_data_ = false;
};

}  // namespace tensorpack
