// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/process_tensors.h"

#include <ATen/ATen.h>

#include <numeric>
#include <sstream>

#include "tensorpack/callbacks/fetch_spec.h"
#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {

ProcessTensors::ProcessTensors(std::vector<std::string> names) : names_(std::move(names)) {
  TP_CHECK(!names_.empty(), "ProcessTensors", "there are no names. Pass at least one.");
}

ProcessTensors::ProcessTensors(std::vector<std::string> names, Function function)
    : ProcessTensors(std::move(names)) {
  function_ = std::move(function);
  TP_CHECK(function_ != nullptr, "ProcessTensors", "the function is empty. Pass one.");
}

void ProcessTensors::before_train() {
  const Op& op = trainer().train_op();
  if (!op) return;  // the trainer has its own run_step(): the first run checks
  for (const std::string& tensor : names_) fetch_spec(graph(), op, tensor, name());
}

RunArgs ProcessTensors::before_run(RunContext& context) {
  const Op& op = trainer().train_op();
  if (op && context.op() != op) return {};
  return {.fetches = names_};
}

void ProcessTensors::after_run(RunContext&, const FetchedValues& values) {
  if (!values.empty()) process(values.get());
}

void ProcessTensors::process(const std::vector<at::Tensor>& values) { function_(values); }

void TensorPrinter::process(const std::vector<at::Tensor>& values) {
  std::ostringstream text;
  for (size_t i = 0; i < values.size(); ++i) text << "\n" << names()[i] << ":\n" << values[i];
  logging::info("global_step {}:{}", global_step(), text.str());
}

void DumpTensors::setup_graph() {
  TP_CHECK(get_logger_dir().has_value(), "DumpTensors",
           "there is no log directory to write to. Call set_logger_dir() before training.");
}

void DumpTensors::process(const std::vector<at::Tensor>& values) {
  NamedTensors tensors;
  for (size_t i = 0; i < values.size(); ++i) tensors.emplace(names()[i], values[i]);
  write_safetensors(*get_logger_dir() / fmt::format("DumpTensor-{}.safetensors", global_step()),
                    tensors);
}

SimpleMovingAverage::SimpleMovingAverage(std::vector<std::string> names, int64_t window_size)
    : ProcessTensors(std::move(names)), window_size_(window_size) {
  TP_CHECK(window_size_ > 0, "SimpleMovingAverage", "the window must be positive, got {}.",
           window_size_);
}

ReportedScalars SimpleMovingAverage::reports() const {
  ReportedScalars averages = no_scalars();
  for (const std::string& name : names()) averages.names.push_back(name + "/SMA");
  return averages;
}

void SimpleMovingAverage::before_train() {
  ProcessTensors::before_train();
  windows_.assign(names().size(), {});
  const Op& op = trainer().train_op();
  if (!op) return;
  for (const std::string& tensor : names()) {
    TP_CHECK(fetch_spec(graph(), op, tensor, name()).shape.empty(), "SimpleMovingAverage",
             "'{}' is not a scalar. Name its mean in the model and use that.", tensor);
  }
}

void SimpleMovingAverage::process(const std::vector<at::Tensor>& values) {
  for (size_t i = 0; i < values.size(); ++i) windows_[i].push_back(values[i].item<double>());
  if (global_step() % window_size_ != 0) return;
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<double>& window = windows_[i];
    const double sum = std::accumulate(window.begin(), window.end(), 0.0);
    trainer().monitors().put_scalar(names()[i] + "/SMA", sum / static_cast<double>(window.size()));
    window.clear();  // the next report is of the next window
  }
}

}  // namespace tensorpack
