#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "plan/model/form.h"
#include "plan/tables/params.h"
#include "weights/hugging_face.h"

namespace trainctl {

std::string unusual_form(const ModelShape& model) {
  ModelConfig family;
  family.family = model.family;
  const ModelShape usual = model_shape(family);
  const bool gpt2 = model.family == "gpt2";
  const auto any_rope = [&](const auto& differs) {
    return std::ranges::any_of(model.ropes, differs);
  };
  const auto any_kind = [&](const auto& differs) {
    return std::ranges::any_of(model.kinds, differs);
  };
  const bool qk_norm = any_kind([](const LayerKind& kind) { return kind.qk_norm; });
  const struct {
    const char* key;
    bool differs;
  } forms[] = {
      {"add_out_bias", model.out_bias != (gpt2 && model.mlp_bias)},
      {"add_mlp_bias", model.mlp_bias && !gpt2},
      {"activation", model.activation != usual.activation},
      {"gated_linear_unit", model.gated_mlp != usual.gated_mlp},
      {"glu_linear_offset", model.gate_offset != 0},
      {"activation_func_clamp_value", model.gate_limit != 0},
      {"norm_placement", model.norm_placement != NormPlacement::pre},
      {"qk_layernorm_form", qk_norm && model.qk_norm_form != QkNormForm::head},
      {"qk_layernorm_after_rope", qk_norm && model.qk_norm_after_rope},
      {"zero_centered_norm", model.zero_centered_norm},
      {"embedding_multiplier", model.embedding_multiplier != 1},
      {"residual_multiplier", model.residual_multiplier != 1},
      {"logit_scale", model.logit_scale != 1},
      {"final_logit_softcapping", model.logit_cap != 0},
      {"softmax_scale", model.softmax_scale != default_softmax_scale(model.head_dim)},
      {"attn_logit_softcapping", model.attention_cap != 0},
      {"sliding_window", any_kind([](const LayerKind& kind) { return kind.limits.window != 0; })},
      {"attention_chunk_size",
       any_kind([](const LayerKind& kind) { return kind.limits.chunk != 0; })},
      {"attention_temperature",
       any_kind([](const LayerKind& kind) { return kind.temperature >= 0; })},
      {"softmax_type", any_kind([](const LayerKind& kind) { return kind.sinks; })},
      {"attention_output_gate", model.output_gate},
      {"rotary_percent", any_rope([&](const RopeForm& r) { return r.size != model.head_dim; })},
      {"rotary_interleaved", any_rope([](const RopeForm& r) { return r.interleaved; })},
      {"rope_scaling.type", any_rope([](const RopeForm& r) {
         return r.type != RopeType::none && r.type != RopeType::llama3;
       })},
      {"rope_scaling.attention_factor",
       any_rope([](const RopeForm& r) { return r.amplitude != 1; })},
  };
  for (const auto& form : forms) {
    if (form.differs) return form.key;
  }
  return "";
}

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

  /// Adds the tensor of one expert of a parameter [experts, out, in].
  void add_expert(const std::string& theirs, const std::string& ours, std::int64_t expert) {
    const Shape& all = shapes_.at(ours);
    tensors_.push_back({.name = theirs,
                        .pieces = {{.ours = ours, .rows = all[1], .first = expert * all[1]}},
                        .shape = {all[1], all[2]},
                        .transposed = false});
  }
  /// Adds one tensor for all experts; in each expert, our parameters follow each other.
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
  /// Adds a bias that their network always has: zeros if the model does not have it.
  void add_bias(const std::string& theirs, const std::vector<std::string>& ours,
                std::int64_t rows) {
    if (shapes_.contains(ours.front())) return add(theirs, ours);
    tensors_.push_back({.name = theirs, .pieces = {}, .shape = {rows}, .transposed = false});
  }
  /// Adds the bias of a router: zeros if the model has none.
  void add_router_bias(const std::string& theirs, const std::string& ours, std::int64_t experts) {
    add_bias(theirs, {ours}, experts);
    tensors_.back().keeps_fp32 = true;
  }
  void add_if_there(const std::string& theirs, const std::string& ours) {
    if (shapes_.contains(ours)) add(theirs, {ours});
  }

  std::vector<HuggingFaceTensor> take() && { return std::move(tensors_); }

 private:
  std::map<std::string, Shape> shapes_;  // shapes of our parameters
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
    list_gpt2_layer("layers." + std::to_string(i), formatted("transformer.h.{}", i), model, list);
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
      list.add_expert(formatted("{}.experts.{}{}", theirs, expert, names[i]),
                      ours + ".experts." + matrices[i] + ".weight", expert);
    }
  }
}

/// Lists shared experts and the router's bias; `theirs` is the prefix of the layer of experts.
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

/// Lists a layer of experts; `theirs` is the prefix of the decoder layer.
void list_experts(const std::string& ours, const std::string& theirs, const ModelShape& model,
                  bool together, Lister& list) {
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

/// Lists the norms that the model has.
void list_norms(const std::string& ours, const std::string& theirs, HuggingFaceNorms names,
                Lister& list) {
  constexpr const char* mine[] = {".norm1", ".post_norm1", ".norm2", ".post_norm2"};
  // In the order of HuggingFaceNorms.
  constexpr const char* by_names[][4] = {
      {".input_layernorm", "", ".post_attention_layernorm", ""},
      {".input_layernorm", ".post_attention_layernorm", ".pre_feedforward_layernorm",
       ".post_feedforward_layernorm"},
      {".input_layernorm", ".post_self_attn_layernorm", ".post_attention_layernorm",
       ".post_mlp_layernorm"},
      {".input_layernorm", ".post_norm1", ".post_attention_layernorm", ".post_norm2"}};
  const auto& there = by_names[static_cast<std::size_t>(names)];
  for (std::size_t i = 0; i < std::size(mine); ++i) {
    list.add_if_there(theirs + there[i] + ".weight", ours + mine[i] + ".weight");
  }
}

void list_qkv(const std::string& ours, const std::string& theirs, bool fused, Lister& list) {
  if (fused) {
    return list.add(theirs + ".qkv_proj.weight",
                    {ours + ".q.weight", ours + ".k.weight", ours + ".v.weight"});
  }
  for (const char* part : {"q", "k", "v"}) {
    const std::string to = theirs + "." + part + "_proj";
    const std::string from = ours + "." + part;
    list.add(to + ".weight", {from + ".weight"});
    list.add_if_there(to + ".bias", from + ".bias");
  }
}

void list_mlp(const std::string& ours, const std::string& theirs, bool fused, Lister& list) {
  if (fused) {
    list.add(theirs + ".gate_up_proj.weight", {ours + ".gate.weight", ours + ".up.weight"});
    return list.add(theirs + ".down_proj.weight", {ours + ".down.weight"});
  }
  for (const char* part : matrices) {
    list.add_if_there(theirs + "." + part + "_proj.weight", ours + "." + part + ".weight");
    list.add_if_there(theirs + "." + part + "_proj.bias", ours + "." + part + ".bias");
  }
}

void list_llama_layer(const std::string& ours, const std::string& theirs, const ModelShape& model,
                      const TensorForms& forms, Lister& list) {
  list_norms(ours, theirs, forms.norms, list);
  list_qkv(ours + ".attention", theirs + ".self_attn", forms.fused_qkv, list);
  list.add(theirs + ".self_attn.o_proj.weight", {ours + ".attention.out.weight"});
  list.add_if_there(theirs + ".self_attn.o_proj.bias", ours + ".attention.out.bias");
  list.add_if_there(theirs + ".self_attn.sinks", ours + ".attention.sinks.weight");
  for (const auto& [name, long_name] :
       {std::pair{"q_norm", "query_layernorm"}, std::pair{"k_norm", "key_layernorm"}}) {
    list.add_if_there(theirs + ".self_attn." + (forms.long_qk_names ? long_name : name) + ".weight",
                      ours + ".attention." + name + ".weight");
  }
  if (list.has(ours + ".moe.router.weight")) {
    return list_experts(ours + ".moe", theirs, model, forms.experts_together, list);
  }
  list_mlp(ours + ".mlp", theirs + ".mlp", forms.fused_gate_up, list);
}

void list_llama(const ModelShape& model, const TensorForms& forms, Lister& list) {
  list.add("model.embed_tokens.weight", {"embedding.token.weight"});
  for (std::int64_t i = 0; i < model.layers; ++i) {
    list_llama_layer("layers." + std::to_string(i), formatted("model.layers.{}", i), model, forms,
                     list);
  }
  list.add("model.norm.weight", {"final_norm.weight"});
}

/// Why transformers has no model with experts and these kinds of layers; "" if it has.
std::string unknown_kinds(const ModelShape& model) {
  for (LayerKind kind : model.kinds) {
    kind.name = model.kind(0).name;
    kind.experts = model.kind(0).experts;
    if (kind != model.kind(0)) return "its layers differ only in whether they have experts";
  }
  if (model.ropes.empty()) return "its models with experts have RoPE in every layer";
  return "";
}

/// The first property of a model with experts that its Hugging Face family lacks.
std::string unknown_with_experts(const ModelShape& model) {
  const HuggingFaceFamily& family = *hugging_face_family(hugging_face_type(model));
  const std::vector<std::string> found = differences(model, family);
  if (found.empty()) return "";
  return "its " + std::string(family.class_name) + " " + found.front();
}

/// The first property of a model with sigmoid scores that "dots1" lacks.
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

/// Why transformers has no model with these routers; "" if it has.
std::string unknown_routers(const ModelShape& model) {
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

/// Why transformers has no model with these experts; "" if it has.
std::string unknown_experts(const ModelShape& model) {
  for (const auto& unknown : {unknown_kinds, unknown_routers, unknown_with_experts}) {
    if (std::string reason = unknown(model); !reason.empty()) return reason;
  }
  return "";
}

}  // namespace

TensorForms written_forms(const ModelShape& model, const std::string& preferred) {
  const HuggingFaceFamily* family = hugging_face_family(hugging_face_type(model, preferred));
  if (family == nullptr) return {};
  return {.norms = family->norm_names,
          .long_qk_names = family->long_qk_names,
          .fused_qkv = family->fused_qkv,
          .fused_gate_up = family->fused_gate_up};
}

std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelShape& model,
                                                    const TensorForms& forms) {
  require(model.experts == 1 || model.family != "gpt2", ExitCode::unavailable,
          "Hugging Face has no names for experts of a GPT-2");
  Lister list(model);
  if (model.family == "gpt2") {
    list_gpt2(model, list);
  } else {
    list_llama(model, forms, list);
  }
  if (!model.tied) list.add("lm_head.weight", {"head.weight"});
  return std::move(list).take();
}

void note_form(const std::string& name, TensorForms& forms) {
  if (name.ends_with(".mlp.experts.gate_up_proj") || name.ends_with(".mlp.experts.down_proj")) {
    forms.experts_together = true;
  }
  if (name.ends_with(".self_attn.qkv_proj.weight")) forms.fused_qkv = true;
  if (name.ends_with(".mlp.gate_up_proj.weight")) forms.fused_gate_up = true;
  if (name.ends_with(".self_attn.query_layernorm.weight")) forms.long_qk_names = true;
  if (name.ends_with(".post_self_attn_layernorm.weight")) forms.norms = "glm";
  if (name.ends_with(".post_norm1.weight")) forms.norms = "numbered";
  if (name.ends_with("_feedforward_layernorm.weight")) forms.norms = "around";
}

std::string hugging_face_type(const ModelShape& model, const std::string& preferred) {
  if (model.family == "gpt2") return "gpt2";
  if (model.experts > 1) {
    if (model.sigmoid_scores) return "dots1";
    if (model.shared_ffn > 0 || model.qkv_bias) return "qwen2_moe";
    return model.kind(0).qk_norm ? "qwen3_moe" : "mixtral";
  }
  const HuggingFaceFamily* family = hugging_face_family(preferred);
  const bool fits =
      family != nullptr && !family->has_experts && differences(model, *family).empty();
  return std::string(fits ? family->type : nearest_family(model).type);
}

std::string unknown_to_hugging_face(const ModelShape& model) {
  if (model.family == "gpt2") {
    if (const std::string form = unusual_form(model); !form.empty()) {
      return "its GPT-2 has no model." + form;
    }
    if (model.experts > 1) return "its GPT-2 has no experts";
    if (model.kind(0).kv_heads != model.heads) return "its GPT-2 has one key head per query head";
    if (model.q_features() != model.hidden) return "its GPT-2 has heads of hidden_size / heads";
    return "";
  }
  if (model.experts > 1) return unknown_experts(model);
  const HuggingFaceFamily& family = nearest_family(model);
  const std::vector<std::string> lacks = differences(model, family);
  return lacks.empty()
             ? ""
             : "its nearest family, " + std::string(family.class_name) + ", " + lacks.front();
}

bool is_ignored_there(const std::string& name, const ModelShape& model) {
  if (model.family == "gpt2") {
    const bool of_layer = name.starts_with("h.") || name.starts_with("transformer.h.");
    return of_layer && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
  }
  return name.starts_with("model.layers.") && name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace trainctl
