#include "config/report/render_json.h"
#include "formats/json/json_parts.h"
#include "formats/print/ramp_rows.h"
#include "formats/print/text.h"
#include "plan/cost/kind_costs.h"
#include "plan/cost/ledger.h"
#include "plan/model/form.h"

#include "config/schema/words.h"

namespace trainctl {

namespace {

using enum JsonText::Form;

void write_mesh(JsonText& json, const Mesh& mesh) {
  json.key("mesh").open_object(one_line);
  json.member("order", order_text(mesh.order));
  for (const auto& [name, axis] : public_axes()) json.member(name, mesh.size(axis));
  json.close();
}

void write_rank(JsonText& json, const Mesh& mesh, std::int64_t rank) {
  json.key("rank").open_object(one_line);
  json.member("rank", rank);
  json.key("coordinates").open_object();
  for (const auto& [name, axis] : public_axes()) json.member(name, mesh.coordinate(rank, axis));
  json.close();
  json.member("stage", mesh.coordinate(rank, Axis::pp));
  json.close();
}

void write_kinds(JsonText& json, const Plan& plan) {
  json.key("kinds").open_array();
  for (const KindCost& cost : kind_costs(plan)) {
    const LayerKind& kind = cost.kind;
    json.open_object(one_line);
    json.member("name", kind.name);
    json.member("layers", std::ssize(cost.layers));
    json.member("ffn", kind.ffn);
    json.member("kv_heads", kind.kv_heads);
    json.member("qk_layernorm", kind.qk_norm);
    json.member("experts", kind.experts);
    json.member("rope", kind.rope);
    json.member("parameters_of_a_layer", cost.parameters);
    json.member("flops_of_a_layer", cost.flops);
    json.member("kept_bytes_of_a_layer", cost.kept);
    json.close();
  }
  json.close();
  json.key("kind_of_layer").open_array(one_line);
  for (std::int64_t layer = 0; layer < plan.model.layers; ++layer) {
    json.value(plan.model.kind_number(layer));
  }
  json.close();
}

/// Without a configuration, the layers with experts are told by first_dense_layers alone.
void write_model(JsonText& json, const PrintInput& input) {
  const Plan& plan = input.plan;
  const ModelShape& model = plan.model;
  MoeConfig moe;
  moe.first_dense_layers = dense_layers_first(model);
  if (input.config != nullptr) moe = input.config->moe;

  json.key("model").open_object();
  json.member("family", word_of(model.family));
  json.member("layers", model.layers);
  json.member("hidden", model.hidden);
  json.member("ffn", model.kind(0).ffn);
  json.member("heads", model.heads);
  json.member("kv_heads", model.kind(0).kv_heads);
  json.member("head_dim", model.head_dim);
  json.member("seq_length", model.seq_length);
  json.member("positions", model.positions);
  json.member("vocab", model.vocab);
  json.member("padded_vocab", model.padded_vocab);
  json.member("tied", model.tied);
  json.member("experts", model.experts);
  json.member("router_topk", model.topk);
  json.member("expert_ffn", model.expert_ffn);
  json.member("shared_expert_ffn", model.shared_ffn);
  json.member("first_dense_layers", moe.first_dense_layers);
  json.member("expert_layer_frequency", std::max<std::int64_t>(1, moe.layer_frequency));
  if (model.names_kinds()) write_kinds(json, plan);
  json.close();
}

/// One rank has everything: then all are whole.
void write_splits(JsonText& json, const Plan& plan) {
  const bool alone = plan.mesh.tp == 1;
  const auto layers = [&](const std::string& text) { return alone ? "whole" : text; };
  json.key("operator_splits").open_object(one_line);
  json.member("embedding", word_of(plan.splits.embedding));
  json.member("attention", layers(plan.splits.attention_text()));
  json.member("feed_forward", layers(plan.splits.feed_forward_text()));
  json.member("head", word_of(plan.splits.head));
  json.member("heads_by_all_to_all", plan.splits.moves_at_once);
  json.close();
}

void write_exchange(JsonText& json, const Plan& plan) {
  const ExchangeRule& rule = plan.exchange;
  const LocalShape local = plan.local_of(first_block_with(plan.model, true));
  json.key("exchange").open_object(one_line);
  json.member("chunks", rule.chunks);
  json.member("shares", rule.takes_share() ? plan.mesh.tp : 1);
  json.member("parts", rule.parts);
  json.member("beside_passes", rule.beside_passes);
  json.member("sent_rows", local.routed_rows);
  json.member("expert_rows", local.expert_rows);
  json.close();
}

void write_flops(JsonText& json, const FlopsEstimate& flops) {
  json.key("flops").open_object(one_line);
  json.member("matmul", flops.matmul);
  json.member("attention_causal", flops.attention_causal);
  json.member("attention_full", flops.attention_full);
  json.member("total", flops.total());
  json.close();
}

void write_device_time(JsonText& json, const DeviceTime& time) {
  json.member("device", time.device);
  json.member("software", time.software);
  json.member("trust", time.trust);
  json.member("expected_error", time.expected_error);
  json.member("goodput", time.goodput);
  json.member("best_checkpoint_steps", time.best_checkpoint_steps);
  json.member("tokens_per_day", time.tokens_per_day);
  json.member("device_hours_per_billion_tokens", time.device_hours_per_billion_tokens);
  write_optional(json, "days", time.days);
  write_optional(json, "cost_per_billion_tokens", time.cost_per_billion_tokens);
  write_optional(json, "cost", time.cost);
}

void write_ledgers(JsonText& json, const std::vector<Ledger>& ledgers) {
  json.key("ledger").open_array();
  for (const Ledger& ledger : ledgers) {
    json.open_object();
    for (const LedgerEntry& entry : ledger_entries) json.member(entry.key, ledger.*entry.seconds);
    json.close();
  }
  json.close();
}

/// Null where the config has no rates to take it from.
void write_time(JsonText& json, const PrintInput& input) {
  const std::optional<TimeEstimate>& time = input.plan.time;
  json.key("time");
  if (!time) return json.json("null");
  json.open_object(one_line);
  json.member("step_seconds", time->step());
  json.member("forward_backward_seconds", time->forward_backward);
  json.member("exposed_seconds", time->exposed);
  json.member("hidden_seconds", time->hidden);
  json.member("optimizer_seconds", time->optimizer);
  json.member("bubble_fraction", time->bubble_fraction);
  if (time->on_device) {
    write_device_time(json, *time->on_device);
    if (input.config != nullptr) {
      write_ledgers(json, estimate_ledgers(input.plan, input.config->cluster));
    }
  }
  json.close();
}

/// Empty without a ramp.
void write_ramp(JsonText& json, const Plan& plan) {
  json.key("ramp").open_array();
  const std::vector<RampRow> rows = plan.ramp.size() > 1 ? ramp_rows(plan) : std::vector<RampRow>{};
  for (const RampRow& row : rows) {
    json.open_object(one_line);
    json.member("first_step", row.first_step);
    json.member("steps", row.steps);
    json.member("batch_size", row.batch);
    json.member("microbatches", row.microbatches);
    json.member("tokens_per_step", row.tokens);
    write_optional(json, "step_seconds", row.step_seconds);
    json.close();
  }
  json.close();
}

}  // namespace

void write_optional(JsonText& json, std::string_view key, const std::optional<double>& value) {
  json.key(key);
  if (value) {
    json.value(*value);
  } else {
    json.json("null");
  }
}

void write_rates(JsonText& json, const std::vector<RatePoint>& points) {
  json.open_array();
  for (const RatePoint& point : points) {
    json.open_object(one_line);
    json.member("step", point.step);
    json.member("learning_rate", point.learning_rate);
    json.member("weight_decay", point.weight_decay);
    json.close();
  }
  json.close();
}

std::string print_json(const PrintInput& input) {
  check_rank(input);
  const Plan& plan = input.plan;
  JsonText json;
  json.open_object();
  json.member("format_version", 2);
  json.member("hash", hex_text(plan.hash));
  json.member("world_size", plan.mesh.world_size());
  json.member("mode", word_of(plan.mode));
  write_mesh(json, plan.mesh);
  if (input.rank >= 0) write_rank(json, plan.mesh, input.rank);
  write_groups(json, input, printable_kinds(input));
  write_model(json, input);
  write_exchange(json, plan);
  json.member("device", plan.device == DeviceKind::cuda ? "cuda" : "cpu");
  json.member("compute", name_of(plan.compute));
  json.member("attention_backend", plan.cudnn ? "cudnn" : "own");
  json.member("sequence_parallel", plan.sequence_parallel);
  json.member("split_vocabulary", plan.splits.head == SplitBy::features);
  write_splits(json, plan);
  write_search(json, input);
  json.member("micro_batch_size", plan.micro_batch_size);
  json.member("microbatches", plan.microbatches);
  json.member("length_step", plan.length_step);
  json.member("tokens_per_step", plan.tokens_per_step());
  json.member("threads_per_rank", plan.threads_per_rank);
  write_stages(json, plan);
  write_schedule(json, input);
  write_parameters(json, input);
  write_optimizer_groups(json, input);
  write_matrices(json, plan);
  write_buckets(json, plan);
  write_activations(json, plan);
  write_memory(json, input);
  write_recompute_forms(json, input);
  write_communication(json, plan);
  write_flops(json, plan.flops);
  write_time(json, input);
  json.key("steps").json(plan.steps > 0 ? std::to_string(plan.steps) : "null");
  write_ramp(json, plan);
  json.key("rates");
  write_rates(json, plan.rates);
  if (!input.lr_at.empty()) {
    json.key("lr");
    write_rates(json, rates_asked(input));
  }
  if (input.diagnostics != nullptr) json.json_member("diagnostics", json_rows(*input.diagnostics));
  json.close();
  return json.take();
}

}  // namespace trainctl
