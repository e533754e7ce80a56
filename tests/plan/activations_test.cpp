#include "plan/model/activations.h"

#include <map>

#include "base/at.h"
#include "catch.h"
#include "sample.h"

using namespace trainctl;

namespace {

using Table = std::map<std::string, ActivationSpec>;

struct Share {  // of a rank
  Mesh mesh{};
  bool sequence_parallel = false;
  SplitBy vocabulary = SplitBy::whole;
  std::vector<UnitRange> units{};  // empty: all
  ChunkPlaces places{};
  int stage = 0;
  ContextSplit context{};  // of every layer
};

Table rows_of(const Config& config, std::int64_t micro, DType compute, const Share& share = {}) {
  const ModelShape model = model_shape(config.model, config.moe);
  const int units = static_cast<int>(model.layers) + 2;
  Table rows;
  const std::vector<UnitRange> all{{0, units}};
  ActivationInput input{model,
                        share.mesh,
                        micro,
                        compute,
                        share.sequence_parallel,
                        with_vocabulary(share.vocabulary)};
  input.places = share.places;
  input.stage = share.stage;
  input.context = {.ranks = share.context.ranks()};
  if (share.context.ranks() > 1) {
    input.context.blocks.assign(static_cast<std::size_t>(model.layers), share.context);
  }
  for (const auto& row : make_activations(input, share.units.empty() ? all : share.units).rows) {
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

constexpr Life batch{Storage::batch, Moment::fetch, Moment::backward};
constexpr Life unit_input{Storage::input, Moment::input, Moment::backward};
constexpr Life for_backward{Storage::forward, Moment::forward, Moment::backward};
constexpr Life statistic{Storage::statistic, Moment::forward, Moment::backward};
constexpr Life for_weight{Storage::forward, Moment::forward, Moment::weight};
constexpr Life gradient{Storage::gradient, Moment::backward, Moment::weight};
constexpr Life shared{Storage::shared, Moment::fetch, Moment::weight};

void check_row(const Table& rows, const std::string& name, const Shape& shape, DType dtype,
               const Life& life) {
  INFO(name);
  REQUIRE(rows.count(name) == 1);
  CHECK(rows.at(name).shape == shape);
  CHECK(rows.at(name).dtype == dtype);
  CHECK(rows.at(name).storage == life.storage);
  CHECK(rows.at(name).from == life.from);
  CHECK(rows.at(name).until == life.until);
}

}  // namespace

TEST_CASE("GPT-2's activations", "[activations]") {
  Config config = small_config();
  config.model.num_layers = 2;
  const auto rows = rows_of(config, 3, DType::bf16);
  const std::int64_t t = 3 * 64;
  const DType c = DType::bf16;
  const std::string data = "chunk.0.batch.";
  for (const char* name : {"tokens", "position", "first_position"}) {
    check_row(rows, data + name, {t}, DType::i32, batch);
  }
  const Life loss{Storage::batch, Moment::fetch, Moment::forward};
  check_row(rows, data + "labels", {t}, DType::i32, loss);
  check_row(rows, data + "loss_weight", {t}, DType::f32, loss);
  check_row(rows, data + "global_token", {t}, DType::i64, batch);
  for (const std::string layer : {"layers.0.", "layers.1."}) {
    check_row(rows, layer + "input", {t, 128}, c, unit_input);
    for (const char* name : {"norm1", "norm2", "attention.context"}) {
      check_row(rows, layer + name, {t, 128}, c, for_weight);
    }
    for (const char* name : {"norm1.mean", "norm1.rstd", "norm2.mean", "norm2.rstd"}) {
      check_row(rows, layer + name, {t}, DType::f32, statistic);
    }
    for (const char* name : {"middle", "attention.q", "attention.k", "attention.v"}) {
      check_row(rows, layer + name, {t, 128}, c, for_backward);
    }
    check_row(rows, layer + "attention.logsumexp", {t * 4}, DType::f32, statistic);
    check_row(rows, layer + "mlp.up", {t, 512}, c, for_backward);
    check_row(rows, layer + "mlp.act", {t, 512}, c, for_weight);
    CHECK(rows.count(layer + "mlp.gate") == 0);
    CHECK(rows.count(layer + "attention.q_raw") == 0);
    check_row(rows, layer + "d_output", {t, 128}, c,
              {Storage::gradient, Moment::gradient, Moment::weight});
    for (const char* name :
         {"attention.d_middle", "attention.d_q", "attention.d_k", "attention.d_v"}) {
      check_row(rows, layer + name, {t, 128}, c, gradient);
    }
    check_row(rows, layer + "mlp.d_up", {t, 512}, c, gradient);
    CHECK(rows.count(layer + "mlp.d_gate") == 0);
    CHECK(rows.count(layer + "mlp.d_branch") == 0);
  }
  check_row(rows, "embedding.d_output", {t, 128}, c,
            {Storage::gradient, Moment::gradient, Moment::backward});
  check_row(rows, "head.input", {t, 128}, c, unit_input);
  check_row(rows, "head.norm", {t, 128}, c, {Storage::forward, Moment::forward, Moment::forward});
  check_row(rows, "head.d_norm", {t, 128}, c, for_backward);
  check_row(rows, "head.norm.mean", {t}, DType::f32, statistic);
  check_row(rows, "head.norm.rstd", {t}, DType::f32, statistic);
  for (const char* name : {"branch", "d_norm", "d_context"}) {
    check_row(rows, name, {t, 128}, c, shared);
  }
  check_row(rows, "head.logits", {t / 2, 256}, c, shared);
  check_row(rows, "head.stats", {3, t / 2}, DType::f32, shared);
  CHECK(rows.size() == 6 + 1 + 2 * 21 + 5 + 5);
}

TEST_CASE("what W reads lives until W", "[activations]") {
  Config config = small_config();
  const auto last_of = [&](bool dropout, bool sequence) {
    config.model.hidden_dropout = dropout ? 0.1 : 0.0;
    const Share share{.mesh = Mesh{.tp = 2, .edp = 2}, .sequence_parallel = sequence};
    std::string names;
    for (const auto& [name, row] : rows_of(config, 1, DType::f32, share)) {
      const bool branch = name.starts_with("layers.0.") && row.storage == Storage::gradient &&
                          row.shape[row.shape.rank() - 1] == 128 && row.until == Moment::weight;
      if (branch) names += name.substr(9) + " ";
    }
    return names;
  };
  CHECK(last_of(false, false) == "attention.d_middle d_output ");
  CHECK(last_of(true, false) == "attention.d_branch mlp.d_branch ");
  CHECK(last_of(false, true) == "attention.d_gathered mlp.d_gathered ");
  CHECK(last_of(true, true) == "attention.d_gathered mlp.d_gathered ");
}

TEST_CASE("a recomputed layer keeps its input", "[activations]") {
  Config config = small_config();
  const ModelShape model = model_shape(config.model);
  ActivationInput input{model, Mesh{}, 1};
  input.forms.usual[1].repeated = all_parts;
  Table rows;
  for (const auto& row : make_activations(input, {{0, 6}}).rows) rows.emplace(row.name, row);
  check_row(rows, "layers.0.input", {64, 128}, DType::f32, unit_input);
  check_row(rows, "layers.0.norm1", {64, 128}, DType::f32,
            {Storage::repeated, Moment::repeat, Moment::weight});
  check_row(rows, "first.layers.0.norm1", {64, 128}, DType::f32,
            {Storage::repeated, Moment::forward, Moment::forward});
  check_row(rows, "layers.1.norm1", {64, 128}, DType::f32, for_weight);
  CHECK(rows.count("first.layers.1.norm1") == 0);
}

TEST_CASE("Llama's activations", "[activations]") {
  Config config = llama3_8b();
  config.model.num_layers = 1;
  config.model.qk_layernorm = true;
  const auto rows = rows_of(config, 1, DType::f32);
  const std::int64_t t = 8192;
  check_row(rows, "layers.0.attention.k", {t, 1024}, DType::f32, for_backward);
  check_row(rows, "layers.0.attention.q_raw", {t, 4096}, DType::f32, for_backward);
  check_row(rows, "layers.0.attention.k_raw", {t, 1024}, DType::f32, for_backward);
  check_row(rows, "layers.0.attention.q_rstd", {t * 32}, DType::f32, statistic);
  check_row(rows, "layers.0.attention.k_rstd", {t * 8}, DType::f32, statistic);
  check_row(rows, "layers.0.mlp.gate", {t, 14336}, DType::f32, for_backward);
  check_row(rows, "layers.0.mlp.d_gate", {t, 14336}, DType::f32, gradient);
  check_row(rows, "layers.0.attention.d_k", {t, 1024}, DType::f32, gradient);
  CHECK(rows.count("layers.0.norm1.mean") == 0);
  CHECK(rows.count("head.norm.mean") == 0);
  CHECK(rows.count("layers.0.norm1.rstd") == 1);
}

TEST_CASE("tensor parallelism cuts what lies between gather and scatter", "[activations]") {
  const Config config = small_config();
  const std::int64_t t = 3 * 64;
  const Share share{.mesh = Mesh{.tp = 4, .edp = 4}, .vocabulary = SplitBy::features};
  const Table rows = rows_of(config, 3, DType::f32, share);
  CHECK(shape_of(rows, "layers.1.input") == Shape{t, 128});
  CHECK(shape_of(rows, "layers.1.norm1") == Shape{t, 128});
  CHECK(shape_of(rows, "layers.1.attention.q") == Shape{t, 32});
  CHECK(shape_of(rows, "layers.1.attention.k") == Shape{t, 32});
  CHECK(shape_of(rows, "layers.1.attention.logsumexp") == Shape{t});
  CHECK(shape_of(rows, "layers.1.mlp.act") == Shape{t, 128});
  CHECK(shape_of(rows, "layers.1.mlp.d_up") == Shape{t, 128});
  CHECK(shape_of(rows, "layers.1.d_output") == Shape{t, 128});
  CHECK(shape_of(rows, "head.logits") == Shape{t / 2, 64});
  CHECK(rows.count("stream.gathered") == 0);

  Share sequence = share;
  sequence.sequence_parallel = true;
  const Table cut = rows_of(config, 3, DType::f32, sequence);
  CHECK(shape_of(cut, "chunk.0.batch.tokens") == Shape{t});
  for (const char* name : {"layers.1.input", "layers.1.norm1", "layers.1.middle", "layers.1.norm2",
                           "head.input", "head.norm", "head.d_norm", "branch", "layers.1.d_output",
                           "layers.1.attention.d_middle", "d_norm"}) {
    CHECK(shape_of(cut, name) == Shape{t / 4, 128});
  }
  CHECK(shape_of(cut, "layers.1.norm1.mean") == Shape{t / 4});
  CHECK(shape_of(cut, "layers.1.attention.q") == Shape{t, 32});
  CHECK(shape_of(cut, "stream.gathered") == Shape{t, 128});
  CHECK(cut.at("stream.partial").storage == Storage::shared);
  CHECK(shape_of(cut, "layers.1.mlp.d_gathered") == Shape{t, 128});
  sequence.vocabulary = SplitBy::tokens;  // then each rank scores its own tokens
  CHECK(shape_of(rows_of(config, 3, DType::f32, sequence), "head.logits") == Shape{48, 256});
}

TEST_CASE("with sequence parallelism kept rows are an exact share", "[activations]") {
  const Config config = small_config();
  const auto kept = [&](const Share& share) {
    std::int64_t elements = 0;
    for (const auto& [name, row] : rows_of(config, 4, DType::bf16, share)) {
      const bool counts = row.storage == Storage::input || row.storage == Storage::forward ||
                          row.storage == Storage::statistic;
      if (counts) elements += row.shape.numel();
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
  Share share{.mesh = Mesh{.tp = 16, .cp = 2, .edp = 32}};
  share.context.ring = 2;
  const Table rows = rows_of(config, 1, DType::bf16, share);
  CHECK(shape_of(rows, "layers.0.attention.k") == Shape{4096, 128});
  CHECK(shape_of(rows, "layers.0.attention.q") == Shape{4096, 256});
  CHECK(shape_of(rows, "chunk.0.batch.labels") == Shape{4096});
  for (const char* name : {"cp.k", "cp.v", "cp.d_k", "cp.d_v"}) {
    check_row(rows, name, {2 * 4096, 128}, DType::bf16, shared);
  }
  check_row(rows, "cp.part_q", {4096, 256}, DType::bf16, shared);
  check_row(rows, "cp.part_logsumexp", {4096 * 2}, DType::f32, shared);

  share.context = {.gather = 2};
  const Table gathered = rows_of(config, 1, DType::bf16, share);
  check_row(gathered, "cp.d_v", {2 * 4096, 128}, DType::bf16, shared);
  CHECK(gathered.count("cp.part_q") == 0);
}

TEST_CASE("ranks that exchange heads attend to all their tokens", "[activations]") {
  Config config = llama3_8b();
  config.model.num_layers = 1;
  const Share share{.mesh = Mesh{.tp = 2, .cp = 4, .edp = 8}, .context = {.heads = 2, .ring = 2}};
  const Table rows = rows_of(config, 1, DType::bf16, share);  // 2048 tokens on each rank
  CHECK(shape_of(rows, "layers.0.attention.q") == Shape{4096, 1024});
  CHECK(shape_of(rows, "layers.0.attention.k") == Shape{4096, 256});
  check_row(rows, "layers.0.attention.attended", {4096, 1024}, DType::bf16, for_backward);
  CHECK(shape_of(rows, "layers.0.attention.context") == Shape{2048, 2048});
  CHECK(shape_of(rows, "layers.0.attention.d_q") == Shape{2048, 2048});
  check_row(rows, "chunk.0.batch.first_position", {4096}, DType::i32, batch);
  check_row(rows, "chunk.0.batch.query_token", {4096}, DType::i64, batch);
  check_row(rows, "chunk.0.batch.position", {2048}, DType::i32, batch);
  check_row(rows, "heads.own_q", {2048, 2048}, DType::bf16, shared);
  check_row(rows, "heads.packed", {2048, 2048}, DType::bf16, shared);
  check_row(rows, "cp.k", {2 * 4096, 256}, DType::bf16, shared);
}

TEST_CASE("stages hold their own rows and messages", "[activations]") {
  const Config config = small_config();  // four layers: units 0 to 5
  const ChunkPlaces four{2, 2};
  const Table first =
      rows_of(config, 1, DType::f32, {.units = {{0, 2}, {3, 4}}, .places = four, .stage = 0});
  CHECK(first.count("chunk.0.batch.tokens") == 1);
  CHECK(first.count("chunk.1.batch.tokens") == 0);
  CHECK(first.count("chunk.1.batch.position") == 1);
  CHECK(first.count("chunk.0.batch.labels") == 0);
  CHECK(first.count("layers.0.input") == 1);
  CHECK(first.count("layers.1.input") == 0);
  CHECK(first.count("layers.2.input") == 1);
  CHECK(first.count("head.logits") == 0);
  CHECK(first.count("chunk.0.d_input") == 0);
  for (const char* name : {"chunk.0.output", "chunk.1.d_input", "chunk.1.output"}) {
    check_row(first, name, {64, 128}, DType::f32, shared);
  }
  const Table last =
      rows_of(config, 1, DType::f32, {.units = {{2, 3}, {4, 6}}, .places = four, .stage = 1});
  CHECK(last.count("chunk.0.batch.tokens") == 0);
  CHECK(last.count("chunk.0.batch.position") == 1);
  CHECK(last.count("chunk.0.batch.labels") == 0);
  CHECK(last.count("chunk.1.batch.labels") == 1);
  CHECK(last.count("head.logits") == 1);
  CHECK(last.count("chunk.0.d_input") == 1);
  CHECK(last.count("chunk.1.output") == 0);
  // A chunk without units passes on what it receives.
  const Table empty =
      rows_of(config, 1, DType::f32, {.units = {{2, 2}, {4, 6}}, .places = four, .stage = 1});
  for (const char* name : {"input", "output", "d_output", "d_input"}) {
    CHECK(empty.count(chunk_prefix(0) + name) == 1);
  }
  const Table head =
      rows_of(config, 1, DType::f32, {.units = {{5, 6}}, .places = {2, 1}, .stage = 1});
  CHECK(head.count("head.input") == 1);
  CHECK(head.count("chunk.0.d_input") == 1);
  CHECK(head.count("d_norm") == 0);
}

TEST_CASE("chunks of one stage hand over without messages", "[activations]") {
  const ChunkPlaces turn{2, 2, "down_and_up"};
  // One that holds nothing has what it reads and the gradient of what it makes, and a row for what
  // goes to the other stage.
  const Table nothing = rows_of(small_config(), 1, DType::f32,
                                {.units = {{2, 2}, {2, 2}}, .places = turn, .stage = 1});
  for (const char* name : {"chunk.0.input", "chunk.0.d_output", "chunk.0.d_input", "chunk.1.input",
                           "chunk.1.d_output", "chunk.1.output"}) {
    CHECK(nothing.count(name) == 1);
  }
  CHECK(nothing.count("chunk.0.output") + nothing.count("chunk.1.d_input") == 0);
  const std::vector<UnitRange> units{{2, 2}, {2, 4}};
  const ModelShape model = model_shape(small_config().model);
  const ActivationTable table =
      make_activations({.model = model, .mesh = Mesh{}, .places = turn, .stage = 1}, units);
  const ChunkRows between{turn, 1, units, 4, table.places};
  const auto name = [&](int row) { return at(table.rows, row).name; };
  CHECK(name(between.output(0)) == "layers.1.input");
  CHECK(name(between.input_gradient_of(1, 2)) == "chunk.0.d_output");
  CHECK(name(between.input_gradient_of(1, 3)) == "layers.1.d_output");
  const Table last = rows_of(small_config(), 1, DType::f32,
                             {.units = {{2, 3}, {3, 5}}, .places = turn, .stage = 1});
  CHECK(last.count("chunk.0.d_input") == 1);
  CHECK(last.count("chunk.0.output") == 0);
  CHECK(last.count("chunk.1.d_input") == 0);
  CHECK(last.count("chunk.1.output") == 1);
}

TEST_CASE("a shorter micro-batch has room for what longer ones of other replicas send") {
  Config config = small_config();
  config.moe.num_experts = 8;
  config.moe.router_topk = 2;
  config.moe.capacity_factor = 1.25;
  const Mesh mesh{.dp = 4, .ep = 4, .edp = 1};
  const ModelShape model = model_shape(config.model, config.moe).of_length(32);
  CHECK(moe_capacity(layer_form(model, 0)) == 10);  // of half a group
  const LocalShape local = local_shape(layer_form(model, 0), {mesh, 2});
  CHECK(local.routed_rows == 128);  // 64 tokens, two choices
  CHECK(local.routing_groups == 2);
  CHECK(local.expert_rows == 4 * 2 * 2 * 20);  // as without a shorter one
  CHECK(model.of_length(16).longest_sequence() == 64);
  CHECK(group_at_length(128, 64, 32) == 64);  // two sequences
  CHECK(group_at_length(8, 64, 32) == 8);     // a part of one
  CHECK(group_at_length(0, 64, 32) == 0);
}

TEST_CASE("experts' rows", "[activations]") {
  Config config = small_config();
  config.moe.num_experts = 8;
  config.moe.router_topk = 2;
  config.moe.capacity_factor = 1.25;
  config.moe.ffn_hidden_size = 96;
  const Mesh mesh{.tp = 2, .dp = 4, .etp = 2, .ep = 4, .edp = 1};
  const ModelShape model = model_shape(config.model, config.moe);
  CHECK(moe_capacity(layer_form(model, 0)) == 20);  // 64 x 2 x 1.25 / 8
  const Table rows = rows_of(config, 2, DType::bf16, {.mesh = mesh, .sequence_parallel = true});
  const std::string moe = "layers.0.moe.";  // two sequences of 64 tokens, all of them on each rank
  check_row(rows, "chunk.0.batch.real", {128}, DType::u8,
            {Storage::batch, Moment::fetch, Moment::backward});
  check_row(rows, moe + "logits", {128, 8}, DType::f32, for_backward);
  check_row(rows, moe + "slot", {128, 2}, DType::i32, for_backward);
  check_row(rows, moe + "choices", {2, 8}, DType::i32, for_backward);
  // At most 20 of two sequences of each of 4 ranks come to each of 2 experts.
  const Life counted{Storage::counted, Moment::forward, Moment::weight};
  check_row(rows, moe + "counts", {4, 8}, DType::i64, counted);
  check_row(rows, moe + "places", {320}, DType::i32, counted);
  check_row(rows, moe + "exchanged", {2, 4}, DType::i64, counted);
  check_row(rows, "moe.sent_counts", {4, 8}, DType::i64, shared);
  // At most 20 of each sequence to each expert, from 4 ranks with two sequences to 2 experts here.
  check_row(rows, moe + "rows", {4 * 2 * 2 * 20, 128}, DType::bf16, for_weight);
  check_row(rows, moe + "act", {320, 48}, DType::bf16, for_weight);
  check_row(rows, moe + "d_rows", {320, 128}, DType::bf16, gradient);
  check_row(rows, moe + "d_logits", {64, 8}, DType::f32, gradient);
  check_row(rows, "moe.sent", {256, 128}, DType::bf16,
            {Storage::shared, Moment::fetch, Moment::weight});
  CHECK(rows.count(moe + "gate") == 0);
  CHECK(rows.count("layers.0.mlp.up") == 0);
  CHECK(rows.count("layers.0.mlp.d_up") == 0);
  config.moe.shared_expert_intermediate_size = 64;
  config.moe.shared_expert_gate = true;
  const Table shared = rows_of(config, 2, DType::bf16, {.mesh = mesh, .sequence_parallel = true});
  check_row(shared, moe + "shared.up", {128, 32}, DType::bf16, for_backward);
  check_row(shared, moe + "shared.act", {128, 32}, DType::bf16, for_weight);
  check_row(shared, moe + "shared.logit", {128, 1}, DType::f32, for_weight);
  check_row(shared, moe + "shared.d_logit", {64, 1}, DType::f32, gradient);
  CHECK(shared.at("layers.0.mlp.d_gathered").until == Moment::weight);
  CHECK(rows.at("layers.0.mlp.d_gathered").until == Moment::backward);
  config.moe.shared_expert_intermediate_size.reset();
  config.moe.capacity_factor.reset();
  config.moe.first_dense_layers = 1;
  const Table free = rows_of(config, 2, DType::bf16, {.mesh = mesh, .sequence_parallel = true});
  check_row(free, "layers.1.moe.rows", {4 * 128 * 2, 128}, DType::bf16, for_weight);
  CHECK(free.count(moe + "rows") == 0);
  CHECK(free.count("layers.0.mlp.up") == 1);
}

TEST_CASE("chunks of the head", "[activations]") {
  const std::int64_t gpt2 = model_shape(gpt2_124m().model).padded_vocab;
  CHECK(head_chunk(gpt2, 4096, DType::f32) == 1024);
  CHECK(head_chunk(gpt2, 4096, DType::bf16) == 1024);
  CHECK(head_chunk(gpt2, 100, DType::f32) == 64);
  CHECK(head_chunk(gpt2, 32 * 1024, DType::f32) == 1312);
  const DeviceKind device = DeviceKind::cuda;
  CHECK(head_chunk(gpt2, 4096, DType::bf16, device) == 4096);  // one chunk
  CHECK(head_chunk(gpt2, 8192, DType::bf16, device) == 8192);
  CHECK(head_chunk(gpt2, 10'000, DType::bf16, device) == 5008);
  CHECK(head_chunk(151'936, 32 * 1024, DType::bf16, device) == 8192);
  CHECK(head_chunk(gpt2, 4096, DType::bf16, DeviceKind::cuda, 1024) == 1024);
  CHECK(head_chunk(gpt2, 4096, DType::bf16, DeviceKind::cpu, 4096) == 4096);
  CHECK(head_chunk(gpt2, 64, DType::bf16, DeviceKind::cpu, 24) == 24);
  CHECK(head_chunk(gpt2, 64, DType::bf16, DeviceKind::cpu, 1) == 1);
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
