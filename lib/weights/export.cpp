#include "weights/export.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/whole_file.h"
#include "weights/safetensors.h"

namespace trainctl {

namespace {

using Json = nlohmann::ordered_json;

/// How parameters of ours become one tensor there: stacked along the output dim, and transposed for
/// GPT-2's Conv1D, whose matrices are [in, out].
struct NameMapping {
  std::string theirs;
  std::vector<std::string> ours;
  bool transposed = false;
};

void map_gpt2_layer(const std::string& ours, const std::string& theirs, const ModelShape& model,
                    std::vector<NameMapping>& list) {
  const std::string attention = ours + ".attention.";
  for (const char* norm : {"1", "2"}) {
    list.push_back({theirs + ".ln_" + norm + ".weight", {ours + ".norm" + norm + ".weight"}});
    list.push_back({theirs + ".ln_" + norm + ".bias", {ours + ".norm" + norm + ".bias"}});
  }
  list.push_back({theirs + ".attn.c_attn.weight",
                  {attention + "q.weight", attention + "k.weight", attention + "v.weight"},
                  true});
  list.push_back({theirs + ".attn.c_proj.weight", {attention + "out.weight"}, true});
  list.push_back({theirs + ".mlp.c_fc.weight", {ours + ".mlp.up.weight"}, true});
  list.push_back({theirs + ".mlp.c_proj.weight", {ours + ".mlp.down.weight"}, true});
  if (model.qkv_bias) {
    list.push_back({theirs + ".attn.c_attn.bias",
                    {attention + "q.bias", attention + "k.bias", attention + "v.bias"}});
  }
  if (model.linear_bias) {
    list.push_back({theirs + ".attn.c_proj.bias", {attention + "out.bias"}});
    list.push_back({theirs + ".mlp.c_fc.bias", {ours + ".mlp.up.bias"}});
    list.push_back({theirs + ".mlp.c_proj.bias", {ours + ".mlp.down.bias"}});
  }
}

std::vector<NameMapping> map_gpt2(const ModelShape& model) {
  std::vector<NameMapping> list{{"transformer.wte.weight", {"embedding.token.weight"}},
                                {"transformer.wpe.weight", {"embedding.position.weight"}},
                                {"transformer.ln_f.weight", {"final_norm.weight"}},
                                {"transformer.ln_f.bias", {"final_norm.bias"}}};
  for (std::int64_t i = 0; i < model.layers; ++i) {
    map_gpt2_layer("layers." + std::to_string(i), "transformer.h." + std::to_string(i), model,
                   list);
  }
  if (!model.tied) list.push_back({"lm_head.weight", {"head.weight"}});
  return list;
}

void map_llama_layer(const std::string& ours, const std::string& theirs, const ModelShape& model,
                     std::vector<NameMapping>& list) {
  list.push_back({theirs + ".input_layernorm.weight", {ours + ".norm1.weight"}});
  list.push_back({theirs + ".post_attention_layernorm.weight", {ours + ".norm2.weight"}});
  for (const char* part : {"q", "k", "v"}) {
    const std::string to = theirs + ".self_attn." + part + "_proj";
    const std::string from = ours + ".attention." + part;
    list.push_back({to + ".weight", {from + ".weight"}});
    if (model.qkv_bias) list.push_back({to + ".bias", {from + ".bias"}});
  }
  list.push_back({theirs + ".self_attn.o_proj.weight", {ours + ".attention.out.weight"}});
  if (model.linear_bias)
    list.push_back({theirs + ".self_attn.o_proj.bias", {ours + ".attention.out.bias"}});
  if (model.qk_norm) {
    list.push_back({theirs + ".self_attn.q_norm.weight", {ours + ".attention.q_norm.weight"}});
    list.push_back({theirs + ".self_attn.k_norm.weight", {ours + ".attention.k_norm.weight"}});
  }
  for (const char* part : {"gate", "up", "down"}) {
    const std::string to = theirs + ".mlp." + part + "_proj";
    const std::string from = ours + ".mlp." + part;
    list.push_back({to + ".weight", {from + ".weight"}});
    if (model.linear_bias) list.push_back({to + ".bias", {from + ".bias"}});
  }
}

std::vector<NameMapping> map_llama(const ModelShape& model) {
  std::vector<NameMapping> list{{"model.embed_tokens.weight", {"embedding.token.weight"}},
                                {"model.norm.weight", {"final_norm.weight"}}};
  for (std::int64_t i = 0; i < model.layers; ++i) {
    map_llama_layer("layers." + std::to_string(i), "model.layers." + std::to_string(i), model,
                    list);
  }
  if (!model.tied) list.push_back({"lm_head.weight", {"head.weight"}});
  return list;
}

std::vector<NameMapping> mappings(const ModelShape& model) {
  return model.family == Family::gpt2 ? map_gpt2(model) : map_llama(model);
}

/// Rows that are real tokens, for the two tables that are padded.
std::int64_t real_rows(const std::string& ours, const Tensor& tensor, const ModelShape& model) {
  const bool padded = ours == "embedding.token.weight" || ours == "head.weight";
  return padded ? model.vocab : tensor.shape[0];
}

/// [rows, columns] fp32 -> its place in the stacked result, transposed or not.
struct Piece {
  Tensor ours;
  std::int64_t first = 0;  // output row of the whole
};

struct Stacked {
  std::vector<Piece> pieces;
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  int rank = 1;
  bool transposed = false;

  Shape shape() const {
    if (rank == 1) return {rows};
    return transposed ? Shape{columns, rows} : Shape{rows, columns};
  }
  /// Index in the stacked tensor of element (row, column) of a piece.
  std::int64_t index(const Piece& piece, std::int64_t row, std::int64_t column) const {
    const std::int64_t out = piece.first + row;
    return transposed ? column * rows + out : out * columns + column;
  }
};

Stacked stack(const NameMapping& mapping, const ModelShape& model,
              const ParameterSource& parameter) {
  Stacked stacked;
  stacked.transposed = mapping.transposed;
  for (const std::string& name : mapping.ours) {
    Tensor tensor = parameter(name);
    assert(tensor.dtype == DType::f32);
    tensor = tensor.slice(0, real_rows(name, tensor, model));
    stacked.rank = tensor.shape.rank();
    stacked.columns = tensor.shape.rank() == 1 ? 1 : tensor.shape[1];
    stacked.pieces.push_back({tensor, stacked.rows});
    stacked.rows += tensor.shape[0];
  }
  return stacked;
}

template <class Visit>
void for_each_element(const Stacked& stacked, Visit visit) {
  for (const Piece& piece : stacked.pieces) {
    float* values = piece.ours.as<float>();
    for (std::int64_t row = 0; row < piece.ours.shape[0]; ++row) {
      for (std::int64_t column = 0; column < stacked.columns; ++column) {
        visit(values[row * stacked.columns + column], stacked.index(piece, row, column));
      }
    }
  }
}

std::string model_type(const ModelShape& model) {
  if (model.family == Family::gpt2) return "gpt2";
  if (model.qk_norm) return "qwen3";
  if (model.qkv_bias && !model.linear_bias) return "qwen2";
  return "llama";
}

Json gpt2_config(const ModelShape& model) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", model.vocab},
          {"n_positions", model.positions},
          {"n_embd", model.hidden},
          {"n_layer", model.layers},
          {"n_head", model.heads},
          {"n_inner", model.ffn},
          {"activation_function", "gelu_new"},
          {"resid_pdrop", model.hidden_dropout},
          {"embd_pdrop", model.embedding_dropout},
          {"attn_pdrop", model.attention_dropout},
          {"layer_norm_epsilon", model.norm_epsilon},
          {"initializer_range", model.init_std},
          {"tie_word_embeddings", model.tied},
          {"torch_dtype", "float32"}};
}

Json llama_config(const ModelShape& model) {
  const std::string type = model_type(model);
  const std::string architecture = type == "llama"   ? "LlamaForCausalLM"
                                   : type == "qwen2" ? "Qwen2ForCausalLM"
                                                     : "Qwen3ForCausalLM";
  Json config{{"architectures", {architecture}},
              {"model_type", type},
              {"vocab_size", model.vocab},
              {"hidden_size", model.hidden},
              {"intermediate_size", model.ffn},
              {"num_hidden_layers", model.layers},
              {"num_attention_heads", model.heads},
              {"num_key_value_heads", model.kv_heads},
              {"head_dim", model.head_dim},
              {"hidden_act", "silu"},
              {"max_position_embeddings", model.positions},
              {"rms_norm_eps", model.norm_epsilon},
              {"initializer_range", model.init_std},
              {"attention_bias", model.qkv_bias},
              {"mlp_bias", model.linear_bias},
              {"attention_dropout", model.attention_dropout},
              {"rope_theta", model.rotary_base},
              {"tie_word_embeddings", model.tied},
              {"torch_dtype", "float32"}};
  const RopeScalingConfig& scaling = model.rope_scaling;
  if (scaling.factor > 1) {
    config["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", scaling.factor},
        {"low_freq_factor", scaling.low_freq_factor},
        {"high_freq_factor", scaling.high_freq_factor},
        {"original_max_position_embeddings", scaling.original_max_position_embeddings}};
  }
  return config;
}

/// The name under which a file holds a tensor: the original GPT-2 files have no "transformer."
/// prefix.
std::string name_in(const SafetensorsFile& file, const std::string& name) {
  constexpr std::string_view prefix = "transformer.";
  if (!file.contains(name) && name.starts_with(prefix)) return name.substr(prefix.size());
  return name;
}

/// Element of a mapped tensor, which need not be aligned.
float element(const Tensor& whole, std::int64_t index) {
  const auto* at = static_cast<const std::byte*>(whole.data) + index * size_of(whole.dtype);
  if (whole.dtype == DType::bf16) {
    bf16 value;
    std::memcpy(&value, at, sizeof value);
    return to_float(value);
  }
  float value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

void export_model(const std::filesystem::path& directory, const ModelShape& model,
                  const ParameterSource& parameter, DType stored, std::span<std::byte> work) {
  std::vector<TensorToWrite> tensors;
  for (const NameMapping& mapping : mappings(model)) {
    Stacked stacked = stack(mapping, model, parameter);
    const Shape shape = stacked.shape();
    tensors.push_back({mapping.theirs, shape, stored, [stacked](const Tensor& to) {
                         for_each_element(stacked, [&](float value, std::int64_t index) {
                           if (to.dtype == DType::bf16) {
                             to.as<bf16>()[index] = to_bf16(value);
                           } else {
                             to.as<float>()[index] = value;
                           }
                         });
                       }});
  }
  write_safetensors(directory / "model.safetensors", std::move(tensors), work);
  const Json config = model.family == Family::gpt2 ? gpt2_config(model) : llama_config(model);
  write_whole_file(directory / "config.json", config.dump(2) + "\n");
}

void import_model(const std::filesystem::path& directory, const ModelShape& model,
                  const ImportTarget& target) {
  const SafetensorsFile file(directory / "model.safetensors");
  for (const NameMapping& mapping : mappings(model)) {
    if (std::none_of(mapping.ours.begin(), mapping.ours.end(), target.wanted)) continue;
    const Stacked stacked = stack(mapping, model, target.whole);
    const Tensor whole = file.at(name_in(file, mapping.theirs));
    require(
        whole.shape == stacked.shape() && (whole.dtype == DType::f32 || whole.dtype == DType::bf16),
        ExitCode::bad_data,
        (directory / "model.safetensors").string() + ": " + mapping.theirs + " is " +
            whole.shape.to_string() + " " + std::string(name_of(whole.dtype)) +
            ", the config makes it " + stacked.shape().to_string());
    for_each_element(stacked,
                     [&](float& value, std::int64_t index) { value = element(whole, index); });
    for (const std::string& name : mapping.ours) {
      if (target.wanted(name)) target.done(name);
    }
  }
}

}  // namespace trainctl
