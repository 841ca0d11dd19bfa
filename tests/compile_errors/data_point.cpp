// SPDX-License-Identifier: Apache-2.0
// What gives a value another meaning has a name.
#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/session/fetched_values.h"
#include "tensorpack/utils/owned_list.h"

using Tensors = std::vector<at::Tensor>;

struct Base {
  virtual ~Base() = default;
};

static_assert(!std::is_convertible_v<tensorpack::DataPoint&, Tensors&>);
static_assert(!std::is_convertible_v<tensorpack::DataPoint, Tensors>);
static_assert(!std::is_convertible_v<tensorpack::FetchedValues, const Tensors&>);
static_assert(!std::is_convertible_v<tensorpack::Owned<Base>, std::shared_ptr<Base>>);

void convert(tensorpack::DataPoint point, tensorpack::FetchedValues values,
             tensorpack::Owned<Base> owned) {
  const Tensors& named = point.components();
  const Tensors& arrived = values.get();
  std::shared_ptr<Base> shared = std::move(owned).share();
  (void)named, (void)arrived, (void)shared;
  // error: tensorpack::DataPoint
  Tensors& unchecked = point;
}
