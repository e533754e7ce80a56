// Model directories that transformers wrote, and those that we write, against the logits that
// transformers computed (tests/reference/make_hugging_face.py).
#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <set>

#include "../data/scratch_folder.h"
#include "engine/engine.h"
#include "plan/tables/shard.h"
#include "stored_model.h"
#include "weights/export.h"
#include "weights/hugging_face.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

const char* const model_names[] = {"gpt2",           "gpt2_hub",
                                   "llama",          "llama_old",
                                   "mistral",        "qwen2",
                                   "qwen3",          "bytes",
                                   "mixtral",        "mixtral_together",
                                   "qwen3_moe",      "qwen2_moe",
                                   "dots1",          "smollm3",
                                   "smollm3_old",    "llama_biases",
                                   "mistral_window", "ministral",
                                   "qwen3_window",   "arcee",
                                   "seed_oss",       "ernie4_5",
                                   "granite",        "glm",
                                   "phi3",           "gemma",
                                   "gemma2",         "gemma3",
                                   "vaultgemma",     "olmo2",
                                   "olmo3",          "exaone4",
                                   "glm4",           "hunyuan",
                                   "helium",         "cwm",
                                   "internlm3",      "iquestcoder",
                                   "hyperclovax",    "hyperclovax_pre",
                                   "gemma3_images",  "mistral3_images",
                                   "llava_images",   "exaone4_5_images",
                                   "fp8_blocks",     "fp8_powers",
                                   "fp8_tensor",     "fp8_ministral3",
                                   "ministral3",     "ministral3_images",
                                   "granite_swa",    "granite_swa_old"};
constexpr std::int64_t generated = 20;  // tokens at the end of NAME.greedy

SafetensorsFile expected(const std::string& name) {
  return SafetensorsFile(reference_model(name + ".safetensors"));
}

float largest_of(const std::vector<float>& logits) {
  float largest = 0;
  for (const float one : logits) largest = std::max(largest, std::abs(one));
  return largest;
}

/// Logits of the directory for the committed tokens.
std::vector<float> logits_from(const std::filesystem::path& directory,
                               const std::vector<std::int32_t>& tokens) {
  ReadResult read = read_start(directory);
  const Plan plan = plan_of(read);
  LoadedRank rank(HuggingFaceWeights(directory, plan.model), plan, 0);
  return logits_of(plan, rank.store, tokens);
}

/// The directory of `name` again in another.
void write_again(const std::string& name, const std::filesystem::path& to,
                 const ModelFiles& files) {
  ReadResult read = read_start(reference_model(name));
  const Plan plan = plan_of(read);
  write_model(to, plan.model, HuggingFaceWeights(reference_model(name), plan.model), files);
}

std::string json_of(const std::filesystem::path& file) { return bytes_of(file); }

}  // namespace

TEST_CASE("directories of transformers give the logits of transformers") {
  for (const std::string name : model_names) {
    INFO(name);
    const SafetensorsFile file = expected(name + ".logits");
    const auto logits = all_of<float>(file, "logits");
    const auto found = logits_from(reference_model(name), all_of<std::int32_t>(file, "tokens"));
    const float largest = largest_of(logits);
    CHECK(largest_difference(found, logits) <= 1e-5 * largest);
    CHECK(largest > 1.0F);  // they depend on the weights
  }
}

TEST_CASE("config.json in the spelling of transformers 4 describes the same model") {
  int compared = 0;
  for (const std::string name : model_names) {
    INFO(name);
    const auto published = reference_model(name + ".published.json");
    if (!std::filesystem::exists(published)) continue;  // a class that version 4 did not have
    const ScratchFolder folder;
    folder.write("config.json", bytes_of(published));
    ReadResult read = read_start(reference_model(name)), older = read_start(folder.path());
    CHECK(plan_of(older).model == plan_of(read).model);
    ++compared;
  }
  CHECK(compared == 35);
}

TEST_CASE("every model generates the tokens that transformers generates") {
  for (const std::string name : model_names) {
    if (name.starts_with("fp8")) continue;  // the logits say it
    INFO(name);
    const auto tokens = all_of<std::int32_t>(expected(name + ".greedy"), "tokens");
    const std::int64_t prompt = std::ssize(tokens) - generated;
    REQUIRE(prompt >= 4);
    const auto logits = logits_from(reference_model(name), tokens);
    const auto vocab = std::ssize(logits) / std::ssize(tokens);
    for (std::int64_t i = prompt - 1; i + 1 < std::ssize(tokens); ++i) {
      const auto row = logits.begin() + i * vocab;
      CHECK(std::max_element(row, row + vocab) - row == tokens[static_cast<std::size_t>(i + 1)]);
    }
  }
}

TEST_CASE("every rank of a layout reads its shard of the whole") {
  struct Layout {
    std::int64_t tensor, stages, ranks, experts = 1;
  };
  for (const std::string name :
       {"gpt2", "llama", "qwen3", "mistral", "mixtral", "mixtral_together", "qwen2_moe", "dots1"}) {
    ReadResult alone = read_start(reference_model(name));
    const Plan one = plan_of(alone);
    const HuggingFaceWeights weights(reference_model(name), one.model);
    const LoadedRank whole(weights, one, 0);
    const bool with_experts =
        !std::set<std::string>{"gpt2", "llama", "qwen3", "mistral"}.contains(name);
    for (const Layout& layout :
         {Layout{2, 1, 4}, Layout{2, 2, 4}, Layout{1, 2, 2}, Layout{2, 1, 4, 2}}) {
      if (layout.experts > 1 && !with_experts) continue;
      INFO(name << ", tp " << layout.tensor << ", pp " << layout.stages);
      ReadResult read = read_start(reference_model(name),
                                   {"parallel.tensor_parallel=" + std::to_string(layout.tensor),
                                    "parallel.pipeline_stages=" + std::to_string(layout.stages),
                                    "parallel.expert_parallel=" + std::to_string(layout.experts),
                                    "train.global_batch_size=8", "train.micro_batch_size=1"});
      const Plan plan = plan_of(read, layout.ranks);
      for (std::int64_t rank = 0; rank < layout.ranks; ++rank) {
        const LoadedRank part(weights, plan, rank);
        for (int i = 0; i < static_cast<int>(part.stage.parameters.size()); ++i) {
          const ParamSpec& row = part.stage.parameters[static_cast<std::size_t>(i)];
          INFO(row.name << " of rank " << rank);
          const auto all = whole.values(whole.store.index_of(row.name));
          const auto own = part.values(i);
          for (const BoxRun& piece : shard_pieces(row, plan.mesh, rank)) {
            REQUIRE(std::equal(own.begin() + piece.to, own.begin() + piece.to + piece.length,
                               all.begin() + piece.from));
          }
        }
      }
    }
  }
}

TEST_CASE("what is exported is read back unchanged, from one file and from shards") {
  for (const std::string name : model_names) {
    INFO(name);
    const SafetensorsFile file = expected(name + ".logits");
    const auto tokens = all_of<std::int32_t>(file, "tokens");
    const auto before = logits_from(reference_model(name), tokens);
    const bool is_rounded =  // bf16 already
        name == "mistral" || name == "qwen2" || name == "qwen3_moe" || name == "qwen2_moe";
    for (const std::int64_t shard : {0, 5'000, 1}) {
      const ScratchFolder folder;
      write_again(name, folder.path(),
                  {.stored = is_rounded ? DType::bf16 : DType::f32, .shard_bytes = shard});
      CHECK(std::filesystem::exists(folder / "model.safetensors") == (shard == 0));
      CHECK(largest_difference(logits_from(folder.path(), tokens), before) == 0.0);
    }
  }
}

TEST_CASE("an exported directory says what the model is, for old and new versions") {
  const ScratchFolder folder;
  write_again("llama", folder.path(),
              {.stored = DType::bf16, .tokens = read_special_tokens(reference_model("llama"))});
  const std::string config = json_of(folder / "config.json");
  for (const char* part :
       {"\"LlamaForCausalLM\"", "\"model_type\": \"llama\"", "\"rope_theta\": 500.0",
        "\"rope_scaling\": {", "\"rope_parameters\": {", "\"rope_type\": \"llama3\"",
        "\"dtype\": \"bfloat16\"", "\"torch_dtype\": \"bfloat16\"", "\"bos_token_id\": 1"}) {
    INFO(part);
    CHECK(config.find(part) != std::string::npos);
  }
  const std::string generation = json_of(folder / "generation_config.json");
  CHECK(generation.find("\"eos_token_id\": [") != std::string::npos);
  CHECK(SafetensorsFile(folder / "model.safetensors").at("model.norm.weight").dtype == DType::bf16);
}

TEST_CASE("a directory is compared with the model tensor by tensor, all at once") {
  const ScratchFolder folder;
  std::filesystem::copy(reference_model("gpt2"), folder.path());
  ReadResult read = read_start(reference_model("gpt2"));
  Plan plan = plan_of(read);
  plan.model.layers = 4;
  plan.model.kinds.front().ffn = 32;
  plan.model.vocab = 70;
  const std::string message = error_of([&] { HuggingFaceWeights(folder.path(), plan.model); });
  CHECK(missing_in(message, {"65 ", "tensor 'transformer.h.2.ln_1.weight' is missing",
                             "tensor 'transformer.wte.weight' at byte ", "is [75, 16] F32",
                             "the model needs [70, 16]", "'transformer.h.1.mlp.c_fc.weight'",
                             "more"}) == "");
  plan.model.layers = 1;
  CHECK(missing_in(error_of([&] { HuggingFaceWeights(folder.path(), plan.model); }),
                   {"'transformer.h.1.ln_1.bias' is not a tensor of this model"}) == "");
}

namespace {

/// The directory of a tied model of one file in fp32 with a head as well: a copy of `embedding`, of
/// which `change` may change elements. Without `keeps_embedding` it stands for it.
void write_with_head(const std::string& name, const std::string& embedding,
                     const std::filesystem::path& to, const std::function<void(float*)>& change,
                     bool keeps_embedding = true) {
  std::filesystem::copy(reference_model(name), to);
  const SafetensorsFile file(reference_model(name) / "model.safetensors");
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const std::string& from, const std::string& as, bool changed) {
    const Tensor values = file.at(from);
    tensors.push_back({as, values.shape, values.dtype, [=](const Tensor& out) {
                         std::copy_n(values.as<float>(), values.numel(), out.as<float>());
                         if (changed) change(out.as<float>());
                       }});
  };
  for (const std::string& tensor : file.names()) {
    if (keeps_embedding || tensor != embedding) add(tensor, tensor, false);
  }
  add(embedding, "lm_head.weight", true);
  std::filesystem::remove(to / "model.safetensors");
  write_safetensors(to / "model.safetensors", std::move(tensors));
}

const std::pair<std::string, std::string> tied_models[] = {
    {"gpt2", "transformer.wte.weight"}, {"llama_old", "model.embed_tokens.weight"}};

}  // namespace

TEST_CASE("the head of a tied model is ignored where it is the embedding, and refused where not") {
  for (const auto& [name, embedding] : tied_models) {
    INFO(name);
    const auto tokens = all_of<std::int32_t>(expected(name + ".logits"), "tokens");
    const auto before = logits_from(reference_model(name), tokens);
    const ScratchFolder same;
    write_with_head(name, embedding, same.path(), [](float*) {});
    CHECK(logits_from(same.path(), tokens) == before);
    ReadResult read = read_start(reference_model(name));
    const Plan plan = plan_of(read);
    // The last element, and one of the other sign.
    for (const bool sign : {false, true}) {
      const ScratchFolder other;
      write_with_head(name, embedding, other.path(), [&](float* values) {
        float& value = values[sign ? 20 : 75 * 16 - 1];
        value = sign ? -value : value + 1e-6F;
      });
      CHECK(missing_in(error_of([&] { HuggingFaceWeights(other.path(), plan.model); }),
                       {"tensor 'lm_head.weight' differs from the embedding in row " +
                            std::string(sign ? "1," : "74,"),
                        "tie_word_embeddings"}) == "");
    }
    const ScratchFolder alone;
    write_with_head(
        name, embedding, alone.path(), [](float*) {}, false);
    CHECK(logits_from(alone.path(), tokens) == before);
  }
}

TEST_CASE("the head of a tied model has the shape of the embedding") {
  const ScratchFolder folder;
  write_with_head("gpt2", "transformer.wte.weight", folder.path(), [](float*) {});
  ReadResult read = read_start(reference_model("gpt2"));
  Plan plan = plan_of(read);
  plan.model.vocab = 70;
  const std::string message = error_of([&] { HuggingFaceWeights(folder.path(), plan.model); });
  CHECK(missing_in(message, {"tensor 'transformer.wte.weight' at byte "}) == "");
  CHECK(message.find("lm_head") == std::string::npos);  // one mistake, not two
}

TEST_CASE(
    "a GPT-2 without biases is exported with zeros and read back, but not with other values") {
  ReadResult read = read_start(reference_model("gpt2"));
  Plan plan = plan_of(read);
  plan.model.out_bias = plan.model.mlp_bias = plan.model.qkv_bias = false;
  // Their GPT-2 has biases that are not zero.
  CHECK(missing_in(error_of([&] { HuggingFaceWeights(reference_model("gpt2"), plan.model); }),
                   {"c_attn.bias' is not zero", "no such bias"}) == "");
  const ScratchFolder folder;
  std::vector<float> made(8 * 1024, 0.5F);
  const HeldWeights weights([&](const std::string& name) {
    for (const ParamSpec& row : make_parameters(plan.model, Mesh{})) {
      if (row.name == name)
        return host_tensor(made.data(), row.global_shape.numel()).view(row.global_shape);
    }
    return Tensor{};
  });
  write_model(folder.path(), plan.model, weights, {});
  const SafetensorsFile file(folder / "model.safetensors");
  CHECK(file.at("transformer.h.0.attn.c_attn.bias").shape == Shape{48});
  CHECK(file.at("transformer.h.0.attn.c_attn.bias").as<float>()[47] == 0.0F);
  std::vector<float> values(16, -1.0F);
  HuggingFaceWeights(folder.path(), plan.model)
      .read("layers.1.mlp.up.weight", {.row = 63, .rows = 1, .columns = 16}, values.data());
  CHECK(values == std::vector<float>(16, 0.5F));
}

TEST_CASE("a model is written as the family that has its forms") {
  const std::pair<const char*, const char*> types[] = {{"llama_biases", "llama"},
                                                       {"mistral_window", "mistral"},
                                                       {"ministral", "ministral"},
                                                       {"qwen3_window", "qwen3"},
                                                       {"smollm3", "smollm3"},
                                                       {"arcee", "arcee"},
                                                       {"seed_oss", "llama"},
                                                       {"ernie4_5", "ernie4_5"},
                                                       {"granite", "granite"},
                                                       {"granite_swa", "granite_swa"},
                                                       {"granite_swa_old", "granite_swa"},
                                                       {"ministral3", "ministral3"},
                                                       {"ministral3_images", "ministral3"},
                                                       {"glm", "glm"},
                                                       {"gemma", "gemma"},
                                                       {"gemma2", "gemma2"},
                                                       {"gemma3", "gemma3_text"},
                                                       {"vaultgemma", "vaultgemma"},
                                                       {"olmo2", "olmo2"},
                                                       {"olmo3", "olmo3"},
                                                       {"exaone4", "exaone4"},
                                                       {"glm4", "glm4"},
                                                       {"hunyuan", "hunyuan_v1_dense"}};
  for (const auto& [name, type] : types) {
    INFO(name);
    ReadResult read = read_start(reference_model(name));
    const ModelShape model = plan_of(read).model;
    CHECK(unknown_to_hugging_face(model) == "");
    CHECK(hugging_face_type(model) == type);
  }
}

TEST_CASE("a model is written as the family that it came from where several have its forms") {
  const std::pair<const char*, const char*> types[] = {
      {"mistral", "mistral"},         {"seed_oss", "seed_oss"},
      {"helium", "helium"},           {"cwm", "cwm"},
      {"internlm3", "internlm3"},     {"iquestcoder", "iquestcoder"},
      {"hyperclovax", "hyperclovax"}, {"hyperclovax_pre", "hyperclovax"}};
  for (const auto& [name, type] : types) {
    INFO(name);
    CHECK(read_model_type(reference_model(name)) == type);
    ReadResult read = read_start(reference_model(name));
    const ModelShape model = plan_of(read).model;
    CHECK(hugging_face_type(model, type) == type);
    const auto tokens = all_of<std::int32_t>(expected(std::string(name) + ".logits"), "tokens");
    const ScratchFolder folder;
    write_again(name, folder.path(), {.type = type});
    CHECK(json_of(folder / "config.json").find("\"model_type\": \"" + std::string(type) + "\"") !=
          std::string::npos);
    CHECK(logits_from(folder.path(), tokens) == logits_from(reference_model(name), tokens));
  }
  // Not as one that lacks a form of the model, nor as one that is not known.
  ReadResult read = read_start(reference_model("gemma2"));
  const ModelShape gemma = plan_of(read).model;
  CHECK(hugging_face_type(gemma, "llama") == "gemma2");
  CHECK(hugging_face_type(gemma, "mixtral") == "gemma2");
  CHECK(hugging_face_type(gemma, "mamba") == "gemma2");
  const ScratchFolder empty;
  CHECK(read_model_type(empty.path()) == "");
}

TEST_CASE("a scalar of Gemma's scores is written as the whole number that it was") {
  ReadResult read = read_start(reference_model("gemma2"));
  const ModelShape model = plan_of(read).model;
  CHECK(missing_in(hugging_face_config(model, DType::f32, {}), {"\"query_pre_attn_scalar\": 6,"}) ==
        "");
}

TEST_CASE("a family of windows by a pattern is written without one as full attention") {
  ReadResult read = read_start(reference_model("gemma2"));
  ModelShape model = plan_of(read).model;
  for (LayerKind& kind : model.kinds) kind.limits.window = 0;
  const std::string config = hugging_face_config(model, DType::f32, {});
  CHECK(missing_in(config, {"\"sliding_window\": null", "\"full_attention\""}) == "");
  CHECK(config.find("sliding_attention") == std::string::npos);
}

TEST_CASE("values of 8 bits are read as transformers reads them, bit for bit, in any box") {
  for (const std::string name : {"fp8_blocks", "fp8_powers", "fp8_tensor", "fp8_ministral3"}) {
    INFO(name);
    ReadResult read = read_start(reference_model(name));
    const HuggingFaceWeights weights(reference_model(name), plan_of(read).model);
    const auto out = all_of<float>(expected(name + ".logits"), "out");
    const std::int64_t rows = 16, columns = std::ssize(out) / rows;
    for (const MatrixBox& box :
         {MatrixBox{.rows = rows, .columns = columns},
          MatrixBox{.row = 3, .rows = 9, .column = 5, .columns = 10},
          MatrixBox{.row = rows - 1, .rows = 1, .column = columns - 1, .columns = 1}}) {
      std::vector<float> found(static_cast<std::size_t>(box.elements()));
      weights.read("layers.1.attention.out.weight", box, found.data());
      for (std::int64_t i = 0; i < box.rows; ++i) {
        const auto from = out.begin() + (box.row + i) * columns + box.column;
        REQUIRE(std::equal(from, from + box.columns, found.begin() + i * box.columns));
      }
    }
  }
}

namespace {

/// The problem of a directory of 8 bits whose config.json or weights are changed.
std::string problem_of_fp8(const std::string& name, const std::string& old_text,
                           const std::string& new_text, const char* file = "config.json") {
  const ScratchFolder folder;
  std::filesystem::copy(reference_model(name), folder.path());
  std::string text = bytes_of(folder / file);
  for (std::size_t at = text.find(old_text); at != std::string::npos; at = text.find(old_text)) {
    text.replace(at, old_text.size(), new_text);
  }
  folder.write(file, text);
  ReadResult read = read_start(reference_model(name));
  const Plan plan = plan_of(read);
  return error_of([&] { HuggingFaceWeights(folder.path(), plan.model); });
}

}  // namespace

TEST_CASE("scales of 8 bits must be there, one for each block") {
  CHECK(missing_in(problem_of_fp8("fp8_blocks", "quantization_config", "quantization_confic"),
                   {"65 ", "tensor 'model.layers.0.self_attn.q_proj.weight'", "F8_E4M3",
                    "needs a quantization_config of fp8 in config.json",
                    "q_proj.weight_scale_inv' is not a tensor of this model"}) == "");
  CHECK(missing_in(problem_of_fp8("fp8_blocks", "\"weight_block_size\"", "\"weight_block_sizf\""),
                   {"65 ", "tensor 'model.layers.0.mlp.up_proj.weight_scale_inv' is [3, 2] F32",
                    "the blocks of quantization_config need [1, 1]"}) == "");
  CHECK(
      missing_in(problem_of_fp8("fp8_blocks", "o_proj.weight_scale_inv", "o_proj.weight_scale_iii",
                                "model.safetensors"),
                 {"65 ", "is F8_E4M3 and needs 'model.layers.1.self_attn.o_proj.weight_scale_inv'",
                  "which is missing", "'model.layers.0.self_attn.o_proj.weight_scale_iii'"}) == "");
}

TEST_CASE("of a model that sees images a tensor of neither part is refused") {
  CHECK(missing_in(
            problem_of_fp8("gemma3_images", "vision_tower.", "vision_tovef.", "model.safetensors"),
            {"65 ", "'vision_tovef.", "is not a tensor of this model"}) == "");
}

TEST_CASE("of a model that sees images two tensors of one name in the text's model are refused") {
  const ScratchFolder folder;
  std::filesystem::copy(reference_model("ministral3_images"), folder.path());
  const SafetensorsFile file(reference_model("ministral3_images") / "model.safetensors");
  std::vector<TensorToWrite> tensors;
  const auto add = [&](const std::string& from, const std::string& as) {
    const Tensor values = file.at(from);
    tensors.push_back({as, values.shape, values.dtype, [=](const Tensor& out) {
                         std::copy_n(values.as<float>(), values.numel(), out.as<float>());
                       }});
  };
  for (const std::string& name : file.names()) add(name, name);
  add("language_model.model.norm.weight", "model.norm.weight");
  std::filesystem::remove(folder / "model.safetensors");
  write_safetensors(folder / "model.safetensors", std::move(tensors));
  ReadResult read = read_start(reference_model("ministral3_images"));
  const Plan plan = plan_of(read);
  CHECK(missing_in(error_of([&] { HuggingFaceWeights(folder.path(), plan.model); }),
                   {"65 ",
                    "tensor 'model.norm.weight' and 'language_model.model.norm.weight' are "
                    "both 'model.norm.weight' of the model of text"}) == "");
}

TEST_CASE("a mix of forms that no family has is refused with the nearest family") {
  ReadResult read = read_start(reference_model("glm"));
  ModelShape model = plan_of(read).model;
  model.logit_cap = 30;
  CHECK(unknown_to_hugging_face(model) == "its nearest family, Glm, has no soft caps");
  model.logit_cap = 0;
  model.kinds.front().limits.chunk = 8;
  CHECK(unknown_to_hugging_face(model) == "its nearest family, Glm, has no chunks of attention");
  model.kinds.front().limits.chunk = 0;
  model.qkv_bias = false;
  model.mlp_bias = true;
  CHECK(unknown_to_hugging_face(model) == "its nearest family, Glm, has no biases of the MLP");
}

TEST_CASE("sinks, bases of layers and grown queries are written by the families that have them") {
  const auto shape = [](const char* name) {
    ReadResult read = read_start(reference_model(name));
    return plan_of(read).model;
  };
  const HuggingFaceFamily& granite = *hugging_face_family("granite_swa");
  const HuggingFaceFamily& ministral = *hugging_face_family("ministral3");
  const auto first = [](const ModelShape& model, const HuggingFaceFamily& family) {
    const std::vector<std::string> found = differences(model, family);
    return found.empty() ? "" : found.front();
  };
  CHECK(first(shape("granite"), granite) == "has a sink in the softmax of each head");
  ModelShape model = shape("granite_swa");
  CHECK(first(model, *hugging_face_family("granite")) == "has no sinks in its softmax");
  REQUIRE(model.ropes.size() == 2);
  model.ropes[1].type = RopeType::linear;
  CHECK(first(model, granite) == "has RoPE that differs between layers only in its base");
  model = shape("ministral3");
  CHECK(first(model, *hugging_face_family("llama")) ==
        "has queries that do not grow with their position");
  model.temperatures.front().floor = 16;
  CHECK(first(model, ministral) == "has queries whose floor is RoPE's original context");
  model.ropes.front().type = RopeType::none;
  CHECK(first(model, ministral) == "");
  model.temperatures.front().floor = 16.5;
  CHECK(first(model, ministral) == "has queries whose floor is RoPE's original context");
  model.temperatures.front() = {.beta = 0.3, .floor = 16, .add = 1};
  CHECK(first(model, ministral) ==
        "has queries that grow with their position, to which it adds nothing");
  // A Llama is one whose queries do not grow.
  model = shape("llama_old");
  CHECK(first(model, ministral) == "");
  CHECK(missing_in(hugging_face_config(model, DType::f32, {}, "ministral3"),
                   {"\"Ministral3ForCausalLM\"", "\"llama_4_scaling_beta\": 0.0",
                    "\"original_max_position_embeddings\": 8"}) == "");
}

TEST_CASE("an exported Mixtral says what its experts are") {
  const ScratchFolder folder;
  write_again("mixtral_together", folder.path(), {});
  const std::string mixtral = bytes_of(folder / "config.json");
  CHECK(missing_in(mixtral, {"\"MixtralForCausalLM\"", "\"num_local_experts\": 4",
                             "\"num_experts_per_tok\": 2", "\"intermediate_size\": 24"}) == "");
  const SafetensorsFile file(folder / "model.safetensors");
  CHECK(file.at("model.layers.1.block_sparse_moe.experts.3.w3.weight").shape == Shape{24, 16});
  const ScratchFolder other;
  write_again("qwen3_moe", other.path(), {});
  const std::string qwen = bytes_of(other / "config.json");
  CHECK(missing_in(qwen, {"\"Qwen3MoeForCausalLM\"", "\"num_experts\": 6", "\"mlp_only_layers\": [",
                          "\"norm_topk_prob\": true", "\"moe_intermediate_size\": 12"}) == "");
}

TEST_CASE("training from a directory follows transformers, and its export has its logits") {
  for (const std::string name : {"gpt2",         "llama",        "mixtral",        "qwen2_moe",
                                 "dots1",        "llama_biases", "mistral_window", "smollm3",
                                 "arcee",        "ernie4_5",     "granite",        "glm",
                                 "phi3",         "gemma",        "gemma2",         "olmo2",
                                 "exaone4",      "glm4",         "hunyuan",        "ministral",
                                 "qwen3_window", "seed_oss",     "vaultgemma",     "olmo3",
                                 "helium",       "cwm",          "internlm3",      "iquestcoder",
                                 "hyperclovax",  "gemma3",       "ministral3",     "granite_swa"}) {
    INFO(name);
    const SafetensorsFile file = expected(name + ".training");
    ReadResult read = read_start(
        reference_model(name),
        {"model.seq_length=16", "train.micro_batch_size=2", "optimizer.beta2=0.95",
         "optimizer.eps=1e-4", "optimizer.weight_decay=0.1", "optimizer.clip_grad_norm=0.5",
         "parallel.threads_per_rank=1", "moe.aux_loss_factor=0.05", "moe.expert_group_size=32",
         "moe.router_bias_update_rate=0",
         "moe.router_load_balancing_type=" + std::string(name == "dots1" ? "none" : "aux_loss")});
    const Plan plan = plan_of(read);
    const auto world = self_world();
    Engine engine({.plan = plan,
                   .train = read.config.train,
                   .optimizer = read.config.optimizer,
                   .lr_schedule = read.config.lr_schedule,
                   .count_loss_weights = true},
                  *world);
    engine.initialise();
    load_weights(reference_model(name), plan, 0, engine.parameters());
    Batch batch;
    batch.tokens = all_of<std::int32_t>(file, "tokens");
    batch.labels = all_of<std::int32_t>(file, "labels");
    batch.document.resize(32);
    batch.loss_weight.assign(32, 1.0F);
    batch.weight_sum = 32;
    batch.global_token.resize(32);
    batch.length = 16;
    batch.real = {16, 16};
    for (std::int32_t i = 0; i < 32; ++i) batch.position.push_back(i % 16);
    const auto losses = all_of<double>(file, "loss");
    for (const double loss : losses) {
      CHECK(engine.train_step({batch}).loss == Approx(loss).epsilon(2e-5));
    }
    const ScratchFolder folder;
    const ParamStore& store = engine.parameters();
    write_model(folder.path(), plan.model, HeldWeights([&](const std::string& parameter) {
                  return store.master(store.index_of(parameter));
                }),
                {.shard_bytes = 9'000});
    const auto found =
        logits_from(folder.path(), {batch.tokens.begin(), batch.tokens.begin() + 16});
    const auto logits = all_of<float>(file, "logits");
    CHECK(largest_difference(found, logits) <= 1e-4 * std::max(1.0F, largest_of(logits)));
  }
}
