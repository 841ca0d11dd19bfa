// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/op.h"

#include <algorithm>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/results_on_host.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

Op Op::host(std::string name, std::function<void()> function) {
  TP_CHECK(function != nullptr, "Op::host", "op '{}' has no function. Pass a callable.", name);
  return Op(std::make_shared<State>(
      State{.kind = State::Kind::kHost, .name = std::move(name), .function = std::move(function)}));
}

Op Op::group(std::string name, std::vector<Op> members) {
  return make_group({.kind = State::Kind::kGroup, .name = std::move(name)}, std::move(members));
}

Op Op::parallel(std::string name, std::vector<Op> members,
                std::shared_ptr<ExchangeGroup> exchange) {
  for (const Op& member : members) {
    TP_CHECK(!member || member.state().kind == State::Kind::kProgram, "Op::parallel",
             "'{}', a member of '{}', is not a recorded function. Pass ops made by define().",
             member.name(), name);
  }
  return make_group(
      {.kind = State::Kind::kParallel, .name = std::move(name), .exchange = std::move(exchange)},
      std::move(members));
}

Op Op::make_group(State state, std::vector<Op> members) {
  for (const Op& member : members) {
    TP_CHECK(static_cast<bool>(member), "Op::group", "a member of '{}' is empty. Define it first.",
             state.name);
    state.outputs.insert(member.outputs().begin(), member.outputs().end());
  }
  state.members = std::move(members);
  return Op(std::make_shared<State>(std::move(state)));
}

Op Op::nothing() {
  static const Op op = Op::host("nothing", [] {});
  return op;
}

const std::string& Op::name() const {
  static const std::string empty = "(empty op)";
  return state_ ? state_->name : empty;
}

c10::Device Op::device() const {
  TP_ASSERT(state_ != nullptr);
  return state_->device;
}

const std::vector<TensorSpec>& Op::inputs() const {
  TP_ASSERT(state_ != nullptr);
  return state_->inputs;
}

const std::map<std::string, TensorSpec>& Op::outputs() const {
  TP_ASSERT(state_ != nullptr);
  return state_->outputs;
}

NamedTensors Op::run_body(const std::vector<at::Tensor>& inputs,
                          const std::vector<std::string>& fetches) const {
  std::set<std::string> names = state_->looked_up;
  names.insert(fetches.begin(), fetches.end());
  const KeptLayerOutputs kept(std::move(names));
  return ResultsOnHostScope::run([&] { return state_->body(inputs); }, state_->device);
}

bool Op::has_output(const std::string& name) const { return outputs().contains(name); }

bool Op::has_input(const std::string& name) const {
  const auto& specs = inputs();
  const auto& members = state_->members;
  return std::any_of(specs.begin(), specs.end(),
                     [&](const TensorSpec& spec) { return spec.name == name; }) ||
         std::any_of(members.begin(), members.end(),
                     [&](const Op& member) { return member.has_input(name); });
}

std::optional<TensorSpec> Op::find_tensor(const std::string& name) const {
  for (const Op& member : state_->members) {
    if (auto found = member.find_tensor(name)) return found;
  }
  for (const TensorSpec& spec : inputs()) {
    if (spec.name == name) return spec;
  }
  const auto found = outputs().find(name);
  return found == outputs().end() ? std::nullopt : std::optional<TensorSpec>(found->second);
}

}  // namespace tensorpack
