// Lower bounds of a layout's needs in the search, compared with whole plans of the layout.
#include <algorithm>
#include <random>
#include <set>

#include "catch.h"
#include "config/devices/figures.h"
#include "plan/cost/min_needs.h"
#include "run/layouts/layout_bound.h"
#include "run/prepare.h"
#include "thorough.h"

using namespace trainctl;

namespace {

/// Models and machines that differ in what bounds must know: ends, kinds of layers, schedules.
constexpr const char* bounded_files[] = {
    "model: {num_layers: 8, hidden_size: 256, num_attention_heads: 4, seq_length: 128, "
    "vocab_size: 1024}\ncluster: {device: cpu-avx2}\n",
    "model: {family: llama, num_layers: 6, hidden_size: 512, num_attention_heads: 8, "
    "num_query_groups: 2, seq_length: 512, vocab_size: 32000}\nprecision: {compute: bf16}\n"
    "cluster: {device: h100-sxm}\n",
    "model: {num_layers: 10, hidden_size: 512, num_attention_heads: 8, seq_length: 256, "
    "vocab_size: 8192, tie_word_embeddings: true}\nprecision: {compute: bf16}\n"
    "cluster: {device: a100-sxm-80}\nparallel: {delay_wgrad_compute: true}\n",
    "model: {num_layers: 8, hidden_size: 512, num_attention_heads: 8, seq_length: 256, "
    "vocab_size: 8192}\nprecision: {compute: bf16}\ncluster: {device: h100-sxm}\n"
    "parallel: {pipeline: {scheduler: zb-h1}}\n",
    "model: {num_layers: 8, hidden_size: 512, num_attention_heads: 8, seq_length: 256, "
    "vocab_size: 8192}\nprecision: {compute: bf16}\ncluster: {device: h100-sxm}\n"
    "parallel: {pipeline: {scheduler: gpipe}}\n",
    "model: {family: llama, num_layers: 4, hidden_size: 256, num_attention_heads: 4, "
    "num_query_groups: 4, seq_length: 128, vocab_size: 1024}\nmoe: {num_experts: 4, router_topk: "
    "2}\n"
    "precision: {compute: bf16}\ncluster: {device: h100-sxm}\n",
    "model: {family: llama, num_layers: 6, hidden_size: 512, num_attention_heads: 8, "
    "num_query_groups: 2, seq_length: 512, vocab_size: 32000}\nprecision: {compute: bf16}\n"
    "cluster: {device: h100-sxm}\noptimizer: {type: muon}\n",
    "model: {num_layers: 8, hidden_size: 512, num_attention_heads: 8, seq_length: 256, "
    "vocab_size: 8192}\nprecision: {compute: bf16}\ncluster: {device: h100-sxm}\n"
    "parallel: {parallel_optimizer: {enable: true, optimizer_level: level3}}\n",
    "model: {family: llama, num_layers: 6, hidden_size: 256, num_attention_heads: 4, "
    "num_query_groups: 4, seq_length: 128, vocab_size: 1024}\nmoe: {num_experts: 4, router_topk: "
    "2, first_dense_layers: 2}\n"
    "precision: {compute: bf16}\ncluster: {device: h100-sxm}\n",
    "model: {num_layers: 8, hidden_size: 512, num_attention_heads: 8, seq_length: 256, "
    "vocab_size: 8192}\nprecision: {compute: bf16}\ncluster: {device: h100-sxm}\n"
    "parallel: {virtual_pipeline_stages: 2, pipeline: {scheduler: zb-v}}\n",
    "model: {family: llama, num_layers: 8, hidden_size: 512, num_attention_heads: 8, "
    "num_query_groups: 2, seq_length: 512, vocab_size: 8192}\nprecision: {compute: bf16}\n"
    "cluster: {device: h100-sxm}\nrecompute: {enable: true}\n",
    "model: {num_layers: 8, hidden_size: 512, num_attention_heads: 8, seq_length: 256, "
    "vocab_size: 8192}\nprecision: {compute: bf16}\ncluster: {device: h100-sxm}\n"
    "recompute: {enable: true, select: norms+attention, mp_comm_recompute: false}\n",
};

ReadResult bounded_file(const char* text) {
  const std::string rest =
      "train: {steps: 10, global_batch_size: 32}\nlr_schedule: {max_lr: 1.0e-3}\n";
  ReadResult read = read_config_text(text + rest, "t.yaml", {});
  forgive_missing(Purpose::plan, read.diagnostics);
  INFO(render_text(read.diagnostics, false));
  REQUIRE_FALSE(read.diagnostics.has_errors());
  return read;
}

/// A device whose attention takes half as long as its formula says, and is faster yet with heads of
/// 64 features: with few other operations no rate of products bounds a step.
ReadResult attention_file() {
  ReadResult read = bounded_file(
      "model: {num_layers: 4, hidden_size: 512, num_attention_heads: 8, ffn_hidden_size: 128, "
      "seq_length: 8192, vocab_size: 512}\ncluster: {device: cpu-avx2}\n");
  std::string text(device_text(read.config.cluster));
  const std::size_t begin = text.find("own: {");
  REQUIRE(begin != std::string::npos);
  text.replace(begin, text.find('}', begin) + 1 - begin,
               "own: {forward: 0.85, half_length: 32, launch: 5e-6, backward: 1.0, head_64: 1.5, "
               "table: {8192x8x64: 101000, 8192x8x64b: 252000}}");
  read.config.cluster.device = "attention.yaml";
  read.config.cluster.device_text = text;
  return read;
}

struct Planned {
  bool fits = false;
  double seconds = 0;
  std::int64_t bytes = 0;
};

Planned planned(const ArrangementSearch& search, const FoundArrangement& layout,
                std::int64_t limit) {
  Diagnostics found;
  const Plan plan =
      prepare(config_of(search, layout), search.sources, search.site, Purpose::plan, found);
  if (found.has_errors()) return {};
  const std::int64_t bytes = plan.max_memory().device();
  return {bytes <= limit, plan.time->step(), bytes};
}

/// Statistics of bounds compared with the seconds of plans.
struct Closeness {
  int all = 0, near = 0;          // near: at least .97 of them
  std::string others{};           // the ones that are not
  std::set<std::string> words{};  // of axes, that layouts had
};

void compare(ArrangementSearch& search, const RunArrangement& layout, double share,
             ArrangementBound& bound, Closeness& closeness) {
  const auto machine = machine_of(search.config.cluster, search.site.world_size);
  constexpr std::int64_t everything = std::int64_t{1} << 50;
  const Planned whole = planned(search, {.layout = layout}, everything);
  Diagnostics refused;
  const Config config = config_of(search, {.layout = layout});
  const Plan draft = prepare_draft(config, search.sources, search.site, refused);
  INFO(layout_text(layout, search.site.world_size) << " within " << share);
  if (refused.has_errors()) {
    CHECK_FALSE(whole.fits);
    return;
  }
  if (!whole.fits) return;  // what only whole plans refuse
  for (const ArrangementAxis& axis : layout_axes()) {
    if (axis.applies(layout)) closeness.words.insert(axis.word(layout));
  }
  CHECK(bound.seconds(layout) <= whole.seconds * (1 + 1e-9));
  CHECK(bound.state_bytes(layout) <= whole.bytes);
  const LeastNeeds closer = bound.closer(layout, everything);
  CHECK(closer.seconds <= whole.seconds * (1 + 1e-9));
  CHECK(closer.bytes <= whole.bytes);
  const LeastNeeds least = min_needs(draft, config, *machine, everything);
  CHECK_FALSE(least.repeats);
  CHECK(least.bytes <= whole.bytes);
  CHECK(least.seconds <= whole.seconds * (1 + 1e-9));
  CHECK(least.seconds >= whole.seconds * (1 - 1e-9));
  const auto limit = static_cast<std::int64_t>(share * static_cast<double>(whole.bytes));
  search.memory_limit = static_cast<double>(limit) / (1 << 30);
  const LeastNeeds within = min_needs(draft, config, *machine, limit);
  const Planned picked = planned(search, {.layout = layout, .repeats = true}, limit);
  if (!picked.fits) return;
  const LeastNeeds part = bound.closer(layout, limit);
  CHECK(part.bytes <= limit);
  CHECK(part.seconds <= picked.seconds * (1 + 1e-9));
  CHECK(within.lacking == 0);
  CHECK(within.seconds <= picked.seconds * (1 + 1e-9));
  ++closeness.all;
  const double reached = within.seconds / picked.seconds;
  if (reached >= 0.97) {
    ++closeness.near;
  } else {
    closeness.others += layout_text(layout, search.site.world_size) + " within " +
                        std::to_string(share) + ": " + std::to_string(reached) + "\n";
  }
}

/// Some layouts of a file on 16 ranks.
void compare_some(const ReadResult& read, std::size_t drawn, std::mt19937& random,
                  Closeness& closeness) {
  ArrangementSearch search{read.config, read.sources, {}, 1};
  search.site.world_size = 16;
  search.site.ranks_per_host = 8;
  const FreeKeys free = free_keys(read.config, read.sources);
  const auto machine = machine_of(read.config.cluster, search.site.world_size);
  ArrangementBound bound(search, free, *machine);
  std::vector<RunArrangement> space = layouts_of(read.config, free, search.site.world_size);
  std::ranges::shuffle(space, random);
  for (std::size_t i = 0; i < std::min(drawn, space.size()); ++i) {
    const double share = std::uniform_real_distribution(0.5, 1.0)(random);
    compare(search, space[i], share, bound, closeness);
  }
}

}  // namespace

TEST_CASE("no bound is above what a plan of the layout needs, and most are close") {
  std::mt19937 random(7);
  Closeness closeness;
  for (const char* text : bounded_files) {
    INFO(text);
    compare_some(bounded_file(text), brief() ? 2 : 16, random, closeness);
  }
  INFO(closeness.near << " of " << closeness.all << "\n" << closeness.others);
  if (brief()) return;
  CHECK(closeness.all >= 15);
  // Most that are not close keep all micro-batches, as gpipe does, and repeat.
  CHECK(2 * closeness.near >= closeness.all);
  for (const char* word : {"1f1b", "gpipe", "zb-h1", "zb-v", "p2p", "all_gather", "a2a", "on"}) {
    INFO(word);
    CHECK(closeness.words.contains(word));
  }
}

TEST_CASE("no bound is above what a plan needs whose attention is faster than its formula") {
  std::mt19937 random(7);
  Closeness closeness;
  compare_some(attention_file(), brief() ? 2 : 6, random, closeness);
  if (!brief()) CHECK(closeness.all >= 1);
}

TEST_CASE("a stage that must repeat is bounded by its own forms") {
  const ReadResult read = bounded_file(bounded_files[0]);
  ArrangementSearch search{read.config, read.sources, {}, 1};
  search.site.world_size = search.site.ranks_per_host = 8;
  const auto machine = machine_of(read.config.cluster, search.site.world_size);
  for (const auto& [first, last] : {std::pair(6, 2), std::pair(2, 6)}) {
    INFO("first " << first << " last " << last);
    const RunArrangement layout{
        .stages = 2, .micro_batch_size = 4, .first_layers = first, .last_layers = last};
    const Config config = config_of(search, {.layout = layout});
    Config repeating = config;
    repeating.recompute.enable = true;
    Diagnostics found;
    const Plan draft = prepare_draft(config, read.sources, search.site, found);
    const Plan full = prepare(repeating, read.sources, search.site, Purpose::plan, found);
    REQUIRE_FALSE(found.has_errors());
    const std::int64_t limit = full.max_memory().device();
    search.memory_limit = static_cast<double>(limit) / (1 << 30);
    const Planned whole = planned(search, {.layout = layout}, limit);
    const Planned picked = planned(search, {.layout = layout, .repeats = true}, limit);
    REQUIRE(picked.fits);
    REQUIRE(picked.seconds >= 1.05 * whole.seconds);
    const LeastNeeds least = min_needs(draft, config, *machine, limit);
    CHECK(least.lacking == 0);
    CHECK(least.seconds <= picked.seconds * (1 + 1e-9));
    // The hull of the forms gives most of the time that repeats add.
    CHECK(least.seconds - whole.seconds >= 0.5 * (picked.seconds - whole.seconds));
  }
}
