// SPDX-License-Identifier: Apache-2.0
// How this process was started: alone, or as one of several that train together.
#pragma once

#include <string>

namespace tensorpack {

/// One process's place among those started together. The default is a process on its own.
struct LaunchEnvironment {
  int rank = 0;
  int size = 1;
  /// Among the processes on this host.
  int local_rank = 0;
  int local_size = 1;
  /// Where the processes find each other: at rank 0, or at the launcher.
  std::string master_address = "127.0.0.1";
  int master_port = 29500;
  /// The launcher itself listens there, so that rank 0 must not.
  bool launcher_hosts_store = false;
  /// How often the launcher has started the job again.
  int attempt = 0;
  /// "torchrun", "openmpi", "mpich", "slurm", "tp" or "none".
  std::string launcher = "none";
};

/// What the environment variables of torchrun, OpenMPI, MPICH, Slurm or `tp launch` say. Throws an
/// Error when they contradict each other or leave open where the processes are to meet.
LaunchEnvironment detect_launch();

}  // namespace tensorpack
