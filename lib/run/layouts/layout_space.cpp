#include "run/layouts/layout_space.h"

#include <algorithm>
#include <array>
#include <utility>

namespace trainctl {

namespace {

constexpr std::int64_t max_micro_batch = 8;
constexpr std::int64_t max_chunks = 8;

using Sizes = std::vector<std::int64_t>;

Sizes divisors(std::int64_t number, std::int64_t most) {
  Sizes all;
  for (std::int64_t one = 1; one <= std::min(number, most); ++one) {
    if (number % one == 0) all.push_back(one);
  }
  return all;
}

/// The divisors of `number` up to `most` if the key is free, else only the given value.
Sizes sizes_of(bool free, std::int64_t given, std::int64_t number, std::int64_t most) {
  return free ? divisors(number, most) : Sizes{given};
}

/// Adds the four pairs of first and last stage whose largest stage is smallest. `chunks` must
/// divide the layers of each stage, and the stages between have equal numbers.
void add_unequal(std::int64_t layers, RunArrangement layout, std::vector<RunArrangement>& all) {
  constexpr std::size_t most = 4;
  std::vector<std::pair<std::int64_t, RunArrangement>> pairs;  // by the layers of the largest stage
  const std::int64_t between = layout.stages - 2;
  const std::int64_t step = layout.chunks;
  for (std::int64_t first = step; first < layers; first += step) {
    for (std::int64_t last = step; first + last <= layers; last += step) {
      const std::int64_t rest = layers - first - last;
      const bool fits = between == 0 ? rest == 0 : rest > 0 && rest % (between * step) == 0;
      const std::int64_t middle = between == 0 ? 0 : rest / between;
      if (!fits || (first == last && (between == 0 || middle == first))) continue;
      layout.first_layers = first;
      layout.last_layers = last;
      pairs.emplace_back(std::max({first, last, middle}), layout);
    }
  }
  std::ranges::stable_sort(pairs, {}, &std::pair<std::int64_t, RunArrangement>::first);
  for (std::size_t i = 0; i < std::min(most, pairs.size()); ++i) all.push_back(pairs[i].second);
}

/// The number of layers of a stage.
std::int64_t layers_of(const RunArrangement& layout, std::int64_t layers, std::int64_t stage) {
  const bool first = stage == 0;
  const bool last = stage == layout.stages - 1;
  if (layout.first_layers > 0) {
    const std::int64_t ends = layout.first_layers + layout.last_layers;
    const std::int64_t between = std::max<std::int64_t>(1, layout.stages - 2);
    return first ? layout.first_layers : last ? layout.last_layers : (layers - ends) / between;
  }
  const std::int64_t embedding = layout.counts_embedding ? 1 : 0;
  const std::int64_t loss = layout.counts_loss ? 1 : 0;
  return (layers + embedding + loss) / layout.stages - (first ? embedding : 0) - (last ? loss : 0);
}

/// The ways to divide `layers` among the stages and chunks of `layout`.
std::vector<RunArrangement> cuts_of(std::int64_t layers, bool free, const RunArrangement& layout) {
  if (!free) return {layout};
  std::vector<RunArrangement> all;
  const std::int64_t places = layout.stages * layout.chunks;
  for (const bool embedding : {false, true}) {
    for (const bool loss : {false, true}) {
      const std::int64_t counted = layers + (embedding ? 1 : 0) + (loss ? 1 : 0);
      if (counted % places != 0 || (layout.stages == 1 && (embedding || loss))) continue;
      RunArrangement& one = all.emplace_back(layout);
      one.counts_embedding = embedding;
      one.counts_loss = loss;
    }
  }
  if (layout.stages > 1) add_unequal(layers, layout, all);
  if (layout.chunks > 1) return all;
  std::vector<RunArrangement> different;
  for (const RunArrangement& one : all) {
    const bool known = std::ranges::any_of(different, [&](const RunArrangement& other) {
      return std::ranges::all_of(
          std::to_array({std::int64_t{0}, std::int64_t{1}, layout.stages - 1}),
          [&](std::int64_t stage) {
            return layers_of(one, layers, stage) == layers_of(other, layers, stage);
          });
    });
    if (!known) different.push_back(one);
  }
  return different;
}

/// The layout with every combination of words of the free axes.
std::vector<RunArrangement> words_of(const Config& config, const FreeKeys& free,
                                     RunArrangement layout) {
  for (const ArrangementAxis& axis : layout_axes()) {
    if (!(free.*axis.free)) axis.take_given(config.parallel, layout);
  }
  std::vector<RunArrangement> all{layout};
  for (const ArrangementAxis& axis : layout_axes()) {
    if (!(free.*axis.free) || !axis.applies(layout)) continue;
    std::vector<RunArrangement> more;
    for (const RunArrangement& one : all) {
      const std::vector<RunArrangement> values = axis.values(config, one);
      more.insert(more.end(), values.begin(), values.end());
    }
    all = std::move(more);
  }
  return all;
}

/// Whether the micro-batches can form the groups of the schedule, as a rule demands.
bool makes_groups(const Config& config, const RunArrangement& layout, std::int64_t of_replica) {
  const bool grouped = layout.stages > 1 && layout.chunks > 1 && traits_of(layout.scheduler).groups;
  if (!grouped || of_replica % layout.micro_batch_size != 0) return true;
  const auto& given = config.parallel.pipeline.microbatch_group_size_per_vp_stage;
  const std::int64_t group = given.value_or(layout.stages);
  const std::int64_t batches = of_replica / layout.micro_batch_size;
  const std::int64_t last = batches % group;
  return group >= layout.stages && group <= batches && (last == 0 || last >= layout.stages);
}

/// The layouts of these sizes with each number of chunks, division of layers and word of an axis.
std::vector<RunArrangement> pipelines_of(const Config& config, const FreeKeys& free,
                                         const RunArrangement& sizes) {
  const std::int64_t layers = config.model.num_layers;
  const std::int64_t chunks = free.chunks ? 1 : config.parallel.virtual_pipeline_stages;
  const std::int64_t most =
      free.chunks && sizes.stages > 1 ? std::min(max_chunks, layers / sizes.stages) : chunks;
  std::vector<RunArrangement> all;
  for (RunArrangement one = sizes; one.chunks <= most; ++one.chunks) {
    if (one.chunks < chunks) continue;
    for (const RunArrangement& cut : cuts_of(layers, free.cut, one)) {
      const std::vector<RunArrangement> words = words_of(config, free, cut);
      all.insert(all.end(), words.begin(), words.end());
    }
  }
  return all;
}

/// Adds the layouts with the tp, cp, ep and stages of `sizes`.
void add_layouts(const Config& config, const FreeKeys& free, std::int64_t replicas,
                 const RunArrangement& sizes, std::vector<RunArrangement>& all) {
  const std::int64_t batch = config.train.global_batch_size;
  if (sizes.stages > config.model.num_layers || batch % replicas != 0) return;
  const bool shares = replicas * sizes.context_parallel > 1;
  const std::int64_t given = config.train.micro_batch_size.value_or(1);
  const bool by_number = !free.micro_batch && config.train.micro_batch_num;
  for (RunArrangement layout : pipelines_of(config, free, sizes)) {
    for (const std::int64_t size :
         sizes_of(free.micro_batch, given, batch / replicas, max_micro_batch)) {
      layout.micro_batch_size = size;
      if (!by_number && !makes_groups(config, layout, batch / replicas)) continue;
      for (int level = 0; level <= (free.optimizer && shares ? 3 : 0); ++level) {
        layout.optimizer_level = level;
        all.push_back(layout);
      }
    }
  }
}

}  // namespace

std::span<const SearchedKey> searched_keys() {
  using Paths = std::string_view[];
  static constexpr Paths tensor{"parallel.tensor_parallel"}, sequence{"parallel.sequence_parallel"},
      context{"parallel.context_parallel"}, experts{"parallel.expert_parallel"},
      stages{"parallel.pipeline_stages"}, chunks{"parallel.virtual_pipeline_stages"},
      cut{"parallel.pipeline.first_stage_layers",
          "parallel.pipeline.last_stage_layers",
          "parallel.pipeline.account_for_embedding",
          "parallel.pipeline.account_for_loss",
          "parallel.pipeline.layout",
          "parallel.pipeline.offset"},
      batch{"train.micro_batch_size", "train.micro_batch_num"},
      optimizer{"parallel.parallel_optimizer.enable", "parallel.parallel_optimizer.optimizer_level",
                "parallel.parallel_optimizer.gradient_accumulation_shard"},
      recompute{"recompute.enable"};
  static const std::vector<SearchedKey> keys = [] {
    std::vector<SearchedKey> all{{"tensor_parallel", &FreeKeys::tensor, tensor},
                                 {"sequence_parallel", &FreeKeys::sequence, sequence},
                                 {"context_parallel", &FreeKeys::context, context},
                                 {"expert_parallel", &FreeKeys::experts, experts},
                                 {"pipeline_stages", &FreeKeys::stages, stages},
                                 {"virtual_pipeline_stages", &FreeKeys::chunks, chunks},
                                 {"stage_layers", &FreeKeys::cut, cut},
                                 {"micro_batch_size", &FreeKeys::micro_batch, batch},
                                 {"parallel_optimizer", &FreeKeys::optimizer, optimizer},
                                 {"recompute", &FreeKeys::recompute, recompute}};
    for (const ArrangementAxis& axis : layout_axes())
      all.push_back({axis.key, axis.free, axis.paths});
    return all;
  }();
  return keys;
}

FreeKeys free_keys(const Config& config, const SourceMap& sources, const KeyChoice& choice) {
  const auto has = [](const std::vector<std::string>& words, std::string_view word) {
    return std::ranges::find(words, word) != words.end();
  };
  FreeKeys free;
  for (const SearchedKey& key : searched_keys()) {
    const bool given = std::ranges::any_of(key.paths, [&](std::string_view path) {
      return sources.places().contains(std::string(path));
    });
    free.*key.free = has(choice.freed, key.word) || (!given && !has(choice.fixed, key.word));
  }
  free.experts = free.experts && config.moe.num_experts > 1;
  // Without sequence parallelism there are no collectives that could overlap.
  free.tp_overlap = free.tp_overlap && (free.sequence || config.parallel.sequence_parallel);
  return free;
}

std::string searched_text(const FreeKeys& free) {
  std::string text;
  for (const SearchedKey& key : searched_keys()) {
    if (free.*key.free) text += (text.empty() ? "" : ", ") + std::string(key.word);
  }
  return text;
}

std::vector<std::string_view> unsearched_keys(std::int64_t world) {
  std::vector<std::string_view> keys{"precision",
                                     "parallel.expert_tensor_parallel",
                                     "parallel.rank_order",
                                     "parallel.pipeline.microbatch_group_size_per_vp_stage",
                                     "parallel.pipeline.overlap_p2p_comm",
                                     "parallel.pipeline.defer_embedding_wgrad_compute",
                                     "parallel.parallel_optimizer.weight_shard_size",
                                     "parallel.tp_comm_overlap.rs_dgrad",
                                     "parallel.operator_splits",
                                     "parallel.bucket_size",
                                     "parallel.delay_wgrad_compute",
                                     "parallel.vocab_emb_dp",
                                     "parallel.attention_backend",
                                     "offload"};
  for (const ArrangementAxis& axis : layout_axes()) {
    if (world > axis.max_ranks) keys.insert(keys.end(), axis.paths.begin(), axis.paths.end());
  }
  return keys;
}

std::string unsearched_text(std::int64_t world) {
  std::string text;
  for (const std::string_view key : unsearched_keys(world)) {
    text += (text.empty() ? "" : ", ") + std::string(key);
  }
  return text;
}

std::int64_t max_ranks_of(std::string_view word) {
  const auto axis = std::ranges::find(layout_axes(), word, &ArrangementAxis::key);
  return axis == layout_axes().end() ? max_ranks : axis->max_ranks;
}

FreeKeys within_ranks(FreeKeys free, std::int64_t world) {
  for (const ArrangementAxis& axis : layout_axes()) {
    free.*axis.free = free.*axis.free && world <= axis.max_ranks;
  }
  return free;
}

std::vector<RunArrangement> layouts_of(const Config& config, const FreeKeys& given,
                                       std::int64_t world) {
  const FreeKeys free = within_ranks(given, world);
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t heads = config.model.num_attention_heads;
  std::vector<RunArrangement> all;
  RunArrangement layout;
  for (const auto tp : sizes_of(free.tensor, parallel.tensor_parallel, world, heads)) {
    if (world % tp != 0 || heads % tp != 0) continue;
    layout.tensor_parallel = tp;
    for (const auto cp : sizes_of(free.context, parallel.context_parallel, world / tp, world)) {
      if (world / tp % cp != 0 || config.model.seq_length % (2 * cp) != 0) continue;
      layout.context_parallel = cp;
      const std::int64_t rest = world / tp / cp;
      for (const auto stages : sizes_of(free.stages, parallel.pipeline_stages, rest, rest)) {
        if (rest % stages != 0) continue;
        layout.stages = stages;
        const std::int64_t experts = std::max<std::int64_t>(1, config.moe.num_experts);
        for (const auto ep : sizes_of(free.experts, parallel.expert_parallel, experts, rest)) {
          if (rest / stages * cp % ep != 0) continue;
          layout.expert_parallel = ep;
          add_layouts(config, free, rest / stages, layout, all);
        }
      }
    }
  }
  std::ranges::sort(all);
  return all;
}

Config with_layout(const Config& config, const FreeKeys& free, const RunArrangement& layout) {
  Config changed = config;
  ParallelConfig& parallel = changed.parallel;
  parallel.tensor_parallel = layout.tensor_parallel;
  parallel.context_parallel = layout.context_parallel;
  parallel.expert_parallel = layout.expert_parallel;
  parallel.pipeline_stages = layout.stages;
  parallel.virtual_pipeline_stages = layout.chunks;
  if (free.sequence) parallel.sequence_parallel = layout.tensor_parallel > 1;
  for (const ArrangementAxis& axis : layout_axes()) {
    if (free.*axis.free) axis.set(layout, parallel);
  }
  if (free.micro_batch) {
    changed.train.micro_batch_size = layout.micro_batch_size;
    changed.train.micro_batch_num.reset();
  }
  if (free.recompute) {
    const RecomputeConfig without;
    changed.recompute.enable = without.enable;
    changed.recompute.select = without.select;
  }
  if (free.cut) {
    PipelineConfig& pipeline = parallel.pipeline;
    const PipelineConfig none;
    pipeline.layout = none.layout;
    pipeline.offset = none.offset;
    pipeline.first_stage_layers = none.first_stage_layers;
    pipeline.last_stage_layers = none.last_stage_layers;
    pipeline.account_for_embedding = layout.counts_embedding;
    pipeline.account_for_loss = layout.counts_loss;
    if (layout.first_layers > 0) pipeline.first_stage_layers = layout.first_layers;
    if (layout.last_layers > 0) pipeline.last_stage_layers = layout.last_layers;
  }
  if (!free.optimizer) return changed;
  constexpr OptimizerLevel levels[] = {OptimizerLevel("level1"), OptimizerLevel("level1"),
                                       OptimizerLevel("level2"), OptimizerLevel("level3")};
  parallel.parallel_optimizer.enable = layout.optimizer_level > 0;
  parallel.parallel_optimizer.optimizer_level.reset();
  const ParallelOptimizerConfig without;
  parallel.parallel_optimizer.gradient_accumulation_shard = without.gradient_accumulation_shard;
  if (layout.optimizer_level > 0) {
    parallel.parallel_optimizer.optimizer_level = levels[layout.optimizer_level];
    // Both keys are set consistently, in case the file has both.
    parallel.parallel_optimizer.gradient_accumulation_shard = layout.optimizer_level > 1;
  }
  return changed;
}

std::string layout_text(const RunArrangement& layout, std::int64_t world) {
  std::string text;
  const auto add = [&](const char* name, std::int64_t size) {
    if (size > 1) text += (text.empty() ? "" : " ") + std::string(name) + std::to_string(size);
  };
  add("tp ", layout.tensor_parallel);
  add("cp ", layout.context_parallel);
  add("ep ", layout.expert_parallel);
  add("pp ", layout.stages);
  add("x ", layout.chunks);
  add("dp ", world / (layout.tensor_parallel * layout.context_parallel * layout.stages));
  text += (text.empty() ? "" : " ") + std::string("micro-batch ") +
          std::to_string(layout.micro_batch_size);
  if (layout.optimizer_level > 0) text += " level" + std::to_string(layout.optimizer_level);
  if (layout.counts_embedding) text += " embedding as a layer";
  if (layout.counts_loss) text += " loss as a layer";
  if (layout.first_layers > 0) {
    text += " first " + std::to_string(layout.first_layers) + " last " +
            std::to_string(layout.last_layers);
  }
  for (const ArrangementAxis& axis : layout_axes()) {
    const std::string word = axis.word(layout);
    if (axis.applies(layout) && word != axis.word({})) {
      text += " " + std::string(axis.label) + word;
    }
  }
  return text;
}

}  // namespace trainctl
