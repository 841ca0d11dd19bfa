// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/owned_list.h"

struct Base {
  virtual ~Base() = default;
};
struct Derived : Base {};
struct Other {};

void give() {
  Derived derived;
  // error: Write std::move(object) to give it away
  tensorpack::detail::make_owned<Base>(derived);
  // error: Pass objects of classes derived from the base class
  tensorpack::detail::make_owned<Base>(Other());
  // error: Pass a std::unique_ptr to a class derived from the base class
  tensorpack::detail::make_owned<Base>(std::make_unique<Other>());
}
