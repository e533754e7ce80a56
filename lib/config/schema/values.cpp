#include "config/schema/values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "config/report/diagnostics.h"
#include "config/yaml/numbers.h"

namespace trainctl {
namespace {

std::string as_string(std::string_view text) { return "\"" + shown(text) + "\""; }

/// Quotes words, but not numbers.
std::string cited(std::string_view text) {
  const bool number =
      !text.empty() && std::string_view("0123456789+-.").find(text[0]) != std::string_view::npos;
  return number ? shown(text) : as_string(text);
}

std::string use(const std::string& text) { return text.empty() ? "" : "write " + text; }

bool is_number(std::string_view text) {
  double value = 0;
  return !parse_number(text, value);
}

std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null: return "no value";
    case YamlNode::Kind::map: return "a map";
    case YamlNode::Kind::sequence: return "a list";
    case YamlNode::Kind::scalar: break;
  }
  return node.quoted ? as_string(node.scalar) : cited(node.scalar);
}

/// A number followed by letters: "10k", "80 GiB", "0.5h".
struct NumberWithUnit {
  double number = 0;
  std::string unit;
};
/// Splits such a text; none if it lacks letters or a number.
std::optional<NumberWithUnit> split_unit(std::string_view text) {
  const auto is_letter = [](char c) {
    return c == '%' || std::isalpha(static_cast<unsigned char>(c)) != 0;
  };
  std::size_t end = text.size();
  while (end > 0 && is_letter(text[end - 1])) --end;
  NumberWithUnit result;
  result.unit = text.substr(end);
  std::string_view number = text.substr(0, end);
  while (number.ends_with(' ')) number.remove_suffix(1);
  if (result.unit.empty() || parse_number(number, result.number)) return std::nullopt;
  return result;
}

Problem out_of_range(const std::string& value, const Bounds& range) {
  const std::string limits = range.to_string();
  const char* from = limits.find(" to ") == std::string::npos ? "" : "from ";
  return {"out-of-range", "must be " + (from + limits) + ", found " + value, ""};
}

// Units and their factors.
constexpr std::pair<std::string_view, double> count_units[] = {
    {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}};
constexpr std::pair<std::string_view, double> gib_units[] = {
    {"MiB", 0x1p-10},     {"GiB", 1},           {"TiB", 0x1p10},
    {"MB", 1e6 / 0x1p30}, {"GB", 1e9 / 0x1p30}, {"TB", 1e12 / 0x1p30}};

/// The factor of a unit; 0 if the field does not accept it.
double factor_of(Unit unit, std::string_view name) {
  const std::span<const std::pair<std::string_view, double>> units =
      unit == "gib" ? std::span(gib_units)
                    : std::span<const std::pair<std::string_view, double>>(count_units);
  for (const auto& [known, factor] : units) {
    if (known == name) return factor;
  }
  return 0;
}

/// A number with a unit of the field; none if it has no such unit.
template <class Number>
std::optional<Number> with_unit(const YamlNode& node, const Field& field) {
  const auto given = field.unit == "none" ? std::nullopt : split_unit(node.scalar);
  const double factor = given ? factor_of(field.unit, given->unit) : 0;
  if (factor == 0) return std::nullopt;
  const double value = given->number * factor;
  if (std::is_floating_point_v<Number>) return static_cast<Number>(value);
  // Accepts 1.001k as 1001 although 1.001 is not exact in binary.
  const double whole = std::round(value);
  const bool is_whole =
      std::abs(value - whole) <= 1e-9 * std::abs(value) && std::abs(whole) < 0x1p53;
  return is_whole ? std::optional(static_cast<Number>(whole)) : std::nullopt;
}

/// The help for a number with a unit that the field does not accept.
std::string help_for_unit(const std::string& text, const Field& field, bool whole) {
  const auto given = split_unit(text);
  if (!given) return "";
  const std::string number = plain_number(given->number);
  const std::string& unit = given->unit;
  if (unit == "m" && field.unit == "count") {
    const std::string millions = formatted("write {}: {}M for millions", field.key, number);
    return field.minutes_key.empty()
               ? millions
               : formatted("write {}: {} for minutes, or {}", field.minutes_key, number,
                           millions.substr(std::string_view("write ").size()));
  }
  const auto in = [&](double factor) { return "write " + plain_number(given->number * factor); };
  if (field.key.ends_with("_minutes") || field.key.ends_with("_seconds")) {
    const double to_minutes = field.key.ends_with("_minutes") ? 1 : 60;
    if (unit == "h") return in(60 * to_minutes);
    if (unit == "m" || unit == "min") return in(to_minutes);
    if (unit == "s" || unit == "sec") return in(to_minutes / 60);
  }
  // Learning rates are not percentages.
  if (unit == "%") return whole || field.key.ends_with("_lr") ? "" : in(0.01);
  const double decimal = factor_of("count", unit);
  const double binary = unit == "k" || unit == "K" ? 1024 : unit == "M" ? 0x1p20 : 0;
  if (decimal == 0) return "";
  return in(decimal) + (binary == 0 ? "" : " or " + plain_number(given->number * binary));
}

/// Help for a key without a value, or with another language's word for none.
std::string help_for_nothing(const Field& field) {
  return field.is_required ? "write a number" : "remove it: without it the default holds";
}

/// Help for a word in place of a number: "never" if 0 means that, "auto" if the default does it.
std::string help_for_word(const std::string& word, const Field& field) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::find(words, word) != words.end();
  };
  constexpr std::string_view mark = "; 0: ";
  const std::size_t at = field.meaning.find(mark);
  const bool has_zero = at != std::string_view::npos && field.range.holds(0);
  const std::string_view zero = has_zero ? field.meaning.substr(at + mark.size()) : "";
  const bool is_none =
      zero.starts_with("no") || zero.starts_with("never") || zero.starts_with("only");
  if (is_none && is_one_of({"none", "nil", "never", "no", "off", "false", "disabled"})) {
    return "write 0";
  }
  if (zero.starts_with("all") && is_one_of({"all", "none", "nil"})) return "write 0";
  return is_one_of({"none", "nil", "auto"}) ? help_for_nothing(field) : "";
}

template <class Number>
std::optional<Problem> read_number(const YamlNode& node, const Field& field, const char* expected,
                                   Number& value) {
  if (node.kind != YamlNode::Kind::scalar) {
    Problem other = wrong_type(node, expected);
    if (node.kind == YamlNode::Kind::null) other.help = help_for_nothing(field);
    return other;
  }
  Number result{};
  auto problem = parse_number(node.scalar, result);
  const auto counted = problem ? with_unit<Number>(node, field) : std::nullopt;
  if (counted) {
    result = *counted;
    problem.reset();
  }
  if (node.quoted && !counted) {
    Problem in_quotes = wrong_type(node, expected);
    in_quotes.message =
        formatted("expected {}, found the string {}", expected, as_string(node.scalar));
    in_quotes.help = use(problem ? problem->help : node.scalar);
    return in_quotes;
  }
  if (problem) {
    const std::string word = lower_case(node.scalar);
    std::string help = help_for_unit(node.scalar, field, std::is_integral_v<Number>);
    Number meant{};
    const bool holds = !problem->help.empty() && !parse_number(problem->help, meant) &&
                       field.range.holds(static_cast<double>(meant));
    if (help.empty() && holds) help = use(problem->help);
    if (help.empty()) help = help_for_word(word, field);
    return Problem{problem->code, cited(node.scalar) + " " + problem->message, help};
  }
  if (!field.range.holds(static_cast<double>(result))) {
    return out_of_range(shown(node.scalar), field.range);
  }
  value = result;
  return std::nullopt;
}

/// "true" or "false" for words such as "yes" and "off"; "" for other words.
std::string meant_bool(std::string_view text) {
  const std::string word = lower_case(text);
  for (const char* yes : {"yes", "on", "y", "1", "true"}) {
    if (word == yes) return "true";
  }
  for (const char* no : {"no", "off", "n", "0", "false"}) {
    if (word == no) return "false";
  }
  return "";
}

/// Our words with those of other projects, for words that are not similar in spelling.
constexpr std::pair<std::string_view, std::string_view> other_words[] = {
    {"cuda", "gpu|nvidia"},
    {"adamw", "adam|adamw_torch|adamw_torch_fused"},
    {"sgd", "momentum"},
    {"llama", "mistral|llama2|llama3"},
    {"gpt2", "gpt|gpt3|gpt-2"},
    {"fp32", "float|single"},
    {"bf16", "bf16-mixed|bf16-true"},
    {"fp16", "16-mixed"},
    {"cosine", "cosine_with_warmup|cosine_annealing"},
    {"linear", "linear_with_warmup"},
    {"constant", "constant_with_warmup"},
    {"inverse-square-root", "inverse_sqrt"},
    {"WSD", "warmup_stable_decay"},
    {"1f1b", "interleaved1f1b"},
    {"zb-v", "zbv|zbvzerobubble"},
    {"probability", "probs"},
    {"warning", "warn"},
};

/// Our words with the words of what is not built and nearest to them.
constexpr std::pair<std::string_view, std::string_view> not_built_words[] = {
    {"bf16", "fp8|fp4|int8|int4|fp8_e4m3|fp8_e5m2|mxfp8|nvfp4|nf4"},
    {"fp32", "fp64|float64|double|torch.float64|tf32"},
    {"cpu", "tpu|xla|mps|metal|rocm|hip|xpu|hpu|npu|ascend"},
    {"adamw",
     "muon|adafactor|adagrad|lamb|adamw_8bit|adamw_bnb_8bit|paged_adamw_8bit|rmsprop|shampoo|soap|"
     "sophia|adadelta|nadam|radam"},
    {"1f1b", "seqpipe"},
    {"zb-v", "dualpipe"},
    {"linear", "polynomial"},
    {"cosine", "exponential|one_cycle|onecycle|cosine_with_restarts|reduce_lr_on_plateau"},
    {"constant", "step|multistep"},
};

/// The candidate whose row has the word; "" if there is none.
std::string_view candidate_for(const std::string& word,
                               std::span<const std::pair<std::string_view, std::string_view>> rows,
                               const std::vector<std::string>& candidates) {
  for (const auto& [ours, theirs] : rows) {
    const std::vector<std::string> words = split_words(theirs);
    const bool is_here = std::ranges::find(candidates, ours) != candidates.end();
    if (is_here && std::ranges::find(words, word) != words.end()) return ours;
  }
  return "";
}

/// Help such as "did you mean cuda?" for a word that is not among the candidates, or "".
std::string meant_word(const std::string& value, const std::vector<std::string>& candidates) {
  const std::string small = lower_case(value);
  const std::string_view meant = candidate_for(small, other_words, candidates);
  if (!meant.empty()) return formatted("did you mean {}?", meant);
  const std::string truth = meant_bool(value);
  if (std::ranges::find(candidates, truth) != candidates.end()) return use(truth);
  const std::string_view built = candidate_for(small, not_built_words, candidates);
  if (!built.empty()) return formatted("write {}; {} is not built", built, small);
  std::vector<std::string> words;  // without numbers, which are similar to any other
  for (const std::string& word : candidates) {
    if (word.find_first_not_of("0123456789") != std::string::npos) words.push_back(word);
  }
  std::string near = nearest(value, words);
  if (near.empty()) near = nearest(small, words);
  return near.empty() ? "" : "did you mean " + near + "?";
}

/// The value of a node that YAML reads as a bool; Python prints the capitalised spellings.
std::optional<bool> bool_of(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar || node.quoted) return std::nullopt;
  for (const char* yes : {"true", "True", "TRUE"}) {
    if (node.scalar == yes) return true;
  }
  for (const char* no : {"false", "False", "FALSE"}) {
    if (node.scalar == no) return false;
  }
  return std::nullopt;
}

/// Whether YAML reads the unquoted word as a bool or a number.
bool is_no_text(std::string_view word) {
  return word == "true" || word == "false" ||
         word.find_first_not_of("0123456789") == std::string_view::npos;
}

bool spells(const YamlNode& node, std::string_view word) {
  if (const auto given = bool_of(node)) return word == (*given ? "true" : "false");
  return node.scalar == word && !(node.quoted && is_no_text(word));
}

std::optional<Problem> check_words(const std::string& value, const Field& field) {
  if (field.string_words.empty()) return std::nullopt;
  const std::vector<std::string> words = split_words(field.string_words);
  std::vector<std::string> shown;
  for (const std::string& word : words) {
    const bool is_prefix = word.ends_with(':');
    if (value == word && !is_prefix) return std::nullopt;
    if (is_prefix && value.starts_with(word) && value.size() > word.size()) return std::nullopt;
    shown.push_back(word + (is_prefix ? "NAME" : ""));
  }
  return Problem{"bad-word", "must be " + listed(shown, " or ") + ", found " + as_string(value),
                 meant_word(value, words)};
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string result;
  for (char c : text) result += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return result;
}

Problem wrong_type(const YamlNode& node, const std::string& expected) {
  return {"wrong-type", "expected " + expected + ", found " + describe(node), ""};
}

std::string shown(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string result = printable(text.substr(0, longest));
  std::replace(result.begin(), result.end(), '\t', ' ');
  if (text.size() <= longest) return result;
  while (!result.empty() && (static_cast<unsigned char>(result.back()) & 0xC0U) == 0x80U) {
    result.pop_back();
  }
  if (!result.empty() && static_cast<unsigned char>(result.back()) >= 0xC0U) result.pop_back();
  return result + "...";
}

std::optional<Problem> read_value(const YamlNode& node, const Field& field, std::int64_t& value) {
  return read_number(node, field, "a whole number", value);
}

std::optional<Problem> read_value(const YamlNode& node, const Field& field, std::uint64_t& value) {
  return read_number(node, field, "a whole number", value);
}

std::optional<Problem> read_value(const YamlNode& node, const Field& field, double& value) {
  return read_number(node, field, "a number", value);
}

std::optional<Problem> read_value(const YamlNode& node, const Field&, bool& value) {
  if (const auto given = bool_of(node)) {
    value = *given;
    return std::nullopt;
  }
  Problem problem = wrong_type(node, "true or false");
  problem.help = use(meant_bool(node.scalar));
  return problem;
}

std::optional<Problem> read_value(const YamlNode& node, const Field& field, std::string& value) {
  if (node.kind != YamlNode::Kind::scalar) {
    Problem problem = wrong_type(node, "a string");
    if (node.kind == YamlNode::Kind::null) problem.help = "write \"\" for an empty string";
    return problem;
  }
  const bool control = std::any_of(node.scalar.begin(), node.scalar.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  if (control) {
    return Problem{"control-character",
                   as_string(node.scalar) + " contains a line end or a control character",
                   "write it on one line"};
  }
  if (field.range.has_least() && node.scalar.empty()) {
    return Problem{"out-of-range", "must not be empty", ""};
  }
  if (auto problem = check_words(node.scalar, field)) return problem;
  value = node.scalar;
  return std::nullopt;
}

std::optional<Problem> read_word(const YamlNode& node, std::span<const Word> words, int& value) {
  const std::string usual = join_words(words);
  if (node.kind != YamlNode::Kind::scalar) return wrong_type(node, usual);
  std::vector<std::string> candidates;
  for (const Word& word : words) {
    candidates.emplace_back(word.text);
    if (!spells(node, word.text)) continue;
    value = word.value;
    return std::nullopt;
  }
  if (std::ranges::find(candidates, node.scalar) != candidates.end()) {
    return Problem{"bad-word", "must be " + usual + ", found the string " + as_string(node.scalar),
                   "write " + node.scalar + " without quotes"};
  }
  return Problem{"bad-word", "must be " + usual + ", found " + as_string(node.scalar),
                 meant_word(node.scalar, candidates)};
}

std::string write_value(double value) {
  std::string text = plain_number(value);
  // YAML 1.1 requires a dot in a number with an exponent.
  if (text.find('.') == std::string::npos) text.insert(std::min(text.find('e'), text.size()), ".0");
  return text;
}

std::string write_value(std::int64_t value) { return std::to_string(value); }
std::string write_value(std::uint64_t value) { return std::to_string(value); }
std::string write_value(bool value) { return value ? "true" : "false"; }

std::string write_value(const std::string& value) {
  const auto safe = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
           c == '/';
  };
  const std::string word = lower_case(value);
  const bool special = word == "null" || !meant_bool(word).empty() || is_number(value);
  const bool starts_well =
      !value.empty() && (std::isalpha(static_cast<unsigned char>(value[0])) || value[0] == '/');
  if (starts_well && !special && std::all_of(value.begin(), value.end(), safe)) return value;
  const bool variable =
      value.find("${") != std::string::npos || value.find("$$") != std::string::npos;
  std::string text = "\"";
  for (char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '$' && variable) text += '$';
    text += c;
  }
  return text + "\"";
}

std::string join_words(std::span<const Word> words) {
  std::vector<std::string> written;
  for (const Word& word : words) {
    if (!word.is_alias) written.emplace_back(word.text);
  }
  return listed(written, " or ");
}

std::vector<std::string> split_words(std::string_view words) { return split_at(words, '|'); }

std::vector<std::string> split_at(std::string_view text, char between) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(between), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string Bounds::to_string() const {
  if (has_least() && has_most() && !above_least && !below_most) {
    return plain_number(least) + " to " + plain_number(most);
  }
  std::string text;
  if (has_least()) text = (above_least ? "above " : "at least ") + plain_number(least);
  if (has_most()) {
    text += text.empty() ? "" : " and ";
    text += (below_most ? "below " : "at most ") + plain_number(most);
  }
  return text;
}

}  // namespace trainctl
