#include <array>
#include <optional>
#include <ranges>
#include <string_view>

#include "base/at.h"
#include "base/error.h"
#include "base/json_text.h"
#include "config/report/diagnostics.h"
#include "config/schema/words.h"
#include "formats/print/print.h"
#include "formats/print/rows.h"
#include "formats/print/text.h"
#include "plan/cost/estimate.h"
#include "plan/cost/forms.h"
#include "plan/cost/ledger.h"
#include "plan/model/form.h"
#include "plan/tables/mesh.h"

namespace trainctl {

// Functions that each write some keys of the root object of the JSON document.

namespace {

using enum JsonText::Form;

/// Writes a value, or null if there is none.
void write_optional(JsonText& json, std::string_view key, const std::optional<double>& value) {
  json.key(key);
  if (value) {
    json.value(*value);
  } else {
    json.json("null");
  }
}

void write_lists(JsonText& json, const RankLists& lists) {
  json.open_array();
  for (const std::vector<int>& ranks : lists) json.value(ranks);
  json.close();
}

void write_kind(JsonText& json, const PrintInput& input, const std::string& kind) {
  json.key(kind);
  const Mesh& mesh = input.plan.mesh;
  if (kind == "hierarchical_cp") {
    json.open_array();
    for (const RankLists& level : hierarchical_lists(input)) write_lists(json, level);
    json.close();
  } else {
    write_lists(json,
                input.rank >= 0 ? groups_with(mesh, kind, input.rank) : list_groups(mesh, kind));
  }
}

/// Writes "groups": all groups, or those of one rank.
void write_groups(JsonText& json, const PrintInput& input, const std::vector<std::string>& kinds) {
  json.key("groups").open_object();
  for (const std::string& kind : kinds) write_kind(json, input, kind);
  json.close();
}

}  // namespace

std::string print_groups_json(const PrintInput& input, const std::string& kind) {
  check_rank(input);
  check_kind(input, kind);
  JsonText json;
  json.open_object();
  json.member("format_version", 2);
  json.member("world_size", input.plan.mesh.world_size());
  write_groups(json, input, {kind});
  if (input.diagnostics != nullptr) json.json_member("diagnostics", json_rows(*input.diagnostics));
  json.close();
  return json.take();
}

namespace {

/// Whether a row is always listed: compute and messages are, other rows only in refined lists.
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
  json.key("table").open_array(one_line);
  const int microbatches = static_cast<int>(plan.microbatches);
  for (const Action& entry : schedule_table(microbatches, plan.map.chunks, plan.group_size)) {
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
  json.key("actions").open_array(one_line);
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

/// Writes "stages" and "schedule".
void write_stages(JsonText& json, const Plan& plan) {
  json.key("stages").open_array();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    json.open_object();
    json.member("stage", stage);
    json.member("ranks", plan.mesh.world_size() / plan.mesh.pp);
    json.key("chunks").open_array();
    for (int chunk = 0; chunk < plan.map.chunks; ++chunk) {
      const UnitRange& held = plan.map.at(stage, chunk);
      const UnitRange blocks = blocks_in(held, plan.model.layers);
      json.open_object(one_line);
      json.member("chunk", chunk);
      json.member("layers", std::vector<int>{blocks.begin - 1, blocks.end - blocks.begin});
      json.member("embedding", held.holds(0));
      json.member("head", held.holds(head_unit(plan.model.layers)));
      json.member("units", std::vector<int>{held.begin, held.end});
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

std::vector<std::int64_t> dims_of(const Shape& shape) {
  std::vector<std::int64_t> dims;
  for (int dim = 0; dim < shape.rank(); ++dim) dims.push_back(shape[dim]);
  return dims;
}

/// Writes for each axis that applies to the parameter the dimension that it divides, or "whole".
void write_layout(JsonText& json, const ParamSpec& row) {
  json.key("layout").open_object(one_line);
  for (const auto& [name, axis] : public_axes()) {
    const bool of_experts = axis == Axis::etp || axis == Axis::ep || axis == Axis::edp;
    if (axis == Axis::pp || of_experts != row.expert) continue;
    const int dim = row.split_dim[static_cast<std::size_t>(axis)];
    if (dim < 0) {
      json.member(name, "whole");
    } else {
      json.member(name, dim);
    }
  }
  json.close();
}

void write_shard(JsonText& json, const OptimizerShard& shard) {
  static constexpr std::array<const char*, 4> kinds{"whole", "rows", "dealt", "bucket"};
  json.key("optimizer_shard").open_object(one_line);
  json.member("kind", kinds[static_cast<std::size_t>(shard.kind)]);
  json.member("ranks", shard.ranks);
  json.member("mirrors", shard.mirrors);
  json.member("rows", shard.rows);
  json.member("owner", shard.owner);
  json.member("elements", shard.elements);
  json.member("why", shard.why);
  json.close();
}

struct ParameterPlace {
  int stage = 0;
  std::size_t index = 0;
  int bucket = -1;
};

void write_parameter(JsonText& json, const Plan& plan, const ParameterPlace& place) {
  const StagePlan& held = plan.stages[static_cast<std::size_t>(place.stage)];
  const ParamSpec& row = held.parameters[place.index];
  json.open_object(one_line);
  json.member("stage", place.stage);
  json.member("name", row.name);
  json.member("global_shape", dims_of(row.global_shape));
  write_layout(json, row);
  json.member("shape", dims_of(row.shape));
  json.member("owner_groups", owner_groups(plan, place.stage, row));
  json.member("bucket", place.bucket);
  write_shard(json, held.shards[place.index]);
  json.member("role", row.is_vector ? "vector" : "matrix");
  json.member("master", name_of(row.master));
  json.member("init", word_of(row.init));
  json.member("init_deviation", row.init_deviation);
  json.member("decay", row.decay);
  json.member("unit", row.unit);
  json.member("offset", held.flat.offset[place.index]);
  json.member("expert", row.expert);
  json.member("second_home", row.second_home);
  json.close();
}

/// Writes "parameters", "buckets", "activations" and "communication".
void write_parameters(JsonText& json, const PrintInput& input) {
  json.key("parameters").open_array();
  for (int stage = 0; stage < input.plan.map.stages; ++stage) {
    const StagePlan& held = input.plan.stages[static_cast<std::size_t>(stage)];
    const std::vector<int> buckets = bucket_of_each(held);
    for (std::size_t i = 0; i < held.parameters.size(); ++i) {
      write_parameter(json, input.plan, {stage, i, buckets[i]});
    }
  }
  json.close();
}

/// Writes "optimizer_groups" if the configuration has any.
void write_optimizer_groups(JsonText& json, const PrintInput& input) {
  if (input.config == nullptr) return;
  const std::vector<GroupRow> rows = group_rows(input.plan, input.config->optimizer);
  if (rows.empty()) return;
  json.objects("optimizer_groups", rows, lines, [&](const GroupRow& row) {
    json.key("entry").json(row.entry < 0 ? "null" : std::to_string(row.entry));
    json.member("type", word_of(row.type));
    json.member("lr_mult", row.rate_factor);
    write_optional(json, "wd_mult", row.decay_factor);
    json.key("parameters").open_array();
    for (const std::string& name : row.parameters) json.value(name);
    json.close();
  });
}

/// Writes "matrices" if some matrices are updated as a whole.
void write_matrices(JsonText& json, const Plan& plan) {
  const std::vector<MatrixRow> rows = matrix_rows(plan);
  if (rows.empty()) return;
  json.objects("matrices", rows, one_line, [&](const MatrixRow& row) {
    const MatrixWork& work = *row.work;
    const std::int64_t expert = work.parts.front().expert;
    json.member("stage", row.stage);
    json.key("parameters").open_array();
    for (const std::string& name : row.parameters) json.value(name);
    json.close();
    json.key("expert").json(expert < 0 ? "null" : std::to_string(expert));
    json.member("count", work.matrices);
    json.member("rows", work.matrix_rows());
    json.member("columns", work.matrix_columns());
    json.member("worker", row.worker);
    json.member("round", work.round);
    json.member("flops", work.cost);
  });
}

/// Writes an array with an object for each row of each stage, to which write(row, stage) adds
/// members.
template <class Rows, class Write>
void write_rows_of_stages(JsonText& json, std::string_view key, const Plan& plan,
                          const Rows& rows_of, const Write& write) {
  json.key(key).open_array();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& held = at(plan.stages, stage);
    for (const auto& row : rows_of(held)) {
      json.open_object(one_line);
      json.member("stage", stage);
      write(row, held);
      json.close();
    }
  }
  json.close();
}

void write_buckets(JsonText& json, const Plan& plan) {
  const auto indices = [](const StagePlan& stage) {
    return std::views::iota(0, static_cast<int>(stage.flat.buckets.size()));
  };
  const auto write = [&](int index, const StagePlan& stage) {
    const Bucket& bucket = at(stage.flat.buckets, index);
    json.member("index", index);
    json.member("offset", bucket.offset);
    json.member("length", bucket.length);
    json.member("ready_unit", bucket.ready_unit);
    json.member("expert", bucket.expert);
    json.key("parameters").open_array();
    for (const int parameter : bucket.parameters) json.value(at(stage.parameters, parameter).name);
    json.close();
  };
  write_rows_of_stages(json, "buckets", plan, indices, write);
}

void write_activations(JsonText& json, const Plan& plan) {
  static constexpr std::array storages{"batch",    "input",   "forward",   "statistic",
                                       "gradient", "message", "repeated",  "staged",
                                       "host",     "counted", "exchanged", "shared"};
  static constexpr std::array moments{"fetch",  "input",  "forward",  "offload", "gradient",
                                      "reload", "repeat", "backward", "weight"};
  static_assert(storages.size() == static_cast<std::size_t>(Storage::shared) + 1);
  static_assert(moments.size() == static_cast<std::size_t>(Moment::weight) + 1);
  static constexpr std::array<const char*, 3> kinds{"all", "usual", "partial"};
  const auto rows = [](const StagePlan& stage) -> auto& { return stage.activations; };
  write_rows_of_stages(json, "activations", plan, rows,
                       [&](const ActivationSpec& row, const StagePlan&) {
                         json.member("name", row.name);
                         json.member("shape", dims_of(row.shape));
                         json.member("dtype", name_of(row.dtype));
                         json.member("storage", storages[static_cast<std::size_t>(row.storage)]);
                         json.member("from", moments[static_cast<std::size_t>(row.from)]);
                         json.member("until", moments[static_cast<std::size_t>(row.until)]);
                         json.member("kind", kinds[static_cast<std::size_t>(row.kind)]);
                       });
}

void write_communication(JsonText& json, const Plan& plan) {
  const auto uses = [](const StagePlan& stage) -> auto& { return stage.communication; };
  write_rows_of_stages(json, "communication", plan, uses,
                       [&](const CollectiveUse& use, const StagePlan&) {
                         json.member("operation", name_of(use.operation));
                         json.member("what", name_of(use.cargo));
                         json.member("purpose", name_of(use.purpose));
                         json.member("group", name_of(use.group));
                         json.member("ranks", use.ranks);
                         json.member("count", use.count);
                         json.member("bytes", use.bytes);
                       });
}

void write_costs(JsonText& json, const CutChoice& choice) {
  json.open_object(one_line);
  json.member("taken", word_of(choice.taken));
  for (const ProductCut cut : all_cuts) write_optional(json, word_of(cut), at(choice.costs, cut));
  json.close();
}

void write_products(JsonText& json, const StageSearch& stage) {
  for (std::size_t product = 0; product < stage.net.products.size(); ++product) {
    const Extents& parts = at(stage.parts, product);
    json.open_object();
    json.member("stage", stage.stage);
    json.member("name", stage.net.products[product].name);
    json.member("parts", std::vector<std::int64_t>{parts.i, parts.k, parts.j});
    json.key("rounds").open_array();
    for (const auto& round : stage.rounds) write_costs(json, at(round, product));
    json.close();
    json.close();
  }
}

void write_seconds(JsonText& json, const SecondsSearch& found) {
  json.key("by_seconds").open_object();
  json.member("device", found.device);
  json.member("memory_limit_gib", found.limit_gib);
  json.member("seconds", found.seconds);
  json.member("bytes", found.bytes);
  json.member("bounded", static_cast<std::int64_t>(found.bounded));
  json.member("drafted", static_cast<std::int64_t>(found.drafted));
  json.member("planned", static_cast<std::int64_t>(found.planned));
  json.member("gap", found.gap);
  json.objects("others", found.others, one_line, [&](const OtherDecision& one) {
    json.member("of", one.of);
    json.member("taken", one.taken);
    json.member("otherwise", one.otherwise);
    json.member("seconds", one.seconds);
    json.member("fits", one.fits);
    json.member("at_least", one.at_least);
  });
  json.close();
}

/// Writes "search" if a layout was searched.
void write_search(JsonText& json, const PrintInput& input) {
  if (input.search == nullptr) return;
  const SearchReport& report = *input.search;
  json.key("search").open_object();
  json.member("mode", word_of(report.mode));
  json.member("ranks", report.ranks);
  json.member("tensor_parallel", report.tensor_parallel);
  json.member("data_parallel", report.data_parallel);
  json.member("notes", report.notes);
  if (report.by_seconds) write_seconds(json, *report.by_seconds);
  json.key("products").open_array();
  for (const StageSearch& stage : report.stages) write_products(json, stage);
  json.close();
  json.close();
}

/// Writes an object for each layer that recomputes or offloads some of its activations.
void write_recompute_layers(JsonText& json, const Plan& plan) {
  json.key("recompute_layers").open_array();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& rows = plan.stages[static_cast<std::size_t>(stage)];
    for (const int unit : blocks_of(rows.units, plan.model.layers)) {
      const BlockForm usual = rows.forms.of(unit, false);
      const BlockForm partial = rows.forms.is_partial.empty() ? usual : rows.forms.of(unit, true);
      if (!usual.repeats() && !partial.repeats() && !usual.on_host) continue;
      json.open_object(one_line);
      json.member("stage", stage);
      json.member("layer", unit - 1);
      json.member("form", form_text(usual.repeated));
      json.member("partial_form", form_text(partial.repeated));
      json.member("on_host", usual.on_host);
      json.close();
    }
  }
  json.close();
}

/// Writes "memory" and "memory_models".
void write_memory(JsonText& json, const PrintInput& input) {
  const Plan& plan = input.plan;
  int stage_number = 0;
  json.objects("memory", plan.stages, one_line, [&](const StagePlan& stage) {
    const MemoryEstimate& memory = stage.memory;
    json.member("stage", stage_number++);
    for (const auto& [name, bytes] : memory_rows(memory)) json.member(name, bytes);
    if (!memory.on_cuda) {  // the terminal does not show these rows
      json.member("library", memory.library);
      json.member("communicators", memory.communicators);
    }
    json.member("total", memory.total());
    json.member("device", memory.device());
    json.member("host", memory.host());
  });
  const std::vector<MemoryModelRows> models = memory_models(input);
  if (models.empty()) return;
  json.key("memory_models").open_object();
  for (const MemoryModelRows& model : models) {
    json.key(model.name).open_object(one_line);
    json.member("about", model.about);
    for (const ModelNumber& number : model.numbers) json.member(number.name, number.value);
    json.close();
  }
  json.close();
}

/// Writes "recompute_layers" and "recompute_forms".
void write_recompute_forms(JsonText& json, const PrintInput& input) {
  write_recompute_layers(json, input.plan);
  if (input.config == nullptr) return;
  const int stage = shown_stage(input);
  const auto costs =
      compare_forms(input.plan, stage, move_config(*input.config), input.config->cluster);
  json.objects("recompute_forms", costs, one_line, [&](const RecomputeCost& cost) {
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
  });
}

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
  json.objects("kinds", kind_costs(plan), one_line, [&](const KindCost& cost) {
    const LayerKind& kind = cost.kind;
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
  });
  json.key("kind_of_layer").open_array(one_line);
  for (std::int64_t layer = 0; layer < plan.model.layers; ++layer) {
    json.value(plan.model.kind_number(layer));
  }
  json.close();
}

/// Writes the model. Without a configuration, first_dense_layers tells which layers have experts.
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

/// Writes the splits of operators; all are "whole" with a single tensor-parallel rank.
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
  json.objects("ledger", ledgers, lines, [&](const Ledger& ledger) {
    for (const LedgerEntry& entry : ledger_entries) json.member(entry.key, ledger.*entry.seconds);
  });
}

/// Writes the time estimate, or null if the configuration has no rates for it.
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

/// Writes the rows of a batch ramp; an empty list without a ramp.
void write_ramp(JsonText& json, const Plan& plan) {
  const std::vector<RampRow> rows = plan.ramp.size() > 1 ? ramp_rows(plan) : std::vector<RampRow>{};
  json.objects("ramp", rows, one_line, [&](const RampRow& row) {
    json.member("first_step", row.first_step);
    json.member("steps", row.steps);
    json.member("batch_size", row.batch);
    json.member("microbatches", row.microbatches);
    json.member("tokens_per_step", row.tokens);
    write_optional(json, "step_seconds", row.step_seconds);
  });
}

/// Writes objects {step, learning_rate, weight_decay}, one per line.
void write_rates(JsonText& json, std::string_view key, const std::vector<RatePoint>& points) {
  json.objects(key, points, one_line, [&](const RatePoint& point) {
    json.member("step", point.step);
    json.member("learning_rate", point.learning_rate);
    json.member("weight_decay", point.weight_decay);
  });
}

}  // namespace

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
  write_rates(json, "rates", plan.rates);
  if (!input.lr_at.empty()) write_rates(json, "lr", rates_asked(input));
  if (input.diagnostics != nullptr) json.json_member("diagnostics", json_rows(*input.diagnostics));
  json.close();
  return json.take();
}

}  // namespace trainctl
