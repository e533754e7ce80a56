// Values of a manifest with their places in it, which messages name.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/shape.h"

namespace trainctl {

using ManifestJson = nlohmann::ordered_json;

inline constexpr std::int64_t most_extent = std::int64_t{1} << 40;  // of a dimension

/// Every reader throws Error{bad_data} with the place for a value of another kind.
class ManifestNode {
 public:
  ManifestNode(const ManifestJson& value, std::string where)
      : value_(value), where_(std::move(where)) {}

  ManifestNode operator[](const char* key) const;
  std::vector<ManifestNode> list() const;
  std::int64_t count(std::int64_t most = std::int64_t{1} << 62) const;
  double real() const;
  std::optional<double> optional_real() const;
  bool flag() const;
  /// Without control characters: it appears in messages.
  std::string text() const;
  std::uint64_t hash() const;
  Shape shape() const;
  const std::string& where() const { return where_; }

 private:
  const ManifestJson& value_;
  std::string where_;
};

/// Throws Error{bad_data} for text that is not JSON, or nested deeper than any manifest.
ManifestJson parse_manifest_json(const std::string& text, const std::string& where);

}  // namespace trainctl
