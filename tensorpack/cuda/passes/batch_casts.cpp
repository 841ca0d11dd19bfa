// SPDX-License-Identifier: Apache-2.0
// Note [Batching casts]
// Mixed precision casts every weight, and every gradient of one: hundreds of kernels that each take
// no longer than their launch. A cast may happen anywhere between the last write to what it reads
// and the first use of what it makes. Casts whose intervals have a point in common are made there,
// as one operator, which is one kernel: those of the weights before the first layer, those of the
// gradients before the update. What was put together of other tensors before the cast, as the
// weights of queries, keys and values are, is put together by the cast.
#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>

#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/graph/patterns.h"

namespace tensorpack::cuda {
namespace {

// A larger cast stays as it is and where it is: libtorch's kernel for one runs at the memory's
// speed (231 MB in 52 us on an H200, 4.4 TB/s), and elsewhere it may hold much memory for longer.
constexpr int64_t kLargestBytes = int64_t{16} << 20;

// What casts must share to become one operator.
using Kind = std::tuple<c10::DeviceIndex, at::ScalarType, at::ScalarType>;

struct Cast {
  int32_t node = -1;
  int32_t cat = -1;  // the node that makes what is cast, if it becomes part of the cast
  TraceEditor::Interval interval = {};

  std::vector<int32_t> nodes() const {
    return cat < 0 ? std::vector<int32_t>{node} : std::vector<int32_t>{cat, node};
  }
};

struct Batch {
  int32_t before = 0;  // the node it is made in front of
  std::vector<Cast> casts = {};
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

// The node that puts together, row by row, what a cast reads and nobody else does; else -1.
int32_t find_cat(const TraceEditor& editor, const Node& cast) {
  const ValueId source = cast.arguments[0].ids[0];
  const Value& made = editor.value(source);
  const Node* node = editor.producer(source);
  if (node == nullptr || !is_op(*node, "aten::cat") || !is_number(*node, 1, 0) ||
      !editor.is_private(source) || editor.readers(source).size() != 1) {
    return -1;
  }
  const std::vector<ValueId>& parts = node->arguments[0].ids;
  const bool are_rows = std::all_of(parts.begin(), parts.end(), [&](ValueId id) {
    const Value& part = editor.value(id);
    return is_contiguous(part) && part.sizes.size() == made.sizes.size() &&
           part.options.dtype() == made.options.dtype() &&
           part.options.device() == made.options.device();
  });
  return are_rows ? made.producer : -1;
}

std::vector<Cast> find_casts(const TraceEditor& editor, c10::DeviceType device) {
  std::unordered_set<int32_t> candidates;
  std::vector<Cast> casts;
  // A cast of another one's result would have to follow it.
  const auto reads_a_cast = [&](int32_t node) {
    const std::vector<ValueId>& read = editor.node(node).arguments[0].ids;
    return std::any_of(read.begin(), read.end(),
                       [&](ValueId id) { return candidates.contains(editor.value(id).producer); });
  };
  for (int32_t i = 0; i < editor.size(); ++i) {
    if (!is_cast(editor.trace(), i, device) || reads_a_cast(i)) continue;
    Cast cast{.node = i, .cat = find_cat(editor, editor.node(i))};
    if (cast.cat >= 0 && reads_a_cast(cast.cat)) cast.cat = -1;
    cast.interval = editor.interval_of(cast.nodes());
    candidates.insert(i);
    casts.push_back(cast);
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
    batches.back().casts.push_back(cast);
  }
  std::vector<Batch> found;
  for (auto& [kind, batches] : by_kind) {
    for (Batch& batch : batches) {
      if (batch.casts.size() > 1 || batch.casts[0].cat >= 0) found.push_back(std::move(batch));
    }
  }
  return found;
}

Node node_of(const Trace& trace, const Batch& batch) {
  Node node{.op = cast_together_operator(), .keys = {}};
  Argument sources{.kind = Argument::Kind::kTensorList};
  std::vector<int64_t> parts;
  Result results{.is_list = true};
  for (const Cast& cast : batch.casts) {
    const int32_t first = cast.nodes().front();
    const std::vector<ValueId>& read = trace.nodes[first].arguments[0].ids;
    for (ValueId id : read) {
      sources.ids.push_back(id);
      node.reads.push_back(trace.values[id].storage);
    }
    parts.push_back(static_cast<int64_t>(read.size()));
    results.ids.push_back(trace.nodes[cast.node].results[0].ids[0]);
  }
  const auto dtype = std::get<2>(kind_of(trace, trace.nodes[batch.casts[0].node]));
  node.arguments = {std::move(sources), literal_argument(static_cast<int64_t>(dtype)),
                    literal_argument(std::move(parts))};
  node.results = {std::move(results)};
  return node;
}

}  // namespace

void batch_casts(Trace& trace, c10::DeviceType device) {
  TraceEditor editor(trace);
  for (const Batch& batch : find_batches(trace, find_casts(editor, device))) {
    editor.insert(batch.before, node_of(trace, batch));
    for (const Cast& cast : batch.casts) {
      for (int32_t node : cast.nodes()) editor.remove(node);
    }
  }
  editor.commit();
}

}  // namespace tensorpack::cuda
