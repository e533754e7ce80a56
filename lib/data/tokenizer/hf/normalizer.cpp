#include "data/tokenizer/hf/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "data/tokenizer/hf/utf8.h"

namespace trainctl::hf {

namespace {

bool is_ascii(char byte) { return (static_cast<unsigned char>(byte) & 0x80U) == 0; }

auto combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

/// Puts marks that follow each other into canonical order. utf8proc's own sort takes quadratic time
/// for long runs of marks.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
  const auto is_mark = [](utf8proc_int32_t point) { return combining_class(point) != 0; };
  for (auto begin = code_points.begin(); begin != code_points.end();) {
    begin = std::find_if(begin, code_points.end(), is_mark);
    const auto end = std::find_if_not(begin, code_points.end(), is_mark);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
}

}  // namespace

Normalizer::Normalizer(const JsonValue& normalizer) { read(normalizer, 0); }

void Normalizer::read(const JsonValue& normalizer, int depth) {
  if (normalizer.is_null()) return;
  if (depth == deepest_sequence) normalizer.refuse("sequences nest more than 16 deep");
  const std::string type = normalizer["type"].text();
  if (type == "Sequence") {
    normalizer.allow_only({"type", "normalizers"});
    normalizer["normalizers"].each_item([&](const JsonValue& item) {
      if (item.is_null()) item.refuse("expected a normalizer, found null");
      read(item, depth + 1);
    });
    return;
  }
  if (type != "NFC" && type != "NFD" && type != "NFKC" && type != "NFKD") {
    normalizer["type"].refuse("normalizer " + in_quotes(type) +
                              " is not built: NFC, NFD, NFKC, NFKD or Sequence");
  }
  normalizer.allow_only({"type"});
  forms_.push_back({.composes = type.ends_with('C'), .is_compatible = type.size() == 4});
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage) const {
  if (forms_.empty() || std::all_of(text.begin(), text.end(), is_ascii)) return text;
  std::string before;
  for (const Form& form : forms_) {
    storage.swap(before);
    storage.clear();
    append(form, &form == &forms_.front() ? text : std::string_view(before), storage);
  }
  return storage;
}

/// ASCII characters keep their places and never join what is before them: only runs of other
/// characters, each with the character before it, need work.
void Normalizer::append(const Form& form, std::string_view text, std::string& out) {
  while (!text.empty()) {
    const auto other = std::find_if_not(text.begin(), text.end(), is_ascii);
    const auto found = static_cast<std::size_t>(other - text.begin());
    const std::size_t plain = other == text.end() ? found : std::max<std::size_t>(found, 1) - 1;
    out += text.substr(0, plain);
    const auto end = std::find_if(other, text.end(), is_ascii);
    const auto used = static_cast<std::size_t>(end - text.begin());
    append_normal(form, text.substr(plain, used - plain), out);
    text.remove_prefix(used);
  }
}

void Normalizer::append_normal(const Form& form, std::string_view text, std::string& out) {
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (form.composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (form.is_compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> code_points;
  for (; !text.empty(); text.remove_prefix(first_character_bytes(text))) {
    std::array<utf8proc_int32_t, 32> parts{};  // the longest decomposition has 18
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(first_code_point(text)), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
    code_points.insert(code_points.end(), parts.begin(),
                       parts.begin() + std::clamp<utf8proc_ssize_t>(count, 0, parts.size()));
  }
  order_marks(code_points);
  auto size = static_cast<utf8proc_ssize_t>(code_points.size());
  if (form.composes) size = utf8proc_normalize_utf32(code_points.data(), size, options);
  for (utf8proc_ssize_t i = 0; i < size; ++i) {
    append_code_point(static_cast<char32_t>(code_points[static_cast<std::size_t>(i)]), out);
  }
}

}  // namespace trainctl::hf
