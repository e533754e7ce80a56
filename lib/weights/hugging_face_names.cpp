#include "weights/hugging_face_names.h"

#include <map>

#include "base/error.h"
#include "plan/tables/params.h"

namespace trainctl {

namespace {

class Lister {
 public:
  explicit Lister(const ModelShape& model) {
    for (const ParamSpec& row : make_parameters(model, Mesh{})) {
      const bool padded = row.kind == ParamKind::token_embedding || row.kind == ParamKind::head;
      Shape shape = row.global_shape;
      if (padded) shape[0] = model.vocab;
      shapes_.emplace(row.name, shape);
    }
  }

  void add(const std::string& theirs, const std::vector<std::string>& ours,
           bool transposed = false) {
    HuggingFaceTensor tensor{.name = theirs, .pieces = {}, .shape = {}, .transposed = transposed};
    std::int64_t rows = 0;
    for (const std::string& name : ours) {
      tensor.shape = shapes_.at(name);
      tensor.pieces.push_back({name, tensor.shape[0]});
      rows += tensor.shape[0];
    }
    tensor.shape[0] = rows;
    if (transposed) tensor.shape = {tensor.shape[1], rows};
    tensors_.push_back(std::move(tensor));
  }

  /// A bias that the model may not have, while their network always does: zeros.
  void add_bias(const std::string& theirs, const std::vector<std::string>& ours,
                std::int64_t rows) {
    if (shapes_.contains(ours.front())) return add(theirs, ours);
    tensors_.push_back({.name = theirs, .pieces = {}, .shape = {rows}, .transposed = false});
  }
  void add_if_there(const std::string& theirs, const std::string& ours) {
    if (shapes_.contains(ours)) add(theirs, {ours});
  }

  std::vector<HuggingFaceTensor> take() && { return std::move(tensors_); }

 private:
  std::map<std::string, Shape> shapes_;  // of our parameters
  std::vector<HuggingFaceTensor> tensors_;
};

void list_gpt2_layer(const std::string& ours, const std::string& theirs, const ModelShape& model,
                     Lister& list) {
  const std::string attention = ours + ".attention.";
  const auto all_of = [&](const char* part) {
    return std::vector<std::string>{attention + "q" + part, attention + "k" + part,
                                    attention + "v" + part};
  };
  for (const char* norm : {"1", "2"}) {
    list.add(theirs + ".ln_" + norm + ".weight", {ours + ".norm" + norm + ".weight"});
    list.add(theirs + ".ln_" + norm + ".bias", {ours + ".norm" + norm + ".bias"});
  }
  list.add(theirs + ".attn.c_attn.weight", all_of(".weight"), true);
  list.add_bias(theirs + ".attn.c_attn.bias", all_of(".bias"),
                model.q_features() + 2 * model.kv_features());
  list.add(theirs + ".attn.c_proj.weight", {attention + "out.weight"}, true);
  list.add_bias(theirs + ".attn.c_proj.bias", {attention + "out.bias"}, model.hidden);
  list.add(theirs + ".mlp.c_fc.weight", {ours + ".mlp.up.weight"}, true);
  list.add_bias(theirs + ".mlp.c_fc.bias", {ours + ".mlp.up.bias"}, model.ffn);
  list.add(theirs + ".mlp.c_proj.weight", {ours + ".mlp.down.weight"}, true);
  list.add_bias(theirs + ".mlp.c_proj.bias", {ours + ".mlp.down.bias"}, model.hidden);
}

void list_gpt2(const ModelShape& model, Lister& list) {
  list.add("transformer.wte.weight", {"embedding.token.weight"});
  list.add("transformer.wpe.weight", {"embedding.position.weight"});
  for (std::int64_t i = 0; i < model.layers; ++i) {
    list_gpt2_layer("layers." + std::to_string(i), "transformer.h." + std::to_string(i), model,
                    list);
  }
  list.add("transformer.ln_f.weight", {"final_norm.weight"});
  list.add("transformer.ln_f.bias", {"final_norm.bias"});
}

void list_llama_layer(const std::string& ours, const std::string& theirs, Lister& list) {
  list.add(theirs + ".input_layernorm.weight", {ours + ".norm1.weight"});
  for (const char* part : {"q", "k", "v"}) {
    const std::string to = theirs + ".self_attn." + part + "_proj";
    const std::string from = ours + ".attention." + part;
    list.add(to + ".weight", {from + ".weight"});
    list.add_if_there(to + ".bias", from + ".bias");
  }
  list.add(theirs + ".self_attn.o_proj.weight", {ours + ".attention.out.weight"});
  for (const char* norm : {"q_norm", "k_norm"}) {
    list.add_if_there(theirs + ".self_attn." + norm + ".weight",
                      ours + ".attention." + norm + ".weight");
  }
  list.add(theirs + ".post_attention_layernorm.weight", {ours + ".norm2.weight"});
  for (const char* part : {"gate", "up", "down"}) {
    list.add(theirs + ".mlp." + part + "_proj.weight", {ours + ".mlp." + part + ".weight"});
  }
}

void list_llama(const ModelShape& model, Lister& list) {
  list.add("model.embed_tokens.weight", {"embedding.token.weight"});
  for (std::int64_t i = 0; i < model.layers; ++i) {
    list_llama_layer("layers." + std::to_string(i), "model.layers." + std::to_string(i), list);
  }
  list.add("model.norm.weight", {"final_norm.weight"});
}

}  // namespace

std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelShape& model) {
  require(model.experts == 1, ExitCode::unavailable,
          "not built yet: weights of experts in the form of Hugging Face");
  Lister list(model);
  if (model.family == Family::gpt2) {
    list_gpt2(model, list);
  } else {
    list_llama(model, list);
  }
  if (!model.tied) list.add("lm_head.weight", {"head.weight"});
  return std::move(list).take();
}

std::string hugging_face_type(const ModelShape& model) {
  if (model.family == Family::gpt2) return "gpt2";
  if (model.qk_norm) return "qwen3";
  return model.qkv_bias ? "qwen2" : "llama";
}

std::string unknown_to_hugging_face(const ModelShape& model) {
  if (model.experts > 1) return "experts are not exported yet";
  if (model.family == Family::gpt2) {
    if (model.kv_heads != model.heads) return "its GPT-2 has as many key as query heads";
    if (model.q_features() != model.hidden) return "its GPT-2 has heads of hidden_size / heads";
    return "";
  }
  if (model.qk_norm && model.qkv_bias) {
    return "it has no model with q/k norms and biases of q, k and v only";
  }
  return "";
}

bool is_ignored_there(const std::string& name, const ModelShape& model) {
  if (model.family == Family::gpt2) {
    const bool of_layer = name.starts_with("h.") || name.starts_with("transformer.h.");
    if (of_layer && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"))) {
      return true;
    }
  } else if (name.starts_with("model.layers.") && name.ends_with(".rotary_emb.inv_freq")) {
    return true;
  }
  return model.tied && name == "lm_head.weight";
}

}  // namespace trainctl
