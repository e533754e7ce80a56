#include "checkpoint/manifest.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/at.h"
#include "base/error.h"
#include "checkpoint/coverage.h"
#include "checkpoint/hash_bytes.h"
#include "checkpoint/manifest_node.h"

namespace trainctl {

namespace {

using Json = ManifestJson;

constexpr int format_version = 1;

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

Json to_json(const Box& box) {
  Json begin = Json::array();
  Json extent = Json::array();
  for (int dim = 0; dim < box.extent.rank(); ++dim) {
    begin.push_back(at(box.begin, dim));
    extent.push_back(box.extent[dim]);
  }
  return {begin, extent};
}

Json to_json(const SavedPiece& piece) {
  const Json box = to_json(piece.box);
  Json hashes = Json::array();
  for (const std::uint64_t hash : piece.hashes) hashes.push_back(hex(hash));
  return {{"file", piece.file},
          {"offset", piece.offset},
          {"begin", box[0]},
          {"extent", box[1]},
          {"xxh3", std::move(hashes)}};
}

Json to_json(const SavedTensor& tensor) {
  Json pieces = Json::array();
  for (const SavedPiece& piece : tensor.pieces) pieces.push_back(to_json(piece));
  return {{"name", tensor.name},
          {"value", tensor.value},
          {"dtype", "F32"},
          {"shape", to_json(whole_box(tensor.shape))[1]},
          {"pieces", std::move(pieces)}};
}

Json to_json(const SavedFile& file) { return {{"name", file.name}, {"bytes", file.bytes}}; }

Json to_json(const TrainState& state) {
  return {{"step", state.step},
          {"samples", state.samples},
          {"tokens", state.tokens},
          {"updates", state.updates},
          {"loss_scale", state.loss_scale},
          {"good_steps", state.good_steps},
          {"hysteresis", state.hysteresis},
          {"skipped_in_row", state.skipped_in_row}};
}

Json to_json(const SavedLayout& layout) {
  return {{"ranks", layout.ranks},
          {"tp", layout.tp},
          {"cp", layout.cp},
          {"dp", layout.dp},
          {"pp", layout.pp},
          {"chunks", layout.chunks},
          {"schedule", layout.schedule},
          {"compute", layout.compute},
          {"parallel_optimizer", layout.parallel_optimizer}};
}

template <class T>
Json list_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(to_json(value));
  return list;
}

Json optional_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

SavedPiece read_piece(const ManifestNode& node, const Shape& whole, std::int64_t files) {
  SavedPiece piece;
  piece.file = static_cast<int>(node["file"].count(files - 1));
  piece.offset = node["offset"].count();
  piece.box.extent = node["extent"].shape();
  const std::vector<ManifestNode> begin = node["begin"].list();
  require(std::ssize(begin) == whole.rank() && piece.box.extent.rank() == whole.rank(),
          ExitCode::bad_data,
          node.where() + ": the tensor has " + std::to_string(whole.rank()) + " dimensions");
  for (int dim = 0; dim < whole.rank(); ++dim) {
    at(piece.box.begin, dim) = at(begin, dim).count(most_extent);
    require(piece.box.end(dim) <= whole[dim], ExitCode::bad_data,
            node.where() + ": the box " + piece.box.to_string() +
                " is not within the tensor of shape " + whole.to_string());
  }
  const std::int64_t bytes = piece.box.numel() * 4;
  for (const ManifestNode& hash : node["xxh3"].list()) piece.hashes.push_back(hash.hash());
  require(std::ssize(piece.hashes) == (bytes + hashed_bytes - 1) / hashed_bytes, ExitCode::bad_data,
          node.where() + ": " + std::to_string(piece.hashes.size()) + " hashes for " +
              std::to_string(bytes) + " bytes");
  return piece;
}

SavedTensor read_tensor(const ManifestNode& node, std::int64_t files) {
  SavedTensor tensor;
  tensor.name = node["name"].text();
  tensor.value = node["value"].text();
  const std::string dtype = node["dtype"].text();
  require(dtype == "F32", ExitCode::bad_data,
          node.where() + ": " + tensor.name + " has dtype " + dtype + "; only F32 can be read");
  tensor.shape = node["shape"].shape();
  for (const ManifestNode& piece : node["pieces"].list()) {
    tensor.pieces.push_back(read_piece(piece, tensor.shape, files));
  }
  return tensor;
}

SavedFile read_file(const ManifestNode& node) {
  SavedFile file{node["name"].text(), node["bytes"].count()};
  const std::filesystem::path name(file.name);
  require(!file.name.empty() && name.filename() == name && file.name != "." && file.name != "..",
          ExitCode::bad_data,
          node.where() + ": '" + file.name + "' must be a file name without a directory");
  return file;
}

TrainState read_state(const ManifestNode& node) {
  return {.step = node["step"].count(),
          .samples = node["samples"].count(),
          .tokens = node["tokens"].count(),
          .updates = node["updates"].count(),
          .loss_scale = node["loss_scale"].real(),
          .good_steps = node["good_steps"].count(),
          .hysteresis = node["hysteresis"].count(),
          .skipped_in_row = node["skipped_in_row"].count()};
}

SavedLayout read_layout(const ManifestNode& node) {
  return {.ranks = node["ranks"].count(),
          .tp = node["tp"].count(),
          .cp = node["cp"].count(),
          .dp = node["dp"].count(),
          .pp = node["pp"].count(),
          .chunks = static_cast<int>(node["chunks"].count(1 << 20)),
          .schedule = node["schedule"].text(),
          .compute = node["compute"].text(),
          .parallel_optimizer = node["parallel_optimizer"].flag()};
}

}  // namespace

std::string SavedLayout::to_string() const {
  std::string text = std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
  std::string axes;
  const auto add = [&](const char* name, std::int64_t size) {
    if (size > 1)
      axes += std::string(axes.empty() ? ": " : ", ") + name + " " + std::to_string(size);
  };
  add("tp", tp);
  add("cp", cp);
  add("dp", dp);
  add("pp", pp);
  add("chunks", chunks);
  return text + axes + ", " + compute;
}

std::int64_t Manifest::bytes() const {
  std::int64_t all = 0;
  for (const SavedFile& file : files) all += file.bytes;
  return all;
}

const SavedTensor* Manifest::find(const std::string& name, const std::string& value) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const SavedTensor& tensor) {
    return tensor.name == name && tensor.value == value;
  });
  return found == tensors.end() ? nullptr : &*found;
}

std::string manifest_text(const Manifest& manifest) {
  Json content{{"format", "trainctl checkpoint"},
               {"format_version", format_version},
               {"state", to_json(manifest.state)},
               {"loss", optional_of(manifest.loss)},
               {"val_loss", optional_of(manifest.val_loss)},
               {"steps", manifest.steps},
               {"optimizer", manifest.optimizer},
               {"plan_hash", hex(manifest.plan_hash)},
               {"layout", to_json(manifest.layout)},
               {"config_xxh3", hex(manifest.config_hash)},
               {"files", list_of(manifest.files)},
               {"tensors", list_of(manifest.tensors)}};
  const std::string hash = hex(hash_bytes(content.dump()));
  return Json{{"manifest", std::move(content)}, {"xxh3", hash}}.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  const Json document = parse_manifest_json(text, where);
  const ManifestNode root(document, where);
  const ManifestNode node = root["manifest"];
  const Json& content = document["manifest"];
  require(content.is_object() && content.value("format", Json()) == "trainctl checkpoint",
          ExitCode::bad_data, where + " is not the manifest of a checkpoint");
  const std::int64_t version = node["format_version"].count();
  require(version == format_version, ExitCode::bad_data,
          where + ": format_version " + std::to_string(version) + "; this program reads version " +
              std::to_string(format_version));
  require(
      hash_bytes(content.dump()) == root["xxh3"].hash(), ExitCode::bad_data,
      where + ": the content does not have the hash at its end; the file was changed or damaged");
  Manifest manifest;
  manifest.state = read_state(node["state"]);
  manifest.loss = node["loss"].optional_real();
  manifest.val_loss = node["val_loss"].optional_real();
  manifest.steps = node["steps"].count();
  manifest.optimizer = node["optimizer"].text();
  manifest.plan_hash = node["plan_hash"].hash();
  manifest.layout = read_layout(node["layout"]);
  manifest.config_hash = node["config_xxh3"].hash();
  for (const ManifestNode& file : node["files"].list()) manifest.files.push_back(read_file(file));
  for (const ManifestNode& tensor : node["tensors"].list()) {
    manifest.tensors.push_back(read_tensor(tensor, std::ssize(manifest.files)));
  }
  check_coverage(manifest, where);
  return manifest;
}

std::string pieces_text(const RankPieces& pieces) {
  return Json{{"file", to_json(pieces.file)}, {"tensors", list_of(pieces.tensors)}}.dump();
}

void add_pieces(Manifest& manifest, const std::string& text) {
  const Json document = parse_manifest_json(text, "the pieces of a rank");
  const ManifestNode node(document, "the pieces of a rank");
  const int number = static_cast<int>(manifest.files.size());
  manifest.files.push_back(read_file(node["file"]));
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    known[{manifest.tensors[i].name, manifest.tensors[i].value}] = i;
  }
  for (const ManifestNode& entry : node["tensors"].list()) {
    SavedTensor tensor = read_tensor(entry, 1);
    for (SavedPiece& piece : tensor.pieces) piece.file = number;
    const auto [found, fresh] =
        known.try_emplace({tensor.name, tensor.value}, manifest.tensors.size());
    if (fresh) {
      manifest.tensors.push_back(std::move(tensor));
    } else {
      auto& pieces = manifest.tensors[found->second].pieces;
      std::move(tensor.pieces.begin(), tensor.pieces.end(), std::back_inserter(pieces));
    }
  }
}

}  // namespace trainctl
