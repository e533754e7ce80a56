#include <algorithm>
#include <bit>
#include <cassert>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "weights/hugging_face.h"
#include "weights/stored_weights.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;
using PlainJson = nlohmann::json;

constexpr std::int64_t max_index_bytes = 100'000'000;
constexpr int max_index_depth = 8;

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
  require(size <= max_index_bytes, ExitCode::bad_data,
          formatted("{} has {} bytes, too many for an index", path.string(), size));
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read_at(0, text);
  return text;
}

/// Maps each tensor to its file, as the index says.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const std::string where = path.string();
  std::vector<std::set<std::string>> open;
  const PlainJson::parser_callback_t watch = [&](int depth, PlainJson::parse_event_t event,
                                                 PlainJson& value) {
    require(depth <= max_index_depth, ExitCode::bad_data, where + " is nested too deeply");
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
    std::error_code failure;  // ignored; a dangling link counts as present
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

namespace {

constexpr std::size_t max_listed = 20;
constexpr std::int64_t max_config_bytes = 1 << 20;

using Found = FileTensor;
using Tensors = std::map<std::string, Found>;

/// In models with vision, names of the text's tensors begin with one of these prefixes.
constexpr std::pair<std::string_view, std::string_view> prefixes_of_text[] = {
    {"model.language_model.", "model."}, {"language_model.", ""}};
constexpr std::string_view parts_with_eyes[] = {
    "vision_tower.",       "multi_modal_projector.",       "visual.",
    "model.vision_tower.", "model.multi_modal_projector.", "model.visual."};

bool is_of_eyes(const std::string& name) {
  return std::ranges::any_of(parts_with_eyes,
                             [&](std::string_view part) { return name.starts_with(part); });
}

/// The name in a model of text alone; names without such a prefix stay as they are.
std::string name_in_text(const std::string& name) {
  for (const auto& [theirs, plain] : prefixes_of_text) {
    if (name.starts_with(theirs)) return std::string(plain) + name.substr(theirs.size());
  }
  return name;
}

std::string tensor_of(const Found& found, const std::string& name) {
  return found.file->path().string() + ": tensor '" + name + "'";
}

/// The name that a tensor has in its file.
std::string name_in_file(const Found& found) {
  for (const auto& [name, entry] : found.file->entries()) {
    if (&entry == found.entry) return name;
  }
  return "";
}

/// All tensors by their names in models of text. The other tensors of a model with vision are left
/// out, and a log line counts them. Throws Error{bad_data} if two tensors get the same name.
Tensors all_tensors(const std::vector<SafetensorsFile>& files) {
  Tensors tensors;
  bool sees = false;
  std::int64_t left_out = 0;
  for (const SafetensorsFile& file : files) {
    for (const auto& [name, entry] : file.entries()) sees = sees || name_in_text(name) != name;
  }
  for (const SafetensorsFile& file : files) {
    for (const auto& [name, entry] : file.entries()) {
      const bool skipped = sees && is_of_eyes(name);
      left_out += skipped ? 1 : 0;
      if (skipped) continue;
      const std::string plain = sees ? name_in_text(name) : name;
      const Found found{&file, &entry};
      const auto [other, is_first] = tensors.emplace(plain, found);
      require(is_first, ExitCode::bad_data,
              tensor_of(found, name) + " and '" + name_in_file(other->second) + "' are both '" +
                  plain + "' of the model of text");
    }
  }
  if (left_out > 0) {
    log_info(formatted("{}: {} tensors of images are left out",
                       files.front().path().parent_path().string(), left_out));
  }
  return tensors;
}

/// Finds a tensor; the original GPT-2 files have no "transformer." prefix.
const Found* find(const Tensors& tensors, const std::string& name, std::string& stored_name) {
  constexpr std::string_view prefix = "transformer.";
  stored_name = name;
  auto found = tensors.find(name);
  if (found == tensors.end() && name.starts_with(prefix)) {
    found = tensors.find(name.substr(prefix.size()));
    if (found != tensors.end()) stored_name = found->first;
  }
  return found == tensors.end() ? nullptr : &found->second;
}

TensorForms forms_of(const Tensors& tensors) {
  TensorForms forms;
  for (const auto& [name, tensor] : tensors) note_form(name, forms);
  return forms;
}

/// Why the tensor does not fit the model, or "". `scaled`: the files may have 8 bits with scales.
std::string mismatch(const Found& found, const std::string& name, const HuggingFaceTensor& wanted,
                     bool scaled) {
  const SafetensorsEntry& entry = *found.entry;
  const std::string is = formatted("{} at byte {} is {} {}", tensor_of(found, name), entry.offset,
                                   entry.shape.to_string(), entry.stored);
  if (entry.shape != wanted.shape) return is + ", the model needs " + wanted.shape.to_string();
  if (needs_scales(entry) && entry.shape.rank() == 2 && !wanted.transposed) {
    return scaled ? "" : is + ", which needs a quantization_config of fp8 in config.json";
  }
  if (!entry.dtype || !is_weight_type(*entry.dtype)) return is + ", expected F32, BF16 or F16";
  return "";
}

/// The name of a matrix's scales, for example "model.layers.0.mlp.up_proj.weight_scale_inv".
std::string name_of_scales(const std::string& name) { return name + "_scale_inv"; }

/// Sets the scales of a tensor that needs them. Returns why they do not fit its blocks, or "".
std::string find_scales(const Tensors& tensors, const std::string& name, ScaledTensor& tensor) {
  const std::string scales = name_of_scales(name);
  const auto found = tensors.find(scales);
  if (found == tensors.end()) {
    return tensor_of(tensor.values, name) + " is F8_E4M3 and needs '" + scales +
           "', which is missing";
  }
  const SafetensorsEntry& entry = *found->second.entry;
  const Shape wanted = shape_of_scales(tensor.values.entry->shape, tensor.blocks);
  const bool one = wanted.rank() == 0 && entry.shape == Shape{1};
  const std::string is =
      tensor_of(found->second, scales) + " is " + entry.shape.to_string() + " " + entry.stored;
  if (entry.shape != wanted && !one) {
    return is + ", the blocks of quantization_config need " + wanted.to_string();
  }
  if (!can_be_scales(entry)) return is + ", expected F32, BF16, F16 or F8_E8M0";
  tensor.scales = found->second;
  return "";
}

constexpr const char* head_name = "lm_head.weight";

/// Whether the tensor is a tied model's embedding, for which a file may have only the head.
bool is_tied_embedding(const HuggingFaceTensor& wanted, const ModelShape& model) {
  return model.tied && wanted.pieces.size() == 1 &&
         wanted.pieces.front().ours == "embedding.token.weight";
}

/// Why a tied model's head is not bit-identical to its embedding in fp32; "" if it is.
std::string other_head(const Found& head, const Found& embedding, const HuggingFaceTensor& wanted) {
  std::string problem = mismatch(head, head_name, wanted, false);
  if (!problem.empty()) return problem;
  const std::int64_t width = wanted.shape[1];
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, elements_at_a_time / width);
  std::vector<float> one, other;
  for (std::int64_t row = 0; row < wanted.shape[0]; row += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, wanted.shape[0] - row);
    const MatrixBox box{.row = row, .rows = rows, .column = 0, .columns = width};
    one.resize(static_cast<std::size_t>(box.elements()));
    other.resize(one.size());
    read_tensor({head}, box, false, one.data());
    read_tensor({embedding}, box, false, other.data());
    for (std::size_t i = 0; i < one.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(one[i]) == std::bit_cast<std::uint32_t>(other[i])) continue;
      return formatted(
          "{} differs from the embedding in row {}, and config.json ties them; set "
          "tie_word_embeddings to false there to keep both, or remove the head",
          tensor_of(head, head_name), row + static_cast<std::int64_t>(i) / width);
    }
  }
  return "";
}

/// Whether these are scales of activations, which are unused: products here have no 8-bit format.
bool is_scale_of_activations(const std::string& name) {
  return name.ends_with(".activation_scale") || name.ends_with(".input_scale");
}

/// Why a bias that the model does not have must not be in the file; "" if it is zero.
std::string not_zero(const Found& found, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(found.entry->shape.numel()));
  read_tensor({found}, {.rows = std::ssize(values)}, false, values.data());
  const bool zeros = std::all_of(values.begin(), values.end(), [](float x) { return x == 0.0F; });
  return zeros ? "" : tensor_of(found, name) + " is not zero, and the model has no such bias";
}

/// The blocks of scales by the directory's config.json; nothing if that file does not exist.
std::optional<HuggingFaceBlocks> blocks_of_model(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "config.json";
  if (kind_of_file(file) != FileKind::regular) return std::nullopt;
  return read_hugging_face_blocks(read_beginning(file, max_config_bytes));
}

void refuse(const std::filesystem::path& directory, const std::vector<std::string>& wrong) {
  if (wrong.empty()) return;
  std::string text = directory.string() + " does not hold the model's weights:";
  for (std::size_t i = 0; i < std::min(wrong.size(), max_listed); ++i) text += "\n  " + wrong[i];
  if (wrong.size() > max_listed) {
    text += formatted("\n  and {} more", wrong.size() - max_listed);
  }
  throw Error(ExitCode::bad_data, text);
}

}  // namespace

/// The place of some rows of one of our parameters.
struct HuggingFaceWeights::Part {
  ScaledTensor tensor{};
  std::int64_t begin = 0, end = 0;  // rows of our parameter
  std::int64_t first = 0;           // output row of the tensor that holds row `begin`
  bool transposed = false;
};

HuggingFaceWeights::HuggingFaceWeights(const std::filesystem::path& directory,
                                       const ModelShape& model)
    : files_(open_model_files(directory)) {
  const Tensors tensors = all_tensors(files_);
  const std::optional<HuggingFaceBlocks> blocks = blocks_of_model(directory);
  std::vector<std::string> wrong;
  std::set<std::string> known;
  for (const HuggingFaceTensor& wanted : hugging_face_tensors(model, forms_of(tensors))) {
    std::string name;
    const Found* found = find(tensors, wanted.name, name);
    const bool tied = is_tied_embedding(wanted, model);
    const auto head = tied ? tensors.find(head_name) : tensors.end();
    if (found == nullptr && head != tensors.end()) {
      name = head_name;
      found = &head->second;
    }
    known.insert(name);
    if (head != tensors.end()) known.insert(head_name);
    if (found == nullptr) {
      if (!wanted.pieces.empty()) wrong.push_back("tensor '" + wanted.name + "' is missing");
      continue;
    }
    std::string problem = mismatch(*found, name, wanted, blocks.has_value());
    ScaledTensor tensor{.values = *found, .blocks = blocks.value_or(HuggingFaceBlocks{})};
    if (problem.empty() && needs_scales(*found->entry)) {
      problem = find_scales(tensors, name, tensor);
      known.insert(name_of_scales(name));
    }
    if (problem.empty() && wanted.pieces.empty()) problem = not_zero(*found, name);
    if (problem.empty() && head != tensors.end() && name != head_name) {
      problem = other_head(head->second, *found, wanted);
    }
    if (!problem.empty()) wrong.push_back(problem);
    std::int64_t first = 0;
    for (const HuggingFaceTensor::Piece& piece : wanted.pieces) {
      parts_[piece.ours].push_back(
          {tensor, piece.first, piece.first + piece.rows, first, wanted.transposed});
      first += piece.rows;
    }
  }
  std::int64_t left_out = 0;
  for (const auto& [name, found] : tensors) {
    if (known.contains(name) || is_ignored_there(name, model)) continue;
    if (blocks && is_scale_of_activations(name)) {
      ++left_out;
      continue;
    }
    wrong.push_back(tensor_of(found, name) + " is not a tensor of this model");
  }
  refuse(directory, wrong);
  if (left_out > 0) {
    log_info(formatted(
        "{}: {} scales of activations are left out: products here have activations as they are",
        directory.string(), left_out));
  }
}

HuggingFaceWeights::~HuggingFaceWeights() = default;

void HuggingFaceWeights::read(const std::string& name, const MatrixBox& box, float* out) const {
  const auto found = parts_.find(name);
  require(found != parts_.end(), ExitCode::internal, "no stored tensor for " + name);
  for (const Part& part : found->second) {
    const std::int64_t begin = std::max(box.row, part.begin);
    const std::int64_t rows = std::min(box.row + box.rows, part.end) - begin;
    if (rows <= 0) continue;
    const std::int64_t row = begin - part.begin + part.first;
    MatrixBox there{.row = row, .rows = rows, .column = box.column, .columns = box.columns};
    if (part.transposed) {
      there = {.row = box.column, .rows = box.columns, .column = row, .columns = rows};
    }
    read_tensor(part.tensor, there, part.transposed, out + (begin - box.row) * box.columns);
  }
}

}  // namespace trainctl
