#include "weights/hugging_face_files.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;
using PlainJson = nlohmann::json;

constexpr std::int64_t most_index_bytes = 100'000'000;
constexpr int most_index_depth = 8;

/// Whether `file` lies in `folder`, both without symbolic links.
bool lies_in(const fs::path& file, const fs::path& folder) {
  auto at = file.begin();
  for (const fs::path& step : folder) {
    if (at == file.end() || *at++ != step) return false;
  }
  return at != file.end();
}

std::string read_text(const fs::path& path) {
  const File file = File::open_to_read(path);
  const std::int64_t size = file.size();
  require(size <= most_index_bytes, ExitCode::bad_data,
          path.string() + " has " + std::to_string(size) + " bytes, too many for an index");
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read_at(0, text);
  return text;
}

/// tensor -> file of the index.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const std::string where = path.string();
  std::vector<std::set<std::string>> open;
  const PlainJson::parser_callback_t watch = [&](int depth, PlainJson::parse_event_t event,
                                                 PlainJson& value) {
    require(depth <= most_index_depth, ExitCode::bad_data, where + " is nested too deeply");
    if (event == PlainJson::parse_event_t::object_start) open.emplace_back();
    if (event == PlainJson::parse_event_t::object_end) open.pop_back();
    if (event == PlainJson::parse_event_t::key) {
      const auto name = value.get<std::string>();
      require(open.back().insert(name).second, ExitCode::bad_data,
              where + ": '" + name + "' is given twice");
    }
    return true;
  };
  const std::string text = read_text(path);
  require(text.find('\0') == std::string::npos, ExitCode::bad_data, where + " has a byte of 0");
  const PlainJson index = PlainJson::parse(text, watch, false);
  require(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object() &&
              !index["weight_map"].empty(),
          ExitCode::bad_data, where + ": expected an object with a weight_map of tensors to files");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    require(file.is_string(), ExitCode::bad_data,
            where + ": tensor '" + tensor + "': expected the name of a file");
    const auto name = file.get<std::string>();
    const bool plain = !name.empty() &&
                       name.find_first_of(std::string("/\\\0", 3)) == std::string::npos &&
                       name != "." && name != "..";
    require(plain, ExitCode::bad_data,
            where + ": tensor '" + tensor + "': \"" + name + "\" is not a file of this directory");
    files[tensor] = name;
  }
  return files;
}

void check_against_index(const std::vector<SafetensorsFile>& shards,
                         const std::map<std::string, std::string>& index, const fs::path& path) {
  std::map<std::string, std::string> found;
  for (const SafetensorsFile& shard : shards) {
    const std::string file = shard.path().filename().string();
    for (const auto& [tensor, entry] : shard.entries()) {
      const auto listed = index.find(tensor);
      require(listed != index.end() && listed->second == file, ExitCode::bad_data,
              shard.path().string() + ": tensor '" + tensor + "' is not in " + path.string() +
                  (listed == index.end() ? "" : ", which has it in " + listed->second));
      found[tensor] = file;
    }
  }
  for (const auto& [tensor, file] : index) {
    require(found.contains(tensor), ExitCode::bad_data,
            (path.parent_path() / file).string() + " has no tensor '" + tensor + "', which " +
                path.string() + " lists");
  }
}

std::vector<SafetensorsFile> open_shards(const fs::path& directory, const fs::path& index_path) {
  check_inside(directory, index_path);
  const auto index = read_index(index_path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  std::vector<SafetensorsFile> shards;
  for (const std::string& name : names) {
    check_inside(directory, directory / name);
    shards.emplace_back(directory / name);
  }
  check_against_index(shards, index, index_path);
  return shards;
}

bool is_pickle(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with("pytorch_model") && file.extension() == ".bin";
}

[[noreturn]] void no_weights(const fs::path& directory) {
  for (const std::string& name : names_in(directory)) {
    require(!is_pickle(name), ExitCode::missing_input,
            directory.string() + " has its weights only as a pickle, " + name +
                ", which can run any code and is never read here. Convert it where you trust it: "
                "python3 -c \"from transformers import AutoModelForCausalLM as M; "
                "M.from_pretrained('" +
                directory.string() + "').save_pretrained('" + directory.string() +
                "-safetensors')\"");
  }
  const bool is_run = kind_of_file(directory / "config.yaml") != FileKind::none;
  throw Error(ExitCode::missing_input,
              directory.string() + " has neither " +
                  (is_run ? "a complete checkpoint nor model.safetensors; checkpoint.every "
                            "and checkpoint.at_end say when train saves one"
                          : "model.safetensors nor model.safetensors.index.json"));
}

}  // namespace

void check_inside(const fs::path& directory, const fs::path& file) {
  std::error_code failure;
  const fs::path real = fs::canonical(file, failure);
  require(!failure, ExitCode::missing_input,
          "cannot open " + file.string() + ": " + failure.message());
  fs::path folder = fs::canonical(directory, failure);
  require(!failure, ExitCode::missing_input,
          "cannot open " + directory.string() + ": " + failure.message());
  const bool in_hub = folder.parent_path().filename() == "snapshots";
  if (in_hub) folder = folder.parent_path().parent_path();
  require(lies_in(real, folder), ExitCode::bad_data,
          file.string() + " leads out of its directory, to " + real.string());
  require(kind_of_file(real) == FileKind::regular, ExitCode::bad_data,
          file.string() + " is not a regular file");
}

std::vector<SafetensorsFile> open_model_files(const fs::path& directory) {
  require(kind_of_file(directory) == FileKind::folder, ExitCode::missing_input,
          "no model directory " + directory.string());
  const auto there = [&](const char* name) {
    std::error_code failure;  // a link that leads nowhere is there, too
    return kind_of_file(directory / name) != FileKind::none ||
           fs::is_symlink(fs::symlink_status(directory / name, failure));
  };
  if (there("model.safetensors")) {
    check_inside(directory, directory / "model.safetensors");
    std::vector<SafetensorsFile> files;
    files.emplace_back(directory / "model.safetensors");
    return files;
  }
  if (there("model.safetensors.index.json")) {
    return open_shards(directory, directory / "model.safetensors.index.json");
  }
  no_weights(directory);
}

}  // namespace trainctl
