#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/at.h"
#include "base/error.h"
#include "checkpoint/coverage.h"
#include "checkpoint/hash_bytes.h"
#include "checkpoint/manifest.h"

namespace trainctl {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t most_extent = std::int64_t{1} << 40;  // of a dimension
constexpr std::int64_t most_elements = std::int64_t{1} << 56;
constexpr int most_nesting = 16;

/// Of lists and objects, outside of strings.
int nesting_of(const std::string& text) {
  int depth = 0;
  int deepest = 0;
  bool inside = false;  // a string
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

/// A value of a manifest with its place in it, which messages name.
/// Every reader throws Error{bad_data} with the place for a value of another kind.
class Node {
 public:
  Node(const Json& value, std::string where) : value_(value), where_(std::move(where)) {}

  Node operator[](const char* key) const;
  bool has(const char* key) const { return value_.is_object() && value_.contains(key); }
  std::vector<Node> list() const;
  std::int64_t count(std::int64_t most = std::int64_t{1} << 62) const;
  bool is_null() const { return value_.is_null(); }
  double real() const;
  std::optional<double> optional_real() const;
  bool flag() const;
  /// Without control characters: it appears in messages.
  std::string text() const;
  std::uint64_t hash() const;
  Shape shape() const;
  const std::string& where() const { return where_; }

 private:
  const Json& value_;
  std::string where_;
};

Node Node::operator[](const char* key) const {
  require(value_.is_object() && value_.contains(key), ExitCode::bad_data,
          where_ + ": '" + key + "' is missing");
  return {value_.at(key), where_ + ": " + key};
}

std::vector<Node> Node::list() const {
  require(value_.is_array(), ExitCode::bad_data, where_ + " must be a list");
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < value_.size(); ++i) {
    nodes.emplace_back(value_[i], where_ + "[" + std::to_string(i) + "]");
  }
  return nodes;
}

std::int64_t Node::count(std::int64_t most) const {
  require(value_.is_number_unsigned() &&
              value_.get<std::uint64_t>() <= static_cast<std::uint64_t>(most),
          ExitCode::bad_data,
          where_ + " must be a whole number from 0 to " + std::to_string(most) + ", not " +
              value_.dump());
  return value_.get<std::int64_t>();
}

double Node::real() const {
  require(value_.is_number(), ExitCode::bad_data, where_ + " must be a number");
  return value_.get<double>();
}

std::optional<double> Node::optional_real() const {
  return value_.is_null() ? std::nullopt : std::optional(real());
}

bool Node::flag() const {
  require(value_.is_boolean(), ExitCode::bad_data, where_ + " must be true or false");
  return value_.get<bool>();
}

std::string Node::text() const {
  require(value_.is_string(), ExitCode::bad_data, where_ + " must be a string");
  std::string text = value_.get<std::string>();
  const bool clean = std::none_of(text.begin(), text.end(), [](char letter) {
    return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f;
  });
  require(clean, ExitCode::bad_data, where_ + " has control characters: " + value_.dump());
  return text;
}

std::uint64_t Node::hash() const {
  const std::string digits = text();
  require(digits.size() == 16 && digits.find_first_not_of("0123456789abcdef") == std::string::npos,
          ExitCode::bad_data, where_ + " must be 16 hexadecimal digits");
  return std::stoull(digits, nullptr, 16);
}

Shape Node::shape() const {
  const std::vector<Node> dims = list();
  require(std::ssize(dims) <= Shape::max_rank, ExitCode::bad_data,
          where_ + " has more than " + std::to_string(Shape::max_rank) + " dimensions");
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
    shape[dim] = at(dims, dim).count(most_extent);
    require(!__builtin_mul_overflow(product, shape[dim], &product) && product <= most_elements,
            ExitCode::bad_data, where_ + " is too large");
  }
  return shape;
}

Json parse_json(const std::string& text, const std::string& where) {
  // Each level takes stack when a value is written.
  require(nesting_of(text) <= most_nesting, ExitCode::bad_data,
          where + " is nested deeper than " + std::to_string(most_nesting) + " levels");
  // The JSON library takes it for the end of the text.
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
          node.where() + ": the tensor has " + std::to_string(whole.rank()) + " dimensions");
  for (int dim = 0; dim < whole.rank(); ++dim) {
    at(piece.box.begin, dim) = at(begin, dim).count(most_extent);
    require(piece.box.end(dim) <= whole[dim], ExitCode::bad_data,
            node.where() + ": the box " + piece.box.to_string() +
                " is not within the tensor of shape " + whole.to_string());
  }
  const std::int64_t bytes = piece.box.numel() * size_of(dtype);
  for (const Node& hash : node["xxh3"].list()) piece.hashes.push_back(hash.hash());
  require(std::ssize(piece.hashes) == (bytes + hashed_bytes - 1) / hashed_bytes, ExitCode::bad_data,
          node.where() + ": " + std::to_string(piece.hashes.size()) + " hashes for " +
              std::to_string(bytes) + " bytes");
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

/// Older ones count positions alone.
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
                     .seq_length = node["seq_length"].count(most_extent),
                     .seed = node["seed"].hash(),
                     .shuffle = node["shuffle"].flag(),
                     .windows = node["windows"].count(),
                     .labels = node["labels"].count()};
  const SourcePosition& position = source.position;
  require(position.seq_length > 0 && position.labels < position.seq_length, ExitCode::bad_data,
          node.where() + ": labels " + std::to_string(position.labels) + " of seq_length " +
              std::to_string(position.seq_length));
  return source;
}

SavedData read_data(const Node& node) {
  SavedData data{node["windows"].text(), node["pattern"].count(), {}, {}};
  for (const Node& source : node["sources"].list()) data.sources.push_back(read_source(source));
  if (node.has("validation")) {
    const Node validation = node["validation"];
    data.validation = {validation["path"].text(),
                       {validation["bytes"].count(), validation["xxh3"].hash()}};
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
          where + ": format_version " + std::to_string(version) +
              "; this program reads the versions 1 to " + std::to_string(manifest_version));
  require(
      hash_bytes(content.dump()) == root["xxh3"].hash(), ExitCode::bad_data,
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

}  // namespace trainctl
