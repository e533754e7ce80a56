#include "run/run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/saver.h"
#include "comm/group.h"
#include "comm/rank_words.h"
#include "comm/values.h"
#include "comm/world.h"
#include "config/read/read.h"
#include "device/slab.h"
#include "engine/engine.h"
#include "engine/trace.h"
#include "formats/print/print.h"
#include "formats/print/text.h"
#include "formats/strategy/requested_files.h"
#include "ops/cpu_level.h"
#include "plan/rules/check.h"
#include "run/agreement.h"
#include "run/beginning.h"
#include "run/data/corpus.h"
#include "run/directory/signals.h"
#include "run/end_report.h"
#include "run/preflight/preflight.h"
#include "run/prepare.h"
#include "run/products/timed_products.h"
#include "run/progress.h"
#include "run/rates.h"
#include "run/records/step_records.h"
#include "run/search/layout_choice.h"
#include "run/steps.h"
#include "run/views/event_file.h"
#include "weights/export.h"
#include "weights/hugging_face.h"
#include "weights/stored_weights.h"

namespace trainctl {

// The effect of a signal in each part of a training run.

inline constexpr SignalEffect before_first_step{
    .text = "interrupted before the first step, there is nothing to save",
    .requeue_code = static_cast<int>(ExitCode::interrupted),
    .interrupt_code = static_cast<int>(ExitCode::interrupted),
    .at_once = true};

/// before_first_step for a run that is resumed from a checkpoint.
inline constexpr SignalEffect before_going_on{
    .text = "interrupted before the first step of this session, there is nothing new to save",
    .requeue_code = static_cast<int>(ExitCode::requeue),
    .interrupt_code = static_cast<int>(ExitCode::interrupted),
    .at_once = true};

inline constexpr SignalEffect stop_after_step{
    .text = "the step ends and a checkpoint is saved",
    .requeue_code = static_cast<int>(ExitCode::requeue),
    .interrupt_code = static_cast<int>(ExitCode::interrupted)};

inline constexpr SignalEffect after_last_step{
    .text = "the last step is done, the rest is still written"};

// The request of a rank after a step. All ranks follow the greatest one, so that they save and stop
// at the same step.

enum class Request : int {
  none,
  save,       // save, since the interval has passed
  requeue,    // save and stop, after a scheduler's signal
  interrupt,  // save and stop, after a person's signal: another exit code
};

class Requests {
 public:
  /// `first`: the clock of this rank counts. No periodic saving if `every_minutes` is 0.
  Requests(bool first, double every_minutes)
      : interval_(60 * every_minutes), has_clock_(first && every_minutes > 0) {}
  /// This rank's request after a step.
  Request ask() const {
    const int signal = stop_signal();
    if (signal != 0) return asks_to_requeue(signal) ? Request::requeue : Request::interrupt;
    return has_clock_ && Clock::now() - last_ >= interval_ ? Request::save : Request::none;
  }
  /// Call it when a save begins.
  void restart_clock() { last_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double> interval_;
  bool has_clock_;
  Clock::time_point last_ = Clock::now();
};

namespace {

/// The signal that stopped the ranks: "SIGTERM", or "SIGUSR1 on rank 3" if not every rank got one;
/// empty without a signal. Collective.
std::string agree_on_reason(Group& everyone) {
  const std::vector<int> signals = gather_all(everyone, stop_signal());
  const auto got = [](int signal) { return signal > 0; };
  const auto found = std::find_if(signals.begin(), signals.end(), got);
  if (found == signals.end()) return "";
  std::string reason = name_of_signal(*found);
  if (!std::all_of(signals.begin(), signals.end(), got)) {
    reason += " on rank " + std::to_string(found - signals.begin());
  }
  return reason;
}

/// A training run on one rank: the engine, its data and its output, from the first to the last step
/// of this session.
class Training {
 public:
  struct Input {
    const ReadResult& read;
    const Plan& plan;
    const Beginning& beginning;
    const std::string& layout_file;              // contents of layout.yaml; empty if there is none
    const Continuation* continuation = nullptr;  // only for a resumed run
    std::int64_t stop_after = 0;  // if > 0, number of steps after which this session ends
    int ranks_in_process = 1;
    bool color = true;  // colour output on stderr
  };
  /// Opens the data and allocates everything. Leaves an earlier run's files unchanged. Throws as
  /// open_corpus and Engine.
  Training(const Input& input, World& world, Group& everyone)
      : input_(input),
        config_(input.read.config),
        plan_(input.plan),
        world_(world),
        everyone_(everyone),
        directory_(input.beginning.directory),
        config_text_(dump_config(config_to_go_on(config_as_given(input.read), directory_),
                                 &input.read.sources)),
        requests_(first(), config_.checkpoint.every_minutes),
        data_(open_corpus(config_.data, open_tokenizer(input.read, plan_.model), plan_.model,
                          config_.train.seed, everyone, world.local_rank() == 0),
              config_, input.continuation, everyone),
        // Recent steps are measured even without a trace file, at one clock reading per row.
        trace_(plan_.stage_of(world.rank()).actions,
               std::max(config_.log.trace_steps, ledger_steps), !config_.log.trace.empty()),
        engine_(engine_input(), world),
        timers_(config_),
        products_(config_, plan_, world, everyone),
        saver_({.plan = plan_,
                .config = config_,
                .config_text = config_text_,
                .store = engine_.parameters(),
                .everyone = everyone,
                .run = directory_,
                .deadline_seconds = config_.parallel.deadline_seconds,
                .fence = input.beginning.fence},
               [this] {
                 if (records_) records_->sync();
               }) {}

  /// Enters the directory, loads or initialises, trains. Returns the exit code: 0; 75 or 77 after a
  /// signal (docs/exit-codes.md); 74 if a file could not be written. Collective.
  int run() {
    begin();
    const std::optional<Rates> given = given_rates(config_.cluster);
    const double flops =
        given ? given->matmul_flops : measure_products(everyone_, engine_.ops(), plan_.compute);
    if (first()) {
      const ProductPeak peak(
          flops * static_cast<double>(world_.size()),
          given ? "cluster.matmul_flops" : "square products measured at the start");
      records_.emplace(directory_, peak, fence());
    }
    if (first() && config_.output.tensorboard) events_.emplace(directory_);
    if (first() && config_.log.level != LogLevel::error) {
      progress_.emplace(config_.log.every, isatty(STDERR_FILENO) != 0, input_.color);
    }
    const std::int64_t before = engine_.train_state().step;
    const auto start = std::chrono::steady_clock::now();
    const Request end = train();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    progress_.reset();
    if (end == Request::requeue || end == Request::interrupt) return tell_stopped(end);
    const std::int64_t peak = peak_resident_bytes();
    const bool all = engine_.train_state().step == config_.train.steps;
    if (records_ && !all) records_->write_end(stopped_at(), "--stop-after");
    if (all ? config_.checkpoint.at_end : true) save(last_, false);
    saver_.finish();
    const bool noted = !records_ || try_to_write([&] { records_->sync(); });
    const bool written = noted && saver_.failures() == 0;
    // All ranks measure before the weights are written, so that none waits for that.
    const std::string measured = last_.step == 0 ? "" : measure(flops);
    if (all && config_.output.save_weights) export_weights();
    write_the_reports(measured);
    if (first() && peak > 0) tell_memory(peak);
    if (first() && all && last_.step > 0) {
      tell_result(last_.step - before, seconds.count(), written);
    }
    if (first() && !all) {
      log_info(formatted("{} of {}, as --stop-after asks; the same command continues from there",
                         stopped_at(), config_.train.steps));
    }
    return tell_launch(all ? RankWord::finished : RankWord::stopped,
                       static_cast<int>(written ? ExitCode::ok : ExitCode::io),
                       engine_.train_state().step);
  }

 private:
  static constexpr std::int64_t ledger_steps = 16;  // steps whose median ledger is taken

  bool first() const { return world_.rank() == 0; }
  const Fence& fence() const { return input_.beginning.fence; }
  std::string stopped_at() const {
    return "stopped at step " + std::to_string(engine_.train_state().step);
  }

  EngineInput engine_input() {
    EngineInput input = run_engine_input(config_, plan_);
    input.bad_step_advice = "A lower lr_schedule.max_lr or a longer warm-up usually helps";
    input.request = [this] { return static_cast<int>(requests_.ask()); };
    input.trace = &trace_;
    return input;
  }

  void begin() {
    const std::string plan_text =
        print_json({.plan = plan_, .config = &config_, .diagnostics = &input_.read.diagnostics});
    enter_directory(input_.beginning, config_text_, plan_text, input_.layout_file, everyone_);
    if (input_.beginning.start.kind == Start::Kind::resume) {
      load();
    } else {
      engine_.initialise();
      if (config_.model.from) start_from(*config_.model.from);
    }
    if (first()) announce();
  }

  void start_from(const std::string& directory) {
    while_others_wait(everyone_, "weights", true, [&] {
      load_weights(*open_weights(directory, plan_.model), plan_, world_.rank(),
                   engine_.parameters());
    });
    engine_.masters_changed();
    engine_.parameters().begin_averages();
    if (first()) log_info("weights from " + directory);
  }

  void load() {
    const std::filesystem::path& from = input_.beginning.start.checkpoint;
    const Manifest& manifest = input_.continuation->manifest;
    while_others_wait(everyone_, "the checkpoint", true, [&] {
      load_run(engine_, manifest, from, plan_, config_.optimizer, world_.rank());
    });
    if (first()) tell_what_begins(manifest);
    products_.load(from, directory_, fence());
    saver_.set_saved_step(manifest.state.step);
    lacks_validation_ = !manifest.val_loss && validation_due(manifest.state.step);
  }

  void tell_what_begins(const Manifest& manifest) const {
    if (config_.optimizer.ema_decay != 0 && !has_averages(manifest)) {
      log_info("the checkpoint has no average of weights: it begins as the weights");
    }
    const auto begun = begun_parameters(manifest, plan_, config_.optimizer);
    if (begun.empty()) return;
    log_info(
        formatted("the checkpoint has nothing of what the optimizer keeps of {} {}, such as "
                  "{}: it begins at 0",
                  begun.size(), begun.size() == 1 ? "parameter" : "parameters", begun.front()));
  }

  /// Trains. Returns why it ended: Request::none after the last step of the run or of this session.
  Request train() {
    greatest(Request::none);  // no rank ends at once on a signal while another has begun to train
    change_signal_effect(stop_after_step);
    const std::int64_t begin = engine_.train_state().step;
    std::int64_t end = config_.train.steps;
    if (input_.stop_after > 0) end = std::min(end, begin + input_.stop_after);
    BatchLoader loader(
        corpus_.train, loader_rule(corpus_, plan_),
        loader_order(config_, plan_, world_.rank(), engine_.train_state(), end - begin));
    Request request = Request::none;
    if (lacks_validation_) validate_again(request);
    products_.note();
    for (std::int64_t step = begin + 1; step <= end && !stops(request); ++step) {
      if (input_.beginning.lease) input_.beginning.lease->check();
      StepReport report = engine_.train_step(loader.next_step());
      request = static_cast<Request>(report.request);
      const bool goes_on = step < end && !stops(request);
      if (step == begin + 1 && goes_on) products_.time(engine_.ops(), directory_, fence());
      if (validation_due(step) && !stops(request)) report.val_loss = validate(request);
      const std::int64_t every = config_.train.check_replicas_every;
      if (every > 0 && step % every == 0) engine_.check_replicas();
      note(report, step == end || stops(request));
      last_ = report;
      if (step < end && !stops(request)) save_if_due(report, request);
    }
    if (!stops(request)) request = greatest(requests_.ask());
    if (stops(request)) return request;
    change_signal_effect(after_last_step);
    return Request::none;
  }

  /// Rank 0 writes and shows a step. Collective where timers are reported.
  void note(const StepReport& report, bool last) {
    const auto timers = timers_.after_step(trace_, report.step, last, everyone_);
    if (!first()) return;
    const StepNotes notes = records_->write(report, trace_, timers);
    update_events();
    if (progress_) progress_->show(report, notes.mfu, last || !timers.empty());
    for (const std::string& line : timers_.lines(timers)) log_info(line);
  }

  /// Writes events for TensorBoard until that fails; `trainctl report` can write the rest.
  void update_events() {
    if (!events_ || try_to_write([&] { events_->update(); })) return;
    events_.reset();
    log_warning("no more events of TensorBoard are written in this session");
  }

  static bool stops(Request request) { return request >= Request::requeue; }

  /// The greatest request among all ranks, which decides.
  Request greatest(Request mine) { return std::ranges::max(gather_all(everyone_, mine)); }

  bool validation_due(std::int64_t step) const {
    if (!corpus_.validation) return false;
    const std::int64_t every = config_.train.validate_every;
    return step == config_.train.steps || (every > 0 && step % every == 0);
  }

  /// The validation loss, for certain only on rank 0, which reports it. A signal ends the
  /// validation early; `request` then says so.
  std::optional<double> validate(Request& request) {
    const std::optional<double> loss =
        validation_loss(engine_, plan_, corpus_, config_.data.validation.max_sequences,
                        [this] { return stops(requests_.ask()); });
    request = std::max(request, greatest(requests_.ask()));
    return loss;
  }

  /// Validates the weights of the checkpoint if an earlier session was stopped before that.
  void validate_again(Request& request) {
    const std::optional<double> loss = validate(request);
    if (!first() || !loss) return;
    records_->add_val_loss(engine_.train_state().step, *loss);
    if (events_) events_.emplace(directory_);  // the line of that step has changed
  }

  void save_if_due(const StepReport& report, Request request) {
    const std::int64_t every = config_.checkpoint.every;
    if (request == Request::save || (every > 0 && report.step % every == 0)) {
      save(report, config_.checkpoint.asynchronous);
    } else {
      saver_.poll();
    }
  }

  void save(const StepReport& report, bool in_background) {
    saver_.finish();
    if (saver_.saved_step() == engine_.train_state().step) return;
    requests_.restart_clock();
    saver_.save({engine_.train_state(), report.loss, report.val_loss, products_.text(),
                 data_.saved(engine_.train_state().samples)},
                in_background);
  }

  /// Saves after a signal and tells the result; returns the exit code.
  int tell_stopped(Request request) {
    const std::int64_t step = engine_.train_state().step;
    const std::string reason = agree_on_reason(everyone_);
    const std::string end = "interrupted at step " + std::to_string(step);
    if (records_) records_->write_end(end, reason);
    if (!first()) log_info(end + ": " + reason);
    if (step > 0) save(last_, false);
    const bool saved = step > 0 && saver_.saved_step() == step;
    write_the_reports("");
    const std::string what = end + " (" + reason + ")";
    if (first() && saved) {
      log_info(what + "; the checkpoint is " + saver_.saved_path().string() +
               ", and the same command continues from there");
    } else if (first()) {
      log_info(what + (step == 0 ? ": nothing to save" : ": NOT saved"));
    }
    const bool again = saved && request == Request::requeue;
    const ExitCode code = again ? ExitCode::requeue : ExitCode::interrupted;
    return tell_launch(RankWord::saved, static_cast<int>(code), step);
  }

  void announce() const {
    const Start& start = input_.beginning.start;
    if (start.kind == Start::Kind::resume) {
      log_info(formatted("resuming after step {} from {}", start.step, start.checkpoint.string()));
    }
    log_info(format_count(static_cast<double>(plan_.parameter_count())) + " parameters, " +
             grouped_count(world_.size(), "rank") + " x " +
             grouped_count(plan_.threads_per_rank, "thread") + ", " +
             (plan_.ramp.size() > 1 ? "up to " : "") + format_grouped(plan_.tokens_per_step()) +
             (config_.data.packing ? " tokens" : " positions") + " per step, " +
             std::string(name_of(plan_.compute)) + ", CPU level " +
             std::string(name_of(cpu_level())) + ", about " +
             format_bytes(plan_.max_memory().device()) + " per rank; writing to " +
             directory_.string());
  }

  void export_weights() {
    if (plan_.model.experts > 1 && plan_.model.family == "gpt2") {
      if (first()) log_info("no model.safetensors: it has no form for experts of a GPT-2");
      return;
    }
    const HostValues unused(engine_.parameters().made_gradients());
    WholeParams whole = engine_.whole_parameters(unused.bytes());
    if (!first()) return whole.give();
    const HeldWeights weights([&](const std::string& name) { return whole.get(name); });
    write_model(directory_, plan_.model, weights,
                {.tokens = special_tokens(config_, corpus_),
                 .type = config_.model.from ? read_model_type(*config_.model.from) : "",
                 .fence = &fence()},
                whole.rest());
    if (config_.model.from) copy_tokenizer(*config_.model.from, directory_, &fence());
    whole.end();
    log_info("weights: " + (directory_ / "model.safetensors").string());
    const std::string reason = unknown_to_hugging_face(plan_.model);
    if (!reason.empty()) log_info("no config.json for transformers: " + reason);
  }

  /// Rank 0 writes the reports. Collective: the other ranks wait, without a deadline.
  void write_the_reports(const std::string& measured) {
    while_others_wait(everyone_, "the reports", first(),
                      [&] { write_reports(directory_, measured, fence()); });
  }

  /// The last lines of a run: the loss after `steps` steps of this session, the report if there is
  /// one, and the command that uses the weights if they were saved.
  void tell_result(std::int64_t steps, double seconds, bool reported) const {
    std::string text = "trained " + grouped_count(steps, "step") + " in " +
                       format_seconds(seconds) + ": loss " + printed("%.4f", last_.loss);
    if (last_.val_loss) text += ", validation loss " + printed("%.4f", *last_.val_loss);
    log_info(text);
    if (reported) log_info("report: " + (directory_ / "report.html").string());
    if (!config_.output.save_weights && !config_.checkpoint.at_end) return;
    log_info("next: trainctl generate --run " + shell_word(directory_.string()));
  }

  /// The text of measured.json on rank 0. Collective.
  std::string measure(double matmul_flops) {
    const Plan& plan = engine_.plan();  // plan of the last step, which is measured
    const TraceSource source{.trace = trace_,
                             .plan = plan,
                             .world = world_,
                             .everyone = everyone_,
                             .deadline_seconds = config_.parallel.deadline_seconds};
    return measure_end(source, config_, engine_, records_ ? &records_->peak() : nullptr,
                       matmul_flops);
  }

  template <class Body>
  static bool try_to_write(const Body& body) {
    try {
      body();
      return true;
    } catch (const Error& error) {
      if (error.code() != ExitCode::io) throw;
      log_error(error.what());
      return false;
    }
  }

  void tell_memory(std::int64_t peak) const {
    const MemoryEstimate& memory = plan_.max_memory();
    const std::int64_t planned =
        input_.ranks_in_process * (memory.host() - memory.runtime) + memory.runtime;
    log_info("memory: " + format_bytes(peak) + " at most, planned " + format_bytes(planned));
  }

  const Input input_;
  const Config& config_;
  const Plan& plan_;
  World& world_;
  Group& everyone_;
  const std::filesystem::path directory_;
  const std::string config_text_;
  Requests requests_;
  TrainingData data_;
  const Corpus& corpus_ = data_.corpus();
  Trace trace_;
  Engine engine_;
  TimerReports timers_;
  TimedProducts products_;
  std::optional<StepRecords> records_;  // only on rank 0
  std::optional<EventLog> events_;      // only with output.tensorboard
  std::optional<ProgressLine> progress_;
  Saver saver_;
  StepReport last_;  // report of this session's last step
  bool lacks_validation_ = false;
};

/// The plan of a rank before it communicates with others.
struct Prepared {
  ReadResult read;
  DeviceChoice device;
  CudnnChoice cudnn;
  Site site;
  Plan plan;
  bool searches = false;     // whether the file asks for auto_parallel
  ChosenArrangement layout;  // layout found by the search
  bool valid = false;
};

/// Rank 0 searches for a layout if the file asks for it, and all ranks plan with its answer.
/// Collective, since a rank may tokenise text for its plan while others have finished.
void prepare_for_site(const TrainRequest& request, Prepared& prepared, Group& everyone) {
  ArrangementRequest layout{.again = request.search_again, .choice = &prepared.layout};
  prepare_with_one_answer(everyone, request.config.c_str(), prepared.searches, layout, [&] {
    prepared.read = read_config(request.config, request.set_options);
    prepared.plan = prepare(prepared.read, prepared.site, Purpose::train, layout);
    prepared.valid = !prepared.read.diagnostics.has_errors();
  });
}

void tell_search(const ChosenArrangement& layout) {
  if (!layout.report) return;
  const std::string from = layout.taken_from.empty() ? "" : " (from " + layout.taken_from + ")";
  log_info("auto_parallel: " + search_line(*layout.report) + from);
  for (const std::string& note : layout.report->notes) log_info("auto_parallel: " + note);
}

Prepared read_and_prepare(const TrainRequest& request, World& world, Group& everyone) {
  Prepared prepared;
  prepared.read = read_config(request.config, request.set_options);
  const ParallelConfig& parallel = prepared.read.config.parallel;
  prepared.searches = parallel.parallel_mode == ParallelMode::auto_parallel;
  prepared.device = agree_on_device(parallel, world, everyone);
  prepared.cudnn = agree_on_cudnn(parallel, prepared.device, world, everyone);
  prepared.site = {.world_size = world.size(),
                   .ranks_per_host = world.local_size(),
                   .cores_per_host = agree_on_cores(world, everyone),
                   .ranks_are_threads = request.local_ranks > 0,
                   .device = prepared.device.device,
                   .cudnn = prepared.cudnn.taken};
  prepare_for_site(request, prepared, everyone);
  return prepared;
}

void show(const Diagnostics& diagnostics, bool color) {
  if (diagnostics.list().empty()) return;
  std::cerr << render_text(diagnostics, color) << std::flush;
}

/// Every rank reads its own file, and all plans must be equal. Returns whether the run can start;
/// if not, the errors are shown.
bool agree_on_plan(Prepared& prepared, Group& world, bool color) {
  const std::vector<bool> valid = gather_all(world, prepared.valid);
  const bool all_valid = std::ranges::find(valid, false) == valid.end();
  const bool none_valid = std::ranges::find(valid, true) == valid.end();
  const bool speak = none_valid ? world.rank() == 0 : !prepared.valid;
  if (speak) show(prepared.read.diagnostics, color);
  if (!all_valid) return false;
  require_one_plan(prepared.plan, world);
  return true;
}

/// With attention_backend auto, if the cuDNN of some rank refuses the plan's attention, the plan
/// becomes one with our kernels. Logs the choice. Collective, of ranks with the same plan.
void settle_attention(const TrainRequest& request, Prepared& prepared, const World& world,
                      Group& everyone) {
  if (prepared.cudnn.why.empty()) return;
  std::string reason = prepared.cudnn.why;
  if (prepared.cudnn.taken) {
    const std::string refusal = refusal_of_cudnn(prepared.plan, world, everyone);
    const Facts facts(prepared.read.config, prepared.site);
    reason = prepared.plan.cudnn ? refusal : why_not_cudnn(facts);
    if (!refusal.empty()) {
      prepared.site.cudnn = false;
      prepare_for_site(request, prepared, everyone);
    }
  }
  if (world.rank() != 0) return;
  log_info("parallel.attention_backend auto: " +
           (prepared.plan.cudnn ? prepared.cudnn.why : "own kernels: " + reason));
}

/// Finds errors in the initial weights before an earlier run's files are deleted.
void check_start(const Prepared& prepared) {
  const auto& from = prepared.read.config.model.from;
  const std::string& output = prepared.read.config.output.dir;
  // A resumed run does not need the initial weights.
  if (!from || !CheckpointFolder(output).complete().empty()) return;
  open_weights(*from, prepared.plan.model);
  std::error_code failure;
  require(
      !std::filesystem::equivalent(*from, output, failure), ExitCode::usage,
      "output.dir is model.from, " + *from + "; the run would replace the model it starts from");
}

/// Plans a resumed run: its total steps follow from the steps already done and from its present
/// batches. Returns false if its configuration now has errors, which rank 0 shows. Collective, of
/// ranks with the same plan.
bool plan_the_rest(const TrainRequest& request, Prepared& prepared, Continuation& continuation,
                   Group& everyone) {
  const bool counts_data = prepared.read.given->train.epochs.has_value();
  if (counts_data) {
    find_data_place(continuation, prepared.read.config, everyone);
    continuation.progress.windows = windows_behind(continuation, prepared.read.config);
  }
  prepared.site.done = continuation.progress;
  prepare_for_site(request, prepared, everyone);
  return agree_on_plan(prepared, everyone, request.color);
}

bool is_finished(const Start& start, std::int64_t steps) {
  return start.step > steps || (start.step == steps && start.has_weights);
}

/// Writes the report of a run that a signal ended after its last step but before the report.
void draw_missing_report(const Beginning& beginning) {
  try {
    if (kind_of_file(beginning.directory / "report.html") != FileKind::none) return;
    draw_report(beginning.directory, beginning.fence);
  } catch (const Error& error) {
    log_warning(std::string("not reported: ") + error.what());
  }
}

void tell_finished(const Beginning& beginning, const Config& config) {
  log_info("the run in " + beginning.directory.string() + " is finished: it has " +
           std::to_string(beginning.start.step) + " of " + std::to_string(config.train.steps) +
           " steps; a greater train.steps continues it, and output.overwrite: true (--overwrite) "
           "replaces it");
}

void tell_change(const Continuation& continuation, const Plan& plan, const World& world) {
  const std::string pace = change_of_pace(continuation.progress, plan);
  if (world.rank() == 0 && !pace.empty()) log_info(pace);
}

/// The first rank of each host checks; all ranks get the code of the first error. Collective.
ExitCode look_first(const TrainRequest& request, const Prepared& prepared,
                    const std::filesystem::path& directory, World& world, Group& everyone) {
  ExitCode mine = ExitCode::ok;
  while_others_wait(everyone, "data and disk", world.local_rank() == 0, [&] {
    mine = tell_findings("the run does not start", prepared.read.sources,
                         preflight({.read = prepared.read,
                                    .plan = prepared.plan,
                                    .directory = directory,
                                    .ranks_here = world.local_size(),
                                    .cores = prepared.site.cores_per_host,
                                    .ranks_in_process = std::max(1, request.local_ranks),
                                    .over_mpi = request.local_ranks == 0 && world.size() > 1,
                                    .whole_data = request.dry_run}));
  });
  for (const ExitCode code : gather_all(everyone, mine)) {
    if (code != ExitCode::ok) return code;
  }
  return ExitCode::ok;
}

bool is_under_mpirun() { return launched_as().launcher == "Open MPI"; }

/// Warns that Open MPI's mpirun kills the ranks soon after SIGTERM or Ctrl-C, perhaps before they
/// can save.
void explain_kill_delay() {
  if (!is_under_mpirun() || is_under_launch()) return;
  log_info(
      "mpirun kills the ranks about 1 s after Ctrl-C or SIGTERM, which may be too soon to save "
      "a checkpoint; 'trainctl launch' gives them time, and so does SIGUSR1 to mpirun");
}

int run_rank(const TrainRequest& request, World& world) {
  set_log_rank(world.rank(), world.size());
  const std::unique_ptr<Group> everyone = world.everyone("world");
  Prepared prepared = read_and_prepare(request, world, *everyone);
  if (!agree_on_plan(prepared, *everyone, request.color)) {
    return static_cast<int>(ExitCode::config);
  }
  if (!prepared.device.usable) {
    if (world.rank() == 0) log_error("parallel.device cuda: " + prepared.device.why);
    return static_cast<int>(ExitCode::unavailable);
  }
  agree_on_cpu_level(*everyone);
  settle_attention(request, prepared, world, *everyone);
  set_log_level(prepared.read.config.log.level);
  const Config& config = prepared.read.config;
  if (world.rank() == 0 && config.parallel.device == "auto") {
    log_info("parallel.device auto: " + prepared.device.why);
  }
  if (world.rank() == 0) tell_search(prepared.layout);
  check_start(prepared);
  // Warnings are shown later, since a resumed run may have fewer than a new one.
  const auto show_warnings = [&] {
    if (world.rank() == 0) show(prepared.read.diagnostics, request.color);
  };
  if (request.dry_run) {
    show_warnings();
    const auto directory = output_directory(config.output.dir);
    const ExitCode found = look_first(request, prepared, directory, world, *everyone);
    return tell_launch(RankWord::checked, static_cast<int>(found));
  }
  const Beginning beginning = agree_on_beginning(config_as_given(prepared.read), config.train.steps,
                                                 request.resume, world, *everyone);
  if (beginning.refused != ExitCode::ok) return static_cast<int>(beginning.refused);
  std::optional<Continuation> continuation;
  bool finished = beginning.start.kind == Start::Kind::finished;
  if (beginning.start.kind == Start::Kind::resume) {
    continuation = read_continuation(beginning.start.checkpoint, *everyone);
    if (!plan_the_rest(request, prepared, *continuation, *everyone)) {
      return static_cast<int>(ExitCode::config);
    }
    finished = is_finished(beginning.start, config.train.steps);
  }
  if (finished) {
    if (world.rank() == 0) {
      tell_finished(beginning, config);
      draw_missing_report(beginning);
    }
    return tell_launch(RankWord::finished, 0, beginning.start.step);
  }
  show_warnings();
  if (continuation) tell_change(*continuation, prepared.plan, world);
  if (continuation && continuation->identities.empty()) {
    find_data_place(*continuation, config, *everyone);
  }
  if (beginning.start.kind == Start::Kind::resume) change_signal_effect(before_going_on);
  const ExitCode found = look_first(request, prepared, beginning.directory, world, *everyone);
  if (found != ExitCode::ok) return static_cast<int>(found);
  write_own_layout_files(config, prepared.plan, world.rank());
  if (world.rank() == 0) explain_kill_delay();
  Training training({.read = prepared.read,
                     .plan = prepared.plan,
                     .beginning = beginning,
                     .layout_file = prepared.layout.file,
                     .continuation = continuation ? &*continuation : nullptr,
                     .stop_after = request.stop_after,
                     .ranks_in_process = std::max(1, request.local_ranks),
                     .color = request.color && config.log.color},
                    world, *everyone);
  return training.run();
}

/// Each rank logs the reason of its end; stderr names only the first rank that fails.
int run_rank_of_threads(const TrainRequest& request, World& world) {
  try {
    return run_rank(request, world);
  } catch (const std::exception& failure) {
    log_to_file(LogLevel::error, failure.what());
    throw;
  }
}

/// Rank 0 calls the first function, other ranks the second, if a signal ends them before training.
void tell_end_of_run(int code) { tell_launch(RankWord::saved, code); }
void tell_end_of_rank(int code) { tell_launch(RankWord::failed, code); }

}  // namespace

int run_training(const TrainRequest& request) {
  const bool first = launched_as().rank == 0;
  catch_stop_signals(before_first_step,
                     {.speaks = first,
                      .told_by_launch = is_under_launch(),
                      .mpirun_kills = is_under_mpirun(),
                      .tell_launch = first ? tell_end_of_run : tell_end_of_rank});
  const ReadResult read = read_config(request.config, request.set_options);
  WorldOptions options{.check_collectives = false, .report_hangs = true};
  if (!read.diagnostics.has_errors()) {
    options.deadline_seconds = read.config.parallel.deadline_seconds;
    options.check_collectives = read.config.parallel.check_collectives;
  }
  int code = 0;
  const auto on_rank = [&](World& world) {
    const int mine =
        request.local_ranks > 0 ? run_rank_of_threads(request, world) : run_rank(request, world);
    if (world.rank() == 0 || request.local_ranks == 0) code = mine;
  };
  run_world(request.local_ranks, options, on_rank);
  return code;
}

}  // namespace trainctl
