#include "verify/data.h"

#include "base/philox.h"

namespace trainctl {

namespace {

constexpr std::uint64_t token_stream = 0x746F6B656E73;
constexpr std::uint64_t weight_stream = 0x77656967687473;

void put_sample(const Config& config, std::int64_t sample, std::size_t row, Batch& batch) {
  const std::int64_t length = config.model.seq_length;
  const Philox tokens(config.train.seed, token_stream);
  const Philox weights(config.train.seed, weight_stream);
  const auto vocabulary = static_cast<std::uint32_t>(config.model.vocab_size);
  const auto first = static_cast<std::uint64_t>(sample * (length + 1));
  const auto token = [&](std::int64_t place) {
    const std::uint32_t bits = tokens.bits(first + static_cast<std::uint64_t>(place));
    return static_cast<std::int32_t>(bits % vocabulary);
  };
  std::int32_t document = 0;
  std::int32_t position = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const std::uint32_t bits = weights.bits(first + static_cast<std::uint64_t>(i));
    if (i > 0 && (bits >> 8) % 8 == 0) {
      ++document;
      if (config.data.reset_position_ids) position = 0;
    }
    const float weight = bits % 8 == 0 ? 0.0F : bits % 8 == 1 ? 0.25F : 1.0F;
    const std::size_t at = row * static_cast<std::size_t>(length) + static_cast<std::size_t>(i);
    batch.tokens[at] = token(i);
    batch.labels[at] = token(i + 1);
    batch.loss_weight[at] = weight;
    batch.position[at] = position++;
    batch.document[at] = document;
    batch.global_token[at] = sample * length + i;
    batch.weight_sum += static_cast<double>(weight);
  }
}

}  // namespace

std::int64_t first_sequence(const Plan& plan, std::int64_t data_rank, std::int64_t microbatch) {
  return (microbatch * plan.mesh.dp + data_rank) * plan.micro_batch_size;
}

std::vector<Batch> made_up_batches(const Config& config, const Plan& plan, std::int64_t data_rank,
                                   std::int64_t step) {
  std::vector<Batch> batches(static_cast<std::size_t>(plan.microbatches));
  std::int64_t microbatch = 0;
  for (Batch& batch : batches) {
    resize(batch, plan.fed_sequences() * plan.model.seq_length);
    const std::int64_t first = step * config.train.global_batch_size +
                               first_sequence(plan, plan.full_batch ? 0 : data_rank, microbatch++);
    for (std::int64_t row = 0; row < plan.fed_sequences(); ++row) {
      put_sample(config, first + row, static_cast<std::size_t>(row), batch);
    }
  }
  return batches;
}

}  // namespace trainctl
