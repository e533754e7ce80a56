#include "plan/search/net.h"

#include <algorithm>

#include "base/at.h"
#include "plan/model/form.h"

namespace trainctl {

namespace {

constexpr int no_product = -2;  // another vertex: a sum, scores

/// A vertex of the walk; `inputs` are indices of vertices.
struct Vertex {
  int product = no_product;
  std::vector<int> inputs;
};

class NetBuilder {
 public:
  explicit NetBuilder(const NetInput& input) : input_(input) {
    net_.data = input.data;
    stream_ = add(data_node, {});
    written_ = {data_node};
  }

  SearchNet make() {
    for (const std::int64_t layer : input_.layers) add_layer(layer);
    if (input_.head) {
      const ModelShape& model = input_.model;
      stream_ = read_stream("head", 0, "head", model.padded_vocab);
    }
    walk();
    return std::move(net_);
  }

 private:
  int add(int product, std::vector<int> inputs) {
    vertices_.push_back({product, std::move(inputs)});
    return static_cast<int>(vertices_.size()) - 1;
  }

  int add_product(SearchProduct product, int input) {
    net_.products.push_back(std::move(product));
    return add(static_cast<int>(net_.products.size()) - 1, {input});
  }

  /// Adds a product that reads the residual stream, to which the data and earlier products added.
  int read_stream(const std::string& name, std::int64_t layer, SearchOperator of,
                  std::int64_t width) {
    const Extents extents{input_.rows, input_.model.hidden, width};
    return add_product(
        {.name = name, .layer = layer, .of = of, .extents = extents, .producers = written_},
        stream_);
  }

  /// Adds a product that reads vertex `activation` and adds its result to the residual stream.
  void write_stream(SearchProduct product, int activation) {
    product.sums = true;
    const int vertex = add_product(std::move(product), activation);
    written_.push_back(at(vertices_, vertex).product);
    stream_ = add(no_product, {stream_, vertex});
  }

  void add_layer(std::int64_t layer) {
    const ModelShape& model = input_.model;
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    const auto reads = [&](const char* name, SearchOperator of, std::int64_t width) {
      return read_stream(prefix + name, layer, of, width);
    };
    const SearchOperator attention = "attention";
    const int q = reads("attention.q", attention, model.q_features());
    const LayerForm form = layer_form(model, layer);
    const int k = reads("attention.k", attention, form.attention.kv());
    const int v = reads("attention.v", attention, form.attention.kv());
    const int scores = add(no_product, {q, k});
    std::vector<int> factors{add(no_product, {scores, v})};
    if (form.attention.output_gate) {
      factors.push_back(reads("attention.gate", attention, model.q_features()));
    }
    write_stream({.name = prefix + "attention.out",
                  .layer = layer,
                  .of = attention,
                  .extents = {input_.rows, model.q_features(), model.hidden},
                  .producers = {at(vertices_, q).product}},
                 factors.size() == 1 ? factors.front() : add(no_product, factors));
    if (form.has_experts()) return;
    const SearchOperator mlp = "feed_forward";
    factors.clear();
    const std::int64_t ffn = form.ffn;
    if (model.gated_mlp) factors.push_back(reads("mlp.gate", mlp, ffn));
    factors.push_back(reads("mlp.up", mlp, ffn));
    SearchProduct down{.name = prefix + "mlp.down",
                       .layer = layer,
                       .of = mlp,
                       .extents = {input_.rows, ffn, model.hidden},
                       .producers = {at(vertices_, factors.front()).product}};
    if (model.gated_mlp) down.second = at(vertices_, factors.back()).product;
    write_stream(std::move(down), add(no_product, factors));
  }

  void walk() {
    met_.assign(vertices_.size(), false);
    meet(stream_);
    std::ranges::reverse(net_.order);
    if (!input_.data_last) return;
    std::erase(net_.order, data_node);
    net_.order.push_back(data_node);
  }

  void meet(int vertex) {
    if (met_[static_cast<std::size_t>(vertex)]) return;
    met_[static_cast<std::size_t>(vertex)] = true;
    const Vertex& node = at(vertices_, vertex);
    if (node.product != no_product) net_.order.push_back(node.product);
    for (auto input = node.inputs.rbegin(); input != node.inputs.rend(); ++input) meet(*input);
  }

  const NetInput& input_;
  SearchNet net_;
  std::vector<Vertex> vertices_;
  int stream_ = 0;            // vertex of the residual stream, which a layer reads
  std::vector<int> written_;  // data and products that were added to the stream so far
  std::vector<bool> met_;
};

}  // namespace

SearchNet make_net(const NetInput& input) { return NetBuilder(input).make(); }

}  // namespace trainctl
