// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/launch_environment.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

namespace {

constexpr const char* kWhere = "detect_launch";

int to_int(const char* name, int64_t value) {
  TP_CHECK(value >= 0 && value < (int64_t{1} << 31), kWhere,
           "the environment variable {} is {}, which cannot be. Unset it, or let the launcher set "
           "it.",
           name, value);
  return static_cast<int>(value);
}

std::optional<int> number(const char* name) {
  const std::optional<int64_t> value = env_int(name);
  return value ? std::optional<int>(to_int(name, *value)) : std::nullopt;
}

/// The names under which a launcher tells a process its place.
struct PlaceNames {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

bool tells_place(const char* rank, const char* size) {
  const bool has_rank = env(rank).has_value();
  const bool has_size = env(size).has_value();
  TP_CHECK(has_rank == has_size, kWhere,
           "the environment has {} but not {}, so the place of this process among others is not "
           "known. Set both, or unset it to run alone.",
           has_rank ? rank : size, has_rank ? size : rank);
  return has_rank;
}

LaunchEnvironment read_place(const char* launcher, const PlaceNames& names) {
  LaunchEnvironment place;
  place.launcher = launcher;
  place.rank = *number(names.rank);
  place.size = *number(names.size);
  place.local_rank = number(names.local_rank).value_or(place.rank);
  place.local_size = number(names.local_size).value_or(place.size);
  return place;
}

/// A port that the processes of one job agree on and those of another most likely do not use.
int port_of_job(std::string_view job) {
  constexpr uint32_t kFirst = 20000;
  constexpr uint32_t kCount = 12000;  // up to where the system takes ports for itself
  uint32_t hash = 2166136261U;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return static_cast<int>(kFirst + hash % kCount);
}

void read_meeting_place(LaunchEnvironment& place, const char* address, const char* port) {
  if (const auto value = env(address)) place.master_address = *value;
  if (const auto value = number(port)) place.master_port = *value;
}

LaunchEnvironment from_tensorpack() {
  LaunchEnvironment place = read_place("tp", {.rank = "TENSORPACK_RANK",
                                              .size = "TENSORPACK_SIZE",
                                              .local_rank = "TENSORPACK_LOCAL_RANK",
                                              .local_size = "TENSORPACK_LOCAL_SIZE"});
  read_meeting_place(place, "TENSORPACK_MASTER_ADDRESS", "TENSORPACK_MASTER_PORT");
  place.attempt = number("TENSORPACK_ATTEMPT").value_or(0);
  return place;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.rfind("127.", 0) == 0;
}

LaunchEnvironment from_torchrun() {
  LaunchEnvironment place = read_place("torchrun", {.rank = "RANK",
                                                    .size = "WORLD_SIZE",
                                                    .local_rank = "LOCAL_RANK",
                                                    .local_size = "LOCAL_WORLD_SIZE"});
  TP_CHECK(
      place.size == 1 || env("MASTER_ADDR"), kWhere,
      "RANK={} and WORLD_SIZE={} are set, but not where the processes meet. Set MASTER_ADDR to "
      "the host of rank 0 and MASTER_PORT to a free port there, or start the program by "
      "torchrun or `tp launch`, which do.",
      place.rank, place.size);
  read_meeting_place(place, "MASTER_ADDR", "MASTER_PORT");
  if (!env("LOCAL_RANK") && !is_loopback(place.master_address)) {
    // Schedulers of containers set the four others only, and start one process in each.
    place.local_rank = 0;
    place.local_size = 1;
  }
  place.launcher_hosts_store = env("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.attempt = number("TORCHELASTIC_RESTART_COUNT").value_or(0);
  return place;
}

/// Under mpirun nobody says where rank 0 is: known only when all are on this host.
void meet_under_mpirun(LaunchEnvironment& place, const std::optional<std::string>& job) {
  const bool one_host = place.local_size == place.size;
  TP_CHECK(one_host || env("MASTER_ADDR"), kWhere,
           "{} of {} processes are on this host, and mpirun does not say where rank 0 is. Pass its "
           "address: `mpirun {} ...`.",
           place.local_size, place.size,
           place.launcher == "openmpi" ? "-x MASTER_ADDR=<host of rank 0>"
                                       : "-genv MASTER_ADDR <host of rank 0>");
  if (job) {
    place.master_port = port_of_job(*job);
  } else if (one_host) {
    place.master_port = port_of_job("parent " + std::to_string(getppid()));
  }
  read_meeting_place(place, "MASTER_ADDR", "MASTER_PORT");
}

LaunchEnvironment from_openmpi() {
  LaunchEnvironment place = read_place("openmpi", {.rank = "OMPI_COMM_WORLD_RANK",
                                                   .size = "OMPI_COMM_WORLD_SIZE",
                                                   .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
                                                   .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE"});
  auto job = env("PMIX_NAMESPACE");
  if (!job) job = env("OMPI_MCA_ess_base_jobid");
  meet_under_mpirun(place, job);
  return place;
}

LaunchEnvironment from_mpich() {
  LaunchEnvironment place = read_place("mpich", {.rank = "PMI_RANK",
                                                 .size = "PMI_SIZE",
                                                 .local_rank = "MPI_LOCALRANKID",
                                                 .local_size = "MPI_LOCALNRANKS"});
  meet_under_mpirun(place, env("PMI_JOBID"));
  return place;
}

/// "gpu[03-07,9],login" -> "gpu03"; "a,b" -> "a".
std::string first_slurm_host(const std::string& hosts) {
  const size_t bracket = hosts.find_first_of("[,");
  if (bracket == std::string::npos || hosts[bracket] == ',') return hosts.substr(0, bracket);
  const size_t end = hosts.find_first_of("-,]", bracket + 1);
  const size_t close = hosts.find(']', bracket);
  const size_t after = close == std::string::npos ? hosts.size() : close + 1;
  const std::string suffix = hosts.substr(after, hosts.find(',', after) - after);
  return hosts.substr(0, bracket) + hosts.substr(bracket + 1, end - bracket - 1) + suffix;
}

/// "2(x3),1" -> {2, 2, 2, 1}: how many processes each host has.
std::vector<int> slurm_tasks_per_host(const std::string& text) {
  std::vector<int> tasks;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const size_t times = item.find("(x");
    const auto count = parse_integer(item.substr(0, times));
    const auto hosts = times == std::string::npos
                           ? std::optional<int64_t>(1)
                           : parse_integer(item.substr(times + 2, item.size() - times - 3));
    TP_CHECK(count && hosts, kWhere, "SLURM_STEP_TASKS_PER_NODE='{}' was not understood.", text);
    tasks.insert(tasks.end(), static_cast<size_t>(*hosts), static_cast<int>(*count));
    begin = end + 1;
  }
  return tasks;
}

LaunchEnvironment from_slurm() {
  LaunchEnvironment place = read_place("slurm", {.rank = "SLURM_PROCID",
                                                 .size = "SLURM_STEP_NUM_TASKS",
                                                 .local_rank = "SLURM_LOCALID",
                                                 .local_size = "SLURM_STEP_NUM_TASKS"});
  const int host = number("SLURM_NODEID").value_or(0);
  const std::vector<int> tasks =
      slurm_tasks_per_host(env("SLURM_STEP_TASKS_PER_NODE").value_or(""));
  if (host < static_cast<int>(tasks.size())) place.local_size = tasks[static_cast<size_t>(host)];
  place.attempt = number("SLURM_RESTART_COUNT").value_or(0);
  if (place.local_size < place.size) {
    const auto hosts = env("SLURM_STEP_NODELIST");
    TP_CHECK(hosts || env("MASTER_ADDR"), kWhere,
             "the processes are on several hosts, but SLURM_STEP_NODELIST is not set. Set "
             "MASTER_ADDR to the host of rank 0.");
    if (hosts) place.master_address = first_slurm_host(*hosts);
  }
  place.master_port =
      port_of_job(env("SLURM_JOB_ID").value_or("") + "." + env("SLURM_STEP_ID").value_or(""));
  read_meeting_place(place, "MASTER_ADDR", "MASTER_PORT");
  return place;
}

/// A batch script has most of Slurm's variables, too, but is one process: only a step has this one.
bool in_slurm_step() { return env("SLURM_STEP_NUM_TASKS") && env("SLURM_PROCID"); }

LaunchEnvironment read_environment() {
  if (tells_place("TENSORPACK_RANK", "TENSORPACK_SIZE")) return from_tensorpack();
  if (tells_place("RANK", "WORLD_SIZE")) return from_torchrun();
  if (tells_place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) return from_openmpi();
  // `srun --mpi=pmi2` sets the variables of MPICH besides its own, and its own say more.
  const bool from_srun = in_slurm_step() && !env("MPI_LOCALRANKID");
  if (!from_srun && tells_place("PMI_RANK", "PMI_SIZE")) return from_mpich();
  if (in_slurm_step()) return from_slurm();
  return {};
}

void check_place(const LaunchEnvironment& place) {
  TP_CHECK(place.size >= 1 && place.rank < place.size, kWhere,
           "{} says that this is rank {} of {}. Ranks begin at 0 and are smaller than the "
           "number of processes.",
           place.launcher, place.rank, counted(place.size, "process"));
  TP_CHECK(place.local_rank < place.local_size && place.local_size <= place.size, kWhere,
           "{} says that this is local rank {} of {} on this host, of {} in all. Local "
           "ranks begin at 0 on each host.",
           place.launcher, place.local_rank, counted(place.local_size, "process"), place.size);
  TP_CHECK(place.master_port >= 1 && place.master_port <= 65535, kWhere,
           "the port to meet at is {}. Set MASTER_PORT to a number from 1 to 65535.",
           place.master_port);
}

}  // namespace

LaunchEnvironment detect_launch() {
  LaunchEnvironment place = read_environment();
  check_place(place);
  return place;
}

}  // namespace tensorpack
