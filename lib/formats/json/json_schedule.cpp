#include "formats/json/json_parts.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

/// Compute and messages; the rest is in the refined rows.
bool is_listed(const Action& row) {
  switch (row.kind) {
    case ActionKind::forward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight:
    case ActionKind::send_forward:
    case ActionKind::receive_forward:
    case ActionKind::send_backward:
    case ActionKind::receive_backward:
    case ActionKind::wait_forward:
    case ActionKind::wait_backward: return true;
    default: return false;
  }
}

void write_table(JsonText& json, const Plan& plan) {
  json.key("table").open_array(JsonText::Form::one_line);
  const int microbatches = static_cast<int>(plan.microbatches);
  for (const ScheduleEntry& entry :
       schedule_table(microbatches, plan.map.chunks, plan.group_size)) {
    json.value(std::vector<int>{entry.microbatch, entry.chunk});
  }
  json.close();
}

void write_rank(JsonText& json, const Plan& plan, int stage, bool with_rows) {
  const StagePlan& held = plan.stages[static_cast<std::size_t>(stage)];
  json.open_object();
  json.member("pipeline_rank", stage);
  json.member("warmup", held.warmup);
  json.member("peak_microbatches", held.slots);
  json.key("actions").open_array(JsonText::Form::one_line);
  for (const Action& row : held.schedule) {
    if (is_listed(row)) json.value(short_name(row));
  }
  json.close();
  if (with_rows) {
    json.key("rows").open_array();
    for (const Action& row : held.actions) json.value(to_string(row));
    json.close();
  }
  json.close();
}

}  // namespace

void write_stages(JsonText& json, const Plan& plan) {
  json.key("stages").open_array();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    json.open_object();
    json.member("stage", stage);
    json.member("ranks", plan.mesh.world_size() / plan.mesh.pp);
    json.key("chunks").open_array();
    for (int chunk = 0; chunk < plan.map.chunks; ++chunk) {
      const ChunkLayers& held = plan.map.at(stage, chunk);
      json.open_object(JsonText::Form::one_line);
      json.member("chunk", chunk);
      json.member("layers", std::vector<std::int64_t>{held.first, held.count});
      json.member("embedding", held.embedding);
      json.member("head", held.head);
      json.member("units", std::vector<int>{held.first_unit, held.end_unit});
      json.close();
    }
    json.close();
    json.close();
  }
  json.close();
}

void write_schedule(JsonText& json, const PrintInput& input) {
  const Plan& plan = input.plan;
  json.key("schedule").open_object();
  json.member("name", plan.schedule);
  json.member("microbatches", plan.microbatches);
  json.member("microbatch_group_size_per_vp_stage", plan.group_size);
  json.member("bubble_fraction", plan.bubble_fraction);
  write_table(json, plan);
  json.key("ranks").open_array();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const bool here = input.rank >= 0 && plan.mesh.coordinate(input.rank, Axis::pp) == stage;
    write_rank(json, plan, stage, here);
  }
  json.close();
  json.close();
}

}  // namespace trainctl
