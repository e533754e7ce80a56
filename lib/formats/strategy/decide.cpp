#include "formats/strategy/decide.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "config/schema/values.h"
#include "config/schema/words.h"
#include "plan/splits/splits.h"

namespace trainctl {

namespace {

std::string word(SplitBy split) { return std::string(word_of(split)); }

std::string splits_path(const char* key) { return std::string("parallel.operator_splits.") + key; }

std::string shown_inputs(const OperatorSplit& split) {
  std::string text;
  for (const std::vector<std::int64_t>& input : split.inputs) {
    text += (text.empty() ? "[" : ", [");
    for (std::size_t i = 0; i < input.size(); ++i) {
      text += (i > 0 ? "," : "") + std::to_string(input[i]);
    }
    text += "]";
  }
  return "[" + text + "]";
}

/// The products of one operator of operator_splits in one layer, the first of which stands for all.
struct Products {
  std::string first;
  std::vector<std::string> others;
  std::string between;  // the tensor that they make and read
};

Products attention_products(std::int64_t layer, bool shares_keys) {
  const std::string name = "layers." + std::to_string(layer) + ".attention";
  Products products{name + ".q", {name + ".out"}, name + ".context"};
  // Ranks that hold the same heads of keys have whole weights of them in every split.
  if (!shares_keys) products.others.insert(products.others.begin(), {name + ".k", name + ".v"});
  return products;
}

Products mlp_products(std::int64_t layer) {
  const std::string name = "layers." + std::to_string(layer) + ".mlp";
  return {name + ".up", {name + ".gate", name + ".down"}, name + ".act"};
}

class Decision {
 public:
  Decision(const LoadedSplits& loaded, const Mesh& mesh, SourceMap& sources,
           Diagnostics& diagnostics)
      : loaded_(loaded), mesh_(mesh), sources_(sources), diagnostics_(diagnostics) {
    for (const OperatorSplit& split : loaded.layouts.operators) operators_[split.name] = &split;
    if (!loaded.text.empty()) diagnostics.add_source(loaded.name, std::string(loaded.text));
  }

  /// Of one operator that is there and split in one of the three ways.
  std::optional<SplitBy> of(const char* key, const std::string& name) {
    const auto found = operators_.find(name);
    if (found == operators_.end()) return std::nullopt;
    const auto split = read(*found->second);
    if (!split) {
      complain(splits_path(key), name,
               "operator '" + shown(name) + "' splits its inputs " + shown_inputs(*found->second) +
                   ", which is none of the splits of " + ways(),
               "cut the weight for features, or only the tokens, or neither");
    }
    return split;
  }

  /// Of several that must be split alike.
  std::optional<SplitBy> of(const char* key, const Products& products) {
    const auto first = of(key, products.first);
    for (const std::string& name : products.others) {
      const auto other = of(key, name);
      if (!first || !other || *first == *other) continue;
      complain(splits_path(key), name,
               "operator '" + name + "' has the split " + word(*other) + ", but '" +
                   products.first + "' (" + place_of(products.first).position() + ") the split " +
                   word(*first) + ": the tensor between them, " + products.between +
                   ", stays where it is made",
               "give both the same split");
    }
    return first;
  }

  /// `text` becomes what the file says, in a word or a list; what the configuration says must be
  /// the same.
  template <class Value>
  void settle(const char* key, std::optional<Value>& said, const Value& found, bool same,
              const std::string& name, const std::string& shown_value) {
    const std::string path = splits_path(key);
    if (!said) {
      said = found;
      sources_.record(path, place_of(name));
    } else if (!same) {
      diagnostics_.add({Severity::error, "strategy-operators", path,
                        "it contradicts " + place_of(name).position() + ", where '" + name +
                            "' and its like have the split " + shown_value,
                        std::string("leave operator_splits.") + key + " or load_file out",
                        sources_.find(path)});
    }
  }

 private:
  std::string ways() const {
    const std::int64_t cp = mesh_.cp;
    return std::to_string(mesh_.tp) + " ranks: a cut weight, whole weights with " +
           std::to_string(cp * mesh_.tp) + " parts of the tokens, or with " + std::to_string(cp);
  }

  std::optional<SplitBy> read(const OperatorSplit& split) const {
    if (split.inputs.size() < 2 || split.inputs[0].size() < 2) return std::nullopt;
    const auto cut = [](std::int64_t parts) { return parts > 1; };
    const std::int64_t tokens = split.inputs[0][1];
    if (std::ranges::any_of(split.inputs[1], cut)) {
      return tokens == mesh_.cp ? std::optional(SplitBy::features) : std::nullopt;
    }
    if (tokens == mesh_.cp * mesh_.tp) return SplitBy::tokens;
    return tokens == mesh_.cp ? std::optional(SplitBy::whole) : std::nullopt;
  }

  /// Where the file has the operator; in protobuf, where the configuration names the file.
  Place place_of(const std::string& name) const {
    const std::string_view text = loaded_.text;
    const std::string quoted = "\"" + name + "\"";
    const std::size_t at = text.find(quoted);
    if (at == std::string_view::npos) return sources_.find(strategy_file_key);
    const std::size_t line = text.rfind('\n', at);
    const std::size_t begin = line == std::string_view::npos ? 0 : line + 1;
    Place place{.origin = Place::Origin::file, .file = loaded_.name};
    place.line = static_cast<int>(std::count(text.begin(), text.begin() + at, '\n')) + 1;
    place.column = static_cast<int>(at - begin) + 1;
    place.end_column = place.column + static_cast<int>(quoted.size());
    return place;
  }

  void complain(const std::string& path, const std::string& name, const std::string& message,
                const std::string& help) {
    diagnostics_.add({Severity::error, "strategy-operators", path, message, help, place_of(name)});
  }

  const LoadedSplits& loaded_;
  const Mesh& mesh_;
  SourceMap& sources_;
  Diagnostics& diagnostics_;
  std::map<std::string, const OperatorSplit*> operators_;
};

/// Of all layers; features where the file has none.
template <class ProductsOf>
void decide_layers(Decision& decision, const char* key, std::int64_t layers,
                   const ProductsOf& products_of, std::optional<std::string>& said) {
  std::vector<SplitBy> splits(static_cast<std::size_t>(layers), SplitBy::features);
  std::string first;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const Products products = products_of(layer);
    const auto found = decision.of(key, products);
    if (!found) continue;
    splits[static_cast<std::size_t>(layer)] = *found;
    if (first.empty()) first = products.first;
  }
  if (first.empty()) return;
  const std::string text = layer_splits_text(splits);
  const bool same = said && parse_layer_splits(*said, layers).values == splits;
  decision.settle(key, said, text, same, first, text);
}

}  // namespace

void decide_splits(const LoadedSplits& loaded, const Mesh& mesh, const ModelShape& model,
                   Config& config, SourceMap& sources, Diagnostics& diagnostics) {
  Decision decision(loaded, mesh, sources, diagnostics);
  OperatorSplitsConfig& said = config.parallel.operator_splits;
  const auto settle = [&](const char* key, std::optional<SplitBy>& split, const std::string& name) {
    const auto found = decision.of(key, name);
    if (found) decision.settle(key, split, *found, split == found, name, word(*found));
  };
  settle("embedding", said.embedding, "embedding.token");
  settle("head", said.head, "head");
  const bool shares_keys = model.kv_heads < mesh.tp;
  decide_layers(
      decision, "attention", model.layers,
      [&](std::int64_t layer) { return attention_products(layer, shares_keys); }, said.attention);
  decide_layers(decision, "feed_forward", model.layers, mlp_products, said.feed_forward);
}

}  // namespace trainctl
