// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/inference_stats.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <span>

#include "tensorpack/utils/class_name.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

double mean_over_samples(const std::map<int64_t, StatCounter>& by_samples) {
  if (by_samples.size() == 1) return by_samples.begin()->second.average();
  double sum = 0;
  double count = 0;
  for (const auto& [samples, values] : by_samples) {
    sum += static_cast<double>(samples) * values.sum();
    count += static_cast<double>(samples * values.count());
  }
  return sum / count;
}

}  // namespace

std::string Inferencer::name() const { return class_name(typeid(*this)); }

ScalarStats::ScalarStats(std::vector<std::string> names, std::string prefix)
    : names_(std::move(names)), prefix_(std::move(prefix)) {
  TP_CHECK(!names_.empty(), "ScalarStats", "there are no names. Pass at least one scalar's name.");
}

void ScalarStats::check(const std::vector<TensorSpec>& specs) const {
  for (size_t i = 0; i < specs.size(); ++i) {
    TP_CHECK(specs[i].shape.empty(), "ScalarStats",
             "'{}' is not a scalar: its shape is [{}]. Name its mean in the model and use that.",
             names_[i], fmt::join(specs[i].shape, ", "));
  }
}

void ScalarStats::before_inference() { stats_.assign(names_.size(), {}); }

void ScalarStats::on_fetches(const std::vector<at::Tensor>& values) {
  if (samples() == 0) return;  // the mean of nothing is NaN
  for (size_t i = 0; i < values.size(); ++i) stats_[i][samples()].feed(values[i].item<double>());
}

std::vector<std::string> ScalarStats::reports() const {
  std::vector<std::string> names;
  for (const std::string& name : names_) {
    names.push_back(prefix_.empty() ? name : prefix_ + "_" + name);
  }
  return names;
}

std::map<std::string, double> ScalarStats::after_inference() {
  std::map<std::string, double> results;
  const std::vector<std::string> names = reports();
  for (size_t i = 0; i < names.size(); ++i) {
    if (!stats_[i].empty()) results[names[i]] = mean_over_samples(stats_[i]);
  }
  return results;
}

ClassificationError::ClassificationError(std::string wrong_tensor_name, std::string summary_name)
    : wrong_tensor_name_(std::move(wrong_tensor_name)), summary_name_(std::move(summary_name)) {}

void ClassificationError::check(const std::vector<TensorSpec>& specs) const {
  TP_CHECK(specs[0].shape.size() == 1, "ClassificationError",
           "'{}' must have one dimension, one value per sample; its shape is [{}]. Compare labels "
           "and predictions without taking the mean.",
           wrong_tensor_name_, fmt::join(specs[0].shape, ", "));
}

void ClassificationError::before_inference() {
  wrong_ = 0;
  total_ = 0;
}

void ClassificationError::on_fetches(const std::vector<at::Tensor>& values) {
  wrong_ += values[0].sum(at::kDouble).item<double>();
  total_ += values[0].numel();
}

std::vector<std::string> ClassificationError::reports() const { return {summary_name_}; }

std::map<std::string, double> ClassificationError::after_inference() {
  if (total_ == 0) return {};
  return {{summary_name_, wrong_ / static_cast<double>(total_)}};
}

BinaryClassificationStats::BinaryClassificationStats(std::string pred_tensor_name,
                                                     std::string label_tensor_name,
                                                     std::string prefix)
    : pred_name_(std::move(pred_tensor_name)),
      label_name_(std::move(label_tensor_name)),
      prefix_(std::move(prefix)) {}

void BinaryClassificationStats::check(const std::vector<TensorSpec>& specs) const {
  TP_CHECK(specs[0].shape.size() == specs[1].shape.size(), "BinaryClassificationStats",
           "'{}' has the shape [{}] and '{}' has [{}]. Give one prediction per label.", pred_name_,
           fmt::join(specs[0].shape, ", "), label_name_, fmt::join(specs[1].shape, ", "));
}

void BinaryClassificationStats::before_inference() {
  stats_.reset();
  has_data_ = false;
}

void BinaryClassificationStats::on_fetches(const std::vector<at::Tensor>& values) {
  const auto integers = [](const at::Tensor& tensor) {
    return tensor.to(at::kCPU, at::kLong).contiguous();
  };
  const auto span = [](const at::Tensor& tensor) {
    return std::span(tensor.data_ptr<int64_t>(), static_cast<size_t>(tensor.numel()));
  };
  const at::Tensor predictions = integers(values[0]);
  const at::Tensor labels = integers(values[1]);
  stats_.feed(span(predictions), span(labels));
  has_data_ = true;
}

std::vector<std::string> BinaryClassificationStats::reports() const {
  return {prefix_ + "_precision", prefix_ + "_recall"};
}

std::map<std::string, double> BinaryClassificationStats::after_inference() {
  if (!has_data_) return {};
  const std::vector<std::string> names = reports();
  return {{names[0], stats_.precision()}, {names[1], stats_.recall()}};
}

}  // namespace tensorpack
