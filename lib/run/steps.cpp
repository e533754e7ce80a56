#include "run/steps.h"

#include <algorithm>

#include "base/units.h"
#include "checkpoint/load.h"
#include "plan/rules/resolve.h"

namespace trainctl {

EngineInput run_engine_input(const Config& config, const Plan& plan) {
  return {.plan = plan,
          .train = config.train,
          .optimizer = config.optimizer,
          .lr_schedule = config.lr_schedule,
          .loss_scaling = resolve_loss_scaling(config),
          .deadline_seconds = config.parallel.deadline_seconds,
          .separate_documents = config.data.reset_attention_mask,
          .count_loss_weights = masks_tokens(config.data),
          .max_attention_logit = config.log.max_attention_logit,
          .meet = meets_for_timers(config)};
}

BatchRule loader_rule(const Corpus& corpus, const Plan& plan) {
  BatchRule rule = corpus.rule;
  rule.sequences = plan.fed_sequences();
  rule.length_step = plan.length_step;
  return rule;
}

BatchRule evaluation_rule(const Corpus& corpus, const Plan& plan) {
  BatchRule rule = loader_rule(corpus, plan);
  rule.sequences = plan.micro_batch_size;
  return rule;
}

namespace {

/// The steps after the first `completed` ones that have fewer micro-batches, due to a batch ramp.
std::vector<BatchLoader::Order::Smaller> smaller_steps(const Plan& plan, std::int64_t completed) {
  std::vector<BatchLoader::Order::Smaller> steps;
  for (std::size_t i = 0; i + 1 < plan.ramp.size(); ++i) {
    const std::int64_t end = plan.ramp[i + 1].first_step;
    const std::int64_t begin = std::max(completed, plan.ramp[i].first_step);
    if (begin < end) steps.push_back({end - begin, plan.after(begin).microbatches});
  }
  return steps;
}

}  // namespace

BatchLoader::Order loader_order(const Config& config, const Plan& plan, int rank,
                                const TrainState& state, std::int64_t steps) {
  return {.global_batch = plan.tokens_per_step() / plan.model.seq_length,
          .microbatches = plan.microbatches,
          .data_parallel = plan.full_batch ? 1 : plan.mesh.dp,
          .data_rank = plan.full_batch ? 0 : plan.mesh.coordinate(rank, Axis::dp),
          .first_sample = state.samples,
          .steps = steps,
          .ahead = config.data.prefetch,
          .smaller = smaller_steps(plan, state.step)};
}

void load_run(Engine& engine, const Manifest& manifest, const std::filesystem::path& from,
              const Plan& plan, const OptimizerConfig& optimizer, int rank) {
  check_fits(manifest, from, plan, optimizer);
  load_checkpoint(manifest, from, plan, optimizer, rank, engine.parameters());
  engine.resume(manifest.state);
}

std::string change_of_pace(const Progress& done, const Plan& plan) {
  const SchedulePace& now = plan.length.pace;
  const SchedulePace before = done.planned.value_or(RunLength{}).pace;
  if (now.per_update == before.per_update) return "";
  return "the rest takes " + std::to_string(plan.steps - done.steps) +
         " steps of the present size, not " + std::to_string(done.planned_steps - done.steps) +
         "; each of them moves the learning rate's schedule on by " +
         printed("%.4g", now.per_update) + " of its steps";
}

std::optional<double> validation_loss(Engine& engine, const Plan& plan, const Corpus& corpus,
                                      std::int64_t max_sequences,
                                      const std::function<bool()>& ends) {
  return engine.evaluate(*corpus.validation, evaluation_rule(corpus, plan), max_sequences, ends);
}

}  // namespace trainctl
