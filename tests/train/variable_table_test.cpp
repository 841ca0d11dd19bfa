// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/variable_table.h"

#include <gmock/gmock.h>

#include "tensorpack/graph/call_scope.h"
#include "tests/support/capture.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;

TEST(VariableTableTest, ListsTrainableVariablesWithTheirSizes) {
  Graph graph;
  CallScope call(graph);
  get_variable("fc/W", {10, 4});
  get_variable("fc/b", {10});
  get_variable("mean", {1000}, {.role = VariableRole::kModel});
  EXPECT_EQ(variable_table(graph),
            "name  shape     #elements\n"
            "fc/W  [10, 4]          40\n"
            "fc/b  [10]             10\n"
            "Number of trainable variables: 2; elements: 50; size: 200 B");
}

TEST(VariableTableTest, ShowsTypesWhenTheyDiffer) {
  Graph graph;
  CallScope call(graph);
  get_variable("a", {1});
  get_variable("b", {1}, {.dtype = at::kDouble});
  EXPECT_THAT(variable_table(graph), HasSubstr("a     [1]             1  Float\n"
                                               "b     [1]             1  Double\n"));
}

TEST(VariableTableTest, NothingToTrainIsSaidButNoWarning) {
  Graph graph;
  EXPECT_THAT(stdout_of([&] { log_variables(graph); }),
              testing::AllOf(HasSubstr("The graph has no trainable variables."),
                             testing::Not(HasSubstr("WRN"))));
}

}  // namespace
}  // namespace tensorpack
