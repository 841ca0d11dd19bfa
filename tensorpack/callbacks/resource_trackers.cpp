// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/resource_trackers.h"

#include <sys/resource.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <numeric>
#include <utility>

#include "tensorpack/session/device_memory.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/nvml.h"
#include "tensorpack/utils/stats.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {
namespace {

constexpr double kMegabyte = 1 << 20;
constexpr double kGigabyte = 1 << 30;

double peak_of_process() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;  // in KiB
}

// Of /proc/meminfo, in bytes; what could be given to a program without swapping.
uint64_t free_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;  // in KiB
  }
  return 0;
}

constexpr const char* kPeakOfHost = "PeakMemory(MB)/cpu";
constexpr const char* kFreeMemory = "HostFreeMemory (GB)";
constexpr const char* kBusyCores = "HostCPU (cores)";
std::string peak_of_gpu(size_t i) { return fmt::format("PeakMemory(MB)/gpu:{}", i); }
std::string utilization_of(int device) { return fmt::format("GPUUtil/{}", device); }

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

void PeakMemoryTracker::before_train() { reset_peak_device_memory(); }

ReportedScalars PeakMemoryTracker::reports() const {
  ReportedScalars peaks{.names = {kPeakOfHost}, .are_all = true};
  for (size_t i = 0; i < peak_device_memory().size(); ++i) peaks.names.push_back(peak_of_gpu(i));
  return peaks;
}

void PeakMemoryTracker::trigger() {
  trainer().monitors().put_scalar(kPeakOfHost, peak_of_process());
  const std::vector<int64_t> peaks = peak_device_memory();
  for (size_t i = 0; i < peaks.size(); ++i) {
    if (peaks[i] == 0) continue;
    trainer().monitors().put_scalar(peak_of_gpu(i), static_cast<double>(peaks[i]) / kMegabyte);
  }
}

HostResourceTracker::Usage HostResourceTracker::usage() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime),
          std::chrono::duration<double>(now).count()};
}

void HostResourceTracker::before_train() {
  last_ = usage();
  logging::info("Free memory of the host: {}.", humanize_bytes(free_memory()));
}

ReportedScalars HostResourceTracker::reports() const {
  return {.names = {kFreeMemory, kBusyCores}, .are_all = true};
}

void HostResourceTracker::trigger() {
  const Usage before = std::exchange(last_, usage());
  trainer().monitors().put_scalar(kFreeMemory, static_cast<double>(free_memory()) / kGigabyte);
  const double wall = last_.wall_seconds - before.wall_seconds;
  if (wall <= 0) return;
  trainer().monitors().put_scalar(kBusyCores, (last_.cpu_seconds - before.cpu_seconds) / wall);
}

// What the thread has measured in this epoch.
struct GPUUtilizationTracker::Samples {
  std::unique_ptr<Nvml> nvml = {};
  std::mutex mutex = {};
  bool is_in_epoch = false;
  std::vector<StatCounter> of_devices = {};
  StoppableThread thread = {};  // the last: it uses the others

  void measure(const std::vector<int>& devices) {
    const std::lock_guard lock(mutex);
    if (!is_in_epoch) return;
    for (size_t i = 0; i < devices.size(); ++i) of_devices[i].feed(nvml->utilization(devices[i]));
  }
};

GPUUtilizationTracker::GPUUtilizationTracker(std::vector<int> devices)
    : devices_(std::move(devices)) {
  for (const int device : devices_) {
    TP_CHECK(device >= 0, "GPUUtilizationTracker", "there is no device {}.", device);
  }
  set_chief_only(false);
}

GPUUtilizationTracker::~GPUUtilizationTracker() = default;
GPUUtilizationTracker::GPUUtilizationTracker(GPUUtilizationTracker&&) noexcept = default;
GPUUtilizationTracker& GPUUtilizationTracker::operator=(GPUUtilizationTracker&&) noexcept = default;

// Without a list of devices it finds them in its before_train().
ReportedScalars GPUUtilizationTracker::reports() const {
  ReportedScalars scalars{.are_all = !devices_.empty()};
  for (const int device : devices_) scalars.names.push_back(utilization_of(device));
  return scalars;
}

void GPUUtilizationTracker::before_train() {
  std::unique_ptr<Nvml> nvml = Nvml::open();
  if (!nvml) {
    logging::warning("[GPUUtilizationTracker] there is no NVIDIA driver: nothing is reported.");
    return;
  }
  if (devices_.empty()) {
    devices_.resize(static_cast<size_t>(nvml->devices()));
    std::iota(devices_.begin(), devices_.end(), 0);
  }
  for (const int device : devices_) {
    TP_CHECK(device < nvml->devices(), "GPUUtilizationTracker",
             "there is no device {}: the driver has {}.", device, nvml->devices());
  }
  samples_ = std::make_unique<Samples>();
  samples_->nvml = std::move(nvml);
  samples_->of_devices.resize(devices_.size());
  samples_->thread = StoppableThread(
      "gpu_util", [samples = samples_.get(), devices = devices_](const std::stop_token& stop) {
        std::mutex sleeping;
        std::condition_variable_any wake;
        std::unique_lock lock(sleeping);
        while (!wake.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; }) &&
               !stop.stop_requested()) {
          samples->measure(devices);
        }
      });
}

void GPUUtilizationTracker::before_epoch() {
  if (!samples_) return;
  const std::lock_guard lock(samples_->mutex);
  for (StatCounter& counter : samples_->of_devices) counter.reset();
  samples_->is_in_epoch = true;
}

void GPUUtilizationTracker::after_epoch() {
  if (!samples_) return;
  const std::lock_guard lock(samples_->mutex);
  samples_->is_in_epoch = false;
}

void GPUUtilizationTracker::trigger_epoch() {
  if (!samples_) return;
  samples_->thread.rethrow_if_failed();
  const std::lock_guard lock(samples_->mutex);
  for (size_t i = 0; i < devices_.size(); ++i) {
    const StatCounter& counter = samples_->of_devices[i];
    if (counter.count() == 0) continue;  // an epoch of less than a second
    trainer().monitors().put_scalar(utilization_of(devices_[i]), counter.average());
  }
}

void GPUUtilizationTracker::after_train() { samples_.reset(); }

}  // namespace tensorpack
