// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/distributed/process_group.h"

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <future>

#include "tensorpack/utils/env.h"
#include "tensorpack/utils/signals.h"
#include "tests/distributed/ranks.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;

const auto kDtypes = {at::kFloat, at::kDouble, at::kHalf,        at::kBFloat16,
                      at::kByte,  at::kChar,   at::kShort,       at::kInt,
                      at::kLong,  at::kBool,   at::kComplexFloat};

TEST(ProcessGroupTest, AProcessAloneNeedsNoNetwork) {
  const auto group = ProcessGroup::create({.environment = {.master_address = "no.such.host"}});
  EXPECT_EQ(group->size(), 1);
  EXPECT_TRUE(group->is_chief());
  const at::Tensor tensor = at::ones({2});
  group->all_reduce(tensor)->wait();
  group->broadcast(tensor);
  EXPECT_TRUE(at::equal(tensor, at::ones({2})));
  EXPECT_THAT(group->all_gather("one"), ElementsAre("one"));
  group->barrier();
  group->check();
  group->leave("done");
  EXPECT_ERROR(group->broadcast(tensor, 1), "there is no rank 1: this process is alone");
}

TEST(ProcessGroupTest, OneRankCanHaveARealBackend) {
  const auto group = ProcessGroup::create({.environment = {}, .backend = CollectiveBackend::kGloo});
  const at::Tensor tensor = at::ones({2});
  group->all_reduce(tensor)->wait();
  EXPECT_TRUE(at::equal(tensor, at::ones({2})));
  EXPECT_THAT(group->all_gather("one"), ElementsAre("one"));
}

TEST(ProcessGroupTest, EveryDtypeIsSummed) {
  EXPECT_THAT(run_ranks(3, seconds(20),
                        [](const auto& group) {
                          for (const auto dtype : kDtypes) {
                            const at::Tensor tensor = at::full({5}, group->rank() + 1, dtype);
                            group->all_reduce(tensor)->wait();
                            EXPECT_TRUE(at::equal(tensor, at::full({5}, 6, dtype))) << tensor;
                          }
                        }),
              Each(IsEmpty()));
}

TEST(ProcessGroupTest, ImaginaryPartsAreSummedToo) {
  EXPECT_THAT(run_ranks(2, seconds(20),
                        [](const auto& group) {
                          const auto number = c10::complex<float>(1, 2.F + group->rank());
                          const at::Tensor tensor = at::full({5}, number, at::kComplexFloat);
                          group->all_reduce(tensor)->wait();
                          const at::Tensor sum = at::full({5}, c10::complex<float>(2, 5));
                          EXPECT_TRUE(at::equal(tensor, sum.to(at::kComplexFloat))) << tensor;
                        }),
              Each(IsEmpty()));
}

TEST(ProcessGroupTest, ATrueOfAnyRankIsTheSumOfBooleans) {
  EXPECT_THAT(run_ranks(2, seconds(20),
                        [](const auto& group) {
                          const at::Tensor tensor = at::zeros({3}, at::kBool);
                          tensor[group->rank()] = true;
                          tensor[0] = true;
                          group->all_reduce(tensor)->wait();
                          EXPECT_TRUE(at::equal(tensor, at::tensor({1, 1, 0}).to(at::kBool)));
                        }),
              Each(IsEmpty()));
}

TEST(ProcessGroupTest, EveryDtypeIsBroadcastBitByBit) {
  EXPECT_THAT(
      run_ranks(3, seconds(20),
                [](const auto& group) {
                  for (const auto dtype : kDtypes) {
                    const at::Tensor tensor = at::full({2, 3}, group->rank() == 2 ? 1 : 0, dtype);
                    group->broadcast(tensor, 2);
                    EXPECT_TRUE(at::equal(tensor, at::ones({2, 3}, dtype))) << tensor;
                  }
                }),
      Each(IsEmpty()));
}

TEST(ProcessGroupTest, AnyLayoutAndSizeIsExchanged) {
  const at::Tensor image = at::arange(2 * 3 * 4 * 4, at::kFloat).view({2, 3, 4, 4});
  EXPECT_THAT(run_ranks(2, seconds(20),
                        [&](const auto& group) {
                          // Each rank may have its own layout: what counts are the elements.
                          at::Tensor tensor = group->rank() == 0
                                                  ? image.contiguous(at::MemoryFormat::ChannelsLast)
                                                  : image.clone();
                          if (group->rank() == 0) tensor = tensor.clone();
                          group->all_reduce(tensor)->wait();
                          EXPECT_TRUE(at::equal(tensor, 2 * image));

                          const at::Tensor whole = at::full({4, 4}, group->rank() + 1.0);
                          const at::Tensor column = whole.select(1, 2);
                          group->all_reduce(column)->wait();
                          EXPECT_TRUE(at::equal(column, at::full({4}, 3.0)));
                          EXPECT_EQ(whole[0][0].item<double>(), group->rank() + 1.0);
                          group->broadcast(whole.t());
                          EXPECT_EQ(whole[1][1].item<double>(), 1.0);

                          const at::Tensor scalar = at::scalar_tensor(group->rank());
                          group->broadcast(scalar, 1);
                          EXPECT_EQ(scalar.item<int>(), 1);
                          const at::Tensor empty = at::empty({0, 3});
                          group->all_reduce(empty)->wait();
                          group->broadcast(empty);

                          at::Tensor parameter = at::ones({2}).set_requires_grad(true);
                          group->all_reduce(parameter)->wait();
                          EXPECT_EQ(parameter[0].template item<float>(), 2);
                        }),
              Each(IsEmpty()));
}

TEST(ProcessGroupTest, ManySumsMayBeUnderWay) {
  EXPECT_THAT(run_ranks(2, seconds(20),
                        [](const auto& group) {
                          std::vector<at::Tensor> buckets;
                          std::vector<std::unique_ptr<ProcessGroup::Work>> sums;
                          for (int i = 0; i < 50; ++i) {
                            buckets.push_back(at::full({1000 + i}, i));
                            sums.push_back(group->all_reduce(buckets.back()));
                          }
                          for (auto& sum : sums) sum->wait();
                          sums.front()->wait();  // a second time is no mistake
                          for (int i = 0; i < 50; ++i) {
                            EXPECT_EQ(buckets[static_cast<size_t>(i)].sum().item<int>(),
                                      2 * i * (1000 + i));
                          }
                        }),
              Each(IsEmpty()));
}

TEST(ProcessGroupTest, TextsOfAnyLengthAreGathered) {
  EXPECT_THAT(
      run_ranks(
          3, seconds(20),
          [](const auto& group) {
            const std::string texts[] = {"", std::string("a\0b", 3), std::string(100000, 'x')};
            EXPECT_THAT(group->all_gather(texts[group->rank()]),
                        ElementsAre(texts[0], texts[1], texts[2]));
            EXPECT_THAT(group->all_gather(""), ElementsAre("", "", ""));
          }),
      Each(IsEmpty()));
}

TEST(ProcessGroupTest, WrongTensorsAndRanksAreErrors) {
  EXPECT_THAT(
      run_ranks(2, seconds(20),
                [](const auto& group) {
                  EXPECT_ERROR(group->all_reduce({}), "this one is undefined. Make it dense.");
                  EXPECT_ERROR(group->broadcast(at::zeros({2, 2}).to_sparse()), "is sparse");
                  EXPECT_ERROR(group->broadcast(at::zeros({2}), 2), "no rank 2 to broadcast from");
                  group->barrier();
                }),
      Each(IsEmpty()));
  EXPECT_ERROR(ProcessGroup::create({.environment = place_of(2, 2, 1)}), "no rank 2 among 2");
  const ScopedEnv timeout("TENSORPACK_TIMEOUT", "0");
  EXPECT_ERROR(ProcessGroup::create(), "must be positive, got 0 s");
}

TEST(ProcessGroupTest, RanksThatShareAGpuGoThroughTheHost) {
  if (!at::hasCUDA() || at::detail::getCUDAHooks().getNumGPUs() == 0) GTEST_SKIP() << "no GPU";
  const int port = free_port();
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([port, rank] {
      const auto group = ProcessGroup::create({.environment = place_of(rank, 2, port),
                                               .device = c10::Device(c10::kCUDA, 0),
                                               .timeout = seconds(60)});
      for (const auto dtype : kDtypes) {
        const at::Tensor tensor = at::full({5}, rank + 1, at::device(at::kCUDA).dtype(dtype));
        group->all_reduce(tensor)->wait();
        EXPECT_TRUE(at::equal(tensor.cpu(), at::full({5}, 3, dtype))) << tensor;
        group->broadcast(tensor, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ProcessGroupTest, OneRankUsesNccl) {
  if (!at::hasCUDA() || at::detail::getCUDAHooks().getNumGPUs() == 0) GTEST_SKIP() << "no GPU";
  const auto group = ProcessGroup::create({.environment = {},
                                           .device = c10::Device(c10::kCUDA, 0),
                                           .backend = CollectiveBackend::kNccl});
  for (const auto dtype : kDtypes) {
    const at::Tensor tensor = at::ones({5, 4}, at::device(at::kCUDA).dtype(dtype));
    group->all_reduce(tensor.t())->wait();
    group->broadcast(tensor);
    EXPECT_TRUE(at::equal(tensor.cpu(), at::ones({5, 4}, dtype))) << tensor;
  }
  const at::Tensor on_host = at::ones({3});
  group->all_reduce(on_host)->wait();
  EXPECT_THAT(group->all_gather("one"), ElementsAre("one"));
  group->check();
}

// Such a connection could be the one that looks for rank 0 before it listens.
TEST(FreePortTest, IsNoneThatOutgoingConnectionsAreGiven) {
  int first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  ASSERT_GT(first, 0);
  for (int i = 0; i < 100; ++i) EXPECT_LT(free_port(), first);
}

TEST(ProcessGroupTest, WhoLeavesTellsTheOthersWhy) {
  const auto errors = run_ranks(3, seconds(60), [](const auto& group) {
    group->set_step(57);
    group->barrier();
    if (group->rank() == 1) {
      group->leave("the disk is full.");
      EXPECT_ERROR(group->barrier(), "this process has left the group");
      return;
    }
    group->all_reduce(at::ones({10}))->wait();
  });
  EXPECT_THAT(errors[0], HasSubstr("[rank 0 of 3] rank 1 left at step 57: the disk is full."));
  EXPECT_THAT(errors[1], IsEmpty());
  EXPECT_THAT(errors[2], HasSubstr("[rank 2 of 3] rank 1 left at step 57: the disk is full."));
}

TEST(ProcessGroupTest, TheReasonOfRankZeroArrivesThoughItHostsTheStore) {
  const auto errors = run_ranks(2, seconds(60), [](const auto& group) {
    group->set_step(3);
    group->barrier();
    if (group->rank() == 0) return group->leave("Ctrl-C.");
    group->barrier();
  });
  EXPECT_THAT(errors[1], HasSubstr("[rank 1 of 2] rank 0 left at step 3: Ctrl-C."));
}

TEST(ProcessGroupTest, WhoEndsEarlierIsNamed) {
  const auto errors = run_ranks(2, seconds(60), [](const auto& group) {
    group->barrier();
    group->set_step(8);
    if (group->rank() == 1) return;
    group->barrier();
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 left at step 8: it closed its process group."));
}

TEST(ProcessGroupTest, WhoHangsIsNamedWithItsStep) {
  std::atomic<int> failed = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = run_ranks(3, milliseconds(1000), [&](const auto& group) {
    group->barrier();
    group->set_step(group->rank() == 2 ? 55 : 57);
    while (group->rank() == 2 && failed < 2) std::this_thread::sleep_for(milliseconds(10));
    try {
      group->barrier();
      group->barrier();  // the first may still find what the others have given up
    } catch (const Error&) {
      ++failed;
      throw;
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(12));
  for (const auto& error : errors) {
    EXPECT_THAT(error, MatchesRegex("\\[rank . of 3\\] rank 2 is alive but has not come to this "
                                    "collective for 1.0 s; it is in step 55..*"));
  }
}

// What was captured is not counted as a collective: the steps tell.
TEST(ProcessGroupTest, WhoIsBehindWhileADeviceIsWaitedForIsNamed) {
  std::promise<void> seen;
  const auto errors = run_ranks(2, milliseconds(1000), [&](const auto& group) {
    group->barrier();
    group->set_step(group->rank() == 1 ? 55 : 57);
    if (group->rank() == 1) return seen.get_future().wait();
    group->check_after(milliseconds(999));
    EXPECT_ERROR(group->check_after(milliseconds(1000)),
                 "rank 1 is alive but behind: rank 1 is in step 55, and rank 0 has waited in step "
                 "57 for 1.0 s.");
    seen.set_value();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// ---- ending together

// Steps until all end, each rank at its own speed; who was asked, asks at step 5.
std::vector<int64_t> steps_until_the_end(bool meet_in_every_step, std::vector<int> asked) {
  std::vector<int64_t> steps(3);
  const auto errors = run_ranks(3, seconds(60), [&](const auto& group) {
    const int rank = group->rank();
    for (int64_t step = 1;; ++step) {
      if (meet_in_every_step) group->barrier();
      if (!meet_in_every_step) std::this_thread::sleep_for(milliseconds(10 + 2 * rank));
      const bool asks = std::find(asked.begin(), asked.end(), rank) != asked.end();
      if (asks && step >= 5) group->share_signal(SIGTERM);
      EXPECT_FALSE(group->ends_here());
      if (const int signal = group->agreed_signal(step)) {
        EXPECT_EQ(signal, SIGTERM);
        EXPECT_TRUE(group->ends_here());
        steps[static_cast<size_t>(rank)] = step;
        break;
      }
    }
    group->barrier();  // they are all here
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  return steps;
}

TEST(ProcessGroupTest, WhenOneIsAskedToEndAllDoAfterTheSameStep) {
  for (const bool meet : {true, false}) {
    const std::vector<int64_t> steps = steps_until_the_end(meet, {1});
    EXPECT_THAT(steps, Each(testing::Ge(5)));
    EXPECT_THAT(steps, Each(steps[0]));
  }
}

TEST(ProcessGroupTest, WhenAllAreAskedToEndAllDoAfterTheSameStep) {
  const std::vector<int64_t> steps = steps_until_the_end(false, {0, 1, 2});
  EXPECT_THAT(steps, Each(testing::Ge(5)));
  EXPECT_THAT(steps, Each(steps[0]));
}

TEST(ProcessGroupTest, AllSaveAfterTheSameStepAsOftenAsTheyAreAskedAndEndAfterwards) {
  std::vector<std::vector<int64_t>> saves(3);
  const auto errors = run_ranks(3, seconds(60), [&](const auto& group) {
    const int rank = group->rank();
    std::vector<int64_t>& steps = saves[static_cast<size_t>(rank)];
    for (int64_t step = 1;; ++step) {
      std::this_thread::sleep_for(milliseconds(2 + rank));
      if (rank == 1 && (step == 5 || steps.size() == 1)) group->share_signal(kSignalToSave);
      if (rank == 2 && steps.size() == 2) group->share_signal(SIGTERM);
      const int signal = group->agreed_signal(step);
      if (signal == kSignalToSave) steps.push_back(step);
      EXPECT_EQ(group->ends_here(), signal == SIGTERM);
      if (signal == SIGTERM) break;
      if (signal == kSignalToSave) group->barrier();  // they are all here
    }
    steps.push_back(-1);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(saves[0], testing::SizeIs(3)) << "two checkpoints, and the end";
  EXPECT_THAT(saves, Each(saves[0]));
}

TEST(ProcessGroupTest, AnotherOrderIsNamed) {
  const auto errors = run_ranks(2, milliseconds(1000), [](const auto& group) {
    group->set_step(4);
    if (group->rank() == 0) {
      group->all_reduce(at::ones({10}))->wait();
    } else {
      group->broadcast(at::ones({20}), 1);
      group->barrier();
    }
  });
  // Who notices first speaks for both.
  EXPECT_THAT(
      errors[0],
      AnyOf(HasSubstr("rank 1 is in another collective than rank 0: broadcast of 20 Float in "
                      "step 4, not all_reduce of 10 Float in step 4."),
            HasSubstr("rank 0 is in another collective than rank 1: all_reduce of 10 Float in step "
                      "4, not broadcast of 20 Float in step 4.")));
}

TEST(ProcessGroupTest, AfterAFailureItSaysSoAtOnce) {
  constexpr milliseconds kTimeout(1000);
  std::promise<void> seen;
  const auto errors = run_ranks(2, kTimeout, [&](const auto& group) {
    if (group->rank() == 1) return seen.get_future().wait();
    const auto first = group->all_reduce(at::ones({10}));
    const auto second = group->all_reduce(at::ones({10}));
    EXPECT_ERROR(first->wait(), "rank 1 is alive but has not come");
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_ERROR(second->wait(), "of no more use after this failure: rank 1 is alive but");
    EXPECT_ERROR(group->barrier(), "of no more use after this failure: rank 1 is alive but");
    EXPECT_ERROR(group->check(), "of no more use after this failure: rank 1 is alive but");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kTimeout) << "it waited again";
    seen.set_value();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ProcessGroupTest, RanksThatDoNotComeAreNamed) {
  const int port = free_port();
  std::string errors[2];
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      try {
        ProcessGroup::create(
            {.environment = place_of(rank, 5, port), .timeout = milliseconds(1000)});
      } catch (const Error& error) {
        errors[rank / 2] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(errors[0], HasSubstr("[rank 0 of 5] ranks 1, 3, 4 of 5 did not come within 1 s. Look "
                                   "whether they were started"));
  // Rank 0 may have given up, and its store with it, a moment before.
  EXPECT_THAT(errors[1], AnyOf(HasSubstr("[rank 2 of 5] ranks 1, 3, 4 of 5 did not come"),
                               HasSubstr("rank 0 at 127.0.0.1:")));
}

// In a process that goes on after the first try, which others have seen.
TEST(ProcessGroupTest, AGroupThatWasNotMadeMayBeTriedAgain) {
  const int port = free_port();
  const auto create = [&](int rank, milliseconds timeout) {
    return ProcessGroup::create({.environment = place_of(rank, 3, port), .timeout = timeout});
  };
  auto zero = std::async(std::launch::async, [&] { return create(0, seconds(20)); });
  EXPECT_ERROR(create(1, milliseconds(500)), "[rank 1 of 3] rank 2 of 3 did not come");
  auto one = std::async(std::launch::async, [&] { return create(1, seconds(20)); });
  auto two = std::async(std::launch::async, [&] { return create(2, seconds(20)); });
  EXPECT_EQ(zero.get()->rank() + one.get()->rank() + two.get()->rank(), 3);
}

TEST(ProcessGroupTest, ARankZeroThatCannotBeReachedIsNamed) {
  const int port = free_port();
  EXPECT_ERROR(
      ProcessGroup::create({.environment = place_of(1, 2, port), .timeout = milliseconds(300)}),
      "[rank 1 of 2] rank 0 could not be reached at 127.0.0.1:" + std::to_string(port) +
          " for 0.3 s: Connection refused. Look whether it was started");
  LaunchEnvironment elsewhere = place_of(1, 2, port);
  elsewhere.master_address = "no-such-host.invalid";
  EXPECT_ERROR(ProcessGroup::create({.environment = elsewhere, .timeout = milliseconds(300)}),
               "the name 'no-such-host.invalid' is not known");
}

// What listens at a port and is no rank: calls `serve` with each connection.
class ForeignService {
 public:
  explicit ForeignService(std::function<void(int fd)> serve)
      : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port_));
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    thread_ = std::thread([this, serve = std::move(serve)] {
      for (int fd; (fd = accept(fd_, nullptr, nullptr)) >= 0;) {
        connections_.push_back(fd);
        serve(fd);
      }
    });
  }
  ~ForeignService() {
    shutdown(fd_, SHUT_RDWR);  // ends accept()
    thread_.join();
    for (int fd : connections_) close(fd);
    close(fd_);
  }
  ForeignService(const ForeignService&) = delete;
  ForeignService& operator=(const ForeignService&) = delete;
  int port() const { return port_; }

 private:
  const int port_ = free_port();
  const int fd_;
  std::vector<int> connections_;
  std::thread thread_;
};

std::string error_of_joining(int port, milliseconds timeout) {
  try {
    ProcessGroup::create({.environment = place_of(1, 2, port), .timeout = timeout});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ProcessGroupTest, ASilentServiceAtThePortIsNamedAtTheTimeout) {
  const ForeignService service([](int) {});
  EXPECT_THAT(error_of_joining(service.port(), milliseconds(100)),
              AllOf(HasSubstr("[rank 1 of 2] rank 0 at"), HasSubstr("within 0.1 s"),
                    HasSubstr("it listens, but says nothing"), HasSubstr("MASTER_PORT")));
}

TEST(ProcessGroupTest, AServiceThatTalksIsQuoted) {
  const ForeignService service([](int fd) { send(fd, "SSH-2.0-x\r\n", 11, MSG_NOSIGNAL); });
  EXPECT_THAT(error_of_joining(service.port(), seconds(20)),
              AllOf(HasSubstr("does not answer as it should"), HasSubstr("SSH-2.0-x\\x0d\\x0a")));
}

TEST(ProcessGroupTest, AServiceThatResetsTheConnectionIsNamed) {
  const ForeignService service([](int fd) {
    char first = 0;
    recv(fd, &first, 1, 0);
    const linger reset{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    shutdown(fd, SHUT_RDWR);
  });
  EXPECT_THAT(error_of_joining(service.port(), seconds(20)),
              AllOf(HasSubstr("does not answer as it should"),
                    AnyOf(HasSubstr("closes the connection"), HasSubstr("reset by peer"))));
}

TEST(ProcessGroupTest, TwoJobsAtOnePortAreToldApart) {
  const auto errors = run_ranks(2, seconds(20), [](const auto& group) {
    group->barrier();
    if (group->rank() == 0) {
      EXPECT_ERROR(ProcessGroup::create(
                       {.environment = group->environment(), .timeout = milliseconds(1000)}),
                   "cannot listen at port");
    } else {
      EXPECT_ERROR(ProcessGroup::create(
                       {.environment = group->environment(), .timeout = milliseconds(1000)}),
                   "another process has come to 127.0.0.1");
    }
    group->barrier();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

}  // namespace
}  // namespace tensorpack
