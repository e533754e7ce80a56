#include "verify/free_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>

#include "base/at.h"
#include "base/error.h"
#include "checkpoint/folder.h"
#include "checkpoint/saver.h"
#include "config/schema/optimizers.h"
#include "engine/engine.h"
#include "plan/cost/estimate.h"
#include "plan/ownership/ownership.h"
#include "plan/rules/resolve.h"
#include "plan/tables/shard.h"
#include "run/data/corpus.h"
#include "run/end_report.h"
#include "run/steps.h"
#include "verify/findings.h"
#include "verify/ranks.h"
#include "verify/record.h"

namespace trainctl {

namespace {

/// A layout's distance from the single rank may be this many times the distance between runs of
/// that rank with different rounding.
constexpr double free_roundings_apart = 4;
/// This factor for loss and norm late in a day: few runs may be close by chance, and in 16 bits
/// a layout also rounds partial sums, unlike any run of the single rank.
constexpr double free_figures_apart = 8;
/// This factor for gradients, of which a few terms that cancel in 16 bits may be most.
constexpr double free_gradients_apart = 16;

/// The start of a run and the folder of its checkpoint.
struct Session {
  const Continuation* begins = nullptr;  // null if the run starts in the morning
  const std::filesystem::path& run;      // the run whose checkpoint is saved or resumed from
};

class FreeRun {
 public:
  /// `exported` is filled by rank 0 and read by all ranks of the same process.
  FreeRun(const FreeRecord& record, const VerifyInput& given, const Session& session, World& world,
          Findings& findings, WholeTensors& exported)
      : record_(record),
        given_(given),
        session_(session),
        plan_(given.plan),
        world_(world),
        findings_(findings),
        exported_(exported),
        trace_(plan_.stage_of(world.rank()).actions, record.day.steps),
        everyone_(world.everyone("free run")),
        data_(FreeData::open(given.config, plan_.model, *everyone_), given.config, session.begins,
              *everyone_),
        engine_(input(), world) {}

  Afternoon run() {
    compare_order();
    begin();
    Afternoon afternoon;
    train(afternoon);
    engine_.complete_weights();
    afternoon.values = held_values();
    export_weights();
    return afternoon;
  }

  /// Compares with the same layout's uninterrupted run, bit for bit.
  void compare_bits(const Afternoon& found, const Afternoon& expected) {
    for (std::size_t i = 0; i < found.reports.size(); ++i) {
      compare_figures(found.reports[i], expected.reports[i]);
    }
    Findings::Subject subject{.step = record_.day.steps, .beside = without_checkpoint};
    std::size_t list = 0;
    for (subject.row = 0; const ParamSpec& spec : table()) {
      for (int kind = 0; kind < kinds(); ++kind, ++list) {
        subject.phase = phase_of(Phase::same_master, kind,
                                 updated_states(spec.update, given_.config.optimizer));
        const Slice part = held_part(store(), static_cast<int>(subject.row), kind).part;
        compare_own(subject, spec, found.values[list], expected.values[list], part);
      }
      ++subject.row;
    }
  }

 private:
  static constexpr const char* without_checkpoint = "without the checkpoint it is";

  EngineInput input() {
    EngineInput input = run_engine_input(given_.config, plan_);
    input.deadline_seconds = given_.deadline_seconds;
    input.loss_scaling = record_.loss_scaling;
    input.request = [] { return 0; };
    input.trace = &trace_;
    input.hooks.after_router = [this](std::int64_t layer, const Tensor& tokens,
                                      const Tensor& logits) {
      const std::int64_t step = engine_.completed_steps();
      const RecordedStream& router = at(at(record_.found.steps, step).routers, layer);
      for_step_tokens(
          record_.plan, step, tokens, logits,
          [&](std::int64_t begin, const Tensor& rows) { route_as_recorded(router, begin, rows); });
    };
    return input;
  }

  void begin() {
    if (session_.begins == nullptr) {
      engine_.initialise();
    } else {
      load_run(engine_, session_.begins->manifest,
               CheckpointFolder(session_.run).of(record_.day.noon), plan_, given_.config.optimizer,
               world_.rank());
      compare_counters(findings_, Phase::free_scalar, scalars(record_.day.noon + 1),
                       at(record_.found.steps, record_.day.noon).numbers.before);
    }
    if (!given_.faults.loaded) return;
    given_.faults.loaded(world_.rank(), store());
    engine_.masters_changed();
  }

  /// Trains the remaining steps of the day, and reports those after noon. The loader continues
  /// through evaluation and save, as in training.
  void train(Afternoon& afternoon) {
    const Day& day = record_.day;
    const std::int64_t before = engine_.completed_steps();
    BatchLoader::Order order = loader_order(given_.config, plan_, world_.rank(),
                                            engine_.train_state(), day.steps - before);
    if (given_.faults.order) given_.faults.order(world_.rank(), order);
    BatchLoader loader(data_.corpus().train, loader_rule(data_.corpus(), plan_), order);
    const auto saving = world_.everyone("checkpoint");
    Saver saver({.plan = plan_,
                 .config = given_.config,
                 .config_text = "",
                 .store = store(),
                 .everyone = *saving,
                 .run = session_.run,
                 .deadline_seconds = given_.deadline_seconds});
    for (std::int64_t step = before + 1; step <= day.steps; ++step) {
      const StepReport report = one_step(loader);
      if (step > day.noon) afternoon.reports.push_back(report);
      if (step > day.noon) saver.poll();
      if (step != day.noon) continue;
      evaluate(step, record_.found.noon_validation_loss, record_.rounding.noon_validation_loss);
      saver.save({.state = engine_.train_state(),
                  .loss = report.loss,
                  .val_loss = std::nullopt,
                  .product_algorithms = "",
                  .data = data_.saved(engine_.train_state().samples)},
                 true);
    }
    evaluate(day.steps, record_.found.validation_loss, record_.rounding.validation_loss);
    saver.finish();
    const bool saved = before > 0 || saver.saved_step() == day.noon;
    require(saved, ExitCode::io, "no checkpoint could be saved in " + session_.run.string());
  }

  StepReport one_step(BatchLoader& loader) {
    const std::vector<Batch>& batches = loader.next_step();
    const std::int64_t step = engine_.completed_steps() + 1;
    compare_count(step, std::ssize(batches));
    const StepReport report = engine_.train_step(batches);
    if (given_.faults.parameters) given_.faults.parameters(world_.rank(), step, store());
    compare_data(step, batches);
    compare_step(report);
    compare_copies(step);
    compare_traffic_of(step, batches);
    return report;
  }

  /// Compares the order of the single rank's samples, which every layout reads too.
  void compare_order() {
    if (world_.rank() != 0) return;
    Findings::Subject subject{.phase = Phase::batch, .beside = "a run may have"};
    for (const OrderCount& broken : record_.disorder) {
      subject.step = broken.step;
      findings_.compare(subject, static_cast<double>(broken.samples), 0, broken.what);
    }
  }

  /// Compares the number of micro-batches, and throws if it is wrong: the step could not run.
  void compare_count(std::int64_t step, std::int64_t microbatches) {
    const Plan& now = given_.truth.after(step - 1);
    findings_.compare(
        {.phase = Phase::batch, .step = step}, static_cast<double>(now.tokens_per_step()),
        static_cast<double>(record_.plan.after(step - 1).tokens_per_step()), "positions in all");
    const std::int64_t expected = now.microbatches;
    findings_.compare({.phase = Phase::batch, .step = step, .beside = "the plan has"},
                      static_cast<double>(microbatches), static_cast<double>(expected),
                      "micro-batches");
    require(microbatches == expected, ExitCode::internal,
            "the loader gives " + std::to_string(microbatches) + " micro-batches for step " +
                std::to_string(step) + ", and the plan has " + std::to_string(expected));
  }

  /// Called after the step, because batches must not change before.
  void compare_data(std::int64_t step, const std::vector<Batch>& batches) {
    const Plan& plan = given_.truth.after(step - 1);
    const std::int64_t replica =
        plan.full_batch ? 0 : plan.mesh.coordinate(world_.rank(), Axis::dp);
    const std::vector<RecordedStream>& data = at(record_.found.steps, step - 1).data;
    Findings::Subject subject{.phase = Phase::batch, .step = step, .min_scale = 1};
    subject.beside = "the files have";
    double weights = 0;
    double counted = 0;
    for (std::int64_t m = 0; m < std::ssize(batches); ++m) {
      const Batch& batch = at(batches, m);
      const std::int64_t first = first_sequence(plan, replica, m) * plan.model.seq_length;
      for (subject.row = 0; subject.row < std::ssize(data); ++subject.row) {
        compare_rows(subject, at(data, subject.row), first, batch);
      }
      const auto begin = at(data, loss_weights_kind).values.begin() + first;
      weights =
          std::accumulate(begin, begin + std::ssize(batch.real) * plan.model.seq_length, weights);
      counted += batch.weight_sum;
    }
    findings_.compare(subject, counted, weights, "sum of loss weights");
  }

  /// Compares a batch's rows with the recorded sequences from element `first` on. A shorter row is
  /// compared with the beginning of its sequence.
  void compare_rows(const Findings::Subject& subject, const RecordedStream& whole,
                    std::int64_t first, const Batch& batch) {
    std::vector<float> values = numbers_of(batch, static_cast<int>(subject.row));
    const Tensor all = host_tensor(values.data(), std::ssize(values));
    for (std::int64_t row = 0; row < std::ssize(batch.real); ++row) {
      findings_.compare(subject, whole, first + row * whole.shape[1],
                        all.slice(row * batch.length, (row + 1) * batch.length));
    }
  }

  bool in_fp32() const { return !record_.rules.rounds; }
  /// The bound of the error of tensors and the norm.
  double bound(std::int64_t step) const {
    if (step == 1) return in_fp32() ? fp32_bound : half_bound;
    if (in_fp32()) return free_fp32_bound;
    // bf16 masters move by whole units of their last place or not at all.
    const OptimizerConfig& optimizer = given_.truth_config.optimizer;
    return optimizer.main_params_dtype == ComputeType::bf16 ? 2 * free_half_bound : free_half_bound;
  }
  double loss_bound(std::int64_t step) const {
    if (in_fp32()) return fp32_bound;
    return step == 1 ? loss_half_bound : 2 * loss_half_bound;
  }
  /// The bound of a loss or norm that changes by `apart` with different rounding.
  static double figure_apart(double apart) { return free_figures_apart * apart; }
  /// Whether losses and norms of this step can be compared at all.
  bool is_comparable(std::int64_t step) const {
    return step < record_.rounding.chaos.value_or(record_.day.steps + 1);
  }

  FoundScalars scalars(std::int64_t step) {
    const Config& config = given_.truth_config;
    const std::int64_t factor = own::gradient_factor(config.parallel, given_.truth.mesh);
    return {engine_.step_state(), step, static_cast<double>(factor)};
  }

  void compare_step(const StepReport& report) {
    const FreeStep& expected = at(record_.found.steps, report.step - 1);
    compare_free_scalars(findings_, given_.truth_config.optimizer, scalars(report.step),
                         expected.numbers);
    compare_report(report, expected);
    const FreeRounding::Step& rounding = at(record_.rounding.steps, report.step - 1);
    Findings::Subject subject{.step = report.step, .bound = bound(report.step)};
    const auto compare = [&](Phase phase, double found, double other, double apart) {
      subject.phase = phase;
      subject.min_bound = figure_apart(apart);
      findings_.compare(subject, found, other);
    };
    if (is_comparable(report.step)) {
      subject.bound = loss_bound(report.step);
      compare(Phase::free_loss, report.loss, expected.loss, rounding.loss);
    }
    subject.bound = bound(report.step);
    if (!expected.skipped) {
      if (is_comparable(report.step))
        compare(Phase::free_norm, report.grad_norm, expected.grad_norm, rounding.grad_norm);
      if (record_.day.has_gradients(report.step)) compare_gradients(subject, expected, rounding);
    }
    compare(Phase::free_scale, report.loss_scale.value_or(1), expected.loss_scale.value_or(1), 0);
  }

  /// Compares the figures of a report, except loss and norm.
  void compare_report(const StepReport& report, const FreeStep& expected) {
    // Row 100 sorts after the scalars from which these figures follow.
    Findings::Subject subject{.phase = Phase::free_scalar, .step = report.step, .row = 100};
    subject.beside = "the batches have";
    const auto compare = [&](const char* what, std::int64_t found, std::int64_t other) {
      findings_.compare(subject, static_cast<double>(found), static_cast<double>(other), what);
    };
    compare("tokens", report.tokens, expected.tokens);
    compare("positions", report.positions, expected.positions);
    compare("labels", report.labels, expected.labels);
    subject.bound = scalar_bound;
    subject.beside = "by verify's own arithmetic it is";
    findings_.compare(subject, report.lr, expected.numbers.learning_rate, "reported learning_rate");
  }

  /// Called after the step: gradients stay until the next step begins.
  void compare_gradients(Findings::Subject subject, const FreeStep& expected,
                         const FreeRounding::Step& rounding) {
    subject.phase = Phase::free_gradient;
    const double min_scale = 1e-3 * largest_of(expected.gradients);
    for (subject.row = 0; const ParamSpec& spec : table()) {
      const int index = static_cast<int>(subject.row);
      const std::vector<float>& whole = expected.gradients.at(spec.name);
      const HeldPart held{store().gradient(index), at(owners(), index).summed};
      subject.min_bound =
          free_gradients_apart * mean_in(held.part, spec, rounding.gradients.at(spec.name));
      findings_.compare_mean(subject, spec, whole, held, std::max(mean_distance(whole), min_scale));
      ++subject.row;
    }
  }

  /// The mean of `whole`, which has a value per element, over the part that this rank holds.
  double mean_in(const Slice& part, const ParamSpec& spec, const std::vector<float>& whole) const {
    double sum = 0;
    for (const BoxRun& piece : pieces_in(spec, given_.truth.mesh, world_.rank(), part)) {
      const auto begin = whole.begin() + piece.from;
      sum = std::accumulate(begin, begin + piece.length, sum);
    }
    return part.length() == 0 ? 0 : sum / static_cast<double>(part.length());
  }

  /// Compares the weights that layers read with the rounded masters that this rank updates.
  void compare_copies(std::int64_t step) {
    Findings::Subject subject{.phase = Phase::compute_copy, .step = step};
    subject.beside = "its master rounds to";
    for (subject.row = 0; const ParamSpec& spec : table()) {
      const int index = static_cast<int>(subject.row++);
      const Tensor copy = store().rounded(index);
      if (store().owned(index).length() == 0 || copy.empty()) continue;
      compare_own(subject, spec, values_of(copy),
                  rounded(values_of(store().master(index)), copy.dtype), store().owned(index));
    }
  }

  /// The plan's traffic for micro-batches shortened to their labels. If the plan treats
  /// micro-batches differently, it only gives the traffic at full length, an upper bound.
  std::vector<CollectiveUse> planned_traffic(const Plan& plan,
                                             const std::vector<Batch>& batches) const {
    const StagePlan& stage = plan.stage_of(world_.rank());
    const std::int64_t deferred = stage.deferral.microbatches;
    const bool alike = stage.forms.is_partial.empty() && deferred % plan.microbatches == 0;
    if (plan.length_step == 0 || !alike) {
      return estimate_communication(plan, world_.rank(), step_numbers(given_.truth_config));
    }
    std::map<std::int64_t, std::int64_t> lengths;  // number of micro-batches by length
    for (Batch batch : batches) {
      shorten(batch, plan.length_step);
      ++lengths[batch.length];
    }
    std::vector<CollectiveUse> sums;
    for (const auto& [length, count] : lengths) {
      const auto uses = estimate_communication(plan.at_length(length), world_.rank(),
                                               step_numbers(given_.truth_config));
      if (sums.empty()) {
        sums = uses;
        for (CollectiveUse& sum : sums) sum.count = sum.bytes = 0;
      }
      for (std::size_t i = 0; i < uses.size(); ++i) {
        sums[i].count += uses[i].count * count;
        sums[i].bytes += uses[i].bytes * count;
      }
    }
    for (CollectiveUse& sum : sums) {
      sum.count /= plan.microbatches;
      sum.bytes /= plan.microbatches;
    }
    return sums;
  }

  void compare_traffic_of(std::int64_t step, const std::vector<Batch>& batches) {
    Findings::Subject subject{.step = step, .beside = "the plan has"};
    const auto uses = planned_traffic(given_.truth.after(step - 1), batches);
    for (const TrafficRow& row : compare_traffic(uses, world_.traffic())) {
      const std::string name = std::string(name_of(row.operation)) + " '" + row.group + "'";
      const auto compare = [&](Phase phase, std::int64_t measured, std::int64_t planned) {
        subject.phase = phase;
        findings_.compare(subject, static_cast<double>(measured), static_cast<double>(planned),
                          name);
      };
      const bool fewer = row.fewer_calls && row.same_calls();
      compare(Phase::calls, row.measured.count, fewer ? row.measured.count : row.planned.count);
      // The plan has only an upper bound of the router's sends.
      const bool bounded = row.at_most && row.same_bytes();
      compare(Phase::bytes, row.measured.bytes, bounded ? row.measured.bytes : row.planned.bytes);
      ++subject.row;
    }
  }

  void evaluate(std::int64_t step, double expected, double rounding) {
    std::int64_t windows = given_.config.data.validation.max_sequences;
    if (given_.faults.windows) given_.faults.windows(world_.rank(), windows);
    const std::optional<double> found = validation_loss(engine_, plan_, data_.corpus(), windows);
    if (!found || !is_comparable(step)) return;
    findings_.compare({.phase = Phase::validation,
                       .step = step,
                       .bound = loss_bound(step),
                       .min_bound = figure_apart(rounding)},
                      *found, expected);
  }

  void export_weights() {
    if (given_.faults.exported) given_.faults.exported(world_.rank(), plan_);
    WholeParams whole = engine_.whole_parameters();
    if (world_.rank() == 0) {
      for (const auto& [name, values] : record_.found.exported)
        exported_[name] = values_of(whole.get(name));
      whole.end();
      compare_exported();
    } else {
      whole.give();
    }
    share_exported();
    compare_owned();
  }

  /// Makes rank 0's exported parameters available to all ranks.
  void share_exported() {
    if (world_.in_one_process()) {
      gather_values(*everyone_, 0.0);
      return;
    }
    for (const auto& [name, values] : record_.found.exported) {
      std::vector<float>& all = exported_[name];
      all.resize(values.size());
      std::string bytes(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(float));
      broadcast_bytes(*everyone_, bytes, 0);
      std::memcpy(all.data(), bytes.data(), bytes.size());
    }
  }

  /// Compares with the single rank's exported parameters, which are whole. The error is the mean
  /// difference over the mean distance by which the single rank moved the parameter.
  void compare_exported() {
    Findings own(record_.plan.mesh, 0);
    Findings::Subject subject{.phase = Phase::exported, .step = record_.day.steps};
    for (const ParamSpec& spec : record_.plan.stages.front().parameters) {
      const std::vector<float>& expected = record_.found.exported.at(spec.name);
      std::vector<float>& found = exported_.at(spec.name);
      // Checkpoints do not contain the rows that pad the vocabulary.
      const std::int64_t end = saved_shape(spec, record_.plan.model).numel();
      const HeldPart part = whole_part(host_tensor(found.data(), end));
      const double moved = std::max(mean_distance(expected, record_.initial.at(spec.name)),
                                    fp32_bound * largest_of(expected));
      subject.bound = export_bound;
      subject.min_bound = free_roundings_apart * record_.rounding.exported.at(spec.name);
      // If rounding moves a parameter as far as training does, a comparison says nothing.
      if (subject.min_bound < moved) own.compare_mean(subject, spec, expected, part, moved);
      ++subject.row;
    }
    findings_.merge(own);
  }

  /// Compares, on every rank, the masters with the exported parameters, and the resident weights
  /// with the rounded exported parameters.
  void compare_owned() {
    Findings::Subject subject{.step = record_.day.steps};
    for (subject.row = 0; const ParamSpec& spec : table()) {
      const int index = static_cast<int>(subject.row);
      const std::vector<float>& whole = exported_.at(spec.name);
      subject.phase = Phase::owned;
      subject.beside = "the export has";
      findings_.compare(subject, spec, whole, held_part(store(), index, 0));
      if (store().stays(index)) {
        const Tensor weight = store().resident(index);
        std::vector<float> values = values_of(weight);
        subject.phase = Phase::resident;
        subject.beside = "the export rounds to";
        findings_.compare(subject, spec, rounded(whole, weight.dtype),
                          whole_part(host_tensor(values.data(), std::ssize(values))));
      }
      ++subject.row;
    }
  }

  /// The values that this rank holds, without the rows that pad the vocabulary (never saved).
  std::vector<std::vector<float>> held_values() {
    std::vector<std::vector<float>> all;
    for (int i = 0; i < static_cast<int>(table().size()); ++i) {
      const ParamSpec& spec = at(table(), i);
      const std::int64_t end = saved_shape(spec, plan_.model).numel();
      for (int kind = 0; kind < kinds(); ++kind) {
        all.push_back(
            part_before(spec, given_.truth.mesh, world_.rank(), held_part(store(), i, kind), end));
      }
    }
    return all;
  }

  int kinds() const { return 1 + max_states(given_.config.optimizer); }

  void compare_figures(const StepReport& found, const StepReport& expected) {
    const auto compare = [&](const char* what, double one, double other) {
      if (one == other || (std::isnan(one) && std::isnan(other))) return;  // NaN in a skipped step
      findings_.compare(
          {.phase = Phase::same_figure, .step = found.step, .beside = without_checkpoint}, one,
          other, what);
    };
    const auto counted = [](std::int64_t count) { return static_cast<double>(count); };
    compare("loss", found.loss, expected.loss);
    compare("grad norm", found.grad_norm, expected.grad_norm);
    compare("learning rate", found.lr, expected.lr);
    compare("tokens", counted(found.tokens), counted(expected.tokens));
    compare("positions", counted(found.positions), counted(expected.positions));
    compare("labels", counted(found.labels), counted(expected.labels));
    compare("loss scale", found.loss_scale.value_or(0), expected.loss_scale.value_or(0));
  }

  /// Compares this rank's part of a tensor, at its place in the whole tensor.
  void compare_own(const Findings::Subject& subject, const ParamSpec& spec,
                   std::vector<float> found, const std::vector<float>& expected,
                   const Slice& part) {
    std::vector<float> whole(static_cast<std::size_t>(spec.global_shape.numel()));
    for (const BoxRun& piece : pieces_in(spec, given_.truth.mesh, world_.rank(), part)) {
      std::copy_n(expected.begin() + piece.to, piece.length, whole.begin() + piece.from);
    }
    findings_.compare(subject, spec, whole, {host_tensor(found.data(), std::ssize(found)), part});
  }

  ParamStore& store() { return engine_.parameters(); }
  const std::vector<ParamSpec>& table() const {
    return given_.truth.stage_of(world_.rank()).parameters;
  }
  const std::vector<Ownership>& owners() { return store().ownership().parameters; }

  const FreeRecord& record_;
  const VerifyInput given_;
  const Session session_;
  Plan plan_;  // the plan that the engine runs
  World& world_;
  Findings& findings_;
  WholeTensors& exported_;
  Trace trace_;
  std::unique_ptr<Group> everyone_;
  TrainingData data_;
  Engine engine_;
};

/// The state from which the run resumes, found as `train` finds it.
Continuation continue_from(const std::filesystem::path& run, const Day& day, const Config& config,
                           World& world) {
  const auto everyone = world.everyone("continuation");
  Continuation continuation = read_continuation(CheckpointFolder(run).of(day.noon), *everyone);
  find_data_place(continuation, config, *everyone);
  return continuation;
}

}  // namespace

LayoutVerdict judge_day(const FreeRecord& record, const VerifiedLayout& layout,
                        const Faults& faults, NoonCheckpoint& noon) {
  WholeTensors exported;
  noon.afternoons.resize(static_cast<std::size_t>(layout.plan.mesh.world_size()));
  return judge_ranks(layout, faults,
                     [&](const VerifyInput& given, World& world, Findings& findings) {
                       FreeRun day(record, given, {nullptr, noon.run}, world, findings, exported);
                       at(noon.afternoons, world.rank()) = day.run();
                     });
}

LayoutVerdict judge_afternoon(const FreeRecord& record, const VerifiedLayout& layout,
                              const Faults& faults, const NoonCheckpoint& noon, bool same) {
  WholeTensors exported;
  return judge_ranks(
      layout, faults, [&](const VerifyInput& given, World& world, Findings& findings) {
        const Continuation continuation =
            continue_from(noon.run, record.day, given.truth_config, world);
        const Plan rest = plan_of_day(given.truth_config, given.truth, continuation.progress);
        const VerifyInput afternoon{given.config, rest,   given.truth_config,
                                    rest,         faults, given.deadline_seconds};
        FreeRun run(record, afternoon, {&continuation, noon.run}, world, findings, exported);
        const Afternoon found = run.run();
        if (same) run.compare_bits(found, at(noon.afternoons, world.rank()));
      });
}

}  // namespace trainctl
