#include "bench/context_overlap.h"

#include <cmath>

#include "base/parallel_for.h"
#include "base/scratch.h"
#include "bench/figures.h"
#include "device/slab.h"
#include "ops/attention.h"
#include "ops/kernels.h"
#include "verify/layouts.h"

namespace trainctl {

namespace {

Config on_two_ranks(const Config& config, CpCommType algorithm) {
  LayoutChoice layout;
  layout.sizes.cp = 2;
  Config changed = with_layout(config, layout);
  changed.parallel.cp_comm_type = algorithm;
  changed.parallel.hierarchical_context_parallel_sizes.reset();
  changed.train.micro_batch_size.reset();
  changed.train.micro_batch_num = 1;
  return changed;
}

/// Of one layer: causal attention of as many tokens as a rank has of each sequence. Of two chunks
/// of them the later one sees all of the earlier one, so a rank sees as many pairs among its own as
/// with the keys of the other.
double attention_to_a_block(const Plan& plan, const std::vector<TimedStep>&) {
  constexpr int tries = 5;
  const ModelShape& model = plan.model;
  const std::int64_t sequences = plan.micro_batch_size;
  const std::int64_t length = plan.local.tokens / sequences;
  const LocalShape local = plan.local_of(1);
  const Slab slab(DeviceKind::cpu, {{"q", {local.tokens, local.q}, plan.compute},
                                    {"k", {local.tokens, local.kv}, plan.compute},
                                    {"v", {local.tokens, local.kv}, plan.compute},
                                    {"out", {local.tokens, local.q}, plan.compute},
                                    {"logsumexp", {sequences, model.heads, length}, DType::f32},
                                    {"scratch", {scratch_bytes(DeviceKind::cpu, 1)}, DType::u8}});
  Stream stream(DeviceKind::cpu, "compute", Stream::Mode::run_inline);
  const Tensor scratch = slab.at("scratch");
  const OpContext ops{.kernels = &kernels_for(DeviceKind::cpu),
                      .stream = &stream,
                      .scratch = static_cast<std::byte*>(scratch.data),
                      .scratch_bytes = scratch.bytes()};
  set_thread_count(1);
  const AttentionForward args{
      .shape = {.sequences = sequences,
                .query_length = length,
                .key_length = length,
                .heads = model.heads,
                .kv_heads = model.kind(0).kv_heads,
                .head_dim = model.head_dim,
                .scale = 1.0F / std::sqrt(static_cast<float>(model.head_dim))},
      .q = slab.at("q"),
      .k = slab.at("k"),
      .v = slab.at("v"),
      .first_position = {},
      .dropout = {},
      .out = slab.at("out"),
      .logsumexp = slab.at("logsumexp")};
  std::vector<double> seconds;
  for (int i = 0; i < tries; ++i) {
    seconds.push_back(seconds_of([&] { attention_forward(ops, args); }));
  }
  return median(seconds);
}

/// A rank sends its keys and values to the other.
std::int64_t keys_and_values(const Plan& plan) {
  return plan.local.tokens * 2 * plan.local_of(1).kv * size_of(plan.compute);
}

}  // namespace

LayerOverlapInput context_overlap(const Config& config) {
  return {.blocking = on_two_ranks(config, CpCommType::all_gather),
          .overlapped = on_two_ranks(config, CpCommType::p2p),
          .product_seconds = attention_to_a_block,
          .sent_bytes = keys_and_values,
          .counts = [](const Action& row) { return row.kind == ActionKind::forward; }};
}

}  // namespace trainctl
