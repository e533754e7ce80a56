#include "checkpoint/manifest_node.h"

#include <algorithm>

#include "base/at.h"
#include "base/error.h"

namespace trainctl {

namespace {

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

}  // namespace

ManifestNode ManifestNode::operator[](const char* key) const {
  require(value_.is_object() && value_.contains(key), ExitCode::bad_data,
          where_ + ": '" + key + "' is missing");
  return {value_.at(key), where_ + ": " + key};
}

std::vector<ManifestNode> ManifestNode::list() const {
  require(value_.is_array(), ExitCode::bad_data, where_ + " must be a list");
  std::vector<ManifestNode> nodes;
  for (std::size_t i = 0; i < value_.size(); ++i) {
    nodes.emplace_back(value_[i], where_ + "[" + std::to_string(i) + "]");
  }
  return nodes;
}

std::int64_t ManifestNode::count(std::int64_t most) const {
  require(value_.is_number_unsigned() &&
              value_.get<std::uint64_t>() <= static_cast<std::uint64_t>(most),
          ExitCode::bad_data,
          where_ + " must be a whole number from 0 to " + std::to_string(most) + ", not " +
              value_.dump());
  return value_.get<std::int64_t>();
}

double ManifestNode::real() const {
  require(value_.is_number(), ExitCode::bad_data, where_ + " must be a number");
  return value_.get<double>();
}

std::optional<double> ManifestNode::optional_real() const {
  return value_.is_null() ? std::nullopt : std::optional(real());
}

bool ManifestNode::flag() const {
  require(value_.is_boolean(), ExitCode::bad_data, where_ + " must be true or false");
  return value_.get<bool>();
}

std::string ManifestNode::text() const {
  require(value_.is_string(), ExitCode::bad_data, where_ + " must be a string");
  std::string text = value_.get<std::string>();
  const bool clean = std::none_of(text.begin(), text.end(), [](char letter) {
    return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f;
  });
  require(clean, ExitCode::bad_data, where_ + " has control characters: " + value_.dump());
  return text;
}

std::uint64_t ManifestNode::hash() const {
  const std::string digits = text();
  require(digits.size() == 16 && digits.find_first_not_of("0123456789abcdef") == std::string::npos,
          ExitCode::bad_data, where_ + " must be 16 hexadecimal digits");
  return std::stoull(digits, nullptr, 16);
}

Shape ManifestNode::shape() const {
  const std::vector<ManifestNode> dims = list();
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

ManifestJson parse_manifest_json(const std::string& text, const std::string& where) {
  // Each level takes stack when a value is written.
  require(nesting_of(text) <= most_nesting, ExitCode::bad_data,
          where + " is nested deeper than " + std::to_string(most_nesting) + " levels");
  ManifestJson document = ManifestJson::parse(text, nullptr, false);
  require(!document.is_discarded(), ExitCode::bad_data, where + " is not JSON, or cut off");
  return document;
}

}  // namespace trainctl
