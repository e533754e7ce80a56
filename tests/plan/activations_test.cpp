#include "plan/tables/activations.h"

#include <map>

#include "catch.h"
#include "sample.h"

using namespace trainctl;

namespace {

using Table = std::map<std::string, ActivationSpec>;

struct Share {  // of a rank
  Mesh mesh{};
  bool sequence_parallel = false;
  bool split_vocabulary = false;
  std::vector<UnitRange> units{};  // empty: all
};

Table rows_of(const Config& config, std::int64_t micro, DType compute, const Share& share = {}) {
  const ModelShape model = model_shape(config.model, config.moe);
  const int units = static_cast<int>(model.layers) + 2;
  Table rows;
  const std::vector<UnitRange> all{{0, units}};
  for (const auto& row : make_activations(
           {model, share.mesh, micro, compute, share.sequence_parallel, share.split_vocabulary},
           share.units.empty() ? all : share.units)) {
    INFO(row.name);
    REQUIRE(rows.emplace(row.name, row).second);  // names are unique
  }
  return rows;
}

Shape shape_of(const Table& rows, const std::string& name) {
  INFO(name);
  REQUIRE(rows.count(name) == 1);
  return rows.at(name).shape;
}

void check_row(const Table& rows, const std::string& name, const Shape& shape, DType dtype,
               Lifetime lifetime) {
  INFO(name);
  REQUIRE(rows.count(name) == 1);
  CHECK(rows.at(name).shape == shape);
  CHECK(rows.at(name).dtype == dtype);
  CHECK(rows.at(name).lifetime == lifetime);
}

}  // namespace

TEST_CASE("GPT-2's activations", "[activations]") {
  Config config = small_config();
  config.model.num_layers = 2;
  const auto rows = rows_of(config, 3, DType::bf16);
  const std::int64_t t = 3 * 64;
  const DType c = DType::bf16;
  for (const char* name : {"tokens", "labels", "position", "document"}) {
    check_row(rows, std::string("batch.") + name, {t}, DType::i32, Lifetime::batch);
  }
  check_row(rows, "batch.global_token", {t}, DType::i64, Lifetime::batch);
  check_row(rows, "batch.loss_weight", {t}, DType::f32, Lifetime::batch);
  for (const std::string layer : {"layers.0.", "layers.1."}) {
    for (const char* name : {"input", "norm1", "middle", "norm2"}) {
      check_row(rows, layer + name, {t, 128}, c, Lifetime::kept);
    }
    for (const char* name : {"norm1.mean", "norm1.rstd", "norm2.mean", "norm2.rstd"}) {
      check_row(rows, layer + name, {t}, DType::f32, Lifetime::kept);
    }
    for (const char* name : {"q", "k", "v", "context"}) {
      check_row(rows, layer + "attention." + name, {t, 128}, c, Lifetime::kept);
    }
    check_row(rows, layer + "attention.logsumexp", {t * 4}, DType::f32, Lifetime::kept);
    check_row(rows, layer + "mlp.up", {t, 512}, c, Lifetime::kept);
    check_row(rows, layer + "mlp.act", {t, 512}, c, Lifetime::kept);
    CHECK(rows.count(layer + "mlp.gate") == 0);
    CHECK(rows.count(layer + "attention.q_raw") == 0);
  }
  for (const char* name : {"head.input", "head.norm", "head.d_norm"}) {
    check_row(rows, name, {t, 128}, c, Lifetime::kept);
  }
  check_row(rows, "head.norm.mean", {t}, DType::f32, Lifetime::kept);
  check_row(rows, "head.norm.rstd", {t}, DType::f32, Lifetime::kept);
  for (const char* name : {"branch", "d_stream.0", "d_stream.1", "d_middle", "d_norm", "d_q", "d_k",
                           "d_v", "d_context"}) {
    check_row(rows, name, {t, 128}, c, Lifetime::transient);
  }
  check_row(rows, "d_ffn", {t, 512}, c, Lifetime::transient);
  CHECK(rows.count("d_gate") == 0);
  CHECK(rows.count("d_branch.mlp") == 0);
  check_row(rows, "head.logits", {t / 2, 256}, c, Lifetime::transient);
  check_row(rows, "head.stats", {3, t / 2}, DType::f32, Lifetime::transient);
  CHECK(rows.size() == 6 + 2 * 15 + 5 + 12);
}

TEST_CASE("Llama's activations", "[activations]") {
  Config config = llama3_8b();
  config.model.num_layers = 1;
  config.model.qk_layernorm = true;
  const auto rows = rows_of(config, 1, DType::f32);
  const std::int64_t t = 8192;
  check_row(rows, "layers.0.attention.k", {t, 1024}, DType::f32, Lifetime::kept);
  check_row(rows, "layers.0.attention.q_raw", {t, 4096}, DType::f32, Lifetime::kept);
  check_row(rows, "layers.0.attention.k_raw", {t, 1024}, DType::f32, Lifetime::kept);
  check_row(rows, "layers.0.attention.q_rstd", {t * 32}, DType::f32, Lifetime::kept);
  check_row(rows, "layers.0.attention.k_rstd", {t * 8}, DType::f32, Lifetime::kept);
  check_row(rows, "layers.0.mlp.gate", {t, 14336}, DType::f32, Lifetime::kept);
  check_row(rows, "d_gate", {t, 14336}, DType::f32, Lifetime::transient);
  check_row(rows, "d_k", {t, 1024}, DType::f32, Lifetime::transient);
  CHECK(rows.count("layers.0.norm1.mean") == 0);
  CHECK(rows.count("head.norm.mean") == 0);
  CHECK(rows.count("layers.0.norm1.rstd") == 1);
}

TEST_CASE("the order of the rows on one rank", "[activations]") {
  Config config = small_config();
  config.model.num_layers = 1;
  const ModelShape model = model_shape(config.model);
  std::vector<std::string> names;
  for (const auto& row : make_activations({model, Mesh{}, 1, DType::f32, false, false}, {{0, 3}})) {
    names.push_back(row.name);
  }
  const std::string n = "layers.0.";
  const std::vector<std::string> expected{"batch.tokens",
                                          "batch.labels",
                                          "batch.position",
                                          "batch.document",
                                          "batch.global_token",
                                          "batch.loss_weight",
                                          n + "input",
                                          n + "norm1",
                                          n + "norm1.mean",
                                          n + "norm1.rstd",
                                          n + "attention.q",
                                          n + "attention.k",
                                          n + "attention.v",
                                          n + "attention.context",
                                          n + "attention.logsumexp",
                                          n + "middle",
                                          n + "norm2",
                                          n + "norm2.mean",
                                          n + "norm2.rstd",
                                          n + "mlp.up",
                                          n + "mlp.act",
                                          "head.input",
                                          "head.norm",
                                          "head.norm.mean",
                                          "head.norm.rstd",
                                          "head.d_norm",
                                          "branch",
                                          "d_stream.0",
                                          "d_stream.1",
                                          "d_middle",
                                          "d_norm",
                                          "d_q",
                                          "d_k",
                                          "d_v",
                                          "d_context",
                                          "d_ffn",
                                          "head.logits",
                                          "head.stats"};
  CHECK(names == expected);
}

TEST_CASE("tensor parallelism cuts what lies between gather and scatter", "[activations]") {
  const Config config = small_config();
  const std::int64_t t = 3 * 64;
  const Share share{.mesh = Mesh{.tp = 4, .edp = 4}, .split_vocabulary = true};
  const Table rows = rows_of(config, 3, DType::f32, share);
  CHECK(shape_of(rows, "layers.1.input") == Shape{t, 128});
  CHECK(shape_of(rows, "layers.1.norm1") == Shape{t, 128});
  CHECK(shape_of(rows, "layers.1.attention.q") == Shape{t, 32});
  CHECK(shape_of(rows, "layers.1.attention.k") == Shape{t, 32});
  CHECK(shape_of(rows, "layers.1.attention.logsumexp") == Shape{t});
  CHECK(shape_of(rows, "layers.1.mlp.act") == Shape{t, 128});
  CHECK(shape_of(rows, "d_ffn") == Shape{t, 128});
  CHECK(shape_of(rows, "d_stream.0") == Shape{t, 128});
  CHECK(shape_of(rows, "head.logits") == Shape{t / 2, 64});
  CHECK(rows.count("stream.gathered") == 0);

  Share sequence = share;
  sequence.sequence_parallel = true;
  const Table cut = rows_of(config, 3, DType::f32, sequence);
  CHECK(shape_of(cut, "batch.tokens") == Shape{t});
  for (const char* name :
       {"layers.1.input", "layers.1.norm1", "layers.1.middle", "layers.1.norm2", "head.input",
        "head.norm", "head.d_norm", "branch", "d_stream.1", "d_middle", "d_norm"}) {
    CHECK(shape_of(cut, name) == Shape{t / 4, 128});
  }
  CHECK(shape_of(cut, "layers.1.norm1.mean") == Shape{t / 4});
  CHECK(shape_of(cut, "layers.1.attention.q") == Shape{t, 32});
  CHECK(shape_of(cut, "stream.gathered") == Shape{t, 128});
  CHECK(cut.at("stream.partial").lifetime == Lifetime::transient);
  sequence.split_vocabulary = false;  // then each rank scores its own tokens
  CHECK(shape_of(rows_of(config, 3, DType::f32, sequence), "head.logits") == Shape{48, 256});
}

TEST_CASE("with sequence parallelism kept rows are an exact share", "[activations]") {
  const Config config = small_config();
  const auto kept = [&](const Share& share) {
    std::int64_t elements = 0;
    for (const auto& [name, row] : rows_of(config, 4, DType::bf16, share)) {
      if (row.lifetime == Lifetime::kept) elements += row.shape.numel();
    }
    return elements;
  };
  const std::int64_t whole = kept({});
  for (const std::int64_t tp : {2, 4}) {
    CHECK(kept({.mesh = Mesh{.tp = tp, .edp = tp}, .sequence_parallel = true}) * tp == whole);
    CHECK(kept({.mesh = Mesh{.cp = tp, .edp = tp}}) * tp == whole);
  }
}

TEST_CASE("fewer key and value heads than tp, and context parallelism", "[activations]") {
  Config config = llama3_8b();
  config.model.num_layers = 1;
  const Share share{.mesh = Mesh{.tp = 16, .cp = 2, .edp = 32}};
  const Table rows = rows_of(config, 1, DType::bf16, share);
  CHECK(shape_of(rows, "layers.0.attention.k") == Shape{4096, 128});
  CHECK(shape_of(rows, "layers.0.attention.q") == Shape{4096, 256});
  CHECK(shape_of(rows, "batch.labels") == Shape{4096});
  for (const char* name : {"cp.k", "cp.v", "cp.d_k", "cp.d_v"}) {
    check_row(rows, name, {4096, 128}, DType::bf16, Lifetime::transient);
  }
}

TEST_CASE("stages hold their own rows and messages", "[activations]") {
  const Config config = small_config();  // four layers: units 0 to 5
  const Table first = rows_of(config, 1, DType::f32, {.units = {{0, 2}, {3, 4}}});
  CHECK(first.count("batch.tokens") == 1);
  CHECK(first.count("batch.labels") == 0);
  CHECK(first.count("batch.loss_weight") == 0);
  CHECK(first.count("layers.0.input") == 1);
  CHECK(first.count("layers.1.input") == 0);
  CHECK(first.count("layers.2.input") == 1);
  CHECK(first.count("head.logits") == 0);
  for (const char* name : {"chunk.0.output", "chunk.0.d_output", "chunk.1.output"}) {
    check_row(first, name, {64, 128}, DType::f32, Lifetime::transient);
  }
  const Table last = rows_of(config, 1, DType::f32, {.units = {{2, 3}, {4, 6}}});
  CHECK(last.count("batch.tokens") == 0);
  CHECK(last.count("batch.position") == 1);
  CHECK(last.count("batch.labels") == 1);
  CHECK(last.count("head.logits") == 1);
  CHECK(last.count("chunk.0.d_output") == 1);
  CHECK(last.count("chunk.1.output") == 0);
  // A chunk without units passes on what it receives.
  const Table empty = rows_of(config, 1, DType::f32, {.units = {{2, 2}, {4, 6}}});
  CHECK(empty.count("chunk.0.output") == 1);
  const Table head = rows_of(config, 1, DType::f32, {.units = {{5, 6}}});
  CHECK(head.count("head.input") == 1);
  CHECK(head.count("d_stream.0") == 1);
  CHECK(head.count("d_q") == 0);
}

TEST_CASE("experts' rows", "[activations]") {
  Config config = small_config();
  config.moe.num_experts = 8;
  config.moe.router_topk = 2;
  config.moe.capacity_factor = 1.25;
  config.moe.ffn_hidden_size = 96;
  const Mesh mesh{.tp = 2, .dp = 4, .etp = 2, .ep = 4, .edp = 1};
  const ModelShape model = model_shape(config.model, config.moe);
  CHECK(moe_capacity(model, 64) == 20);  // 64 x 2 x 1.25 / 8
  CHECK(moe_capacity(model, 65) == 21);
  const Table rows = rows_of(config, 2, DType::bf16, {.mesh = mesh, .sequence_parallel = true});
  const std::string moe = "layers.0.moe.";  // 2 x 64 tokens over tp 2: 64 here
  check_row(rows, moe + "probs", {64, 8}, DType::f32, Lifetime::kept);
  check_row(rows, moe + "slot", {64, 2}, DType::i32, Lifetime::kept);
  check_row(rows, moe + "dispatched", {2, 4 * 2 * 20, 128}, DType::bf16, Lifetime::kept);
  check_row(rows, moe + "act", {2, 160, 48}, DType::bf16, Lifetime::kept);
  check_row(rows, moe + "returned", {8, 20, 128}, DType::bf16, Lifetime::kept);
  check_row(rows, "moe.d_ffn", {320, 48}, DType::bf16, Lifetime::transient);
  CHECK(rows.count(moe + "gate") == 0);
  CHECK(rows.count("layers.0.mlp.up") == 0);
  CHECK(rows.count("d_ffn") == 0);
}

TEST_CASE("chunks of the head", "[activations]") {
  const std::int64_t gpt2 = model_shape(gpt2_124m().model).padded_vocab;
  CHECK(head_chunk(gpt2, 4096, DType::f32) == 1024);
  CHECK(head_chunk(gpt2, 4096, DType::bf16) == 1024);
  CHECK(head_chunk(gpt2, 100, DType::f32) == 64);
  CHECK(head_chunk(gpt2, 32 * 1024, DType::f32) == 1312);
  for (std::int64_t vocab : {1, 256, 5000, 50'257, 128'256, 2'000'000}) {
    for (std::int64_t tokens : {1, 63, 64, 65, 1000, 4096, 100'000}) {
      for (DType compute : {DType::f32, DType::bf16}) {
        const std::int64_t chunk = head_chunk(vocab, tokens, compute);
        const std::int64_t bytes = chunk * vocab * size_of(compute);
        REQUIRE(chunk >= std::min<std::int64_t>(48, tokens));
        REQUIRE(chunk <= tokens);
        REQUIRE((chunk <= 64 || bytes <= (std::int64_t{256} << 20) + 16 * vocab * 4));
        REQUIRE((tokens <= 64 || chunk < tokens));
      }
    }
  }
}
