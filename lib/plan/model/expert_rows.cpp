#include "plan/model/expert_rows.h"

namespace trainctl {

namespace {

/// Whether other ranks hold experts, or parts of them.
bool exchanges(const StageShare& share) {
  return share.input.mesh.ep * share.input.exchange.parts > 1;
}

Shape counts_shape(const StageShare& share) {
  return {share.input.exchange.parts * share.input.mesh.ep, share.model.experts};
}

/// What is on its way between the ranks of experts: shared by all passes, or of one whose legs
/// others come between.
void add_exchange(Rows& rows, const StageShare& share, const std::string& moe, Life life) {
  const LocalShape& local = share.local;
  const std::int64_t hidden = share.model.hidden;
  rows.row(moe + "sent", local.routed_rows, hidden, life);
  rows.add(moe + "sent_weight", {local.routed_rows}, DType::f32, life);
  rows.row(moe + "received", local.gathered_rows, hidden, life);
  rows.add(moe + "received_weight", {local.gathered_rows}, DType::f32, life);
  rows.add(moe + "place", {local.gathered_rows}, DType::i32, life);
}

void add_shared_rows(Rows& rows, const StageShare& share, const std::string& name) {
  const ModelShape& model = share.model;
  const LocalShape& local = share.local;
  const auto add = [&](const char* row, Life life) {
    rows.row(name + row, local.tokens, local.shared_ffn, life);
  };
  rows.begin(BlockPart::mlp);
  if (model.shared_gate) rows.add(name + "logit", {local.tokens, 1}, DType::f32, for_weight);
  add("up", for_backward);
  if (model.gated_mlp) add("gate", for_backward);
  rows.begin(BlockPart::activation);
  add("act", for_weight);
  rows.end();
  add("d_up", output_gradient);
  if (model.gated_mlp) add("d_gate", output_gradient);
  if (!model.shared_gate) return;
  rows.add(name + "d_logit", {local.stream_rows, 1}, DType::f32, output_gradient);
}

}  // namespace

void add_expert_rows(Rows& rows, const StageShare& share, const std::string& moe) {
  const ModelShape& model = share.model;
  const LocalShape& local = share.local;
  const auto add = [&](const char* name, const Shape& shape, DType dtype, Life life) {
    rows.add(moe + name, shape, dtype, life);
  };
  const Shape choice{local.routed_tokens, model.topk};
  const Shape inner{local.expert_rows, local.expert_ffn};
  rows.begin(BlockPart::mlp);
  add("logits", {local.routed_tokens, model.experts}, DType::f32, for_backward);
  add("chosen", choice, DType::i32, for_backward);
  add("slot", choice, DType::i32, for_backward);
  add("choices", {local.counted_rows, model.experts}, DType::i32, for_backward);
  add("rows", {local.expert_rows, model.hidden}, rows.compute, for_weight);
  add("row_weight", {local.expert_rows}, DType::f32, for_weight);
  add("up", inner, rows.compute, for_backward);
  if (model.gated_mlp) add("gate", inner, rows.compute, for_backward);
  rows.begin(BlockPart::activation);
  add("act", inner, rows.compute, for_weight);
  rows.end();
  add("counts", counts_shape(share), DType::i64, host_counts);
  if (exchanges(share)) {
    add("places", {local.gathered_rows}, DType::i32, host_counts);
    add("exchanged", {2, share.input.mesh.ep}, DType::i64, host_counts);
  }
  if (share.input.exchange.beside_passes) {
    add_exchange(rows, share, first_prefix + moe, while_forward);
    const bool again = rows.form.repeats(BlockPart::mlp);
    add_exchange(rows, share, moe, again ? from_repeat : while_backward);
  }
  add("d_logits", {local.stream_rows, model.experts}, DType::f32, output_gradient);
  add("d_rows", {local.expert_rows, model.hidden}, rows.compute, output_gradient);
  add("d_up", inner, rows.compute, output_gradient);
  if (model.gated_mlp) add("d_gate", inner, rows.compute, output_gradient);
  if (model.shared_ffn > 0) add_shared_rows(rows, share, moe + "shared.");
}

void add_expert_scratch(Rows& rows, const StageShare& share) {
  const ModelShape& model = share.model;
  const LocalShape& local = share.local;
  const auto add = [&](const char* name, const Shape& shape, DType dtype) {
    rows.add(std::string("moe.") + name, shape, dtype, shared);
  };
  add("weight", {local.routed_tokens, model.topk}, DType::f32);
  add("sent_counts", counts_shape(share), DType::i64);
  add("out", {local.expert_rows, model.hidden}, rows.compute);
  add("scaled", {local.expert_rows, local.expert_ffn}, rows.compute);
  add("d_row_weight", {local.expert_rows}, DType::f32);
  if (model.shared_gate) add("shared_scaled", {local.tokens, local.shared_ffn}, rows.compute);
  if (local.routing_ranks > 1) {
    const std::int64_t all = local.routing_ranks * local.routed_tokens;
    add("all_logits", {all, model.experts}, DType::f32);
    add("all_chosen", {all, model.topk}, DType::i32);
    add("all_weight", {all, model.topk}, DType::f32);
    add("all_slot", {all, model.topk}, DType::i32);
  }
  const ExchangeRule& rule = share.input.exchange;
  if (exchanges(share)) {
    if (!rule.beside_passes) add_exchange(rows, share, "moe.", shared);
    if (rule.parts > 1 && share.input.fp32_sums) {
      add("sum", {local.gathered_rows, model.hidden}, DType::f32);
    }
  }
  if (share.input.sequence_parallel) {
    const bool by_stream = rule.by_stream;
    if (!by_stream) add("all_d_logits", {local.tokens, model.experts}, DType::f32);
    if (by_stream && model.shared_ffn > 0) {
      add("shared_y", {local.stream_rows, model.hidden}, rows.compute);
    }
    if (model.shared_gate) add("shared_all_d_logit", {local.tokens, 1}, DType::f32);
  }
  if (rows.compute == DType::f32) return;
  add("wide", {local.stream_rows, model.hidden}, DType::f32);
  add("narrow", {local.stream_rows, model.hidden}, rows.compute);
}

std::int64_t count_expert_blocks(const ModelShape& model, const std::vector<UnitRange>& units) {
  std::int64_t count = 0;
  for (const UnitRange& range : units) {
    const UnitRange blocks = blocks_in(range, model.layers);
    for (int unit = blocks.begin; unit < blocks.end; ++unit) {
      count += model.has_experts(unit - 1) ? 1 : 0;
    }
  }
  return count;
}

}  // namespace trainctl
