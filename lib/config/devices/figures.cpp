#include "config/devices/figures.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "config/schema/values.h"
#include "config/yaml/tree.h"

namespace trainctl {

std::vector<std::string> names_of(std::span<const KnownFile> files) {
  std::vector<std::string> names;
  for (const KnownFile& file : files) names.emplace_back(file.name);
  return names;
}

const KnownFile* find_known(std::span<const KnownFile> files, std::string_view name) {
  const auto found = std::ranges::find(files, name, &KnownFile::name);
  return found == files.end() ? nullptr : &*found;
}

double expected_error(Trust trust) {
  return trust == "measured here" ? 0.03 : trust == "device table" ? 0.08 : 0.30;
}

namespace {

constexpr Field above_zero = field("", "").above(0);
constexpr Field from_zero = field("", "").from(0);
constexpr Field share_of_one = field("", "").above(0).to(1);
constexpr Field whole_number = field("", "").from(1).to(1 << 24);
constexpr Field any_text = field("", "").from(1);

/// A map of a figures file. Each known key is read once; `finish` reports the other keys.
class FigureMap {
 public:
  FigureMap(const YamlTree& tree, int node, std::string path, Diagnostics& diagnostics)
      : tree_(tree), node_(node), path_(std::move(path)), diagnostics_(diagnostics) {}

  /// Leaves `value` unchanged if the key is absent.
  template <class Value>
  void read(const char* key, const Field& field, Value& value) {
    const YamlEntry* entry = find(key);
    if (entry == nullptr) return;
    Value given{};
    if (auto problem = read_value(tree_.node(entry->value), field, given)) {
      report(*problem, path_of(key), tree_.node(entry->value).span);
    } else {
      value = std::move(given);
    }
  }
  template <class Value>
  void require(const char* key, const Field& field, Value& value) {
    if (has(key)) return read(key, field, value);
    known_.insert(key);
    missing(key);
  }
  /// The map at a key; an empty one if the key is absent.
  FigureMap map(const char* key) {
    const YamlEntry* entry = find(key);
    int node = -1;
    if (entry != nullptr && tree_.node(entry->value).kind != YamlNode::Kind::map) {
      report(wrong_type(tree_.node(entry->value), "a map"), path_of(key),
             tree_.node(entry->value).span);
    } else if (entry != nullptr) {
      node = entry->value;
    }
    return {tree_, node, path_of(key), diagnostics_};
  }
  FigureMap required_map(const char* key) {
    if (!has(key)) missing(key);
    return map(key);
  }
  /// Calls `each(key)` for every entry and marks all keys as known.
  template <class Each>
  void each(const Each& each) {
    if (node_ < 0) return;
    for (const YamlEntry& entry : tree_.node(node_).entries) {
      known_.insert(entry.key);
      each(entry.key);
    }
  }
  /// The list of numbers at a key; empty if the key is absent.
  std::vector<double> numbers(const char* key) {
    std::vector<double> list;
    const YamlEntry* entry = find(key);
    if (entry == nullptr) return list;
    const YamlNode& node = tree_.node(entry->value);
    if (node.kind != YamlNode::Kind::sequence) {
      report(wrong_type(node, "a list of numbers"), path_of(key), node.span);
      return list;
    }
    for (const int item : node.items) {
      if (auto problem = read_value(tree_.node(item), above_zero, list.emplace_back())) {
        report(*problem, path_of(key), tree_.node(item).span);
      }
    }
    return list;
  }
  void finish() {
    if (node_ < 0) return;
    for (const YamlEntry& entry : tree_.node(node_).entries) {
      if (known_.contains(entry.key)) continue;
      report({"device-file", "unknown key \"" + shown(entry.key) + "\"",
              "docs/planning.md lists the keys of such a file"},
             path_of(entry.key), entry.key_span);
    }
  }
  bool has(const std::string& key) const { return node_ >= 0 && tree_.find(node_, key) != nullptr; }
  void missing(const std::string& key) {
    report({"device-file", "the figure is missing", "add it with its source"}, path_of(key),
           node_ >= 0 ? tree_.node(node_).span : Span{});
  }
  void refuse(const std::string& key, const std::string& message, const std::string& help) {
    const YamlEntry* entry = node_ < 0 ? nullptr : tree_.find(node_, key);
    report({"device-file", message, help}, path_of(key),
           entry != nullptr ? entry->key_span : Span{});
  }

 private:
  const YamlEntry* find(const std::string& key) {
    known_.insert(key);
    return node_ < 0 ? nullptr : tree_.find(node_, key);
  }
  std::string path_of(const std::string& key) const {
    return path_.empty() ? key : path_ + "." + key;
  }
  void report(const Problem& problem, const std::string& path, const Span& span) {
    diagnostics_.add(
        {Severity::error, "device-file", path, problem.message, problem.help, tree_.place(span)});
  }

  const YamlTree& tree_;
  int node_;
  std::string path_;
  Diagnostics& diagnostics_;
  std::set<std::string> known_;
};

/// The root node of the file, or -1 if the file is not a map of figures.
int parse_figures(YamlTree& tree, std::string_view text, const std::string& name,
                  Diagnostics& diagnostics) {
  const std::string normal = normalise_text(text);
  const int number = tree.add_text(Place::Origin::file, name);
  diagnostics.add_source(name, normal);
  if (!check_text(normal, tree.texts.back(), diagnostics)) return -1;
  const int root = parse_yaml(tree, normal, number, diagnostics);
  if (root < 0) return -1;
  if (tree.node(root).kind == YamlNode::Kind::map) return root;
  const Problem problem = wrong_type(tree.node(root), "a map of figures");
  diagnostics.add({Severity::error, "device-file", "", problem.message, problem.help,
                   tree.place(tree.node(root).span)});
  return -1;
}

/// The sizes of a tile from a key such as "128x256".
ProductTile tile_of(FigureMap& tiles, const std::string& key) {
  ProductTile tile;
  const std::size_t cross = key.find('x');
  const auto side = [&](const std::string& text, std::int64_t& value) {
    return cross != std::string::npos && !parse_number(text, value) && value >= 1 && value <= 4096;
  };
  const bool good = side(key.substr(0, cross), tile.rows) &&
                    side(cross == std::string::npos ? "" : key.substr(cross + 1), tile.columns);
  if (!good) tiles.refuse(key, "a tile is ROWSxCOLUMNS", "write for example 128x256: 1.0");
  tiles.read(key.c_str(), above_zero, tile.quality);
  return tile;
}

/// The numbers of a text such as "1024x768x3072"; empty unless all are whole numbers from 1 to
/// 2^32.
std::vector<std::int64_t> sizes_of(const std::string& text) {
  std::vector<std::int64_t> sizes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('x', begin), text.size());
    std::int64_t value = 0;
    if (parse_number(text.substr(begin, end - begin), value)) return {};
    if (value < 1 || value > std::int64_t{1} << 32) return {};
    sizes.push_back(value);
    begin = end + 1;
  }
  return sizes;
}

/// Three sizes and the seconds of a table entry, which the file gives in microseconds. `shape` is
/// the key without its suffix; `rule` and `example` belong to the message for a wrong key.
std::pair<std::vector<std::int64_t>, double> timed_sizes(FigureMap& table, const std::string& key,
                                                         const std::string& shape, const char* rule,
                                                         const char* example) {
  std::vector<std::int64_t> sizes = sizes_of(shape);
  if (sizes.size() != 3) {
    table.refuse(key, rule, example);
    sizes = {1, 1, 1};
  }
  double microseconds = 0;
  table.read(key.c_str(), above_zero, microseconds);
  return {sizes, microseconds * 1e-6};
}

/// "1024x768x3072" is rows, columns and inner; with a suffix "+" the product is added to y.
ProductTime product_of(FigureMap& table, const std::string& key) {
  const bool accumulates = key.ends_with("+");
  const auto [sizes, seconds] =
      timed_sizes(table, key, key.substr(0, key.size() - (accumulates ? 1 : 0)),
                  "a product is ROWSxCOLUMNSxINNER, with + behind it where it is added to",
                  "write for example 1024x768x3072: 95.2");
  ProductTime one;
  one.rows = sizes[0];
  one.columns = sizes[1];
  one.inner = sizes[2];
  one.accumulates = accumulates;
  one.seconds = seconds;
  return one;
}

/// "1024x8x64" gives tokens per sequence, heads and features per head; a suffix "b" means backward.
AttentionTime attention_of(FigureMap& table, const std::string& key) {
  const bool backward = key.ends_with("b");
  const auto [sizes, seconds] =
      timed_sizes(table, key, key.substr(0, key.size() - (backward ? 1 : 0)),
                  "attention is TOKENSxHEADSxFEATURES, with b behind it for its backward pass",
                  "write for example 1024x8x64: 312.5");
  return {.keys = sizes[0],
          .heads = sizes[1],
          .head_dim = sizes[2],
          .backward = backward,
          .seconds = seconds};
}

void read_products(FigureMap root, DeviceFigures& device) {
  std::vector<std::string> types;
  root.each([&](const std::string& type) { types.push_back(type); });
  for (const std::string& type : types) {
    if (type != "bf16" && type != "fp32") {
      root.refuse(type, "products are of bf16 (which stands for fp16) or fp32", "");
      continue;
    }
    FigureMap map = root.map(type.c_str());
    ProductFigures& figures = device.products[type];
    map.require("peak", above_zero, figures.peak);
    map.read("reached", share_of_one, figures.reached);
    map.read("wave", field("", "").from(0).to(1), figures.wave);
    map.read("half", from_zero, figures.half);
    map.read("launch", from_zero, figures.launch);
    FigureMap tiles = map.map("tiles");
    std::vector<std::string> keys;
    tiles.each([&](const std::string& key) { keys.push_back(key); });
    for (const std::string& key : keys) figures.tiles.push_back(tile_of(tiles, key));
    if (figures.tiles.empty()) figures.tiles.push_back({1, 1, 1});
    FigureMap table = map.map("table");
    std::vector<std::string> shapes;
    table.each([&](const std::string& key) { shapes.push_back(key); });
    for (const std::string& key : shapes) figures.table.push_back(product_of(table, key));
    map.finish();
  }
  if (types.empty()) root.missing("bf16");
}

void read_attention(FigureMap root, DeviceFigures& device) {
  std::vector<std::string> kernels;
  root.each([&](const std::string& kernel) { kernels.push_back(kernel); });
  for (const std::string& kernel : kernels) {
    FigureMap map = root.map(kernel.c_str());
    AttentionFigures& figures = device.attention[kernel];
    map.require("forward", share_of_one, figures.forward);
    map.read("half_length", from_zero, figures.half_length);
    map.read("head_64", above_zero, figures.head_64);
    map.read("launch", from_zero, figures.launch);
    map.read("backward", above_zero, figures.backward);
    FigureMap table = map.map("table");
    std::vector<std::string> shapes;
    table.each([&](const std::string& key) { shapes.push_back(key); });
    for (const std::string& key : shapes) figures.table.push_back(attention_of(table, key));
    map.finish();
  }
}

std::optional<GroupOperation> operation_named(const std::string& name) {
  for (int number = 0; number < operation_count; ++number) {
    const auto operation = static_cast<GroupOperation>(number);
    if (name == name_of(operation)) return operation;
  }
  return std::nullopt;
}

/// Reads a map such as {bytes: [...], all_reduce: {2: [microseconds, ...], 8: [...]}}.
void read_collectives(FigureMap root, DeviceFigures& device) {
  root.require("link", above_zero, device.link);
  root.require("latency", from_zero, device.link_latency);
  FigureMap tables = root.map("microseconds");
  const std::vector<double> bytes = root.numbers("bytes");
  std::vector<std::string> names;
  tables.each([&](const std::string& name) { names.push_back(name); });
  for (const std::string& name : names) {
    const std::optional<GroupOperation> operation = operation_named(name);
    if (!operation) {
      tables.refuse(name, "\"" + shown(name) + "\" is no collective",
                    "use all_reduce, reduce_scatter, all_gather or all_to_all");
      continue;
    }
    FigureMap by_ranks = tables.map(name.c_str());
    std::vector<std::string> sizes;
    by_ranks.each([&](const std::string& ranks) { sizes.push_back(ranks); });
    for (const std::string& text : sizes) {
      std::int64_t ranks = 0;
      if (parse_number(text, ranks) || ranks < 2) {
        by_ranks.refuse(text, "a number of ranks is at least 2", "");
        continue;
      }
      CollectiveTable table{bytes, by_ranks.numbers(text.c_str())};
      if (table.seconds.size() != bytes.size() || bytes.size() < 2) {
        by_ranks.refuse(text,
                        formatted("{} times for {} sizes in bytes; both are at least 2",
                                  table.seconds.size(), bytes.size()),
                        "");
        continue;
      }
      for (double& seconds : table.seconds) seconds *= 1e-6;
      device.collectives[*operation][ranks] = std::move(table);
    }
  }
  root.finish();
}

/// Requires for each key with figures a sentence about their source.
void read_sources(FigureMap& root, const std::vector<const char*>& figures,
                  std::map<std::string, std::string>& sources) {
  FigureMap map = root.required_map("sources");
  for (const char* key : figures) {
    if (root.has(key)) map.require(key, any_text, sources[key]);
  }
  map.finish();
}

/// A cache of files without mistakes: a search makes thousands of plans from the same files on
/// several threads.
template <class Figures>
class ReadFiles {
 public:
  std::optional<Figures> find(std::string_view text) {
    const std::scoped_lock lock(mutex_);
    const auto found = files_.find(text);
    return found == files_.end() ? std::nullopt : std::optional(found->second);
  }
  void keep(std::string_view text, const Figures& figures) {
    constexpr std::size_t most = 64;  // files kept; enough for a search for figures that fit
    const std::scoped_lock lock(mutex_);
    if (files_.size() >= most) files_.clear();
    files_.emplace(text, figures);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Figures, std::less<>> files_;
};

/// Reads a file of figures. `fill(map, figures)` reads every key of the file's map into `figures`.
template <class Figures, class Fill>
Figures read_file(std::string_view text, const std::string& name, Diagnostics& diagnostics,
                  const Fill& fill) {
  static ReadFiles<Figures> files;
  if (auto known = files.find(text)) return std::move(*known);
  const std::size_t findings = diagnostics.list().size();
  Figures figures;
  YamlTree tree;
  const int node = parse_figures(tree, text, name, diagnostics);
  if (node < 0) return figures;
  FigureMap root(tree, node, "", diagnostics);
  fill(root, figures);
  root.finish();
  if (diagnostics.list().size() == findings) files.keep(text, figures);
  return figures;
}

/// Derives the figures of a missing type from the other type, at a guessed peak. On a GPU, fp32,
/// which does not run on tensor cores, has a sixteenth of the rate of bf16 (A100 19.5 of 312
/// TFLOP/s, H100 67 of 989); a CPU without bf16 units has the same rate for both.
void guess_products(DeviceFigures& device) {
  const double bf16_beside_fp32 = device.cuda ? 16 : 1;
  const auto guess = [&](const char* missing, const char* known, double factor) {
    const auto found = device.products.find(known);
    if (found == device.products.end() || device.products.contains(missing)) return;
    ProductFigures figures = found->second;
    figures.peak *= factor;
    figures.table.clear();
    figures.guessed = true;
    device.products[missing] = figures;
  };
  guess("fp32", "bf16", 1 / bf16_beside_fp32);
  guess("bf16", "fp32", bf16_beside_fp32);
}

void fill_device(FigureMap& root, DeviceFigures& device) {
  root.require("name", any_text, device.name);
  std::string kind = "cuda";
  root.read("kind", field("", "").one_of("cuda|cpu"), kind);
  device.cuda = kind == "cuda";
  std::string trust(word_of(device.trust));
  root.require("trust", field("", "").one_of("measured here|device table|data sheet"), trust);
  if (trust == "measured here") device.trust = "measured here";
  if (trust == "data sheet") device.trust = "data sheet";
  FigureMap memory = root.required_map("memory");
  memory.require("gib", above_zero, device.memory_gib);
  memory.require("bandwidth", above_zero, device.memory_bandwidth);
  memory.read("reached", share_of_one, device.memory_reached);
  memory.finish();
  root.read("processors", whole_number, device.processors);
  read_products(root.required_map("products"), device);
  guess_products(device);
  read_attention(root.map("attention"), device);
  root.read("sustained", share_of_one, device.sustained);
  root.read("contention", field("", "").from(0).to(1), device.contention);
  read_collectives(root.required_map("collectives"), device);
  FigureMap network = root.required_map("network");
  network.require("bandwidth", above_zero, device.network_bandwidth);
  network.require("latency", from_zero, device.network_latency);
  network.read("links", whole_number, device.network_links);
  network.finish();
  FigureMap host = root.required_map("host");
  host.require("ranks", whole_number, device.host_ranks);
  host.require("bandwidth", above_zero, device.host_bandwidth);
  host.finish();
  if (root.has("hours_between_failures")) {
    root.read("hours_between_failures", above_zero, device.hours_between_failures.emplace());
  }
  read_sources(root,
               {"memory", "processors", "products", "attention", "sustained", "contention",
                "collectives", "network", "host", "hours_between_failures"},
               device.sources);
}

void fill_software(FigureMap& root, SoftwareFigures& software) {
  root.require("name", any_text, software.name);
  root.require("attention", any_text, software.attention);
  root.read("attention_speed", above_zero, software.attention_speed);
  root.read("attention_64", above_zero, software.attention_64);
  root.read("overhead", from_zero, software.overhead);
  root.read("elements", above_zero, software.elements);
  root.read("launch", from_zero, software.launch);
  root.read("logit_bytes", from_zero, software.logit_bytes);
  root.read("score_bytes", from_zero, software.score_bytes);
  root.read("collectives", above_zero, software.collectives);
  root.read("tensor_rest", field("", "").from(0).to(1), software.tensor_rest);
  root.read("sums_rest", field("", "").from(0).to(1), software.sums_rest);
  root.read("network_share", share_of_one, software.network_share);
  root.read("network_latency", from_zero, software.network_latency);
  root.read("jitter", field("", "").from(0).below(1), software.jitter);
  root.read("fixed", from_zero, software.fixed);
  root.read("fuses_inputs", Field{}, software.fuses_inputs);
  root.read("overlaps_sums", Field{}, software.overlaps_sums);
  read_sources(
      root,
      {"attention", "attention_speed", "attention_64", "overhead", "elements", "launch",
       "logit_bytes", "score_bytes", "collectives", "tensor_rest", "sums_rest", "network_share",
       "network_latency", "jitter", "fixed", "fuses_inputs", "overlaps_sums"},
      software.sources);
}

}  // namespace

DeviceFigures read_device(std::string_view text, const std::string& name,
                          Diagnostics& diagnostics) {
  return read_file<DeviceFigures>(text, name, diagnostics, fill_device);
}

SoftwareFigures read_software(std::string_view text, const std::string& name,
                              Diagnostics& diagnostics) {
  const auto fill = [&](FigureMap& root, SoftwareFigures& software) {
    std::string base;
    root.read("extends", field("", "").one_of("shared"), base);
    if (!base.empty()) {
      const KnownFile shared = shared_software();
      software = read_software(shared.text, std::string(shared.name), diagnostics);
    }
    fill_software(root, software);
  };
  return read_file<SoftwareFigures>(text, name, diagnostics, fill);
}

namespace {

std::string_view text_named(std::span<const KnownFile> files, const std::string& name,
                            const std::string& file_text) {
  const KnownFile* known = find_known(files, name);
  return known != nullptr ? known->text : std::string_view(file_text);
}

void load_named(std::span<const KnownFile> files, const std::string& name,
                const Surroundings& around, std::string& text) {
  if (find_known(files, name) != nullptr || !around.load) return;
  text = around.load(name).text.value_or("");
}

}  // namespace

std::string_view device_text(const ClusterConfig& cluster) {
  if (!cluster.device) return "";
  return text_named(known_devices(), *cluster.device, cluster.device_text);
}

std::string_view software_text(const ClusterConfig& cluster) {
  return text_named(known_software(), cluster.software, cluster.software_text);
}

bool names_gpu(const ClusterConfig& cluster) {
  const std::string_view text = device_text(cluster);
  if (text.empty()) return false;
  Diagnostics mistakes;
  const DeviceFigures device = read_device(text, *cluster.device, mistakes);
  return device.cuda && !mistakes.has_errors();
}

void load_figures(ClusterConfig& cluster, const Surroundings& around) {
  if (!cluster.device) return;
  load_named(known_devices(), *cluster.device, around, cluster.device_text);
  load_named(known_software(), cluster.software, around, cluster.software_text);
}

namespace {

/// A number with six digits in a form that every version of YAML reads as a number.
std::string figure(double value) { return write_value(std::stod(printed("%.6g", value))); }

std::string figure_list(const std::vector<double>& values, double factor) {
  return "[" + joined(values, ", ", [&](double value) { return figure(value * factor); }) + "]";
}

std::string product_line(const std::string& type, const ProductFigures& of) {
  const std::string tiles = joined(of.tiles, ", ", [](const ProductTile& tile) {
    return formatted("{}x{}: {}", tile.rows, tile.columns, figure(tile.quality));
  });
  std::string table = joined(of.table, ", ", [](const ProductTime& one) {
    return formatted("{}x{}x{}{}: {}", one.rows, one.columns, one.inner, one.accumulates ? "+" : "",
                     figure(one.seconds * 1e6));
  });
  if (!table.empty()) table = ", table: {" + table + "}";
  return "  " + type + ": {peak: " + figure(of.peak) + ", reached: " + figure(of.reached) +
         ", wave: " + figure(of.wave) + ", half: " + figure(of.half) +
         ", launch: " + figure(of.launch) + ", tiles: {" + tiles + "}" + table + "}\n";
}

std::string attention_line(const std::string& kernel, const AttentionFigures& of) {
  std::string table = joined(of.table, ", ", [](const AttentionTime& one) {
    return formatted("{}x{}x{}{}: {}", one.keys, one.heads, one.head_dim, one.backward ? "b" : "",
                     figure(one.seconds * 1e6));
  });
  if (!table.empty()) table = ", table: {" + table + "}";
  return "  " + kernel + ": {forward: " + figure(of.forward) +
         ", half_length: " + figure(of.half_length) + ", head_64: " + figure(of.head_64) +
         ", launch: " + figure(of.launch) + ", backward: " + figure(of.backward) + table + "}\n";
}

std::string collective_lines(const DeviceFigures& device) {
  std::string text = "collectives:\n  link: " + figure(device.link) +
                     "\n  latency: " + figure(device.link_latency) + "\n";
  if (device.collectives.empty()) return text;
  // All tables have the same sizes, so any table gives the list of bytes.
  const CollectiveTable& any = device.collectives.begin()->second.begin()->second;
  text += "  bytes: " + figure_list(any.bytes, 1) + "\n  microseconds:\n";
  for (const auto& [operation, tables] : device.collectives) {
    text += formatted("    {}:\n", name_of(operation));
    for (const auto& [ranks, table] : tables) {
      text += formatted("      {}: {}\n", ranks, figure_list(table.seconds, 1e6));
    }
  }
  return text;
}

}  // namespace

std::string write_device(const DeviceFigures& device) {
  std::string text = formatted(
      "name: {}\nkind: {}\ntrust: {}\nmemory: {{gib: {}, bandwidth: {}, reached: {}}}\nprocessors: "
      "{}\nproducts:\n",
      write_value(device.name), device.cuda ? "cuda" : "cpu", word_of(device.trust),
      figure(device.memory_gib), figure(device.memory_bandwidth), figure(device.memory_reached),
      device.processors);
  for (const auto& [type, figures] : device.products) {
    if (!figures.guessed) text += product_line(type, figures);
  }
  if (!device.attention.empty()) text += "attention:\n";
  for (const auto& [kernel, figures] : device.attention) text += attention_line(kernel, figures);
  text += "sustained: " + figure(device.sustained) + "\ncontention: " + figure(device.contention) +
          "\n" + collective_lines(device);
  text += formatted("network: {{bandwidth: {}, latency: {}, links: {}}}\n",
                    figure(device.network_bandwidth), figure(device.network_latency),
                    device.network_links);
  text += formatted("host: {{ranks: {}, bandwidth: {}}}\n", device.host_ranks,
                    figure(device.host_bandwidth));
  if (device.hours_between_failures) {
    text += "hours_between_failures: " + figure(*device.hours_between_failures) + "\n";
  }
  text += "sources:\n";
  std::map<std::string, std::string> sources = device.sources;
  for (const char* key : {"processors", "sustained", "contention"}) {
    sources.try_emplace(key, "the default of the program");
  }
  for (const auto& [key, source] : sources) {
    text += "  " + key + ": " + write_value(source) + "\n";
  }
  return text;
}

}  // namespace trainctl
