// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/launch_environment.h"

#include <gmock/gmock.h>

#include <list>
#include <map>
#include <string>

#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

/// The environment as a launcher leaves it: nothing of what started the test itself.
class FakeEnvironment {
 public:
  explicit FakeEnvironment(const Variables& variables) {
    for (const char* name : {"TENSORPACK_RANK",
                             "TENSORPACK_SIZE",
                             "TENSORPACK_LOCAL_RANK",
                             "TENSORPACK_LOCAL_SIZE",
                             "TENSORPACK_MASTER_ADDRESS",
                             "TENSORPACK_MASTER_PORT",
                             "TENSORPACK_ATTEMPT",
                             "RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "TORCHELASTIC_USE_AGENT_STORE",
                             "TORCHELASTIC_RESTART_COUNT",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "OMPI_MCA_ess_base_jobid",
                             "PMIX_NAMESPACE",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "PMI_JOBID",
                             "MPI_LOCALRANKID",
                             "MPI_LOCALNRANKS",
                             "SLURM_PROCID",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_NTASKS",
                             "SLURM_LOCALID",
                             "SLURM_NODEID",
                             "SLURM_STEP_TASKS_PER_NODE",
                             "SLURM_STEP_NODELIST",
                             "SLURM_JOB_ID",
                             "SLURM_STEP_ID",
                             "SLURM_RESTART_COUNT"}) {
      held_.emplace_back(name, std::nullopt);
    }
    for (const auto& [name, value] : variables) held_.emplace_back(name, value);
  }
  ~FakeEnvironment() {
    while (!held_.empty()) held_.pop_back();  // in the reverse order: a name may be there twice
  }

 private:
  std::list<ScopedEnv> held_;
};

LaunchEnvironment detect(const Variables& variables) {
  const FakeEnvironment environment(variables);
  return detect_launch();
}

std::string why_not(const Variables& variables) {
  const FakeEnvironment environment(variables);
  try {
    detect_launch();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string describe(const LaunchEnvironment& place) {
  return fmt::format("{} {}/{} local {}/{} at {} attempt {}{}", place.launcher, place.rank,
                     place.size, place.local_rank, place.local_size, place.master_address,
                     place.attempt, place.launcher_hosts_store ? " store at launcher" : "");
}

const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29511"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "1510211585"}};
const Variables kMpich = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"},
                          {"SLURM_STEP_NUM_TASKS", "7"},
                          {"SLURM_NTASKS", "7"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                          {"SLURM_STEP_NODELIST", "gpu[03-05,9]"},
                          {"SLURM_JOB_ID", "4711"},
                          {"SLURM_STEP_ID", "0"}};
const Variables kTp = {{"TENSORPACK_RANK", "1"},
                       {"TENSORPACK_SIZE", "4"},
                       {"TENSORPACK_LOCAL_RANK", "1"},
                       {"TENSORPACK_LOCAL_SIZE", "2"},
                       {"TENSORPACK_MASTER_ADDRESS", "10.0.0.1"},
                       {"TENSORPACK_MASTER_PORT", "23456"},
                       {"TENSORPACK_ATTEMPT", "3"}};

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

Variables without(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

TEST(LaunchEnvironmentTest, EveryLauncherIsUnderstood) {
  struct Case {
    const char* expected;
    Variables variables;
  };
  const Case cases[] = {
      {"none 0/1 local 0/1 at 127.0.0.1 attempt 0", {}},
      {"torchrun 3/4 local 1/2 at node0 attempt 2 store at launcher", kTorchrun},
      {"openmpi 1/2 local 1/2 at 127.0.0.1 attempt 0", kOpenMpi},
      {"mpich 1/2 local 1/2 at 127.0.0.1 attempt 0", kMpich},
      {"slurm 5/7 local 1/2 at gpu03 attempt 0", kSlurm},
      {"tp 1/4 local 1/2 at 10.0.0.1 attempt 3", kTp},
      {"tp 1/4 local 1/2 at 10.0.0.1 attempt 3", with(kTp, kSlurm)},
      {"tp 1/4 local 1/2 at 10.0.0.1 attempt 3", with(kTp, kTorchrun)},
      {"torchrun 3/4 local 1/2 at node0 attempt 2 store at launcher", with(kTorchrun, kOpenMpi)},
      // mpirun in an allocation of Slurm starts its daemons by a step.
      {"openmpi 1/2 local 1/2 at 127.0.0.1 attempt 0", with(kSlurm, kOpenMpi)},
      {"mpich 1/2 local 1/2 at 127.0.0.1 attempt 0", with(kSlurm, kMpich)},
      // srun --mpi=pmi2
      {"slurm 5/7 local 1/2 at gpu03 attempt 0",
       with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}})},
      // A batch script, which is not a step.
      {"none 0/1 local 0/1 at 127.0.0.1 attempt 0",
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "4711"}}},
      {"slurm 0/2 local 0/2 at 127.0.0.1 attempt 1",
       {{"SLURM_PROCID", "0"},
        {"SLURM_STEP_NUM_TASKS", "2"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_STEP_TASKS_PER_NODE", "2"},
        {"SLURM_STEP_NODELIST", "vm"},
        {"SLURM_RESTART_COUNT", "1"}}},
      {"slurm 5/7 local 1/2 at other attempt 0", with(kSlurm, {{"MASTER_ADDR", "other"}})},
      {"slurm 5/7 local 1/2 at a attempt 0", with(kSlurm, {{"SLURM_STEP_NODELIST", "a,b,c,d"}})},
      {"slurm 5/7 local 1/2 at n1-ib attempt 0",
       with(kSlurm, {{"SLURM_STEP_NODELIST", "n[1-4]-ib,z"}})},
      // By hand on one host, and one process in each container.
      {"torchrun 1/2 local 1/2 at localhost attempt 0",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}}},
      {"torchrun 1/2 local 0/1 at job-0 attempt 0",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-0"}}},
  };
  for (const Case& c : cases) EXPECT_EQ(describe(detect(c.variables)), c.expected);
}

TEST(LaunchEnvironmentTest, ThePortIsThatOfTheJob) {
  EXPECT_EQ(detect(kTorchrun).master_port, 29511);
  EXPECT_EQ(detect(kTp).master_port, 23456);
  EXPECT_EQ(detect(with(kOpenMpi, {{"MASTER_PORT", "1234"}})).master_port, 1234);

  const int port = detect(kOpenMpi).master_port;
  EXPECT_GE(port, 20000);
  EXPECT_LT(port, 32000) << "the system gives away the ports above";
  EXPECT_EQ(detect(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}})).master_port, port);
  EXPECT_NE(detect(with(kOpenMpi, {{"PMIX_NAMESPACE", "1510211586"}})).master_port, port);
  EXPECT_NE(detect(kSlurm).master_port, detect(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).master_port);
  EXPECT_EQ(detect(kMpich).master_port, detect(kMpich).master_port);
}

TEST(LaunchEnvironmentTest, SeveralHostsUnderMpirunNeedAnAddress) {
  const Variables two_hosts = with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_THAT(
      why_not(two_hosts),
      HasSubstr("[detect_launch] 2 of 4 processes are on this host, and mpirun does not say "
                "where rank 0 is. Pass its address: `mpirun -x MASTER_ADDR="));
  EXPECT_THAT(why_not(with(kMpich, {{"PMI_SIZE", "4"}})), HasSubstr("-genv MASTER_ADDR"));
  EXPECT_EQ(detect(with(two_hosts, {{"MASTER_ADDR", "node0"}})).master_address, "node0");
}

TEST(LaunchEnvironmentTest, ContradictionsAreErrors) {
  struct Case {
    const char* expected;
    Variables variables;
  };
  const Case cases[] = {
      {"has RANK but not WORLD_SIZE", {{"RANK", "0"}}},
      {"has PMI_SIZE but not PMI_RANK", {{"PMI_SIZE", "2"}}},
      {"rank 4 of 4 processes", with(kTorchrun, {{"RANK", "4"}})},
      {"RANK is -1, which cannot be", with(kTorchrun, {{"RANK", "-1"}})},
      {"must be an integer, got 'one'", with(kTorchrun, {{"RANK", "one"}})},
      {"not where the processes meet. Set MASTER_ADDR", without(kTorchrun, "MASTER_ADDR")},
      {"local rank 2 of 2 processes", with(kTorchrun, {{"LOCAL_RANK", "2"}})},
      {"the port to meet at is 70000", with(kTorchrun, {{"MASTER_PORT", "70000"}})},
      {"SLURM_STEP_TASKS_PER_NODE='many' was not understood",
       with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "many"}})},
      {"SLURM_STEP_NODELIST is not set", without(kSlurm, "SLURM_STEP_NODELIST")},
  };
  for (const Case& c : cases) EXPECT_THAT(why_not(c.variables), HasSubstr(c.expected));
}

}  // namespace
}  // namespace tensorpack
