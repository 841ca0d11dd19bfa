// SPDX-License-Identifier: Apache-2.0
// A peer that lives in another process, mostly a Python script, and is kept alive so that its
// repetitions alternate with ours.
//
// The peer sets itself up and writes a line, `ready` or `skip: reason`; facts about itself may
// stand behind `ready`. Then for each line with a number of steps that it reads, it makes the steps
// and writes the seconds they took; at the end of its input it leaves. See peers/peer.py. A peer
// may answer other requests, too, each with a number.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace tensorpack::bench {

/// Copies share the process, which ends with the last of them. Throws Skip when the peer cannot
/// serve.
class PeerProcess {
 public:
  explicit PeerProcess(std::vector<std::string> command);

  /// Runs `benchmarks/peers/<script>` with Debian's Python, or with the one TENSORPACK_BENCH_PYTHON
  /// names. `setting`, such as "A=1", is added to the environment unless it is empty.
  static PeerProcess python(const std::string& script, std::vector<std::string> arguments = {},
                            const std::string& setting = "");

  /// Has the peer make `steps` steps and returns the seconds it took for them.
  double operator()(int64_t steps) const;

  /// The number with which the peer answers.
  double ask(const std::string& request) const;

  /// What the peer wrote behind `ready`.
  const std::string& facts() const;

 private:
  struct Process;
  std::shared_ptr<Process> process_;
};

}  // namespace tensorpack::bench
