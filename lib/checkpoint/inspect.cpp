#include "checkpoint/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <string_view>

#include "base/at.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/rank_file.h"
#include "formats/print/print.h"
#include "plan/tables/model.h"
#include "weights/safetensors.h"

namespace trainctl {

namespace {

/// Adds the error of a damaged file; rethrows for an unreadable file, which may be intact.
void note_damage(const Error& error, std::vector<std::string>& wrong) {
  if (error.code() == ExitCode::io) throw error;
  wrong.emplace_back(error.what());
}

/// Compares a file's own header with the manifest's entries for its tensors.
void check_headers(const Manifest& manifest, const std::filesystem::path& directory,
                   std::vector<std::string>& wrong) {
  std::vector<std::size_t> listed(manifest.files.size());
  for (std::size_t number = 0; number < manifest.files.size(); ++number) {
    const std::filesystem::path path = directory / manifest.files[number].name;
    try {
      const SafetensorsFile file(path);
      for (const SavedTensor& tensor : manifest.tensors) {
        for (const SavedPiece& piece : tensor.pieces) {
          if (piece.file != static_cast<int>(number)) continue;
          ++listed[number];
          const std::string name = piece_name(tensor.value, tensor.name, piece.box);
          const Tensor found = file.contains(name) ? file.at(name) : Tensor{};
          if (found.empty() || found.shape != piece.box.extent) {
            wrong.push_back(path.string() + ": its header has no tensor '" + name + "' of shape " +
                            piece.box.extent.to_string());
          }
        }
      }
      if (file.names().size() != listed[number]) {
        wrong.push_back(formatted("{}: its header has {} tensors, the manifest {}", path.string(),
                                  file.names().size(), listed[number]));
      }
    } catch (const Error& error) {
      note_damage(error, wrong);
    }
  }
}

/// Reads a whole tensor into memory.
std::vector<float> whole_of(const SavedTensor& tensor, PieceReader& reader) {
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
  for (const SavedPiece& piece : tensor.pieces) {
    reader.copy(tensor, piece, piece.box, whole_box(tensor.shape), values.data());
  }
  return values;
}

TensorDifference compare(const SavedTensor& a, PieceReader& reader_a, const SavedTensor& b,
                         PieceReader& reader_b) {
  TensorDifference difference{a.name, a.value, "", 0, 0};
  if (a.shape != b.shape) {
    difference.what = a.shape.to_string() + " and " + b.shape.to_string();
    return difference;
  }
  const std::vector<float> left = whole_of(a, reader_a);
  const std::vector<float> right = whole_of(b, reader_b);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (std::memcmp(&left[i], &right[i], sizeof(float)) == 0) continue;
    ++difference.differing;
    const double apart = std::abs(static_cast<double>(left[i]) - static_cast<double>(right[i]));
    difference.largest = std::isnan(apart) ? apart : std::max(difference.largest, apart);
  }
  return difference;
}

}  // namespace

std::vector<std::string> verify_checkpoint(
    const std::filesystem::path& directory,
    const std::function<void(std::int64_t, std::int64_t)>& done) {
  std::vector<std::string> wrong;
  Manifest manifest;
  try {
    manifest = read_manifest(directory);
  } catch (const Error& error) {
    note_damage(error, wrong);
    return wrong;
  }
  check_headers(manifest, directory, wrong);
  PieceReader reader(manifest, directory);
  std::int64_t bytes = 0;
  for (const SavedTensor& tensor : manifest.tensors) {
    for (const SavedPiece& piece : tensor.pieces) {
      for (std::int64_t number = 0; number < std::ssize(piece.hashes); ++number) {
        try {
          reader.load(tensor, piece, number);
        } catch (const Error& error) {
          note_damage(error, wrong);
        }
      }
      bytes += tensor.bytes_of(piece);
      if (done) done(bytes, manifest.bytes());
    }
  }
  return wrong;
}

std::vector<TensorDifference> compare_checkpoints(const std::filesystem::path& a,
                                                  const std::filesystem::path& b) {
  const Manifest left = read_manifest(a);
  const Manifest right = read_manifest(b);
  PieceReader reader_a(left, a);
  PieceReader reader_b(right, b);
  std::vector<TensorDifference> differences;
  for (const SavedTensor& tensor : left.tensors) {
    const SavedTensor* other = right.find(tensor.name, tensor.value);
    if (other == nullptr) {
      differences.push_back({tensor.name, tensor.value, "only in " + a.string(), 0, 0});
      continue;
    }
    TensorDifference one = compare(tensor, reader_a, *other, reader_b);
    if (!one.what.empty() || one.differing > 0) differences.push_back(std::move(one));
  }
  for (const SavedTensor& tensor : right.tensors) {
    if (left.find(tensor.name, tensor.value) == nullptr) {
      differences.push_back({tensor.name, tensor.value, "only in " + b.string(), 0, 0});
    }
  }
  return differences;
}

namespace {

// Keys with these prefixes must not change, except `free_keys`.
constexpr std::string_view fixed_keys[] = {"model.", "moe.", "data.tokenizer"};
// Rates of dropout, and values that matter only before the first step or for the padding.
constexpr std::string_view free_keys[] = {"model.hidden_dropout",
                                          "model.attention_dropout",
                                          "model.embedding_dropout",
                                          "model.init_method_std",
                                          "model.make_vocab_size_divisible_by",
                                          "model.preset",
                                          "model.from",
                                          "model.seq_length"};
constexpr std::string_view ignored_keys[] = {"output.", "log.", "checkpoint.", "cluster."};

bool covers(std::span<const std::string_view> keys, const std::string& path) {
  return std::ranges::any_of(keys, [&](std::string_view key) { return path.starts_with(key); });
}

/// Whether both configurations describe the same model, apart from the free keys. A default value
/// may be given or left out.
bool have_same_shape(const Config& saved, const Config& now) {
  ModelConfig before = saved.model;
  const ModelConfig& after = now.model;
  before.seq_length = after.seq_length;
  before.hidden_dropout = after.hidden_dropout;
  before.attention_dropout = after.attention_dropout;
  before.embedding_dropout = after.embedding_dropout;
  before.init_method_std = after.init_method_std;
  before.make_vocab_size_divisible_by = after.make_vocab_size_divisible_by;
  return model_shape(before, saved.moe) == model_shape(after, now.moe);
}

std::string config_changes(const Config& saved, const Config& now, bool allowed) {
  std::map<std::string, std::string> before;
  for (const auto& [path, value] : config_values(saved)) before[path] = value;
  std::map<std::string, std::string> after;
  for (const auto& [path, value] : config_values(now)) after[path] = value;
  std::map<std::string, std::string> all = before;
  all.insert(after.begin(), after.end());
  const bool same_shape = have_same_shape(saved, now);
  const auto shown = [](const std::string& value) { return value.empty() ? "not given" : value; };
  std::string text;
  for (const auto& entry : all) {
    const std::string& path = entry.first;
    if (before[path] == after[path] || covers(ignored_keys, path)) continue;
    const bool one_given = before[path] == not_given || after[path] == not_given;
    if (same_shape && one_given && path.starts_with("model.") && !covers(free_keys, path)) continue;
    if (allowed != (!covers(fixed_keys, path) || covers(free_keys, path))) continue;
    text += formatted("\n  {}: {} in the checkpoint, {} now", path, shown(before[path]),
                      shown(after[path]));
  }
  return text;
}

}  // namespace

std::string allowed_changes(const Config& saved, const Config& now) {
  return config_changes(saved, now, true);
}
std::string refused_changes(const Config& saved, const Config& now) {
  return config_changes(saved, now, false);
}

}  // namespace trainctl
