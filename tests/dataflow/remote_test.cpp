// SPDX-License-Identifier: Apache-2.0
// Datapoints from another socket. ZeroMQ makes no difference between threads and processes.
#include "tensorpack/dataflow/remote/zmq.h"

#ifdef TENSORPACK_HAS_ZEROMQ
#include <gmock/gmock.h>
#include <pthread.h>
#include <zmq.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <thread>

#include "tensorpack/dataflow/format/serialize.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/stop_flag.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/capture.h"
#include "tests/support/leftovers.h"

namespace tensorpack::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

// Sends on a thread, which ends with it.
class Sender {
 public:
  Sender(DataFlowPtr flow, std::string address, SendZmqOptions options = {})
      : thread_(
            [this, flow = std::shared_ptr(std::move(flow)), address = std::move(address), options] {
              const StopScope scope(stopping_);
              try {
                send_dataflow_zmq(*flow, address, options);
              } catch (const Error& error) {
                error_ = error.what();
              } catch (...) {  // it is told to end while it waits for the flow
              }
            }) {}
  ~Sender() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }

  std::string error() {
    thread_.join();
    return error_;
  }

 private:
  std::atomic<bool> stopping_ = false;
  std::string error_;
  std::thread thread_;
};

class RemoteTest : public testing::Test {
 protected:
  std::string address() const { return "ipc://" + (dir_ / "socket").string(); }
  // A receiver that does not wait for ever, should something be wrong.
  RemoteDataZMQ receiver(ZmqOptions zmq = {}) const {
    return RemoteDataZMQ({address()}, {.zmq = std::move(zmq), .timeout_seconds = 20});
  }

  TempDir dir_;
};

TEST_F(RemoteTest, WhatIsSentArrivesInOrderPassAfterPass) {
  auto flow = receiver();
  Sender sender(numbers(3) | map([](DataPoint p) {
                  return DataPoint{p[0], bytes("text")};
                }),
                address());
  EXPECT_THAT(values(flow, 7), ElementsAre(0, 1, 2, 0, 1, 2, 0));
  EXPECT_EQ(bytes_view(flow.next()->at(1)), "text");
}

TEST_F(RemoteTest, ASenderWaitsForASlowReceiver) {
  std::atomic<int64_t> made = 0;
  auto flow = receiver({.high_water_mark = 2});
  Sender sender(numbers(100000) | map([&](DataPoint) {
                  ++made;
                  return DataPoint{torch::zeros({1 << 18})};  // more than the kernel's buffers hold
                }),
                address(), {.zmq = {.high_water_mark = 2}});
  flow.next();
  int64_t before = -1;
  while (made != before) {  // until it does not go on
    before = made;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_LT(before, 30);
  for (int64_t i = 0; i < 30; ++i) flow.next();
  EXPECT_GT(made, before);
}

TEST_F(RemoteTest, EitherSideMayBeStartedAgain) {
  auto flow = std::make_unique<RemoteDataZMQ>(receiver());
  {
    Sender first(numbers(2) | map([](DataPoint p) { return p; }), address(), {.passes = 1});
    EXPECT_THAT(values(*flow, 2), ElementsAre(0, 1));
  }
  Sender second(numbers(5) | map([](DataPoint p) { return DataPoint{p[0] + 10}; }), address());
  EXPECT_GE(values(*flow, 1)[0], 10);
  flow.reset();
  flow = std::make_unique<RemoteDataZMQ>(receiver());
  EXPECT_GE(values(*flow, 1)[0], 10) << "the sender found the new receiver";
}

TEST_F(RemoteTest, DifferentDatapointsAreAnError) {
  auto flow = receiver();
  Sender sender(FromList({{torch::ones({2})}, {torch::ones({3})}, {torch::ones({2, 2})}}) |
                    map([](DataPoint p) { return p; }),
                address());
  flow.next();
  EXPECT_TRUE(flow.next()) << "sizes may differ";
  EXPECT_THAT([&] { flow.next(); },
              ThrowsMessage<Error>(AllOf(HasSubstr("{Float in 2 dimensions}"),
                                         HasSubstr("the first one was {Float in 1 dimension}"))));
}

TEST_F(RemoteTest, BytesThatAreNoDatapointAreLeftOutWithAWarning) {
  auto flow = receiver();
  void* context = zmq_ctx_new();
  void* stranger = zmq_socket(context, ZMQ_PUSH);
  ASSERT_EQ(zmq_connect(stranger, address().c_str()), 0);
  std::mt19937 random(1);
  std::vector<std::string> messages = {"GET / HTTP/1.1\r\n", "", "TPDP"};
  const std::string whole = serialize({number(1)});
  messages.push_back(whole.substr(0, whole.size() - 1));
  for (int i = 0; i < 40; ++i) {
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    messages.push_back(bytes);
  }
  for (const std::string& message : messages) {
    ASSERT_EQ(zmq_send(stranger, message.data(), message.size(), 0), message.size());
  }
  ASSERT_EQ(zmq_send(stranger, whole.data(), whole.size(), 0), whole.size());
  const std::string text = stdout_of([&] { EXPECT_THAT(values(flow, 1), ElementsAre(1)); });
  EXPECT_THAT(text, AllOf(HasSubstr("message of 16 bytes"), HasSubstr("GET / HTTP/1.1\\x0d\\x0a"),
                          HasSubstr("32 like it"), Not(HasSubstr("31 like it"))));
  zmq_close(stranger);
  zmq_ctx_term(context);
}

TEST_F(RemoteTest, BytesThatAreNoDatapointsDoNotEndTheWait) {
  RemoteDataZMQ flow({address()}, {.timeout_seconds = 0.2});
  void* context = zmq_ctx_new();
  void* stranger = zmq_socket(context, ZMQ_PUSH);
  ASSERT_EQ(zmq_connect(stranger, address().c_str()), 0);
  ASSERT_EQ(zmq_send(stranger, "x", 1, 0), 1);
  EXPECT_THAT([&] { stdout_of([&] { flow.next(); }); },
              ThrowsMessage<Error>(HasSubstr("nothing came to")));
  zmq_close(stranger);
  zmq_ctx_term(context);
}

TEST_F(RemoteTest, TooLargeDatapointsAreRefusedAtTheSender) {
  Sender sender(FromList({{torch::ones({1000})}}) | prefetch(1), address(),
                {.zmq = {.max_bytes = 1000}});
  EXPECT_THAT(sender.error(), HasSubstr("takes 4032 bytes, more than the 1000 allowed"));
}

TEST_F(RemoteTest, EncryptedDataNeedsTheRightKeys) {
  write_curve_keys(dir_ / "receiver");
  write_curve_keys(dir_ / "sender");
  write_curve_keys(dir_ / "other");
  EXPECT_EQ(std::filesystem::status(dir_ / "receiver.secret").permissions() &
                (std::filesystem::perms::group_all | std::filesystem::perms::others_all),
            std::filesystem::perms::none);
  const auto keys = [&](const std::string& own, const std::string& peer) {
    return ZmqOptions{.curve = CurveKeys{.secret_key_file = dir_ / (own + ".secret"),
                                         .peer_public_key_file = dir_ / (peer + ".public")}};
  };
  auto flow = receiver(keys("receiver", "sender"));
  Sender stranger(FromList({{number(-1)}}) | prefetch(1), address(),
                  {.zmq = keys("other", "other")});
  Sender plain(FromList({{number(-2)}}) | prefetch(1), address());
  Sender friendly(numbers(3) | prefetch(1), address(), {.zmq = keys("sender", "receiver")});
  EXPECT_THAT(values(flow, 6), ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST_F(RemoteTest, OpenAddressesNeedKeys) {
  EXPECT_THAT(
      [] { RemoteDataZMQ({"tcp://*:5999"}); },
      ThrowsMessage<Error>(AllOf(HasSubstr("anybody on the network"), HasSubstr("127.0.0.1"))));
  EXPECT_THAT([] { RemoteDataZMQ({"nonsense://x"}, {.zmq = {.allow_unencrypted = true}}); },
              ThrowsMessage<Error>(HasSubstr("cannot bind 'nonsense://x'")));
}

TEST_F(RemoteTest, SilenceIsAnErrorAfterTheTimeAsked) {
  RemoteDataZMQ flow({address()}, {.timeout_seconds = 0.05});
  EXPECT_THAT([&] { flow.next(); }, ThrowsMessage<Error>(HasSubstr("nothing came to")));
}

TEST_F(RemoteTest, ASignalDoesNotEndTheWaitWithAnError) {
  const auto old_handler = std::signal(SIGUSR2, [](int) {});
  auto flow = receiver();
  std::thread consumer([&] { EXPECT_NO_THROW(flow.next()); });
  for (int i = 0; i < 20; ++i) {
    pthread_kill(consumer.native_handle(), SIGUSR2);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Sender sender(numbers(1) | prefetch(1), address());
  consumer.join();
  std::signal(SIGUSR2, old_handler);
}

TEST_F(RemoteTest, ManySendersAndReceiversLeaveNothingBehind) {
  const Leftovers leftovers;
  for (int i = 0; i < 10; ++i) {
    auto flow = receiver();
    Sender sender(numbers(3) | prefetch(1), address());
    EXPECT_THAT(values(flow, 1), ElementsAre(0));
  }
  leftovers.expect_none();
}

TEST_F(RemoteTest, AThreadThatWaitsForNobodyCanBeEnded) {
  const auto flow =
      RemoteDataZMQ({address()}) | prefetch(2) | map([](DataPoint p) { return p; }) | prefetch(2);
  std::thread consumer([&] {
    std::atomic<bool> stopping = true;
    const StopScope scope(stopping);
    try {
      flow->next();
    } catch (...) {  // it is told to end
    }
  });
  consumer.join();
}

}  // namespace
}  // namespace tensorpack::test
#endif
