#include "data/tokenizer/hf/byte_pairs.h"

#include <algorithm>

#include "base/error.h"
#include "data/tokenizer/hf/byte_alphabet.h"

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
    const auto id = static_cast<std::int32_t>(value.whole(0, most_token_id));
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
    const std::string lack = "model.vocab has no token for byte " + std::to_string(byte);
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

/// The word as one token per byte.
void BytePairs::start(std::string_view word, Workspace& workspace) const {
  if (word.size() > longest_word) {
    throw Error(ExitCode::bad_data, "a word of " + std::to_string(word.size()) +
                                        " bytes: at most 1 GiB can be encoded");
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
    // What was proposed may be gone. As in the reference, what counts is the token that it makes.
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

}  // namespace trainctl::hf
