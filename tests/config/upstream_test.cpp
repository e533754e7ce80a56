// The upstream lists: each key has its place, a legal value arrives there, an illegal one is found.
#include <map>
#include <set>
#include <span>

#include "catch.h"
#include "config/schema/fields.h"
#include "config/schema/list_values.h"
#include "config/upstream/upstream.h"
#include "config_text.h"
#include "upstream_keys_megatron.h"

namespace trainctl::test {
namespace {

/// Every value by its path, as the dump writes it; what is not given is left out.
struct Values {
  std::map<std::string, std::string>& map;
  std::string prefix;
  bool with_unset = false;
  template <class Value>
  void operator()(const Value& value, const Field& field) {
    std::string text;
    if constexpr (IsChoice<Value>) {
      text = word_of(value);
    } else {
      text = write_value(value);
    }
    map[prefix + std::string(field.key)] = text;
  }
  template <class Value>
  void operator()(const std::optional<Value>& value, const Field& field) {
    if (value) (*this)(*value, field);
    if (!value && with_unset) map[prefix + std::string(field.key)] = "";
  }
  template <ListedSection Item>
  void operator()(const std::vector<Item>&, const Field&) {}
  template <class Section>
  void section(const Section& value, const Field& field) {
    Values inner{map, prefix + std::string(field.key) + ".", with_unset};
    fields(inner, value);
  }
};

std::string value_at(const Config& config, const std::string& path) {
  std::map<std::string, std::string> map;
  Values values{map, ""};
  fields(values, config);
  return map[path];
}

/// "parallel:\n  pipeline_config: {pipeline_scheduler: gpipe}\n": the key is on line 6.
std::string section_text(const UpstreamCase& one, const std::string& value) {
  std::string key = one.key;
  std::string text = value;
  while (key.find('.') != std::string::npos) {
    const std::size_t dot = key.rfind('.');
    text = "{" + key.substr(dot + 1) + ": " + text + "}";
    key.erase(dot);
  }
  return std::string(one.section) + ":\n  " + key + ": " + text + "\n";
}

std::vector<Diagnostic> errors_of(const ReadResult& result) {
  std::vector<Diagnostic> errors;
  for (const Diagnostic& diagnostic : result.diagnostics.list()) {
    if (diagnostic.severity == Severity::error) errors.push_back(diagnostic);
  }
  return errors;
}

void walk(std::span<const UpstreamCase> cases, std::string_view list) {
  std::set<std::string> walked;
  for (const UpstreamCase& one : cases) {
    CAPTURE(one.key);
    walked.insert(one.key);
    const ReadResult legal = read(good_text + section_text(one, one.legal));
    CHECK(errors_of(legal).empty());
    CHECK(value_at(legal.config, one.path) == one.value);
    const std::vector<Diagnostic> errors =
        errors_of(read(good_text + section_text(one, one.illegal)));
    REQUIRE(errors.size() == 1);
    CHECK(errors[0].code == one.code);
    CHECK(errors[0].place.line == 6);
  }
  std::set<std::string> rows;
  for (const UpstreamKey& row : upstream_keys(list)) rows.insert(std::string(row.key));
  CHECK(walked == rows);
}

std::string first_value(const std::string& parallel, const std::string& path) {
  const ReadResult result = read(good_text + "parallel: {" + parallel + "}\n");
  CHECK(errors_of(result).empty());
  return value_at(result.config, path);
}

}  // namespace

TEST_CASE("every key of set_auto_parallel_context has its place") {
  CHECK(std::size(mindspore_cases) == 24 + 19);
  walk(mindspore_cases, "mindspore");
}

TEST_CASE("every key of MindFormers' parallel, recompute and expert configs has its place") {
  CHECK(std::size(mindformers_cases) == 9 + 4 + 8);
  walk(mindformers_cases, "mindformers");
}

TEST_CASE("every field of Megatron's ModelParallelConfig has its place") {
  CHECK(std::size(megatron_cases) == 63);
  walk(megatron_cases, "megatron");
}

TEST_CASE("every row leads to a key or section of ours") {
  std::map<std::string, std::string> map;
  Values values{map, "", true};
  const Config config;
  fields(values, config);
  for (const UpstreamKey& row : all_upstream_keys()) {
    CAPTURE(row.key);
    const std::string path(row.path);
    if (row.conversion != "dict") {
      CHECK(map.contains(path));
      continue;
    }
    const auto inside = map.lower_bound(path + ".");
    REQUIRE(inside != map.end());
    CHECK(inside->first.starts_with(path + "."));
  }
}

TEST_CASE("null says nothing where upstream's default is None") {
  for (const UpstreamKey& row : all_upstream_keys()) {
    if (row.fallback != "null" || row.key.find('.') != std::string_view::npos) continue;
    CAPTURE(row.key);
    const ReadResult result =
        read(good_text + std::string(row.section) + ": {" + std::string(row.key) + ": null}\n");
    CHECK(found(result).empty());
    CHECK(result.config == read(good_text).config);
  }
}

TEST_CASE("modes have numbers and capitals in MindFormers") {
  const std::string path = "parallel.parallel_mode";
  CHECK(first_value("parallel_mode: 0", path) == "data_parallel");
  CHECK(first_value("parallel_mode: 1", path) == "semi_auto_parallel");
  CHECK(first_value("parallel_mode: 2", path) == "auto_parallel");
  CHECK(first_value("parallel_mode: 3", path) == "hybrid_parallel");
  CHECK(first_value("parallel_mode: AUTO_PARALLEL", path) == "auto_parallel");
  CHECK(only(read(good_text + "parallel: {parallel_mode: 4}\n")).code == "bad-word");
}

TEST_CASE("types may be written as torch writes them") {
  for (const char* word : {"fp32", "float32", "torch.float32"}) {
    CHECK(first_value("params_dtype: " + std::string(word), "precision.compute") == "fp32");
  }
  for (const char* word : {"bf16", "bfloat16", "torch.bfloat16"}) {
    CHECK(first_value("pipeline_dtype: " + std::string(word), "parallel.pipeline.dtype") == "bf16");
  }
  for (const char* word : {"fp16", "float16", "half", "torch.float16"}) {
    CHECK(first_value("autocast_dtype: " + std::string(word), "precision.autocast_dtype") ==
          "fp16");
  }
  CHECK(first_value("fp16: false, bf16: true", "precision.compute") == "bf16");
  CHECK(first_value("fp16: false", "precision.compute") == "fp32");
}

TEST_CASE("recompute is a bool, a list or a map") {
  CHECK(first_value("recompute: [3, 2]", "recompute.layers_per_stage") == "[3, 2]");
  CHECK(first_value("recompute: [3, 2]", "recompute.enable") == "true");
  CHECK(first_value("recompute: {recompute: true, mp_comm_recompute: false}",
                    "recompute.mp_comm_recompute") == "false");
  const ReadResult section = read(good_text + "recompute: {recompute: true}\n");
  CHECK(found(section).empty());
  CHECK(section.config.recompute.enable);
  CHECK(only(read(good_text + "recompute: {recompute: [3, -2]}\n")).code == "out-of-range");
}

TEST_CASE("a tensor-parallel overlap is a bool upstream and a section here") {
  CHECK(first_value("tp_comm_overlap: true, tp_comm_overlap_ag: false",
                    "parallel.tp_comm_overlap.ag") == "false");
  CHECK(first_value("tp_comm_overlap: {enable: true}", "parallel.tp_comm_overlap.enable") ==
        "true");
  CHECK(first_value("tp_comm_overlap: {enable: true}, tp_comm_overlap_rs: false",
                    "parallel.tp_comm_overlap.enable") == "true");
}

TEST_CASE("names beyond the lists") {
  CHECK(first_value("context_parallel_algo: ulysses_cp", "parallel.cp_comm_type") == "a2a");
  CHECK(first_value("num_layers_in_first_pipeline_stage: 3",
                    "parallel.pipeline.first_stage_layers") == "3");
  CHECK(first_value("use_distributed_optimizer: true", "parallel.parallel_optimizer.enable") ==
        "true");
  CHECK(first_value("pp_interleave_num: 2", "parallel.virtual_pipeline_stages") == "2");
}

TEST_CASE("splits may be tuples") {
  const std::string path = "parallel.dataset_strategy";
  const auto block = [&](const std::string& text) {
    const ReadResult result = read(good_text + "parallel:\n  dataset_strategy: " + text + "\n");
    CHECK(errors_of(result).empty());
    return value_at(result.config, path);
  };
  CHECK(block("((1, 8), (1, 8))") == "[[1, 8], [1, 8]]");
  CHECK(block("((8,),)") == "[[8]]");
  CHECK(block("full_batch") == "full_batch");
  const auto refused = [](const std::string& text) {
    return only(read(good_text + "parallel:\n  dataset_strategy: " + text + "\n")).code;
  };
  CHECK(refused("((1, 0),)") == "out-of-range");
  CHECK(refused("[[1, 0]]") == "out-of-range");
  CHECK(refused("[]") == "out-of-range");
  CHECK(refused("[[]]") == "out-of-range");
  CHECK(refused("((1, a))") == "bad-word");
}

}  // namespace trainctl::test
