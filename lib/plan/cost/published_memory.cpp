#include "plan/cost/published_memory.h"

#include <algorithm>
#include <array>

#include "base/at.h"
#include "base/integers.h"
#include "config/schema/words.h"
#include "plan/cost/estimate.h"

namespace trainctl {

std::string_view name_of(Technique technique) {
  static constexpr std::array<std::string_view, words_of<Technique>.size()> names{
      "no parallelism",
      "tensor",
      "tensor and sequence",
      "tensor, selective recomputation",
      "tensor and sequence, selective recomputation",
      "full recomputation"};
  return at(names, static_cast<int>(technique));
}

MemoryModelInput korthikanti_input(const Plan& plan) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  MemoryModelInput input;
  input.sequence = real(plan.model.seq_length);
  input.micro_batch = real(plan.micro_batch_size);
  input.hidden = real(plan.model.hidden);
  input.heads = real(plan.model.heads);
  input.layers = real(plan.model.layers);
  input.vocab = real(plan.model.padded_vocab);
  input.tp = real(plan.mesh.tp);
  input.pp = real(plan.mesh.pp);
  input.chunks = real(plan.map.chunks);
  return input;
}

Technique technique_of(const Plan& plan, const RecomputeConfig& recompute) {
  if (recompute.enable && recompute.select == "full") return "full";
  return plan.sequence_parallel ? Technique("tensor_sequence_selective")
                                : Technique("tensor_selective");
}

double korthikanti_layer(const MemoryModelInput& input, Technique technique) {
  const double sbh = input.sequence * input.micro_batch * input.hidden;
  const double scores = 5 * input.heads * input.sequence / input.hidden;
  const double t = input.tp;
  if (technique == "none") return sbh * (34 + scores);
  if (technique == "tensor") return sbh * (10 + 24 / t + scores / t);
  if (technique == "tensor_sequence") return sbh / t * (34 + scores);
  if (technique == "tensor_selective") return sbh * (10 + 24 / t);
  return technique == "full" ? sbh * 2 : sbh / t * 34;
}

double korthikanti_total(const MemoryModelInput& input, Technique technique) {
  const double sbh = input.sequence * input.micro_batch * input.hidden;
  const double interleaved = input.chunks > 1 ? 1 + (input.pp - 1) / (input.pp * input.chunks) : 1;
  double bytes = korthikanti_layer(input, technique) * input.layers * interleaved;
  bytes += sbh * input.pp / input.tp;
  if (input.pp == 1) bytes += 4 * sbh / input.tp * (1 + input.vocab / input.hidden);
  return bytes;
}

namespace {

/// Parameters of one layer, grouped by their divisor.
struct LayerParameters {
  double dense = 0;    // attention, and the MLP if there are no experts
  double experts = 0;  // all routed experts
  double norms = 0;    // both norms
  double router = 0;
};

LayerParameters layer_parameters(const MemoryModelInput& in, bool head) {
  const double gate = in.gated ? 1.5 : 1.0;
  const double q_ratio = in.head_size * in.heads / in.hidden;
  const bool moe = in.experts > 1;
  const bool both = !head || !in.rms_norm;
  LayerParameters layer;
  layer.dense = 2 * in.hidden * in.hidden * (1 + in.groups / in.heads) * q_ratio;
  if (moe) {
    layer.experts = 2 * in.hidden * in.expert_ffn * in.experts * gate;
    if (head) layer.router = in.hidden * in.experts + (in.linear_bias ? in.experts : 0);
  } else {
    layer.dense += 2 * in.hidden * in.ffn * gate;
  }
  layer.norms = 2 * in.hidden * (both ? 2 : 1);
  return layer;
}

double bytes_per_parameter(bool distributed, double replicas) {
  return distributed ? 6 + 12 / replicas : 18;
}

void add_weights(MegatronMemory& memory, const MemoryModelInput& in, bool head) {
  const LayerParameters layer = layer_parameters(in, head);
  const double embedding = in.hidden * in.vocab;
  const double second = in.untied ? embedding : 0;
  const double final_norm = layer.norms / 2;
  const double share = in.layers / in.pp;  // layers of a stage
  const double head_here = in.pp == 1 ? second : 0;
  memory.model = (layer.dense + layer.experts + layer.norms + layer.router) * in.layers +
                 final_norm + embedding + second;
  double dense = 0;
  if (!head) {
    memory.experts = layer.experts * share / in.tp;
    dense =
        (((layer.dense + layer.norms) * in.layers + final_norm) / in.pp + embedding + head_here) /
        in.tp;
  } else {
    memory.experts = layer.experts * share / (in.etp * in.ep);
    const double replicated = (layer.norms + layer.router) * share + final_norm / in.pp;
    dense = (layer.dense * share + embedding + head_here) / in.tp + replicated;
  }
  memory.parameters = dense + memory.experts;
  memory.weights =
      dense * bytes_per_parameter(in.distributed_optimizer, in.dp) +
      memory.experts * bytes_per_parameter(in.distributed_optimizer, head ? in.edp : in.dp);
}

/// The factor for micro-batches in flight, by which the sum over all layers is multiplied.
double pipeline_factor(const MemoryModelInput& in) {
  if (in.chunks > 1) return 1 + (in.pp - 1) / (in.pp * in.chunks);
  return in.pp > 1 ? std::min(1.0, in.microbatches / in.pp) : 1.0;
}

void add_activations(MegatronMemory& memory, const MemoryModelInput& in) {
  const double sb = in.sequence * in.micro_batch;
  const double sbh = sb * in.hidden;
  const bool sliced = in.sequence_parallel && in.selective_recompute;
  memory.layer = sliced ? sbh * (18 + 4 * in.ffn / in.hidden) : sbh * (10 + 24 / in.tp);
  // Tokens and labels (8 bytes) and the dropout after the embedding, for pp micro-batches.
  const double inputs = 8 * sb * in.pp + sbh * in.pp;
  double bytes = (memory.layer * in.layers + inputs) * pipeline_factor(in);
  if (sliced) {
    if (in.pp == 1) bytes += 4 * sbh * (1 + in.vocab / in.hidden);  // output layer and its loss
    memory.activations = bytes / in.tp;
    return;
  }
  if (in.pp == 1) bytes += 2 * (sb * in.vocab / in.tp + sbh);
  constexpr double overhead = 1.05;
  memory.activations = bytes * overhead;
}

}  // namespace

std::int64_t megatron_padded_vocab(std::int64_t vocab, std::int64_t divisible_by, std::int64_t tp) {
  return round_up(vocab, std::max<std::int64_t>(1, divisible_by * tp));
}

MemoryModelInput megatron_memory_input(const Plan& plan, std::int64_t padding,
                                       const RecomputeConfig& recompute,
                                       const ParallelOptimizerConfig& optimizer) {
  const ModelShape& model = plan.model;
  const Mesh& mesh = plan.mesh;
  MemoryModelInput in;
  in.layers = real(model.layers);
  in.hidden = real(model.hidden);
  in.ffn = real(model.kind(0).ffn);
  in.heads = real(model.heads);
  in.groups = real(model.kind(0).kv_heads);
  in.head_size = real(model.head_dim);
  in.vocab = real(megatron_padded_vocab(model.vocab, padding, mesh.tp));
  in.untied = !model.tied;
  in.gated = model.gated_mlp;
  in.rms_norm = model.norm_kind == NormKind::rms_norm;
  in.experts = real(model.experts);
  in.expert_ffn = real(model.expert_ffn);
  in.linear_bias = model.mlp_bias;
  in.sequence = real(model.seq_length);
  in.micro_batch = real(plan.micro_batch_size);
  in.microbatches = real(plan.microbatches);
  in.tp = real(mesh.tp);
  in.pp = real(mesh.pp);
  in.dp = real(mesh.dp);
  in.etp = real(mesh.etp);
  in.ep = real(mesh.ep);
  in.edp = real(mesh.edp);
  in.chunks = real(plan.map.chunks);
  in.sequence_parallel = plan.sequence_parallel;
  in.selective_recompute = !recompute.enable || recompute.select != "full";
  in.distributed_optimizer = optimizer.enable;
  return in;
}

MegatronMemory megatron_memory(const MemoryModelInput& input, bool head) {
  MegatronMemory memory;
  add_weights(memory, input, head);
  add_activations(memory, input);
  return memory;
}

}  // namespace trainctl
