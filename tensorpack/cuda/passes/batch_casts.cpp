// SPDX-License-Identifier: Apache-2.0
// Note [Batching casts]
// Mixed precision casts every weight, and every gradient of one: hundreds of kernels that each take
// no longer than their launch. A cast may happen anywhere between the last write to what it reads
// and the first use of what it makes. Casts whose intervals have a point in common are made there,
// as one operator, which is one kernel: those of the weights before the first layer, those of the
// gradients before the update.
#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>

#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/graph/trace_editor.h"

namespace tensorpack::cuda {
namespace {

// A larger cast stays as it is and where it is: libtorch's kernel for one runs at the memory's
// speed (231 MB in 52 us on an H200, 4.4 TB/s), and elsewhere it may hold much memory for longer.
constexpr int64_t kLargestBytes = int64_t{16} << 20;

// What casts must share to become one operator.
using Kind = std::tuple<c10::DeviceIndex, at::ScalarType, at::ScalarType>;

struct Cast {
  int32_t node = -1;
  TraceEditor::Interval interval = {};
};

struct Batch {
  int32_t before = 0;  // the node it is made in front of
  std::vector<int32_t> nodes = {};
};

const Value& source_of(const Trace& trace, const Node& node) {
  return trace.values[node.arguments[0].ids[0]];
}

const Value& result_of(const Trace& trace, const Node& node) {
  return trace.values[node.results[0].ids[0]];
}

Kind kind_of(const Trace& trace, const Node& node) {
  const Value& source = source_of(trace, node);
  return {source.options.device().index(), source.options.dtype().toScalarType(),
          result_of(trace, node).options.dtype().toScalarType()};
}

// A small one that changes the type and nothing else.
bool is_cast(const Trace& trace, int32_t index, c10::DeviceType device) {
  const Node& node = trace.nodes[index];
  if (node.op.operator_name().name != "aten::_to_copy" || node.results[0].ids[0] == kNoValue) {
    return false;
  }
  const Value& source = source_of(trace, node);
  const Value& result = result_of(trace, node);
  return result.producer == index && source.storage_bytes >= 0 && result.storage_bytes >= 0 &&
         std::max(source.storage_bytes, result.storage_bytes) <= kLargestBytes &&
         source.options.device().type() == device &&
         source.options.device() == result.options.device() &&
         source.options.dtype() != result.options.dtype() && source.strides == result.strides;
}

std::vector<Cast> find_casts(const TraceEditor& editor, c10::DeviceType device) {
  std::unordered_set<int32_t> candidates;
  std::vector<Cast> casts;
  for (int32_t i = 0; i < editor.size(); ++i) {
    if (!is_cast(editor.trace(), i, device)) continue;
    // A cast of another one's result would have to follow it.
    if (candidates.contains(source_of(editor.trace(), editor.node(i)).producer)) continue;
    candidates.insert(i);
    casts.push_back({i, editor.interval_of({i})});
  }
  return casts;
}

// As few points as possible that meet every interval, of each kind.
std::vector<Batch> find_batches(const Trace& trace, std::vector<Cast> casts) {
  std::stable_sort(casts.begin(), casts.end(), [](const Cast& a, const Cast& b) {
    return a.interval.latest < b.interval.latest;
  });
  std::map<Kind, std::vector<Batch>> by_kind;
  for (const Cast& cast : casts) {
    std::vector<Batch>& batches = by_kind[kind_of(trace, trace.nodes[cast.node])];
    if (batches.empty() || batches.back().before < cast.interval.earliest) {
      batches.push_back({.before = cast.interval.latest});
    }
    batches.back().nodes.push_back(cast.node);
  }
  std::vector<Batch> found;
  for (auto& [kind, batches] : by_kind) {
    for (Batch& batch : batches) {
      if (batch.nodes.size() > 1) found.push_back(std::move(batch));
    }
  }
  return found;
}

Node node_of(const Trace& trace, const Batch& batch) {
  Node node{.op = cast_together_operator(), .keys = {}};
  Argument sources{.kind = Argument::Kind::kTensorList};
  Result results{.is_list = true};
  for (int32_t index : batch.nodes) {
    const Node& cast = trace.nodes[index];
    sources.ids.push_back(cast.arguments[0].ids[0]);
    results.ids.push_back(cast.results[0].ids[0]);
    node.reads.push_back(source_of(trace, cast).storage);
  }
  const auto dtype = std::get<2>(kind_of(trace, trace.nodes[batch.nodes[0]]));
  node.arguments = {std::move(sources), {.literal = static_cast<int64_t>(dtype)}};
  node.results = {std::move(results)};
  return node;
}

}  // namespace

void batch_casts(Trace& trace, c10::DeviceType device) {
  TraceEditor editor(trace);
  for (const Batch& batch : find_batches(trace, find_casts(editor, device))) {
    editor.insert(batch.before, node_of(trace, batch));
    for (int32_t node : batch.nodes) editor.remove(node);
  }
  editor.commit();
}

}  // namespace tensorpack::cuda
