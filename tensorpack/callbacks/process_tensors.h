// SPDX-License-Identifier: Apache-2.0
// Looking at the tensors of every step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensorpack/callbacks/callback.h"

namespace tensorpack {

/// Fetches tensors, inputs or variables along with every hooked run of the train op (of any op, if
/// the trainer has none) and calls a function with their values, on the host, of that very run:
///
///   ProcessTensors({"image", "logits"}, [](const std::vector<Tensor>& values) { ... })
///
/// The base of those that do something particular with them. Throws Error before the first step
/// when a name is unknown. To have it less often, wrap it in PeriodicCallback or EnableCallbackIf.
class ProcessTensors : public Callback {
 public:
  using Function = std::function<void(const std::vector<at::Tensor>& values)>;
  ProcessTensors(std::vector<std::string> names, Function function);

  void before_train() override;
  RunArgs before_run(RunContext& context) override;
  void after_run(RunContext& context, const FetchedValues& values) override;

 protected:
  /// For derived classes, which override process().
  explicit ProcessTensors(std::vector<std::string> names);
  virtual void process(const std::vector<at::Tensor>& values);
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  Function function_;
};

/// Logs the values of tensors in every hooked run.
class TensorPrinter final : public ProcessTensors {
 public:
  explicit TensorPrinter(std::vector<std::string> names) : ProcessTensors(std::move(names)) {}

  ReportedScalars reports() const override { return no_scalars(); }

 protected:
  void process(const std::vector<at::Tensor>& values) override;
};

/// Writes the values of tensors in every hooked run to `DumpTensor-<global_step>.safetensors` in
/// the log directory. Throws Error before the first step when there is none.
class DumpTensors final : public ProcessTensors {
 public:
  explicit DumpTensors(std::vector<std::string> names) : ProcessTensors(std::move(names)) {}

  void setup_graph() override;

  ReportedScalars reports() const override { return no_scalars(); }

 protected:
  void process(const std::vector<at::Tensor>& values) override;
};

/// Reports the mean of scalars over the last `window_size` runs, as `<name>/SMA`, each time that so
/// many were made.
class SimpleMovingAverage final : public ProcessTensors {
 public:
  SimpleMovingAverage(std::vector<std::string> names, int64_t window_size);

  ReportedScalars reports() const override;
  void before_train() override;

 protected:
  void process(const std::vector<at::Tensor>& values) override;

 private:
  int64_t window_size_;
  std::vector<std::vector<double>> windows_;  // of each name, since the last report
};

}  // namespace tensorpack
