#include "plan/rules/attention_backend.h"

#include <algorithm>

#include "config/schema/words.h"
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
          .kv_heads = std::max<std::int64_t>(1, facts.model.kv_heads / ranks),
          .head_dim = facts.model.head_dim};
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
  if (config.data.reset_attention_mask) return "reset_attention_mask keeps documents apart";
  if (facts.mesh.cp > 1) return "context-parallel ranks share sequences";
  if (facts.operators.any_attention(SplitBy::tokens) || !alike_in_all_blocks(facts.operators)) {
    return "operator_splits split attention otherwise than by heads";
  }
  const std::int64_t bytes = attention_part(extents).bytes;
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

void check_attention(const Facts& facts, Check& check) {
  const char* path = "parallel.attention_backend";
  if (facts.parallel().attention_backend != AttentionBackend::cudnn) return;
  const bool known = facts.mesh_is_clean(check) &&
                     check.clean({"model", "train.micro_batch_size", "parallel.device",
                                  "parallel.operator_splits", path});
  const std::string reason = known ? why_not_cudnn(facts) : "";
  if (reason.empty()) return;
  check.error("attention-backend", path, "attention_backend is cudnn, but " + reason,
              "set attention_backend to auto, which takes cuDNN where it can, or to own");
}

}  // namespace trainctl
