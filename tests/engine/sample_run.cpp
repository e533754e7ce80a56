#include "sample_run.h"

#include "base/error.h"
#include "base/philox.h"
#include "config/read/read.h"
#include "engine/engine.h"
#include "plan/prepare/make_plan.h"
#include "plan/rules/resolve.h"

namespace trainctl {

std::vector<std::string> with(std::vector<std::string> options,
                              const std::vector<std::string>& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

const std::string& sample_yaml() {
  static const std::string text = R"(
model: {family: gpt2, num_layers: 2, hidden_size: 32, ffn_hidden_size: 64, num_attention_heads: 4,
        seq_length: 16, vocab_size: 61}
data: {train: none, eod_mask_loss: true}
train: {steps: 100, global_batch_size: 8, seed: 7}
optimizer: {clip_grad_norm: 0.5}
lr_schedule: {style: cosine, max_lr: 1.0e-2, min_lr: 1.0e-3}
parallel: {threads_per_rank: 1, bucket_size: 2000}
)";
  return text;
}

namespace {

/// Sample `index`: a repeating pattern with noise, so that there is something to learn.
std::int32_t token_of(std::int64_t sample, std::int64_t place) {
  const Philox random(99, static_cast<std::uint64_t>(sample));
  const auto noise = random.bits(static_cast<std::uint64_t>(place)) % 8 == 0 ? 1 : 0;
  return static_cast<std::int32_t>((sample * 5 + place * 3 + noise) % 61);
}

Batch make_batch(const Plan& plan, std::int64_t first_sample) {
  Batch batch;
  batch.length = plan.model.seq_length;
  batch.real.assign(static_cast<std::size_t>(plan.fed_sequences()), batch.length);
  for (std::int64_t s = first_sample; s < first_sample + plan.fed_sequences(); ++s) {
    for (std::int64_t i = 0; i < plan.model.seq_length; ++i) {
      batch.tokens.push_back(token_of(s, i));
      batch.labels.push_back(token_of(s, i + 1));
      batch.loss_weight.push_back(i % 5 == 4 ? 0.25F : 1.0F);
      batch.position.push_back(static_cast<std::int32_t>(i));
      batch.document.push_back(i < 6 ? 0 : 1);
      batch.global_token.push_back(s * plan.model.seq_length + i);
      batch.weight_sum += static_cast<double>(batch.loss_weight.back());
    }
  }
  return batch;
}

}  // namespace

std::vector<StepReport> train_sample_rank(const SampleRun& run, World& world) {
  ReadResult read = read_config_text(sample_yaml(), "sample.yaml", run.set_options);
  if (run.change) run.change(read.config);
  const Plan plan =
      make_plan(read.config, {.world_size = world.size(), .ranks_per_host = world.size()},
                read.sources, read.diagnostics);
  require(!read.diagnostics.has_errors(), ExitCode::config, render_text(read.diagnostics, false));
  Engine engine({.plan = plan,
                 .train = read.config.train,
                 .optimizer = read.config.optimizer,
                 .lr_schedule = read.config.lr_schedule,
                 .loss_scaling = resolve_loss_scaling(read.config),
                 .deadline_seconds = run.deadline_seconds,
                 .separate_documents = read.config.data.reset_attention_mask,
                 .count_loss_weights = masks_tokens(read.config.data),
                 .hooks = run.hooks,
                 .trace = run.make_trace ? run.make_trace(world, plan) : nullptr,
                 .max_attention_logit = read.config.log.max_attention_logit,
                 .meet = meets_for_timers(read.config)},
                world);
  engine.initialise();
  if (run.prepare) run.prepare(engine, plan, world);
  std::vector<StepReport> reports;
  for (std::int64_t step = run.first_step; step < run.first_step + run.steps; ++step) {
    std::vector<Batch> batches;
    for (std::int64_t m = 0; m < plan.after(step).microbatches; ++m) {
      const std::int64_t replica =
          plan.full_batch ? 0 : plan.mesh.coordinate(world.rank(), Axis::dp);
      batches.push_back(make_batch(plan, samples_in(plan.ramp, step) +
                                             (m * plan.mesh.dp + replica) * plan.micro_batch_size));
    }
    if (run.change_batch) {
      for (Batch& batch : batches) run.change_batch(plan, batch);
    }
    reports.push_back(engine.train_step(batches));
  }
  engine.check_replicas();
  if (run.inspect) run.inspect(engine, plan, world);
  if (run.after_training) run.after_training(world, plan);
  return reports;
}

std::vector<StepReport> train_sample(const SampleRun& run) {
  std::vector<StepReport> reports;
  run_thread_world(run.ranks, run.world, [&](World& world) {
    const std::unique_ptr<World> wrapped = run.wrap ? run.wrap(world) : nullptr;
    auto mine = train_sample_rank(run, wrapped ? *wrapped : world);
    if (world.rank() == 0) reports = std::move(mine);
  });
  return reports;
}

}  // namespace trainctl
