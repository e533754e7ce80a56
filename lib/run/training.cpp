#include "run/training.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "checkpoint/checkpoint_weights.h"
#include "checkpoint/load.h"
#include "checkpoint/saver.h"
#include "comm/others_wait.h"
#include "comm/rank_words.h"
#include "device/host_values.h"
#include "engine/engine.h"
#include "engine/ledger.h"
#include "formats/print/print.h"
#include "formats/print/text.h"
#include "ops/cpu_level.h"
#include "run/data/training_data.h"
#include "run/directory/signals.h"
#include "run/end_report.h"
#include "run/products/timed_products.h"
#include "run/progress.h"
#include "run/rates.h"
#include "run/records/process_memory.h"
#include "run/records/step_records.h"
#include "run/records/timer_reports.h"
#include "run/requests.h"
#include "run/signal_effects.h"
#include "run/steps.h"
#include "run/views/event_log.h"
#include "weights/export.h"
#include "weights/hugging_face_names.h"
#include "weights/load_weights.h"

namespace trainctl {

class Training::Impl {
 public:
  Impl(const Input& input, World& world, Group& everyone)
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
        // Without a file the last steps are measured all the same: that costs a clock per row.
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

  int run() {
    begin();
    const std::optional<Rates> given = given_rates(config_.cluster);
    const double flops =
        given ? given->matmul_flops : measure_products(everyone_, engine_.ops(), plan_.compute);
    if (first()) {
      records_.emplace(StepRecords::Input{
          .directory = directory_,
          .peak = {flops * static_cast<double>(world_.size()),
                   given ? "cluster.matmul_flops" : "square products measured at the start"},
          .fence = fence()});
    }
    if (first() && config_.output.tensorboard) events_.emplace(directory_);
    if (first() && config_.log.level != LogLevelName::error) {
      progress_.emplace(ProgressOptions{
          .every = config_.log.every, .live = isatty(STDERR_FILENO) != 0, .color = input_.color});
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
    // Measured together, as the others need not wait for the weights; written after these.
    const std::string measured = last_.step == 0 ? "" : measure(given, flops);
    if (all && config_.output.save_weights) export_weights();
    write_the_reports(measured);
    if (first() && peak > 0) tell_memory(peak);
    if (first() && all && last_.step > 0) {
      tell_result({.last = last_,
                   .steps = last_.step - before,
                   .seconds = seconds.count(),
                   .directory = directory_,
                   .reported = written,
                   .saved = config_.output.save_weights || config_.checkpoint.at_end});
    }
    if (first() && !all) {
      log_info(stopped_at() + " of " + std::to_string(config_.train.steps) +
               ", as --stop-after asks; the same command goes on from there");
    }
    return tell_launch(all ? RankWord::finished : RankWord::stopped,
                       static_cast<int>(written ? ExitCode::ok : ExitCode::io),
                       engine_.train_state().step);
  }

 private:
  static constexpr std::int64_t ledger_steps = 16;  // the ledger takes the median of the last

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
    enter_directory(input_.beginning, {config_text_, plan_text, input_.layout_file}, everyone_);
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
    log_info("the checkpoint has nothing of what the optimizer keeps of " +
             std::to_string(begun.size()) + (begun.size() == 1 ? " parameter" : " parameters") +
             ", such as " + begun.front() + ": it begins at 0");
  }

  /// Returns why it ended: Request::none after the last step of the run or of this session.
  Request train() {
    greatest(Request::none);  // none ends at once while another one begins to train
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

  /// Rank 0 writes down and shows a step. Collective where timers are reported.
  void note(const StepReport& report, bool last) {
    const auto timers = timers_.after_step(trace_, report.step, last, everyone_);
    if (!first()) return;
    const StepNotes notes = records_->write(report, trace_, timers);
    update_events();
    if (progress_) progress_->show(report, notes.mfu, last || !timers.empty());
    for (const std::string& line : timers_.lines(timers)) log_info(line);
  }

  /// After a failure `trainctl report --format tensorboard` writes the rest.
  void update_events() {
    if (!events_ || try_to_write([&] { events_->update(); })) return;
    events_.reset();
    log_warning("no more events of TensorBoard are written in this session");
  }

  static bool stops(Request request) { return request >= Request::requeue; }

  /// Of all ranks.
  Request greatest(Request mine) {
    double most = 0;
    for (const double one : gather_values(everyone_, static_cast<double>(mine))) {
      most = std::max(most, one);
    }
    return static_cast<Request>(static_cast<int>(most));
  }

  bool validation_due(std::int64_t step) const {
    if (!corpus_.validation) return false;
    const std::int64_t every = config_.train.validate_every;
    return step == config_.train.steps || (every > 0 && step % every == 0);
  }

  /// Of rank 0, which reports; others may not know it.
  /// A signal ends it early; `request` then says so.
  std::optional<double> validate(Request& request) {
    const std::optional<double> loss =
        validation_loss(engine_, plan_, corpus_, config_.data.validation.max_sequences,
                        [this] { return stops(requests_.ask()); });
    request = std::max(request, greatest(requests_.ask()));
    return loss;
  }

  /// Of the step that the run goes on from, where an earlier session had no time for it.
  void validate_again(Request& request) {
    const std::optional<double> loss = validate(request);
    if (!first() || !loss) return;
    records_->add_val_loss(engine_.train_state().step, *loss);
    if (events_) events_.emplace(directory_);  // its line has become another
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

  /// Saves, and says what became of it.
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
               ", and the same command goes on from there");
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
      log_info("resuming after step " + std::to_string(start.step) + " from " +
               start.checkpoint.string());
    }
    log_info(format_count(static_cast<double>(plan_.parameter_count())) + " parameters, " +
             grouped_count(world_.size(), "rank") + " x " +
             grouped_count(plan_.threads_per_rank, "thread") + ", " +
             (plan_.ramp.size() > 1 ? "up to " : "") + format_grouped(plan_.tokens_per_step()) +
             (config_.data.packing ? " tokens" : " positions") + " per step, " +
             std::string(name_of(plan_.compute)) + ", CPU level " +
             std::string(name_of(cpu_level())) + ", about " +
             format_bytes(plan_.most_memory().device()) + " per rank; writing to " +
             directory_.string());
  }

  void export_weights() {
    if (plan_.model.experts > 1 && plan_.model.family == Family::gpt2) {
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

  /// Of rank 0. Collective: the others wait, however long it takes.
  void write_the_reports(const std::string& measured) {
    while_others_wait(everyone_, "the reports", first(),
                      [&] { write_reports(directory_, measured, fence()); });
  }

  /// measured.json, of rank 0. Collective.
  std::string measure(const std::optional<Rates>& given, double matmul_flops) {
    const Plan& plan = engine_.plan();  // of the last step, which is measured
    const TraceSource source{.trace = trace_,
                             .plan = plan,
                             .world = world_,
                             .everyone = everyone_,
                             .deadline_seconds = config_.parallel.deadline_seconds};
    return measure_end({.source = source,
                        .world = world_,
                        .config = config_,
                        .taken = engine_.memory(),
                        .devices = engine_.devices(),
                        .step = engine_.train_state().step,
                        .peak = records_ ? &records_->peak() : nullptr,
                        .given = given,
                        .matmul_flops = matmul_flops});
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
    const MemoryEstimate& memory = plan_.most_memory();
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
  std::optional<StepRecords> records_;  // of rank 0
  std::optional<EventLog> events_;      // with output.tensorboard
  std::optional<ProgressLine> progress_;
  Saver saver_;
  StepReport last_;  // of this session
  bool lacks_validation_ = false;
};

Training::Training(const Input& input, World& world, Group& everyone)
    : impl_(std::make_unique<Impl>(input, world, everyone)) {}

Training::~Training() = default;

int Training::run() { return impl_->run(); }

}  // namespace trainctl
