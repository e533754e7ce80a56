// The pipeline schedule: stages, chunks and micro-batches.
#include <algorithm>

#include "base/round_up.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

/// The numbers of micro-batches, stages and chunks are known.
bool sizes_are_clean(const Facts& facts, Check& check) {
  return facts.mesh_is_clean(check) &&
         check.clean({"train.global_batch_size", "train.micro_batch_size", "train.micro_batch_num",
                      "parallel.virtual_pipeline_stages", "parallel.pipeline.layout"});
}

/// Ways to get `count` micro-batches: smaller micro-batches, or a larger batch.
std::vector<std::string> more_microbatches(const Facts& facts, std::int64_t count) {
  const TrainConfig& train = facts.config.train;
  const std::int64_t local = product_of({facts.batch.micro_batch_size, facts.batch.microbatches});
  std::vector<std::string> legal;
  if (local % count == 0 && !(train.micro_batch_num && train.micro_batch_size)) {
    legal.push_back(train.micro_batch_num
                        ? "set micro_batch_num to " + std::to_string(count)
                        : "set micro_batch_size to " + std::to_string(local / count));
  }
  const std::int64_t sequences = product_of({facts.batch.micro_batch_size, count, facts.mesh.dp});
  legal.push_back("set global_batch_size to " + std::to_string(sequences) + " (" +
                  std::to_string(count) + " micro-batches)");
  return legal;
}

/// The key that asks for chunks.
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
  if ((single && (traits.least_chunks == 1 || stages <= 1)) || facts.unsplit ||
      !facts.mesh_is_clean(check) || !check.clean({path, "parallel.pipeline.layout"})) {
    return;
  }
  if (stages <= 1) {
    check.error(
        "virtual-stages", path,
        named("virtual_pipeline_stages", chunks) + " needs a pipeline, but pipeline_stages is 1",
        "set pipeline_stages to 2 or more, or virtual_pipeline_stages to 1");
  } else if (facts.chunks < traits.least_chunks || facts.chunks > traits.most_chunks) {
    check.error("scheduler-chunks", path,
                "scheduler " + std::string(traits.word) + " needs " +
                    counted(traits.least_chunks, "chunk") +
                    " per stage, but virtual_pipeline_stages is " + std::to_string(facts.chunks),
                "set virtual_pipeline_stages to " + std::to_string(traits.least_chunks) +
                    ", or scheduler to 1f1b");
  } else if (parallel.pipeline.interleave == false && chunks > 1) {
    check.error("interleave-chunks", "parallel.pipeline.interleave",
                "interleave is false, but virtual_pipeline_stages is " + std::to_string(chunks),
                "set interleave to true or leave it out, or set virtual_pipeline_stages to 1");
  }
}

/// As in Megatron, a group of micro-batches runs on one chunk before the next chunk starts.
void check_microbatch_groups(const Facts& facts, Check& check) {
  const auto& given = facts.parallel().pipeline.microbatch_group_size_per_vp_stage;
  const char* path = "parallel.pipeline.microbatch_group_size_per_vp_stage";
  if (!check.clean({path}) || !sizes_are_clean(facts, check)) return;
  const bool grouped = facts.interleaved() && traits_of(facts.parallel().pipeline.scheduler).groups;
  if (!grouped) {
    check.no_effect(path, given.has_value(), "only the interleaved schedule forms groups");
    return;
  }
  const std::int64_t stages = facts.mesh.pp;
  const std::int64_t batches = facts.batch.microbatches;
  const std::int64_t group = given.value_or(stages);
  const std::string where = given ? path : chunks_path(facts);
  if (batches < stages) {
    check.error("microbatch-group", where,
                "the interleaved schedule needs at least " + named("pipeline_stages", stages) +
                    " micro-batches, found " + std::to_string(batches),
                alternatives(more_microbatches(facts, stages)));
  } else if (group < stages || group > batches) {
    check.error("microbatch-group", where,
                named("microbatch_group_size_per_vp_stage", group) + " must be from " +
                    named("pipeline_stages", stages) + " to " +
                    named("the number of micro-batches", batches),
                "set microbatch_group_size_per_vp_stage to " + std::to_string(stages) +
                    (batches > stages ? " or " + std::to_string(batches) : ""));
  } else if (batches % group != 0 && batches % group < stages) {
    std::vector<std::string> legal = more_microbatches(facts, (batches / group + 1) * group);
    legal.insert(legal.begin(),
                 "set microbatch_group_size_per_vp_stage to " + std::to_string(batches));
    check.error("microbatch-group", where,
                std::to_string(batches) + " micro-batches in groups of " + std::to_string(group) +
                    " leave a last group of " + std::to_string(batches % group) +
                    ", but it must have at least " + named("pipeline_stages", stages),
                alternatives(legal));
  }
}

/// As in MindSpore: at least as many micro-batches as stages; with interleaving a multiple of the
/// stages and at least twice as many.
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
    legal.push_back("set pipeline_stages to at most " + std::to_string(batches));
    check.error(
        "micro-batches-stages", path,
        named("micro_batch_num", batches) + " must be at least " + named("pipeline_stages", stages),
        alternatives(legal));
  } else if (facts.compiled && facts.interleaved() &&
             (batches < 2 * stages || batches % stages != 0)) {
    std::vector<std::string> legal =
        more_microbatches(facts, std::max(2 * stages, round_up(batches, stages)));
    legal.emplace_back("set virtual_pipeline_stages to 1");
    check.error("interleave-micro-batches", path,
                "interleaving in this parallel_mode needs " + named("micro_batch_num", batches) +
                    " to be a multiple of " + named("pipeline_stages", stages) + " and at least " +
                    std::to_string(2 * stages),
                alternatives(legal));
  }
}

void remark_schedule(const Facts& facts, Check& check) {
  if (facts.unsplit || !facts.mesh_is_clean(check)) return;  // check_modes reports it then
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

}  // namespace trainctl
