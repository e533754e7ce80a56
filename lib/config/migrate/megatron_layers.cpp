// Megatron-LM's layers that differ: experts, windows and RoPE in some of them.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "config/migrate/project_rules.h"
#include "config/schema/values.h"
#include "config/upstream/layer_keys.h"
#include "config/yaml/tree.h"

namespace trainctl {
namespace {

constexpr std::size_t most_numbers = 10'000;
constexpr int deepest = 16;  // parentheses inside each other

/// A list as Megatron evaluates it, "([0]*3+[1])*2" or "[0,1,0]"; lists of numbers only.
class ListReader {
 public:
  explicit ListReader(const std::string& text) : text_(text) {}

  /// Nothing for other text.
  std::optional<std::vector<std::int64_t>> read() {
    std::vector<std::int64_t> all = sum(0);
    if (at_ != text_.size() || all.empty()) fails_ = true;
    if (fails_) return std::nullopt;
    return all;
  }

 private:
  bool take(char c) {
    const bool is = at_ < text_.size() && text_[at_] == c;
    at_ += is ? 1 : 0;
    return is;
  }
  std::int64_t number() {
    const std::size_t end = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
    std::int64_t value = 0;
    fails_ = fails_ || end - at_ > 5 || parse_number(text_.substr(at_, end - at_), value);
    at_ = end;
    return value;
  }
  std::vector<std::int64_t> part(int depth) {
    std::vector<std::int64_t> values;
    if (take('(')) {
      values = sum(depth + 1);
      fails_ = !take(')') || fails_;
    } else if (take('[')) {
      do values.push_back(number());
      while (take(',') && !fails_);
      fails_ = !take(']') || fails_;
    } else {
      fails_ = true;
    }
    while (!fails_ && take('*')) values = repeated(values, number());
    return values;
  }
  std::vector<std::int64_t> repeated(const std::vector<std::int64_t>& once, std::int64_t times) {
    std::vector<std::int64_t> all;
    fails_ = fails_ || once.size() * static_cast<std::size_t>(times) > most_numbers;
    for (std::int64_t i = 0; i < times && !fails_; ++i) {
      all.insert(all.end(), once.begin(), once.end());
    }
    return all;
  }
  std::vector<std::int64_t> sum(int depth) {
    std::vector<std::int64_t> all;
    fails_ = fails_ || depth > deepest;
    do {
      if (fails_) break;
      const std::vector<std::int64_t> more = part(depth);
      all.insert(all.end(), more.begin(), more.end());
      fails_ = fails_ || all.size() > most_numbers;
    } while (take('+'));
    return all;
  }

  const std::string& text_;
  std::size_t at_ = 0;
  bool fails_ = false;
};

}  // namespace

MegatronMarks read_megatron_marks(Migration& m, const char* argument) {
  MegatronMarks marks;
  const ForeignValue* given = m.given(argument);
  if (given == nullptr || given->words.empty()) return marks;
  std::string text;
  for (const std::string& word : given->words) text += word;
  std::erase(text, ' ');
  if (!parse_number(text, marks.every) && marks.every >= 1) return marks;
  marks.every = 0;
  const auto list = ListReader(text).read();
  const auto is_mark = [](std::int64_t one) { return one == 0 || one == 1; };
  const double layers = m.number_at("model.num_layers", 0);
  if (list && static_cast<double>(list->size()) == layers && std::ranges::all_of(*list, is_mark)) {
    marks.list = *list;
    return marks;
  }
  m.refuse("model.layers", "--" + std::string(argument) + ": " + shown(text) + " is not built",
           "a number, or a list of 0 and 1 for each of the " + plain_number(layers) +
               " layers, as [0]*3+[1]*1",
           "not-built");
  return marks;
}

void settle_megatron_layers(Migration& m, const std::vector<std::int64_t>& routed) {
  const MegatronMarks still = read_megatron_marks(m, "no-rope-freq");
  const MegatronMarks slides = read_megatron_marks(m, "window-attn-skip-freq");
  const double wide = m.number_at("model.sliding_window", 0);
  const double deep = m.number_at("model.num_layers", 0);
  // What lies outside is refused where the sizes are.
  if (!(deep >= 1 && deep <= most_numbers) || !(wide >= 0 && wide <= 1 << 30)) return;
  const auto window = static_cast<std::int64_t>(wide);
  const auto layers = static_cast<std::size_t>(deep);
  std::vector<LayerKeys> keys(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    const auto nth = static_cast<std::int64_t>(i) + 1;
    const auto is = [&](const MegatronMarks& marks, bool of_each_nth, bool otherwise) {
      if (!marks.list.empty()) return marks.list[i] == 1;
      return marks.every > 0 ? (nth % marks.every == 0) == of_each_nth : otherwise;
    };
    keys[i] = {.turns = !is(still, true, false),
               .window = is(slides, false, true) ? window : 0,
               .routed = !routed.empty() && routed[i] == 1};
  }
  if (!have_kinds(keys)) {
    if (!keys.front().turns) m.put("model.use_rope", "false", "no-rope-freq");
    if (keys.front().window == 0) m.remove("model.sliding_window");
    return;
  }
  m.remove("model.sliding_window");
  Diagnostics none;
  const int text = m.tree().add_text(Place::Origin::model_files, "layers");
  m.put_list("model.layers", parse_yaml(m.tree(), write_kinds(keys, ""), text, none),
             "layers that differ");
  m.put("model.layer_pattern", write_pattern(keys), "in their order");
}

}  // namespace trainctl
