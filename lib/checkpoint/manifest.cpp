#include "checkpoint/manifest.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/at.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/text.h"
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
  const auto found = std::ranges::find_if(tensors, [&](const SavedTensor& tensor) {
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
  const std::string hash = hex(hash_bytes(json_text(content, JsonText::Style::compact)));
  return json_text(Json{{"manifest", std::move(content)}, {"xxh3", hash}},
                   JsonText::Style::indent_1) +
         "\n";
}

std::string pieces_text(const SavedFile& file, const std::vector<SavedTensor>& tensors) {
  return json_text(Json{{"file", to_json(file)}, {"tensors", list_of(tensors)}},
                   JsonText::Style::compact);
}

// Checks that the pieces of a manifest lie within their files and make up their tensors.

namespace {

std::string title(const SavedTensor& tensor) { return tensor.value + " of " + tensor.name; }

/// Throws if two pieces share an element. Pieces are sorted by first row, and each is compared only
/// with those earlier ones that reach its first row.
void check_disjoint(const SavedTensor& tensor, const std::string& where) {
  if (tensor.shape.rank() == 0) return;
  std::vector<const SavedPiece*> sorted;
  for (const SavedPiece& piece : tensor.pieces) sorted.push_back(&piece);
  std::ranges::sort(
      sorted, [](const SavedPiece* a, const SavedPiece* b) { return a->box.begin < b->box.begin; });
  std::vector<const SavedPiece*> open;
  for (const SavedPiece* piece : sorted) {
    std::erase_if(
        open, [&](const SavedPiece* other) { return other->box.end(0) <= piece->box.begin[0]; });
    for (const SavedPiece* other : open) {
      require(intersection(piece->box, other->box).numel() == 0, ExitCode::bad_data,
              where + ": two pieces of " + title(tensor) + " overlap: " + other->box.to_string() +
                  " and " + piece->box.to_string());
    }
    open.push_back(piece);
  }
}

/// Throws Error{bad_data}, naming `where`, the file, the tensor and the place, unless every tensor
/// is listed once, its pieces hold each element once, and every piece lies within its file.
void check_coverage(const Manifest& manifest, const std::string& where) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const SavedTensor& tensor : manifest.tensors) {
    require(seen.emplace(tensor.name, tensor.value).second, ExitCode::bad_data,
            where + ": " + title(tensor) + " is listed twice");
    check_disjoint(tensor, where);
    std::int64_t elements = 0;  // sum over all pieces; at most that of the shape, as no two overlap
    for (const SavedPiece& piece : tensor.pieces) {
      const SavedFile& file = at(manifest.files, piece.file);
      const std::int64_t bytes = tensor.bytes_of(piece);
      require(bytes > 0 && piece.offset <= file.bytes && bytes <= file.bytes - piece.offset,
              ExitCode::bad_data,
              formatted("{}: the piece {} of {} has {} bytes at offset {}, but {} has {} bytes",
                        where, piece.box.to_string(), title(tensor), bytes, piece.offset, file.name,
                        file.bytes));
      elements += piece.box.numel();
    }
    require(elements == tensor.shape.numel(), ExitCode::bad_data,
            formatted("{}: the pieces of {} have {} of its {} elements", where, title(tensor),
                      elements, tensor.shape.numel()));
  }
}

using Json = nlohmann::ordered_json;

constexpr std::int64_t max_extent = std::int64_t{1} << 40;  // the largest size of a dimension
constexpr std::int64_t max_elements = std::int64_t{1} << 56;
constexpr int max_nesting = 16;

/// The deepest nesting of lists and objects, outside of strings.
int nesting_of(const std::string& text) {
  int depth = 0;
  int deepest = 0;
  bool inside = false;  // inside a string
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (inside && letter == '\\') {
      ++i;
    } else if (letter == '"') {
      inside = !inside;
    } else if (!inside && (letter == '[' || letter == '{')) {
      deepest = std::max(deepest, ++depth);
    } else if (!inside && (letter == ']' || letter == '}')) {
      --depth;
    }
  }
  return deepest;
}

/// A value of a manifest with its place, which messages name. Every reader throws Error{bad_data}
/// with the place for a value of another kind.
class Node {
 public:
  Node(const Json& value, std::string where) : value_(value), where_(std::move(where)) {}

  Node operator[](const char* key) const {
    require(value_.is_object() && value_.contains(key), ExitCode::bad_data,
            where_ + ": '" + key + "' is missing");
    return {value_.at(key), where_ + ": " + key};
  }

  bool has(const char* key) const { return value_.is_object() && value_.contains(key); }
  std::vector<Node> list() const {
    require(value_.is_array(), ExitCode::bad_data, where_ + " must be a list");
    std::vector<Node> nodes;
    for (std::size_t i = 0; i < value_.size(); ++i) {
      nodes.emplace_back(value_[i], formatted("{}[{}]", where_, i));
    }
    return nodes;
  }

  std::int64_t count(std::int64_t most = std::int64_t{1} << 62) const {
    require(
        value_.is_number_unsigned() &&
            value_.get<std::uint64_t>() <= static_cast<std::uint64_t>(most),
        ExitCode::bad_data,
        formatted("{} must be a whole number from 0 to {}, not {}", where_, most, value_.dump()));
    return value_.get<std::int64_t>();
  }

  bool is_null() const { return value_.is_null(); }
  double real() const {
    require(value_.is_number(), ExitCode::bad_data, where_ + " must be a number");
    return value_.get<double>();
  }

  std::optional<double> optional_real() const {
    return value_.is_null() ? std::nullopt : std::optional(real());
  }

  bool flag() const {
    require(value_.is_boolean(), ExitCode::bad_data, where_ + " must be true or false");
    return value_.get<bool>();
  }

  /// A text without control characters, since messages show it.
  std::string text() const {
    require(value_.is_string(), ExitCode::bad_data, where_ + " must be a string");
    std::string text = value_.get<std::string>();
    const bool clean = std::ranges::none_of(text, [](char letter) {
      return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f;
    });
    require(clean, ExitCode::bad_data, where_ + " has control characters: " + value_.dump());
    return text;
  }

  std::uint64_t hash() const {
    const std::string digits = text();
    require(
        digits.size() == 16 && digits.find_first_not_of("0123456789abcdef") == std::string::npos,
        ExitCode::bad_data, where_ + " must be 16 hexadecimal digits");
    return std::stoull(digits, nullptr, 16);
  }

  Shape shape() const {
    const std::vector<Node> dims = list();
    require(std::ssize(dims) <= Shape::max_rank, ExitCode::bad_data,
            formatted("{} has more than {} dimensions", where_, Shape::max_rank));
    std::int64_t product = 1;
    Shape shape;
    switch (dims.size()) {
      case 1: shape = {1}; break;
      case 2: shape = {1, 1}; break;
      case 3: shape = {1, 1, 1}; break;
      case 4: shape = {1, 1, 1, 1}; break;
      default: break;
    }
    for (int dim = 0; dim < shape.rank(); ++dim) {
      shape[dim] = at(dims, dim).count(max_extent);
      require(!__builtin_mul_overflow(product, shape[dim], &product) && product <= max_elements,
              ExitCode::bad_data, where_ + " is too large");
    }
    return shape;
  }

  const std::string& where() const { return where_; }

 private:
  const Json& value_;
  std::string where_;
};

Json parse_json(const std::string& text, const std::string& where) {
  // The depth is limited, since writing a value takes stack for each level.
  require(nesting_of(text) <= max_nesting, ExitCode::bad_data,
          formatted("{} is nested deeper than {} levels", where, max_nesting));
  // The JSON library would take a byte of 0 for the end of the text.
  require(text.find('\0') == std::string::npos, ExitCode::bad_data, where + " has a byte of 0");
  Json document = Json::parse(text, nullptr, false);
  require(!document.is_discarded(), ExitCode::bad_data, where + " is not JSON, or cut off");
  return document;
}

SavedPiece read_piece(const Node& node, const Shape& whole, DType dtype, std::int64_t files) {
  SavedPiece piece;
  piece.file = static_cast<int>(node["file"].count(files - 1));
  piece.offset = node["offset"].count();
  piece.box.extent = node["extent"].shape();
  const std::vector<Node> begin = node["begin"].list();
  require(std::ssize(begin) == whole.rank() && piece.box.extent.rank() == whole.rank(),
          ExitCode::bad_data,
          formatted("{}: the tensor has {} dimensions", node.where(), whole.rank()));
  for (int dim = 0; dim < whole.rank(); ++dim) {
    at(piece.box.begin, dim) = at(begin, dim).count(max_extent);
    require(piece.box.end(dim) <= whole[dim], ExitCode::bad_data,
            node.where() + ": the box " + piece.box.to_string() +
                " is not within the tensor of shape " + whole.to_string());
  }
  const std::int64_t bytes = piece.box.numel() * size_of(dtype);
  for (const Node& hash : node["xxh3"].list()) piece.hashes.push_back(hash.hash());
  require(std::ssize(piece.hashes) == (bytes + hashed_bytes - 1) / hashed_bytes, ExitCode::bad_data,
          formatted("{}: {} hashes for {} bytes", node.where(), piece.hashes.size(), bytes));
  return piece;
}

SavedTensor read_tensor(const Node& node, std::int64_t files) {
  SavedTensor tensor;
  tensor.name = node["name"].text();
  tensor.value = node["value"].text();
  const std::string dtype = node["dtype"].text();
  if (dtype == stored_name(DType::bf16)) tensor.dtype = DType::bf16;
  require(dtype == stored_name(tensor.dtype), ExitCode::bad_data,
          node.where() + ": " + tensor.name + " has dtype " + dtype +
              "; only F32 and BF16 can be read");
  tensor.shape = node["shape"].shape();
  if (node.has("optimizer")) tensor.optimizer = node["optimizer"].text();
  for (const Node& piece : node["pieces"].list()) {
    tensor.pieces.push_back(read_piece(piece, tensor.shape, tensor.dtype, files));
  }
  return tensor;
}

SavedFile read_file(const Node& node) {
  SavedFile file{node["name"].text(), node["bytes"].count()};
  const std::filesystem::path name(file.name);
  require(!file.name.empty() && name.filename() == name && file.name != "." && file.name != "..",
          ExitCode::bad_data,
          node.where() + ": '" + file.name + "' must be a file name without a directory");
  return file;
}

/// Older manifests have only `tokens`, which then also gives the other counts.
TrainState read_state(const Node& node) {
  const std::int64_t tokens = node["tokens"].count();
  const auto counted = [&](const char* key) { return node.has(key) ? node[key].count() : tokens; };
  return {.step = node["step"].count(),
          .samples = node["samples"].count(),
          .tokens = tokens,
          .positions = counted("positions"),
          .labels = counted("labels"),
          .updates = node["updates"].count(),
          .loss_scale = node["loss_scale"].real(),
          .good_steps = node["good_steps"].count(),
          .hysteresis = node["hysteresis"].count(),
          .skipped_in_row = node["skipped_in_row"].count()};
}

SavedLayout read_layout(const Node& node) {
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

RunLength read_length(const Node& node) {
  RunLength length;
  if (!node["tokens"].is_null()) length.tokens = node["tokens"].count();
  length.epochs = node["epochs"].optional_real();
  const Node schedule = node["schedule"];
  length.pace = {.updates = schedule["updates"].count(),
                 .position = schedule["position"].real(),
                 .per_update = schedule["per_update"].real(),
                 .end = schedule["end"].count()};
  return length;
}

SavedSource read_source(const Node& node) {
  SavedSource source;
  source.path = node["path"].text();
  source.weight = node["weight"].real();
  source.identity = {node["bytes"].count(), node["xxh3"].hash()};
  source.position = {.order = node["order"].count(),
                     .epoch = node["epoch"].count(),
                     .seq_length = node["seq_length"].count(max_extent),
                     .seed = node["seed"].hash(),
                     .shuffle = node["shuffle"].flag(),
                     .windows = node["windows"].count(),
                     .labels = node["labels"].count()};
  const SourcePosition& position = source.position;
  require(position.seq_length > 0 && position.labels < position.seq_length, ExitCode::bad_data,
          formatted("{}: labels {} of seq_length {}", node.where(), position.labels,
                    position.seq_length));
  return source;
}

SavedData read_data(const Node& node) {
  SavedData data{node["windows"].text(), node["pattern"].count(), {}, {}};
  for (const Node& source : node["sources"].list()) data.sources.push_back(read_source(source));
  if (node.has("validation")) {
    const Node validation = node["validation"];
    data.validation =
        SavedSource{.path = validation["path"].text(),
                    .identity = {validation["bytes"].count(), validation["xxh3"].hash()}};
  }
  return data;
}

}  // namespace

Manifest parse_manifest(const std::string& text, const std::string& where) {
  const Json document = parse_json(text, where);
  const Node root(document, where);
  const Node node = root["manifest"];
  const Json& content = document["manifest"];
  require(content.is_object() && content.value("format", Json()) == "trainctl checkpoint",
          ExitCode::bad_data, where + " is not the manifest of a checkpoint");
  const std::int64_t version = node["format_version"].count();
  require(version >= 1 && version <= manifest_version, ExitCode::bad_data,
          formatted("{}: format_version {}; this program reads the versions 1 to {}", where,
                    version, manifest_version));
  require(
      hash_bytes(json_text(content, JsonText::Style::compact)) == root["xxh3"].hash(),
      ExitCode::bad_data,
      where + ": the content does not have the hash at its end; the file was changed or damaged");
  Manifest manifest;
  manifest.state = read_state(node["state"]);
  manifest.loss = node["loss"].optional_real();
  manifest.val_loss = node["val_loss"].optional_real();
  if (content.contains("session")) manifest.session = node["session"].count();
  manifest.steps = node["steps"].count();
  if (content.contains("length")) manifest.length = read_length(node["length"]);
  if (content.contains("data")) manifest.data = read_data(node["data"]);
  manifest.optimizer = node["optimizer"].text();
  manifest.plan_hash = node["plan_hash"].hash();
  manifest.layout = read_layout(node["layout"]);
  manifest.config_hash = node["config_xxh3"].hash();
  if (version >= 2) manifest.strategy_hash = node["strategy_xxh3"].hash();
  for (const Node& file : node["files"].list()) manifest.files.push_back(read_file(file));
  for (const Node& tensor : node["tensors"].list()) {
    manifest.tensors.push_back(read_tensor(tensor, std::ssize(manifest.files)));
  }
  check_coverage(manifest, where);
  return manifest;
}

void add_pieces(Manifest& manifest, const std::string& text) {
  const Json document = parse_json(text, "the pieces of a rank");
  const Node node(document, "the pieces of a rank");
  const int number = static_cast<int>(manifest.files.size());
  manifest.files.push_back(read_file(node["file"]));
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    known[{manifest.tensors[i].name, manifest.tensors[i].value}] = i;
  }
  for (const Node& entry : node["tensors"].list()) {
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

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t head_bytes = 4096;  // enough for the session, which is among the first keys

std::string read_text(const fs::path& path) {
  const File file = File::open_to_read(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, text);
  return text;
}

/// Stops at the number of manifest.session, or at the end of the text that was read.
class SessionFinder : public nlohmann::json_sax<Json> {
 public:
  std::int64_t session = 0;

  bool key(string_t& name) override {
    is_session_ = depth_ == 2 && name == "session";
    return depth_ != 2 || name != "tensors";
  }
  bool number_unsigned(number_unsigned_t value) override {
    const bool fits = value <= static_cast<std::uint64_t>(max_session);
    if (is_session_ && fits) session = static_cast<std::int64_t>(value);
    return !is_session_;
  }
  bool start_object(std::size_t /*size*/) override { return ++depth_ < max_depth; }
  bool end_object() override { return --depth_ > 0; }
  bool start_array(std::size_t /*size*/) override { return ++depth_ < max_depth; }
  bool end_array() override { return --depth_ > 0; }
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  static constexpr int max_depth = 64;
  static constexpr std::int64_t max_session = 9'999'999'999;  // the largest number of ten digits
  int depth_ = 0;
  bool is_session_ = false;
};

void check_file(const fs::path& directory, const SavedFile& file) {
  const fs::path path = directory / file.name;
  std::error_code failure;
  const bool is_link = fs::is_symlink(fs::symlink_status(path, failure));
  const FileKind kind = kind_of_file(path);
  require(is_link || kind != FileKind::none, ExitCode::missing_input,
          path.string() + " is missing; the manifest lists it");
  require(!is_link && kind == FileKind::regular, ExitCode::bad_data,
          path.string() + " is not a regular file (links are not followed)");
  const std::int64_t bytes = File::open_to_read(path).size();
  require(bytes == file.bytes, ExitCode::bad_data,
          formatted("{} has {} bytes; the manifest says {}", path.string(), bytes, file.bytes));
}

void check_text(const fs::path& path, std::uint64_t hash) {
  require(hash_bytes(read_text(path)) == hash, ExitCode::bad_data,
          path.string() + " does not have the hash in the manifest; it was changed or damaged");
}

}  // namespace

std::string read_manifest_text(const fs::path& directory) {
  const fs::path path = directory / manifest_name;
  require(kind_of_file(path) != FileKind::none, ExitCode::missing_input,
          directory.string() + " is not a complete checkpoint: it has no " + manifest_name);
  return read_text(path);
}

std::int64_t session_of(const fs::path& directory) {
  SessionFinder finder;
  Json::sax_parse(read_beginning(directory / manifest_name, head_bytes), &finder);
  return finder.session;
}

Manifest read_manifest(const fs::path& directory) {
  Manifest manifest =
      parse_manifest(read_manifest_text(directory), (directory / manifest_name).string());
  for (const SavedFile& file : manifest.files) check_file(directory, file);
  check_text(directory / saved_config_name, manifest.config_hash);
  if (manifest.strategy_hash) check_text(directory / saved_strategy_name, *manifest.strategy_hash);
  return manifest;
}

}  // namespace trainctl
