// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/kept_copies.h"

#include <torch/library.h>

#include <exception>
#include <unordered_set>

#include "tensorpack/utils/count_write.h"
#include "tensorpack/utils/find_operator.h"
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

}  // namespace

c10::OperatorHandle make_copies_operator() { return find_operator("tensorpack::make_copies_"); }

KeptCopies::KeptCopies(Trace& trace) : written_(written_variables(trace)) {
  std::vector<char> makes(trace.nodes.size()), others(trace.nodes.size());
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const Node& node = trace.nodes[i];
    makes[i] = makes_copies(node);
    others[i] = !makes[i];
    if (!makes[i]) continue;
    for (ValueId id : node.arguments[1].ids) copied_.push_back(trace.values[id].tensor);
  }
  if (copied_.empty()) return;
  Trace making = trace;
  making.inputs.clear();
  making.outputs.clear();
  making.erase_nodes(others);
  trace.erase_nodes(makes);
  making_ = std::make_unique<Program>(making, std::vector<std::string>());
}

std::vector<int64_t> KeptCopies::versions() const {
  std::vector<int64_t> versions;
  versions.reserve(copied_.size());
  for (const at::Tensor& variable : copied_) versions.push_back(variable._version());
  return versions;
}

// Asked for before the copies are made: who writes meanwhile, on another thread, is noticed in the
// next run.
KeptCopies::Run::Run(KeptCopies& copies)
    : copies_(copies), versions_(copies.versions()), exceptions_(std::uncaught_exceptions()) {
  const bool are_stale = versions_ != copies.versions_;
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
