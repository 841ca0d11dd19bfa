// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/owned_list.h"

#include <gmock/gmock.h>

#include <string>
#include <type_traits>

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

class Animal {
 public:
  virtual ~Animal() = default;
  virtual std::string name() const = 0;
  virtual void rename(std::string) {}
};

class Dog final : public Animal {
 public:
  explicit Dog(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }
  void rename(std::string name) override { name_ = std::move(name); }

 private:
  std::string name_;
};

class Fish final : public Animal {
 public:
  Fish() = default;
  Fish(Fish&&) = default;  // can only be moved
  std::string name() const override { return "fish"; }
};

struct Zoo {
  OwnedList<Animal> animals = {};
  Owned<Animal> keeper = {};
};

std::vector<std::string> names(const OwnedList<Animal>& animals) {
  std::vector<std::string> result;
  for (const Animal& animal : animals) result.push_back(animal.name());
  return result;
}

static_assert(std::is_move_constructible_v<OwnedList<Animal>>);
static_assert(!std::is_copy_constructible_v<OwnedList<Animal>>);
static_assert(!std::is_copy_constructible_v<Owned<Animal>>);
static_assert(std::is_constructible_v<Owned<Animal>, Dog>);
static_assert(!std::is_constructible_v<Owned<Animal>, int>);
static_assert(!std::is_constructible_v<OwnedList<Animal>, int>);

TEST(OwnedListTest, KeepsTheOrderOfTheBraces) {
  Dog lvalue("b");
  const OwnedList<Animal> list{Dog("a"), std::move(lvalue), Fish(), std::make_unique<Dog>("c")};
  EXPECT_THAT(names(list), ElementsAre("a", "b", "fish", "c"));
  EXPECT_EQ(list.size(), 4u);
  EXPECT_EQ(list[2].name(), "fish");
}

TEST(OwnedListTest, ServesAsADesignatedField) {
  const Zoo zoo{.animals = {Dog("a"), Fish()}, .keeper = Dog("k")};
  EXPECT_THAT(names(zoo.animals), ElementsAre("a", "fish"));
  EXPECT_EQ(zoo.keeper->name(), "k");
  EXPECT_TRUE(Zoo{}.animals.empty());
}

TEST(OwnedListTest, MovingKeepsTheObjects) {
  OwnedList<Animal> list{Dog("a")};
  const Animal* object = &list[0];
  OwnedList<Animal> moved = std::move(list);
  EXPECT_EQ(&moved[0], object);
  OwnedList<Animal> braced{std::move(moved)};
  EXPECT_EQ(&braced[0], object);
}

TEST(OwnedListTest, AddReturnsTheObjectInTheList) {
  OwnedList<Animal> list;
  Dog& dog = list.add(Dog("a"));
  for (int i = 0; i < 10; ++i) list.add(std::make_unique<Fish>());
  dog.rename("z");
  EXPECT_EQ(list[0].name(), "z");
  EXPECT_EQ(list.size(), 11u);
}

TEST(OwnedListTest, IterationMayChangeTheObjects) {
  OwnedList<Animal> list{Dog("a"), Dog("b")};
  for (Animal& animal : list) animal.rename("x");
  EXPECT_THAT(names(list), ElementsAre("x", "x"));
}

TEST(OwnedListTest, AppendTakesAllOfTheOther) {
  OwnedList<Animal> list{Dog("a")}, other{Dog("b"), Dog("c")};
  list.append(std::move(other));
  EXPECT_THAT(names(list), ElementsAre("a", "b", "c"));
  EXPECT_TRUE(other.empty());  // NOLINT: the state after the move is part of the contract
}

TEST(OwnedListTest, NullIsRefused) {
  OwnedList<Animal> list;
  EXPECT_THAT([&] { list.add(std::unique_ptr<Dog>()); },
              ThrowsMessage<Error>(HasSubstr("an object of the list is null")));
}

TEST(OwnedListTest, TakesASingleOwner) {
  Owned<Animal> dog = Dog("a");
  const OwnedList<Animal> list{std::move(dog), Fish()};
  EXPECT_THAT(names(list), ElementsAre("a", "fish"));
}

TEST(OptionalListTest, IsAListOrNone) {
  struct Options {
    OptionalList<Animal> animals = {};
  };
  EXPECT_FALSE(Options{}.animals);
  const Options two{.animals = {Dog("a"), Fish()}};
  ASSERT_TRUE(two.animals);
  EXPECT_THAT(names(*two.animals), ElementsAre("a", "fish"));
  const Options one{.animals = {Dog("a")}};
  EXPECT_THAT(names(*one.animals), ElementsAre("a"));
  const Options empty{.animals = OwnedList<Animal>()};
  ASSERT_TRUE(empty.animals) << "a list of nothing is a list";
  EXPECT_TRUE((*empty.animals).empty());
}

TEST(OwnedTest, HoldsAValueAPointerOrNothing) {
  const Owned<Animal> value = Dog("a");
  const Owned<Animal> pointer = std::make_unique<Dog>("b");
  const Owned<Animal> nothing = nullptr;
  EXPECT_EQ((*value).name(), "a");
  EXPECT_EQ(pointer.get()->name(), "b");
  EXPECT_TRUE(pointer);
  EXPECT_FALSE(nothing);
}

TEST(OwnedTest, GivesItsObjectAway) {
  Owned<Animal> owned = Fish();
  const Animal* object = owned.get();
  const std::unique_ptr<Animal> pointer = std::move(owned);
  EXPECT_EQ(pointer.get(), object);
}

}  // namespace
}  // namespace tensorpack
