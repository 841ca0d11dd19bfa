// SPDX-License-Identifier: Apache-2.0
// What tests of launchers need of the machine.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

namespace tensorpack {

/// What with_slurm ends with where Slurm cannot be started.
constexpr int kNoSlurm = 77;

inline std::string find_program(const std::string& name) {
  for (const char* folder : {"/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/", "/usr/local/bin/"}) {
    const std::string path = folder + name;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

/// Two network namespaces joined by a cable, each as good as a host of its own.
class TwoHostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (find_program("ip").empty()) GTEST_SKIP() << "ip is not installed (Debian: iproute2)";
    const std::string why = "network namespaces are not permitted here: they need root";
    if (!ip("netns add " + a_)) GTEST_SKIP() << why;
    if (!ip("netns add " + b_) ||
        !ip(fmt::format("link add tpveth0 netns {} type veth peer name tpveth1 netns {}", a_,
                        b_))) {
      GTEST_SKIP() << why;
    }
    for (const auto& [host, address, cable] :
         {std::tuple(a_, "10.77.0.1/24", "tpveth0"), std::tuple(b_, "10.77.0.2/24", "tpveth1")}) {
      ASSERT_TRUE(ip(fmt::format("-n {} addr add {} dev {}", host, address, cable)));
      ASSERT_TRUE(ip(fmt::format("-n {} link set lo up", host)));
      ASSERT_TRUE(ip(fmt::format("-n {} link set {} up", host, cable)));
    }
  }
  void TearDown() override {
    ip("netns del " + a_);
    ip("netns del " + b_);
  }

  static bool ip(const std::string& arguments) {
    return std::system(("ip " + arguments + " > /dev/null 2>&1").c_str()) == 0;
  }

  /// Both hosts run one rank of a program.
  std::vector<std::string> job(const std::vector<std::string>& program) const {
    std::vector<std::string> command = {TENSORPACK_TP,
                                        "launch",
                                        "-H",
                                        fmt::format("{}:1,{}:1", a_, b_),
                                        "--rsh",
                                        "ip netns exec {host} sh -c",
                                        "--master-address",
                                        "10.77.0.1",
                                        "--timeout",
                                        "6",
                                        "--"};
    command.insert(command.end(), program.begin(), program.end());
    return command;
  }

  const std::string a_ = fmt::format("tp{}a", getpid());
  const std::string b_ = fmt::format("tp{}b", getpid());
};

}  // namespace tensorpack
