// Rules of nanoGPT, torchtitan, llm.c and Hugging Face that combine several keys, and their
// defaults that differ from ours.

#include "config/migrate/migration.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "config/schema/known_paths.h"
#include "config/schema/values.h"
#include "config/upstream/upstream.h"

namespace trainctl {
namespace {

// nanoGPT: defaults of train.py, which a file in config/ and the command line override.

constexpr std::string_view nanogpt_defaults =
    "model.family=gpt2 model.num_layers=12 model.num_attention_heads=12 model.hidden_size=768 "
    "model.seq_length=1024 model.add_bias_linear=false data.train=data/openwebtext/train.bin "
    "data.validation.path=data/openwebtext/val.bin train.steps=600000 "
    "train.validate_every=2000 optimizer.weight_decay=0.1 optimizer.beta2=0.95 "
    "lr_schedule.style=cosine lr_schedule.max_lr=6e-4 precision.compute=bf16 log.every=1 "
    "output.dir=out";
constexpr std::string_view nanogpt_decay =
    "lr_schedule.min_lr=6e-5 lr_schedule.warmup_steps=2000 lr_schedule.decay_steps=600000";

void start_from_gpt2(Migration& m) {
  const std::string name = m.text("init_from");
  if (!name.starts_with("gpt2")) return;
  m.remove("model.from");
  const std::string preset = name == "gpt2-medium"  ? "gpt2-355m"
                             : name == "gpt2-large" ? "gpt2-774m"
                             : name == "gpt2-xl"    ? "gpt2-1.5b"
                                                    : "gpt2-124m";
  for (const char* key :
       {"num_layers", "num_attention_heads", "hidden_size", "vocab_size", "add_bias_linear"}) {
    m.remove(formatted("model.{}", key));
  }
  m.put("model.preset", preset, "init_from " + name);
  m.put_default("model.seq_length", "1024");
  m.not_carried(
      "init_from",
      "nothing is downloaded; to start from its weights replace preset by `from: DIR`, the "
      "directory of the Hugging Face model");
}

void settle_nanogpt(Migration& m) {
  const double batch = m.number("batch_size", 12);
  const double parts = m.number("gradient_accumulation_steps", 40);
  m.put("train.global_batch_size", batch * parts,
        "batch_size x gradient_accumulation_steps, which counts all ranks");
  m.put_default("train.micro_batch_size", plain_number(batch));
  m.put("data.validation.max_sequences", m.number("eval_iters", 200) * batch,
        "eval_iters x batch_size");
  const std::string dataset = m.text("dataset", "openwebtext");
  if (m.given("dataset") != nullptr) {
    m.put("data.validation.path", "data/" + dataset + "/val.bin", "next to data.train");
  }
  if (m.text("init_from").starts_with("gpt2")) start_from_gpt2(m);
  if (!m.at("model.preset") && !m.at("model.vocab_size")) {
    const bool chars = dataset == "shakespeare_char";
    m.put("model.vocab_size", chars ? "65" : "50304", "of " + dataset);
    m.not_carried(
        "vocab_size",
        formatted(
            "nanoGPT reads it from data/{}/meta.pkl, and takes 50304 where there is none: check it",
            dataset));
  }
  put_defaults(m, nanogpt_defaults);
  if (m.at("model.preset")) {
    for (const char* path : {"model.num_layers", "model.num_attention_heads", "model.hidden_size",
                             "model.add_bias_linear", "model.family"}) {
      m.remove(path);
    }
  }
  if (m.at("lr_schedule.style") == "constant") {
    for (const char* path : {"min_lr", "warmup_steps", "decay_steps"}) {
      m.remove(formatted("lr_schedule.{}", path));
    }
  } else {
    put_defaults(m, nanogpt_decay);
  }
}

// Rules of torchtitan.

constexpr std::string_view torchtitan_defaults =
    "model.seq_length=2048 train.steps=10000 train.micro_batch_size=8 optimizer.beta2=0.95 "
    "optimizer.weight_decay=0.1 lr_schedule.style=linear lr_schedule.max_lr=8e-4 "
    "lr_schedule.warmup_steps=200 precision.compute=bf16 output.dir=outputs";

constexpr std::string_view debug_model =
    "model.family=llama model.num_layers=6 model.hidden_size=256 model.num_attention_heads=16 "
    "model.ffn_hidden_size=768 model.vocab_size=2048 model.rotary_base=500000";
constexpr std::string_view llama_405b =
    "model.family=llama model.num_layers=126 model.hidden_size=16384 "
    "model.num_attention_heads=128 model.num_query_groups=8 model.ffn_hidden_size=53248 "
    "model.vocab_size=128256 model.rotary_base=500000";

/// Sets the decay: the last part of the steps, or all steps after the warm-up if it is not given.
void settle_torchtitan_rate(Migration& m) {
  const double rate = m.number("optimizer.lr", 8e-4);
  const double factor = m.number("lr_scheduler.min_lr_factor", m.number("lr_scheduler.lr_min", 0));
  if (factor > 0) m.put("lr_schedule.min_lr", factor * rate, "min_lr_factor x lr");
  if (m.given("lr_scheduler.decay_ratio") == nullptr) return;
  const double steps = m.number("training.steps", 10000);
  const std::string type = m.text("lr_scheduler.decay_type", "linear");
  m.put("lr_schedule.style", "WSD", "decay_ratio");
  m.put("lr_schedule.wsd_decay_style", type == "sqrt" ? "minus_sqrt" : type, "decay_type");
  m.put("lr_schedule.wsd_decay_steps",
        std::max(1.0, std::round(m.number("lr_scheduler.decay_ratio", 0) * steps)),
        "decay_ratio x steps");
}

/// Sets the micro-batch size: with pipeline stages a local batch is several micro-batches.
void settle_torchtitan_batch(Migration& m) {
  const double local = m.number("training.local_batch_size", m.number("training.batch_size", 8));
  const bool stages = m.number("parallelism.pipeline_parallel_degree", 1) > 1;
  const double micro =
      stages ? m.number("parallelism.pipeline_parallel_microbatch_size", 1) : local;
  m.put("train.micro_batch_size", micro,
        stages ? "pipeline_parallel_microbatch_size" : "local_batch_size");
  if (m.at("train.global_batch_size")) return;
  m.put("train.micro_batch_num", std::max(1.0, std::floor(local / micro)),
        "no global batch: local_batch_size on each replica");
}

void settle_torchtitan(Migration& m) {
  const std::string flavor = m.text("model.flavor");
  if (flavor == "debugmodel") put_defaults(m, debug_model, "flavor " + flavor);
  if (flavor == "405B") put_defaults(m, llama_405b, "flavor " + flavor);
  settle_torchtitan_rate(m);
  settle_torchtitan_batch(m);
  const double shard = m.number("parallelism.data_parallel_shard_degree",
                                m.number("training.data_parallel_shard_degree", -1));
  const double replicate = m.number("parallelism.data_parallel_replicate_degree", 1);
  m.remove("parallel.parallel_optimizer.enable");
  if (shard != 1) {
    shard_optimizer(m, "data_parallel_shard_degree; optimizer_level: level3 shards parameters too");
  }
  if (shard >= 1 && shard * replicate > 1) {
    m.put("parallel.data_parallel", shard * replicate, "replicate degree x shard degree");
  }
  if (m.number("parallelism.tensor_parallel_degree",
               m.number("training.tensor_parallel_degree", 1)) > 1) {
    m.put("parallel.sequence_parallel", "true", "always with tensor_parallel_degree there");
  }
  const bool saves =
      m.text("checkpoint.enable", m.text("checkpoint.enable_checkpoint", "true")) != "false";
  if (!saves) m.remove("checkpoint.every");
  if (m.text("optimizer.name") == "Adam") {
    m.not_carried(
        "optimizer.name",
        "Adam adds weight decay to the gradient, adamw takes it apart: check weight_decay");
  }
  put_defaults(m, torchtitan_defaults);
}

// Rules of llm.c's train_gpt2cu.

constexpr std::string_view llmc_defaults =
    "model.preset=gpt2-124m model.seq_length=1024 train.micro_batch_size=4 "
    "train.validate_every=20 optimizer.beta2=0.95 optimizer.weight_decay=0 "
    "lr_schedule.style=cosine lr_schedule.max_lr=3e-4 precision.compute=bf16";

void settle_llmc(Migration& m) {
  const double rate = m.number("-l", 3e-4);
  const double length = m.number("-t", 1024);
  const double micro = m.number("-b", 4);
  if (m.given("-d") != nullptr) {
    m.put("train.global_batch_size", std::floor(m.number("-d", 0) / length), "-d / -t");
  } else {
    m.put("train.micro_batch_num", 1, "no -d: one micro-batch per rank");
  }
  m.put("lr_schedule.min_lr", m.number("-q", 1) * rate, "-q x -l");
  if (!m.at("train.steps")) m.put("train.epochs", 1, "no -x: one pass over the data");
  m.put("data.validation.max_sequences", m.number("-m", 20) * micro, "-m x -b");
  if (m.text("-i").find('*') != std::string::npos) {
    m.not_carried("-i", "patterns are not expanded: list the files in data.train");
  }
  if (!m.at("data.validation.path")) m.remove("data.validation");
  put_defaults(m, llmc_defaults);
  if (m.number("-z", 0) == 1) shard_optimizer(m, "-z 1");
}

// Rules of Hugging Face's TrainingArguments.

constexpr std::string_view hugging_face_defaults =
    "train.micro_batch_size=8 optimizer.weight_decay=0 lr_schedule.style=linear "
    "lr_schedule.max_lr=5e-5";

/// Keys of programs with TrainingArguments that ask for other training than of all weights on
/// texts, each with the values that do not ask for it ("|" between them).
constexpr std::string_view other_training =
    "adapter finetuning_type=full stage=pt rl use_peft=false|False peft_type lora_r=0 "
    "lora_rank=0 use_dora=false|False quantization_bit load_in_4bit=false|False "
    "load_in_8bit=false|False use_galore=false|False use_badam=false|False "
    "neftune_noise_alpha=0 label_smoothing_factor=0|0.0";

/// Refuses such keys instead of only listing them: the run would train something else.
void refuse_other_training(Migration& m) {
  for (const std::string& row : split_at(other_training, ' ')) {
    std::string_view plain = row;
    const std::string_view key = take_until(plain, "=");
    const ForeignValue* value = m.written_as(key);
    if (value == nullptr || value->words.empty() || value->words.front().empty()) continue;
    const std::vector<std::string> words = split_words(plain);
    if (std::ranges::find(words, value->words.front()) != words.end()) continue;
    m.refuse(*value, "all weights are trained, on texts; this would train something else",
             words.empty() ? "remove it" : formatted("write {}: {}", key, words.front()));
  }
}

void settle_hugging_face(Migration& m) {
  refuse_other_training(m);
  if (const ForeignValue* optimizer = m.written_as("optim_config")) {
    m.refuse(*optimizer, "a section of LLaMA-Factory's newer files",
             "migrate the file without --from, which reads it");
  }
  if (m.at("model.num_layers") || m.at("model.hidden_size")) {
    m.refuse("model.family", "the file has sizes of a model, and nothing says of which",
             "give its config.json, with a model_type such as \"llama\"", "no-counterpart");
  }
  if (!m.at("train.steps") && !m.at("train.epochs")) m.put_default("train.epochs", "3");
  if (m.at("train.steps") && m.at("train.epochs")) {
    m.remove("train.epochs");
    m.not_carried("num_train_epochs", "max_steps overrides it");
  }
  if (m.number("warmup_steps", 0) > 0 && m.at("lr_schedule.warmup_ratio")) {
    m.remove("lr_schedule.warmup_ratio");
    m.not_carried("warmup_ratio", "warmup_steps overrides it");
  } else if (m.at("lr_schedule.warmup_ratio")) {
    m.remove("lr_schedule.warmup_steps");
  }
  m.put_default("train.micro_batch_num", "1");
  if (m.at("parallel.parallel_optimizer.enable")) shard_optimizer(m, "fsdp");
  put_defaults(m, hugging_face_defaults);
}

}  // namespace

void put_defaults(Migration& m, std::string_view values, const std::string& why) {
  for (const std::string& value : split_at(values, ' ')) {
    std::string_view text = value;
    const std::string path(take_until(text, "="));
    if (why.empty()) {
      m.put_default(path, std::string(text));
    } else if (!m.at(path)) {
      m.put(path, std::string(text), why);
    }
  }
}

void shard_optimizer(Migration& m, const std::string& why) {
  m.put("parallel.parallel_optimizer.enable", "true", why);
  m.put("parallel.parallel_optimizer.gradient_accumulation_shard", "false", why);
}

namespace {

/// torch and Megatron add SGD's weight decay to the gradient, before momentum.
void settle_decay_form(Migration& m) {
  if (m.at("optimizer.type") != "sgd") return;
  m.put("optimizer.weight_decay_form", "coupled", "SGD adds weight decay to the gradient there");
}

}  // namespace

void apply_project_rules(Migration& migration) {
  const Project project = migration.project();  // those that are not here have only hints
  if (project == "hugging_face") settle_hugging_face(migration);
  if (project == "nanogpt") settle_nanogpt(migration);
  if (project == "torchtitan") settle_torchtitan(migration);
  if (project == "llmc") settle_llmc(migration);
  if (project == "megatron") settle_megatron(migration);
  settle_decay_form(migration);
}

namespace {

std::string underscored(std::string key) {
  if (key.starts_with("--")) key.erase(0, 2);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

/// The row of ModelParallelConfig for an argument of Megatron, or nullptr.
const UpstreamKey* parallel_row(Project project, const std::string& key) {
  if (project != "megatron") return nullptr;
  const std::string wanted = underscored(key);
  for (const UpstreamKey& row : all_upstream_keys()) {
    const bool plain = row.conversion == "same" && !row.deprecated();
    if (plain && row.key == wanted && find_known_path(std::string(row.path)) != nullptr)
      return &row;
  }
  return nullptr;
}

/// "6e5" becomes 600000, since our integers have no exponent.
std::string our_number(const std::string& text) {
  double value = 0;
  const bool has_form = text.find_first_of("eE.") != std::string::npos;
  if (!has_form || parse_number(text, value)) return text;
  const bool whole = std::abs(value) < 1e15 && value == std::floor(value);
  return whole                                           ? plain_number(value)
         : text.find_first_of("eE") == std::string::npos ? text
                                                         : write_value(value);
}

}  // namespace

Migration::Migration(Project project, const std::string& file, std::vector<ForeignValue> values,
                     YamlTree& tree, Diagnostics& diagnostics)
    : project_(project),
      file_(file),
      values_(std::move(values)),
      tree_(tree),
      diagnostics_(diagnostics) {
  root_ = tree_.add_map();
}

std::string Migration::written(const ForeignValue& value) {
  std::string text = value.key;
  for (const std::string& word : value.words) text += " " + word;
  return shown(text);
}

const ForeignValue* Migration::given(std::string_view key) const {
  const ForeignValue* found = nullptr;
  for (const ForeignValue& value : values_) {
    const OtherKey* row = find_other_key(project_, value.key);
    if (row != nullptr && row->key == key) found = &value;
  }
  return found;
}

const ForeignValue* Migration::written_as(std::string_view key) const {
  const ForeignValue* found = nullptr;
  for (const ForeignValue& value : values_) {
    if (value.key == key) found = &value;
  }
  return found;
}

bool Migration::is_last(const ForeignValue& value) const {
  const OtherKey* row = find_other_key(project_, value.key);
  return row == nullptr || given(row->key) == &value;
}

std::string Migration::text(std::string_view key, const std::string& otherwise) const {
  const ForeignValue* value = given(key);
  return value == nullptr || value->words.empty() ? otherwise : value->words.front();
}

double Migration::number(std::string_view key, double otherwise) const {
  double value = 0;
  return parse_number(text(key), value) ? otherwise : value;
}

bool Migration::flag(std::string_view key) const {
  const ForeignValue* value = given(key);
  if (value == nullptr) return false;
  const std::string word = value->words.empty() ? "true" : value->words.front();
  return word != "false" && word != "False" && word != "0";
}

int Migration::map_of(const std::string& path) {
  int map = root_;
  std::size_t start = 0;
  for (std::size_t dot = 0; (dot = path.find('.', start)) != std::string::npos; start = dot + 1) {
    const std::string key = path.substr(start, dot - start);
    if (tree_.find(map, key) == nullptr) {
      const int made = tree_.add_map();
      tree_.node(map).entries.push_back({key, {0, 0, 0, 0}, made});
    }
    map = tree_.find(map, key)->value;
  }
  return map;
}

int Migration::scalar(const std::string& text) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.scalar = our_number(text);
  double number = 0;
  const bool plain = !parse_number(node.scalar, number) || text == "true" || text == "false";
  node.quoted = !plain;
  node.expands = text.find("${") != std::string::npos;
  return tree_.add_node(std::move(node));
}

std::optional<std::string> Migration::at(const std::string& path) const {
  const YamlEntry* entry = tree_.find_path(root_, path);
  return entry == nullptr ? std::nullopt : std::optional(tree_.node(entry->value).scalar);
}

double Migration::number_at(const std::string& path, double otherwise) const {
  double value = 0;
  return parse_number(at(path).value_or(""), value) ? otherwise : value;
}

void Migration::put_list(const std::string& path, int node, const std::string& why) {
  const int map = map_of(path);
  const std::string key = last_key(path);
  const Span span{0, ++line_, 1, 2};
  if (!why.empty()) comments_.behind[line_] = "# " + why;
  if (YamlEntry* entry = tree_.find(map, key)) {
    *entry = {key, span, node};
  } else {
    tree_.node(map).entries.push_back({key, span, node});
  }
}

void Migration::put(const std::string& path, const std::string& value, const std::string& why) {
  put_list(path, scalar(value), why);
}

void Migration::put(const std::string& path, double value, const std::string& why) {
  put(path, plain_number(value), why);
}

void Migration::put_default(const std::string& path, const std::string& value) {
  if (!at(path)) put(path, value, formatted("default of {}", name_of(project_)));
}

void Migration::remove(const std::string& path) { tree_.remove(map_of(path), last_key(path)); }

void Migration::not_carried(std::string_view key, const std::string& why) {
  const ForeignValue* value = given(key);
  const Place nowhere = whole_file(file_);
  diagnostics_.add({Severity::warning, "not-carried", std::string(key),
                    (value == nullptr ? "" : written(*value) + ": ") + why, "",
                    value == nullptr ? nowhere : tree_.place(value->span)});
}

void Migration::refuse(const ForeignValue& value, const std::string& message,
                       const std::string& help) {
  diagnostics_.add({Severity::error, "no-counterpart", value.key, written(value) + ": " + message,
                    help, tree_.place(value.span)});
}

void Migration::refuse(const std::string& path, const std::string& message, const std::string& help,
                       const char* code) {
  diagnostics_.add({Severity::error, code, path, message, help, whole_file(file_)});
}

void Migration::contradict(const std::string& path, const ForeignValue& value) {
  const ForeignValue& other = *from_.at(path);
  const bool family = path == "model.family";
  diagnostics_.add(
      {Severity::error, "two-spellings", path,
       formatted("{} on line {} contradicts {} on line {}; both mean {}", written(value),
                 value.span.line, written(other), other.span.line, path),
       family ? "gpt2 has learned positions, LayerNorm and GELU; llama has RoPE, RMSNorm and SwiGLU"
              : "remove one of the two",
       tree_.place(value.span)});
}

void Migration::carry_to(const std::string& path, const std::string& text,
                         const ForeignValue& value) {
  if (from_.contains(path) && at(path) != tree_.node(scalar(text)).scalar) {
    return contradict(path, value);
  }
  from_[path] = &value;
  put(path, text, formatted("{}, line {}", written(value), value.span.line));
}

void Migration::carry_list(const std::string& path, const ForeignValue& value) {
  std::vector<int> items;
  for (const std::string& word : value.words) items.push_back(scalar(word));
  from_[path] = &value;
  put_list(path, tree_.add_list(std::move(items)),
           formatted("{}, line {}", written(value), value.span.line));
}

void Migration::carry(const ForeignValue& value) {
  const auto warn = [&](const std::string& why) {
    diagnostics_.add({Severity::warning, "not-carried", value.key, written(value) + ": " + why, "",
                      tree_.place(value.span)});
  };
  const std::string given = value.words.empty() ? "true" : value.words.front();
  const OtherKey* row = find_other_key(project_, value.key);
  const UpstreamKey* parallel = row == nullptr ? parallel_row(project_, value.key) : nullptr;
  if (parallel != nullptr && value.words.size() > 1) {
    return carry_list(std::string(parallel->path), value);
  }
  if (parallel != nullptr) return carry_to(std::string(parallel->path), given, value);
  if (row == nullptr) return warn("it has no counterpart");
  if (row->paths.empty()) return warn(formatted("not carried: {}", row->note));
  if (row->words.starts_with("#other") || row->words == "#paths")
    return;  // a project's rule reads it
  if (value.is_code) return warn("not carried: only plain values are read");
  const auto converted = convert(*row, given);
  if (!converted) return warn(formatted("the value has no counterpart in {}", row->paths));
  if (converted->empty()) return;
  for (const HintValue& one : assignments_of(*row)) {
    carry_to(one.path, one.text.empty() ? *converted : one.text, value);
  }
}

void Migration::carry_rows() {
  for (const ForeignValue& value : values_) {
    if (is_last(value)) carry(value);
  }
}

}  // namespace trainctl
