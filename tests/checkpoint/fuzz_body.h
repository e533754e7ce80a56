// The fuzz target and its replay in the unit tests use a text as a manifest, as it is and with a
// right hash. It must be refused with an Error, or be written and read back the same.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "checkpoint/hash_bytes.h"
#include "checkpoint/manifest.h"

namespace trainctl::testing {

inline bool use_manifest(const std::string& text) {
  try {
    const Manifest manifest = parse_manifest(text, "m.json");
    if (!(parse_manifest(manifest_text(manifest), "again.json") == manifest)) std::abort();
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// `content`: the text under the key "manifest".
inline std::string with_hash(const std::string& content) {
  const auto json = nlohmann::ordered_json::parse(content, nullptr, false);
  if (json.is_discarded()) return content;
  std::string compact;
  try {
    compact = json.dump();
  } catch (const nlohmann::json::exception&) {  // not UTF-8
    return content;
  }
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(hash_bytes(compact)));
  return R"({"manifest": )" + compact + R"(, "xxh3": ")" + hash + "\"}";
}

/// Returns whether it was accepted as the content of a manifest.
inline bool use_text(std::string_view text) {
  use_manifest(std::string(text));
  return use_manifest(with_hash(std::string(text)));
}

}  // namespace trainctl::testing
