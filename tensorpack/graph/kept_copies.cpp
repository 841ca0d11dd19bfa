// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/kept_copies.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <exception>
#include <unordered_set>
#include <utility>

#include "tensorpack/utils/count_write.h"
#include "tensorpack/utils/find_operator.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/torch_compat.h"

namespace tensorpack {
namespace {

bool makes_copies(const Node& node) {
  return node.op.operator_name().name == "tensorpack::make_copies_";
}

// Also those that are written through views.
std::vector<at::Tensor> written_variables(const Trace& trace) {
  std::unordered_set<StorageId> written;
  for (const Node& node : trace.nodes) written.insert(node.writes.begin(), node.writes.end());
  std::vector<at::Tensor> variables;
  for (const Value& value : trace.values) {
    if (value.kind == ValueKind::kVariable && written.contains(value.storage)) {
      variables.push_back(value.tensor);
    }
  }
  return variables;
}

// Or both not a number.
bool is_same(const at::Tensor& a, const at::Tensor& b) {
  return a.eq(b).logical_or_(a.isnan().logical_and_(b.isnan())).all().item<bool>();
}

}  // namespace

c10::OperatorHandle make_copies_operator() { return find_operator("tensorpack::make_copies_"); }

KeptCopies::KeptCopies(Trace& trace) : written_(written_variables(trace)) {
  std::vector<char> makes(trace.nodes.size()), others(trace.nodes.size());
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const Node& node = trace.nodes[i];
    makes[i] = makes_copies(node);
    others[i] = !makes[i];
    if (!makes[i]) continue;
    const std::vector<ValueId>& copies = node.arguments[0].ids;
    const std::vector<ValueId>& variables = node.arguments[1].ids;
    for (size_t k = 0; k < copies.size(); ++k) {
      copies_.push_back({trace.values[copies[k]].tensor, trace.values[variables[k]].tensor});
    }
  }
  if (copies_.empty()) return;
  Trace making = trace;
  making.inputs.clear();
  making.outputs.clear();
  making.erase_nodes(others);
  trace.erase_nodes(makes);
  making_ = std::make_unique<Program>(making, std::vector<std::string>());
}

std::vector<int64_t> KeptCopies::versions() const {
  std::vector<int64_t> versions;
  versions.reserve(copies_.size());
  for (const Copy& copy : copies_) versions.push_back(copy.variable._version());
  return versions;
}

bool KeptCopies::are_stale(const std::vector<int64_t>& versions) {
  if (versions != versions_) return true;
  if (!are_left_right_) {
    are_left_right_ = are_right();
    if (!*are_left_right_) {
      logging::warning(
          "Copies of weights that an update wrote are not those of its variables. From now on they "
          "are made before every step, which takes longer. With "
          "SessionOptions::keep_weight_copies, write "
          "variables by operators, not through data() or a pointer, and not on several threads at "
          "once; if nobody does so, please report it.");
    }
  }
  return !*are_left_right_;
}

bool KeptCopies::are_right() const {
  return std::all_of(copies_.begin(), copies_.end(), [](const Copy& copy) {
    return is_same(copy.variable.detach().to(copy.tensor.scalar_type()), copy.tensor);
  });
}

// Asked for before the copies are made: who writes meanwhile, on another thread, is noticed in the
// next run.
KeptCopies::Run::Run(KeptCopies& copies)
    : copies_(copies), versions_(copies.versions()), exceptions_(std::uncaught_exceptions()) {
  const bool are_stale = copies.are_stale(versions_);
  copies.versions_.clear();
  if (are_stale) copies.making_->run({});
  for (int64_t& version : versions_) ++version;
}

KeptCopies::Run::~Run() {
  for (const at::Tensor& variable : copies_.written_) count_write(variable);
  if (std::uncaught_exceptions() == exceptions_) copies_.versions_ = std::move(versions_);
}

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def("make_copies_(Tensor(a!)[] copies, Tensor[] variables) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("make_copies_", [](at::TensorList copies, at::TensorList variables) {
    copy_together(copies, variables);
  });
}

}  // namespace tensorpack
