// Devices.
#include <algorithm>
#include <utility>

#include "plan/rules/check.h"
#include "plan/rules/resolve.h"

namespace trainctl {

namespace {

/// Of whole sequences, which a rank has unless they or its heads are exchanged.
AttentionExtents extents_of(const Facts& facts) {
  const bool whole = facts.operators.any_attention(SplitBy::whole);
  const std::int64_t ranks = whole ? 1 : std::max<std::int64_t>(1, facts.mesh.tp);
  return {.sequences = facts.batch.micro_batch_size,
          .length = facts.model.seq_length,
          .heads = std::max<std::int64_t>(1, facts.model.heads / ranks),
          .kv_heads = std::max<std::int64_t>(1, facts.model.kind(0).kv_heads / ranks),
          .head_dim = facts.model.head_dim,
          .ordered = facts.config.train.deterministic_mode};
}

bool alike_in_all_blocks(const OperatorSplits& operators) {
  const auto& blocks = operators.blocks;
  return std::all_of(blocks.begin(), blocks.end(), [&](const BlockSplit& block) {
    return block.attention == blocks.front().attention;
  });
}

}  // namespace

std::string why_not_cudnn(const Facts& facts) {
  const Config& config = facts.config;
  const ComputeType compute = resolve_compute(config.precision);
  const AttentionExtents extents = extents_of(facts);
  if (resolve_device(config.parallel, facts.site) != DeviceKind::cuda) return "device is not cuda";
  if (compute == ComputeType::fp32) return "precision.compute is fp32";
  if (extents.head_dim != 64 && extents.head_dim != 128) {
    return "heads have " + std::to_string(extents.head_dim) + " features, not 64 or 128";
  }
  if (extents.length % 128 != 0) {
    return "seq_length (" + std::to_string(extents.length) + ") is not a multiple of 128";
  }
  if (facts.model.attention_dropout > 0) return "attention_dropout is above 0";
  if (facts.model.attention_cap > 0) return "attn_logit_softcapping caps scores";
  const auto limited = [](const LayerKind& kind) { return kind.limits.any(); };
  if (std::ranges::any_of(facts.model.kinds, limited))
    return "queries see only a window or a chunk of the keys";
  if (config.optimizer.qk_clip_threshold) {
    return "qk_clip_threshold needs the largest score of each head";
  }
  if (config.data.reset_attention_mask) return "reset_attention_mask keeps documents apart";
  if (facts.mesh.cp > 1) return "context-parallel ranks share sequences";
  if (facts.operators.any_attention(SplitBy::tokens) || !alike_in_all_blocks(facts.operators)) {
    return "operator_splits split attention otherwise than by heads";
  }
  const std::int64_t bytes = attention_parts(extents).bytes;
  if (bytes > most_attention_bytes) {
    return "it would need " + std::to_string(bytes >> 20) + " MiB beside its operands, more than " +
           std::to_string(most_attention_bytes >> 20);
  }
  return "";
}

std::optional<AttentionExtents> resolve_cudnn(const Facts& facts) {
  const AttentionBackend backend = facts.parallel().attention_backend;
  const bool asked = backend == AttentionBackend::cudnn ||
                     (backend == AttentionBackend::automatic && facts.site.cudnn);
  if (!asked || !why_not_cudnn(facts).empty()) return std::nullopt;
  return extents_of(facts);
}

namespace {

/// What deterministic_mode forbids and allows.
void check_determinism(const Facts& facts, Check& check) {
  const char* path = "train.deterministic_mode";
  const char* products = "parallel.product_algorithms";
  const bool asked = facts.config.train.deterministic_mode;
  const bool on_cuda = resolve_device(facts.parallel(), facts.site) == DeviceKind::cuda;
  const bool timed = facts.parallel().product_algorithms == ProductChoice::timed;
  if (on_cuda && timed && asked && check.given(path) && check.clean({path, products})) {
    check.error("deterministic-timed", products,
                "product_algorithms timed may choose other algorithms in each run, but "
                "deterministic_mode is true" +
                    check.place_of(path),
                "set product_algorithms to proposed, or leave deterministic_mode out");
  }
  const bool known = facts.mesh_is_clean(check) &&
                     check.clean({"model", "train.micro_batch_size", "train.global_batch_size",
                                  "parallel.device", "parallel.operator_splits"});
  if (asked || !known) return;
  const bool own = facts.parallel().attention_backend == AttentionBackend::own;
  const std::string reason = own ? "attention_backend is own" : why_not_cudnn(facts);
  check.no_effect(path, !reason.empty(),
                  "only cuDNN's attention has a form that is not deterministic, and " + reason);
}

void check_sharing(const Facts& facts, Check& check) {
  const char* path = "parallel.share_devices";
  const bool threads = facts.site.ranks_are_threads && facts.site.world_size > 1;
  if (facts.parallel().share_devices != DeviceSharing::nccl || !threads ||
      resolve_device(facts.parallel(), facts.site) != DeviceKind::cuda) {
    return;
  }
  check.error("share-devices", path,
              "share_devices nccl needs a process for each rank, since NCCL knows a process by one "
              "name, but the ranks are threads (--local-ranks)",
              "start them with trainctl launch or mpirun, or set share_devices to true");
}

/// What needs the largest score of each head, which kernels must give.
void check_qk_clip(const Facts& facts, Check& check) {
  const char* path = "optimizer.qk_clip_threshold";
  const OptimizerConfig& optimizer = facts.config.optimizer;
  const char* alpha = "optimizer.qk_clip_alpha";
  check.rule(alpha, optimizer.qk_clip_alpha >= 0 && optimizer.qk_clip_alpha <= 1,
             optimizer.qk_clip_alpha, "in [0, 1]");
  check.no_effect(
      alpha,
      !optimizer.qk_clip_threshold && optimizer.qk_clip_alpha != OptimizerConfig{}.qk_clip_alpha,
      "qk_clip_threshold is not given");
  if (!optimizer.qk_clip_threshold) return;
  const double threshold = *optimizer.qk_clip_threshold;
  check.rule(path, threshold > 0, threshold, "above 0");
  if (!check.clean({"model", "parallel.device"})) return;
  if (std::ranges::any_of(facts.model.kinds, &LayerKind::qk_norm)) {
    check.error("qk-clip", path,
                "qk_clip_threshold scales the rows that make queries and keys, but qk_layernorm "
                "brings these back to their length" +
                    check.place_of("model.qk_layernorm"),
                "leave qk_clip_threshold out: norms bound the scores");
  } else if (facts.model.attention_cap > 0 &&
             resolve_device(facts.parallel(), facts.site) == DeviceKind::cuda) {
    check.error(
        "qk-clip", path,
        "qk_clip_threshold with attn_logit_softcapping is not built for CUDA: its kernels do "
        "not keep the largest score before the cap" +
            check.place_of("model.attn_logit_softcapping"),
        "leave one of the two out, or set parallel.device to cpu");
  }
}

}  // namespace

void check_attention(const Facts& facts, Check& check) {
  const char* path = "parallel.attention_backend";
  const bool on_cuda = resolve_device(facts.parallel(), facts.site) == DeviceKind::cuda;
  const char* margin = "parallel.product_sm_margin";
  const ParallelConfig& parallel = facts.parallel();
  check_determinism(facts, check);
  check_qk_clip(facts, check);
  check_sharing(facts, check);
  const std::pair<const char*, bool> choices[] = {
      {path, parallel.attention_backend != AttentionBackend::automatic},
      {"parallel.product_algorithms", parallel.product_algorithms != ProductChoice::proposed},
      {margin, parallel.product_sm_margin > 0},
      {"parallel.share_devices", shares(parallel.share_devices)}};
  for (const auto& [choice, differs] : choices) {
    check.no_effect(choice, !on_cuda && differs, "the device is the CPU");
  }
  const bool alone = on_cuda && facts.mesh_is_clean(check) && facts.mesh.world_size() == 1;
  check.no_effect("parallel.head_chunk",
                  parallel.head_chunk.has_value() && facts.model.whole_logits,
                  "model.cross_entropy_loss_fusion is false, so all logits exist at once");
  check.no_effect(margin, alone && parallel.product_sm_margin > 0, "one rank has no collectives");
  if (!on_cuda || facts.parallel().attention_backend != AttentionBackend::cudnn) return;
  const bool known = facts.mesh_is_clean(check) &&
                     check.clean({"model", "train.micro_batch_size", "parallel.device",
                                  "parallel.operator_splits", path});
  const std::string reason = known ? why_not_cudnn(facts) : "";
  if (reason.empty()) return;
  check.error("attention-backend", path, "attention_backend is cudnn, but " + reason,
              "set attention_backend to auto, which takes cuDNN where it can, or to own");
}

}  // namespace trainctl
