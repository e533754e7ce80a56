#include "verify/verify.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>

#include "base/error.h"
#include "comm/world.h"
#include "engine/engine.h"
#include "verify/alone.h"
#include "verify/data.h"
#include "verify/message_rounding.h"
#include "verify/record.h"

namespace trainctl {

namespace {

/// A layout may be so many times as far from the single rank as another rounding takes that rank
/// from itself.
constexpr double roundings_apart = 4;

/// What one rank runs with, and the plan as it was before any fault.
struct Given {
  const Config& config;
  const Plan& plan;
  const Plan& truth;
  const Faults& faults;
  double deadline_seconds;
};

/// One rank of a layout, compared after each of its steps.
class VerifiedRank {
 public:
  VerifiedRank(const Record& record, const Given& given, World& world)
      : record_(record),
        config_(given.config),
        plan_(given.plan),
        truth_(given.truth),
        faults_(given.faults),
        rank_(world.rank()),
        findings_(truth_.mesh, world.rank()),
        engine_(with_hook(engine_input(config_, plan_, given.deadline_seconds)), world) {}

  void run() {
    engine_.initialise();
    const WholeTensors& start = record_.states.front().kinds.front();
    compare_tensors({Phase::initial, 1, 0, fp32_bound}, start,
                    [&](int i) { return held_part(store(), i, 0); });
    for (step_ = 1; step_ <= static_cast<std::int64_t>(record_.steps.size()); ++step_) one_step();
  }

  const Findings& findings() const { return findings_; }

 private:
  const std::vector<ParamSpec>& table() const { return truth_.stage_of(rank_).parameters; }
  ParamStore& store() { return engine_.parameters(); }
  const RecordedStep& recorded() const {
    return record_.steps[static_cast<std::size_t>(step_ - 1)];
  }
  double allowed_rounding(const ParamSpec& spec) const {
    const auto rounding = recorded().roundings.find(spec.name);
    return rounding == recorded().roundings.end() ? 0 : roundings_apart * rounding->second;
  }
  /// Messages of another type round as the computation does.
  double bound() const {
    const bool fp32 = truth_.compute == DType::f32 && truth_.message_dtype == DType::f32;
    return fp32 ? fp32_bound : half_bound;
  }

  EngineInput with_hook(EngineInput input) {
    input.loss_scaling = record_.loss_scaling;
    input.hooks.after_forward = [this](int unit, int microbatch, const Tensor& stream) {
      compare_stream(unit, microbatch, stream);
    };
    input.hooks.finalize_model_grads = [this](ParamStore&) { gradients_summed(); };
    return input;
  }

  /// The rank's sequences of the micro-batch, of which sequence parallelism leaves it a part.
  void compare_stream(int unit, int microbatch, const Tensor& stream) {
    const RecordedStream& whole = recorded().streams[static_cast<std::size_t>(unit)];
    const std::int64_t first =
        first_sequence(truth_, truth_.mesh.coordinate(rank_, Axis::dp), microbatch);
    const std::int64_t part =
        truth_.sequence_parallel ? truth_.mesh.coordinate(rank_, Axis::tp) : 0;
    findings_.compare({.phase = Phase::activation,
                       .step = step_,
                       .bound = bound(),
                       .least_bound = roundings_apart * whole.rounding,
                       .row = unit},
                      whole, first * whole.shape[1] * whole.shape[2] + part * stream.numel(),
                      stream);
  }

  template <class Get>
  void compare_tensors(Findings::Subject subject, const WholeTensors& whole, Get get) {
    for (subject.row = 0; const ParamSpec& spec : table()) {
      subject.least_bound = subject.phase == Phase::gradient ? allowed_rounding(spec) : 0;
      findings_.compare(subject, spec, whole.at(spec.name), get(static_cast<int>(subject.row)));
      ++subject.row;
    }
  }

  template <class Get>
  void load(const WholeTensors& whole, Get get) {
    int index = 0;
    for (const ParamSpec& spec : table()) {
      load_part(spec, truth_.mesh, rank_, whole.at(spec.name), get(index++));
    }
  }

  void one_step() {
    const auto index = static_cast<std::size_t>(step_ - 1);
    const int kinds = record_.optimizer_states + 1;
    for (int kind = 0; kind < kinds; ++kind) {
      load(record_.states[index].kinds[static_cast<std::size_t>(kind)],
           [&](int i) { return held_part(store(), i, kind); });
    }
    forget_weights();
    engine_.masters_changed();
    auto batches =
        made_up_batches(config_, plan_, plan_.mesh.coordinate(rank_, Axis::dp), step_ - 1);
    if (faults_.batches) faults_.batches(rank_, step_, batches);
    const StepReport report = engine_.train_step(batches);
    engine_.complete_weights();
    if (faults_.parameters) faults_.parameters(rank_, step_, store());
    findings_.compare({Phase::loss, step_, 0, bound()}, report.loss, recorded().loss);
    compare_verdict();
    for (int kind = 0; kind < kinds; ++kind) {
      const auto phase = static_cast<Phase>(static_cast<int>(Phase::parameter) + kind);
      compare_tensors({phase, step_, 0, fp32_bound},
                      record_.states[index + 1].kinds[static_cast<std::size_t>(kind)],
                      [&](int i) { return held_part(store(), i, kind); });
    }
    compare_weights(record_.states[index + 1].kinds.front());
  }

  /// What layers read in the next step, where it stays on the rank: gathered, and perhaps rounded.
  void compare_weights(const WholeTensors& whole) {
    std::vector<float> values;
    const double rounded = truth_.compute == DType::f32 ? fp32_bound : half_bound;
    for (int i = 0; const ParamSpec& spec : table()) {
      if (store().stays(i)) {
        values = values_of(store().resident(i));
        const bool half = store().resident(i).dtype != DType::f32;
        findings_.compare({.phase = Phase::parameter,
                           .step = step_,
                           .bound = half ? rounded : fp32_bound,
                           .row = i},
                          spec, whole.at(spec.name),
                          whole_part(host_tensor(values.data(), std::ssize(values))));
      }
      ++i;
    }
  }

  void compare_verdict() {
    const StepState& found = engine_.step_state();
    const StepState& expected = recorded().state;
    if (!expected.found_inf) {
      findings_.compare({Phase::grad_norm, step_, 0, fp32_bound}, found.grad_norm,
                        expected.grad_norm);
    }
    findings_.compare({Phase::loss_scale, step_, 0, fp32_bound}, found.loss_scale,
                      expected.loss_scale);
    const auto compare_count = [&](std::int64_t own, std::int64_t other) {
      findings_.compare({Phase::scaler, step_, 0, fp32_bound}, static_cast<double>(own),
                        static_cast<double>(other));
    };
    compare_count(found.updates, expected.updates);
    compare_count(found.good_steps, expected.good_steps);
    compare_count(found.hysteresis, expected.hysteresis);
  }

  /// No number where this rank does not own a weight: the step must get it.
  void forget_weights() {
    std::vector<float> values;
    for (int i = 0; i < static_cast<int>(table().size()); ++i) {
      const Tensor weight = store().resident(i);
      const Slice own = store().stays(i) ? store().owned(i) : Slice{};
      values = values_of(weight);
      for (std::int64_t at = 0; at < std::ssize(values); ++at) {
        if (at >= own.begin && at < own.end) continue;
        values[static_cast<std::size_t>(at)] = std::numeric_limits<float>::quiet_NaN();
      }
      set_values(weight, values);
    }
  }

  /// The part of a gradient that is complete on this rank.
  HeldPart summed_part(int index) {
    const Ownership& own = store().ownership().parameters[static_cast<std::size_t>(index)];
    return {store().gradient(index), own.summed};
  }

  /// To those of the mean loss; they are replaced by the single rank's afterwards.
  void divide_gradients() {
    const auto factor = static_cast<float>(truth_.gradient.factor);
    const Tensor all = store().gradients();
    for (std::int64_t i = 0; i < all.numel(); ++i) all.as<float>()[i] /= factor;
  }

  void gradients_summed() {
    if (faults_.gradients) faults_.gradients(rank_, step_, store());
    if (!recorded().state.found_inf) {  // else there is nothing to measure
      if (truth_.gradient.factor != 1) divide_gradients();
      compare_tensors({Phase::gradient, step_, 1e-3 * recorded().largest_gradient, bound()},
                      recorded().gradients, [&](int i) { return summed_part(i); });
    }
    load(recorded().gradients, [&](int i) { return summed_part(i); });
  }

  const Record& record_;
  const Config& config_;
  const Plan& plan_;
  const Plan& truth_;
  const Faults& faults_;
  int rank_;
  std::int64_t step_ = 1;
  Findings findings_;
  Engine engine_;
};

}  // namespace

std::int64_t verification_bytes(const Config& config, const Plan& plan, std::int64_t steps,
                                std::int64_t records) {
  std::int64_t total = records * record_bytes(config, steps);
  const std::int64_t ranks_of_stage = plan.mesh.world_size() / plan.mesh.pp;
  for (const StagePlan& stage : plan.stages) {
    const MemoryEstimate& memory = stage.memory;
    total += ranks_of_stage * (memory.total() - memory.runtime - memory.data);
  }
  return total;
}

struct Verification::Impl {
  const Config config;
  const std::int64_t steps;
  std::map<MessageRounding, Record> records{};  // those that were needed so far

  const Record& record_of(const MessageRounding& rounding) {
    const auto found = records.find(rounding);
    if (found != records.end()) return found->second;
    return records.emplace(rounding, record_alone(config, steps, rounding)).first->second;
  }
};

Verification::Verification(const Config& config, std::int64_t steps)
    : impl_(std::make_unique<Impl>(config, steps)) {
  impl_->record_of({});
}

Verification::~Verification() = default;

LayoutVerdict Verification::compare(const Config& config, const Plan& plan, double deadline_seconds,
                                    const Faults& faults) const {
  const Record& record = impl_->record_of(message_rounding(plan));
  const auto start = std::chrono::steady_clock::now();
  Findings all(plan.mesh, 0);
  LayoutVerdict verdict;
  std::mutex mutex;  // of both
  const auto run_rank = [&](World& world) {
    Config own_config = config;
    own_config.train.on_bad_loss = OnBadLoss::stop;
    Plan own_plan = plan;
    if (faults.config) faults.config(world.rank(), own_config);
    if (faults.plan) faults.plan(world.rank(), own_plan);
    const std::unique_ptr<World> other = faults.world ? faults.world(world) : nullptr;
    VerifiedRank rank(record, {own_config, own_plan, plan, faults, deadline_seconds},
                      other ? *other : world);
    try {
      rank.run();
    } catch (const std::exception& failure) {
      const std::lock_guard lock(mutex);
      all.merge(rank.findings());
      if (verdict.failure.empty()) {
        verdict.failure = "rank " + std::to_string(world.rank()) + ": " + failure.what();
      }
      throw;
    }
    const std::lock_guard lock(mutex);
    all.merge(rank.findings());
  };
  try {
    run_thread_world(static_cast<int>(plan.mesh.world_size()),
                     {.deadline_seconds = deadline_seconds}, run_rank);
  } catch (const Error& failure) {
    if (verdict.failure.empty()) verdict.failure = failure.what();
  }
  verdict.first = all.first();
  verdict.largest = all.largest();
  verdict.equal = !verdict.first && verdict.failure.empty();
  verdict.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return verdict;
}

}  // namespace trainctl
