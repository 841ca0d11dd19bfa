// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/trainer.h"

#include <chrono>
#include <csignal>

#include "tensorpack/callbacks/merge_all_summaries.h"
#include "tensorpack/callbacks/progress_bar.h"
#include "tensorpack/callbacks/run_monitors.h"
#include "tensorpack/callbacks/step_counter.h"
#include "tensorpack/callbacks/stop_at_nan.h"
#include "tensorpack/monitors/json_writer.h"
#include "tensorpack/monitors/report.h"
#include "tensorpack/monitors/scalar_printer.h"
#include "tensorpack/monitors/tf_event_writer.h"
#include "tensorpack/parallel/agreement.h"
#include "tensorpack/parallel/graph_lines.h"
#include "tensorpack/parallel/rank_state.h"
#include "tensorpack/parallel/variable_sync.h"
#include "tensorpack/predict/online_predictor.h"
#include "tensorpack/train/graph_fingerprint.h"
#include "tensorpack/train/variable_table.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/error_context.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/seed.h"
#include "tensorpack/utils/shared_machine.h"
#include "tensorpack/utils/signals.h"
#include "tensorpack/utils/startup.h"
#include "tensorpack/utils/stop_flag.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {
namespace {

void check_loop(const TrainOptions& options) {
  TP_CHECK(options.steps_per_epoch.has_value(), "train",
           "steps_per_epoch is not set. It is the period of callbacks; the size of the data set is "
           "a good choice.");
  TP_CHECK(*options.steps_per_epoch >= 0 && options.max_epoch >= 0 && options.starting_step >= 0,
           "train",
           "steps_per_epoch {}, max_epoch {} and starting_step {} must not be negative. Use 0 or "
           "more.",
           *options.steps_per_epoch, options.max_epoch, options.starting_step);
  TP_CHECK(options.starting_epoch >= 1, "train",
           "starting_epoch is {}, but epochs are counted from 1. Use 1, the default, to begin, and "
           "n + 1 to go on after epoch n.",
           options.starting_epoch);
}

// By which signal the wait for the data of the next step ends. A process alone stops at once;
// others if all agree to, which they do not when one has begun the step. Then its data is waited
// for.
class WaitForData {
 public:
  WaitForData(ProcessGroup* processes, int64_t steps_made)
      : processes_(processes), steps_made_(steps_made) {}

  int signal_to_give_up(bool is_half_made) {
    const int pending = pending_signal();
    if (processes_ == nullptr) return pending;
    if (!is_half_made) {
      if (pending != 0) processes_->share_signal(pending);
      if (const int agreed = processes_->agreed_signal(steps_made_)) return agreed;
    }
    if (pending != 0 && !std::exchange(has_told_, true)) {
      logging::info("After a signal: waiting up to {} s for the data of step {}, which is begun.",
                    kPatience.count(), steps_made_ + 1);
    }
    return patience_.signal_when_over();
  }

 private:
  // The others wait for longer than that, and schedulers longer still.
  static constexpr std::chrono::seconds kPatience{20};

  ProcessGroup* processes_;
  int64_t steps_made_;
  bool has_told_ = false;
  PatienceAfterSignal patience_{kPatience};
};

// Under which checkpoints have the seed that the data follows from.
constexpr const char* kSeed = "seed";

bool stops_at_nan(OwnedList<Callback>& callbacks) {
  return std::any_of(callbacks.begin(), callbacks.end(), [](const Callback& callback) {
    const std::string name = callback.name();  // also of one in a proxy
    return name.find("StopAtNaN") != std::string::npos ||
           name.find("CheckNumerics") != std::string::npos;
  });
}

// A list of one's own is taken as it is, but it is easy to forget a default callback.
void tell_without_stop_at_nan(TrainOptions& options) {
  if (stops_at_nan(options.callbacks) || stops_at_nan(*options.extra_callbacks)) return;
  logging::warning(
      "StopAtNaN is not among the callbacks: .extra_callbacks replaces the default ones. If the "
      "cost becomes NaN or Inf, training goes on, and its exit status is 0. Add StopAtNaN() to end "
      "it with an error, or StopAtNaN({{.stops = false}}) to log the step only.");
}

// Tells the other processes why this one takes no more part.
void leave(ProcessGroup& processes, const std::exception_ptr& failure) {
  try {
    if (failure) std::rethrow_exception(failure);
    processes.leave("its training has ended.");
  } catch (const EndOfData&) {
    processes.leave("its data has ended. Give all processes the same amount, as shard() does.");
  } catch (const StopTraining& stop) {
    processes.stop(stop.what());
  } catch (const std::exception& error) {
    processes.leave(describe(error));
  } catch (...) {
    processes.leave("it failed.");
  }
}

}  // namespace

OwnedList<Callback> default_callbacks() {
  return {StopAtNaN(), ProgressBar(), MergeAllSummaries()};
}

OwnedList<MonitorBase> default_monitors() {
  return {TFEventWriter(), JSONWriter(), ScalarPrinter(), Report()};
}

Trainer::Trainer(std::shared_ptr<Graph> graph) {
  TP_CHECK(graph != nullptr, "Trainer", "the graph is null. Pass one, or nothing.");
  tune_process();
  graph_ = std::move(graph);
}

Trainer::Trainer(GraphOptions options) : Trainer(std::make_shared<Graph>(options)) {}

Trainer::~Trainer() = default;

void Trainer::set_processes(std::shared_ptr<ProcessGroup> processes) {
  TP_CHECK(called_.empty(), "Trainer",
           "it is too late to have other processes take part: callbacks were set up.");
  if (processes == nullptr || processes->size() == 1) return;
  processes_ = std::move(processes);
  is_chief_ = processes_->is_chief();
  logging::info("This is rank {} of {} processes, started by {}.", processes_->rank(),
                processes_->size(), processes_->environment().launcher);
}

// A run_step() of its own may report anything.
OnlinePredictor Trainer::get_predictor(std::vector<std::string> /*input_names*/,
                                       std::vector<std::string> output_names,
                                       std::optional<c10::Device> /*device*/) {
  throw make_error("get_predictor",
                   "there is no predictor of '{}': this trainer has no tower function. Use a "
                   "TowerTrainer, or an OfflinePredictor.",
                   join(output_names));
}

ReportedScalars Trainer::reported_scalars() const {
  ReportedScalars scalars = callbacks_.reports();
  if (!train_op_) scalars.are_all = false;
  return scalars;
}

void Trainer::run_step() {
  TP_CHECK(static_cast<bool>(train_op_), "run_step",
           "the trainer does not know what a step is. Call set_train_op(), or override "
           "run_step().");
  hooked_sess().run(train_op_);
}

bool Trainer::register_callback(Owned<Callback> callback) {
  TP_CHECK(static_cast<bool>(callback), "register_callback", "the callback is null.");
  TP_CHECK(!called_.contains("setup_callbacks"), "register_callback",
           "{} comes too late: callbacks are registered before setup_callbacks(). Pass it in the "
           "list of callbacks.",
           callback->name());
  if (!is_chief_ && callback->chief_only()) {
    logging::info("{} runs in the chief process alone; skipped here.", callback->name());
    return false;
  }
  callbacks_.all().add(std::unique_ptr<Callback>(std::move(callback)));
  return true;
}

void Trainer::call_once(const char* method) {
  TP_CHECK(called_.insert(method).second, "Trainer",
           "{}() was called twice. A trainer trains once: make another one.", method);
}

void Trainer::call_after(const char* earlier, const char* method) const {
  TP_CHECK(called_.contains(earlier), "Trainer",
           "{0}() was called before {1}(). Call {1}() first, or train(), which calls all.", method,
           earlier);
}

void Trainer::train(TrainOptions options) {
  check_loop(options);
  OwnedList<Callback> callbacks = std::move(options.callbacks);
  if (options.extra_callbacks) callbacks.append(std::move(*options.extra_callbacks));
  setup_callbacks(std::move(callbacks),
                  options.monitors ? std::move(*options.monitors) : OwnedList<MonitorBase>());
  initialize(options.session, std::move(options.session_init));
  main_loop(options);
}

void Trainer::train_with_defaults(TrainOptions options) {
  if (options.extra_callbacks) {
    if (!graph_->variables().trainable().empty()) tell_without_stop_at_nan(options);
  } else {
    options.extra_callbacks = default_callbacks();
  }
  if (!options.monitors) options.monitors = default_monitors();
  train(std::move(options));
}

void Trainer::setup_callbacks(OwnedList<Callback> callbacks, OwnedList<MonitorBase> monitors) {
  TP_CHECK(!called_.contains("setup_callbacks"), "Trainer",
           "setup_callbacks() was called twice. A trainer trains once: make another one.");
  setup();
  log_variables(*graph_);
  register_callback(MaintainStepCounter());
  for (std::unique_ptr<Callback>& callback : callbacks.release()) {
    register_callback(std::move(callback));
  }
  register_callback(RunMonitors());
  call_once("setup_callbacks");
  model_variables_ = graph_->variables().size();
  // What the others would write, the chief writes.
  if (!is_chief_) monitors = OwnedList<MonitorBase>();
  monitors_ =
      std::make_unique<Monitors>(std::move(monitors), loop_, processes_ ? processes_->rank() : 0);
  callbacks_.setup_graph(*this);
}

void Trainer::initialize(SessionOptions options, Owned<SessionInit> init) {
  call_after("setup_callbacks", "initialize");
  call_once("initialize");
  open_session(options);
  initialize_hooks();
  if (processes_) check_same_graph();
  if (is_chief_ && init) saved_program_ = init->saved_program();
  if (saved_program_) want_fingerprint();
  if (is_chief_ && wants_fingerprint_) begin_fingerprint();
  restore(init.get());
  graph_->finalize();
}

void Trainer::restore(SessionInit* init) {
  std::optional<StateTexts> states;
  if (init != nullptr && is_chief_) {
    init->init(*graph_);
    states = init->callback_states();
  } else if (init != nullptr) {
    logging::info("Variables are restored in the chief process alone.");
  }
  if (processes_) {
    broadcast_variables(*graph_, model_variables_, *processes_);
    states = share_of_chief(states.value_or(StateTexts()), *processes_);
    if (states->empty()) states.reset();
    if (states && !is_chief_) {
      restore_generators_of_rank(*graph_, *states, processes_->rank());
    }
  }
  settle_seed(states);
  if (states) callbacks_.load_states(*states, /*has_all=*/is_chief_);
}

// The checkpoint's, else the chief's: what stands before shard() must come in the same order in all
// ranks, and in the order that was begun with. One process alone that has no checkpoint draws when
// it is asked, if it is.
void Trainer::settle_seed(const std::optional<StateTexts>& saved) {
  seed_ = TrainingSeed();
  const bool is_saved = saved && saved->contains(kSeed);
  const std::optional<uint64_t> own = seed_.value();
  if (!is_saved && processes_ == nullptr) {
    if (own) seed_.settle(*own);  // whatever is set later
    return;
  }
  const std::optional<uint64_t> seed =
      is_saved ? parse_seed(saved->at(kSeed)) : seed_of_chief(*processes_);
  TP_CHECK(seed, "restore",
           "the seed '{}' in the checkpoint is no number. The file is damaged: use another one.",
           saved->at(kSeed));
  if (own && *own != *seed) {
    logging::info(
        "The data comes in the order of seed {}, {}, and not of {}, that of this process.", *seed,
        is_saved ? "the checkpoint's" : "the chief's", *own);
  }
  seed_.settle(*seed);
}

std::map<std::string, std::string> Trainer::callback_states() const {
  std::map<std::string, std::string> states = callbacks_.save_states();
  if (const auto seed = seed_.value()) states.emplace(kSeed, std::to_string(*seed));
  return states;
}

void Trainer::check_same_graph() {
  const std::string advice =
      "Every process must build the same model: do not let it depend on the rank.";
  check_agreement(*processes_, "variables", describe_variables(*graph_, model_variables_), advice);
  std::vector<std::string> lines;
  for (const Op& op : graph_->ops()) {
    const bool is_trained = static_cast<bool>(op.state().feeder);
    if (!is_trained) continue;
    for (std::string& line : describe_nodes(op, sess().trace(op))) lines.push_back(std::move(line));
  }
  check_agreement(*processes_, "operators", lines, advice);
}

// The chief may have found a checkpoint to go on from, which the others need not see.
void Trainer::agree_on_loop() {
  check_agreement(*processes_, "settings",
                  {fmt::format("steps_per_epoch = {}", loop_.steps_per_epoch),
                   fmt::format("max_epoch = {}", loop_.max_epoch)},
                  "Set .steps_per_epoch and .max_epoch to the same values in all processes; where "
                  "they follow from the amount of data, give all processes the same amount.");
  const StateTexts start = share_of_chief({{"epoch", std::to_string(loop_.starting_epoch)},
                                           {"step", std::to_string(loop_.starting_step)}},
                                          *processes_);
  loop_.starting_epoch = *parse_integer(start.at("epoch"));
  loop_.starting_step = *parse_integer(start.at("step"));
}

// To be called before anything is restored: the seed and what the tower function looks at, such as
// an ObjAttrParam, are those of the program.
void Trainer::begin_fingerprint() {
  FingerprintPart settings;
  for (const auto& [name, value] : hyper_params()) {
    settings.lines.push_back(fmt::format("{} = {}", name, value));
  }
  // One that is drawn is another one in every process.
  const std::optional<uint64_t> of_graph = graph_->options().seed;
  const std::optional<uint64_t> seed = of_graph ? of_graph : user_seed();
  settings.lines.push_back("seed = " + (seed ? std::to_string(*seed) : "drawn"));
  fingerprint_.parts = fingerprint_of_graph(*graph_, sess(), model_variables_);
  fingerprint_.parts.insert(fingerprint_.parts.begin(), std::move(settings));
}

// Behind the settings and before the graph: what comes first explains the rest.
void Trainer::complete_fingerprint() {
  // Of the same data, more ranks make fewer steps.
  std::vector<FingerprintPart> parts = {
      {.name = "loop",
       .lines = {fmt::format("steps_per_epoch = {}", loop_.steps_per_epoch)},
       .under = counted(processes_ ? processes_->size() : 1, "rank")}};
  for (const auto& more : {callbacks_.fingerprints(), data_fingerprint()}) {
    parts.insert(parts.end(), more.begin(), more.end());
  }
  fingerprint_.parts.insert(fingerprint_.parts.begin() + 1, parts.begin(), parts.end());
}

void Trainer::compare_with_saved_program() const {
  const auto& [checkpoint, fingerprint, must_be_same] = *saved_program_;
  if (fingerprint.empty()) {
    logging::info("'{}' does not say which program saved it: what has changed is not noticed.",
                  checkpoint);
    return;
  }
  std::vector<std::string> changes = differences(fingerprint, fingerprint_);
  if (changes.empty()) return;
  constexpr size_t kMost = 9;  // below one line that says what they are
  if (changes.size() > kMost) {
    const size_t others = changes.size() - (kMost - 1);
    changes.resize(kMost - 1);
    changes.push_back(fmt::format("and {}", counted(static_cast<int64_t>(others), "more change")));
  }
  const std::string list = join(changes, "\n  ");
  TP_CHECK(!must_be_same, "AutoResumeTrainConfig",
           "this is not the program that saved '{}':\n  {}\n  Resume with that program, or go on "
           "with this one without .same_program.",
           checkpoint, list);
  logging::warning(
      "The program has changed since it saved '{}'. Variables, such as a learning rate, go on as "
      "saved.\n  {}",
      checkpoint, list);
}

void Trainer::initialize_hooks() {
  call_once("initialize_hooks");
  hooked_sess_ = std::make_unique<HookedSession>(sess(), callbacks_.hooks());
}

void Trainer::main_loop(const TrainOptions& options) {
  call_after("initialize", "main_loop");
  call_once("main_loop");
  check_loop(options);
  const SeedScope seed_scope(seed_);
  loop_.steps_per_epoch = *options.steps_per_epoch;
  loop_.starting_epoch = options.starting_epoch;
  loop_.starting_step = options.starting_step;
  loop_.max_epoch = options.max_epoch;
  const auto stored_step = [&] {
    const auto lock = graph_->lock_variables();
    return graph_->global_step().tensor.item<int64_t>();
  };
  loop_.global_step = stored_step();
  if (processes_) {
    processes_->set_step(loop_.global_step);  // before any rank can be in a step
    agree_on_loop();
  }
  loop_.epoch_num = loop_.starting_epoch - 1;
  loop_.local_step = -1;

  SignalWatch signals;
  std::exception_ptr failure;
  std::exception_ptr end;  // what ended the loop early, without being a failure
  try {
    if (is_chief_ && wants_fingerprint_) complete_fingerprint();
    if (saved_program_) compare_with_saved_program();
    callbacks_.before_train();
    loop_.global_step = stored_step();  // callbacks may have changed it
    run_epochs(signals);
  } catch (const StopTraining& stop) {
    logging::info("Training was stopped: {}", stop.what());
    end = std::current_exception();
  } catch (const Interrupted& interrupted) {
    logging::warning("Training was {} at global_step = {}.", interrupted.what(), loop_.global_step);
    failure = std::current_exception();
  } catch (const std::exception& error) {
    const std::string place = fmt::format("at global_step = {}", loop_.global_step);
    logging::error("Training failed: {}\n  {}", describe(error), place);
    failure = with_context(std::current_exception(), place);
  } catch (...) {
    logging::error("Training failed at global_step = {}.", loop_.global_step);
    failure = std::current_exception();
  }
  const std::exception_ptr late_failure = callbacks_.after_train();
  if (!failure) failure = late_failure;
  if (processes_) leave(*processes_, failure ? failure : end);
  if (failure) std::rethrow_exception(failure);
}

void Trainer::run_epochs(SignalWatch& signals) {
  if (loop_.starting_epoch > loop_.max_epoch) {
    logging::warning(
        "There is nothing to train: it would begin with epoch {}, and max_epoch is {}.",
        loop_.starting_epoch, loop_.max_epoch);
  }
  SharedMachine machine;
  for (int64_t epoch = loop_.starting_epoch; epoch <= loop_.max_epoch; ++epoch) {
    loop_.epoch_num = epoch;
    logging::info("Start epoch {} ...", epoch);
    run_epoch(signals, machine, epoch == loop_.starting_epoch ? loop_.starting_step : 0);
    if (hooked_sess().should_stop()) throw StopTraining("a callback asked for it.");
  }
  logging::info("Training has finished.");
}

void Trainer::run_epoch(SignalWatch& signals, SharedMachine& machine, int64_t starting_step) {
  callbacks_.before_epoch();
  Timer timer;
  std::exception_ptr end_of_data;
  for (int64_t step = starting_step; step < loop_.steps_per_epoch; ++step) {
    if (hooked_sess().should_stop()) return;
    loop_.local_step = step;
    if (processes_) processes_->set_step(loop_.global_step);
    end_of_data = run_step_or_end();
    if (end_of_data) {
      end_epoch_early(end_of_data, step - starting_step);
      break;
    }
    callbacks_.trigger_step();
    machine.look();
    heed_signals(signals);
  }
  const double seconds = timer.seconds();
  callbacks_.after_epoch();
  logging::info("Epoch {} (global_step {}) finished, time: {}.", loop_.epoch_num, loop_.global_step,
                humanize_time(seconds));
  callbacks_.trigger_epoch();
  if (end_of_data) std::rethrow_exception(end_of_data);
  heed_signals(signals);
}

// Several processes act on a signal after the same step, whichever of them received it: what they
// save is complete then. SIGINT is not coordinated across ranks.
void Trainer::heed_signals(SignalWatch& signals) {
  int signal = signals.received();
  if (signals.take_request_to_save() && signal == 0) signal = kSignalToSave;
  if (processes_ && signal != SIGINT) {
    if (signal != 0) processes_->share_signal(signal);
    signal = processes_->agreed_signal(loop_.global_step);
  }
  if (signal == kSignalToSave) {
    logging::info("SIGUSR1 asks for a checkpoint at global_step = {}.", loop_.global_step);
    if (!callbacks_.request_to_save() && is_chief_) {
      logging::warning("No callback saves one. Add a ModelSaver().");
    }
  } else if (signal != 0) {
    end_by_signal(signal);
  }
}

// A step whose data does not come is not made; then the training stands after the step before it.
// Of several processes that is so when no data comes in all: where one has begun the step, the
// others wait for theirs. Returns the end of the data, if that was the reason.
std::exception_ptr Trainer::run_step_or_end() {
  const int64_t global_step = loop_.global_step;
  const int64_t runs = sess().runs_with_source();
  const auto is_half_made = [&] {
    return loop_.global_step != global_step || sess().runs_with_source() != runs;
  };
  WaitForData wait(processes_.get(), global_step);
  const GiveUpScope give_up([&] { return wait.signal_to_give_up(is_half_made()); });
  try {
    run_step();
    return nullptr;
  } catch (const Interrupted& interrupted) {
    if (is_half_made()) throw;  // half a step is nothing to save
    --loop_.local_step;
    end_by_signal(interrupted.signal());
  } catch (const EndOfData&) {
    if (is_half_made()) throw;
    --loop_.local_step;
    return std::current_exception();
  } catch (...) {
    rethrow_with(place_of_step());
  }
}

// The end of the data ends the epoch as well. Not so with other processes, which may still be in
// it: what comes at its end is for all of them.
void Trainer::end_epoch_early(const std::exception_ptr& end_of_data, int64_t steps) {
  if (steps == 0) std::rethrow_exception(end_of_data);
  if (processes_) {
    logging::warning("The data ended {} into epoch {}: no checkpoint has that part of it.",
                     counted(steps, "step"), loop_.epoch_num);
    std::rethrow_exception(end_of_data);
  }
  logging::info("The data ended {} into epoch {}, which ends here.", counted(steps, "step"),
                loop_.epoch_num);
}

// Schedulers send SIGTERM some time before they kill: save what there is. Ctrl-C is for those who
// do not want to wait.
void Trainer::end_by_signal(int signal) {
  adopt_signal(signal);
  const bool all_are_here = processes_ && processes_->ends_here();
  if (signal != SIGINT && (is_chief_ || all_are_here)) {
    for (Callback& callback : callbacks_.all()) callback.on_terminate();
  }
  throw Interrupted(signal);
}

}  // namespace tensorpack
