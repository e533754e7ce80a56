#include "run/run_dir.h"

#include <array>

#include "base/error.h"
#include "base/whole_file.h"
#include "weights/hugging_face_config.h"

namespace trainctl {

namespace {

constexpr std::array own_files{"config.yaml",       "plan.json",   "metrics.jsonl",
                               "model.safetensors", "config.json", "generation_config.json"};

}  // namespace

void prepare_run_dir(const std::filesystem::path& directory, bool overwrite) {
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  require(!failure, ExitCode::io,
          "cannot create the output folder " + directory.string() + ": " + failure.message());
  const bool has_run = std::filesystem::exists(directory / "metrics.jsonl", failure);
  require(overwrite || !has_run, ExitCode::usage,
          "the output folder " + directory.string() +
              " holds an earlier run; set output.overwrite: true or choose another output.dir");
  for (const char* name : own_files) std::filesystem::remove(directory / name, failure);
  if (has_run) {  // which started from a model that had them
    for (const char* name : tokenizer_files()) std::filesystem::remove(directory / name, failure);
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory, failure)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank-") && name.ends_with(".log")) {
      std::filesystem::remove(entry.path(), failure);
    }
  }
  write_whole_file(directory / "metrics.jsonl", "");
}

}  // namespace trainctl
