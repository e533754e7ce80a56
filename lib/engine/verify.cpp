#include "engine/verify.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "comm/world.h"
#include "config/standing.h"
#include "engine/engine.h"
#include "engine/verify_data.h"
#include "engine/verify_record.h"
#include "plan/resolve.h"

namespace trainctl {

namespace {

EngineInput engine_input(const Config& config, const Plan& plan, double deadline_seconds) {
  return {.plan = plan,
          .train = config.train,
          .optimizer = config.optimizer,
          .lr_schedule = config.lr_schedule,
          .deadline_seconds = deadline_seconds,
          .separate_documents = config.data.reset_attention_mask,
          .count_loss_weights = true};
}

/// The same training on one rank. The number of micro-batches follows from their size.
Config alone(Config config) {
  config.parallel = for_one_rank(config.parallel);
  config.parallel.threads_per_rank = 1;
  config.train.micro_batch_num.reset();
  config.train.on_bad_loss = OnBadLoss::stop;
  return config;
}

Plan plan_alone(const Config& config) {
  Diagnostics diagnostics;
  Plan plan = make_plan(config, {}, {}, diagnostics);
  require(!diagnostics.has_errors(), ExitCode::config,
          "one rank alone cannot run this: " + render_text(diagnostics, false));
  return plan;
}

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
        ownership_(make_ownership(truth_, world.rank())),
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
  double bound() const { return plan_.compute == DType::f32 ? fp32_bound : half_bound; }

  EngineInput with_hook(EngineInput input) {
    input.hooks.finalize_model_grads = [this](ParamStore&) { gradients_summed(); };
    return input;
  }

  template <class Get>
  void compare_tensors(const Findings::Subject& subject, const WholeTensors& whole, Get get) {
    int index = 0;
    for (const ParamSpec& spec : table()) {
      findings_.compare(subject, spec, whole.at(spec.name), get(index++));
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
           [&](int i) { return kind == 0 ? own_master(i) : held_part(store(), i, kind); });
    }
    store().refresh_compute(engine_.ops());
    auto batches =
        made_up_batches(config_, plan_, plan_.mesh.coordinate(rank_, Axis::dp), step_ - 1);
    if (faults_.batches) faults_.batches(rank_, step_, batches);
    const StepReport report = engine_.train_step(batches);
    engine_.complete_parameters();
    if (faults_.parameters) faults_.parameters(rank_, step_, store());
    findings_.compare({Phase::loss, step_, 0, bound()}, report.loss, recorded().loss);
    findings_.compare({Phase::grad_norm, step_, 0, fp32_bound}, report.grad_norm,
                      recorded().grad_norm);
    for (int kind = 0; kind < kinds; ++kind) {
      const auto phase = static_cast<Phase>(static_cast<int>(Phase::parameter) + kind);
      compare_tensors({phase, step_, 0, fp32_bound},
                      record_.states[index + 1].kinds[static_cast<std::size_t>(kind)],
                      [&](int i) { return held_part(store(), i, kind); });
    }
  }

  /// The part of a master that this rank updates. No number elsewhere: the step must get it.
  HeldPart own_master(int index) {
    const Slice part = ownership_.parameters[static_cast<std::size_t>(index)].owned;
    const Tensor master = store().master(index);
    const Tensor all = master.view({master.numel()});
    if (part.end - part.begin < all.numel()) {
      std::fill_n(all.as<float>(), all.numel(), std::numeric_limits<float>::quiet_NaN());
    }
    return {all.slice(part.begin, part.end), part};
  }

  /// The part of a gradient that is complete on this rank.
  HeldPart summed_part(int index) {
    const Slice part = ownership_.parameters[static_cast<std::size_t>(index)].summed;
    const Tensor all = store().gradient(index);
    return {all.view({all.numel()}).slice(part.begin, part.end), part};
  }

  /// To those of the mean loss; they are replaced by the single rank's afterwards.
  void divide_gradients() {
    const auto factor = static_cast<float>(truth_.gradient.factor);
    const Tensor all = store().gradients();
    for (std::int64_t i = 0; i < all.numel(); ++i) all.as<float>()[i] /= factor;
  }

  void gradients_summed() {
    if (faults_.gradients) faults_.gradients(rank_, step_, store());
    if (truth_.gradient.factor != 1) divide_gradients();
    compare_tensors({Phase::gradient, step_, 1e-3 * recorded().largest_gradient, bound()},
                    recorded().gradients, [&](int i) { return summed_part(i); });
    load(recorded().gradients, [&](int i) { return summed_part(i); });
  }

  const Record& record_;
  const Config& config_;
  const Plan& plan_;
  const Plan& truth_;
  const Faults& faults_;
  int rank_;
  OwnershipTable ownership_;
  std::int64_t step_ = 1;
  Findings findings_;
  Engine engine_;
};

}  // namespace

struct Verification::Impl {
  Record record;
};

Verification::Verification(const Config& config, std::int64_t steps)
    : impl_(std::make_unique<Impl>()) {
  const Config single = alone(config);
  const Plan plan = plan_alone(single);
  Record& record = impl_->record;
  record.optimizer_states = optimizer_states(single.optimizer);
  RecordedStep step;
  EngineInput input = engine_input(single, plan, single.parallel.deadline_seconds);
  input.hooks.finalize_model_grads = [&](ParamStore& store) {
    step.gradients = record_gradients(store);
  };
  const auto world = self_world();
  Engine engine(input, *world);
  engine.initialise();
  for (std::int64_t index = 0; index < steps; ++index) {
    record.states.push_back(record_state(engine.parameters(), record.optimizer_states));
    const StepReport report = engine.train_step(made_up_batches(single, plan, 0, index));
    step.loss = report.loss;
    step.grad_norm = report.grad_norm;
    step.largest_gradient = largest_of(step.gradients);
    record.steps.push_back(std::move(step));
    step = {};
  }
  record.states.push_back(record_state(engine.parameters(), record.optimizer_states));
}

Verification::~Verification() = default;

LayoutVerdict Verification::compare(const Config& config, const Plan& plan, double deadline_seconds,
                                    const Faults& faults) const {
  const auto start = std::chrono::steady_clock::now();
  Findings all(plan.mesh, 0);
  std::mutex mutex;
  LayoutVerdict verdict;
  const auto run_rank = [&](World& world) {
    Config own_config = config;
    own_config.train.on_bad_loss = OnBadLoss::stop;
    Plan own_plan = plan;
    if (faults.config) faults.config(world.rank(), own_config);
    if (faults.plan) faults.plan(world.rank(), own_plan);
    const std::unique_ptr<World> other = faults.world ? faults.world(world) : nullptr;
    VerifiedRank rank(impl_->record, {own_config, own_plan, plan, faults, deadline_seconds},
                      other ? *other : world);
    try {
      rank.run();
    } catch (...) {
      const std::lock_guard lock(mutex);
      all.merge(rank.findings());
      throw;
    }
    const std::lock_guard lock(mutex);
    all.merge(rank.findings());
  };
  try {
    run_thread_world(static_cast<int>(plan.mesh.world_size()),
                     {.deadline_seconds = deadline_seconds}, run_rank);
  } catch (const Error& error) {
    verdict.failure = error.what();
  }
  verdict.first = all.first();
  verdict.largest = all.largest();
  verdict.equal = !verdict.first && verdict.failure.empty();
  verdict.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return verdict;
}

}  // namespace trainctl
