// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/classification_stats.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

void check_labels(const char* where, const std::string& name, const TensorSpec& spec) {
  TP_CHECK(spec.shape.size() == 1, where, "'{}' must have one class per sample; its shape is [{}].",
           name, fmt::join(spec.shape, ", "));
}

std::vector<std::string> numbers(int64_t count) {
  TP_CHECK(count > 0, "ConfusionMatrix", "there must be at least one class, got {}.", count);
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace

TopKAccuracy::TopKAccuracy(std::vector<int64_t> ks, std::string scores_name,
                           std::string labels_name, std::string prefix)
    : ks_(std::move(ks)),
      scores_name_(std::move(scores_name)),
      labels_name_(std::move(labels_name)),
      prefix_(std::move(prefix)) {
  TP_CHECK(!ks_.empty() && *std::min_element(ks_.begin(), ks_.end()) > 0, "TopKAccuracy",
           "k is [{}]. Pass positive numbers.", fmt::join(ks_, ", "));
}

void TopKAccuracy::check(const std::vector<TensorSpec>& specs) const {
  TP_CHECK(specs[0].shape.size() == 2, "TopKAccuracy",
           "'{}' must have a score for each sample and class; its shape is [{}].", scores_name_,
           fmt::join(specs[0].shape, ", "));
  check_labels("TopKAccuracy", labels_name_, specs[1]);
  const int64_t classes = specs[0].shape[1];
  const int64_t largest = *std::max_element(ks_.begin(), ks_.end());
  if (classes > 0 && largest >= classes) {
    logging::warning_once("[TopKAccuracy] '{}' has {}: the right one is always among the first {}.",
                          scores_name_, counted(classes, "class"), largest);
  }
}

void TopKAccuracy::before_inference() {
  right_.assign(ks_.size(), 0);
  total_ = 0;
}

void TopKAccuracy::on_fetches(const std::vector<at::Tensor>& values) {
  const at::Tensor labels = values[1].to(at::kLong).unsqueeze(1);
  const int64_t classes = values[0].size(1);
  TP_CHECK(labels.numel() == 0 ||
               (labels.min().item<int64_t>() >= 0 && labels.max().item<int64_t>() < classes),
           "TopKAccuracy",
           "'{}' has labels from {} to {}, and '{}' scores of {} classes: labels "
           "are 0..{}.",
           labels_name_, labels.min().item<int64_t>(), labels.max().item<int64_t>(), scores_name_,
           classes, classes - 1);
  // NaN is no score: a comparison with it is false, so it is asked what is not lower.
  const at::Tensor is_lower = values[0] < values[0].gather(1, labels);
  const at::Tensor not_lower = is_lower.logical_not().sum(1);  // the label itself included
  for (size_t i = 0; i < ks_.size(); ++i) right_[i] += (not_lower <= ks_[i]).sum().item<int64_t>();
  total_ += labels.size(0);
}

std::vector<std::string> TopKAccuracy::reports() const {
  std::vector<std::string> names;
  for (const int64_t k : ks_) names.push_back(fmt::format("{}_top{}", prefix_, k));
  return names;
}

std::map<std::string, double> TopKAccuracy::after_inference() {
  if (total_ == 0) return {};
  std::map<std::string, double> results;
  const std::vector<std::string> names = reports();
  for (size_t i = 0; i < names.size(); ++i) {
    results[names[i]] = static_cast<double>(right_[i]) / static_cast<double>(total_);
  }
  return results;
}

ConfusionMatrix::ConfusionMatrix(ConfusionMatrixOptions options) : options_(std::move(options)) {
  TP_CHECK(!options_.classes.empty(), "ConfusionMatrix",
           "there are no classes. Name them in .classes.");
}

ConfusionMatrix::ConfusionMatrix(int64_t classes)
    : ConfusionMatrix(ConfusionMatrixOptions{.classes = numbers(classes)}) {}

void ConfusionMatrix::check(const std::vector<TensorSpec>& specs) const {
  const Shape& shape = specs[0].shape;
  const bool are_scores = shape.size() == 2 && shape[1] == classes();
  TP_CHECK(are_scores || shape.size() == 1, "ConfusionMatrix",
           "'{}' must have {} scores or one class per sample; its shape is [{}].",
           options_.scores_name, classes(), fmt::join(shape, ", "));
  check_labels("ConfusionMatrix", options_.labels_name, specs[1]);
}

void ConfusionMatrix::before_inference() { counts_ = at::zeros({classes(), classes()}, at::kLong); }

void ConfusionMatrix::on_fetches(const std::vector<at::Tensor>& values) {
  const at::Tensor predicted =
      (values[0].dim() == 2 ? values[0].argmax(1) : values[0]).to(at::kLong);
  const at::Tensor labels = values[1].to(at::kLong);
  for (const at::Tensor& classes_of_samples : {predicted, labels}) {
    const bool is_known =
        classes_of_samples.numel() == 0 || (classes_of_samples.min().item<int64_t>() >= 0 &&
                                            classes_of_samples.max().item<int64_t>() < classes());
    TP_CHECK(is_known, "ConfusionMatrix",
             "there is a class that is not in 0..{}. Name all classes in .classes.", classes() - 1);
  }
  counts_ += (labels * classes() + predicted)
                 .bincount({}, classes() * classes())
                 .reshape({classes(), classes()});
}

std::vector<std::string> ConfusionMatrix::reports() const {
  std::vector<std::string> names = {options_.prefix + "_mean_class_accuracy"};
  for (const std::string& name : options_.classes) {
    names.push_back(options_.prefix + "_accuracy/" + name);
  }
  return names;
}

std::map<std::string, double> ConfusionMatrix::after_inference() {
  const std::vector<std::string> names = reports();
  std::map<std::string, double> results;
  double sum = 0;
  for (int64_t i = 0; i < classes(); ++i) {
    const auto total = counts_[i].sum().item<double>();
    if (total == 0) continue;
    const double accuracy = counts_[i][i].item<double>() / total;
    results[names[static_cast<size_t>(i) + 1]] = accuracy;
    sum += accuracy;
  }
  if (results.empty()) return {};
  results[names[0]] = sum / static_cast<double>(results.size());
  logging::info("What was taken for what, a row for each class:\n{}", table());
  if (options_.receive) options_.receive(counts_);
  return results;
}

std::string ConfusionMatrix::table() const {
  size_t width = 6;
  for (const std::string& name : options_.classes) width = std::max(width, name.size());
  std::string text = fmt::format("{:>{}}", "", width);
  for (const std::string& name : options_.classes) text += fmt::format(" {:>{}}", name, width);
  for (int64_t i = 0; i < classes(); ++i) {
    text += fmt::format("\n{:>{}}", options_.classes[static_cast<size_t>(i)], width);
    for (int64_t j = 0; j < classes(); ++j) {
      text += fmt::format(" {:>{}}", counts_[i][j].item<int64_t>(), width);
    }
  }
  return text;
}

}  // namespace tensorpack
