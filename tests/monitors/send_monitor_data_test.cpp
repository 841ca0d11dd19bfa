// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/send_monitor_data.h"

#include <gmock/gmock.h>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/capture.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(SendMonitorDataTest, RunsTheCommandOnceAllValuesAreNew) {
  const TempDir dir;
  const auto file = dir / "sent";
  SendMonitorData monitor("echo {cost} {error} >> " + file.string(), {"cost", "error"});
  monitor.process_scalar("cost", 0.5, {});
  monitor.trigger_step({});
  EXPECT_FALSE(std::filesystem::exists(file)) << "error is missing";
  monitor.process_scalar("other", 9, {});
  monitor.process_scalar("error", 0.25, {});
  monitor.trigger_epoch({});
  monitor.trigger_epoch({});
  EXPECT_EQ(read_file(file), "0.5 0.25\n");
}

TEST(SendMonitorDataTest, ACommandThatFailsIsAnErrorInTheLog) {
  SendMonitorData monitor("exit 3", {"cost"});
  monitor.process_scalar("cost", 0.5, {});
  EXPECT_THAT(stdout_of([&] { monitor.trigger_step({}); }),
              HasSubstr("the command 'exit 3' failed"));
}

TEST(SendMonitorDataTest, RefusesANameThatIsNotInTheList) {
  EXPECT_THAT([] { SendMonitorData("echo {costs}", {"cost"}); },
              ThrowsMessage<Error>(HasSubstr("Did you mean 'cost'?")));
  EXPECT_THROW(SendMonitorData("echo", {}), Error);
}

}  // namespace
}  // namespace tensorpack
