// Finds counterparts of other projects' keys and values, and writes hints about them.

#include "config/upstream/other_keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "config/schema/known_paths.h"
#include "config/schema/values.h"
#include "config/upstream/other_lists.h"

namespace trainctl {
namespace {

// Projects in the order in which a hint names them.
constexpr Project projects[] = {Project::hugging_face, Project::nanogpt,  Project::megatron,
                                Project::torchtitan,   Project::llmc,     Project::mindformers,
                                Project::deepspeed,    Project::trainers, Project::usual};

/// A key without differences of hyphens and capitals. Keeps a leading hyphen: llm.c's -b is not b.
std::string folded(std::string_view key) {
  std::string text(key.starts_with("--") ? key.substr(2) : key);
  const bool is_flag = text.starts_with('-');
  for (char& c : text) {
    if (c == '-') c = '_';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  if (is_flag) text[0] = '-';
  return text;
}

std::optional<double> number_in(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  return status == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

/// The second part of "949,50,1" as a share of the sum.
std::optional<std::string> validation_part(const std::string& text) {
  std::vector<double> parts;
  for (std::string part : split_at(text, ',')) {
    std::erase(part, ' ');
    const auto value = number_in(part);
    if (!value || !std::isfinite(*value) || *value < 0) return std::nullopt;
    parts.push_back(*value);
  }
  double sum = 0;
  for (const double part : parts) sum += part;
  if (!(sum > 0) || parts.size() < 2) return std::nullopt;
  return plain_number(std::round(1e6 * parts[1] / sum) / 1e6);
}

/// The file or folder of a tokenizer as data.tokenizer names it; none for other files.
std::optional<std::string> tokenizer_of(const std::string& value) {
  constexpr std::string_view file = "tokenizer.json";
  if (value.ends_with(".model")) return "sentencepiece:" + value;
  if (!value.ends_with(file)) return std::nullopt;
  const std::string folder = value.substr(0, value.size() - file.size());
  return "hf:" + (folder.empty() ? "." : folder);
}

/// A percentage such as "5%" as a fraction; none for other texts.
std::optional<std::string> share_of(const std::string& value) {
  const auto number =
      value.ends_with('%') ? number_in(value.substr(0, value.size() - 1)) : std::nullopt;
  return number ? std::optional(plain_number(0.01 * *number)) : std::nullopt;
}

std::optional<std::string> special(std::string_view how, const std::string& value) {
  if (how == "#share") return share_of(value);
  if (how == "#tokenizer") return tokenizer_of(value);
  if (how == "#split") return validation_part(value);
  if (how == "#true") return "true";
  if (how == "#hf") return "hf:" + value;
  if (how == "#nanogpt") return "data/" + value + "/train.bin";
  if (how == "#paths") return value;
  if (how == "#lower") return lower_case(value);
  const double factor = how == "#percent" ? 0.01 : how == "#minutes" ? 60 : 0;
  const auto number = number_in(value);
  if (factor == 0 || !number) return std::nullopt;
  return plain_number(factor * *number);
}

/// Words that are ambiguous without their section.
constexpr std::string_view vague[] = {"enabled", "enable", "stage", "type",     "name",  "mode",
                                      "freq",    "folder", "steps", "interval", "params"};

/// Whether the row's key without its section is `wanted`.
bool same_key(const OtherKey& row, const std::string& wanted) {
  const std::string key = folded(row.key);
  const std::size_t dot = key.find('.');
  return dot != std::string::npos && key.substr(dot + 1) == wanted &&
         std::ranges::find(vague, wanted) == std::end(vague);
}

/// The items of a list such as "[0.9, 0.95]"; empty for other texts.
std::vector<std::string> items_of(const std::string& text) {
  std::vector<std::string> items;
  if (!text.starts_with('[') || !text.ends_with(']')) return items;
  for (std::string item : split_at(text.substr(1, text.size() - 2), ',')) {
    std::erase(item, ' ');
    items.push_back(std::move(item));
  }
  return items;
}

/// Joins texts as "a, b and c".
std::string listed(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  return text;
}

/// Fills in the values, "" for unknown ones. Returns false if the given value asks for nothing.
bool fill_values(std::vector<HintValue>& values, const OtherKey& row, const std::string& given) {
  const std::vector<std::string> items = items_of(given);
  if (row.words == "#each" && items.size() == values.size()) {
    for (std::size_t i = 0; i < items.size(); ++i) values[i].text = items[i];
    return true;
  }
  const auto converted = given.empty() ? std::nullopt : convert(row, given);
  if (converted && converted->empty()) return false;
  for (HintValue& value : values) {
    if (value.text.empty() && converted) value.text = *converted;
  }
  return true;
}

/// Text such as "a and b: 1" for a shared value, "a: 1 and b: 2" for separate ones.
std::string written(const std::vector<HintValue>& values) {
  std::vector<std::string> paths;
  std::vector<std::string> lines;
  for (const HintValue& value : values) {
    paths.push_back(value.path);
    lines.push_back(value.path + (value.text.empty() ? "" : ": " + shown(value.text)));
  }
  const bool same = std::ranges::all_of(
      values, [&](const HintValue& value) { return value.text == values.front().text; });
  if (!same) return listed(lines);
  const std::string& text = values.front().text;
  return listed(paths) + (text.empty() ? "" : ": " + shown(text));
}

Hint hint_of(Project project, const OtherKey& row, const std::string& value) {
  const std::string project_name(name_of(project));
  const std::string owner =
      project_name.empty() ? ""
                           : " (" + project_name + (project_name.ends_with('s') ? "' " : "'s ") +
                                 std::string(row.key) + ")";
  if (row.paths.empty()) {
    const std::string note(row.note);
    const std::string help = note.starts_with("write ") || note.starts_with("use ")
                                 ? note + owner
                                 : "remove it" + owner + ": " + note;
    return {help, help, {}};
  }
  std::vector<HintValue> values = assignments_of(row);
  std::vector<HintValue> bare = values;
  if (!fill_values(values, row, value)) {
    const std::string help = "remove it" + owner + ": it asks for nothing";
    return {help, help, {}};
  }
  for (HintValue& one : bare) one.text.clear();
  const std::string note = row.note.empty() ? "" : "; " + std::string(row.note);
  return {"write " + written(values) + owner + note, "write " + written(bare) + owner + note,
          std::move(values)};
}

}  // namespace

std::string_view name_of(Project project) {
  switch (project) {
    case Project::hugging_face: return "Hugging Face";
    case Project::nanogpt: return "nanoGPT";
    case Project::torchtitan: return "torchtitan";
    case Project::llmc: return "llm.c";
    case Project::deepspeed: return "DeepSpeed";
    case Project::mindformers: return "MindFormers";
    case Project::trainers:
    case Project::usual: return "";
    case Project::megatron: break;
  }
  return "Megatron";
}

std::span<const OtherKey> other_keys(Project project) {
  switch (project) {
    case Project::hugging_face: return hugging_face_keys();
    case Project::nanogpt: return nanogpt_keys();
    case Project::torchtitan: return torchtitan_keys();
    case Project::llmc: return llmc_keys();
    case Project::deepspeed: return deepspeed_keys();
    case Project::mindformers: return mindformers_file_keys();
    case Project::trainers: return trainers_keys();
    case Project::usual: return usual_keys();
    case Project::megatron: break;
  }
  return megatron_arguments();
}

const OtherKey* find_other_key(Project project, std::string_view key) {
  const std::string wanted = folded(key);
  const auto rows = other_keys(project);
  for (const OtherKey& row : rows) {
    if (folded(row.key) == wanted) return &row;
  }
  if (project != Project::torchtitan && project != Project::deepspeed) return nullptr;
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const OtherKey& row) { return same_key(row, wanted); });
  return found == rows.end() ? nullptr : &*found;
}

std::vector<HintValue> assignments_of(const OtherKey& row) {
  std::vector<HintValue> values;
  for (const std::string& part : split_at(row.paths, ' ')) {
    const std::size_t equals = std::min(part.find('='), part.size());
    values.push_back({part.substr(0, equals), part.substr(std::min(equals + 1, part.size()))});
  }
  return values;
}

std::vector<std::string> paths_of(const OtherKey& row) {
  std::vector<std::string> paths;
  for (const HintValue& value : assignments_of(row)) paths.push_back(value.path);
  return paths;
}

std::optional<std::string> convert(const OtherKey& row, const std::string& value) {
  if (row.words.starts_with('#')) return special(row.words, value);
  if (row.words.empty()) return value;
  const std::string wanted = value == "True" ? "true" : value == "False" ? "false" : value;
  for (const std::string& pair : split_words(row.words)) {
    const std::size_t equals = pair.find('=');
    if (pair == "*") return value;
    if (pair.substr(0, equals) == wanted) return pair.substr(equals + 1);
  }
  return std::nullopt;
}

std::optional<Hint> hint_for_row(const OtherKey& row, const std::string& value) {
  const bool is_list = row.words == "#each" && items_of(value).size() == paths_of(row).size();
  if (!is_list && !convert(row, value)) return std::nullopt;
  return hint_of(Project::usual, row, value);
}

Hint hint_for(const std::string& key, const std::string& value) {
  for (const Project project : projects) {
    const OtherKey* row = find_other_key(project, key);
    if (row != nullptr) return hint_of(project, *row, value);
  }
  return {};
}

namespace {

constexpr OtherKey rows[] = {
    {"model.family", "model.family=llama",
     "LlamaForCausalLM=llama|MistralForCausalLM=llama|mixtral=llama|MixtralForCausalLM=llama"},
    {"model.family", "model.family=gpt2", "GPT2LMHeadModel=gpt2|GPTModel=gpt2|nanogpt=gpt2"},
    {"model.family", "model.family=llama model.add_qkv_bias=true",
     "qwen2=true|qwen2.5=true|Qwen2ForCausalLM=true"},
    {"model.family", "model.family=llama model.qk_layernorm=true",
     "qwen3=true|qwen3_moe=true|Qwen3ForCausalLM=true|Qwen3MoeForCausalLM=true"},
    {"model.family", "",
     "gemma=|gemma2=|gemma3=|phi=|phi3=|bert=|t5=|falcon=|bloom=|opt=|neox=|gpt_neox=|gptj=|olmo=|"
     "olmo2=|deepseek=|deepseek_v2=|deepseek_v3=|mamba=|glm=|glm4=|chatglm=|gpt_oss=|granite=|"
     "starcoder2=",
     "use gpt2 or llama: this family is not built"},
    {"data.tokenizer", "data.tokenizer", "#tokenizer"},
    {"data.tokenizer", "data.tokenizer=byte", "char=byte|chars=byte|character=byte|none=byte"},
    {"data.tokenizer", "", "*",
     "use hf:FOLDER, where FOLDER holds a tokenizer.json, or sentencepiece:FILE"},
    {"data.validation", "data.validation.fraction=0",
     "none=0|None=0|false=0|False=0|no=0|off=0|0=0"},
    {"data.validation", "",
     "true=|True=|yes=|on=", "use data.validation.fraction or data.validation.path"},
    {"data.validation", "data.validation.fraction", "#share"},
    {"data.validation", "data.validation.fraction"},
    {"data.validation", "data.validation.path"},
    {"data.shuffle", "data.shuffle=true train.seed"},
    {"train.steps", "", "-1=|auto=|0=", "use train.tokens or train.epochs instead"},
    {"train.seed", "", "-1=|random=", "without it the default seed holds, and runs repeat"},
    {"train.validate_every", "", "epoch=|epochs=", "use a number of steps"},
    {"train.on_bad_loss", "train.on_bad_loss=skip", "ignore=skip|continue=skip|warn=skip"},
    {"train.on_bad_loss", "train.on_bad_loss=stop", "raise=stop|error=stop|abort=stop"},
    {"train.deterministic_mode", "train.deterministic_mode=true", "warn=true|full=true"},
    {"optimizer.beta1", "optimizer.beta1 optimizer.beta2", "#each"},
    {"optimizer.weight_decay", "optimizer.weight_decay=0",
     "none=0|None=0|false=0|False=0|no=0|off=0"},
    {"lr_schedule.warmup_steps", "lr_schedule.warmup_ratio", "#share"},
    {"lr_schedule.warmup_steps", "lr_schedule.warmup_ratio"},
    {"lr_schedule.min_lr", "", "#share", "use the rate itself: min_lr is not a part of max_lr"},
    {"lr_schedule.style", "lr_schedule.style=constant", "none=constant|flat=constant"},
    {"lr_schedule.style", "lr_schedule.style=cosine",
     "cosine_with_min_lr=cosine|cosine_decay=cosine"},
    {"precision.compute", "precision.compute=bf16", "amp=bf16|mixed=bf16|true=bf16"},
    {"precision.compute", "precision.compute=fp16", "16=fp16|mixed_float16=fp16"},
    {"precision.compute", "precision.compute=fp32", "32=fp32|highest=fp32|false=fp32|full=fp32"},
    {"precision.loss_scale", "precision.dynamic_loss_scale=true", "dynamic=true|auto=true"},
    {"parallel.data_parallel", "", "-1=|auto=|0=", "it follows from the number of ranks"},
    {"parallel.sequence_parallel", "parallel.context_parallel"},
    {"parallel.device", "parallel.device=cuda", "0=cuda|1=cuda|cuda:0=cuda|cuda:1=cuda",
     "CUDA_VISIBLE_DEVICES says which"},
    {"parallel.parallel_mode", "parallel.parallel_mode=data_parallel",
     "ddp=data_parallel|dp=data_parallel"},
    {"parallel.parallel_mode", "parallel.parallel_mode=stand_alone", "none=stand_alone"},
    {"parallel.parallel_mode",
     "parallel.parallel_optimizer.enable=true parallel.parallel_optimizer.optimizer_level",
     "fsdp=level3|fsdp2=level3|zero=level1|zero1=level1|zero2=level2|zero3=level3"},
    {"parallel.parallel_optimizer", "parallel.parallel_optimizer.enable",
     "true=true|True=true|false=false|False=false|none=false"},
    {"parallel.parallel_optimizer",
     "parallel.parallel_optimizer.enable=true parallel.parallel_optimizer.optimizer_level",
     "1=level1|2=level2|3=level3|level1=level1|level2=level2|level3=level3|zero1=level1|"
     "zero2=level2|zero3=level3|full_shard=level3|shard_grad_op=level2"},
    {"parallel.parallel_optimizer.enable",
     "parallel.parallel_optimizer.enable=true parallel.parallel_optimizer.optimizer_level",
     "2=level2|3=level3|level1=level1|level2=level2|level3=level3"},
    {"parallel.parallel_optimizer.optimizer_level", "parallel.parallel_optimizer.optimizer_level",
     "1=level1|2=level2|3=level3|zero1=level1|zero2=level2|zero3=level3|stage1=level1|"
     "stage2=level2|stage3=level3|full_shard=level3|shard_grad_op=level2"},
    {"parallel.pipeline", "parallel.pipeline.scheduler",
     "1f1b=1f1b|gpipe=gpipe|zb-h1=zb-h1|zb-v=zb-v"},
    {"parallel.pipeline", "parallel.pipeline_stages"},
    {"parallel.pipeline.scheduler", "parallel.pipeline.scheduler=1f1b", "interleaved=1f1b"},
    {"parallel.attention_backend", "parallel.attention_backend=auto",
     "flash=auto|fused=auto|sdpa=auto|flash_attention_2=auto|flash_attention_3=auto|flex=auto"},
    {"parallel.attention_backend", "parallel.attention_backend=own",
     "eager=own|unfused=own|math=own|local=own"},
    {"parallel.cp_comm_type", "parallel.cp_comm_type",
     "ulysses=a2a|ring=p2p|allgather=all_gather|all-gather=all_gather|alltoall=a2a|"
     "all_to_all=a2a"},
    {"parallel.cuda_graphs", "parallel.cuda_graphs=true", "full=true|per_layer=true|local=true"},
    {"moe.router_load_balancing_type",
     "moe.router_enable_expert_bias=true moe.router_load_balancing_type",
     "aux_loss_free=none|loss_free=none|noaux_tc=none"},
    {"moe.router_load_balancing_type", "", "gbs_aux_loss=|global_aux_loss=|seq_aux_loss=|sinkhorn=",
     "use aux_loss: this way of balancing is not built"},
    {"recompute.enable", "recompute.enable=true recompute.select",
     "full=full|selective=attention|attention=attention|norms=norms|mlp=mlp|auto=auto"},
    {"offload", "offload.enable", "true=true|True=true|false=false|False=false|cpu=true"},
    {"offload.enable", "offload.enable=true", "cpu=true|host=true"},
    {"log.every", "", "epoch=|epochs=", "use a number of steps"},
    {"output.save_weights", "output.save_weights=true", "safetensors=true|hf=true|last=true"},
    {"output.tensorboard", "output.tensorboard=false", "none=false|None=false"},
    {"output.tensorboard", "output.tensorboard=true", "*", "its files go to output.dir"},
    {"checkpoint", "checkpoint.at_end=false",
     "false=false|none=false|None=false|no=false|off=false"},
    {"checkpoint.every", "",
     "epoch=|epochs=", "use a number of steps, or checkpoint.every_minutes"},
};

/// Whether the row names specific values.
bool is_exact(const OtherKey& row) {
  return !row.words.empty() && !row.words.starts_with('#') && row.words != "*";
}

}  // namespace

std::span<const OtherKey> local_value_rows() { return rows; }

std::vector<Hint> hints_for_value(const std::string& path, const std::string& value, bool exact) {
  std::vector<Hint> hints;
  for (const OtherKey& row : rows) {
    if (row.key != path || (exact && !is_exact(row))) continue;
    if (auto hint = hint_for_row(row, value)) hints.push_back(std::move(*hint));
  }
  return hints;
}

}  // namespace trainctl
