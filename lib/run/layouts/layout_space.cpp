#include "run/layouts/layout_space.h"

#include <algorithm>

namespace trainctl {

namespace {

constexpr std::int64_t most_micro_batch = 8;
constexpr std::int64_t most_chunks = 8;

using Sizes = std::vector<std::int64_t>;

Sizes divisors(std::int64_t number, std::int64_t most) {
  Sizes all;
  for (std::int64_t one = 1; one <= std::min(number, most); ++one) {
    if (number % one == 0) all.push_back(one);
  }
  return all;
}

/// The given value alone, or the divisors of `number`.
Sizes sizes_of(bool free, std::int64_t given, std::int64_t number, std::int64_t most) {
  return free ? divisors(number, most) : Sizes{given};
}

/// Adds the layouts with the sizes that `layout` has of tp, cp, ep and the stages.
void add_layouts(const Config& config, const FreeKeys& free, std::int64_t replicas,
                 RankLayout layout, std::vector<RankLayout>& all) {
  const std::int64_t layers = config.model.num_layers;
  const std::int64_t batch = config.train.global_batch_size;
  if (layers % layout.stages != 0 || batch % replicas != 0) return;
  const bool shares = replicas * layout.context_parallel > 1;
  const Sizes chunks = sizes_of(free.chunks && layout.stages > 1,
                                free.chunks ? 1 : config.parallel.virtual_pipeline_stages,
                                layers / layout.stages, most_chunks);
  const std::int64_t given = config.train.micro_batch_size.value_or(1);
  for (const std::int64_t chunk : chunks) {
    layout.chunks = chunk;
    for (const std::int64_t size :
         sizes_of(free.micro_batch, given, batch / replicas, most_micro_batch)) {
      layout.micro_batch_size = size;
      for (int level = 0; level <= (free.optimizer && shares ? 3 : 0); ++level) {
        layout.optimizer_level = level;
        all.push_back(layout);
      }
    }
  }
}

}  // namespace

FreeKeys free_keys(const Config& config, const SourceMap& sources) {
  const auto is_free = [&](const char* path) { return !sources.places().contains(path); };
  FreeKeys free;
  free.tensor = is_free("parallel.tensor_parallel");
  free.sequence = is_free("parallel.sequence_parallel");
  free.context = is_free("parallel.context_parallel");
  free.experts = config.moe.num_experts > 1 && is_free("parallel.expert_parallel");
  free.stages = is_free("parallel.pipeline_stages");
  free.chunks = is_free("parallel.virtual_pipeline_stages");
  free.micro_batch = is_free("train.micro_batch_size") && !config.train.micro_batch_num;
  free.optimizer = is_free("parallel.parallel_optimizer.enable") &&
                   is_free("parallel.parallel_optimizer.optimizer_level");
  free.recompute = is_free("recompute.enable");
  return free;
}

std::vector<RankLayout> layouts_of(const Config& config, const FreeKeys& free, std::int64_t world) {
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t heads = config.model.num_attention_heads;
  std::vector<RankLayout> all;
  RankLayout layout;
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

Config with_layout(const Config& config, const FreeKeys& free, const RankLayout& layout) {
  Config changed = config;
  ParallelConfig& parallel = changed.parallel;
  parallel.tensor_parallel = layout.tensor_parallel;
  parallel.context_parallel = layout.context_parallel;
  parallel.expert_parallel = layout.expert_parallel;
  parallel.pipeline_stages = layout.stages;
  parallel.virtual_pipeline_stages = layout.chunks;
  if (free.sequence) parallel.sequence_parallel = layout.tensor_parallel > 1;
  if (free.micro_batch) changed.train.micro_batch_size = layout.micro_batch_size;
  if (!free.optimizer) return changed;
  constexpr OptimizerLevel levels[] = {OptimizerLevel::level1, OptimizerLevel::level1,
                                       OptimizerLevel::level2, OptimizerLevel::level3};
  parallel.parallel_optimizer.enable = layout.optimizer_level > 0;
  parallel.parallel_optimizer.optimizer_level.reset();
  if (layout.optimizer_level > 0) {
    parallel.parallel_optimizer.optimizer_level = levels[layout.optimizer_level];
  }
  return changed;
}

std::string layout_text(const RankLayout& layout, std::int64_t world) {
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
  return text;
}

}  // namespace trainctl
