// The text of a manifest: what is written is read back, and what was changed is refused with its
// place.
#include "checkpoint/manifest.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/philox.h"
#include "catch.h"
#include "checkpoint/hash_bytes.h"
#include "fuzz_body.h"
#include "thorough.h"

using namespace trainctl;
using Json = nlohmann::ordered_json;

namespace {

SavedPiece piece(int file, std::int64_t offset, std::int64_t row, std::int64_t rows) {
  return {file, offset, {{row, 0}, {rows, 4}}, {0x123456789abcdef0}};
}

Manifest sample() {
  Manifest manifest;
  manifest.state = {.step = 500,
                    .samples = 4000,
                    .tokens = 64000,
                    .updates = 499,
                    .loss_scale = 65536,
                    .good_steps = 7,
                    .hysteresis = 2,
                    .skipped_in_row = 1};
  manifest.loss = 0.1;
  manifest.steps = 1000;
  manifest.optimizer = "adamw";
  manifest.plan_hash = 0xfedcba9876543210;
  manifest.layout = {.ranks = 4, .tp = 2, .dp = 2, .schedule = "1f1b", .compute = "bf16"};
  manifest.strategy_hash = 0x0123456789abcdef;
  manifest.files = {{"rank-00000.safetensors", 1000}, {"rank-00001.safetensors", 2000}};
  manifest.tensors = {{"a", "parameters", {6, 4}, {piece(0, 100, 0, 2), piece(1, 200, 2, 4)}},
                      {"a", "exp_avg", {6, 4}, {piece(1, 300, 0, 6)}}};
  return manifest;
}

/// The text after `change` of its content, with a right hash.
template <class Change>
std::string changed(Change change) {
  Json document = Json::parse(manifest_text(sample()));
  change(document["manifest"]);
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx",
                static_cast<unsigned long long>(hash_bytes(document["manifest"].dump())));
  document["xxh3"] = hash;
  return document.dump();
}

std::string refusal(const std::string& text) {
  try {
    parse_manifest(text, "m.json");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::bad_data);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a manifest is read back as it was written", "[manifest]") {
  CHECK(parse_manifest(manifest_text(sample()), "m.json") == sample());
}

TEST_CASE("a manifest says in which type values are stored", "[manifest]") {
  Manifest manifest = sample();
  manifest.tensors[1].dtype = DType::bf16;
  CHECK(manifest_text(manifest).find("\"BF16\"") != std::string::npos);
  CHECK(parse_manifest(manifest_text(manifest), "m.json") == manifest);
  CHECK_FALSE(manifest == sample());
}

TEST_CASE("a manifest says whose value it is where that is another optimizer's", "[manifest]") {
  Manifest manifest = sample();
  CHECK(manifest_text(manifest).find("\"optimizer\"") ==
        manifest_text(manifest).rfind("\"optimizer\""));
  manifest.tensors[1].optimizer = "sgd";
  CHECK(parse_manifest(manifest_text(manifest), "m.json") == manifest);
}

TEST_CASE("a manifest of format version 1 is read", "[manifest]") {
  const std::string text = changed([](Json& m) {
    m["format_version"] = 1;
    m.erase("strategy_xxh3");
  });
  Manifest expected = sample();
  expected.strategy_hash.reset();
  CHECK(parse_manifest(text, "m.json") == expected);
}

TEST_CASE("a manifest that was changed is refused with the place", "[manifest]") {
  using Catch::Matchers::Contains;
  struct Case {
    std::string text;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"", "m.json is not JSON"},
      {"[]", "'manifest' is missing"},
      {manifest_text(sample()).substr(0, 900), "not JSON, or cut off"},
      {changed([](Json& m) { m["format"] = "other"; }), "not the manifest of a checkpoint"},
      {changed([](Json& m) { m["format_version"] = 3; }),
       "format_version 3; this program reads the versions 1 to 2"},
      {changed([](Json& m) { m.erase("strategy_xxh3"); }), "'strategy_xxh3' is missing"},
      {changed([](Json& m) { m["state"].erase("tokens"); }), "state: 'tokens' is missing"},
      {changed([](Json& m) { m["state"]["step"] = -1; }), "state: step must be a whole number"},
      {changed([](Json& m) { m["files"][0]["name"] = "../rank"; }),
       "files[0]: '../rank' must be a file name"},
      {changed([](Json& m) { m["files"][0]["name"] = "/etc/passwd"; }), "must be a file name"},
      {changed([](Json& m) { m["files"][0]["name"] = ".."; }), "must be a file name"},
      {changed([](Json& m) { m["tensors"][0]["dtype"] = "F16"; }),
       "a has dtype F16; only F32 and BF16 can be read"},
      {changed([](Json& m) {
         m["tensors"][0]["shape"] = {1LL << 39, 1LL << 39};
       }),
       "is too large"},
      {changed([](Json& m) {
         m["tensors"][0]["shape"] = {6, 3};
       }),
       "is not within the tensor of shape [6, 3]"},
      {changed([](Json& m) {
         m["tensors"][0]["shape"] = {7, 4};
       }),
       "have 24 of its 28 elements"},
      {changed([](Json& m) {
         m["tensors"][0]["pieces"][1]["begin"] = {1, 0};
       }),
       "overlap: [0:2, 0:4] and [1:5, 0:4]"},
      {changed([](Json& m) { m["tensors"][0]["pieces"][1]["file"] = 2; }),
       "pieces[1]: file must be a whole number from 0 to 1"},
      {changed([](Json& m) { m["tensors"][0]["pieces"][0]["offset"] = 990; }),
       "32 bytes at offset 990, but rank-00000.safetensors has 1000 bytes"},
      {changed([](Json& m) { m["tensors"][0]["pieces"][0]["xxh3"] = Json::array(); }),
       "0 hashes for 32 bytes"},
      {changed([](Json& m) { m["tensors"][1]["value"] = "parameters"; }),
       "parameters of a is listed twice"},
      {changed([](Json& m) { m["plan_hash"] = "12"; }), "must be 16 hexadecimal digits"},
      {changed([](Json& m) { m["tensors"][0]["name"] = "a\x1b[2J"; }),
       "name has control characters: \"a\\u001b[2J\""},
      {std::string(100'000, '['), "nested deeper than 16 levels"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.text.substr(0, 200));
    CHECK_THAT(refusal(one.text), Contains(one.message));
  }
}

TEST_CASE("a flipped bit of a manifest is found, and no text crashes the reader", "[manifest]") {
  const std::string text = manifest_text(sample());
  for (std::size_t place = 0; place < text.size(); ++place) {
    for (const int bit : {0, 3, 6}) {
      std::string other = text;
      other[place] = static_cast<char>(other[place] ^ (1 << bit));
      // A text that is read all the same can only differ in white space.
      Manifest read = sample();
      try {
        read = parse_manifest(other, "m.json");
      } catch (const Error& error) {
        CHECK(error.code() == ExitCode::bad_data);
      }
      CHECK(read == sample());
    }
  }
}

TEST_CASE("changed contents with a right hash give an Error or a manifest, never worse",
          "[manifest]") {
  const std::string content = Json::parse(manifest_text(sample()))["manifest"].dump();
  const std::string telling = "\"{}[],:0129-.e\\tnu";
  REQUIRE(testing::use_text(content));
  int accepted = 0;
  const auto rounds = static_cast<std::uint64_t>(tries(600, 50'000));
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const Philox random(3, i);
    std::string text = content;
    const std::size_t place = random.bits(0) % text.size();
    switch (random.bits(1) % 4) {
      case 0: text.erase(place, 1 + random.bits(2) % 9); break;
      case 1: text.insert(place, text.substr(random.bits(2) % text.size(), 30)); break;
      default: text[place] = telling[random.bits(2) % telling.size()]; break;
    }
    accepted += testing::use_text(text) ? 1 : 0;
  }
  CHECK(accepted > 0);
}
