// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/zmq_input.h"

#ifdef TENSORPACK_HAS_ZEROMQ
#include <gmock/gmock.h>

#include <thread>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/remote/zmq.h"
#include "tensorpack/input_source/staging_input.h"
#include "tensorpack/utils/fs.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

class ZMQInputTest : public testing::Test {
 protected:
  ~ZMQInputTest() override {
    if (sender_.joinable()) sender_.join();
  }

  std::string address() const { return "ipc://" + (dir_ / "socket").string(); }

  // One that does not wait for ever, should something be wrong.
  ZMQInput receiver() const { return ZMQInput({address()}, {.timeout_seconds = 20}); }

  // As another process would.
  void send(int64_t count, int64_t passes = 1) {
    sender_ = std::thread([=, address = address()] {
      const DataFlowPtr flow = numbers(count) | batch(2);
      send_dataflow_zmq(*flow, address, {.passes = passes});
    });
  }

  static int64_t first_of(InputSource& source) {
    return source.next().value().at(0)[0].item<int64_t>();
  }

  TempDir dir_;
  std::thread sender_;
};

TEST_F(ZMQInputTest, DeliversTheBatchesOfAnotherProcess) {
  ZMQInput source = receiver();
  send(6, /*passes=*/2);
  EXPECT_EQ(source.size(), std::nullopt) << "it has no passes";
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(source.position(), i);
    EXPECT_EQ(first_of(source), i % 3 * 2);
  }
  EXPECT_EQ(source.position(), 6);
}

// A resumed training goes on counting; what was sent before is gone.
TEST_F(ZMQInputTest, PositionsAreCountedButNotGoneBackTo) {
  ZMQInput source = receiver();
  send(8);
  EXPECT_EQ(first_of(source), 0);
  source.reset_state(100);
  EXPECT_EQ(source.position(), 100);
  EXPECT_EQ(first_of(source), 2);
  EXPECT_EQ(source.position(), 101);
  EXPECT_ERROR(source.reset_state(-1), "must not be negative, got -1");
  EXPECT_EQ(first_of(source), 4);
  EXPECT_EQ(first_of(source), 6);
}

TEST_F(ZMQInputTest, StoppedItGivesNothingUntilItIsResetAgain) {
  ZMQInput source = receiver();
  send(4);
  EXPECT_EQ(first_of(source), 0);
  source.stop();
  EXPECT_FALSE(source.next());
  EXPECT_EQ(source.position(), 1);
  source.reset_state(1);
  EXPECT_EQ(first_of(source), 2);
}

TEST_F(ZMQInputTest, WorksUnderAStagingInput) {
  StagingInput source(receiver());
  send(6);
  source.reset_state(10);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(first_of(source), 2 * i);
  EXPECT_EQ(source.position(), 13);
}

TEST_F(ZMQInputTest, SilenceIsAnErrorWhereThatIsAskedFor) {
  ZMQInput source({address()}, {.timeout_seconds = 0.05});
  EXPECT_ERROR(source.next(), address());
}

}  // namespace
}  // namespace tensorpack::test
#endif
