// A file with many mistakes: each is reported once, at its place, in the order of the file.
#include "catch.h"
#include "config/read/read.h"
#include "config/schema/fields.h"
#include "plan/prepare/make_plan.h"
#include "sample.h"

using namespace trainctl;

namespace {

struct Mistake {
  int line;
  int column;
  const char* code;
  const char* path;
};

const char* const text =
    "model:\n"                                                       //  1
    "  num_layers: 10\n"                                             //  2
    "  hidden_size: 128\n"                                           //  3
    "  num_attention_heads: 4\n"                                     //  4
    "  num_query_groups: 3\n"                                        //  5
    "  seq_length: 64\n"                                             //  6
    "  max_position_embeddings: 32\n"                                //  7
    "  vocab_size: 256\n"                                            //  8
    "  qk_layernorm: true\n"                                         //  9
    "  num_layer: 4\n"                                               // 10
    "data: {train: text, eod_token: 256}\n"                          // 11
    "train:\n"                                                       // 12
    "  steps: 100\n"                                                 // 13
    "  global_batch_size: 24\n"                                      // 14
    "  seed: 7\n"                                                    // 15
    "optimizer:\n"                                                   // 16
    "  type: adan\n"                                                 // 17
    "  end_weight_decay: 0.1\n"                                      // 18
    "lr_schedule:\n"                                                 // 19
    "  max_lr: 1.0e-3\n"                                             // 20
    "  min_lr: 1.0\n"                                                // 21
    "  warmup_steps: 100\n"                                          // 22
    "parallel:\n"                                                    // 23
    "  global_rank: 8\n"                                             // 24
    "  tensor_parallel: 2\n"                                         // 25
    "  model_parallel: 4\n"                                          // 26
    "  rank_order: tp-tp\n"                                          // 27
    "  bucket_size: many\n"                                          // 28
    "  search_mode: dynamic_programing\n"                            // 29
    "  comm_fusion:\n"                                               // 30
    "    allreduce: {mode: size}\n"                                  // 31
    "    allgather: {mode: index, config: [1]}\n"                    // 32
    "  threads_per_rank: 0\n"                                        // 33
    "moe: {num_experts: 2, router_topk: 3, capacity_factor: 0.5}\n"  // 34
    "offload: {enable: true, num_layers: 10}\n";                     // 35

constexpr Mistake mistakes[] = {
    {5, 21, "groups-divide", "model.num_query_groups"},
    {6, 15, "positions-cover", "model.seq_length"},
    {9, 17, "qk-norm-family", "model.qk_layernorm"},
    {10, 3, "unknown-key", "model.num_layer"},
    {11, 32, "eod-token-range", "data.eod_token"},
    {17, 9, "bad-word", "optimizer.type"},
    {18, 21, "weight-decay-range", "optimizer.end_weight_decay"},
    {21, 11, "lr-range", "lr_schedule.min_lr"},
    {22, 17, "warmup-below-decay", "lr_schedule.warmup_steps"},
    {24, 16, "global-rank", "parallel.global_rank"},
    {26, 3, "two-spellings", "parallel.tensor_parallel"},
    {27, 15, "rank-order", "parallel.rank_order"},
    {28, 16, "wrong-type", "parallel.bucket_size"},
    {29, 16, "bad-word", "parallel.search_mode"},
    {31, 5, "fusion-config", "parallel.comm_fusion.allreduce.config"},
    {32, 23, "fusion-mode", "parallel.comm_fusion.allgather.mode"},
    {33, 21, "out-of-range", "parallel.threads_per_rank"},
    {34, 36, "router-topk", "moe.router_topk"},
    {34, 56, "out-of-range", "moe.capacity_factor"},
    {35, 37, "offload-layers", "offload.num_layers"},
};

/// Lists the dotted path of every value of the schema.
struct PathLister {
  std::vector<std::string>& paths;
  std::string prefix;

  template <class Value>
  void operator()(const Value&, const Field& field) {
    paths.push_back(prefix + std::string(field.key));
  }
  template <class Section>
  void section(const Section& value, const Field& field) {
    PathLister inner{paths, prefix + std::string(field.key) + "."};
    fields(inner, value);
  }
};

}  // namespace

TEST_CASE("twenty mistakes are twenty findings, in the order of the file", "[mistakes]") {
  ReadResult read = read_config_text(text, "t.yaml", {});
  REQUIRE(read.complete);
  make_plan(read.config, site_of(8), read.sources, read.diagnostics);
  read.diagnostics.sort();
  for (const Diagnostic& one : read.diagnostics.list()) {
    UNSCOPED_INFO(one.place.line << ":" << one.place.column << " " << one.code << " " << one.path
                                 << ": " << one.message);
  }
  const std::vector<Diagnostic>& found = read.diagnostics.list();
  REQUIRE(std::size(mistakes) == 20);
  REQUIRE(found.size() == 20);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Mistake& due = mistakes[i];
    INFO(due.line << ": " << due.code);
    CHECK(found[i].severity == Severity::error);
    CHECK(found[i].code == due.code);
    CHECK(found[i].path == due.path);
    CHECK(found[i].place.line == due.line);
    CHECK(found[i].place.column == due.column);
  }
}

TEST_CASE("a mistake in a size brings no others with it", "[mistakes]") {
  const std::string small =
      "model: {num_layers: 12, hidden_size: 120, num_attention_heads: 12, seq_length: 60, "
      "vocab_size: 250}\ndata: {train: text}\ntrain: {steps: 10, global_batch_size: 24}\n"
      "lr_schedule: {max_lr: 1.0e-3}\n";
  for (const char* parallel :
       {"tensor_parallel: 7", "pipeline_stages: 5", "context_parallel: 7", "expert_parallel: 5",
        "tensor_parallel: seven", "pipeline_stages: -1", "data_parallel: 3", "device_num: 3",
        "tensor_parallel: 16", "rank_order: a", "parallel_mode: stand_alone", "tensor_parallel: 0",
        "virtual_pipeline_stages: 2", "virtual_pipeline_stages: two"}) {
    ReadResult read = read_config_text(small + "parallel: {" + parallel + "}\n", "t.yaml", {});
    make_plan(read.config, site_of(8), read.sources, read.diagnostics);
    INFO(parallel);
    for (const Diagnostic& one : read.diagnostics.list()) {
      UNSCOPED_INFO(one.code << ": " << one.message);
    }
    CHECK(read.diagnostics.list().size() == 1);
  }
}

TEST_CASE("a value that cannot be read is the only error, whatever rules use it", "[mistakes]") {
  const std::string large =
      "model: {family: llama, num_layers: 8, hidden_size: 128, num_attention_heads: 8, "
      "num_query_groups: 4, ffn_hidden_size: 256, seq_length: 64, vocab_size: 256}\n"
      "data: {train: text, eod_token: 3}\n"
      "train: {steps: 10, global_batch_size: 24, micro_batch_size: 3}\n"
      "optimizer: {end_weight_decay: 0.1, weight_decay_incr_style: linear}\n"
      "lr_schedule: {max_lr: 1.0e-3, min_lr: 1.0e-4, style: cosine, warmup_steps: 2}\n"
      "moe: {num_experts: 4, router_topk: 2}\n"
      "parallel: {tensor_parallel: 2, sequence_parallel: true, pipeline_stages: 2, "
      "virtual_pipeline_stages: 2, expert_parallel: 2, parallel_optimizer: {enable: true}, "
      "pipeline: {overlap_p2p_comm: true}}\n"
      "precision: {compute: bf16}\n";
  std::vector<std::string> paths;
  PathLister lister{paths, ""};
  const Config config;
  fields(lister, config);
  for (const std::string& path : paths) {
    ReadResult read = read_config_text(large, "t.yaml", {path + "={unreadable: {value: 1}}"});
    make_plan(read.config, site_of(8), read.sources, read.diagnostics);
    INFO(path);
    std::vector<std::string> errors;
    for (const Diagnostic& one : read.diagnostics.list()) {
      UNSCOPED_INFO(one.code << " " << one.path << ": " << one.message);
      if (one.severity == Severity::error) errors.push_back(one.path);
    }
    CHECK(errors == std::vector<std::string>{path});
  }
}
