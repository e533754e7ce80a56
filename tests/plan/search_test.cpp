// The rule searches compared with MindSpore's own answers. The files in searches/ hold cases: a
// net, its sizes, the ranks, the mode, and the strategy that MindSpore 2.10 gave each matrix
// product, ((i,k),(k,j)); the head of a gpt has its second input as [vocabulary, hidden]. chain:
// products one after another. gated: gate, up, down alone. block, stack, gpt: 1 or n layers, a gpt
// with a head. `given`: the strategy of the product `given_to`. `loaded`: a strategy file, which
// MindSpore ignores when it searches by rounds.
#include "plan/search/search.h"

#include <fstream>
#include <iostream>

#include "base/at.h"
#include "catch.h"
#include "config/schema/words.h"
#include "plan/search/propagation.h"
#include "plan/search/words.h"

using namespace trainctl;

namespace {

using Json = nlohmann::json;

std::vector<Json> cases_of(const std::string& mode) {
  std::vector<Json> cases;
  for (const auto& entry : std::filesystem::directory_iterator(TRAINCTL_TEST_DIR "/searches")) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream stream(entry.path());
    const Json file = Json::parse(stream);
    for (const Json& one : file["cases"]) {
      if (one["mode"] == mode && one["error"].is_null()) cases.push_back(one);
    }
  }
  return cases;
}

/// "((2, 1), (1, 4))"
Extents parts_in(const std::string& text, bool second_turned) {
  std::vector<std::int64_t> numbers;
  std::string digits;
  for (const char c : text + ",") {
    if (c >= '0' && c <= '9') {
      digits += c;
    } else if (!digits.empty()) {
      numbers.push_back(std::stoll(digits));
      digits.clear();
    }
  }
  REQUIRE(numbers.size() == 4);
  CHECK(numbers[1] == numbers[second_turned ? 3 : 2]);
  return {.i = numbers[0], .k = numbers[1], .j = numbers[second_turned ? 2 : 3]};
}

std::vector<Extents> answer_in(const Json& one) {
  std::vector<Extents> parts;
  for (const Json& op : one["ops"]) {
    if (op[0] == "MatMul") parts.push_back(parts_in(op[2], op[1] == "head"));
  }
  return parts;
}

/// Layers of one width, with one head for each feature.
ModelShape model_of(const Json& one) {
  ModelShape model;
  model.layers = one["net"] == "block" ? 1 : one["n"].get<std::int64_t>();
  model.hidden = one["h"];
  model.heads = model.hidden;
  model.kinds = {{.ffn = one["f"], .kv_heads = model.heads}};
  model.head_dim = 1;
  model.padded_vocab = one.value("v", std::int64_t{1});
  return model;
}

SearchProduct product(const char* name, Extents extents, std::vector<int> producers) {
  return {.name = name, .extents = extents, .producers = std::move(producers)};
}

SearchNet net_of(const Json& one) {
  const std::int64_t ranks = one["devices"];
  const bool last = ranks > 32;
  const std::string kind = one["net"];
  SearchNet net;
  if (kind == "chain") {
    const auto dims = one["dims"].get<std::vector<std::int64_t>>();
    net.data = {one["rows"], dims[0]};
    net.order = {data_node};
    for (std::size_t n = 0; n + 1 < dims.size(); ++n) {
      const int index = static_cast<int>(n);
      net.products.push_back(product("", {one["rows"], dims[n], dims[n + 1]}, {index - 1}));
      net.order.push_back(index);
    }
  } else if (kind == "gated") {
    const std::int64_t rows = one["rows"], h = one["h"], f = one["f"];
    net.data = {rows, h};
    net.products = {product("gate", {rows, h, f}, {data_node}),
                    product("up", {rows, h, f}, {data_node}), product("down", {rows, f, h}, {0})};
    net.products[2].second = 1;
    net.order = {0, data_node, 1, 2};
  } else {
    const ModelShape model = model_of(one);
    const std::int64_t batch = one["b"], sequence = one["s"];
    NetInput input{.model = model, .rows = batch * sequence, .data_last = last};
    for (std::int64_t layer = 0; layer < model.layers; ++layer) input.layers.push_back(layer);
    input.head = kind == "gpt";
    input.data = input.head ? Shape{batch, sequence} : Shape{batch * sequence, model.hidden};
    return make_net(input);
  }
  if (last) {
    std::erase(net.order, data_node);
    net.order.push_back(data_node);
  }
  return net;
}

std::string text_of(const std::vector<Extents>& parts) {
  std::string text;
  for (const Extents& one : parts) text += parts_text(one);
  return text;
}

std::vector<Extents> cut(const SearchNet& net, std::int64_t ranks) {
  return cut_recursively(net, ranks).parts;
}

/// The word that a seed says, and the ranks that it lets share an operator.
std::pair<SplitBy, std::int64_t> seed_of(const Extents& seed, std::int64_t ranks) {
  const std::int64_t cut = seed.j * seed.k;
  if (cut > 1) return {SplitBy::features, cut};
  if (seed.i == ranks) return {SplitBy::tokens, ranks};
  return {SplitBy::whole, ranks / seed.i};
}

/// The strategies of the six products of a block.
std::vector<Extents> spread(const Json& one, std::string& words) {
  const std::int64_t ranks = one["devices"];
  const Json& given = one["given"];
  const Extents seed{.i = given[0][0], .k = given[0][1], .j = given[1][1]};
  const auto [word, tensor_parallel] = seed_of(seed, ranks);
  const std::string to = one["given_to"].is_null() ? "mu" : one["given_to"].get<std::string>();
  SearchedSplits configured = no_splits(1);
  (to == "mu" || to == "md" ? configured.feed_forward : configured.attention)[0] = word;
  const SearchedSplits found = propagate(configured, {false});
  words = std::string(word_of(*found.attention[0])) + ", " +
          std::string(word_of(*found.feed_forward[0]));
  std::vector<Extents> parts;
  for (const SearchProduct& product : net_of(one).products) {
    parts.push_back(parts_of_word(*found.of(product.of, 0), product, ranks, tensor_parallel));
  }
  return parts;
}

}  // namespace

TEST_CASE("recursive_programming decides as MindSpore") {
  const std::vector<Json> cases = cases_of("recursive_programming");
  std::size_t equal = 0;
  for (const Json& one : cases) {
    const std::vector<Extents> found = cut(net_of(one), one["devices"]);
    if (found == answer_in(one)) {
      ++equal;
    } else {
      UNSCOPED_INFO(one.dump() << "\nfound " << text_of(found));
    }
  }
  std::cout << "recursive_programming: " << equal << " of " << cases.size() << " as MindSpore\n";
  CHECK(cases.size() >= 60);
  CHECK(equal == cases.size());
}

TEST_CASE(
    "sharding_propagation spreads splits as MindSpore, where one word for each operator can say "
    "it") {
  const std::vector<Json> cases = cases_of("sharding_propagation");
  std::size_t equal = 0;
  std::vector<std::string> others;
  for (const Json& one : cases) {
    std::string words;
    if (spread(one, words) == answer_in(one)) {
      ++equal;
    } else {
      others.push_back(one["given"].dump() + " on " + one.value("given_to", "mu") + ": " + words);
    }
  }
  std::cout << "sharding_propagation: " << equal << " of " << cases.size() << " as MindSpore\n";
  CHECK(equal == 22);
  // MindSpore cuts the other products of the seeded operator, which no word says.
  std::sort(others.begin(), others.end());
  CHECK(others == std::vector<std::string>{"[[1,1],[1,1]] on mq: whole, features",
                                           "[[2,1],[1,1]] on mq: whole, features",
                                           "[[2,1],[1,1]] on mu: whole, whole"});
}

TEST_CASE("the second factor's producer is compared with the second input") {
  // With up as the first input, down would be cut along k.
  const Json one{{"net", "gated"}, {"rows", 4}, {"h", 2048}, {"f", 2048}, {"devices", 2}};
  CHECK(text_of(cut(net_of(one), 2)) == "(1,1,2)(1,1,2)(1,1,2)");
}

TEST_CASE("consumers that were visited count") {
  // Without them md of the first layer and mu of the second would be (8,1,8) and (8,8,1), as i, k,
  // j.
  const Json one{{"net", "stack"}, {"n", 2},     {"b", 1},        {"s", 72},
                 {"h", 4096},      {"f", 10920}, {"devices", 512}};
  const std::vector<Extents> parts = cut(net_of(one), 512);
  CHECK(at(parts, 5) == Extents{.i = 4, .k = 8, .j = 1});
  CHECK(at(parts, 10) == Extents{.i = 4, .k = 1, .j = 8});
}

TEST_CASE("a lone gated MLP is cut as the arithmetic of two rounds says") {
  const Json one{{"net", "gated"}, {"rows", 512}, {"h", 1024}, {"f", 2816}, {"devices", 4}};
  const SearchNet net = net_of(one);
  const StageSearch answer = cut_recursively(net, 4);
  CHECK(text_of(answer.parts) == "(2,1,2)(4,1,1)(2,2,1)");
  const auto cost = [&](int round, int product, ProductCut cut) {
    return std::llround(*at(at(at(answer.rounds, round), product).costs, cut));
  };
  CHECK(cost(0, 0, ProductCut("i")) == 144179);
  CHECK(cost(0, 0, ProductCut("j")) == 262144);
  CHECK(cost(0, 1, ProductCut("j")) == 8650752);
  CHECK(cost(0, 2, ProductCut("i")) == 23212851);
  CHECK(cost(0, 2, ProductCut("k")) == 23330816);
  CHECK(cost(1, 0, ProductCut("j")) == 131072);
  CHECK(cost(1, 2, ProductCut("k")) == 131072);
}

TEST_CASE("of equal costs the first of i, j, k and none is taken") {
  // i is not possible for an odd number of rows; j and k cost the same.
  SearchNet net;
  net.products = {product("", {301, 1024, 1024}, {})};
  net.order = {0};
  CHECK(text_of(cut(net, 2)) == "(1,1,2)");
  // No cut costs the square of 1.5 times the least, over 350: less where that is small.
  net.products = {product("", {3, 8, 8}, {})};
  CHECK(text_of(cut(net, 2)) == "(1,1,1)");
}

TEST_CASE("worlds of other factors take the largest first") {
  CHECK(prime_factors(12) == std::vector<int>{3, 2, 2});
  CHECK(prime_factors(1).empty());
  CHECK(prime_factors(7) == std::vector<int>{7});
  SearchNet net;
  net.products = {product("", {3600, 1024, 1024}, {})};
  net.order = {0};
  const StageSearch answer = cut_recursively(net, 12);
  CHECK(answer.factors == std::vector<int>{3, 2, 2});
  CHECK(answer.parts[0].i == 12);
}

TEST_CASE("a fixed product keeps its parts and speaks before the first visit") {
  SearchNet net;
  net.products = {product("", {64, 64, 64}, {data_node}), product("", {64, 64, 64}, {0})};
  net.data = {64, 64};
  net.order = {data_node, 0, 1};
  const StageSearch answer = cut_recursively(net, 4, 0, {Extents{.i = 2, .j = 2}, std::nullopt});
  CHECK(answer.parts[0] == Extents{.i = 2, .j = 2});
  CHECK(answer.rounds[0][0].taken == ProductCut("i"));
  CHECK(answer.rounds[1][0].taken == ProductCut("j"));
  // The second product follows, since moving its input would cost 16 elements for each.
  CHECK(answer.parts[1] == Extents{.i = 2, .k = 2});
}

TEST_CASE("products become one word for each operator") {
  CHECK(word_of_parts({.i = 4, .j = 2}, 8, 4) == SplitBy::features);
  CHECK(word_of_parts({.i = 8}, 8, 4) == SplitBy::tokens);
  CHECK(word_of_parts({.i = 4}, 8, 4) == SplitBy::whole);
  CHECK(word_of_parts({.i = 1}, 8, 4) == SplitBy::whole);
  CHECK(word_of_parts({.i = 2}, 8, 4) == SplitBy::tokens);

  ModelShape model;
  model.layers = 1;
  model.hidden = 64;
  model.heads = 4;
  model.kinds = {{.ffn = 256, .kv_heads = 4}};
  model.head_dim = 16;
  const SearchNet net = make_net({.model = model, .layers = {0}, .rows = 8, .data = {8, 64}});
  // q and k by features against v and out by tokens: equal weights, so the first product decides.
  // Of the MLP down's word loses to up's, which comes first.
  const std::vector<Extents> parts{{.i = 4, .j = 2}, {.i = 4, .j = 2}, {.i = 8},
                                   {.i = 8},         {.i = 8},         {.i = 4, .k = 2}};
  SearchedSplits splits = no_splits(1);
  add_words(net, parts, 8, 4, splits);
  CHECK(splits.attention[0] == SplitBy::features);
  CHECK(splits.feed_forward[0] == SplitBy::tokens);
}

TEST_CASE("splits spread from the nearest configured operator before, and back from the first") {
  using enum SplitBy;
  SearchedSplits configured = no_splits(3);
  configured.feed_forward[1] = features;
  const SearchedSplits found = propagate(configured, {false, false, false});
  CHECK(found.embedding == whole);
  CHECK(found.attention == std::vector<std::optional<SplitBy>>{whole, whole, features});
  CHECK(found.feed_forward == std::vector<std::optional<SplitBy>>{whole, features, features});
  CHECK(found.head == features);
  configured.feed_forward[1] = tokens;
  const SearchedSplits by_tokens = propagate(configured, {false, false, true});
  CHECK(by_tokens.embedding == tokens);
  CHECK(by_tokens.feed_forward ==
        std::vector<std::optional<SplitBy>>{tokens, tokens, std::nullopt});
  CHECK(by_tokens.head == tokens);
}
