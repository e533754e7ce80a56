// Other settings than a file's: which keys take part, which combinations are compared, with which
// layouts; what rows of words have in common; and one layer of a model.
#include <algorithm>
#include <filesystem>
#include <set>

#include "base/at.h"
#include "catch.h"
#include "config/schema/known_paths.h"
#include "sample_verify.h"
#include "thorough.h"
#include "verify/alone.h"
#include "verify/selection/cover.h"
#include "verify/selection/selection.h"

using namespace trainctl;

namespace {

const Options four_experts{"model.family=llama", "moe.num_experts=4", "moe.router_topk=2"};

bool is_of_options(const std::string& path) {
  return std::any_of(
      std::begin(option_sections), std::end(option_sections),
      [&](std::string_view section) { return path.starts_with(std::string(section) + "."); });
}

ReadWith reader(const Options& options) {
  return [options](const Settings& settings) {
    Options all = options;
    all.insert(all.end(), settings.begin(), settings.end());
    return read_sample(all);
  };
}

std::set<std::string> words_in(const OptionSelection& selection) {
  std::set<std::string> words;
  for (const auto& combination : selection.chosen) {
    for (const Settings& word : combination) words.insert(word.front());
  }
  return words;
}

std::set<std::string> skipped_in(const OptionSelection& selection) {
  std::set<std::string> words;
  for (const auto& [code, skipped] : selection.skipped)
    words.insert(skipped.begin(), skipped.end());
  return words;
}

bool has_both(const OptionSelection& selection, const std::string& one, const std::string& other) {
  const auto has = [](const std::vector<Settings>& words, const std::string& wanted) {
    return std::any_of(words.begin(), words.end(),
                       [&](const Settings& word) { return word.front() == wanted; });
  };
  return std::any_of(selection.chosen.begin(), selection.chosen.end(),
                     [&](const auto& words) { return has(words, one) && has(words, other); });
}

}  // namespace

TEST_CASE("every key that a comparison could vary says whether it takes part") {
  std::set<std::string> rows;
  for (const OptionKey& key : option_keys()) {
    INFO(key.path);
    CHECK(rows.insert(std::string(key.path)).second);
    CHECK(find_known_path(std::string(key.path)) != nullptr);
    CHECK(key.values.empty() != key.apart.empty());
  }
  for (const std::string& path : all_known_paths()) {
    if (!is_of_options(path) || find_known_path(path)->is_section) continue;
    INFO(path << " needs a row in lib/verify/switches/option_words.cpp");
    CHECK(rows.contains(path));
  }
}

TEST_CASE("every value that is tried is one of its key") {
  for (const Options& options : {small_gpt, four_experts}) {
    const Config file = read_sample(options).config;
    for (const OptionKey& key : option_keys()) {
      for (const Settings& word : option_words(key, file)) {
        const ReadResult read = reader(options)(word);
        INFO(word.front() << ": " << render_text(read.diagnostics, false));
        CHECK_FALSE(read.diagnostics.has_errors());
      }
    }
  }
  // A value brings the settings that it needs.
  const auto row = std::find_if(option_keys().begin(), option_keys().end(),
                                [](const auto& key) { return key.path == "lr_schedule.style"; });
  const std::vector<Settings> words = option_words(*row, read_sample(small_gpt).config);
  CHECK(word_text(words.back()) ==
        "lr_schedule.style=WSD lr_schedule.wsd_decay_steps=3 lr_schedule.decay_steps=6");
}

TEST_CASE("combinations of settings have every word that one rank can run") {
  for (const Options& options : some_of(std::vector<Options>{small_gpt, four_experts})) {
    const ReadWith read = reader(options);
    const Config file = read({}).config;
    const OptionSelection quick = select_options(read, false);
    CHECK(quick.chosen.size() >= 4);
    CHECK(quick.chosen.size() <= 24);
    const std::set<std::string> words = words_in(quick);
    const std::set<std::string> skipped = skipped_in(quick);
    for (const OptionKey& key : option_keys()) {
      if (file.moe.num_experts == 1 && key.path.starts_with("moe.")) continue;
      for (const Settings& word : option_words(key, file)) {
        if (read(word).config == file) continue;
        INFO(word.front());
        CHECK((words.contains(word.front()) || skipped.contains(word.front())));
      }
    }
    for (const auto& combination : quick.chosen) {
      const ReadResult made = read(settings_of(combination));
      CHECK_FALSE(made.diagnostics.has_errors());
      CHECK_NOTHROW(plan_alone(alone(made.config)));
    }
  }
}

TEST_CASE("settings that need another one are tried with it") {
  const OptionSelection quick = select_options(reader(small_gpt), false);
  CHECK(has_both(quick, "optimizer.momentum=0.5", "optimizer.type=sgd"));
  CHECK(has_both(quick, "optimizer.weight_decay_form=coupled", "optimizer.type=sgd"));
  CHECK_FALSE(has_both(quick, "optimizer.weight_decay_form=coupled", "optimizer.weight_decay=0"));
  CHECK_FALSE(has_both(quick, "optimizer.weight_decay_form=coupled", "optimizer.momentum=0"));
  CHECK(has_both(quick, "optimizer.main_params_dtype=bf16", "precision.compute=bf16"));
  CHECK(words_in(quick).contains("precision.loss_scale_window=2"));
  CHECK(words_in(quick).contains("precision.loss_scale_backoff=9.5367431640625e-7"));
  CHECK(words_in(quick).contains("lr_schedule.wsd_decay_style=minus_sqrt"));
}

TEST_CASE("all combinations have every pair of words") {
  if (!thorough()) return;
  const OptionSelection all = select_options(reader(small_gpt), true);
  CHECK(all.chosen.size() < 80);
  const std::set<std::string> words = words_in(all);
  for (const char* one : {"precision.compute=fp16", "data.packing=false", "optimizer.type=sgd"}) {
    for (const char* other : {"train.rampup_batch_size=[4,4,8]", "lr_schedule.style=linear",
                              "data.prefetch=0", "optimizer.clip_grad_norm=0"}) {
      INFO(one << " and " << other);
      CHECK(has_both(all, one, other));
    }
  }
}

TEST_CASE("a few rows have the largest number of words") {
  const std::vector<WordRow> rows{{"a"}, {"a", "b"}, {"c"}, {"b", "c", "d"}, {"d"}};
  CHECK(few_with_most_words(rows, 2) == std::vector<std::size_t>{1, 3});
  CHECK(few_with_most_words(rows, 3) == std::vector<std::size_t>{0, 1, 3});
  CHECK(few_with_most_words(rows, 9).size() == 5);
  CHECK(few_with_most_words({}, 3).empty());
}

TEST_CASE("rows of two lists are paired until each pair of their words is there") {
  const std::vector<WordRow> layouts{{"tp"}, {"tp", "sp"}, {"pp"}, {"dp"}};
  const std::vector<WordRow> settings{{"x"}, {"x", "y"}, {"z"}};
  const auto can_be = [](const RowPair& pair) { return pair != RowPair{2, 2}; };  // pp with z
  const auto once = paired_rows(layouts, settings, can_be, [](const auto&) { return false; });
  REQUIRE(once.size() == 4);
  CHECK(std::is_sorted(once.begin(), once.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; }));
  const auto every = paired_rows(layouts, settings, can_be, [](const auto&) { return true; });
  std::set<std::pair<std::string, std::string>> seen;
  for (const auto& [row, other] : every) {
    CHECK(can_be({row, other}));
    for (const std::string& a : at(layouts, static_cast<std::int64_t>(row))) {
      for (const std::string& b : at(settings, static_cast<std::int64_t>(other))) {
        seen.insert({a, b});
      }
    }
  }
  CHECK(seen.size() == 4 * 3 - 1);  // of tp, sp, pp, dp and x, y, z all but one
  const auto some =
      paired_rows(layouts, settings, can_be, [](const std::string& word) { return word == "dp"; });
  std::set<std::string> beside_dp;
  for (const auto& [row, other] : some) {
    if (row != 3) continue;
    for (const std::string& b : at(settings, static_cast<std::int64_t>(other))) beside_dp.insert(b);
  }
  CHECK(beside_dp == std::set<std::string>{"x", "y", "z"});
  CHECK(some.size() < every.size());
}

TEST_CASE("what differs has words in common that nothing equal has") {
  const std::vector<WordRow> with{{"tp", "tp2", "recompute"}, {"pp", "recompute", "sliced"}};
  CHECK(common_words(with, {{"tp", "pp"}}) == WordRow{"recompute"});
  CHECK(common_words(with, {{"recompute"}}).empty());
  CHECK(common_words({}, with).empty());
  const std::vector<WordRow> both{{"tp", "gpipe", "offload"}};
  CHECK(common_together(both, {{"gpipe", "tp"}, {"offload"}}) == WordRow{"gpipe", "offload"});
  CHECK(common_together(both, {{"gpipe", "tp", "offload"}}).empty());
  CHECK(suspect_words(with, {{"tp", "pp"}}) == WordRow{"recompute"});
  CHECK(suspect_words(both, {{"gpipe", "tp"}, {"offload"}}) == both.front());
  CHECK(suspect_words(both, {{"gpipe", "tp", "offload"}}).empty());
  const LayoutChoice choice = parse_layouts("tp2sp+dp4+m2+zero3+sliced", 0).front();
  CHECK(choice.said() ==
        WordRow{"tp", "tp2", "dp", "dp4", "sp", "m2", "zero", "zero3", "recompute", "sliced"});
  CHECK(without_implied(choice.said()) == WordRow{"tp", "dp", "sp", "m2", "zero", "recompute"});
  CHECK(without_implied({"tp2", "zero3"}) == WordRow{"tp2", "zero3"});
}

TEST_CASE("a dozen layouts have nearly every word of all") {
  if (brief()) return;
  const Config config = read_sample(small_gpt).config;
  const auto words_of = [](const LayoutSelection& selection) {
    std::set<std::string> words;
    for (const LayoutChoice& choice : selection.chosen) {
      const WordRow said = choice.said();
      words.insert(said.begin(), said.end());
    }
    return words;
  };
  const LayoutSelection few = select_few_layouts(config, {}, 4);
  CHECK(few.chosen.size() == few_layouts);
  const std::set<std::string> all = words_of(select_layouts(config, {}, 4, false));
  CHECK(words_of(few).size() * 10 >= all.size() * 9);
}

TEST_CASE("a dozen layouts sum experts over their copies, whole and in parts") {
  if (brief()) return;
  const LayoutSelection few = select_few_layouts(read_sample(four_experts).config, {}, 4);
  std::set<bool> in_parts;
  for (const LayoutChoice& choice : few.chosen) {
    const Config config = with_layout(read_sample(four_experts).config, choice);
    const Mesh mesh = plan_of(config, 4).mesh;
    const bool apart = mesh.ep > 1 || mesh.etp != mesh.tp;
    if (apart && mesh.edp > 1) in_parts.insert(config.parallel.parallel_optimizer.enable);
  }
  CHECK(in_parts == std::set<bool>{false, true});
}

TEST_CASE("of a large model one layer is compared, with the file's widths") {
  const std::filesystem::path configs = std::filesystem::path(TRAINCTL_SOURCE_DIR) / "configs";
  std::int64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(configs)) {
    if (entry.path().extension() != ".yaml") continue;
    INFO(entry.path());
    const ReadResult read = read_config(entry.path(), {});
    const Config layer = one_layer(read.config, 2);
    const auto refused = layout_refusal(layer, {}, parse_layouts("dp2", 0).front());
    INFO((refused ? refused->message : ""));
    CHECK_FALSE(refused.has_value());
    CHECK(layer.model.hidden_size == read.config.model.hidden_size);
    CHECK(layer.model.num_layers <=
          std::max<std::int64_t>(2, std::ssize(read.config.model.layers)));
    CHECK(layer.model.vocab_size <= max_layer_vocabulary);
    CHECK(layer.moe.num_experts == read.config.moe.num_experts);
    ++files;
  }
  CHECK(files > 5);
  const Config large = read_config(configs / "llama3-8b.yaml", {}).config;
  CHECK(what_is_left(large, one_layer(large, 1)) ==
        "1 of 32 layers, 1,024 of 128,256 rows of vocabulary, 64 of 8,192 tokens of a sequence");
}
