// Layouts by name, which of them there are, and the cover of their settings by pairs.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "catch.h"
#include "config/read/read.h"
#include "sample_run.h"
#include "sample_verify.h"
#include "thorough.h"
#include "verify/selection/cover.h"
#include "verify/selection/selection.h"

using namespace trainctl;

namespace {

using Pairs = std::set<std::pair<std::string, std::string>>;

const Options gpt{"model.num_layers=4", "model.num_attention_heads=8"};

Config read(const Options& options) {
  return read_config_text(sample_yaml(), "sample.yaml", options).config;
}

/// Sizes are a setting too.
std::vector<std::string> settings(const LayoutChoice& choice) {
  std::vector<std::string> all = choice.words;
  all.push_back(name_of(choice.sizes));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::to_string(i) + ":" + all[i];
  return all;
}

Pairs pairs_in(const std::vector<std::vector<std::string>>& rows) {
  Pairs pairs;
  for (const auto& row : rows) {
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) pairs.insert({row[a], row[b]});
    }
  }
  return pairs;
}

Pairs pairs_of(const std::vector<LayoutChoice>& layouts) {
  std::vector<std::vector<std::string>> rows;
  for (const LayoutChoice& choice : layouts) rows.push_back(settings(choice));
  return pairs_in(rows);
}

std::set<std::string> names_of(const std::vector<LayoutChoice>& layouts) {
  std::set<std::string> names;
  for (const LayoutChoice& choice : layouts) names.insert(choice.name());
  return names;
}

std::vector<std::vector<std::string>> rows_of(const std::vector<Combination>& chosen) {
  std::vector<std::vector<std::string>> rows;
  for (const Combination& one : chosen) {
    std::vector<std::string> row{"set " + std::to_string(one.set)};
    for (std::size_t i = 0; i < one.words.size(); ++i) {
      row.push_back(std::to_string(i) + ":" + one.words[i]);
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

TEST_CASE("names of layouts are read back") {
  for (const char* name :
       {"dp1", "tp2", "tp2sp+pp2+dp2", "tp4+vocab_dp+m2", "pp2+gpipe+m4",
        "pp2+single+deallocated+send_fp16", "tp2sp+pp3+dp4+vocab_tp+1f1b+m6+zero1",
        "pp2+zb-h1+m4+vp3", "pp4+zb-v", "dp4+m2+ep2", "dp4+zero3+offload2+shard2+each_sum",
        "dp2+cp2+zero1+a2a", "tp2sp+cp4+a2a_p2p"}) {
    CHECK(parse_layouts(name, 0).front().name() == name);
  }
  CHECK(parse_layouts("pp2+tp2", 8).front().name() == "tp2+pp2+dp2");
  CHECK(parse_layouts("tp2,pp2", 0).size() == 2);
}

TEST_CASE("layouts that mean nothing are refused") {
  const std::pair<const char*, const char*> rows[] = {
      {"tp2+", "unknown word ''"},
      {"gpip", "did you mean 'gpipe'?"},
      {"tp0", "unknown word 'tp0'"},
      {"tp02", "unknown word 'tp02', did you mean 'tp2'?"},
      {"m0", "unknown word 'm0'"},
      {"tp2+tp4", "tp is given twice"},
      {"vocab_tp+tp2+vocab_dp", "vocabulary is given twice"},
      {"pp2+single+overlapped", "messages is given twice"},
      {"pp2+send_bf16+send_fp32", "message type is given twice"},
      {"pp2+send_fp8", "unknown word 'send_fp8', did you mean 'send_fp"},
      {"cp0", "unknown word 'cp0', did you mean 'cp2'?"},
      {"tp3", "3 ranks (tp3), but --world-size is 8"},
      {"tp2+dp2", "--world-size is 8"},
      {"x",
       "layout 'x': unknown word 'x'; words are tpN, tpNsp, ppN, dpN, cpN, vocab_dp, vocab_tp"}};
  for (const auto& [text, message] : rows) {
    INFO(text);
    CHECK_THROWS_WITH(parse_layouts(text, 8), Catch::Contains(message));
  }
}

TEST_CASE("every word that is tried is read, and changes the configuration") {
  const Config config = read(gpt);
  for (const LayoutSwitch& row : layout_switches()) {
    for (const std::string& word : row.words(config, {2, 2, 2, false, 4})) {
      if (word.empty()) continue;
      INFO(word);
      Config changed = config;
      changed.parallel.context_parallel = 4;
      REQUIRE(row.apply(word, changed));
      CHECK(parse_layouts("tp2+pp2+dp2+cp4+" + word, 0).front().name() ==
            "tp2+pp2+dp2+cp4+" + word);
      Config again = config;
      again.parallel.pipeline.scheduler =
          word == "zb-h1" ? PipelineScheduler::gpipe : PipelineScheduler::zb_h1;
      again.parallel.cp_comm_type = word == "p2p" ? CpCommType::all_gather : CpCommType::p2p;
      Config other = again;
      row.apply(word, other);
      CHECK_FALSE(other == again);
    }
  }
}

TEST_CASE("a layout has of the file's overlap only what its sizes have") {
  Config config = read_sample(small_gpt).config;
  config.parallel.tp_comm_overlap.enable = true;
  const auto overlaps = [&](const char* layout) {
    const Config own = with_layout(config, parse_layouts(layout, 0).front());
    return plan_of(own, parse_layouts(layout, 0).front().ranks()).overlap.any;
  };
  CHECK(overlaps("tp2sp"));
  CHECK_FALSE(overlaps("tp2"));
  CHECK_FALSE(overlaps("dp2"));
}

TEST_CASE("a layout without stages has none of the file's chunks") {
  Config config = read_sample(small_gpt).config;
  config.parallel.pipeline_stages = 2;
  config.parallel.virtual_pipeline_stages = 2;
  const auto chunks = [&](const char* layout) {
    const LayoutChoice choice = parse_layouts(layout, 0).front();
    return with_layout(config, choice).parallel.virtual_pipeline_stages;
  };
  CHECK(chunks("dp1") == 1);
  CHECK(chunks("tp2") == 1);
  CHECK(chunks("pp2") == 2);
}

TEST_CASE("words that would change nothing are refused") {
  const std::pair<const char*, const char*> rows[] = {
      {"dp2+vocab_dp", "vocab_dp has no effect without several tensor ranks"},
      {"tp2+gpipe", "gpipe has no effect without several pipeline stages"},
      {"dp2+overlapped", "overlapped has no effect without several pipeline stages"},
      {"dp2+deallocated", "deallocated has no effect without several pipeline stages"},
      {"dp2+send_bf16", "send_bf16 has no effect without several pipeline stages"},
      {"pp2+zero1", "zero1 has no effect without several replicas"},
      {"dp2+a2a", "a2a has no effect without several context ranks"},
      {"pp2+ep2", "ep2 has no effect without several replicas"}};
  for (const auto& [text, message] : rows)
    CHECK_THROWS_WITH(parse_layouts(text, 0), Catch::Contains(message));
}

TEST_CASE("a setting that some sizes do not allow is one finding") {
  const Config config = read({"model.num_attention_heads=6", "model.hidden_size=48",
                              "model.ffn_hidden_size=72", "train.global_batch_size=12"});
  const auto selection = select_layouts(config, {}, 3, false);  // 128 rows of vocabulary
  // 16 tokens / 3: a micro-batch of one sequence cannot be split by tokens either.
  CHECK(selection.skipped.at("vocab-tensor") ==
        std::vector<std::string>{"tp3sp", "tp3+vocab_tp", "m12+attn_mixed", "m12+mlp_mixed"});
  const std::set<std::string> names = names_of(selection.chosen);
  CHECK(std::any_of(names.begin(), names.end(),
                    [](const std::string& name) { return name.starts_with("tp3+vocab_dp+m1"); }));
  const auto impossible = select_layouts(config, {}, 7, false);
  CHECK(impossible.skipped.at("heads-tensor") == std::vector<std::string>{"tp7", "tp7sp"});
  CHECK(impossible.chosen.empty());
}

TEST_CASE("all layouts cover every pair, exhaustive every combination") {
  Options few = gpt;
  few.push_back("train.global_batch_size=4");  // not many numbers of micro-batches
  const Config config = read(few);
  std::vector<std::int64_t> worlds;
  if (!brief()) worlds = {1};
  if (thorough()) worlds = {1, 2};  // of two ranks 31,104 combinations, whose plans take long
  for (const std::int64_t ranks : worlds) {
    const auto pairs = select_layouts(config, {}, ranks, false);
    const auto every = select_layouts(config, {}, ranks, true);
    CHECK(pairs.chosen.size() < every.chosen.size());
    const std::set<std::string> names = names_of(every.chosen);
    CHECK(names.size() == every.chosen.size());
    const std::set<std::string> chosen = names_of(pairs.chosen);
    CHECK(std::includes(names.begin(), names.end(), chosen.begin(), chosen.end()));
    CHECK(pairs_of(pairs.chosen) == pairs_of(every.chosen));
    if (ranks == 2) CHECK(names.contains("pp2+gpipe+m2"));
  }
  if (brief()) return;
  const auto pairs = select_layouts(read(gpt), {}, 8, false);
  CHECK(pairs.skipped.at("stage-layers") == std::vector<std::string>{"pp8"});  // of 4 layers
}

TEST_CASE("ways of messages between stages are tried where the schedule allows them") {
  const auto selection = select_layouts(read(gpt), {}, 4, false);
  const Pairs pairs = pairs_of(selection.chosen);
  CHECK(pairs.contains({"1:gpipe", "2:overlapped"}));
  CHECK(pairs.contains({"1:1f1b", "2:single"}));
  CHECK(pairs.contains({"2:overlapped", "3:deallocated"}));
  CHECK(pairs.contains({"1:1f1b", "2:overlapped"}));  // with chunks
  CHECK(pairs.contains({"1:zb-h1", "8:vp2"}));
  CHECK(pairs.contains({"1:zb-v", "3:deallocated"}));
  CHECK(pairs.contains({"2:overlapped", "8:vp2"}));
  Config config = read(gpt);
  config.parallel.pipeline.overlap_p2p_comm = true;
  const Config single = with_layout(config, parse_layouts("pp2+single+deallocated", 0).front());
  CHECK(single.parallel.pipeline.batch_p2p_comm == false);
  CHECK_FALSE(single.parallel.pipeline.overlap_p2p_comm);
  CHECK(single.parallel.pipeline.deallocate_outputs);
}

TEST_CASE("messages are tried in another type than the config says") {
  const auto tried = [](const Options& more) {
    Options options = gpt;
    options.insert(options.end(), more.begin(), more.end());
    const auto selection = select_layouts(read(options), {}, 2, false);
    std::set<std::string> words;
    for (const LayoutChoice& choice : selection.chosen) words.insert(choice.words[4]);
    return words;
  };
  using Words = std::set<std::string>;
  CHECK(tried({}) == Words{"", "send_bf16"});
  CHECK(tried({"precision.compute=bf16"}) == Words{"", "send_fp32"});
  CHECK(tried({"precision.compute=fp16"}) == Words{"", "send_fp32"});
  CHECK(tried({"parallel.pipeline.dtype=bf16"}) == Words{"", "send_fp32"});
  if (brief()) return;
  const Pairs pairs = pairs_of(select_layouts(read(gpt), {}, 4, false).chosen);
  CHECK(pairs.contains({"2:overlapped", "4:send_bf16"}));
  CHECK(pairs.contains({"3:deallocated", "4:send_bf16"}));
}

TEST_CASE("pairs are covered by few combinations, whatever the rules forbid") {
  const std::vector<std::string> two{"a", "b"};
  const std::vector<std::string> three{"x", "y", "z"};
  const ChoiceSet wide{"wide", {two, three, two, three, two, three, two, two}};
  const ChoiceSet narrow{"narrow", {{""}, three, two, {"w"}, two, {""}, two, two}};
  const std::vector<ChoiceSet> sets{wide, narrow};
  const auto legal = [](const Combination& one) {
    const auto& words = one.words;
    return !(words[0] == "a" && words[1] == "x") && !(words[3] == "w" && words[1] == "y") &&
           (words[2] != "b" || words[5] != "z" || words[6] == "a");
  };
  std::vector<Combination> all = all_combinations(sets);
  REQUIRE(all.size() == 864 + 48);
  std::erase_if(all, [&](const Combination& one) { return !legal(one); });
  const PairCover cover = cover_pairs(sets, legal);
  const auto& few = cover.chosen;
  CHECK(pairs_in(rows_of(few)) == pairs_in(rows_of(all)));
  CHECK(few.size() < 30);
  CHECK(std::all_of(few.begin(), few.end(), legal));
  REQUIRE(cover.forbidden.size() == 5);  // "" stands for "narrow" twice
  CHECK(std::any_of(cover.forbidden.begin(), cover.forbidden.end(), [](const ForbiddenPair& pair) {
    return pair.first == "narrow" && pair.second == "y" && pair.tried.words[3] == "w";
  }));
  CHECK(cover_pairs(sets, [](const Combination&) { return false; }).chosen.empty());
}
