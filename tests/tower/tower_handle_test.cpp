// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/tower_handle.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/tower/tower_context.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

class TowerHandleTest : public testing::Test {
 protected:
  TowerHandle handle(const std::string& name, bool is_training, const std::string& prefix = "") {
    const Op op = graph_.define({
        .name = name,
        .inputs = {{"x", {-1}}},
        .body = [&](const std::vector<at::Tensor>& in) -> NamedTensors {
          TowerContext tower(graph_, {.name = name, .variable_prefix = prefix});
          named("cost", (in[0] * get_variable("W", {})).sum());
          return tower.call().named_tensors();
        },
    });
    return {graph_, name, is_training, op, prefix};
  }

  Graph graph_;
};

TEST_F(TowerHandleTest, FindsTensorsInputsAndVariables) {
  const TowerHandle tower = handle("", true);
  EXPECT_EQ(tower["cost"].name, "cost");
  EXPECT_EQ(tower.get_tensor("x").op, tower.op());
  EXPECT_EQ(tower["W"].name, "W");
  EXPECT_EQ(tower.get_tensors({"cost", "x"}).size(), 2U);
  EXPECT_EQ(tower.get_variable("W").name, "W");
  EXPECT_ERROR(tower["cots"], "no tensor, input or variable named 'cots'. Did you mean 'cost'?");
  EXPECT_ERROR(tower.get_variable("V"), "no variable named 'V'");
}

TEST_F(TowerHandleTest, NamesNeverCarryTheTowersOwn) {
  const TowerHandle replica = handle("tower1", true, "tower1/");
  EXPECT_EQ(replica["W"].name, "tower1/W");
  EXPECT_EQ(replica.get_variable("W").name, "tower1/W");
  EXPECT_EQ(replica["cost"].name, "cost");
}

TEST_F(TowerHandleTest, HandlesAreFoundByIndexNameAndMode) {
  TowerHandles towers;
  EXPECT_TRUE(towers.empty());
  towers.add(handle("", true));
  towers.add(handle("InferenceTower", false));
  EXPECT_EQ(towers.training().size(), 1U);
  EXPECT_EQ(towers.inference()[0].name(), "InferenceTower");
  EXPECT_EQ(towers["InferenceTower"].name(), towers[1].name());
  EXPECT_TRUE(towers.contains(""));
  EXPECT_ERROR(towers[2], "tower 2 was asked for, there are 2");
  EXPECT_ERROR(towers["tower7"], "no tower named 'tower7'");
  EXPECT_ERROR(towers.add(handle("InferenceTower", false)),
               "there is already a tower named 'InferenceTower'");
}

}  // namespace
}  // namespace tensorpack
