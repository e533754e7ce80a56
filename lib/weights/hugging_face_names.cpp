#include "weights/hugging_face_names.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "plan/model/form.h"
#include "plan/tables/params.h"
#include "weights/unusual_form.h"

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
      tensor.pieces.push_back({.ours = name, .rows = tensor.shape[0]});
      rows += tensor.shape[0];
    }
    tensor.shape[0] = rows;
    if (transposed) tensor.shape = {tensor.shape[1], rows};
    tensors_.push_back(std::move(tensor));
  }

  /// Of one expert of a parameter [experts, out, in].
  void add_expert(const std::string& theirs, const std::string& ours, std::int64_t expert) {
    const Shape& all = shapes_.at(ours);
    tensors_.push_back({.name = theirs,
                        .pieces = {{.ours = ours, .rows = all[1], .first = expert * all[1]}},
                        .shape = {all[1], all[2]},
                        .transposed = false});
  }
  /// Of all experts; in each, our parameters follow each other.
  void add_all_experts(const std::string& theirs, const std::vector<std::string>& ours) {
    HuggingFaceTensor tensor{
        .name = theirs, .pieces = {}, .shape = shapes_.at(ours.front()), .transposed = false};
    tensor.shape[1] *= static_cast<std::int64_t>(ours.size());
    for (std::int64_t expert = 0; expert < tensor.shape[0]; ++expert) {
      for (const std::string& name : ours) {
        const std::int64_t rows = shapes_.at(name)[1];
        tensor.pieces.push_back({.ours = name, .rows = rows, .first = expert * rows});
      }
    }
    tensors_.push_back(std::move(tensor));
  }

  bool has(const std::string& ours) const { return shapes_.contains(ours); }
  /// A bias that the model may not have, while their network always does: zeros.
  void add_bias(const std::string& theirs, const std::vector<std::string>& ours,
                std::int64_t rows) {
    if (shapes_.contains(ours.front())) return add(theirs, ours);
    tensors_.push_back({.name = theirs, .pieces = {}, .shape = {rows}, .transposed = false});
  }
  /// The bias of a router; zeros where the model has none.
  void add_router_bias(const std::string& theirs, const std::string& ours, std::int64_t experts) {
    add_bias(theirs, {ours}, experts);
    tensors_.back().keeps_fp32 = true;
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
                model.q_features() + 2 * model.kind(0).kv_heads * model.head_dim);
  list.add(theirs + ".attn.c_proj.weight", {attention + "out.weight"}, true);
  list.add_bias(theirs + ".attn.c_proj.bias", {attention + "out.bias"}, model.hidden);
  list.add(theirs + ".mlp.c_fc.weight", {ours + ".mlp.up.weight"}, true);
  list.add_bias(theirs + ".mlp.c_fc.bias", {ours + ".mlp.up.bias"}, model.kind(0).ffn);
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

constexpr const char* matrices[] = {"gate", "up", "down"};

void list_expert_matrices(const std::string& ours, const std::string& theirs,
                          const ModelShape& model, Lister& list) {
  const bool is_mixtral = hugging_face_type(model) == "mixtral";
  const char* const names[] = {is_mixtral ? ".w1.weight" : ".gate_proj.weight",
                               is_mixtral ? ".w3.weight" : ".up_proj.weight",
                               is_mixtral ? ".w2.weight" : ".down_proj.weight"};
  for (std::int64_t expert = 0; expert < model.experts; ++expert) {
    for (std::size_t i = 0; i < std::size(matrices); ++i) {
      list.add_expert(theirs + ".experts." + std::to_string(expert) + names[i],
                      ours + ".experts." + matrices[i] + ".weight", expert);
    }
  }
}

/// The shared experts, and the bias of the router; `theirs` is the layer of experts.
void list_shared_experts(const std::string& ours, const std::string& theirs,
                         const ModelShape& model, Lister& list) {
  const bool is_dots = hugging_face_type(model) == "dots1";
  if (is_dots) {
    list.add_router_bias(theirs + ".gate.e_score_correction_bias", ours + ".expert_bias",
                         model.experts);
  }
  list.add_if_there(theirs + ".shared_expert_gate.weight", ours + ".shared_gate.weight");
  for (const char* part : matrices) {
    list.add_if_there(
        theirs + (is_dots ? ".shared_experts." : ".shared_expert.") + part + "_proj.weight",
        ours + ".shared." + part + ".weight");
  }
}

/// A layer of experts; `theirs` is the decoder layer.
void list_experts(const std::string& ours, const std::string& theirs, const ModelShape& model,
                  ExpertTensors form, Lister& list) {
  const bool together = form == ExpertTensors::together;
  const bool is_mixtral = hugging_face_type(model) == "mixtral";
  const std::string layer = theirs + (is_mixtral && !together ? ".block_sparse_moe" : ".mlp");
  list.add(layer + ".gate.weight", {ours + ".router.weight"});
  list_shared_experts(ours, layer, model, list);
  if (!together) return list_expert_matrices(ours, layer, model, list);
  const std::string experts = ours + ".experts.";
  list.add_all_experts(layer + ".experts.gate_up_proj",
                       {experts + "gate.weight", experts + "up.weight"});
  list.add_all_experts(layer + ".experts.down_proj", {experts + "down.weight"});
}

void list_llama_layer(const std::string& ours, const std::string& theirs, const ModelShape& model,
                      ExpertTensors form, Lister& list) {
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
  if (list.has(ours + ".moe.router.weight")) {
    return list_experts(ours + ".moe", theirs, model, form, list);
  }
  for (const char* part : matrices) {
    list.add(theirs + ".mlp." + part + "_proj.weight", {ours + ".mlp." + part + ".weight"});
  }
}

void list_llama(const ModelShape& model, ExpertTensors form, Lister& list) {
  list.add("model.embed_tokens.weight", {"embedding.token.weight"});
  for (std::int64_t i = 0; i < model.layers; ++i) {
    list_llama_layer("layers." + std::to_string(i), "model.layers." + std::to_string(i), model,
                     form, list);
  }
  list.add("model.norm.weight", {"final_norm.weight"});
}

bool turns_everywhere(const ModelShape& model) {
  return model.position_kind != PositionKind::rotary ||
         std::ranges::all_of(model.kinds, [](const LayerKind& kind) { return kind.rope >= 0; });
}

/// Kinds of layers that no family has.
std::string unknown_kinds(const ModelShape& model) {
  for (LayerKind kind : model.kinds) {
    kind.name = model.kind(0).name;
    kind.experts = model.kind(0).experts;
    kind.rope = model.kind(0).rope;
    if (kind != model.kind(0)) {
      return "its layers have MLPs of one width, the same number of key heads and all or none q/k "
             "norms";
    }
  }
  if (model.ropes.size() > 1) return "its layers with RoPE have the same base and scaling";
  if (!turns_everywhere(model) && hugging_face_type(model) != "smollm3") {
    return "only its SmolLM3, without q/k norms, biases and experts, has layers without RoPE";
  }
  return "";
}

/// Of a model with sigmoid scores.
std::string unknown_to_dots(const ModelShape& model) {
  if (!model.kind(0).qk_norm || model.qkv_bias) {
    return "its model with sigmoid scores, dots1, has q/k norms and no biases of q, k and v";
  }
  if (model.shared_ffn == 0 || model.shared_gate || model.shared_ffn % model.expert_ffn != 0) {
    return "its dots1 has shared experts without a gate, as wide as some of the routed ones";
  }
  for (std::int64_t i = dense_layers_first(model); i < model.layers; ++i) {
    if (!model.kind(i).experts) return "its dots1 has experts in every layer after the first dense";
  }
  if (model.group_topk < model.expert_groups && model.topk != 2 * model.group_topk) {
    return "its groups of experts are compared by their two best scores";
  }
  return "";
}

/// Why it has no model with these experts; "" if it has.
std::string unknown_experts(const ModelShape& model) {
  const std::string type = hugging_face_type(model);
  if (type == "dots1") return unknown_to_dots(model);
  if (model.topk_scaling != 1) return "its routers with softmax do not scale their weights";
  if (model.group_topk < model.expert_groups) {
    return "its routers with softmax have no groups of experts";
  }
  if (type == "qwen2_moe") {
    if (!model.qkv_bias || model.kind(0).qk_norm) {
      return "its model with softmax and shared experts, Qwen2-MoE, has biases of q, k and v and "
             "no "
             "q/k norms";
    }
    return model.shared_gate ? "" : "its Qwen2-MoE has shared experts with a gate";
  }
  if (type == "qwen3_moe") return "";
  for (std::int64_t i = 0; i < model.layers; ++i) {
    if (!model.kind(i).experts) return "its Mixtral has experts in every layer";
  }
  return model.weights == ExpertWeights::all
             ? "its Mixtral has weights of the chosen experts that add up to 1"
             : "";
}

}  // namespace

std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelShape& model,
                                                    ExpertTensors experts) {
  require(model.experts == 1 || model.family != Family::gpt2, ExitCode::unavailable,
          "Hugging Face has no names for experts of a GPT-2");
  Lister list(model);
  if (model.family == Family::gpt2) {
    list_gpt2(model, list);
  } else {
    list_llama(model, experts, list);
  }
  if (!model.tied) list.add("lm_head.weight", {"head.weight"});
  return std::move(list).take();
}

bool is_of_all_experts(const std::string& name) {
  return name.ends_with(".mlp.experts.gate_up_proj") || name.ends_with(".mlp.experts.down_proj");
}

std::string hugging_face_type(const ModelShape& model) {
  if (model.family == Family::gpt2) return "gpt2";
  if (model.experts > 1) {
    if (model.sigmoid_scores) return "dots1";
    if (model.shared_ffn > 0 || model.qkv_bias) return "qwen2_moe";
    return model.kind(0).qk_norm ? "qwen3_moe" : "mixtral";
  }
  if (model.kind(0).qk_norm) return "qwen3";
  if (model.qkv_bias) return "qwen2";
  const bool turns = std::ranges::all_of(model.kinds, [](const LayerKind& kind) { return kind.rope >= 0; });
  return turns ? "llama" : "smollm3";
}

std::string unknown_to_hugging_face(const ModelShape& model) {
  if (const std::string kinds = unknown_kinds(model); !kinds.empty()) return kinds;
  const std::string form = unusual_form(model);
  if (!form.empty()) return "the models that are written have no model." + form;
  if (model.family == Family::gpt2) {
    if (model.experts > 1) return "its GPT-2 has no experts";
    if (model.kind(0).kv_heads != model.heads) return "its GPT-2 has as many key as query heads";
    if (model.q_features() != model.hidden) return "its GPT-2 has heads of hidden_size / heads";
    return "";
  }
  if (model.experts > 1) return unknown_experts(model);
  if (model.kind(0).qk_norm && model.qkv_bias) {
    return "it has no model with q/k norms and biases of q, k and v only";
  }
  return "";
}

bool is_ignored_there(const std::string& name, const ModelShape& model) {
  if (model.family == Family::gpt2) {
    const bool of_layer = name.starts_with("h.") || name.starts_with("transformer.h.");
    return of_layer && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
  }
  return name.starts_with("model.layers.") && name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace trainctl
