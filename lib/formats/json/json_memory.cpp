#include "formats/json/json_parts.h"
#include "formats/print/memory_models.h"
#include "formats/print/table_parts.h"
#include "formats/print/text.h"
#include "plan/cost/forms.h"

namespace trainctl {

namespace {

/// Of each layer of which something is made again or kept on the host.
void write_recompute_layers(JsonText& json, const Plan& plan) {
  json.key("recompute_layers").open_array();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& rows = plan.stages[static_cast<std::size_t>(stage)];
    for (const int unit : first_blocks(rows.units, plan.model.layers, plan.model.layers)) {
      const BlockForm usual = rows.forms.of(unit, false);
      const BlockForm partial = rows.forms.is_partial.empty() ? usual : rows.forms.of(unit, true);
      if (!usual.repeats() && !partial.repeats() && !usual.on_host) continue;
      json.open_object(JsonText::Form::one_line);
      json.member("stage", stage);
      json.member("layer", unit - 1);
      json.member("form", form_text(usual.again));
      json.member("partial_form", form_text(partial.again));
      json.member("on_host", usual.on_host);
      json.close();
    }
  }
  json.close();
}

}  // namespace

void write_memory(JsonText& json, const PrintInput& input) {
  const Plan& plan = input.plan;
  json.key("memory").open_array();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const MemoryEstimate& memory = plan.stages[static_cast<std::size_t>(stage)].memory;
    json.open_object(JsonText::Form::one_line);
    json.member("stage", stage);
    for (const auto& [name, bytes] : memory_rows(memory)) json.member(name, bytes);
    if (!memory.on_cuda) {  // a terminal is spared these rows
      json.member("library", memory.library);
      json.member("communicators", memory.communicators);
    }
    json.member("total", memory.total());
    json.member("device", memory.device());
    json.member("host", memory.host());
    json.close();
  }
  json.close();
  const std::vector<MemoryModelRows> models = memory_models(input);
  if (models.empty()) return;
  json.key("memory_models").open_object();
  for (const MemoryModelRows& model : models) {
    json.key(model.name).open_object(JsonText::Form::one_line);
    json.member("about", model.about);
    for (const ModelNumber& number : model.numbers) json.member(number.name, number.value);
    json.close();
  }
  json.close();
}

void write_recompute_forms(JsonText& json, const PrintInput& input) {
  write_recompute_layers(json, input.plan);
  if (input.config == nullptr) return;
  json.key("recompute_forms").open_array();
  const int stage = shown_stage(input);
  for (const RecomputeCost& cost :
       compare_forms(input.plan, stage, move_config(*input.config), input.config->cluster)) {
    json.open_object(JsonText::Form::one_line);
    json.member("stage", stage);
    json.member("kind", cost.experts ? "experts" : "dense");
    json.member("form", cost.form);
    json.member("in_use", cost.in_use);
    json.member("layer_bytes", cost.kept);
    json.member("repeated_bytes", cost.once);
    json.member("rank_bytes", cost.rank);
    json.member("host_bytes", cost.on_host);
    json.member("layer_flops", cost.flops);
    write_optional(json, "layer_seconds", cost.seconds);
    json.close();
  }
  json.close();
}

}  // namespace trainctl
