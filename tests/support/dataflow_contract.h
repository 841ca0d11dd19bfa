// SPDX-License-Identifier: Apache-2.0
// What every dataflow promises, as checks that take a way to make one.
#pragma once

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack::test {

/// Makes equal flows: same parameters, same seed.
using MakeDataFlow = std::function<DataFlowPtr()>;

/// Up to `limit` datapoints from where the flow stands; an endless flow needs the limit.
inline std::vector<DataPoint> collect(DataFlow& flow, int64_t limit = 200) {
  std::vector<DataPoint> points;
  while (std::ssize(points) < limit) {
    auto point = flow.next();
    if (!point) break;
    points.push_back(std::move(*point));
  }
  return points;
}

/// Same shapes, types and values.
inline bool same(const DataPoint& a, const DataPoint& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() && at::equal(x, y);
  });
}

inline bool same(const std::vector<DataPoint>& a, const std::vector<DataPoint>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return same(x, y); });
}

/// Every pass can be had again, in any order, from any position.
inline void expect_passes_repeat(const MakeDataFlow& make) {
  const auto flow = make();
  const auto fresh = collect(*flow);
  ASSERT_FALSE(fresh.empty()) << "a contract needs data to look at";

  flow->start(1);
  const auto second = collect(*flow);
  flow->start(0);
  EXPECT_TRUE(same(collect(*flow), fresh)) << "construction does not stand at pass 0";
  flow->start(1);
  EXPECT_TRUE(same(collect(*flow), second)) << "start(1) twice gave two different passes";

  const auto other = make();
  other->start(1);
  EXPECT_TRUE(same(collect(*other), second)) << "pass 1 depends on pass 0 having been read";
}

/// start() in the middle of a pass forgets the rest of it.
inline void expect_restarts_in_mid_pass(const MakeDataFlow& make) {
  const auto flow = make();
  const auto whole = collect(*flow);
  flow->start(1);
  flow->next();
  flow->start(0);
  EXPECT_TRUE(same(collect(*flow), whole));
}

/// size() is what a pass yields, before, during and after it; the end stays the end.
inline void expect_true_size(const MakeDataFlow& make) {
  const auto flow = make();
  const auto size = flow->size();
  const auto points = collect(*flow, size.value_or(200) + 1);
  if (size) {
    EXPECT_EQ(std::ssize(points), *size);
    EXPECT_EQ(flow->size(), size);
  }
  if (std::ssize(points) <= size.value_or(200)) {
    EXPECT_FALSE(flow->next()) << "next() after the end of the pass yielded something";
    EXPECT_FALSE(flow->next());
  }
}

/// skip() leads where as many calls of next() lead, also across the end, and says how many it
/// passed over.
inline void expect_skips_as_if_read(const MakeDataFlow& make) {
  for (const int64_t before : {0, 1, 4}) {
    for (const int64_t count : {0, 1, 2, 3, 5, 9, 65, 130, 700}) {
      const auto reading = make();
      const auto skipping = make();
      for (DataFlow* flow : {reading.get(), skipping.get()}) {
        flow->start(1);
        collect(*flow, before);
      }
      EXPECT_EQ(skipping->skip(count), std::ssize(collect(*reading, count)));
      EXPECT_TRUE(same(collect(*skipping), collect(*reading)))
          << "after " << before << " datapoints, " << count << " skipped";
      EXPECT_EQ(skipping->skip(1), reading->skip(1)) << "at the end, or 200 later";
      EXPECT_TRUE(same(collect(*skipping, 2), collect(*reading, 2)));
    }
  }
}

/// Can be destroyed untouched, and in the middle of a pass (the sanitizers are the judges).
inline void expect_destroyed_cleanly(const MakeDataFlow& make) {
  make();
  const auto flow = make();
  flow->next();
}

/// A flow held by value can be moved in the middle of a pass and goes on.
template <std::derived_from<DataFlow> Flow>
void expect_movable(Flow flow) {
  const auto whole = collect(flow);
  flow.start(0);
  flow.next();
  Flow moved = std::move(flow);
  auto rest = collect(moved);
  ASSERT_EQ(rest.size() + 1, whole.size());
  EXPECT_TRUE(same(rest.front(), whole[1]));
  EXPECT_TRUE(same(rest.back(), whole.back()));
}

/// All of it, for flows whose size is known.
inline void expect_keeps_the_contract(const MakeDataFlow& make) {
  expect_passes_repeat(make);
  expect_restarts_in_mid_pass(make);
  expect_true_size(make);
  expect_skips_as_if_read(make);
  expect_destroyed_cleanly(make);
}

}  // namespace tensorpack::test
