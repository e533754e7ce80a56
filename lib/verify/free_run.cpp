#include "verify/free_run.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/at.h"
#include "engine/engine.h"
#include "plan/cost/estimate.h"
#include "plan/tables/shard.h"
#include "run/measured.h"
#include "run/steps.h"
#include "verify/routing.h"
#include "verify/verified_rank.h"

namespace trainctl {

namespace {

/// A layout may be so many times as far from the single rank as another rounding takes that rank
/// from itself.
constexpr double free_roundings_apart = 4;

/// As a tensor of that type has them.
std::vector<float> rounded(std::vector<float> values, DType dtype) {
  if (dtype == DType::f32) return values;
  std::vector<std::byte> narrow(values.size() * static_cast<std::size_t>(size_of(dtype)));
  const Tensor tensor{narrow.data(), {std::ssize(values)}, dtype, DeviceKind::cpu};
  set_values(tensor, values);
  return values_of(tensor);
}

class FreeRun {
 public:
  /// `exported` is filled by rank 0 and read by all ranks.
  FreeRun(const FreeRecord& record, const Given& given, World& world, Findings& findings,
          WholeTensors& exported)
      : record_(record),
        given_(given),
        plan_(given.plan),
        world_(world),
        findings_(findings),
        exported_(exported),
        trace_(plan_.stage_of(world.rank()).actions, free_steps),
        everyone_(world.everyone("free run")),
        engine_(input(), world) {}

  void run(const FreeData& data) {
    engine_.initialise();
    if (given_.faults.loaded) given_.faults.loaded(world_.rank(), store());
    const Corpus corpus = data.open(given_.config, plan_.model, *everyone_);
    train(corpus);
    evaluate(corpus);
    export_weights();
  }

 private:
  EngineInput input() {
    EngineInput input = run_engine_input(given_.config, plan_);
    input.deadline_seconds = given_.deadline_seconds;
    input.loss_scaling = record_.loss_scaling;
    input.request = [] { return 0; };
    input.trace = &trace_;
    if (in_fp32()) return input;
    input.hooks.after_router = [this](std::int64_t layer, const Tensor& tokens,
                                      const Tensor& logits) {
      const std::int64_t step = engine_.completed_steps();
      const RecordedStream& router = at(at(record_.found.steps, step).routers, layer);
      for_step_tokens(given_.truth, step, tokens,
                      [&](const RoutedTokens& run) { route_as_recorded(router, run, logits); });
    };
    return input;
  }

  void train(const Corpus& corpus) {
    BatchLoader::Order order =
        loader_order(given_.config, plan_, world_.rank(), engine_.train_state(), free_steps);
    if (given_.faults.order) given_.faults.order(world_.rank(), order);
    BatchLoader loader(corpus.train, loader_rule(corpus, plan_), order);
    for (std::int64_t step = 1; step <= free_steps; ++step) {
      const std::vector<Batch>& batches = loader.next_step();
      const StepReport report = engine_.train_step(batches);
      if (given_.faults.parameters) given_.faults.parameters(world_.rank(), step, store());
      compare_step(report);
      compare_copies(step);
      compare_traffic_of(step, batches);
    }
  }

  bool in_fp32() const { return trainctl::in_fp32(given_.truth); }
  /// Of tensors and the norm.
  double bound(std::int64_t step) const {
    if (step == 1) return in_fp32() ? fp32_bound : half_bound;
    return in_fp32() ? free_fp32_bound : free_half_bound;
  }
  double loss_bound() const { return in_fp32() ? fp32_bound : loss_half_bound; }

  void compare_step(const StepReport& report) {
    const FreeStep& expected = at(record_.found.steps, report.step - 1);
    const FreeRounding::Step& rounding = at(record_.rounding.steps, report.step - 1);
    Findings::Subject subject{.step = report.step, .bound = bound(report.step)};
    const auto compare = [&](Phase phase, double found, double other, double apart) {
      subject.phase = phase;
      subject.least_bound = free_roundings_apart * apart;
      findings_.compare(subject, found, other);
    };
    subject.bound = loss_bound();
    compare(Phase::free_loss, report.loss, expected.loss, rounding.loss);
    subject.bound = bound(report.step);
    if (!expected.skipped) {
      compare(Phase::free_norm, report.grad_norm, expected.grad_norm, rounding.grad_norm);
      compare_gradients(subject, expected, rounding);
    }
    compare(Phase::free_scale, report.loss_scale.value_or(1), expected.loss_scale.value_or(1), 0);
  }

  /// They stay until the next step begins.
  void compare_gradients(Findings::Subject subject, const FreeStep& expected,
                         const FreeRounding::Step& rounding) {
    subject.phase = Phase::free_gradient;
    const double least_scale = 1e-3 * largest_of(expected.gradients);
    for (subject.row = 0; const ParamSpec& spec : table()) {
      const int index = static_cast<int>(subject.row);
      const std::vector<float>& whole = expected.gradients.at(spec.name);
      const HeldPart held{store().gradient(index), at(owners(), index).summed};
      subject.least_bound =
          free_roundings_apart * mean_in(held.part, spec, rounding.gradients.at(spec.name));
      findings_.compare_mean(subject, spec, whole, held,
                             std::max(mean_distance(whole), least_scale));
      ++subject.row;
    }
  }

  /// Of what this rank has of a whole tensor.
  double mean_in(const Slice& part, const ParamSpec& spec, const std::vector<float>& whole) const {
    double sum = 0;
    for (const ShardPiece& piece : pieces_in(spec, given_.truth.mesh, world_.rank(), part)) {
      const auto begin = whole.begin() + piece.global;
      sum = std::accumulate(begin, begin + piece.length, sum);
    }
    return part.length() == 0 ? 0 : sum / static_cast<double>(part.length());
  }

  /// What the layers read of what this rank updates are its masters, rounded.
  void compare_copies(std::int64_t step) {
    Findings::Subject subject{.phase = Phase::compute_copy, .step = step};
    subject.beside = "its master rounds to";
    for (subject.row = 0; const ParamSpec& spec : table()) {
      const int index = static_cast<int>(subject.row++);
      const Tensor copy = store().rounded(index);
      if (store().owned(index).length() == 0 || copy.empty()) continue;
      // Compared in the place that they have in the whole tensor.
      std::vector<float> found = values_of(copy);
      const std::vector<float> own = rounded(values_of(store().master(index)), copy.dtype);
      std::vector<float> expected(static_cast<std::size_t>(spec.global_shape.numel()));
      const HeldPart part{host_tensor(found.data(), std::ssize(found)), store().owned(index)};
      for (const ShardPiece& piece : pieces_in(spec, given_.truth.mesh, world_.rank(), part.part)) {
        std::copy_n(own.begin() + piece.local, piece.length, expected.begin() + piece.global);
      }
      findings_.compare(subject, spec, expected, part);
    }
  }

  /// What the plan has for micro-batches as long as the labels of these need. Where they are not
  /// all treated alike it has the most that there may be.
  std::vector<CollectiveUse> planned_traffic(const Plan& plan,
                                             const std::vector<Batch>& batches) const {
    const StagePlan& stage = plan.stage_of(world_.rank());
    const std::int64_t deferred = stage.deferral.microbatches;
    const bool alike = stage.forms.is_partial.empty() && deferred % plan.microbatches == 0;
    if (plan.length_step == 0 || !alike) {
      return estimate_communication(plan, world_.rank(), given_.truth_config);
    }
    std::map<std::int64_t, std::int64_t> lengths;  // and how many have them
    for (Batch batch : batches) {
      shorten(batch, plan.length_step);
      ++lengths[batch.length];
    }
    std::vector<CollectiveUse> sums;
    for (const auto& [length, count] : lengths) {
      const auto uses =
          estimate_communication(plan.at_length(length), world_.rank(), given_.truth_config);
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
      // What the router sends is only bounded.
      const bool bounded = row.at_most && row.same_bytes();
      compare(Phase::bytes, row.measured.bytes, bounded ? row.measured.bytes : row.planned.bytes);
      ++subject.row;
    }
  }

  void evaluate(const Corpus& corpus) {
    std::int64_t windows = 0;
    if (given_.faults.windows) given_.faults.windows(world_.rank(), windows);
    const std::optional<double> found = validation_loss(engine_, plan_, corpus, windows);
    if (!found) return;
    const Findings::Subject subject{
        .phase = Phase::validation,
        .step = free_steps,
        .bound = loss_bound(),
        .least_bound = free_roundings_apart * record_.rounding.validation_loss};
    findings_.compare(subject, *found, record_.found.validation_loss);
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
    gather_values(*everyone_, 0.0);  // now all ranks may read them
    compare_owned();
  }

  /// With the single rank's, whose own rows say what the whole parameters are. The mean difference
  /// is divided by the mean distance that the parameter has moved.
  void compare_exported() {
    Findings own(record_.plan.mesh, 0);
    Findings::Subject subject{.phase = Phase::exported, .step = free_steps};
    for (const ParamSpec& spec : record_.plan.stages.front().parameters) {
      const std::vector<float>& expected = record_.found.exported.at(spec.name);
      std::vector<float>& found = exported_.at(spec.name);
      const HeldPart part = whole_part(host_tensor(found.data(), std::ssize(found)));
      const double moved = std::max(mean_distance(expected, record_.initial.at(spec.name)),
                                    fp32_bound * largest_of(expected));
      subject.bound = export_bound;
      subject.least_bound = free_roundings_apart * record_.rounding.exported.at(spec.name);
      // Where rounding moves a parameter as far as training does, there is nothing to compare.
      if (subject.least_bound < moved) own.compare_mean(subject, spec, expected, part, moved);
      ++subject.row;
    }
    findings_.merge(own);
  }

  /// Of every rank: the masters are what was exported, the weights that stay are that, rounded.
  void compare_owned() {
    Findings::Subject subject{.step = free_steps};
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

  ParamStore& store() { return engine_.parameters(); }
  const std::vector<ParamSpec>& table() const {
    return given_.truth.stage_of(world_.rank()).parameters;
  }
  const std::vector<Ownership>& owners() { return store().ownership().parameters; }

  const FreeRecord& record_;
  const Given given_;
  Plan plan_;  // as the engine has it
  World& world_;
  Findings& findings_;
  WholeTensors& exported_;
  Trace trace_;
  std::unique_ptr<Group> everyone_;
  Engine engine_;
};

}  // namespace

LayoutVerdict judge_free_run(const FreeRecord& record, const FreeData& data,
                             const VerifiedLayout& layout, const Faults& faults) {
  WholeTensors exported;
  return judge_ranks(layout, faults, [&](const Given& given, World& world, Findings& findings) {
    FreeRun(record, given, world, findings, exported).run(data);
  });
}

}  // namespace trainctl
