#include "verify/selection/one_layer.h"

#include <algorithm>
#include <numeric>

#include "base/units.h"

namespace trainctl {

namespace {

/// The largest divisor of `whole` that is at most `most`.
std::int64_t divisor(std::int64_t whole, std::int64_t most) {
  std::int64_t found = std::max<std::int64_t>(1, std::min(whole, most));
  while (whole % found != 0) --found;
  return found;
}

void cut_model(Config& config) {
  ModelConfig& model = config.model;
  MoeConfig& moe = config.moe;
  const bool both = moe.num_experts > 1 && (moe.first_dense_layers > 0 || moe.layer_frequency > 1);
  // One layer of each kind.
  for (LayerEntry& entry : model.layers) entry.count = 1;
  model.layer_pattern.reset();
  model.num_layers = std::max<std::int64_t>(both ? 2 : 1, std::ssize(model.layers));
  moe.first_dense_layers = both ? 1 : 0;
  moe.layer_frequency = 1;
  model.from.reset();
  model.vocab_size = std::min(model.vocab_size, max_layer_vocabulary);
  if (model.max_position_embeddings == model.seq_length) model.max_position_embeddings.reset();
  model.seq_length = divisor(model.seq_length, max_layer_tokens);
  moe.expert_group_size.reset();
  moe.capacity_group_size.reset();
  if (config.data.eod_token >= model.vocab_size) config.data.eod_token.reset();
}

void cut_layout(Config& config) {
  ParallelConfig& parallel = config.parallel;
  parallel.pipeline_stages = 1;
  parallel.virtual_pipeline_stages = 1;
  parallel.pipeline = {};
  parallel.delay_wgrad_compute = false;
  parallel.data_parallel = std::min(parallel.data_parallel.value_or(1), max_layer_replicas);
  const std::int64_t replicas = *parallel.data_parallel * parallel.context_parallel;
  parallel.expert_parallel = std::gcd(parallel.expert_parallel, replicas);
  parallel.expert_tensor_parallel.reset();
  parallel.device_num.reset();
  parallel.cp_comm_type.layers.resize(1);
  for (auto* splits :
       {&parallel.operator_splits.attention, &parallel.operator_splits.feed_forward}) {
    if (*splits && (*splits)->find_first_of(",*") != std::string::npos) splits->reset();
  }
  config.recompute.layers.reset();
  config.recompute.layers_per_stage.reset();
  config.recompute.num_microbatches_with_partial_activation_checkpoints.reset();
  config.offload.num_layers = std::min<std::int64_t>(config.offload.num_layers, 1);
}

}  // namespace

Config one_layer(Config config, std::int64_t replicas) {
  cut_model(config);
  cut_layout(config);
  config.train.global_batch_size = 2 * replicas;
  config.train.micro_batch_size = 1;
  config.train.micro_batch_num.reset();
  config.train.rampup_batch_size.reset();
  return config;
}

std::string what_is_left(const Config& whole, const Config& layer) {
  const auto part = [](std::int64_t left, std::int64_t all, const std::string& what) {
    return format_grouped(left) + " of " + format_grouped(all) + " " + what;
  };
  return part(layer.model.num_layers, whole.model.num_layers, "layers") + ", " +
         part(layer.model.vocab_size, whole.model.vocab_size, "rows of vocabulary") + ", " +
         part(layer.model.seq_length, whole.model.seq_length, "tokens of a sequence");
}

}  // namespace trainctl
