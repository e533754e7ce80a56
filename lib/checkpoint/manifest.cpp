#include "checkpoint/manifest.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/at.h"
#include "checkpoint/hash_bytes.h"

namespace trainctl {

namespace {

using Json = nlohmann::ordered_json;

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
  Json json{{"name", tensor.name},
            {"value", tensor.value},
            {"dtype", stored_name(tensor.dtype)},
            {"shape", to_json(whole_box(tensor.shape))[1]},
            {"pieces", std::move(pieces)}};
  if (!tensor.optimizer.empty()) json["optimizer"] = tensor.optimizer;
  return json;
}

Json to_json(const SavedFile& file) { return {{"name", file.name}, {"bytes", file.bytes}}; }

Json to_json(const TrainState& state) {
  return {{"step", state.step},
          {"samples", state.samples},
          {"tokens", state.tokens},
          {"positions", state.positions},
          {"labels", state.labels},
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

Json to_json(const RunLength& length) {
  const SchedulePace& pace = length.pace;
  return {{"tokens", length.tokens ? Json(*length.tokens) : Json()},
          {"epochs", length.epochs ? Json(*length.epochs) : Json()},
          {"schedule",
           {{"updates", pace.updates},
            {"position", pace.position},
            {"per_update", pace.per_update},
            {"end", pace.end}}}};
}

Json to_json(const SavedSource& source) {
  const SourcePosition& position = source.position;
  return {{"path", source.path},
          {"weight", source.weight},
          {"bytes", source.identity.bytes},
          {"xxh3", hex(source.identity.hash)},
          {"order", position.order},
          {"epoch", position.epoch},
          {"seq_length", position.seq_length},
          {"seed", hex(position.seed)},
          {"shuffle", position.shuffle},
          {"windows", position.windows},
          {"labels", position.labels}};
}

template <class T>
Json list_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(to_json(value));
  return list;
}

Json optional_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

}  // namespace

std::string_view stored_name(DType dtype) { return dtype == DType::bf16 ? "BF16" : "F32"; }

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
               {"format_version", manifest.strategy_hash ? manifest_version : 1},
               {"session", manifest.session},
               {"state", to_json(manifest.state)},
               {"loss", optional_of(manifest.loss)},
               {"val_loss", optional_of(manifest.val_loss)},
               {"steps", manifest.steps},
               {"optimizer", manifest.optimizer},
               {"plan_hash", hex(manifest.plan_hash)},
               {"layout", to_json(manifest.layout)},
               {"config_xxh3", hex(manifest.config_hash)}};
  if (manifest.length) content["length"] = to_json(*manifest.length);
  if (manifest.data) {
    content["data"] = {{"windows", manifest.data->windows},
                       {"pattern", manifest.data->pattern},
                       {"sources", list_of(manifest.data->sources)}};
    if (const auto& validation = manifest.data->validation) {
      content["data"]["validation"] = {{"path", validation->path},
                                       {"bytes", validation->identity.bytes},
                                       {"xxh3", hex(validation->identity.hash)}};
    }
  }
  if (manifest.strategy_hash) content["strategy_xxh3"] = hex(*manifest.strategy_hash);
  content["files"] = list_of(manifest.files);
  content["tensors"] = list_of(manifest.tensors);
  const std::string hash = hex(hash_bytes(content.dump()));
  return Json{{"manifest", std::move(content)}, {"xxh3", hash}}.dump(1) + "\n";
}

std::string pieces_text(const RankPieces& pieces) {
  return Json{{"file", to_json(pieces.file)}, {"tensors", list_of(pieces.tensors)}}.dump();
}

}  // namespace trainctl
