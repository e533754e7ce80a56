#include "run/models/model_directory.h"

#include "base/error.h"
#include "base/file.h"
#include "config/schema/values.h"
#include "run/prepare.h"

namespace trainctl {

namespace {

/// What the schema requires beside the model and no generated text depends on.
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
    // The run has weights of its own; where it started from may be gone.
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
  moe.expert_group = ExpertGroup::sequence;
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

}  // namespace trainctl
