#include "plan/cost/korthikanti_memory.h"

namespace trainctl {

std::string_view name_of(Technique technique) {
  switch (technique) {
    case Technique::none: return "no parallelism";
    case Technique::tensor: return "tensor";
    case Technique::tensor_sequence: return "tensor and sequence";
    case Technique::tensor_selective: return "tensor, selective recomputation";
    case Technique::tensor_sequence_selective:
      return "tensor and sequence, selective recomputation";
    case Technique::full: return "full recomputation";
  }
  return "?";
}

KorthikantiInput korthikanti_input(const Plan& plan) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  KorthikantiInput input;
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
  if (recompute.enable && recompute.select == "full") return Technique::full;
  return plan.sequence_parallel ? Technique::tensor_sequence_selective
                                : Technique::tensor_selective;
}

double korthikanti_layer(const KorthikantiInput& input, Technique technique) {
  const double sbh = input.sequence * input.micro_batch * input.hidden;
  const double scores = 5 * input.heads * input.sequence / input.hidden;
  const double t = input.tp;
  switch (technique) {
    case Technique::none: return sbh * (34 + scores);
    case Technique::tensor: return sbh * (10 + 24 / t + scores / t);
    case Technique::tensor_sequence: return sbh / t * (34 + scores);
    case Technique::tensor_selective: return sbh * (10 + 24 / t);
    case Technique::tensor_sequence_selective: return sbh / t * 34;
    case Technique::full: return sbh * 2;
  }
  return 0;
}

double korthikanti_total(const KorthikantiInput& input, Technique technique) {
  const double sbh = input.sequence * input.micro_batch * input.hidden;
  const double interleaved = input.chunks > 1 ? 1 + (input.pp - 1) / (input.pp * input.chunks) : 1;
  double bytes = korthikanti_layer(input, technique) * input.layers * interleaved;
  bytes += sbh * input.pp / input.tp;
  if (input.pp == 1) bytes += 4 * sbh / input.tp * (1 + input.vocab / input.hidden);
  return bytes;
}

}  // namespace trainctl
