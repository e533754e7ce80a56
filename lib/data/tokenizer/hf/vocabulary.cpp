#include <algorithm>
#include <charconv>
#include <map>
#include <system_error>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/tokenizer/hf/hf_tokenizer.h"
#include "data/tokenizer/hf/unicode.h"

namespace trainctl::hf {

namespace {

constexpr std::size_t longest_word = std::size_t{1} << 30;

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(left) << 32U) | static_cast<std::uint32_t>(right);
}

bool comes_later(const BytePairs::Workspace::Candidate& a,
                 const BytePairs::Workspace::Candidate& b) {
  return a.order > b.order;
}

void refuse_if_set(const JsonValue& value) {
  const bool is_set = value.is_text() ? !value.text().empty() : !value.is_null();
  if (is_set) value.refuse("is not built: null or an empty text");
}

}  // namespace

BytePairs::BytePairs(const JsonValue& model) {
  model.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix",
                    "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab",
                    "merges"});
  // Files of 2020 lack the type.
  const JsonValue type = model["type"];
  if (!type.is_null() && type.text() != "BPE") {
    type.refuse("model " + in_quotes(type.text()) + " is not built: BPE");
  }
  read_options(model);
  read_vocabulary(model["vocab"]);
  read_merges(model["merges"]);
  read_bytes(model);
}

void BytePairs::read_options(const JsonValue& model) {
  if (!model["dropout"].is_null()) model["dropout"].refuse("is not built: null");
  refuse_if_set(model["continuing_subword_prefix"]);
  refuse_if_set(model["end_of_word_suffix"]);
  fuses_unknown_ = model["fuse_unk"].flag();
  ignores_merges_ = model["ignore_merges"].flag();
}

void BytePairs::read_vocabulary(const JsonValue& vocabulary) {
  vocabulary.each_member([&](const std::string& token, const JsonValue& value) {
    const auto id = static_cast<std::int32_t>(value.whole(0, max_token_id));
    const auto place = static_cast<std::size_t>(id);
    if (token.empty()) vocabulary.refuse("has an empty token");
    if (place >= tokens_.size()) tokens_.resize(std::max(place + 1, tokens_.size()));
    if (!tokens_[place].empty()) {
      value.refuse("the id " + std::to_string(id) + " is also that of " +
                   in_quotes(tokens_[place]));
    }
    tokens_[place] = token;
    ids_.emplace(token, id);
    if (ignores_merges_) {
      if (auto bytes = bytes_of_token(token)) words_.emplace(std::move(*bytes), id);
    }
  });
  if (ids_.empty()) vocabulary.refuse("is empty");
}

void BytePairs::read_merges(const JsonValue& merges) {
  merges.each_item([&](const JsonValue& merge) {
    if (merge.is_text()) {
      const std::string both = merge.text();
      if (both.starts_with("#version")) return;
      const std::size_t space = both.find(' ');
      if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos) {
        merge.refuse("expected two tokens with a space between them, found " + in_quotes(both));
      }
      return add_merge(merge, both.substr(0, space), both.substr(space + 1));
    }
    std::vector<std::string> pair;
    merge.each_item([&](const JsonValue& token) { pair.push_back(token.text()); });
    if (pair.size() != 2) {
      merge.refuse("expected two tokens, found " + std::to_string(pair.size()));
    }
    add_merge(merge, pair[0], pair[1]);
  });
}

void BytePairs::add_merge(const JsonValue& merge, const std::string& left,
                          const std::string& right) {
  const auto known = [&](const std::string& token) {
    const auto id = id_of(token);
    if (!id) merge.refuse(in_quotes(token) + " is not in model.vocab");
    return *id;
  };
  const std::int32_t a = known(left);
  const std::int32_t b = known(right);
  merges_.insert_or_assign(key_of(a, b), Merge{ranks_++, known(left + right)});
}

void BytePairs::read_bytes(const JsonValue& model) {
  const JsonValue name = model["unk_token"];
  const auto unknown_id = name.is_null() ? std::nullopt : id_of(name.text());
  unknown_token_ = unknown_id.value_or(-1);
  for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
    const auto id = id_of(token_of_byte(static_cast<unsigned char>(byte)));
    bytes_[byte] = id.value_or(name.is_null() ? dropped : unknown);
    if (id) continue;
    const std::string lack = formatted("model.vocab has no token for byte {}", byte);
    if (model["byte_fallback"].flag()) {
      model["byte_fallback"].refuse(lack + ", and tokens like <0x00> are not built");
    }
    if (!name.is_null() && !unknown_id) {
      name.refuse(lack + ", and " + in_quotes(name.text()) + " is not in model.vocab either");
    }
  }
}

std::optional<std::int32_t> BytePairs::id_of(const std::string& token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

/// Sets the symbols to the tokens of the word's bytes.
void BytePairs::start(std::string_view word, Workspace& workspace) const {
  if (word.size() > longest_word) {
    throw Error(ExitCode::bad_data,
                formatted("a word of {} bytes: at most 1 GiB can be encoded", word.size()));
  }
  auto& symbols = workspace.symbols;
  symbols.clear();
  bool was_unknown = false;
  for (const char letter : word) {
    const std::int32_t token = bytes_[static_cast<unsigned char>(letter)];
    if (token == dropped || (token == unknown && was_unknown && fuses_unknown_)) continue;
    was_unknown = token == unknown;
    const auto place = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({was_unknown ? unknown_token_ : token, place - 1, place + 1});
  }
  if (!symbols.empty()) symbols.back().after = -1;
}

const BytePairs::Merge* BytePairs::merge_at(std::int32_t place, const Workspace& workspace) const {
  const auto& left = workspace.symbols[static_cast<std::size_t>(place)];
  if (left.after < 0) return nullptr;
  const auto& right = workspace.symbols[static_cast<std::size_t>(left.after)];
  const auto found = merges_.find(key_of(left.token, right.token));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairs::propose(std::int32_t place, Workspace& workspace) const {
  const Merge* merge = merge_at(place, workspace);
  if (merge == nullptr) return;
  const std::uint64_t order =
      (std::uint64_t{merge->rank} << 32U) | static_cast<std::uint32_t>(place);
  workspace.queue.push_back({order, merge->token});
  std::push_heap(workspace.queue.begin(), workspace.queue.end(), comes_later);
}

void BytePairs::encode(std::string_view word, Workspace& workspace,
                       std::vector<std::int32_t>& out) const {
  if (ignores_merges_) {
    const auto found = words_.find(std::string(word));
    if (found != words_.end()) return out.push_back(found->second);
  }
  start(word, workspace);
  auto& symbols = workspace.symbols;
  auto& queue = workspace.queue;
  queue.clear();
  for (std::size_t place = 0; place < symbols.size(); ++place) {
    propose(static_cast<std::int32_t>(place), workspace);
  }
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), comes_later);
    const Workspace::Candidate next = queue.back();
    queue.pop_back();
    const auto place = static_cast<std::int32_t>(next.order & 0xffffffffU);
    auto& left = symbols[static_cast<std::size_t>(place)];
    // The pair may have changed: as in the reference, it is merged if it still gives this token.
    const Merge* merge = left.token < 0 ? nullptr : merge_at(place, workspace);
    if (merge == nullptr || merge->token != next.token) continue;
    auto& right = symbols[static_cast<std::size_t>(left.after)];
    left.token = next.token;
    left.after = right.after;
    right.token = -1;
    if (left.after >= 0) symbols[static_cast<std::size_t>(left.after)].before = place;
    if (left.before >= 0) propose(left.before, workspace);
    propose(place, workspace);
  }
  for (const Workspace::Symbol& symbol : symbols) {
    if (symbol.token >= 0) out.push_back(symbol.token);
  }
}

namespace {

/// Whether the character has the Unicode property White_Space.
bool is_space(char32_t point) {
  return (point >= 0x9 && point <= 0xd) || point == 0x20 || point == 0x85 || point == 0xa0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200a) || point == 0x2028 ||
         point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

std::string_view last_character(std::string_view text) {
  return text.substr(text.size() - last_character_bytes(text));
}

std::size_t spaces_at_end(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const std::string_view last = last_character(text.substr(0, text.size() - bytes));
    if (!is_space(first_code_point(last))) break;
    bytes += last.size();
  }
  return bytes;
}

std::size_t spaces_at_start(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size() && is_space(first_code_point(text.substr(bytes)))) {
    bytes += first_character_bytes(text.substr(bytes));
  }
  return bytes;
}

}  // namespace

AddedTokens::AddedTokens(const JsonValue& list, const BytePairs& model,
                         const Normalizer& normalizer)
    : word_character_(Pattern::of_word_character()) {
  if (!list.is_null()) read_all(list, model);
  build(raw_, false, normalizer);
  build(normalized_, true, normalizer);
}

AddedToken AddedTokens::read(const JsonValue& value) {
  value.allow_only({"id", "content", "special", "single_word", "lstrip", "rstrip", "normalized"});
  AddedToken token;
  token.content = value["content"].text();
  if (token.content.empty()) value["content"].refuse("is empty");
  token.id = static_cast<std::int32_t>(value["id"].whole(0, max_token_id));
  token.special = value["special"].flag();
  token.single_word = value["single_word"].flag();
  token.lstrip = value["lstrip"].flag();
  token.rstrip = value["rstrip"].flag();
  token.normalized = value["normalized"].flag();
  return token;
}

/// Reads the list. The reference library ignores the ids of the file: a token has its id of the
/// vocabulary, or the next free one.
void AddedTokens::read_all(const JsonValue& list, const BytePairs& model) {
  std::unordered_set<std::string> contents;
  std::int64_t next = model.size();
  list.each_item([&](const JsonValue& value) {
    AddedToken token = read(value);
    if (!contents.insert(token.content).second) value["content"].refuse("is there twice");
    const std::int64_t expected =
        model.id_of(token.content).value_or(static_cast<std::int32_t>(next));
    if (token.id != expected) {
      value["id"].refuse("expected " + std::to_string(expected) +
                         ", the id that the Hugging Face library gives this token, found " +
                         std::to_string(token.id));
    }
    next = std::max<std::int64_t>(next, token.id + 1);
    all_.push_back(std::move(token));
  });
}

/// Fills the set. Among tokens with one normal form the first special one counts, else the first.
void AddedTokens::build(Set& set, bool normalized, const Normalizer& normalizer) const {
  for (const bool special : {true, false}) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].normalized != normalized || all_[i].special != special) continue;
      std::string storage;
      const std::string_view text =
          normalized ? normalizer.apply(all_[i].content, storage) : all_[i].content;
      set.contents.emplace_back(text, i);
      set.begins[static_cast<unsigned char>(text.front())] = true;
    }
  }
  const auto by_text = [](const auto& a, const auto& b) { return a.first < b.first; };
  const auto same_text = [](const auto& a, const auto& b) { return a.first == b.first; };
  std::stable_sort(set.contents.begin(), set.contents.end(), by_text);
  set.contents.erase(std::unique(set.contents.begin(), set.contents.end(), same_text),
                     set.contents.end());
}

/// The longest content that `text` begins with; null if there is none.
const std::pair<std::string, std::size_t>* AddedTokens::longest(const Set& set,
                                                                std::string_view text) {
  const std::pair<std::string, std::size_t>* best = nullptr;
  auto begin = set.contents.begin();
  auto end = set.contents.end();
  for (std::size_t depth = 0; begin != end; ++depth) {
    if (begin->first.size() == depth) best = &*begin++;  // the shorter sorts first
    if (depth == text.size()) break;
    const auto wanted = static_cast<unsigned char>(text[depth]);
    const auto letter = [depth](const auto& content) {
      return static_cast<unsigned char>(content.first[depth]);
    };
    begin = std::partition_point(begin, end,
                                 [&](const auto& content) { return letter(content) < wanted; });
    end = std::partition_point(begin, end,
                               [&](const auto& content) { return letter(content) == wanted; });
  }
  return best;
}

bool AddedTokens::is_single_word(std::string_view before, std::string_view after,
                                 Matcher& matcher) const {
  Match found;
  const bool word_before =
      !before.empty() && matcher.find(word_character_, last_character(before), 0, found);
  return !word_before &&
         (after.empty() ||
          !matcher.find(word_character_, after.substr(0, first_character_bytes(after)), 0, found));
}

void AddedTokens::cut(const Set& set, std::string_view text, Matcher& matcher,
                      std::vector<TextPart>& out) const {
  std::size_t cut_at = 0;  // the text before this place is in `out`
  for (std::size_t place = 0; place < text.size();) {
    const auto* found = set.begins[static_cast<unsigned char>(text[place])]
                            ? longest(set, text.substr(place))
                            : nullptr;
    if (found == nullptr) {
      ++place;
      continue;
    }
    const AddedToken& token = all_[found->second];
    std::size_t begin = place;
    std::size_t end = place + found->first.size();
    place = end;
    if (token.single_word && !is_single_word(text.substr(0, begin), text.substr(end), matcher)) {
      continue;
    }
    if (token.lstrip) begin = std::max(begin - spaces_at_end(text.substr(0, begin)), cut_at);
    if (token.rstrip) end += spaces_at_start(text.substr(end));
    if (cut_at < begin) out.push_back({text.substr(cut_at, begin - cut_at)});
    out.push_back({text.substr(begin, end - begin), token.id});
    cut_at = end;
  }
  if (cut_at != text.size()) out.push_back({text.substr(cut_at)});
}

namespace {

std::int32_t read_id(const JsonValue& value, std::int64_t vocab_size) {
  return static_cast<std::int32_t>(value.whole(0, vocab_size - 1));
}

/// The ids of a piece {"SpecialToken": {"id": NAME}}.
std::vector<std::int32_t> read_piece(const JsonValue& name, const JsonValue& known,
                                     std::int64_t vocab_size) {
  const JsonValue entry = known[name.text()];
  if (entry.is_null()) name.refuse(in_quotes(name.text()) + " is not in special_tokens");
  std::vector<std::int32_t> ids;
  entry["ids"].each_item([&](const JsonValue& id) { ids.push_back(read_id(id, vocab_size)); });
  return ids;
}

/// Adds the tokens of a template around the tokens already in `frame`.
void read_template(const JsonValue& value, std::int64_t vocab_size, TextFrame& frame) {
  value.allow_only({"type", "single", "pair", "special_tokens"});
  TextFrame read;
  int texts = 0;
  value["single"].each_item([&](const JsonValue& piece) {
    piece.allow_only({"SpecialToken", "Sequence"});
    const JsonValue sequence = piece["Sequence"];
    if (!sequence.is_null()) {
      if (sequence["id"].text() != "A") sequence["id"].refuse("expected \"A\"");
      ++texts;
      return;
    }
    auto& side = texts == 0 ? read.before : read.after;
    const auto ids = read_piece(piece["SpecialToken"]["id"], value["special_tokens"], vocab_size);
    side.insert(side.end(), ids.begin(), ids.end());
  });
  if (texts != 1) value["single"].refuse("expected the text, Sequence A, exactly once");
  frame.before.insert(frame.before.begin(), read.before.begin(), read.before.end());
  frame.after.insert(frame.after.end(), read.after.begin(), read.after.end());
}

void read_processor(const JsonValue& value, std::int64_t vocab_size, int depth, TextFrame& frame) {
  if (depth == deepest_sequence) value.refuse("sequences nest more than 16 deep");
  const std::string type = value["type"].text();
  if (type == "Sequence") {
    value.allow_only({"type", "processors"});
    value["processors"].each_item(
        [&](const JsonValue& item) { read_processor(item, vocab_size, depth + 1, frame); });
  } else if (type == "TemplateProcessing") {
    read_template(value, vocab_size, frame);
  } else if (type != "ByteLevel") {  // ByteLevel only moves the offsets of tokens
    value["type"].refuse("post-processor " + in_quotes(type) +
                         " is not built: TemplateProcessing, ByteLevel or Sequence");
  }
}

bool is_there(const std::filesystem::path& file) { return kind_of_file(file) != FileKind::none; }

/// Reads the files of a folder; values of an earlier file take precedence.
class Reader {
 public:
  Reader(const std::filesystem::path& folder, const KnownTokenizer& known)
      : folder_(folder), known_(known) {
    for (const AddedToken& token : known.added) added_.emplace(token.id, &token);
  }

  SpecialTokens run() {
    read("tokenizer_config.json", [&](const JsonValue& root) {
      check_added(root["added_tokens_decoder"]);
      take_names(root);
      check_flags(root);
    });
    read("special_tokens_map.json", [&](const JsonValue& root) { take_names(root); });
    read("generation_config.json", [&](const JsonValue& root) { take_ids(root); });
    read("config.json", [&](const JsonValue& root) { take_ids(root); });
    if (tokens_.eos) add_stop(*tokens_.eos);
    return std::move(tokens_);
  }

 private:
  template <class Use>
  void read(const char* name, Use use) {
    const std::filesystem::path file = folder_ / name;
    if (!is_there(file)) return;
    tokens_.read_from.push_back(file);
    use(JsonFile(file).root());
  }

  /// Compares with tokenizer.json, to which the reference library prefers the tokens of this list.
  void check_added(const JsonValue& decoder) {
    if (decoder.is_null()) return;
    decoder.each_member([&](const std::string& id, const JsonValue& value) {
      std::int32_t number = -1;
      std::from_chars(id.data(), id.data() + id.size(), number);
      const auto found = added_.find(number);
      if (found == added_.end()) value.refuse("tokenizer.json adds no token with this id");
      const AddedToken& token = *found->second;
      const std::string content = value["content"].text();
      if (content != token.content) {
        value["content"].refuse(in_quotes(content) + ", but " + in_quotes(token.content) +
                                " in tokenizer.json");
      }
      const std::pair<const char*, bool> flags[] = {{"special", token.special},
                                                    {"single_word", token.single_word},
                                                    {"lstrip", token.lstrip},
                                                    {"rstrip", token.rstrip},
                                                    {"normalized", token.normalized}};
      for (const auto& [name, expected] : flags) {
        if (!value[name].is_null() && value[name].flag() != expected) {
          value[name].refuse("is otherwise in tokenizer.json");
        }
      }
    });
  }

  /// Refuses flags that contradict tokenizer.json, since the reference library would follow them.
  void check_flags(const JsonValue& root) const {
    const auto check = [&](const char* name, bool is_so) {
      const JsonValue flag = root[name];
      if (!flag.is_null() && flag.flag() != is_so) {
        flag.refuse(std::string(is_so ? "false" : "true") +
                    ", but tokenizer.json has it otherwise");
      }
    };
    const auto has = [](const std::vector<std::int32_t>& side, std::optional<std::int32_t> token) {
      return token && std::find(side.begin(), side.end(), *token) != side.end();
    };
    check("add_bos_token", has(known_.frame.before, tokens_.bos));
    check("add_eos_token", has(known_.frame.after, tokens_.eos));
    if (known_.prefix_space) check("add_prefix_space", *known_.prefix_space);
  }

  /// Takes names such as "eos_token": a text, or an object with its "content".
  void take_names(const JsonValue& root) {
    const auto take = [&](const char* name, std::optional<std::int32_t>& token) {
      JsonValue value = root[name];
      if (value.is_object()) value = value["content"];
      if (token || value.is_null()) return;
      token = known_.id_of(value.text());
      if (!token) value.refuse(in_quotes(value.text()) + " is not a token of tokenizer.json");
    };
    take("bos_token", tokens_.bos);
    take("eos_token", tokens_.eos);
    take("pad_token", tokens_.pad);
  }

  /// Takes ids such as "eos_token_id": a number, or a list of numbers.
  void take_ids(const JsonValue& root) {
    const auto take = [&](const char* name, std::optional<std::int32_t>& token, bool stops) {
      std::vector<std::int32_t> ids;
      const JsonValue value = root[name];
      if (value.is_list()) {
        value.each_item(
            [&](const JsonValue& id) { ids.push_back(read_id(id, known_.vocab_size)); });
      } else if (!value.is_null()) {
        ids.push_back(read_id(value, known_.vocab_size));
      }
      if (!token && !ids.empty()) token = ids.front();
      for (const std::int32_t id : ids) {
        if (stops) add_stop(id);
      }
    };
    take("bos_token_id", tokens_.bos, false);
    take("eos_token_id", tokens_.eos, true);
    take("pad_token_id", tokens_.pad, false);
  }

  void add_stop(std::int32_t id) {
    auto& stops = tokens_.stops;
    if (std::find(stops.begin(), stops.end(), id) == stops.end()) stops.push_back(id);
  }

  const std::filesystem::path& folder_;
  const KnownTokenizer& known_;
  std::map<std::int32_t, const AddedToken*> added_;
  SpecialTokens tokens_;
};

}  // namespace

TextFrame read_post_processor(const JsonValue& post_processor, std::int64_t vocab_size) {
  TextFrame frame;
  if (!post_processor.is_null()) read_processor(post_processor, vocab_size, 0, frame);
  return frame;
}

SpecialTokens read_special_tokens(const std::filesystem::path& folder,
                                  const KnownTokenizer& known) {
  return Reader(folder, known).run();
}

}  // namespace trainctl::hf
