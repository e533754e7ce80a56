// The search of layouts compared with plans of all layouts, made one by one.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/parallel_for.h"
#include "catch.h"
#include "config/devices/figures.h"
#include "config/schema/known_paths.h"
#include "run/layouts/decisions.h"
#include "run/layouts/search_layouts.h"
#include "run/layouts/search_once.h"
#include "run/layouts/search_page.h"
#include "run/prepare.h"
#include "thorough.h"

using namespace trainctl;

namespace {

ReadResult small_file(const std::vector<std::string>& sets) {
  const char* text =
      "model: {num_layers: 4, hidden_size: 256, num_attention_heads: 4, seq_length: 128, "
      "vocab_size: 1024}\n"
      "train: {steps: 10, global_batch_size: 8}\n"
      "lr_schedule: {max_lr: 1.0e-3}\n"
      "cluster: {device: cpu-avx2}\n";
  ReadResult read = read_config_text(text, "t.yaml", sets);
  forgive_missing(Purpose::plan, read.diagnostics);
  REQUIRE_FALSE(read.diagnostics.has_errors());
  return read;
}

ArrangementSearch search_of(const ReadResult& read, std::int64_t ranks, double gib) {
  ArrangementSearch search{read.config, read.sources, {}, gib};
  search.site.world_size = search.site.ranks_per_host = ranks;
  search.gap = 0;
  return search;
}

/// A search with frontier, refusals and others than the best; smaller in a brief run.
ArrangementSearch sample_search(const ReadResult& read) {
  return search_of(read, brief() ? 2 : 4, brief() ? 0.08 : 0.062);
}

/// The search alone, without the comparisons with the best.
SearchedArrangements best_of(const ArrangementSearch& search) {
  const auto machine = machine_of(search.config.cluster, search.site.world_size);
  KnownArrangements known(search, *machine);
  return search_once(search, known);
}

/// The least seconds of all layouts that fit, each with and without repeats.
double min_of_all(const ArrangementSearch& search) {
  double least = 1e30;
  const FreeKeys free = free_keys(search.config, search.sources);
  for (const RunArrangement& layout : layouts_of(search.config, free, search.site.world_size)) {
    for (const bool repeats : {false, true}) {
      Diagnostics found;
      const Config config = config_of(search, {.layout = layout, .repeats = repeats});
      const Plan plan = prepare(config, search.sources, search.site, Purpose::plan, found);
      if (found.has_errors()) continue;
      const auto bytes = static_cast<double>(plan.max_memory().device());
      if (bytes <= search.memory_limit * (1 << 30)) least = std::min(least, plan.time->step());
    }
  }
  return least;
}

}  // namespace

TEST_CASE("a search finds the least of all layouts, from below") {
  const ReadResult words = small_file({});
  const ReadResult whole =
      small_file({"parallel.pipeline.scheduler=1f1b", "parallel.cp_comm_type=p2p",
                  "parallel.tp_comm_overlap=false"});
  const ReadResult part =
      small_file({"parallel.tensor_parallel=2", "parallel.context_parallel=1",
                  "parallel.pipeline.scheduler=1f1b", "parallel.tp_comm_overlap=false"});
  struct Space {
    const ReadResult& read;
    std::int64_t ranks;
    double gib;
  };
  std::vector<Space> spaces{{words, 2, 1}};
  if (brief()) {
    spaces.push_back({part, 4, 0.08});
  } else {
    spaces.push_back({whole, 4, 0.062});
    spaces.push_back({part, 8, 0.066});
  }
  for (const Space& space : spaces) {
    const ArrangementSearch search = search_of(space.read, space.ranks, space.gib);
    const SearchedArrangements searched = best_of(search);
    INFO(print_search(searched));
    REQUIRE_FALSE(searched.found.empty());
    CHECK(searched.gap == 0);
    CHECK(searched.found.front().seconds == min_of_all(search));
    for (const FoundArrangement& one : searched.found) {
      CHECK(one.bound <= one.seconds * (1 + 1e-12));
      CHECK(static_cast<double>(one.bytes) <= space.gib * (1 << 30));
      if (&space.read == &part) CHECK(one.layout.tensor_parallel == 2);
    }
  }
}

namespace {

/// The words that an axis has in the layouts of `ranks` ranks to which it applies.
std::set<std::string> axis_words(std::string_view key, const ReadResult& read, std::int64_t ranks) {
  const auto axes = layout_axes();
  const auto axis = std::ranges::find(axes, key, &ArrangementAxis::key);
  REQUIRE(axis != axes.end());
  std::set<std::string> words;
  const FreeKeys free = free_keys(read.config, read.sources);
  for (const RunArrangement& one : layouts_of(read.config, free, ranks)) {
    if (axis->applies(one)) words.insert(axis->word(one));
  }
  return words;
}

using Words = std::set<std::string>;

}  // namespace

TEST_CASE("words are searched where the file gives none and the sizes allow them") {
  const std::vector<std::string> two = {"parallel.pipeline_stages=2"};
  const std::vector<std::string> four = {"parallel.context_parallel=4"};
  const auto with = [](std::vector<std::string> sets, const char* more) {
    sets.emplace_back(more);
    return small_file(sets);
  };
  CHECK(axis_words("scheduler", small_file(two), 2) == Words{"1f1b", "gpipe", "zb-h1", "zb-v"});
  CHECK(axis_words("scheduler", with(two, "parallel.virtual_pipeline_stages=1"), 2) ==
        Words{"1f1b", "gpipe", "zb-h1"});
  CHECK(axis_words("scheduler", with(two, "parallel.pipeline.scheduler=gpipe"), 2) ==
        Words{"gpipe"});
  CHECK(axis_words("scheduler", small_file({"parallel.pipeline_stages=1"}), 2).empty());
  const std::int64_t most = max_ranks_of("scheduler");
  const std::vector<std::string> many = {two[0], "train.global_batch_size=4096",
                                         "parallel.context_parallel=1"};
  CHECK(axis_words("scheduler", small_file(many), most).size() == 4);
  CHECK(axis_words("scheduler", small_file(many), 2 * most) == Words{"1f1b"});
  CHECK(unsearched_text(2 * most) == unsearched_text() + ", parallel.pipeline.scheduler");
  CHECK(max_ranks_of("tensor_parallel") == max_ranks);
  FreeKeys all;
  all.scheduler = all.tensor = true;
  CHECK(within_ranks(all, most).scheduler);
  CHECK_FALSE(within_ranks(all, most + 1).scheduler);
  CHECK(within_ranks(all, most + 1).tensor);
  CHECK(axis_words("cp_comm_type", small_file(four), 4) ==
        Words{"p2p", "all_gather", "a2a", "a2a+p2p [2, 2]"});
  CHECK(axis_words("cp_comm_type", with(four, "model.num_query_groups=2"), 4) ==
        Words{"p2p", "all_gather", "a2a+p2p [2, 2]"});
  CHECK(axis_words("cp_comm_type", with(four, "parallel.cp_comm_type=a2a"), 4) == Words{"a2a"});
  CHECK(axis_words("tp_comm_overlap", small_file({}), 2) == Words{"off", "on"});
  CHECK(axis_words("tp_comm_overlap", small_file({"parallel.sequence_parallel=false"}), 2) ==
        Words{"off"});
  CHECK(axis_words("tp_comm_overlap", small_file({"parallel.tp_comm_overlap=true"}), 2) ==
        Words{"on"});

  // Each word is a key of the configuration, and the text of the layout has it.
  RunArrangement layout{.tensor_parallel = 2, .context_parallel = 4, .stages = 2, .chunks = 2};
  layout.scheduler = PipelineScheduler::zb_v;
  layout.cp_comm_type = CpCommType::a2a_p2p;
  layout.cp_heads = 2;
  layout.tp_overlap = true;
  const ReadResult read = small_file({});
  const FreeKeys free = free_keys(read.config, read.sources);
  const ParallelConfig parallel = with_layout(read.config, free, layout).parallel;
  CHECK(parallel.pipeline.scheduler == PipelineScheduler::zb_v);
  CHECK(parallel.cp_comm_type == CpCommTypes(CpCommType::a2a_p2p));
  CHECK(parallel.hierarchical_context_parallel_sizes == IntList{2, 2});
  CHECK(parallel.tp_comm_overlap.enable);
  CHECK(layout_text(layout, 16) ==
        "tp 2 cp 4 pp 2 x 2 micro-batch 1 zb-v a2a+p2p [2, 2] tp_comm_overlap on");
}

TEST_CASE("the space leaves out no layout whose micro-batches make groups") {
  const ReadResult read =
      small_file({"model.num_layers=8", "train.global_batch_size=24", "parallel.pipeline_stages=4",
                  "parallel.virtual_pipeline_stages=2"});
  const ArrangementSearch search = search_of(read, 4, 1);
  const FreeKeys free = free_keys(search);
  const std::vector<RunArrangement> space = layouts_of(read.config, free, 4);
  int refused = 0;
  for (const ScheduleTraits& traits : schedules) {
    for (const std::int64_t size : {1, 2, 3, 4, 6, 8}) {
      RunArrangement layout{.stages = 4, .chunks = 2, .micro_batch_size = size};
      layout.scheduler = traits.value;
      Diagnostics found;
      prepare_draft(config_of(search, {.layout = layout}), search.sources, search.site, found);
      const bool broken = std::ranges::any_of(
          found.list(), [](const Diagnostic& one) { return one.code == "microbatch-group"; });
      INFO(layout_text(layout, 4));
      CHECK(broken == (std::ranges::find(space, layout) == space.end()));
      refused += broken ? 1 : 0;
    }
  }
  CHECK(refused >= 2);
}

TEST_CASE("a search over words finds the least of all layouts") {
  struct Space {
    std::vector<std::string> sets;
    std::int64_t ranks;
  };
  const std::vector<std::string> quick = {"cluster.device=h100-sxm", "precision.compute=bf16"};
  for (Space space :
       {Space{{"parallel.pipeline_stages=2", "train.micro_batch_size=4"}, 2},
        Space{{"parallel.context_parallel=4", "train.micro_batch_size=2"}, 4},
        Space{{"parallel.tensor_parallel=4", "parallel.pipeline_stages=1", "model.seq_length=2048"},
              4}}) {
    space.sets.insert(space.sets.end(), quick.begin(), quick.end());
    const ReadResult read = small_file(space.sets);
    const ArrangementSearch search = search_of(read, space.ranks, 1);
    const SearchedArrangements searched = best_of(search);
    INFO(print_search(searched));
    REQUIRE_FALSE(searched.found.empty());
    CHECK(searched.found.front().seconds == min_of_all(search));
    for (const FoundArrangement& one : searched.found)
      CHECK(one.bound <= one.seconds * (1 + 1e-12));
  }
}

TEST_CASE("a freed key is searched although it is given, and a fixed one keeps its value") {
  const ReadResult given =
      small_file({"parallel.tensor_parallel=2", "train.micro_batch_num=1", "recompute.enable=true",
                  "recompute.select=full", "parallel.pipeline_stages=2",
                  "parallel.pipeline.first_stage_layers=1", "parallel.pipeline.last_stage_layers=3",
                  "parallel.parallel_optimizer.enable=true"});
  ArrangementSearch freed = search_of(given, 4, 1);
  for (const SearchedKey& key : searched_keys()) {
    if (key.word != "expert_parallel") freed.keys.freed.emplace_back(key.word);
  }
  const ReadResult nothing = small_file({});
  const ArrangementSearch free = search_of(nothing, 4, 1);
  const SearchedArrangements searched = search_layouts(freed);
  CHECK(print_search_json(searched) == print_search_json(search_layouts(free)));
  REQUIRE_FALSE(searched.found.empty());
  CHECK((config_of(freed, searched.found.front()) == config_of(free, searched.found.front())));

  for (const SearchedKey& key : searched_keys()) {
    ArrangementSearch fixed = search_of(nothing, 4, 1);
    fixed.keys.fixed = {std::string(key.word)};
    const FreeKeys keys = free_keys(fixed);
    CHECK_FALSE(keys.*key.free);
    const Config plain = with_layout(nothing.config, keys, {});
    for (const RunArrangement& layout : layouts_of(nothing.config, keys, 4)) {
      const Config config = with_layout(nothing.config, keys, layout);
      Config same = config;  // as the default where the key is fixed
      if (key.word == "tensor_parallel") same.parallel.tensor_parallel = 1;
      if (key.word == "sequence_parallel") same.parallel.sequence_parallel = false;
      if (key.word == "context_parallel") same.parallel.context_parallel = 1;
      if (key.word == "pipeline_stages") same.parallel.pipeline_stages = 1;
      if (key.word == "virtual_pipeline_stages") same.parallel.virtual_pipeline_stages = 1;
      if (key.word == "stage_layers") {
        same.parallel.pipeline = plain.parallel.pipeline;
        same.parallel.pipeline.scheduler = config.parallel.pipeline.scheduler;
      }
      if (key.word == "scheduler")
        same.parallel.pipeline.scheduler = PipelineScheduler::one_f_one_b;
      if (key.word == "micro_batch_size") same.train = plain.train;
      if (key.word == "parallel_optimizer") {
        same.parallel.parallel_optimizer = plain.parallel.parallel_optimizer;
      }
      CHECK((config == same));
    }
  }
}

TEST_CASE("a search of many spaces finds the least of all layouts") {
  if (!thorough()) return;  // some are searched above
  const std::vector<std::vector<std::string>> files{
      {"parallel.context_parallel=1"},
      {"parallel.pipeline_stages=2"},
      {"parallel.pipeline_stages=2", "parallel.pipeline.scheduler=zb-h1"},
      {"parallel.context_parallel=1", "parallel.parallel_optimizer.enable=true"},
      {"parallel.context_parallel=1", "moe.num_experts=4", "moe.router_topk=2",
       "moe.first_dense_layers=2"},
      {"parallel.tensor_parallel=1", "cluster.device=h100-sxm", "precision.compute=bf16"},
      {"parallel.tensor_parallel=2", "parallel.delay_wgrad_compute=true"}};
  int spaces = 0;
  for (const std::vector<std::string>& sets : files) {
    const ReadResult read = small_file(sets);
    const ArrangementSearch wide = search_of(read, 4, 100);
    const SearchedArrangements all = best_of(wide);
    REQUIRE_FALSE(all.found.empty());
    const auto most = static_cast<double>(all.found.front().bytes) / (1 << 30);
    for (const double share : {1.0, 0.97, 0.92}) {
      const ArrangementSearch search = search_of(read, 4, share * most);
      const SearchedArrangements searched = best_of(search);
      const double least = min_of_all(search);
      INFO(sets.front() << " ... within " << share << "\n" << print_search(searched));
      ++spaces;
      CHECK(searched.space <= 3000);
      if (searched.found.empty()) {
        CHECK(least >= 1e30);
      } else {
        CHECK(searched.found.front().seconds == least);
      }
    }
  }
  CHECK(spaces >= 20);
}

TEST_CASE("a search of Llama 1.3B on sixteen ranks plans forty layouts to find the least of all") {
  if (!thorough()) return;
  const ReadResult read = read_config_text(
      "model: {family: llama, num_layers: 24, hidden_size: 2048, num_attention_heads: 16, "
      "ffn_hidden_size: 5632, seq_length: 2048, vocab_size: 32000}\n"
      "train: {steps: 10, global_batch_size: 64}\nlr_schedule: {max_lr: 1.0e-3}\n"
      "precision: {compute: bf16}\n"
      "parallel: {context_parallel: 1, pipeline: {scheduler: 1f1b}, tp_comm_overlap: {enable: "
      "false}}\n"
      "cluster: {device: a100-sxm-40}\n",
      "t.yaml", {});
  ArrangementSearch search = search_of(read, 16, 24);
  search.site.ranks_per_host = 8;
  search.site.device = DeviceKind::cuda;
  const SearchedArrangements searched = best_of(search);
  INFO(print_search(searched));
  REQUIRE_FALSE(searched.found.empty());
  CHECK(searched.space >= 2000);
  CHECK(searched.opened <= 40);
  CHECK(searched.found.front().seconds == min_of_all(search));
}

TEST_CASE("threads do not change what a search finds") {
  const ReadResult read = small_file({});
  const ArrangementSearch search = sample_search(read);
  const std::string one = print_search_json(search_layouts(search));
  for (const int threads : {2, 4}) {
    set_thread_count(threads);
    CHECK(print_search_json(search_layouts(search)) == one);
  }
  set_thread_count(1);
}

TEST_CASE("what a search tells of layouts next to the best is what its layouts take") {
  const ReadResult read = small_file({});
  const ArrangementSearch search = sample_search(read);
  const SearchedArrangements searched = search_layouts(search);
  CHECK(searched.outcomes.size() == searched.space);

  // Decisions: no layout that was planned with another value is faster.
  const std::vector<Decision> decisions = decisions_of(searched);
  REQUIRE_FALSE(decisions.empty());
  for (const Decision& one : decisions) {
    INFO(one.key);
    CHECK(one.taken != one.otherwise);
    CHECK_FALSE(one.layout.refused());
    CHECK(one.layout.seconds >= searched.found.front().seconds);
  }

  // Sensitivity: seconds of the same plan by the changed machine.
  const std::vector<Sensitivity> all = sensitivities_of(searched);
  REQUIRE(all.size() >= 3);
  CHECK(std::ranges::none_of(searched.found,
                             [](const FoundArrangement& one) { return one.changed.empty(); }));
  for (const Sensitivity& one : all) {
    INFO(one.best.figure);
    const double best = searched.found.front().seconds;
    CHECK((one.best.is_rate ? one.best.less : one.best.more) >= best);
    CHECK((one.best.is_rate ? one.best.more : one.best.less) <= best);
    CHECK(one.seconds_less <= one.best.less);
    CHECK(one.seconds_more <= one.best.more);
    if (one.below) CHECK(one.below->value < one.best.value);
    if (one.above) CHECK(one.above->value > one.best.value);
  }
  const auto memory = std::ranges::find_if(
      all, [](const Sensitivity& one) { return one.best.figure == "memory bandwidth"; });
  REQUIRE(memory != all.end());
  std::string text(device_text(read.config.cluster));
  const std::string figure = "bandwidth: 30e9";
  text.replace(text.find(figure), figure.size(), "bandwidth: 24e9");
  Config slower = config_of(search, searched.found.front());
  slower.cluster.device = "slower.yaml";
  slower.cluster.device_text = text;
  Diagnostics found;
  const Plan plan = prepare(slower, search.sources, search.site, Purpose::plan, found);
  REQUIRE_FALSE(found.has_errors());
  CHECK(plan.time->step() == Approx(memory->best.less).epsilon(1e-9));

  const std::string told = print_search(searched, true);
  CHECK(told.find("sensitivity: ") != std::string::npos);
  CHECK(told.find("seconds of the best, the mean of its stages") != std::string::npos);
  CHECK(told.find("decisions, and the fastest layout that decides otherwise") != std::string::npos);

  // The page: every part, every layout that was planned, and nothing from outside.
  const std::string page = print_search_page(
      search, searched, {.title = "a <b>", .file = "t.yaml", .command = "c", .sets = {}});
  for (const char* id : {"frontier", "maps", "ledgers", "decisions", "sensitivity", "refused",
                         "schedule", "scatter-data", "schedule-data"}) {
    INFO(id);
    CHECK(page.find("id=\"" + std::string(id) + "\"") != std::string::npos);
  }
  CHECK(page.find("src=") == std::string::npos);
  CHECK(page.find("<h1>a &lt;b&gt;</h1>") != std::string::npos);
  const std::size_t begin = page.find("id=\"scatter-data\">") + 18;
  const auto data =
      nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  REQUIRE(data["points"].size() >= searched.found.size());
  CHECK(data["points"][0][1] == Approx(searched.found.front().seconds));
  CHECK(data["frontier"].size() == searched.frontier.size());
  const auto rows = static_cast<std::size_t>(std::ranges::count_if(
      searched.found, [](const auto& one) { return one.ledger.has_value(); }));
  std::size_t bars = 0;
  const std::size_t first_bar = page.find("id=\"ledgers\"");
  const std::size_t last_bar = page.find("id=\"decisions\"");
  for (std::size_t at = first_bar; (at = page.find("class=\"held\"", at + 1)) < last_bar;) ++bars;
  CHECK(bars == rows);
  for (const ArrangementMap& map : maps_of(searched)) {
    for (const auto& row : map.cells) CHECK(row.size() == map.columns.size());
  }
}

TEST_CASE("a link that is slower by a fifth is a level with that bandwidth") {
  const std::vector<std::string> sets = {"cluster.device=h100-sxm", "parallel.tensor_parallel=4",
                                         "parallel.sequence_parallel=true",
                                         "recompute.enable=false"};
  const ReadResult read = small_file(sets);
  ArrangementSearch search = search_of(read, 4, 60);
  search.site.device = DeviceKind::cuda;
  const SearchedArrangements searched = search_layouts(search);
  REQUIRE_FALSE(searched.found.empty());
  const auto& changed = searched.found.front().changed;
  const auto link = std::ranges::find(changed, "bandwidth inside a host", &ChangedFigure::figure);
  REQUIRE(link != changed.end());
  Config slower = config_of(search, searched.found.front());
  slower.cluster.levels.resize(1);
  slower.cluster.levels[0].name = "host";
  slower.cluster.levels[0].bandwidth = less_of_figure * link->value;
  Diagnostics found;
  const Plan plan = prepare(slower, search.sources, search.site, Purpose::plan, found);
  REQUIRE_FALSE(found.has_errors());
  CHECK(link->less > searched.found.front().seconds);
  CHECK(plan.time->step() == Approx(link->less).epsilon(1e-9));

  // A given recompute has one column, with its word.
  const std::vector<ArrangementMap> maps = maps_of(searched);
  CHECK(maps[1].columns == std::vector<std::string>{"none"});
}

TEST_CASE("a map says which recompute a file gives") {
  const ReadResult read =
      small_file({"recompute.enable=true", "recompute.select=full", "parallel.tensor_parallel=2"});
  const SearchedArrangements searched = search_layouts(search_of(read, 2, 1));
  CHECK(maps_of(searched)[1].columns == std::vector<std::string>{"full"});
}

TEST_CASE("where prices cross is where two layouts are as fast") {
  // Seconds 1 + 1 / f and 1.5 + 0.6 / f of a rate f: as fast at f = 0.8.
  const auto priced = [](double fixed, double moved) {
    return FoundArrangement{.layout = {},
                            .seconds = fixed + moved,
                            .changed = {{.figure = "rate",
                                         .unit = "bytes/s",
                                         .value = 10e9,
                                         .less = fixed + moved / less_of_figure,
                                         .more = fixed + moved / more_of_figure}}};
  };
  const std::vector<Sensitivity> all = sensitivities({priced(1, 1), priced(1.5, 0.6)});
  REQUIRE(all.size() == 1);
  REQUIRE(all[0].below);
  CHECK(all[0].below->value == Approx(8e9));
  CHECK(all[0].below->layout == 1);
  CHECK_FALSE(all[0].above);
  CHECK(all[0].fastest_more == 0);
  CHECK(figure_text(10e9, "bytes/s") == "10 GB/s");
  CHECK(figure_text(0.15, "") == "15 %");
}

TEST_CASE("more memory or fewer given keys never make the best slower") {
  const ReadResult free = small_file({});
  const ReadResult given = small_file({"parallel.tensor_parallel=2"});
  double before = 1e30;
  for (const double gib : {0.058, 0.062, 0.08}) {
    if (brief() && gib == 0.062) continue;
    const SearchedArrangements best = best_of(search_of(free, 4, gib));
    const SearchedArrangements other = best_of(search_of(given, 4, gib));
    INFO(gib);
    REQUIRE_FALSE(best.found.empty());
    CHECK(best.found.front().seconds <= before);
    before = best.found.front().seconds;
    if (!other.found.empty()) CHECK(best.found.front().seconds <= other.found.front().seconds);
  }
}

TEST_CASE("the page has every field of a search") {
  std::ifstream page(std::string(TRAINCTL_SOURCE_DIR) + "/docs/plan-json.md");
  std::string line;
  while (std::getline(page, line) && line != "## A search of layouts") continue;
  std::set<std::string> documented;
  static const std::regex word("`([a-z_]+)`");
  while (std::getline(page, line)) {
    if (!line.starts_with("| `")) continue;
    const std::string head = line.substr(0, line.find('|', 1));
    for (std::sregex_iterator at(head.begin(), head.end(), word), end; at != end; ++at) {
      documented.insert((*at)[1]);
    }
  }
  std::set<std::string> printed;
  const std::string text = print_search_json(search_layouts(sample_search(small_file({}))));
  const auto json = nlohmann::json::parse(text);
  for (const auto& [key, value] : json["search"].items()) printed.insert(key);
  CHECK(printed == documented);
}

TEST_CASE("a search says which words it leaves as they are written") {
  std::ifstream file(std::string(TRAINCTL_SOURCE_DIR) + "/docs/planning.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  int last = -1;
  for (const std::string_view key : unsearched_keys()) {
    INFO(key);
    const KnownPath* known = find_known_path(std::string(key));
    REQUIRE(known != nullptr);
    CHECK(known->order > last);
    last = known->order;
    CHECK(page.find("`" + std::string(key) + "`") != std::string::npos);
  }
  // With other values of some keys, every layout has what is searched and nothing else changed.
  const ReadResult read = small_file({"parallel.pipeline.scheduler=zb-h1", "offload.enable=true",
                                      "parallel.tp_comm_overlap.enable=true"});
  ArrangementSearch search = search_of(read, 4, 1);
  const FreeKeys free = free_keys(read.config, read.sources);
  for (const RunArrangement& layout : layouts_of(read.config, free, 4)) {
    Config config = config_of(search, {.layout = layout, .repeats = true});
    const ParallelConfig& given = read.config.parallel;
    ParallelConfig& parallel = config.parallel;
    parallel.tensor_parallel = given.tensor_parallel;
    parallel.sequence_parallel = given.sequence_parallel;
    parallel.context_parallel = given.context_parallel;
    parallel.expert_parallel = given.expert_parallel;
    parallel.cp_comm_type = given.cp_comm_type;
    parallel.hierarchical_context_parallel_sizes = given.hierarchical_context_parallel_sizes;
    parallel.pipeline_stages = given.pipeline_stages;
    parallel.virtual_pipeline_stages = given.virtual_pipeline_stages;
    parallel.pipeline.first_stage_layers.reset();
    parallel.pipeline.last_stage_layers.reset();
    parallel.pipeline.account_for_embedding = parallel.pipeline.account_for_loss = false;
    parallel.parallel_optimizer.enable = given.parallel_optimizer.enable;
    parallel.parallel_optimizer.optimizer_level = given.parallel_optimizer.optimizer_level;
    parallel.parallel_optimizer.gradient_accumulation_shard =
        given.parallel_optimizer.gradient_accumulation_shard;
    config.train.micro_batch_size = read.config.train.micro_batch_size;
    config.recompute = read.config.recompute;
    CHECK((config == read.config));
  }
  CHECK(print_search({}).ends_with("not searched: " + unsearched_text() + "\n"));
}

TEST_CASE("a search that is stopped says how far from the least it may be") {
  const ReadResult read = small_file({});
  ArrangementSearch search = search_of(read, 4, 0.062);
  const SearchedArrangements whole = best_of(search);
  for (int most = 1; most < 10; most += brief() ? 4 : 1) {
    search.stops = [asked = 0, most]() mutable { return ++asked > most; };
    const SearchedArrangements searched = best_of(search);
    CHECK(searched.plays + searched.opened <= static_cast<std::size_t>(8 * most));
    if (searched.found.empty()) {
      CHECK(searched.left > 0);
      CHECK(print_search(searched).find("stopped before") != std::string::npos);
    } else {
      CHECK(whole.found.front().seconds >= (1 - searched.gap) * searched.found.front().seconds);
    }
  }
}

TEST_CASE("where nothing fits a search tells the reasons, each with the layout that came closest") {
  const ReadResult read = small_file({});
  const SearchedArrangements searched = search_layouts(search_of(read, 2, 0.001));
  CHECK(searched.found.empty());
  REQUIRE(searched.refused.contains("memory"));
  const RefusedArrangements& refused = searched.refused.at("memory");
  CHECK(refused.lacking > 0);
  CHECK(refused.message.find("MiB more than the limit") != std::string::npos);
  REQUIRE(searched.empty);
  REQUIRE(searched.empty->leanest);
  const std::string code = "search-space-empty";
  CHECK(print_search(searched).find(code + ": no layout of 2 ranks fits in 0.001 GiB: " +
                                    layout_text(searched.empty->leanest->layout, 2)) !=
        std::string::npos);
}

TEST_CASE(
    "where nothing fits a search names the smallest number of ranks for which a layout fits") {
  // The states of this model fill most of the memory, so more ranks need less of it each.
  const ReadResult read = small_file({"model.hidden_size=1024", "model.num_layers=2"});
  const SearchedArrangements leanest = search_layouts(search_of(read, 4, 0.001));
  REQUIRE((leanest.empty && leanest.empty->limit));
  const SearchedArrangements searched = search_layouts(search_of(read, 2, *leanest.empty->limit));
  INFO(print_search(searched));
  REQUIRE(searched.found.empty());
  REQUIRE(searched.empty);
  CHECK(searched.empty->world == 4);
  CHECK(print_search(searched).find("a layout fits with --world-size 4") != std::string::npos);
}

TEST_CASE("in thirty spaces where nothing fits a search names what lacks, and what would fit") {
  const std::vector<std::vector<std::string>> files{
      {},
      {"parallel.pipeline_stages=2", "recompute.enable=false"},
      {"parallel.tensor_parallel=2", "train.micro_batch_size=2"},
      {"parallel.parallel_optimizer.enable=false", "parallel.context_parallel=1"},
      {"moe.num_experts=4", "moe.router_topk=2", "parallel.context_parallel=1"}};
  int spaces = 0, limits = 0;
  for (const std::vector<std::string>& sets : files) {
    const ReadResult read = small_file(sets);
    for (const std::int64_t ranks : {2, 4}) {
      for (const double gib : {0.004, 0.016, 0.024}) {
        // Each file at least once; in a thorough run all thirty.
        if (!thorough() && (gib != 0.016 || ranks != (sets.size() % 2 == 0 ? 2 : 4))) continue;
        const ArrangementSearch search = search_of(read, ranks, gib);
        const SearchedArrangements searched = search_layouts(search);
        const std::string told = print_search(searched);
        INFO(told);
        REQUIRE(searched.found.empty());
        REQUIRE(searched.empty);
        const EmptySpace& space = *searched.empty;
        ++spaces;
        REQUIRE(space.leanest);
        CHECK(space.lacking > 0);
        CHECK(space.stage < space.leanest->layout.stages);
        CHECK(told.find("on stage " + std::to_string(space.stage)) != std::string::npos);
        CHECK(told.find(layout_text(space.leanest->layout, ranks)) != std::string::npos);
        CHECK((space.limit || space.world));
        if (space.limit) {
          ++limits;
          CHECK(*space.limit * (1 << 30) >= static_cast<double>(space.bytes));
          ArrangementSearch wider = search_of(read, ranks, *space.limit);
          wider.any = true;
          CHECK_FALSE(best_of(wider).found.empty());
        }
        if (space.world) {
          ArrangementSearch more = search_of(read, *space.world, gib);
          more.site.ranks_per_host = std::min<std::int64_t>(8, *space.world);
          more.any = true;
          CHECK_FALSE(best_of(more).found.empty());
        }
      }
    }
  }
  INFO(spaces << " spaces, " << limits << " limits");
  CHECK(spaces == (thorough() ? 30 : std::ssize(files)));
  CHECK(limits == spaces);
}

TEST_CASE("ranks that divide nothing are told the next number of ranks that fits") {
  const SearchedArrangements searched = search_layouts(search_of(small_file({}), 7, 1));
  CHECK(searched.space == 0);
  REQUIRE(searched.empty);
  CHECK_FALSE(searched.empty->leanest);
  CHECK(searched.empty->world == 8);
  CHECK(print_search(searched).find("a layout fits with --world-size 8") != std::string::npos);
}

TEST_CASE("the frontier has the best within each eighth of the limit") {
  const ReadResult read = small_file({"parallel.context_parallel=1"});
  ArrangementSearch search = search_of(read, 4, 0.12);
  search.top = 0;
  const SearchedArrangements searched = search_layouts(search);
  REQUIRE_FALSE(searched.frontier.empty());
  CHECK(searched.frontier.front().seconds == searched.found.front().seconds);
  for (std::size_t i = 1; i < searched.frontier.size(); ++i) {
    CHECK(searched.frontier[i].bytes < searched.frontier[i - 1].bytes);
    CHECK(searched.frontier[i].seconds > searched.frontier[i - 1].seconds);
  }
  REQUIRE_FALSE(searched.parts.empty());
  CHECK(searched.parts.front().limit == Approx(0.12 * 7 / 8));
  for (const PartOfMemory& part : searched.parts) {
    ArrangementSearch alone = search_of(read, 4, part.limit);
    alone.top = 0;
    const SearchedArrangements within = best_of(alone);
    INFO(part.limit << " GiB\n" << print_search(within));
    if (part.ended_early) {
      // The whole search within this part looks at more layouts than the one within all memory.
      CHECK((within.plays >= std::max<std::size_t>(48, searched.plays) ||
             within.opened >= std::max<std::size_t>(8, searched.opened)));
    } else {
      REQUIRE(part.fits == !within.found.empty());
      if (part.fits) CHECK(part.seconds == within.found.front().seconds);
    }
    if (!part.fits) continue;
    REQUIRE_FALSE(within.found.empty());
    CHECK(within.found.front().seconds >= (1 - part.gap) * part.seconds * (1 - 1e-12));
    CHECK(std::ranges::any_of(searched.frontier, [&](const FoundArrangement& one) {
      return one.seconds == part.seconds &&
             static_cast<double>(one.bytes) <= part.limit * (1 << 30);
    }));
  }
  // A layout of the frontier is planned again as it says.
  for (const FoundArrangement& one : searched.frontier) {
    Diagnostics found;
    const Plan plan =
        prepare(config_of(search, one), search.sources, search.site, Purpose::plan, found);
    CHECK(plan.time->step() == one.seconds);
    CHECK(plan.max_memory().device() == one.bytes);
  }
}
