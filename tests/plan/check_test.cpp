#include "plan/rules/check.h"
#include "plan/prepare/make_plan.h"

#include <algorithm>
#include <limits>

#include "catch.h"
#include "sample.h"

using namespace trainctl;

namespace {

/// The diagnostics of small_config() after `change`, on `ranks` ranks. Paths in `given` count as
/// written by the user, each on a line of its own.
template <class Change>
std::vector<Diagnostic> found(Change change, std::int64_t ranks = 1,
                              std::initializer_list<const char*> given = {}) {
  Config config = small_config();
  change(config);
  SourceMap sources;
  int line = 0;
  for (const char* path : given) {
    sources.record(path, Place{Place::Origin::file, "gpt.yaml", ++line, 3, 9});
  }
  Diagnostics diagnostics;
  const Plan plan = make_plan(config, site_of(ranks), sources, diagnostics);
  CHECK(diagnostics.has_errors() == plan.stages.empty());
  return diagnostics.list();
}

/// Exactly one error, with this code and path; returns it.
template <class Change>
Diagnostic only_error(const std::string& code, const std::string& path, Change change,
                      std::int64_t ranks = 1) {
  std::vector<Diagnostic> list = found(change, ranks);
  INFO(code << " at " << path);
  for (const Diagnostic& one : list) UNSCOPED_INFO(one.code << ": " << one.message);
  REQUIRE(list.size() == 1);
  CHECK(list[0].severity == Severity::error);
  CHECK(list[0].code == code);
  CHECK(list[0].path == path);
  CHECK_FALSE(list[0].message.ends_with("."));
  return list[0];
}

template <class Change>
void only_warning(const std::string& code, const std::string& path, Change change,
                  std::int64_t ranks = 1) {
  const auto list = found(change, ranks, {path.c_str()});
  INFO(code << " at " << path);
  for (const Diagnostic& one : list) UNSCOPED_INFO(one.code << ": " << one.message);
  REQUIRE(list.size() == 1);
  CHECK(list[0].severity == Severity::warning);
  CHECK(list[0].code == code);
  CHECK(list[0].path == path);
  CHECK(list[0].place.line == 1);
}

}  // namespace

TEST_CASE("a good configuration has no findings", "[check]") {
  CHECK(found([](Config&) {}).empty());
  CHECK(found([](Config&) {}, 12).empty());
  CHECK(found([](Config& c) { c = gpt2_124m(); }).empty());
  CHECK(found([](Config& c) { c = llama3_8b(); }).empty());
}

TEST_CASE("heads and their sizes", "[check]") {
  const Diagnostic heads = only_error("heads-divide", "model.num_attention_heads",
                                      [](Config& c) { c.model.num_attention_heads = 5; });
  CHECK(heads.message == "hidden_size (128) must be divisible by num_attention_heads (5)");
  CHECK(heads.help.find("to 1, 2, 4 or 8,") != std::string::npos);
  CHECK(found([](Config& c) {
          c.model.num_attention_heads = 5;
          c.model.kv_channels = 32;
        }).empty());
  const Diagnostic groups = only_error("groups-divide", "model.num_query_groups",
                                       [](Config& c) { c.model.num_query_groups = 3; });
  CHECK(groups.message == "num_attention_heads (4) must be divisible by num_query_groups (3)");
  CHECK(groups.help == "set num_query_groups to 1, 2 or 4");
  only_error("groups-divide", "model.num_query_groups",
             [](Config& c) { c.model.num_query_groups = 8; });
  only_error("head-size-even", "model.num_attention_heads", [](Config& c) {
    c.model.family = "llama";
    c.model.num_attention_heads = 128;
  });
  only_error("head-size-even", "model.kv_channels", [](Config& c) { c.model.kv_channels = 33; });
  only_error("out-of-range", "model.kv_channels", [](Config& c) { c.model.kv_channels = 0; });
  const Diagnostic limit =
      only_error("head-size-limit", "model.num_attention_heads", [](Config& c) {
        c.model.hidden_size = 1024;
        c.model.num_attention_heads = 2;
      });
  CHECK(limit.message.find("1024 / num_attention_heads 2 = 512") != std::string::npos);
}

TEST_CASE("positions and families", "[check]") {
  const Diagnostic positions = only_error("positions-cover", "model.seq_length",
                                          [](Config& c) { c.model.max_position_embeddings = 63; });
  CHECK(positions.message == "seq_length (64) must be at most max_position_embeddings (63)");
  only_error("qk-norm-family", "model.qk_layernorm",
             [](Config& c) { c.model.qk_layernorm = true; });
  only_error("rope-family", "model.rotary_base", [](Config& c) { c.model.rotary_base = 500; });
  only_error("rope-family", "model.rope_scaling",
             [](Config& c) { c.model.rope_scaling.factor = 8; });
  only_error("window-and-chunk", "model.attention_chunk_size", [](Config& c) {
    c.model.sliding_window = 8;
    c.model.attention_chunk_size = 16;
  });
  only_error("rope-scaling", "model.rope_scaling.high_freq_factor", [](Config& c) {
    c.model.family = "llama";
    c.model.rope_scaling.factor = 8;
    c.model.rope_scaling.low_freq_factor = 4;
  });
}

TEST_CASE("ranges of single fields", "[check]") {
  const auto out = [](const char* path, auto change) { only_error("out-of-range", path, change); };
  out("model.num_layers", [](Config& c) { c.model.num_layers = 0; });
  out("model.hidden_size", [](Config& c) { c.model.hidden_size = -4; });
  out("model.num_attention_heads", [](Config& c) { c.model.num_attention_heads = 0; });
  out("model.ffn_hidden_size", [](Config& c) { c.model.ffn_hidden_size = 0; });
  out("model.vocab_size", [](Config& c) { c.model.vocab_size = 0; });
  out("model.seq_length", [](Config& c) { c.model.seq_length = 0; });
  out("model.num_query_groups", [](Config& c) { c.model.num_query_groups = 0; });
  out("model.hidden_dropout", [](Config& c) { c.model.hidden_dropout = 1.0; });
  out("model.attention_dropout", [](Config& c) { c.model.attention_dropout = -0.1; });
  out("model.embedding_dropout",
      [](Config& c) { c.model.embedding_dropout = std::numeric_limits<double>::quiet_NaN(); });
  out("model.norm_epsilon", [](Config& c) { c.model.norm_epsilon = 0; });
  out("train.steps", [](Config& c) { c.train.steps = 0; });
  out("train.global_batch_size", [](Config& c) { c.train.global_batch_size = 0; });
  out("train.micro_batch_size", [](Config& c) { c.train.micro_batch_size = 0; });
  out("parallel.bucket_size", [](Config& c) { c.parallel.bucket_size = 0; });
  out("parallel.threads_per_rank", [](Config& c) { c.parallel.threads_per_rank = 0; });
  out("parallel.deadline_seconds", [](Config& c) { c.parallel.deadline_seconds = 0; });
  out("optimizer.beta1", [](Config& c) { c.optimizer.beta1 = 1; });
  out("optimizer.eps", [](Config& c) { c.optimizer.eps = 0; });
  out("optimizer.clip_grad_norm", [](Config& c) { c.optimizer.clip_grad_norm = -1; });
  out("data.validation.fraction", [](Config& c) { c.data.validation.fraction = 1.0; });
  out("lr_schedule.warmup_steps", [](Config& c) { c.lr_schedule.warmup_steps = -1; });
}

TEST_CASE("ranks and batches", "[check]") {
  const Diagnostic world = only_error(
      "world-size", "parallel.data_parallel", [](Config& c) { c.parallel.data_parallel = 3; }, 4);
  CHECK(world.message == "data_parallel (3) must equal the world size (4)");
  CHECK(found([](Config& c) { c.parallel.data_parallel = 4; }, 4).empty());
  const Diagnostic devices = only_error(
      "device-num", "parallel.device_num", [](Config& c) { c.parallel.device_num = 8; }, 4);
  CHECK(devices.message == "device_num (8) must equal the world size (4)");
  const Diagnostic alone = only_error(
      "stand-alone", "parallel.parallel_mode",
      [](Config& c) { c.parallel.parallel_mode = ParallelMode::stand_alone; }, 2);
  CHECK(alone.message.find("the world size (2)") != std::string::npos);
  const Diagnostic micro = only_error(
      "micro-batch-divides", "train.micro_batch_size",
      [](Config& c) { c.train.micro_batch_size = 5; }, 2);
  CHECK(micro.message ==
        "global_batch_size (12) must be divisible by micro_batch_size (5) x data_parallel (2)");
  CHECK(micro.help.find("set micro_batch_size to 1, 2, 3 or 6") == 0);
  const Diagnostic batch = only_error(
      "batch-divides", "train.global_batch_size", [](Config&) {}, 8);
  CHECK(batch.message == "global_batch_size (12) must be divisible by data_parallel (8)");
  CHECK(batch.help.find("set global_batch_size to 8 or 16") == 0);
}

TEST_CASE("optimizer and schedule", "[check]") {
  only_error("lr-range", "lr_schedule.min_lr", [](Config& c) { c.lr_schedule.min_lr = 2e-3; });
  only_error("lr-range", "lr_schedule.min_lr", [](Config& c) { c.lr_schedule.min_lr = -1; });
  only_error("lr-range", "lr_schedule.init_lr", [](Config& c) {
    c.lr_schedule.init_lr = 2e-3;
    c.lr_schedule.warmup_steps = 5;
  });
  const Diagnostic warmup = only_error("warmup-below-decay", "lr_schedule.warmup_steps",
                                       [](Config& c) { c.lr_schedule.warmup_steps = 2000; });
  CHECK(warmup.message == "warmup_steps (2000) must be below decay_steps (train.steps, 2000)");
  const Diagnostic wsd = only_error("wsd-decay-steps", "lr_schedule.wsd_decay_steps",
                                    [](Config& c) { c.lr_schedule.style = LrStyle::wsd; });
  CHECK(wsd.help == "set wsd_decay_steps to 200");
  only_error("wsd-decay-steps", "lr_schedule.wsd_decay_steps", [](Config& c) {
    c.lr_schedule.style = LrStyle::wsd;
    c.lr_schedule.wsd_decay_steps = 2001;
  });
  only_error("weight-decay-range", "optimizer.end_weight_decay", [](Config& c) {
    c.optimizer.end_weight_decay = 0.001;
    c.optimizer.weight_decay_incr_style = "linear";
  });
  only_error("weight-decay-range", "optimizer.end_weight_decay",
             [](Config& c) { c.optimizer.end_weight_decay = 0.1; });
}

TEST_CASE("data", "[check]") {
  only_error("eod-token-range", "data.eod_token", [](Config& c) { c.data.eod_token = 256; });
  only_error("data-weights", "data.train", [](Config& c) { c.data.train[0].weight = 0; });
  only_error("fraction-rounded", "data.validation.fraction", [](Config& c) {
    c.data.validation.fraction = 0.9;
    c.data.validation.split = "blocks";
  });
  for (double fraction : {0.1, 0.05, 0.5, 1.0 / 3, 1.0 / 49}) {
    CHECK(found([&](Config& c) {
            c.data.validation.fraction = fraction;
            c.data.validation.split = "blocks";
          }).empty());
  }
}

TEST_CASE("what a run cannot do yet is legal in a plan", "[check]") {
  CHECK(found([](Config& c) { c.parallel.device = "cuda"; }).empty());
  CHECK(found([](Config& c) { c.parallel.parallel_mode = ParallelMode::auto_parallel; }).empty());
}

TEST_CASE("kv heads fewer than tensor-parallel ranks are copied", "[check]") {
  const auto groups = [](std::int64_t kv, std::int64_t tp) {
    return found(
        [&](Config& c) {
          c.model.num_attention_heads = 8;
          c.model.num_query_groups = kv;
          c.parallel.tensor_parallel = tp;
        },
        tp);
  };
  CHECK(groups(2, 4).empty());
  CHECK(groups(8, 4).empty());
  CHECK(groups(1, 8).empty());
}

TEST_CASE("every legal way to cut the ranks is accepted", "[check]") {
  const auto cut = [](auto change, std::int64_t ranks) {
    return found(
        [&](Config& c) {
          c.model.num_layers = 16;
          c.model.num_attention_heads = 8;
          c.model.add_bias_linear = false;
          c.train.global_batch_size = 64;
          change(c.parallel, c);
        },
        ranks);
  };
  CHECK(cut([](ParallelConfig& p, Config&) { p.tensor_parallel = 2, p.pipeline_stages = 4; }, 8)
            .empty());
  CHECK(
      cut([](ParallelConfig& p, Config&) { p.tensor_parallel = 8, p.sequence_parallel = true; }, 16)
          .empty());
  CHECK(cut([](ParallelConfig& p, Config&) { p.context_parallel = 4, p.data_parallel = 2; }, 8)
            .empty());
  CHECK(cut(
            [](ParallelConfig& p, Config& c) {
              p.expert_parallel = 4;
              c.moe.num_experts = 8;
            },
            8)
            .empty());
  CHECK(cut(
            [](ParallelConfig& p, Config&) {
              p.pipeline_stages = 4;
              p.virtual_pipeline_stages = 2;
              p.pipeline.overlap_p2p_comm = true;
            },
            8)
            .empty());
  CHECK(cut(
            [](ParallelConfig& p, Config&) {
              p.pipeline_stages = 4;
              p.pipeline.scheduler = PipelineScheduler::gpipe;  // upstream only with interleave
            },
            4)
            .empty());
  CHECK(cut([](ParallelConfig& p, Config&) { p.rank_order = "TP-PP-EP-DP-CP"; }, 8).empty());
}

TEST_CASE("Megatron's schedules take fewer micro-batches than stages", "[check]") {
  const auto batches = [](std::optional<ParallelMode> mode, std::optional<std::int64_t> number) {
    return found(
        [&](Config& c) {
          c.parallel.parallel_mode = mode;
          c.parallel.pipeline_stages = 4;
          c.train.micro_batch_num = number;
          if (!number) c.train.micro_batch_size = 6;
        },
        4);
  };
  CHECK(batches(std::nullopt, std::nullopt).empty());
  CHECK(batches(ParallelMode::hybrid_parallel, 2).empty());
  CHECK(batches(std::nullopt, 2).size() == 1);
  CHECK(batches(ParallelMode::semi_auto_parallel, std::nullopt).size() == 1);
}

TEST_CASE("options without effect are remarked where the user gave them", "[check]") {
  const auto idle = [](const char* path, auto change) { only_warning("no-effect", path, change); };
  idle("optimizer.momentum", [](Config& c) { c.optimizer.momentum = 0.5; });
  idle("optimizer.beta2", [](Config& c) {
    c.optimizer.type = OptimizerType::sgd;
    c.optimizer.beta2 = 0.5;
  });
  idle("lr_schedule.wsd_decay_steps", [](Config& c) { c.lr_schedule.wsd_decay_steps = 5; });
  idle("lr_schedule.min_lr", [](Config& c) { c.lr_schedule.min_lr = 1e-4; });
  idle("lr_schedule.init_lr", [](Config& c) { c.lr_schedule.init_lr = 1e-4; });
  idle("optimizer.weight_decay_incr_style",
       [](Config& c) { c.optimizer.weight_decay_incr_style = "cosine"; });
  idle("train.validate_every", [](Config& c) { c.train.validate_every = 10; });
  idle("data.validation.fraction", [](Config& c) {
    c.data.validation.path = "other";
    c.data.validation.fraction = 0.1;
  });
  CHECK(found([](Config& c) { c.optimizer.momentum = 0.5; }).empty());  // not given by the user
}

TEST_CASE("other warnings", "[check]") {
  only_warning("decay-beyond-steps", "lr_schedule.decay_steps", [](Config& c) {
    c.lr_schedule.style = LrStyle::cosine;
    c.lr_schedule.decay_steps = 2001;
  });
  only_warning("fraction-rounded", "data.validation.fraction", [](Config& c) {
    c.data.validation.fraction = 0.15;
    c.data.validation.split = "blocks";
  });
  only_warning("threads-oversubscribe", "parallel.threads_per_rank",
               [](Config& c) { c.parallel.threads_per_rank = 3; });
}

TEST_CASE("all mistakes are reported at once, each once", "[check]") {
  const auto list = found([](Config& c) {
    c.model.num_attention_heads = 0;  // neither heads-divide nor groups-divide on top of it
    c.model.num_query_groups = 3;
    c.train.micro_batch_size = 5;
    c.lr_schedule.min_lr = 1;
    c.moe.router_topk = 2;
  });
  CHECK(list.size() == 4);
}

TEST_CASE("rules over fields that the reader refused stay silent", "[check]") {
  Config config = small_config();
  config.model.num_attention_heads = 0;
  Diagnostics diagnostics;
  diagnostics.add({Severity::error, "missing-key", "model.num_attention_heads", "missing", "", {}});
  make_plan(config, site_of(1), SourceMap{}, diagnostics);
  CHECK(diagnostics.list().size() == 1);
}

TEST_CASE("findings have the place of their value", "[check]") {
  const auto list = found([](Config& c) { c.model.num_attention_heads = 5; }, 1,
                          {"model.hidden_size", "model.num_attention_heads"});
  REQUIRE(list.size() == 1);
  CHECK(list[0].place.file == "gpt.yaml");
  CHECK(list[0].place.line == 2);
  CHECK(list[0].place.column == 3);
}

TEST_CASE("absurd sizes are errors, not overflows", "[check]") {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const auto refused = [](auto change) {
    const auto list = found(change);
    REQUIRE_FALSE(list.empty());
    CHECK(list[0].severity == Severity::error);
  };
  refused([&](Config& c) { c.model.hidden_size = huge; });
  refused([&](Config& c) { c.model.num_layers = huge; });
  refused([&](Config& c) { c.model.vocab_size = huge; });
  refused([&](Config& c) { c.model.seq_length = huge; });
  refused([&](Config& c) { c.model.kv_channels = huge; });
  refused([&](Config& c) { c.model.make_vocab_size_divisible_by = huge; });
  refused([&](Config& c) { c.train.global_batch_size = huge; });
  refused([&](Config& c) { c.train.micro_batch_size = huge; });
  refused([&](Config& c) { c.parallel.bucket_size = huge; });
  refused([&](Config& c) { c.data.prefetch = huge; });
  refused([&](Config& c) {
    c.model.num_layers = 10'000;
    c.model.hidden_size = std::int64_t{1} << 24;
    c.model.num_attention_heads = 1 << 16;
  });
  refused([&](Config& c) {
    c.model.num_layers = 10'000;
    c.train.global_batch_size = 1 << 20;
    c.train.micro_batch_size = 1;
  });
  refused([&](Config& c) {
    c.train.global_batch_size = 1 << 24;
    c.model.seq_length = 1 << 24;
  });
}

TEST_CASE("a router without a gradient does not matter where nothing learns", "[check]") {
  Config config = small_config();
  config.moe.num_experts = 4;
  config.moe.router_pre_softmax = false;  // one chosen expert, of weight 1
  config.moe.router_load_balancing_type = "none";
  for (const bool trains : {true, false}) {
    Site site = site_of(1);
    site.trains = trains;
    Diagnostics diagnostics;
    make_plan(config, site, SourceMap{}, diagnostics);
    CHECK(diagnostics.has_errors() == trains);
    CHECK(diagnostics.list().empty() == !trains);
  }
}

TEST_CASE("groups of a micro-batch follow its size", "[check]") {
  Config config = small_config();
  config.moe.num_experts = 4;
  config.moe.expert_group = "micro_batch";
  for (const std::int64_t sequences : {1, 3}) {
    config.train.micro_batch_size = sequences;
    const Facts facts(config, site_of(1));
    CHECK(facts.model.routing_group == 64 * sequences);
    CHECK(facts.model.capacity_group == 64 * sequences);
  }
  config.moe.capacity_group_size = 32;
  CHECK(Facts(config, site_of(1)).model.capacity_group == 32);
}

TEST_CASE("alternatives", "[check]") {
  CHECK(divisors_near(12, 5) == "2, 3, 4 or 6");
  CHECK(divisors_near(6, 5) == "1, 2, 3 or 6");
  CHECK(divisors_near(1, 7) == "1");
  CHECK(divisors_near(97, 10) == "1 or 97");
  CHECK(multiples_near(8, 12) == "8 or 16");
  CHECK(multiples_near(8, 3) == "8");
  CHECK(number(0.1) == "0.1");
}
