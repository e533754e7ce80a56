#include "run/products/algorithm_file.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/hash_bytes.h"

namespace trainctl {

namespace {

using Json = nlohmann::json;

constexpr const char* content_key = "product_algorithms";
constexpr const char* hash_key = "xxh3";

DType type_named(const std::string& name) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    if (name == name_of(type)) return type;
  }
  throw Error(ExitCode::bad_data, "no product has elements of type '" + name + "'");
}

Json json_of(const ProductKey& key) {
  return {{"m", key.m},
          {"n", key.n},
          {"k", key.k},
          {"transpose_a", key.transpose_a},
          {"transpose_b", key.transpose_b},
          {"accumulate", key.accumulate},
          {"operand", name_of(key.operand)},
          {"result", name_of(key.result)},
          {"epilogue", key.epilogue},
          {"multiprocessors", key.multiprocessors},
          {"count", key.count},
          {"strides", key.strides},
          {"alignments", key.alignments}};
}

ProductKey key_of(const Json& json) {
  ProductKey key;
  json.at("m").get_to(key.m);
  json.at("n").get_to(key.n);
  json.at("k").get_to(key.k);
  json.at("transpose_a").get_to(key.transpose_a);
  json.at("transpose_b").get_to(key.transpose_b);
  json.at("accumulate").get_to(key.accumulate);
  key.operand = type_named(json.at("operand"));
  key.result = type_named(json.at("result"));
  json.at("epilogue").get_to(key.epilogue);
  json.at("multiprocessors").get_to(key.multiprocessors);
  json.at("count").get_to(key.count);
  json.at("strides").get_to(key.strides);
  json.at("alignments").get_to(key.alignments);
  return key;
}

Json json_of(const ProductAlgorithm& one) {
  return {{"product", json_of(one.product)},
          {"algorithm", one.words},
          {"proposal", one.proposal},
          {"seconds", one.seconds},
          {"first_seconds", one.first_seconds}};
}

ProductAlgorithm algorithm_of(const Json& json) {
  ProductAlgorithm one{.product = key_of(json.at("product"))};
  json.at("algorithm").get_to(one.words);
  json.at("proposal").get_to(one.proposal);
  json.at("seconds").get_to(one.seconds);
  json.at("first_seconds").get_to(one.first_seconds);
  return one;
}

AlgorithmTable table_of(const Json& whole, const std::string& where) {
  const Json& content = whole.at(content_key);
  require(whole.at(hash_key) == hash_bytes(content.dump()), ExitCode::bad_data,
          where + " does not have the hash in it; it was changed or damaged");
  AlgorithmTable table;
  content.at("cublaslt").get_to(table.site.library);
  content.at("device").get_to(table.site.device);
  for (const Json& one : content.at("algorithms")) table.algorithms.push_back(algorithm_of(one));
  return table;
}

}  // namespace

std::string ProductSite::to_string() const {
  return "cuBLASLt " + std::to_string(library) + " on " + device;
}

std::string table_text(const AlgorithmTable& table) {
  Json algorithms = Json::array();
  for (const ProductAlgorithm& one : table.algorithms) algorithms.push_back(json_of(one));
  const Json content{{"cublaslt", table.site.library},
                     {"device", table.site.device},
                     {"algorithms", std::move(algorithms)}};
  return Json{{content_key, content}, {hash_key, hash_bytes(content.dump())}}.dump() + "\n";
}

AlgorithmTable parse_table(const std::string& text, const std::string& where) {
  try {
    return table_of(Json::parse(text), where);
  } catch (const Json::exception& error) {
    throw Error(ExitCode::bad_data, where + " is damaged: " + error.what());
  }
}

std::string noted_text(const std::vector<NotedProduct>& noted) {
  Json list = Json::array();
  for (const NotedProduct& one : noted) list.push_back({json_of(one.product), one.calls});
  return list.dump();
}

std::vector<NotedProduct> parse_noted(const std::string& text) {
  std::vector<NotedProduct> noted;
  for (const Json& one : Json::parse(text)) {
    noted.push_back({key_of(one.at(0)), one.at(1).get<std::int64_t>()});
  }
  return noted;
}

}  // namespace trainctl
