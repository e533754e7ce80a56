#include "plan/cost/decoding.h"

#include <algorithm>

#include "plan/cost/forms.h"

namespace trainctl {

namespace {

/// The model in which the tokens of one pass are one routing group without a limit: nothing else
/// may depend on how the tokens come.
ModelShape decoded_model(ModelShape model, std::int64_t tokens, std::int64_t positions) {
  model.positions = std::min(model.positions, positions);
  model.seq_length = tokens;
  model.longest = 0;
  model.routing_group = 0;
  model.capacity_group = 0;
  model.capacity_factor = 0;
  return model;
}

}  // namespace

Plan decoding_plan(const Plan& plan, std::int64_t tokens, std::int64_t positions) {
  Plan made;
  made.mesh = plan.mesh;
  made.model = decoded_model(plan.model, tokens, positions);
  made.tokens = token_layout(1, tokens);
  made.length_step = 1;
  made.head_tokens = 1;
  made.compute = plan.compute;
  made.message_dtype = plan.compute;
  made.device = plan.device;
  made.splits = for_decoding(plan.splits);
  made.micro_batch_size = 1;
  made.microbatches = 1;
  made.threads_per_rank = plan.threads_per_rank;
  made.share_devices = plan.share_devices;
  made.messages = plan.messages;
  made.messages.casts = false;
  made.result_broadcast = plan.result_broadcast;
  made.map = plan.map;
  made.local = end_shape(made.model, made.mesh_share(), made.splits.head);
  for (int stage = 0; stage < made.map.stages; ++stage) {
    const StagePlan& whole = plan.stages[static_cast<std::size_t>(stage)];
    StagePlan& rows = made.stages.emplace_back();
    rows.units = whole.units;
    rows.forward_actions = whole.forward_actions;
    ActivationTable table = activations_of(made, stage, {});
    rows.activations = std::move(table.rows);
    rows.declared = std::move(table.places);
    rows.activation_slots =
        assign_slots(rows.activations, rows.forward_actions, forward_input(made, stage));
  }
  return made;
}

}  // namespace trainctl
