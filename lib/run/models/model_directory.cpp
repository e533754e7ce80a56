#include "run/models/model_directory.h"

#include <unistd.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "config/schema/values.h"
#include "plan/tables/params.h"
#include "run/prepare.h"
#include "weights/export.h"
#include "weights/hugging_face.h"
#include "weights/llmc_model.h"

namespace trainctl {

namespace {

/// Required sections of a configuration that do not affect generated text.
constexpr const char* unused_sections =
    "data: {train: none}\n"
    "train: {steps: 1, global_batch_size: 1}\n"
    "lr_schedule: {max_lr: 0}\n";

}  // namespace

ReadResult read_model_directory(const std::filesystem::path& directory,
                                const std::vector<std::string>& set_options) {
  require(kind_of_file(directory) == FileKind::folder, ExitCode::missing_input,
          "no model directory " + directory.string());
  if (kind_of_file(directory / "config.yaml") != FileKind::none) {
    // The run has its own weights; the weights it started from may be gone.
    std::vector<std::string> options{"model.from=null"};
    options.insert(options.end(), set_options.begin(), set_options.end());
    return read_config(directory / "config.yaml", options);
  }
  require(kind_of_file(directory / "config.json") != FileKind::none, ExitCode::missing_input,
          directory.string() +
              " has neither the config.yaml of a run nor the config.json of a Hugging Face model");
  const std::string text =
      "model: {from: " + write_value(directory.string()) + "}\n" + unused_sections;
  return read_config_text(text, directory.string(), set_options,
                          {.load = load_text, .variable = {}});
}

void forget_groups(MoeConfig& moe) {
  moe.expert_group = "sequence";
  moe.expert_group_size.reset();
  moe.capacity_group_size.reset();
}

ModelShape model_of(const std::filesystem::path& directory) {
  ReadResult read = read_model_directory(directory, {});
  read.config.parallel = ParallelConfig{};
  read.config.train.micro_batch_size = 1;
  read.config.train.micro_batch_num.reset();
  forget_groups(read.config.moe);
  read.config.train.rampup_batch_size.reset();
  read.config.train.global_batch_size = 1;
  const Plan plan = prepare(read, {}, Purpose::generate);
  require(!read.diagnostics.has_errors(), ExitCode::bad_data,
          directory.string() + " holds no model that can be used:\n" +
              render_text(read.diagnostics, false));
  return plan.model;
}

std::string tokenizer_in(const std::filesystem::path& directory) {
  if (kind_of_file(directory / "tokenizer.json") == FileKind::regular) {
    return "hf:" + directory.string();
  }
  const std::filesystem::path model = directory / "tokenizer.model";
  if (kind_of_file(model) == FileKind::regular) return "sentencepiece:" + model.string();
  return "";
}

namespace {

constexpr std::int64_t gpt2_end_of_text = 50256;  // token of GPT-2, used by llm.c

struct Source {
  ModelShape model;
  std::unique_ptr<StoredWeights> weights;
  SpecialTokens tokens;
  std::string type;  // model_type of a Hugging Face directory
};

/// Opens the source of a conversion, in any of its forms.
Source open_source(const ConvertRequest& request) {
  Source source;
  if (request.from_llmc) {
    auto weights = std::make_unique<LlmcWeights>(request.from);
    source.model = model_shape(weights->model());
    if (source.model.vocab == gpt2_end_of_text + 1) {
      source.tokens = {gpt2_end_of_text, {gpt2_end_of_text}, {}};
    }
    source.weights = std::move(weights);
    return source;
  }
  source.model = model_of(request.from);
  source.weights = open_weights(request.from, source.model, request.averages);
  source.tokens = read_special_tokens(request.from);
  source.type = read_model_type(request.from);
  return source;
}

std::int64_t parameters_of(const ModelShape& model) {
  std::int64_t count = 0;
  for (const HuggingFaceTensor& tensor : hugging_face_tensors(model, written_forms(model))) {
    if (!tensor.pieces.empty()) count += tensor.shape.numel();
  }
  return count;
}

void check_target(const ConvertRequest& request) {
  const FileKind kind = kind_of_file(request.to);
  const bool is_empty_folder =
      !request.to_llmc && kind == FileKind::folder && names_in(request.to).empty();
  const bool is_free = kind == FileKind::none || is_empty_folder;
  require(is_free, ExitCode::usage, request.to.string() + " exists already; nothing was written");
}

void check_expressible(const ModelShape& model, bool llmc) {
  const std::string reason = llmc ? unknown_to_llmc(model) : unknown_to_hugging_face(model);
  require(reason.empty(), ExitCode::unavailable,
          std::string(llmc ? "llm.c" : "transformers") + " cannot hold this model: " + reason);
}

/// A folder written under a temporary name and renamed when complete: a partial one would look like
/// a model and would block the next attempt.
class WholeFolder {
 public:
  explicit WholeFolder(const std::filesystem::path& target)
      : target_(target), path_(target.string() + ".unfinished-" + std::to_string(::getpid())) {
    std::error_code failure;
    if (target.has_parent_path()) {
      std::filesystem::create_directories(target.parent_path(), failure);
    }
    if (!failure) std::filesystem::create_directory(path_, failure);
    require(!failure, ExitCode::io, "cannot create " + path_.string() + ": " + failure.message());
  }
  ~WholeFolder() { remove_directory(path_); }
  WholeFolder(const WholeFolder&) = delete;
  WholeFolder& operator=(const WholeFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Renames the complete folder to its name. Throws Error{io}.
  void publish() const {
    std::error_code failure;
    std::filesystem::rename(path_, target_, failure);
    require(
        !failure, ExitCode::io,
        "cannot rename " + path_.string() + " to " + target_.string() + ": " + failure.message());
  }

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
};

std::filesystem::path without_last_slash(const std::filesystem::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

std::string convert_model(const ConvertRequest& request) {
  check_target(request);
  const Source source = open_source(request);
  check_expressible(source.model, request.to_llmc);
  std::string also;
  if (request.to_llmc) {
    write_llmc_model(request.to, source.model, *source.weights, request.stored);
  } else {
    const WholeFolder folder(without_last_slash(request.to));
    if (!request.from_llmc) {
      for (const std::string& name : copy_tokenizer(request.from, folder.path())) {
        also += ", " + name;
      }
    }
    write_model(folder.path(), source.model, *source.weights,
                {.stored = request.stored,
                 .shard_bytes = request.shard_bytes,
                 .tokens = source.tokens,
                 .type = source.type});
    folder.publish();
  }
  return request.to.string() + ": " +
         format_count(static_cast<double>(parameters_of(source.model))) + " parameters in " +
         std::string(name_of(request.stored)) + also;
}

}  // namespace trainctl
