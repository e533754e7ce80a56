// A text with a value for each layer: "full*2, none*3". "*n" repeats one.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// The text before the first `mark`; `rest` is what follows it.
inline std::string_view cut(std::string_view text, char mark, std::string_view& rest) {
  const std::size_t at = text.find(mark);
  rest = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  return trimmed(text.substr(0, at));
}

template <class Value>
struct PerLayer {
  std::vector<Value> values;
  std::string error;  // why the text cannot be read; empty if it can
};

/// parse(text) gives std::optional<Value>. At most `most` values; errors call them `plural`.
template <class Value, class Parse>
PerLayer<Value> parse_repeated(std::string_view text, std::int64_t most, const char* plural,
                               const Parse& parse) {
  PerLayer<Value> read;
  std::string_view rest = text;
  do {
    const std::string_view entry = cut(rest, ',', rest);
    std::string_view times;
    const auto value = parse(cut(entry, '*', times));
    std::int64_t count = 1;
    if (entry.find('*') != std::string_view::npos) {
      times = trimmed(times);
      const char* end = times.data() + times.size();
      const auto [stop, status] = std::from_chars(times.data(), end, count);
      if (status != std::errc() || stop != end) count = 0;
    }
    if (!value || count < 1) {
      read.error = "cannot read '" + std::string(entry) + "'";
      return read;
    }
    if (count > most - std::ssize(read.values)) {
      read.error = "it has more than " + std::to_string(most) + " " + plural;
      return read;
    }
    read.values.insert(read.values.end(), static_cast<std::size_t>(count), *value);
  } while (!rest.empty());
  return read;
}

/// The same; the values must be as many as `layers`.
template <class Value, class Parse>
PerLayer<Value> parse_per_layer(std::string_view text, std::int64_t layers, const char* plural,
                                const Parse& parse) {
  PerLayer<Value> read = parse_repeated<Value>(text, layers, plural, parse);
  if (read.error.empty() && std::ssize(read.values) < layers) {
    read.error = "it has " + std::to_string(read.values.size()) + " " + plural;
  }
  return read;
}

}  // namespace trainctl
