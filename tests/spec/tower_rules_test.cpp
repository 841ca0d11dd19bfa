// SPDX-License-Identifier: Apache-2.0
// The table of rules in the tutorial on the tower function says what the library does: whoever
// breaks a rule gets the message that stands in its row.
#include <gmock/gmock.h>

#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/tower/collection.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/tower/tower_variable.h"
#include "tensorpack/train/multi_gpu_trainers.h"
#include "tensorpack/train/single_cost_trainer.h"
#include "tests/support/capture.h"
#include "tests/train/linear_model.h"

namespace tensorpack {
namespace {

// The beginning of the message of every rule that has one; ` ... ` stands for anything.
std::map<std::string, std::string> messages_of_the_tutorial() {
  std::ifstream page(TENSORPACK_SOURCE_DIR "/docs/tutorial/tower-function.md");
  std::map<std::string, std::string> messages;
  const std::regex row(R"(\| (.+) \| .+ \| `([^`]+)`[^|]*\|)");
  std::smatch cells;
  std::string line;
  while (std::getline(page, line) && line != "## What cannot be recorded") {
    if (std::regex_match(line, cells, row)) messages[cells[1]] = cells[2];
  }
  return messages;
}

// Whether `text` has the parts of `message`, one after the other.
bool says(const std::string& text, const std::string& message) {
  const std::string dots = " ... ";
  size_t from = 0;
  for (size_t begin = 0; begin <= message.size();) {
    const size_t end = std::min(message.find(dots, begin), message.size());
    const size_t found = text.find(message.substr(begin, end - begin), from);
    if (found == std::string::npos) return false;
    from = found + (end - begin);
    begin = end + dots.size();
  }
  return true;
}

void train(TowerFunc cost, std::vector<TensorSpec> inputs = linear_inputs(),
           FromList data = linear_data()) {
  SimpleTrainer trainer;
  trainer.setup_graph(std::move(inputs), FeedInput(std::move(data)), std::move(cost),
                      SGD({.lr = 0.1}));
  trainer.train({.steps_per_epoch = 1, .max_epoch = 1});
}

void predict(TowerFunc cost) {
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), std::move(cost), SGD());
  trainer.get_predictor({"x"}, {"prediction"});
}

// `extra` beside a model that keeps every rule.
TowerFunc with(std::function<void(const at::Tensor& x)> extra) {
  return [extra = std::move(extra)](const at::Tensor& x, const at::Tensor& y) {
    extra(x);
    return linear_cost(x, y);
  };
}

void call_with_state() {
  train([calls = 0](const at::Tensor& x, const at::Tensor& y) mutable {
    return linear_cost(x * ++calls, y);
  });
}

// Changes a number after every step.
class Double final : public Callback {
 public:
  explicit Double(std::shared_ptr<double> number) : number_(std::move(number)) {}
  void trigger_step() override { *number_ *= 2; }

 private:
  std::shared_ptr<double> number_;
};

void change_a_captured_number() {
  auto scale = std::make_shared<double>(1);
  SimpleTrainer trainer;
  trainer.setup_graph(
      linear_inputs(), FeedInput(linear_data()),
      [scale](const at::Tensor& x, const at::Tensor& y) { return linear_cost(x * *scale, y); },
      SGD({.lr = 0.1}));
  trainer.train({.callbacks = {Double(scale)}, .steps_per_epoch = 4, .max_epoch = 1});
}

void share_a_towers_variable() {
  predict(with([](const at::Tensor&) { get_tower_variable("count", {}); }));
}

void predict_with_a_local_variable() {
  predict(
      with([](const at::Tensor&) { get_variable("scale", {}, {.role = VariableRole::kLocal}); }));
}

void train_what_is_no_variable() {
  const at::Tensor a = at::ones({2}).requires_grad_();
  const at::Tensor b = at::ones({2}).requires_grad_();
  train([&](const at::Tensor& x, const at::Tensor& y) { return linear_cost(x * a * b, y); });
}

void train_a_module_that_is_not_adopted() {
  const at::Tensor parameter = at::ones({}).requires_grad_();
  train([&](const at::Tensor& x, const at::Tensor& y) {
    return (x * parameter - y).square().mean();
  });
}

void differentiate_the_cost() {
  train([](const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor cost = linear_cost(x, y);
    cost.backward();
    return cost;
  });
}

// As torch::optim does it.
void train_beside_the_graph() {
  const std::vector<at::Tensor> parameters = {at::ones({2}).requires_grad_(),
                                              at::ones({2}).requires_grad_()};
  train(with([&](const at::Tensor& x) {
    (x * parameters[0] * parameters[1]).sum().backward();
    for (const at::Tensor& parameter : parameters) {
      parameter.data().sub_(parameter.grad(), 0.1);
      parameter.mutable_grad().reset();
    }
  }));
}

// As torch::optim::SGD does it, which has no state that could give it away.
void train_a_variable_twice() {
  train([](const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor w = get_variable("w", {});
    const at::Tensor cost = named("cost", (x * w - y).square().mean());
    cost.backward({}, /*retain_graph=*/true);
    w.data().sub_(w.grad(), 0.1);
    w.mutable_grad().reset();
    return cost;
  });
}

void name_by_tower() {
  SyncMultiGPUTrainerParameterServer trainer(Devices::cpu(2));
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), with([](const at::Tensor&) {
                        const VariableScope scope("fc");
                        get_variable(TowerContext::current()->index() == 0 ? "V" : "W", {});
                      }),
                      SGD({.lr = 0.1}));
}

void use_a_name_twice() {
  train(with([](const at::Tensor&) {
    const VariableScope scope("fc");
    get_variable("W", {});
    get_variable("W", {});
  }));
}

void change_a_shape() {
  train(with([rows = 2](const at::Tensor&) mutable { get_variable("W", {rows++, 3}); }));
}

void use_the_reserved_word() {
  train(with([](const at::Tensor&) { const VariableScope scope("tower1"); }));
}

void size_a_variable_by_an_open_dimension() {
  train(
      [](const at::Tensor& x) {
        return named("cost", x.matmul(get_variable("W", {x.size(1), 1})).sum());
      },
      {{"x", {-1, -1}}}, FromList({{at::ones({4, 5})}}));
}

void make_a_variable_late() {
  train(with([calls = 0](const at::Tensor&) mutable {
    if (++calls > 1) get_variable("W", {});
  }));
}

void read_a_value() {
  train(with([](const at::Tensor& x) {
    const VariableScope scope("fc");
    (void)x.sum().item<float>();
  }));
}

void make_a_shape_of_data() {
  train(with([](const at::Tensor& x) { (void)x.nonzero(); }));
}

void take_too_few_tensors() {
  train([](const at::Tensor& x) { return x.sum(); });
}

void give_data_of_another_shape() {
  train(linear_cost, linear_inputs(), FromList({{at::ones({2, 3}), at::ones({2, 3})}}));
}

void collect_what_has_no_name() {
  train(with([](const at::Tensor& x) { add_to_collection("outputs", x + 1); }));
}

// What the library says to it, in the log or by an Error.
std::string answer_to(const std::function<void()>& offence) {
  std::string error;
  std::string log = stdout_of([&] {
    try {
      offence();
    } catch (const Error& e) {
      error = e.what();
    }
  });
  return error.empty() ? log : error;
}

TEST(TowerRulesTest, WhoBreaksARuleIsToldWhatTheTutorialSays) {
  const std::vector<std::pair<std::string, std::function<void()>>> offences = {
      {"It may be called several times", call_with_state},
      {"What it reads on the host stays", change_a_captured_number},
      {"State that towers must not share", share_a_towers_variable},
      {"Only what gradients train is trainable", predict_with_a_local_variable},
      {"Everything that requires gradients", train_what_is_no_variable},
      {"Modules of `torch::nn` come in", train_a_module_that_is_not_adopted},
      {"The cost is returned", differentiate_the_cost},
      {"Variables are trained by optimizers", train_beside_the_graph},
      {"A variable is trained by one optimizer", train_a_variable_twice},
      {"Names follow from scopes", name_by_tower},
      {"A name is used once", use_a_name_twice},
      {"A variable is asked for with the shape", change_a_shape},
      {"No scope or variable is called", use_the_reserved_word},
      {"What sizes a variable", size_a_variable_by_an_open_dimension},
      {"Variables are made while", make_a_variable_late},
      {"Values of tensors", read_a_value},
      {"Shapes do not depend", make_a_shape_of_data},
      {"It takes one tensor", take_too_few_tensors},
      {"The data fits", give_data_of_another_shape},
      {"What is collected", collect_what_has_no_name},
  };
  std::map<std::string, std::string> messages = messages_of_the_tutorial();
  EXPECT_EQ(messages.size(), offences.size()) << "every row with a message is tried, and no other";
  for (const auto& [rule, offence] : offences) {
    const auto row = messages.lower_bound(rule);
    ASSERT_TRUE(row != messages.end() && row->first.starts_with(rule)) << rule;
    const std::string answer = answer_to(offence);
    EXPECT_TRUE(says(answer, row->second))
        << rule << "\nthe tutorial: " << row->second << "\nthe library:  " << answer;
  }
}

}  // namespace
}  // namespace tensorpack
