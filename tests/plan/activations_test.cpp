#include "plan/activations.h"

#include <map>

#include "catch.h"
#include "sample.h"

using namespace trainctl;

namespace {

std::map<std::string, ActivationSpec> rows_of(const Config& config, std::int64_t micro,
                                              DType compute) {
  std::map<std::string, ActivationSpec> rows;
  for (const auto& row : make_activations(model_shape(config.model), Mesh{}, micro, compute)) {
    INFO(row.name);
    REQUIRE(rows.emplace(row.name, row).second);  // names are unique
  }
  return rows;
}

void check_row(const std::map<std::string, ActivationSpec>& rows, const std::string& name,
               const Shape& shape, DType dtype, Lifetime lifetime) {
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
  for (const char* name : {"head.row_max", "head.row_sum", "head.target"}) {
    check_row(rows, name, {t / 2}, DType::f32, Lifetime::transient);
  }
  CHECK(rows.size() == 6 + 2 * 15 + 5 + 14);
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

TEST_CASE("chunks of the head", "[activations]") {
  const ModelShape gpt2 = model_shape(gpt2_124m().model);
  CHECK(head_chunk(gpt2, 4096, DType::f32) == 1024);
  CHECK(head_chunk(gpt2, 4096, DType::bf16) == 1024);
  CHECK(head_chunk(gpt2, 100, DType::f32) == 64);
  CHECK(head_chunk(gpt2, 32 * 1024, DType::f32) == 1312);
  for (std::int64_t vocab : {1, 256, 5000, 50'257, 128'256, 2'000'000}) {
    for (std::int64_t tokens : {1, 63, 64, 65, 1000, 4096, 100'000}) {
      for (DType compute : {DType::f32, DType::bf16}) {
        ModelShape model = gpt2;
        model.padded_vocab = vocab;
        const std::int64_t chunk = head_chunk(model, tokens, compute);
        const std::int64_t bytes = chunk * vocab * size_of(compute);
        REQUIRE(chunk >= std::min<std::int64_t>(48, tokens));
        REQUIRE(chunk <= tokens);
        REQUIRE((chunk <= 64 || bytes <= (std::int64_t{256} << 20) + 16 * vocab * 4));
        REQUIRE((tokens <= 64 || chunk < tokens));
      }
    }
  }
}
