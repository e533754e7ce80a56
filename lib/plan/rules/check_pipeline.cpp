// The division of the global batch into replicas and micro-batches, threads per host, and
// magnitudes; then the pipeline schedule and its messages.

#include <algorithm>

#include "base/integers.h"
#include "base/text.h"
#include "config/schema/words.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

constexpr std::int64_t max_sequences = std::int64_t{1} << 24;

void check_ranges(const Config& config, Check& check) {
  const TrainConfig& train = config.train;
  check.range("train.steps", train.steps, 1, max_count);
  check.range("train.global_batch_size", train.global_batch_size, 1, max_sequences);
  check.range("train.micro_batch_size", train.micro_batch_size.value_or(1), 1, max_sequences);
  check.range("train.micro_batch_num", train.micro_batch_num.value_or(1), 1, max_sequences);
  check.range("train.validate_every", train.validate_every, 0, max_count);
  check.range("train.check_replicas_every", train.check_replicas_every, 0, max_count);
  check.range("parallel.threads_per_rank", config.parallel.threads_per_rank.value_or(1), 1, 4096);
  check.rule("parallel.deadline_seconds", config.parallel.deadline_seconds > 0,
             config.parallel.deadline_seconds, "above 0");
  const std::string& device = config.parallel.device;
  if (device != "auto" && device != "cpu" && device != "cuda" && check.clean({"parallel.device"})) {
    check.error("device", "parallel.device",
                formatted("device must be auto, cpu or cuda, found \"{}\"", device),
                "set device to auto, cpu or cuda");
  }
}

/// If micro_batch_size and micro_batch_num are both given, their product must give the batch.
bool check_product(const TrainConfig& train, std::int64_t data, Check& check) {
  const std::int64_t micro = *train.micro_batch_size;
  const std::int64_t count = *train.micro_batch_num;
  const std::int64_t global = train.global_batch_size;
  const std::int64_t product = product_of({micro, count, data});
  if (product == global) return true;
  std::vector<std::string> legal;
  if (global % product_of({micro, data}) == 0) {
    legal.push_back(formatted("set micro_batch_num to {}", global / (micro * data)));
  }
  if (global % product_of({count, data}) == 0) {
    legal.push_back(formatted("set micro_batch_size to {}", global / (count * data)));
  }
  if (product <= max_sequences) legal.push_back(formatted("set global_batch_size to {}", product));
  check.error("micro-batch-product", "train.micro_batch_num",
              formatted("{} must equal {} x {} x {} = {}", named("global_batch_size", global),
                        named("micro_batch_size", micro), named("micro_batch_num", count),
                        named("data_parallel", data), product),
              alternatives(legal));
  return false;
}

std::string unit_text(const Facts& facts) {
  return formatted("{} x {}", named("micro_batch_size", facts.batch.micro_batch_size),
                   named("data_parallel", facts.mesh.dp));
}

/// A batch, rounded down, must give each replica a micro-batch.
bool check_least_batch(const Facts& facts, Check& check) {
  const std::int64_t unit = facts.batch.unit(facts.mesh);
  const std::int64_t least = facts.batch.ramp.front().batch;
  if (least >= unit) return true;
  const bool full = least == facts.config.train.global_batch_size;
  check.error(
      "batch-too-small", full ? "train.global_batch_size" : "train.rampup_batch_size",
      formatted("a batch of {} is less than {} = {}, so nothing is left to round it down to", least,
                unit_text(facts), unit),
      formatted("set {} to {} or more, or use smaller micro-batches",
                full ? "global_batch_size" : "the start of the ramp", unit));
  return false;
}

/// Checks the batch sizes before the full one.
void check_ramp(const Facts& facts, Check& check) {
  const TrainConfig& train = facts.config.train;
  const char* path = "train.rampup_batch_size";
  if (!train.rampup_batch_size || !check.clean({path, "train.global_batch_size"})) return;
  if (const auto problem = problem_of_ramp(train)) {
    return check.error(problem->code.c_str(), path, problem->message, problem->help);
  }
  check.no_effect(path, facts.batch.ramp.size() == 1 && facts.site.done.steps == 0,
                  formatted("every step has the full batch, {}", facts.batch.ramp.back().batch));
  if (!facts.mesh_is_clean(check) || train.decrease_batch_size_if_needed) return;
  const std::int64_t unit = facts.batch.unit(facts.mesh);
  for (const RampPart& part : facts.batch.ramp) {
    if (part.batch % unit == 0) continue;
    return check.error(
        "batch-ramp", path,
        formatted("the batch of step {}, {}, must be divisible by {} = {}", part.first_step + 1,
                  part.batch, unit_text(facts), unit),
        formatted(
            "set start and increment to multiples of {}, or decrease_batch_size_if_needed to true",
            unit));
  }
}

/// The message of the first schedule rule that `microbatches` breaks; empty if there is none.
std::string broken_rule(Facts facts, std::int64_t microbatches) {
  facts.batch.microbatches = microbatches;
  Diagnostics found;
  const SourceMap nowhere;
  Check trial(nowhere, found);
  check_pipeline(facts, trial);
  return found.has_errors() ? found.list().front().message : "";
}

/// Checks that every rank gets whole micro-batches of equal size; false if not.
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
    check.error(
        "batch-divides", "train.global_batch_size",
        indivisible(sequences, named("data_parallel", data)),
        formatted("set global_batch_size to {}{}", multiples_near(data, global),
                  facts.splits ? ", or data_parallel to " + divisors_near(global, data)
                               : formatted(", or start {} ranks", divisors_near(global, data))));
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
  check.error(
      "micro-batch-divides", "train." + key,
      indivisible(sequences, formatted("{} x {}", named(key, part), named("data_parallel", data))),
      formatted("set {} to {}{}", key, divisors_near(local, part),
                product <= max_sequences
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
  std::int64_t microbatches = 0;  // sum over all planned batch sizes
  for (const RampPart& part : facts.batch.ramp) {
    microbatches += std::max<std::int64_t>(1, part.batch / facts.batch.unit(facts.mesh));
  }
  constexpr std::int64_t max_units = 4'000'000;
  if (microbatches > max_units / (config.model.num_layers + 2)) {
    check.error("schedule-too-long", "train.micro_batch_size",
                formatted("{} micro-batches x {} units give more than {} schedule rows per step",
                          microbatches, config.model.num_layers + 2, max_units),
                "increase micro_batch_size to have fewer micro-batches");
  }
  constexpr std::int64_t max_tokens = (std::int64_t{1} << 31) - 1;
  const char* help = "reduce micro_batch_size to have more, smaller micro-batches";
  if (micro > max_tokens / config.model.seq_length) {
    return check.error(
        "micro-batch-too-large", "train.micro_batch_size",
        formatted("{} x {} must be at most {} tokens", named("micro_batch_size", micro),
                  named("seq_length", config.model.seq_length), max_tokens),
        help);
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
    check.error(
        "micro-batch-too-large", "train.micro_batch_size",
        formatted("the activations of one micro-batch take about {} bytes, but the limit is 1e+18",
                  number(bytes)),
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
      formatted("{} x {} need more than the {} of the host", counted(site.ranks_per_host, "rank"),
                named("threads_per_rank", *threads), counted(site.cores_per_host, "core")),
      formatted("set threads_per_rank to {}, or leave it out",
                std::max<std::int64_t>(1, site.cores_per_host / site.ranks_per_host)));
}

}  // namespace

/// Checks the schedule's rules about the number of micro-batches for each batch of a ramp.
void check_ramp_schedules(const Facts& facts, Check& check) {
  const char* path = "train.rampup_batch_size";
  const bool other = facts.batch.ramp.size() == 1 || facts.mesh.pp == 1;
  if (other || !facts.mesh_is_clean(check) || !check.clean({path})) return;
  if (!broken_rule(facts, facts.batch.microbatches).empty()) return;
  for (const RampPart& part : facts.batch.ramp) {
    const std::int64_t count = part.batch / facts.batch.unit(facts.mesh);
    const std::string rule = broken_rule(facts, count);
    if (rule.empty()) continue;
    return check.error(
        "batch-ramp", path,
        formatted("a batch of {} is {} x {}: {}", part.batch, count, unit_text(facts), rule),
        "start with a larger batch, or use smaller micro-batches");
  }
}

void check_batch(const Facts& facts, Check& check) {
  check_ranges(facts.config, check);
  const bool divides = check_sequences(facts, check);
  check_ramp(facts, check);
  if (divides && check.clean({"train.rampup_batch_size"})) check_magnitude(facts, check);
  remark_threads(facts, check);
}

// The pipeline schedule: stages, chunks and micro-batches.

namespace {

/// Whether the numbers of micro-batches, stages and chunks are known.
bool sizes_are_clean(const Facts& facts, Check& check) {
  return facts.mesh_is_clean(check) &&
         check.clean({"train.global_batch_size", "train.micro_batch_size", "train.micro_batch_num",
                      "parallel.virtual_pipeline_stages", "parallel.pipeline.layout"});
}

/// Texts for ways to get `count` micro-batches: smaller micro-batches, or a larger batch.
std::vector<std::string> more_microbatches(const Facts& facts, std::int64_t count) {
  const TrainConfig& train = facts.config.train;
  const std::int64_t local = product_of({facts.batch.micro_batch_size, facts.batch.microbatches});
  std::vector<std::string> legal;
  if (local % count == 0 && !(train.micro_batch_num && train.micro_batch_size)) {
    legal.push_back(train.micro_batch_num ? formatted("set micro_batch_num to {}", count)
                                          : formatted("set micro_batch_size to {}", local / count));
  }
  const std::int64_t sequences = product_of({facts.batch.micro_batch_size, count, facts.mesh.dp});
  legal.push_back(formatted("set global_batch_size to {} ({} micro-batches)", sequences, count));
  return legal;
}

/// The key that sets the number of chunks.
const char* chunks_path(const Facts& facts) {
  return facts.parallel().virtual_pipeline_stages > 1 || facts.chunks == 1
             ? "parallel.virtual_pipeline_stages"
             : "parallel.pipeline.layout";
}

void check_chunks(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  const char* path = chunks_path(facts);
  const std::int64_t chunks = parallel.virtual_pipeline_stages;
  const ScheduleTraits& traits = traits_of(parallel.pipeline.scheduler);
  const std::int64_t stages = facts.mesh.pp;
  const bool single = chunks <= 1 && facts.chunks <= 1;
  if ((single && (traits.min_chunks == 1 || stages <= 1)) || facts.unsplit ||
      !facts.mesh_is_clean(check) || !check.clean({path, "parallel.pipeline.layout"})) {
    return;
  }
  if (stages <= 1) {
    check.error(
        "virtual-stages", path,
        named("virtual_pipeline_stages", chunks) + " needs a pipeline, but pipeline_stages is 1",
        "set pipeline_stages to 2 or more, or virtual_pipeline_stages to 1");
  } else if (facts.chunks < traits.min_chunks || facts.chunks > traits.max_chunks) {
    check.error(
        "scheduler-chunks", path,
        formatted("scheduler {} needs {} per stage, but virtual_pipeline_stages is {}", traits.word,
                  counted(traits.min_chunks, "chunk"), facts.chunks),
        formatted("set virtual_pipeline_stages to {}, or scheduler to 1f1b", traits.min_chunks));
  } else if (parallel.pipeline.interleave == false && chunks > 1) {
    check.error("interleave-chunks", "parallel.pipeline.interleave",
                formatted("interleave is false, but virtual_pipeline_stages is {}", chunks),
                "set interleave to true or leave it out, or set virtual_pipeline_stages to 1");
  }
}

/// Checks the size of the groups of micro-batches that run on a chunk in a row, as in Megatron.
void check_microbatch_groups(const Facts& facts, Check& check) {
  const auto& given = facts.parallel().pipeline.microbatch_group_size_per_vp_stage;
  const char* path = "parallel.pipeline.microbatch_group_size_per_vp_stage";
  if (!check.clean({path}) || !sizes_are_clean(facts, check)) return;
  const bool grouped = facts.interleaved() && traits_of(facts.parallel().pipeline.scheduler).groups;
  if (!grouped) {
    return check.no_effect(path, given.has_value(), "only the interleaved schedule forms groups");
  }
  const std::int64_t stages = facts.mesh.pp;
  const std::int64_t batches = facts.batch.microbatches;
  const std::int64_t group = given.value_or(stages);
  const std::string where = given ? path : chunks_path(facts);
  if (batches < stages) {
    check.error("microbatch-group", where,
                formatted("the interleaved schedule needs at least {} micro-batches, found {}",
                          named("pipeline_stages", stages), batches),
                alternatives(more_microbatches(facts, stages)));
  } else if (group < stages || group > batches) {
    check.error(
        "microbatch-group", where,
        formatted("{} must be from {} to {}", named("microbatch_group_size_per_vp_stage", group),
                  named("pipeline_stages", stages), named("the number of micro-batches", batches)),
        formatted("set microbatch_group_size_per_vp_stage to {}{}", stages,
                  batches > stages ? formatted(" or {}", batches) : ""));
  } else if (batches % group != 0 && batches % group < stages) {
    std::vector<std::string> legal = more_microbatches(facts, (batches / group + 1) * group);
    legal.insert(legal.begin(), formatted("set microbatch_group_size_per_vp_stage to {}", batches));
    check.error("microbatch-group", where,
                formatted("{} micro-batches in groups of {} leave a last group of {}, but it must "
                          "have at least {}",
                          batches, group, batches % group, named("pipeline_stages", stages)),
                alternatives(legal));
  }
}

/// MindSpore's rule: at least one micro-batch per stage; with interleaving, a multiple of the
/// number of stages and at least two per stage.
void check_microbatches(const Facts& facts, Check& check) {
  const TrainConfig& train = facts.config.train;
  const bool by_number =
      train.micro_batch_num && facts.parallel().parallel_mode != ParallelMode::hybrid_parallel;
  if (facts.mesh.pp == 1 || (!facts.compiled && !by_number) || !sizes_are_clean(facts, check)) {
    return;
  }
  const std::int64_t stages = facts.mesh.pp;
  const std::int64_t batches = facts.batch.microbatches;
  const char* path = train.micro_batch_num ? "train.micro_batch_num" : "train.global_batch_size";
  if (batches < stages) {
    std::vector<std::string> legal = more_microbatches(facts, stages);
    legal.push_back(formatted("set pipeline_stages to at most {}", batches));
    check.error("micro-batches-stages", path,
                formatted("{} must be at least {}", named("micro_batch_num", batches),
                          named("pipeline_stages", stages)),
                alternatives(legal));
  } else if (facts.compiled && facts.interleaved() &&
             (batches < 2 * stages || batches % stages != 0)) {
    std::vector<std::string> legal =
        more_microbatches(facts, std::max(2 * stages, round_up(batches, stages)));
    legal.emplace_back("set virtual_pipeline_stages to 1");
    check.error(
        "interleave-micro-batches", path,
        formatted(
            "interleaving in this parallel_mode needs {} to be a multiple of {} and at least {}",
            named("micro_batch_num", batches), named("pipeline_stages", stages), 2 * stages),
        alternatives(legal));
  }
}

void remark_schedule(const Facts& facts, Check& check) {
  if (facts.unsplit || !facts.mesh_is_clean(check)) return;  // check_modes reports the former
  const PipelineConfig& pipeline = facts.parallel().pipeline;
  if (facts.mesh.pp == 1) {
    check.no_effect("parallel.pipeline.scheduler",
                    pipeline.scheduler != PipelineScheduler::one_f_one_b, "pipeline_stages is 1");
  }
  if (facts.chunks == 1 && facts.parallel().virtual_pipeline_stages <= 1) {
    check.no_effect("parallel.pipeline.interleave", pipeline.interleave == true,
                    "virtual_pipeline_stages is 1, so there is one chunk per stage");
  }
}

}  // namespace

void check_pipeline(const Facts& facts, Check& check) {
  check_chunks(facts, check);
  check_microbatches(facts, check);
  check_microbatch_groups(facts, check);
  remark_schedule(facts, check);
}

// Messages between pipeline stages, and weight gradients deferred until the pipeline drains.

namespace {

const char* overlap_path = "parallel.pipeline.overlap_p2p_comm";
const char* batch_path = "parallel.pipeline.batch_p2p_comm";
const char* ring_path = "parallel.pipeline.use_ring_exchange_p2p";

/// Checks keys that require batched messages; a ring exchange is a batch with both neighbours.
void check_batches(const Facts& facts, Check& check) {
  const PipelineConfig& pipeline = facts.parallel().pipeline;
  const ScheduleTraits& traits = traits_of(pipeline.scheduler);
  if (traits.batches || facts.mesh.pp == 1 || facts.unsplit) return;
  const auto refuse = [&](const char* path, const std::string& key) {
    check.error("scheduler-batches", path,
                formatted("scheduler {} exchanges its messages one by one, but {} is true",
                          traits.word, key),
                formatted("set {} to false or leave it out, or set scheduler to 1f1b", key));
  };
  if (pipeline.use_ring_exchange_p2p) {
    refuse(ring_path, "use_ring_exchange_p2p");
  } else if (pipeline.batch_p2p_comm == true) {
    refuse(batch_path, "batch_p2p_comm");
  }
}

void check_overlapped(const Facts& facts, Check& check) {
  const PipelineConfig& pipeline = facts.parallel().pipeline;
  if (!check.clean({overlap_path, batch_path, ring_path})) return;
  check_batches(facts, check);
  if (pipeline.use_ring_exchange_p2p) return;
  if (pipeline.overlap_p2p_comm && pipeline.batch_p2p_comm == true) {
    return check.error(
        "overlap-batch", batch_path,
        "batch_p2p_comm and overlap_p2p_comm must not both be true: a batch of messages "
        "completes as a whole",
        "set batch_p2p_comm to false or leave it out, or set overlap_p2p_comm to false");
  }
  if (pipeline.overlap_p2p_comm_warmup_flush && !pipeline.overlap_p2p_comm) {
    return check.error("warmup-flush", "parallel.pipeline.overlap_p2p_comm_warmup_flush",
                       "overlap_p2p_comm_warmup_flush needs overlap_p2p_comm, which is false",
                       "set overlap_p2p_comm to true, or overlap_p2p_comm_warmup_flush to false");
  }
  const bool known = facts.mesh_is_clean(check) &&
                     check.clean({"parallel.virtual_pipeline_stages", "parallel.pipeline"});
  // Megatron's rule for its schedule without chunks. Megatron has no GPipe.
  const bool overlaps = traits_of(pipeline.scheduler).overlaps;
  if (pipeline.overlap_p2p_comm && known && !overlaps && facts.mesh.pp > 1 && facts.chunks == 1) {
    check.error("overlap-chunks", overlap_path,
                "overlap_p2p_comm needs several chunks per stage, but virtual_pipeline_stages is 1",
                "set virtual_pipeline_stages to 2, scheduler to gpipe, or overlap_p2p_comm to "
                "false");
  }
}

void remark_ways(const Facts& facts, Check& check) {
  const PipelineConfig& pipeline = facts.parallel().pipeline;
  if (pipeline.use_ring_exchange_p2p) {
    const char* reason = "use_ring_exchange_p2p replaces single messages";
    check.no_effect(batch_path, pipeline.batch_p2p_comm.has_value(), reason);
    check.no_effect(overlap_path, pipeline.overlap_p2p_comm, reason);
  }
  // With one chunk, no two messages are neighbours, so a batch has one message.
  const bool alone = facts.mesh.pp > 1 && facts.chunks == 1 &&
                     pipeline.scheduler == PipelineScheduler::one_f_one_b;
  const char* one_chunk =
      "virtual_pipeline_stages is 1, so that no two messages are posted at once";
  const ScheduleTraits& traits = traits_of(pipeline.scheduler);
  const bool in_batches = traits.batches && (facts.chunks == 1 || !traits.apart);
  const bool batched = pipeline.batch_p2p_comm.value_or(!pipeline.overlap_p2p_comm && in_batches);
  if (alone) {
    check.no_effect(batch_path, pipeline.batch_p2p_comm == false, one_chunk);
    const bool ring_alone = !pipeline.batch_p2p_comm && !pipeline.overlap_p2p_comm;
    check.no_effect(ring_path, pipeline.use_ring_exchange_p2p && ring_alone, one_chunk);
  } else {
    check.no_effect(ring_path, pipeline.use_ring_exchange_p2p && facts.mesh.pp > 1 && batched,
                    "messages between stages are exchanged in batches anyway");
  }
  check.no_effect("parallel.pipeline.comm_backend",
                  pipeline.comm_backend == PipelineCommBackend("nccl") && facts.mesh.pp > 1 &&
                      resolve_device(facts.parallel(), facts.site) == DeviceKind::cpu,
                  "NCCL carries messages between devices, and device is cpu");
  const auto compute = resolve_compute(facts.config.precision);
  if (pipeline.dtype && *pipeline.dtype != compute && facts.mesh.pp > 1 &&
      check.clean({"parallel.pipeline.dtype", "precision.compute"})) {
    check.warning(
        "pipeline-dtype", "parallel.pipeline.dtype",
        formatted("messages between stages are rounded to {}, but precision.compute is {}",
                  word_of(*pipeline.dtype), word_of(compute)),
        formatted("set dtype to {} or leave it out", word_of(compute)));
  }
}

/// Why gradients are summed after each micro-batch, and how to change it; empty if they are not.
std::pair<std::string, std::string> summed_for_each(const Config& config) {
  if (config.hooks.no_sync == "never") {
    return {"hooks.no_sync is never", "set hooks.no_sync to last_microbatch"};
  }
  if (resolve_optimizer_level(config.parallel) != "level1") {
    return {"the parallel optimizer's level sums them after each micro-batch",
            "set optimizer_level to level1"};
  }
  if (type_of_gradients(config.optimizer) == DType::f32) return {};
  return {"main_grads_dtype (bf16) adds them up after each micro-batch",
          "set main_grads_dtype to fp32"};
}

void check_deferral(const Facts& facts, Check& check) {
  const PipelineConfig& pipeline = facts.parallel().pipeline;
  const char* path = "parallel.pipeline.defer_embedding_wgrad_compute";
  const char* limit = "parallel.pipeline.wgrad_deferral_limit";
  check.range(limit, pipeline.wgrad_deferral_limit, 0, std::int64_t{1} << 40);
  if (!pipeline.defer_embedding_wgrad_compute || facts.unsplit || !check.clean({path}) ||
      !facts.mesh_is_clean(check))
    return;
  if (facts.mesh.pp == 1) {
    check.error("defer-wgrad", path,
                "defer_embedding_wgrad_compute uses the time while a pipeline drains, but "
                "pipeline_stages is 1",
                "set pipeline_stages to 2 or more, or defer_embedding_wgrad_compute to false");
  } else if (!facts.parallel().gradient_accumulation_fusion.value_or(true) &&
             check.clean({"parallel.gradient_accumulation_fusion"})) {
    check.error("defer-wgrad", path,
                "defer_embedding_wgrad_compute needs gradient_accumulation_fusion, which is "
                "false",
                "set gradient_accumulation_fusion to true, or defer_embedding_wgrad_compute "
                "to false");
  } else if (const auto [why, hint] = summed_for_each(facts.config); !why.empty()) {
    check.error(
        "defer-wgrad", path,
        "defer_embedding_wgrad_compute needs gradients that are summed once in a step, but " + why,
        hint + ", or defer_embedding_wgrad_compute to false");
  }
}

/// Checks variable_seq_lengths: micro-batches are as long as their longest document.
void check_lengths(const Facts& facts, Check& check) {
  const char* path = "parallel.pipeline.variable_seq_lengths";
  const bool varies = facts.parallel().pipeline.variable_seq_lengths;
  check.no_effect(path, varies && facts.config.data.packing,
                  "data.packing is true, so that every sequence has seq_length tokens");
  if (!varies || facts.config.data.packing || facts.model.experts == 1) return;
  const std::int64_t sequence = facts.model.seq_length;
  const auto check_group = [&](const std::string& key, std::int64_t group) {
    const std::string place = "moe." + key;
    if (group < 1 || sequence < 1 || !check.clean({place.c_str(), "model.seq_length"})) return;
    if (group % sequence == 0 || sequence % group == 0) return;
    check.error("variable-lengths", place,
                "with variable_seq_lengths a group must have whole sequences, or divide one: " +
                    indivisible(named("seq_length", sequence), named(key, group)),
                formatted("set {} to {}, or to a multiple of {}", key,
                          divisors_near(sequence, group), sequence));
  };
  const std::optional<std::int64_t> apart = facts.config.moe.capacity_group_size;
  check_group("expert_group_size", facts.model.routing_group);
  if (apart) check_group("capacity_group_size", facts.model.capacity_group);
}

/// Warns about keys of section pipeline that have no effect with one stage.
void remark_one_stage(const Facts& facts, Check& check) {
  const PipelineConfig& pipeline = facts.parallel().pipeline;
  const auto idle =
      idle_in(check, "parallel.pipeline.",
              facts.unsplit ? formatted("parallel_mode {} has no stages", word_of(facts.mode))
                            : "pipeline_stages is 1");
  idle("dtype", pipeline.dtype.has_value());
  idle("comm_backend", pipeline.comm_backend.has_value());
  idle("overlap_p2p_comm", pipeline.overlap_p2p_comm);
  idle("batch_p2p_comm", pipeline.batch_p2p_comm == false);
  idle("use_ring_exchange_p2p", pipeline.use_ring_exchange_p2p);
  idle("overlap_p2p_comm_warmup_flush", pipeline.overlap_p2p_comm_warmup_flush);
  if (facts.unsplit) {
    idle("defer_embedding_wgrad_compute", pipeline.defer_embedding_wgrad_compute);
    idle("wgrad_deferral_limit", pipeline.wgrad_deferral_limit != 0);
    idle("microbatch_group_size_per_vp_stage",
         pipeline.microbatch_group_size_per_vp_stage.has_value());
    idle("layout", pipeline.layout.has_value());
    idle("offset", pipeline.offset.has_value());
    idle("first_stage_layers", pipeline.first_stage_layers.has_value());
    idle("last_stage_layers", pipeline.last_stage_layers.has_value());
    idle("account_for_embedding", pipeline.account_for_embedding);
    idle("account_for_loss", pipeline.account_for_loss);
  }
  idle("deallocate_outputs", pipeline.deallocate_outputs);
  idle("result_broadcast", pipeline.result_broadcast);
}

}  // namespace

void check_messages(const Facts& facts, Check& check) {
  check_overlapped(facts, check);
  check_deferral(facts, check);
  check_lengths(facts, check);
  if (!facts.mesh_is_clean(check)) return;
  if (facts.mesh.pp == 1 || facts.unsplit) remark_one_stage(facts, check);
  if (facts.unsplit) return;
  remark_ways(facts, check);
}

}  // namespace trainctl
