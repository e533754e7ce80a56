#include "base/at.h"
#include "config/schema/words.h"
#include "formats/json/json_parts.h"

namespace trainctl {

namespace {

using enum JsonText::Form;

void write_costs(JsonText& json, const CutChoice& choice) {
  json.open_object(one_line);
  const char* names[] = {"i", "j", "k", "none"};
  json.member("taken", at(names, choice.taken));
  for (const ProductCut cut : all_cuts) write_optional(json, at(names, cut), at(choice.costs, cut));
  json.close();
}

void write_products(JsonText& json, const StageSearch& stage) {
  for (std::size_t product = 0; product < stage.net.products.size(); ++product) {
    const ProductParts& parts = at(stage.answer.parts, product);
    json.open_object();
    json.member("stage", stage.stage);
    json.member("name", stage.net.products[product].name);
    json.member("parts", std::vector<std::int64_t>{parts.i, parts.k, parts.j});
    json.key("rounds").open_array();
    for (const auto& round : stage.answer.rounds) write_costs(json, at(round, product));
    json.close();
    json.close();
  }
}

void write_seconds(JsonText& json, const SecondsSearch& found) {
  json.key("by_seconds").open_object();
  json.member("device", found.device);
  json.member("memory_limit_gib", found.limit_gib);
  json.member("seconds", found.seconds);
  json.member("bytes", found.bytes);
  json.member("bounded", static_cast<std::int64_t>(found.bounded));
  json.member("drafted", static_cast<std::int64_t>(found.drafted));
  json.member("planned", static_cast<std::int64_t>(found.planned));
  json.member("gap", found.gap);
  json.key("others").open_array();
  for (const OtherDecision& one : found.others) {
    json.open_object(one_line);
    json.member("of", one.of);
    json.member("taken", one.taken);
    json.member("otherwise", one.otherwise);
    json.member("seconds", one.seconds);
    json.member("fits", one.fits);
    json.member("at_least", one.at_least);
    json.close();
  }
  json.close();
  json.close();
}

}  // namespace

void write_search(JsonText& json, const PrintInput& input) {
  if (input.search == nullptr) return;
  const SearchReport& report = *input.search;
  json.key("search").open_object();
  json.member("mode", word_of(report.mode));
  json.member("ranks", report.ranks);
  json.member("tensor_parallel", report.tensor_parallel);
  json.member("data_parallel", report.data_parallel);
  json.member("notes", report.notes);
  if (report.by_seconds) write_seconds(json, *report.by_seconds);
  json.key("products").open_array();
  for (const StageSearch& stage : report.stages) write_products(json, stage);
  json.close();
  json.close();
}

}  // namespace trainctl
