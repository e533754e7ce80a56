// How the global batch divides into replicas and micro-batches, threads per host, and magnitudes.
#include <algorithm>

#include "plan/rules/check.h"

namespace trainctl {

namespace {

constexpr std::int64_t most_sequences = std::int64_t{1} << 24;

void check_ranges(const Config& config, Check& check) {
  const TrainConfig& train = config.train;
  check.range("train.steps", train.steps, 1, most_count);
  check.range("train.global_batch_size", train.global_batch_size, 1, most_sequences);
  check.range("train.micro_batch_size", train.micro_batch_size.value_or(1), 1, most_sequences);
  check.range("train.micro_batch_num", train.micro_batch_num.value_or(1), 1, most_sequences);
  check.range("train.validate_every", train.validate_every, 0, most_count);
  check.range("train.check_replicas_every", train.check_replicas_every, 0, most_count);
  check.range("parallel.threads_per_rank", config.parallel.threads_per_rank.value_or(1), 1, 4096);
  check.rule("parallel.deadline_seconds", config.parallel.deadline_seconds > 0,
             config.parallel.deadline_seconds, "above 0");
  const std::string& device = config.parallel.device;
  if (device != "auto" && device != "cpu" && device != "cuda" && check.clean({"parallel.device"})) {
    check.error("device", "parallel.device",
                "device must be auto, cpu or cuda, found \"" + device + "\"",
                "set device to auto, cpu or cuda");
  }
}

/// For a config that gives micro_batch_size and micro_batch_num: both must make up the batch.
bool check_product(const TrainConfig& train, std::int64_t data, Check& check) {
  const std::int64_t micro = *train.micro_batch_size;
  const std::int64_t count = *train.micro_batch_num;
  const std::int64_t global = train.global_batch_size;
  const std::int64_t product = product_of({micro, count, data});
  if (product == global) return true;
  std::vector<std::string> legal;
  if (global % product_of({micro, data}) == 0) {
    legal.push_back("set micro_batch_num to " + std::to_string(global / (micro * data)));
  }
  if (global % product_of({count, data}) == 0) {
    legal.push_back("set micro_batch_size to " + std::to_string(global / (count * data)));
  }
  if (product <= most_sequences) {
    legal.push_back("set global_batch_size to " + std::to_string(product));
  }
  check.error("micro-batch-product", "train.micro_batch_num",
              named("global_batch_size", global) + " must equal " +
                  named("micro_batch_size", micro) + " x " + named("micro_batch_num", count) +
                  " x " + named("data_parallel", data) + " = " + std::to_string(product),
              alternatives(legal));
  return false;
}

std::string unit_text(const Facts& facts) {
  return named("micro_batch_size", facts.batch.micro_batch_size) + " x " +
         named("data_parallel", facts.mesh.dp);
}

/// A batch that is rounded down must leave each replica a micro-batch.
bool check_least_batch(const Facts& facts, Check& check) {
  const std::int64_t unit = facts.batch.unit(facts.mesh);
  const std::int64_t least = facts.batch.ramp.front().batch;
  if (least >= unit) return true;
  const bool full = least == facts.config.train.global_batch_size;
  check.error("batch-too-small", full ? "train.global_batch_size" : "train.rampup_batch_size",
              "a batch of " + std::to_string(least) + " is less than " + unit_text(facts) + " = " +
                  std::to_string(unit) + ", so nothing is left to round it down to",
              std::string("set ") + (full ? "global_batch_size" : "the start of the ramp") +
                  " to " + std::to_string(unit) + " or more, or use smaller micro-batches");
  return false;
}

/// The batches on the way to the full one.
void check_ramp(const Facts& facts, Check& check) {
  const TrainConfig& train = facts.config.train;
  const char* path = "train.rampup_batch_size";
  if (!train.rampup_batch_size || !check.clean({path, "train.global_batch_size"})) return;
  const RampProblem problem = problem_of_ramp(train);
  if (!problem.message.empty()) {
    check.error("batch-ramp", path, problem.message, problem.help);
    return;
  }
  check.no_effect(
      path, facts.batch.ramp.size() == 1 && facts.site.done.steps == 0,
      "every step has the full batch, " + std::to_string(facts.batch.ramp.back().batch));
  if (!facts.mesh_is_clean(check) || train.decrease_batch_size_if_needed) return;
  const std::int64_t unit = facts.batch.unit(facts.mesh);
  for (const RampPart& part : facts.batch.ramp) {
    if (part.batch % unit == 0) continue;
    check.error("batch-ramp", path,
                "the batch of step " + std::to_string(part.first_step + 1) + ", " +
                    std::to_string(part.batch) + ", must be divisible by " + unit_text(facts) +
                    " = " + std::to_string(unit),
                "set start and increment to multiples of " + std::to_string(unit) +
                    ", or decrease_batch_size_if_needed to true");
    return;
  }
}

/// The first rule of schedules that does not hold for so many micro-batches; empty: all hold.
std::string broken_rule(Facts facts, std::int64_t microbatches) {
  facts.batch.microbatches = microbatches;
  Diagnostics found;
  const SourceMap nowhere;
  Check trial(nowhere, found);
  check_pipeline(facts, trial);
  return found.has_errors() ? found.list().front().message : "";
}

/// Every rank must get whole micro-batches of equal size; false if a rule is broken.
bool check_sequences(const Facts& facts, Check& check) {
  const TrainConfig& train = facts.config.train;
  if (!facts.mesh_is_clean(check) ||
      !check.clean(
          {"train.global_batch_size", "train.micro_batch_size", "train.micro_batch_num"})) {
    return false;
  }
  const std::int64_t data = facts.mesh.dp;
  const std::int64_t global = train.global_batch_size;
  const std::string sequences = named("global_batch_size", global);
  if (train.decrease_batch_size_if_needed) {
    const bool both = train.micro_batch_size && train.micro_batch_num;
    return (!both || check_product(train, data, check)) && check_least_batch(facts, check);
  }
  if (global % data != 0) {
    check.error("batch-divides", "train.global_batch_size",
                indivisible(sequences, named("data_parallel", data)),
                "set global_batch_size to " + multiples_near(data, global) +
                    (facts.splits ? ", or data_parallel to " + divisors_near(global, data)
                                  : ", or start " + divisors_near(global, data) + " ranks"));
    return false;
  }
  if (train.micro_batch_size && train.micro_batch_num) return check_product(train, data, check);
  const bool by_size = train.micro_batch_size.has_value();
  if (!by_size && !train.micro_batch_num) return true;
  const std::int64_t local = global / data;
  const std::int64_t part = by_size ? *train.micro_batch_size : *train.micro_batch_num;
  if (local % part == 0) return true;
  const std::string key = by_size ? "micro_batch_size" : "micro_batch_num";
  const std::int64_t product = product_of({part, data});
  check.error("micro-batch-divides", "train." + key,
              indivisible(sequences, named(key, part) + " x " + named("data_parallel", data)),
              "set " + key + " to " + divisors_near(local, part) +
                  (product <= most_sequences
                       ? ", or global_batch_size to " + multiples_near(product, global)
                       : ""));
  return false;
}

/// Keeps byte counts within 64 bits and the plan's tables within the memory of a laptop.
void check_magnitude(const Facts& facts, Check& check) {
  const Config& config = facts.config;
  if (!check.clean(
          {"model.seq_length", "model.num_layers", "model.hidden_size", "model.ffn_hidden_size"})) {
    return;
  }
  const std::int64_t micro = facts.batch.micro_batch_size;
  std::int64_t microbatches = 0;  // of all sizes that are planned
  for (const RampPart& part : facts.batch.ramp) {
    microbatches += std::max<std::int64_t>(1, part.batch / facts.batch.unit(facts.mesh));
  }
  constexpr std::int64_t most_units = 4'000'000;
  if (microbatches > most_units / (config.model.num_layers + 2)) {
    check.error("schedule-too-long", "train.micro_batch_size",
                std::to_string(microbatches) + " micro-batches x " +
                    std::to_string(config.model.num_layers + 2) + " units give more than " +
                    std::to_string(most_units) + " schedule rows per step",
                "increase micro_batch_size to have fewer micro-batches");
  }
  constexpr std::int64_t most_tokens = (std::int64_t{1} << 31) - 1;
  const char* help = "reduce micro_batch_size to have more, smaller micro-batches";
  if (micro > most_tokens / config.model.seq_length) {
    check.error("micro-batch-too-large", "train.micro_batch_size",
                named("micro_batch_size", micro) + " x " +
                    named("seq_length", config.model.seq_length) + " must be at most " +
                    std::to_string(most_tokens) + " tokens",
                help);
    return;
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
                    " bytes, but the limit is 1e+18",
                help);
  }
}

void remark_threads(const Facts& facts, Check& check) {
  const auto& threads = facts.parallel().threads_per_rank;
  const Site& site = facts.site;
  if (!threads || *threads <= 1 || !check.clean({"parallel.threads_per_rank"})) return;
  if (product_of({*threads, site.ranks_per_host}) <= site.cores_per_host) return;
  check.warning(
      "threads-oversubscribe", "parallel.threads_per_rank",
      counted(site.ranks_per_host, "rank") + " x " + named("threads_per_rank", *threads) +
          " need more than the " + counted(site.cores_per_host, "core") + " of the host",
      "set threads_per_rank to " +
          std::to_string(std::max<std::int64_t>(1, site.cores_per_host / site.ranks_per_host)) +
          ", or leave it out");
}

}  // namespace

/// What the schedule asks of the number of micro-batches holds for each of a ramp.
void check_ramp_schedules(const Facts& facts, Check& check) {
  const char* path = "train.rampup_batch_size";
  const bool other = facts.batch.ramp.size() == 1 || facts.mesh.pp == 1;
  if (other || !facts.mesh_is_clean(check) || !check.clean({path})) return;
  if (!broken_rule(facts, facts.batch.microbatches).empty()) return;
  for (const RampPart& part : facts.batch.ramp) {
    const std::int64_t count = part.batch / facts.batch.unit(facts.mesh);
    const std::string rule = broken_rule(facts, count);
    if (rule.empty()) continue;
    check.error("batch-ramp", path,
                "a batch of " + std::to_string(part.batch) + " is " + std::to_string(count) +
                    " x " + unit_text(facts) + ": " + rule,
                "start with a larger batch, or use smaller micro-batches");
    return;
  }
}

void check_batch(const Facts& facts, Check& check) {
  check_ranges(facts.config, check);
  const bool divides = check_sequences(facts, check);
  check_ramp(facts, check);
  if (divides && check.clean({"train.rampup_batch_size"})) check_magnitude(facts, check);
  remark_threads(facts, check);
}

}  // namespace trainctl
