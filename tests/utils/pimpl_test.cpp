// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/detail/pimpl.h"

#include <gtest/gtest.h>

#include <memory>
#include <type_traits>

namespace tensorpack::detail {
namespace {

struct Counted {
  explicit Counted(int& alive) : alive(alive) { ++alive; }
  ~Counted() { --alive; }
  Counted(const Counted&) = delete;
  int& alive;
};

static_assert(!std::is_copy_constructible_v<Pimpl<Counted>>);
static_assert(std::is_nothrow_move_constructible_v<Pimpl<Counted>>);

TEST(PimplTest, DestroysWhatItOwnsOnce) {
  int first = 0;
  int second = 0;
  {
    Pimpl<Counted> owner = std::make_unique<Counted>(first);
    Pimpl<Counted> other(new Counted(second));
    EXPECT_EQ(&owner->alive, &first);
    owner = std::move(other);
    EXPECT_EQ(first, 0) << "what it owned before";
    EXPECT_EQ(&(*owner).alive, &second);
    EXPECT_FALSE(other);  // NOLINT(bugprone-use-after-move)
    Pimpl<Counted>& itself = owner;
    owner = std::move(itself);
    EXPECT_EQ(second, 1) << "kept by an assignment to itself";
    const Pimpl<Counted> last = std::move(owner);
    EXPECT_TRUE(owner == nullptr);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(last.get(), &*last);
  }
  EXPECT_EQ(second, 0);
}

TEST(PimplTest, ResetDestroysAndLeavesNothing) {
  int alive = 0;
  Pimpl<Counted> owner = std::make_unique<Counted>(alive);
  owner.reset();
  EXPECT_EQ(alive, 0);
  EXPECT_TRUE(owner == nullptr);
  owner = nullptr;
  EXPECT_FALSE(owner);
}

}  // namespace
}  // namespace tensorpack::detail
