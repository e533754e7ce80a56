#include "plan/tables/recompute_form.h"

#include <algorithm>

#include "base/at.h"

namespace trainctl {

namespace {

constexpr std::uint8_t of_parts(BlockPart one, BlockPart other) {
  return bit_of(one) | bit_of(other);
}

struct FormWord {
  std::string_view word;
  std::uint8_t parts = 0;
};
/// In the order of preference of form_text(): words for several parts precede words for one.
constexpr FormWord words[] = {
    {"full", all_parts},
    {"norms", of_parts(BlockPart::norm1, BlockPart::norm2)},
    {"norm1", bit_of(BlockPart::norm1)},
    {"norm2", bit_of(BlockPart::norm2)},
    {"qkv", bit_of(BlockPart::qkv)},
    {"attention", bit_of(BlockPart::attention)},
    {"projection", bit_of(BlockPart::projection)},
    {"mlp", bit_of(BlockPart::mlp)},
    {"activations", bit_of(BlockPart::activation)},
};

}  // namespace

bool StageForms::in_partial(int chunk, int microbatch) const {
  if (is_partial.empty()) return false;
  return at(at(is_partial, chunk), microbatch) != 0;
}

BlockForm StageForms::of(int unit, bool in_partial) const {
  const std::map<int, BlockForm>& forms = in_partial ? partial : usual;
  const auto found = forms.find(unit);
  return found == forms.end() ? BlockForm{} : found->second;
}

std::optional<std::uint8_t> parse_form(std::string_view text) {
  if (trimmed(text) == "none") return std::uint8_t{0};
  if (text.ends_with('+')) return {};
  std::uint8_t parts = 0;
  std::string_view rest = text;
  do {
    const std::string_view wanted = cut(rest, '+', rest);
    const auto row = std::ranges::find(words, wanted, &FormWord::word);
    if (row == std::end(words)) return {};
    parts |= row->parts;
  } while (!rest.empty());
  return parts;
}

std::string form_text(std::uint8_t parts) {
  std::string text;
  for (const FormWord& row : words) {
    if (parts == 0 || (parts & row.parts) != row.parts) continue;
    text += (text.empty() ? "" : "+") + std::string(row.word);
    parts = static_cast<std::uint8_t>(parts & ~row.parts);
  }
  return text.empty() ? "none" : text;
}

LayerForms parse_layer_forms(std::string_view text, std::int64_t layers) {
  return parse_per_layer<std::uint8_t>(text, layers, "forms", parse_form);
}

}  // namespace trainctl
