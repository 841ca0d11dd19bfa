// SPDX-License-Identifier: Apache-2.0
// What tells libFuzzer which ways through the readers an input takes, with code compiled by GCC.
//
// GCC calls __sanitizer_cov_trace_pc() in every basic block. libFuzzer's own of that name refuses
// to work, so the linker puts this one in its place (--wrap). It counts in a section that libFuzzer
// looks at after each run, beside its own counters, which GCC does not fill.
#include <cstdint>

namespace {

__attribute__((section("__libfuzzer_extra_counters"), used)) uint8_t counters[1 << 16];

}  // namespace

extern "C" __attribute__((no_sanitize_coverage)) void __wrap___sanitizer_cov_trace_pc() {
  // The distance from here, unlike the address, is the same in every process.
  const uint64_t block = reinterpret_cast<uintptr_t>(__builtin_return_address(0)) -
                         reinterpret_cast<uintptr_t>(counters);
  ++counters[(block * 0x9e3779b97f4a7c15) >> 48];
}

// Comparisons of floating-point numbers, of which libFuzzer makes nothing.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}
