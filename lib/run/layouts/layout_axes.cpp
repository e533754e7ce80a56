// The keys whose words a search of layouts chooses.
#include "config/schema/parallel_config.h"
#include "config/schema/words.h"
#include "run/layouts/layout_space.h"

namespace trainctl {

namespace {

std::vector<RunArrangement> schedulers_of(const Config&, const RunArrangement& layout) {
  std::vector<RunArrangement> all;
  for (const ScheduleTraits& one : schedules) {
    if (layout.chunks < one.min_chunks || layout.chunks > one.max_chunks) continue;
    all.emplace_back(layout).scheduler = one.value;
  }
  return all;
}

// Each schedule multiplies the number of layouts. With more ranks a search would take minutes.
constexpr std::int64_t max_ranks_of_schedules = 1024;

const ArrangementAxis scheduler_axis{
    .key = "scheduler",
    .label = "",
    .paths = {"parallel.pipeline.scheduler"},
    .free = &FreeKeys::scheduler,
    .max_ranks = max_ranks_of_schedules,
    .applies = [](const RunArrangement& layout) { return layout.stages > 1; },
    .values = schedulers_of,
    .take_given = [](const ParallelConfig& given,
                     RunArrangement& layout) { layout.scheduler = given.pipeline.scheduler; },
    .set = [](const RunArrangement& layout,
              ParallelConfig& parallel) { parallel.pipeline.scheduler = layout.scheduler; },
    .word =
        [](const RunArrangement& layout) { return std::string(traits_of(layout.scheduler).word); }};

/// A rule checks the key heads of single kinds of layers.
bool divides_heads(const ModelConfig& model, std::int64_t ranks) {
  const std::int64_t keys = model.num_query_groups.value_or(model.num_attention_heads);
  return model.num_attention_heads % ranks == 0 && (!model.layers.empty() || keys % ranks == 0);
}

std::vector<RunArrangement> exchanges_of(const Config& config, const RunArrangement& layout) {
  std::vector<RunArrangement> all{layout, layout};
  all.back().cp_comm_type = CpCommType::all_gather;
  for (std::int64_t heads = 2; heads <= layout.context_parallel; ++heads) {
    if (layout.context_parallel % heads != 0 ||
        !divides_heads(config.model, layout.tensor_parallel * heads)) {
      continue;
    }
    const bool whole = heads == layout.context_parallel;
    RunArrangement& one = all.emplace_back(layout);
    one.cp_comm_type = whole ? CpCommType::a2a : CpCommType::a2a_p2p;
    one.cp_heads = whole ? 1 : heads;
  }
  return all;
}

std::string exchange_word(const RunArrangement& layout) {
  std::string word(word_of(layout.cp_comm_type));
  if (layout.cp_comm_type != CpCommType::a2a_p2p) return word;
  return word + " [" + std::to_string(layout.cp_heads) + ", " +
         std::to_string(layout.context_parallel / layout.cp_heads) + "]";
}

/// Takes the first type of a list by layer for `layout`; the configuration keeps the list.
void take_exchange(const ParallelConfig& given, RunArrangement& layout) {
  const auto& sizes = given.hierarchical_context_parallel_sizes;
  layout.cp_comm_type = given.cp_comm_type.layers.front();
  const bool mixed = layout.cp_comm_type == CpCommType::a2a_p2p;
  layout.cp_heads = mixed && sizes && !sizes->empty() ? sizes->front() : 1;
}

void set_exchange(const RunArrangement& layout, ParallelConfig& parallel) {
  parallel.cp_comm_type = layout.cp_comm_type;
  if (layout.cp_comm_type != CpCommType::a2a_p2p) return;
  parallel.hierarchical_context_parallel_sizes =
      IntList{layout.cp_heads, layout.context_parallel / layout.cp_heads};
}

const ArrangementAxis exchange_axis{
    .key = "cp_comm_type",
    .label = "",
    .paths = {"parallel.cp_comm_type", "parallel.hierarchical_context_parallel_sizes"},
    .free = &FreeKeys::cp_comm_type,
    .max_ranks = max_ranks,
    .applies = [](const RunArrangement& layout) { return layout.context_parallel > 1; },
    .values = exchanges_of,
    .take_given = take_exchange,
    .set = set_exchange,
    .word = exchange_word};

/// tp_overlap is off or on: it overlaps collectives of sequence parallelism.
std::vector<RunArrangement> overlaps_of(const Config&, const RunArrangement& layout) {
  std::vector<RunArrangement> all{layout, layout};
  all.back().tp_overlap = true;
  return all;
}

const ArrangementAxis overlap_axis{
    .key = "tp_comm_overlap",
    .label = "tp_comm_overlap ",
    .paths = {"parallel.tp_comm_overlap.enable"},
    .free = &FreeKeys::tp_overlap,
    .max_ranks = max_ranks,
    .applies = [](const RunArrangement& layout) { return layout.tensor_parallel > 1; },
    .values = overlaps_of,
    .take_given = [](const ParallelConfig& given,
                     RunArrangement& layout) { layout.tp_overlap = given.tp_comm_overlap.enable; },
    .set = [](const RunArrangement& layout,
              ParallelConfig& parallel) { parallel.tp_comm_overlap.enable = layout.tp_overlap; },
    .word =
        [](const RunArrangement& layout) { return std::string(layout.tp_overlap ? "on" : "off"); }};

}  // namespace

std::span<const ArrangementAxis> layout_axes() {
  static const std::vector<ArrangementAxis> axes{scheduler_axis, exchange_axis, overlap_axis};
  return axes;
}

}  // namespace trainctl
