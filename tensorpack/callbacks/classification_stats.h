// SPDX-License-Identifier: Apache-2.0
// What a classifier gets right, and what it takes for what.
#pragma once

#include <functional>

#include "tensorpack/callbacks/inferencer.h"

namespace tensorpack {

/// The share of samples whose label is among the k highest scores, `<prefix>_top<k>` for each k;
/// exact however the data is cut into batches. A score that is as high as the label's counts as
/// higher, so that equal scores for all classes are no success.
class TopKAccuracy final : public Inferencer {
 public:
  /// `scores` is [N, classes], `labels` [N].
  explicit TopKAccuracy(std::vector<int64_t> ks = {1, 5}, std::string scores_name = "logits",
                        std::string labels_name = "label", std::string prefix = "validation");

  std::vector<std::string> fetches() const override { return {scores_name_, labels_name_}; }
  void check(const std::vector<TensorSpec>& specs) const override;
  void before_inference() override;
  void on_fetches(const std::vector<at::Tensor>& values) override;
  std::vector<std::string> reports() const override;
  std::map<std::string, double> after_inference() override;

 private:
  std::vector<int64_t> ks_;
  std::string scores_name_;
  std::string labels_name_;
  std::string prefix_;
  std::vector<int64_t> right_;  // for each k
  int64_t total_ = 0;
};

struct ConfusionMatrixOptions {
  /// How the classes are called, one name for each.
  std::vector<std::string> classes = {};
  std::string scores_name = "logits";  ///< [N, classes], or the predicted classes [N]
  std::string labels_name = "label";   ///< [N]
  std::string prefix = "validation";
  /// Gets the matrix after every pass: how many samples of class i were taken for class j.
  std::function<void(const at::Tensor& counts)> receive = {};
};

/// Counts what is taken for what. Reports `<prefix>_accuracy/<class>`, the share of a class that is
/// recognized, for every class that occurs, and their mean as `<prefix>_mean_class_accuracy`; the
/// matrix itself goes to the log, and to `receive`.
class ConfusionMatrix final : public Inferencer {
 public:
  explicit ConfusionMatrix(ConfusionMatrixOptions options);
  /// Classes called 0, 1, 2 ...
  explicit ConfusionMatrix(int64_t classes);

  std::vector<std::string> fetches() const override {
    return {options_.scores_name, options_.labels_name};
  }
  void check(const std::vector<TensorSpec>& specs) const override;
  void before_inference() override;
  void on_fetches(const std::vector<at::Tensor>& values) override;
  std::vector<std::string> reports() const override;
  std::map<std::string, double> after_inference() override;

 private:
  int64_t classes() const { return static_cast<int64_t>(options_.classes.size()); }
  std::string table() const;

  ConfusionMatrixOptions options_;
  at::Tensor counts_;
};

}  // namespace tensorpack
