// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/trace_change.h"

#include <ATen/ATen.h>
#include <c10/util/FunctionRef.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>
#include <vector>

#include "tensorpack/graph/captured_tensor.h"
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/tensor_key.h"
#include "tensorpack/session/comparison.h"
#include "tensorpack/session/difference.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

using Kind = TraceChange::Kind;

constexpr int kFewDigits = 6;
constexpr int kAllDigits = 17;

std::string text_of(const c10::IValue& value, int digits) {
  std::ostringstream stream;
  stream.precision(digits);
  stream << value;
  return stream.str();
}

// "was 1 when recorded and is 2 now", in as many digits as it takes.
std::string was_and_is(const c10::IValue& before, const c10::IValue& now) {
  constexpr size_t kLongest = 60;
  const bool is_seen = text_of(before, kFewDigits) != text_of(now, kFewDigits);
  const auto text = [&](const c10::IValue& value) {
    return text_of(value, is_seen ? kFewDigits : kAllDigits).substr(0, kLongest);
  };
  return fmt::format("was {} when recorded and is {} now", text(before), text(now));
}

bool have_same_type(const at::Tensor& a, const at::Tensor& b) {
  return a.layout() == b.layout() && a.scalar_type() == b.scalar_type() &&
         a.device() == b.device() && a.sizes() == b.sizes();
}

// Walks through two traces at once. Values have other numbers in them where one has more variables
// or constants, so that it notes which stand for each other.
class TraceComparison {
 public:
  TraceComparison(const Trace& before, const Trace& now)
      : before_(before), now_(now), partner_(before.values.size(), kNoValue) {}

  TraceChange run() {
    const size_t count = std::min(before_.nodes.size(), now_.nodes.size());
    for (index_ = 0; index_ < count && !is_decided(); ++index_) compare_nodes();
    if (!is_decided() && before_.nodes.size() != now_.nodes.size()) {
      change_ = {Kind::kOperators,
                 fmt::format("the function ran {} when recorded and {} now",
                             counted(std::ssize(before_.nodes), "operator"), now_.nodes.size())};
    }
    if (!is_decided()) compare_outputs();
    if (change_.kind == Kind::kOperators) change_.where += gradients_that_changed();
    return change_;
  }

 private:
  using Name = c10::function_ref<std::string()>;  // of an argument, for messages

  bool is_decided() const { return change_.kind >= Kind::kOperators; }
  const Node& node() const { return before_.nodes[index_]; }
  const Node& node_now() const { return now_.nodes[index_]; }

  // The worst one, and of equals the first.
  void note(Kind kind, const std::string& what) {
    if (change_.kind >= kind) return;
    change_ = {kind, place_of(node(), index_) + ": " + what};
  }

  void compare_nodes() {
    if (node().op.operator_name() != node_now().op.operator_name()) {
      return note(Kind::kOperators, "the function now calls " + node_now().op_name() + " instead");
    }
    if (node().grad_mode != node_now().grad_mode) {
      return note(Kind::kOperators, node().grad_mode ? "gradients are switched off now"
                                                     : "gradients are switched on now");
    }
    if (node().generator != node_now().generator) {
      return note(Kind::kNumbers, "it draws from another generator now");
    }
    for (size_t i = 0; i < node().arguments.size() && !is_decided(); ++i) compare_arguments(i);
    for (size_t i = 0; i < node().results.size() && !is_decided(); ++i) {
      pair_all(node().results[i].ids, node_now().results[i].ids,
               [] { return std::string("its result"); });
    }
  }

  void compare_arguments(size_t i) {
    const Argument& before = node().arguments[i];
    const Argument& now = node_now().arguments[i];
    const auto name = [&] {
      return "its argument '" + node().op.schema().arguments()[i].name() + "'";
    };
    if (before.kind != now.kind) return note(Kind::kOperators, name() + " is of another kind now");
    if (before.kind != Argument::Kind::kLiteral) return pair_all(before.ids, now.ids, name);
    if (!is_same_literal(before.literal, now.literal)) {
      note(Kind::kNumbers, name() + " " + was_and_is(before.literal, now.literal));
    }
  }

  void pair_all(const std::vector<ValueId>& before, const std::vector<ValueId>& now, Name name) {
    if (before.size() != now.size()) {
      return note(Kind::kOperators, fmt::format("{} were {} tensors when recorded and are {} now",
                                                name(), before.size(), now.size()));
    }
    for (size_t i = 0; i < before.size() && !is_decided(); ++i) pair(before[i], now[i], name);
  }

  void pair(ValueId before, ValueId now, Name name) {
    if (before == kNoValue || now == kNoValue) {
      if (before != now) note(Kind::kOperators, name() + " is undefined in one of the two");
      return;
    }
    ValueId& partner = partner_[static_cast<size_t>(before)];
    if (partner == now) return;
    if (partner != kNoValue) return note(Kind::kOperators, name() + " is another tensor now");
    partner = now;
    compare_values(before_.values[static_cast<size_t>(before)],
                   now_.values[static_cast<size_t>(now)], name);
  }

  void compare_values(const Value& before, const Value& now, Name name) {
    if (before.kind != now.kind || before.name != now.name) {
      return note(Kind::kOperators, name() + " is another tensor now");
    }
    if (before.kind == ValueKind::kConstant) compare_constants(before, now, name);
  }

  void compare_constants(const Value& before, const Value& now, Name name) {
    if (is_same_memory(before.tensor, now.tensor)) return;
    if (!have_same_type(before.tensor, now.tensor)) {
      return note(
          Kind::kOperators,
          fmt::format("{} was a tensor of shape [{}] and type {} when recorded, now of [{}] "
                      "and {}",
                      name(), fmt::join(before.sizes, ", "),
                      c10::toString(before.tensor.scalar_type()), fmt::join(now.sizes, ", "),
                      c10::toString(now.tensor.scalar_type())));
    }
    const bool is_captured = before.varies || now.varies;
    if (have_same_bits(before.tensor, now.tensor)) {
      if (is_captured) note(Kind::kMemory, name() + " is another tensor now");
    } else if (is_captured) {
      note(Kind::kNumbers, name() + " is a captured tensor that was replaced by another one");
    } else if (before.tensor.numel() == 1 && before.tensor.layout() == at::kStrided) {
      const Kind kind = is_wrapped_number(before.tensor) ? Kind::kNumbers : Kind::kContents;
      note(kind, name() + " " + was_and_is(before.tensor.item(), now.tensor.item()));
    } else {
      note(Kind::kContents, name() +
                                ", which the function fills on the host, holds other numbers "
                                "than when it was recorded");
    }
  }

  void compare_outputs() {
    for (const auto& [name, id] : before_.outputs) {
      const auto found = now_.outputs.find(name);
      if (found == now_.outputs.end()) {
        change_ = {Kind::kOperators, "the function does not name the tensor '" + name + "' now"};
        return;
      }
      const ValueId partner = partner_[static_cast<size_t>(id)];
      if (partner == found->second) continue;
      const Value& before = before_.values[static_cast<size_t>(id)];
      const Value& now = now_.values[static_cast<size_t>(found->second)];
      // An input, a variable or a constant that no operator reads.
      const bool may_be_same = partner == kNoValue && before.producer < 0 && now.producer < 0 &&
                               before.kind == now.kind && before.name == now.name;
      if (may_be_same &&
          (before.kind != ValueKind::kConstant || is_same_memory(before.tensor, now.tensor) ||
           have_same_bits(before.tensor, now.tensor))) {
        continue;
      }
      change_ = {may_be_same ? Kind::kContents : Kind::kOperators,
                 "the tensor '" + name + "' is another one now"};
      if (!may_be_same) return;
    }
  }

  // Usually the reason why autograd calls other operators.
  std::string gradients_that_changed() const {
    for (const Value& value : before_.values) {
      if (value.kind != ValueKind::kVariable) continue;
      const auto now =
          std::find_if(now_.values.begin(), now_.values.end(), [&](const Value& other) {
            return other.kind == ValueKind::kVariable && other.name == value.name;
          });
      if (now == now_.values.end() || now->requires_grad == value.requires_grad) continue;
      return fmt::format("; the variable '{}' {} gradients when recorded and {} now", value.name,
                         value.requires_grad ? "required" : "required no",
                         value.requires_grad ? "does not" : "does");
    }
    return "";
  }

  const Trace& before_;
  const Trace& now_;
  std::vector<ValueId> partner_;  // of each value before
  size_t index_ = 0;              // of the node
  TraceChange change_;
};

Trace without_dead_code(Trace trace) {
  std::vector<std::string> outputs;
  for (const auto& [name, id] : trace.outputs) outputs.push_back(name);
  eliminate_dead_code(trace, outputs);
  return trace;
}

}  // namespace

TraceChange change_between(const Trace& before, const Trace& now) {
  const TraceChange change = TraceComparison(before, now).run();
  if (change.kind == Kind::kNone) return change;
  return TraceComparison(without_dead_code(before), without_dead_code(now)).run();
}

}  // namespace tensorpack
