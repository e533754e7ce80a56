#include "plan/check.h"
#include "plan/plan.h"

namespace trainctl {

namespace {

constexpr std::int64_t most_count = std::int64_t{1} << 40;
constexpr std::int64_t most_sequences = std::int64_t{1} << 24;
constexpr std::int64_t most_ranks = std::int64_t{1} << 24;

void check_world(const ParallelConfig& parallel, std::int64_t world, Check& check) {
  const std::string ranks = std::to_string(world) + (world == 1 ? " rank" : " ranks");
  if (parallel.device_num && *parallel.device_num != world) {
    check.error("device-num", "parallel.device_num",
                ranks + " != device_num " + std::to_string(*parallel.device_num),
                "device_num could be " + std::to_string(world) + " or left out, or " +
                    std::to_string(*parallel.device_num) + " ranks be started");
  }
  const bool alone = parallel.parallel_mode == ParallelMode::stand_alone;
  if (alone && world != 1) {
    check.error("stand-alone", "parallel.parallel_mode",
                ranks + " != 1, the only size of parallel_mode stand_alone",
                "parallel_mode could be data_parallel, or one rank be started");
  }
  if (parallel.data_parallel && *parallel.data_parallel != world && !(alone && world != 1)) {
    check.error("world-size", "parallel.data_parallel",
                ranks + " != data " + std::to_string(*parallel.data_parallel),
                "data_parallel could be " + std::to_string(world) + " or left out, or " +
                    std::to_string(*parallel.data_parallel) + " ranks be started");
  }
}

/// Whole micro-batches of equal size on every rank; false if any rule was broken.
bool check_batch(const TrainConfig& train, std::int64_t world, Check& check) {
  if (!check.clean({"train.global_batch_size", "train.micro_batch_size", "parallel.data_parallel",
                    "parallel.parallel_mode"})) {
    return false;
  }
  const std::int64_t global = train.global_batch_size;
  const std::string sequences = std::to_string(global) + " sequences / ";
  if (global % world != 0) {
    check.error("batch-divides", "train.global_batch_size",
                sequences + "data " + std::to_string(world) + " is not whole",
                "global_batch_size could be " + multiples_near(world, global) + "; with " +
                    std::to_string(global) + " sequences the number of ranks could be " +
                    divisors_near(global, world));
    return false;
  }
  const std::int64_t local = global / world;
  const std::int64_t micro = train.micro_batch_size.value_or(local);
  if (local % micro == 0) return true;
  check.error("micro-batch-divides", "train.micro_batch_size",
              sequences + "(micro " + std::to_string(micro) + " x data " + std::to_string(world) +
                  ") is not whole",
              "micro_batch_size could be " + divisors_near(local, micro) +
                  ", or global_batch_size " + multiples_near(micro * world, global));
  return false;
}

/// Tables and byte counts stay within 64 bits and the memory of a laptop.
void check_magnitude(const Config& config, std::int64_t world, Check& check) {
  if (!check.clean(
          {"model.seq_length", "model.num_layers", "model.hidden_size", "model.ffn_hidden_size"})) {
    return;
  }
  const std::int64_t local = config.train.global_batch_size / world;
  const std::int64_t micro = config.train.micro_batch_size.value_or(local);
  const std::int64_t microbatches = local / micro;
  constexpr std::int64_t most_units = 4'000'000;
  if (microbatches > most_units / (config.model.num_layers + 2)) {
    check.error("schedule-too-long", "train.micro_batch_size",
                std::to_string(microbatches) + " micro-batches x " +
                    std::to_string(config.model.num_layers + 2) + " units are more than " +
                    std::to_string(most_units) + " rows in one step",
                "a larger micro_batch_size makes fewer of them");
  }
  constexpr std::int64_t most_tokens = (std::int64_t{1} << 31) - 1;
  if (micro > most_tokens / config.model.seq_length) {
    check.error("micro-batch-too-large", "train.micro_batch_size",
                "micro_batch_size " + std::to_string(micro) + " x seq_length " +
                    std::to_string(config.model.seq_length) + " is more than " +
                    std::to_string(most_tokens) + " tokens",
                "a smaller micro_batch_size makes more, smaller micro-batches");
  }
  const double tokens = static_cast<double>(micro) * static_cast<double>(config.model.seq_length);
  const double hidden = static_cast<double>(config.model.hidden_size);
  const double ffn = config.model.ffn_hidden_size
                         ? static_cast<double>(*config.model.ffn_hidden_size)
                         : 4 * hidden;
  const double q = 256 * static_cast<double>(config.model.num_attention_heads);
  const double bytes =
      4 * tokens * static_cast<double>(config.model.num_layers) * (16 * hidden + 4 * ffn + 8 * q);
  if (bytes > 1e18) {
    check.error("micro-batch-too-large", "train.micro_batch_size",
                "the activations of one micro-batch take about " + number(bytes) +
                    " bytes, above the limit of 1e+18",
                "a smaller micro_batch_size takes less");
  }
}

}  // namespace

void check_sizes(const Config& config, const Site& site, Check& check) {
  const TrainConfig& train = config.train;
  const ParallelConfig& parallel = config.parallel;
  check.range("train.steps", train.steps, 1, most_count);
  check.range("train.global_batch_size", train.global_batch_size, 1, most_sequences);
  check.range("train.micro_batch_size", train.micro_batch_size.value_or(1), 1, most_sequences);
  check.range("train.validate_every", train.validate_every, 0, most_count);
  check.range("train.check_replicas_every", train.check_replicas_every, 0, most_count);
  check.range("parallel.data_parallel", parallel.data_parallel.value_or(1), 1, most_ranks);
  check.range("parallel.device_num", parallel.device_num.value_or(1), 1, most_ranks);
  check.range("parallel.bucket_size", parallel.bucket_size, 1, most_count);
  check.range("parallel.threads_per_rank", parallel.threads_per_rank.value_or(1), 1, 4096);
  check.rule("parallel.deadline_seconds", parallel.deadline_seconds > 0, parallel.deadline_seconds,
             "above 0");
  if (check.clean({"parallel.data_parallel", "parallel.device_num", "parallel.parallel_mode"})) {
    check_world(parallel, site.world_size, check);
  }
  if (check_batch(train, site.world_size, check)) check_magnitude(config, site.world_size, check);
  if (parallel.threads_per_rank && *parallel.threads_per_rank > 1 &&
      *parallel.threads_per_rank * site.ranks_per_host > site.cores_per_host) {
    check.warning("threads-oversubscribe", "parallel.threads_per_rank",
                  std::to_string(site.ranks_per_host) + " ranks x " +
                      std::to_string(*parallel.threads_per_rank) + " threads are more than the " +
                      std::to_string(site.cores_per_host) + " cores of the host");
  }
}

void check_built(const Config& config, Check& check) {
  if (config.precision.compute == ComputeType::fp16 && check.clean({"precision.compute"})) {
    check.error("not-built", "precision.compute", "compute: fp16 is not built yet",
                "compute could be fp32 or bf16");
  }
  if (!check.clean({"parallel.device", "parallel.parallel_mode"})) return;
  if (config.parallel.device == "cuda") {
    check.error("not-built", "parallel.device", "device: cuda is not built yet",
                "device could be cpu");
  } else if (config.parallel.device != "cpu") {
    check.error("device", "parallel.device",
                "device \"" + config.parallel.device + "\" is neither cpu nor cuda",
                "device could be cpu");
  }
  const auto mode = config.parallel.parallel_mode;
  if (mode && mode != ParallelMode::stand_alone && mode != ParallelMode::data_parallel) {
    check.error("not-built", "parallel.parallel_mode", "this parallel_mode is not built yet",
                "parallel_mode could be stand_alone or data_parallel");
  }
}

}  // namespace trainctl
