#include "data/tokenizer/hf/hf_tokenizer.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "data/tokenizer/hf/json_value.h"
#include "data/tokenizer/hf/pattern.h"
#include "data/tokenizer/hf/unicode.h"

namespace trainctl::hf {

// Text to words, which are encoded one by one: the "pre_tokenizer" of a tokenizer.json.

class Splitter {
 public:
  /// Accepts ByteLevel, alone or last in a Sequence after Split and Digits. Throws Error{bad_data}
  /// for other steps.
  explicit Splitter(const JsonValue& pre_tokenizer);

  using Take = std::function<void(std::string_view word)>;
  /// Calls take(word) for each word of valid UTF-8 text, in order; words are not empty. With
  /// `continues`, the text continues an earlier one, and no space is put before it.
  void split(std::string_view text, bool continues, Matcher& matcher, const Take& take) const;

 private:
  enum class Behaviour { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  struct Step {
    std::optional<Pattern> pattern;  // if unset, all of the text is one piece
    Behaviour behaviour = Behaviour::isolated;
    bool inverted = false;        // the pattern matches the text between separators
    bool prefixes_space = false;  // puts a space before a piece that has none
  };
  struct Walk {
    Matcher& matcher;
    const Take& take;
    const char* continued;  // start of a piece that gets no space; null if there is none
  };

  void read(const JsonValue& value, int depth);
  static Step read_split(const JsonValue& value);
  static Step read_digits(const JsonValue& value);
  static Step read_byte_level(const JsonValue& value);
  void run(std::size_t step, std::string_view piece, const Walk& walk) const;
  void separate(std::size_t step, std::string_view piece, const Walk& walk) const;

  std::vector<Step> steps_;
  bool is_complete_ = false;  // ByteLevel has been read
};

namespace {

constexpr std::string_view gpt2_words =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

Pattern read_pattern(const JsonValue& value) {
  value.allow_only({"String", "Regex"});
  const JsonValue regex = value["Regex"];
  if (regex.is_null() == value["String"].is_null()) value.refuse("expected a Regex or a String");
  if (regex.is_null()) return Pattern::literal(value["String"].text());
  const std::string text = regex.text();
  try {
    return Pattern(text);
  } catch (const Error& error) {
    regex.refuse(error.what());
  }
}

/// Calls piece(begin, end, is_match) for each match in `text` and each text between matches. An
/// empty match counts, except right after a match.
template <class Piece>
void each_piece(const Pattern& pattern, std::string_view text, Matcher& matcher, Piece piece) {
  std::size_t from = 0;
  std::size_t before = 0;  // the end of the last match
  bool has_match = false;
  Match match;
  while (from <= text.size() && matcher.find(pattern, text, from, match)) {
    if (match.begin == match.end && has_match && match.end == before) {
      from += from < text.size() ? first_character_bytes(text.substr(from)) : 1;
      continue;
    }
    if (before != match.begin) piece(before, match.begin, false);
    piece(match.begin, match.end, true);
    from = before = match.end;
    has_match = true;
  }
  if (before != text.size()) piece(before, text.size(), false);
}

}  // namespace

Splitter::Splitter(const JsonValue& pre_tokenizer) {
  read(pre_tokenizer, 0);
  if (!is_complete_) {
    pre_tokenizer.refuse("has no ByteLevel step: only byte-level tokenizers are built");
  }
}

void Splitter::read(const JsonValue& value, int depth) {
  if (value.is_null()) value.refuse("has no ByteLevel step: only byte-level tokenizers are built");
  if (depth == deepest_sequence) value.refuse("sequences nest more than 16 deep");
  const std::string type = value["type"].text();
  if (type == "Sequence") {
    value.allow_only({"type", "pretokenizers"});
    value["pretokenizers"].each_item([&](const JsonValue& item) { read(item, depth + 1); });
    return;
  }
  if (is_complete_) value.refuse("follows ByteLevel, which must be last");
  if (type == "Split") {
    steps_.push_back(read_split(value));
  } else if (type == "Digits") {
    steps_.push_back(read_digits(value));
  } else if (type == "ByteLevel") {
    steps_.push_back(read_byte_level(value));
    is_complete_ = true;
  } else {
    value["type"].refuse("pre-tokenizer " + in_quotes(type) +
                         " is not built: ByteLevel, Split, Digits or Sequence");
  }
}

Splitter::Step Splitter::read_split(const JsonValue& value) {
  static constexpr std::pair<std::string_view, Behaviour> behaviours[] = {
      {"Isolated", Behaviour::isolated},
      {"Removed", Behaviour::removed},
      {"MergedWithPrevious", Behaviour::merged_with_previous},
      {"MergedWithNext", Behaviour::merged_with_next},
      {"Contiguous", Behaviour::contiguous}};
  value.allow_only({"type", "pattern", "behavior", "invert"});
  Step step;
  step.pattern = read_pattern(value["pattern"]);
  step.inverted = value["invert"].flag();
  const std::string name = value["behavior"].text();
  const auto found = std::find_if(std::begin(behaviours), std::end(behaviours),
                                  [&](const auto& known) { return known.first == name; });
  if (found == std::end(behaviours)) {
    value["behavior"].refuse(in_quotes(name) +
                             ": expected Isolated, Removed, MergedWithPrevious, MergedWithNext "
                             "or Contiguous");
  }
  step.behaviour = found->second;
  return step;
}

Splitter::Step Splitter::read_digits(const JsonValue& value) {
  value.allow_only({"type", "individual_digits"});
  Step step;
  step.pattern.emplace("\\p{N}");
  const bool alone = value["individual_digits"].flag();
  step.behaviour = alone ? Behaviour::isolated : Behaviour::contiguous;
  return step;
}

Splitter::Step Splitter::read_byte_level(const JsonValue& value) {
  // trim_offsets only moves the offsets of tokens, which nothing here uses.
  value.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  Step step;
  step.prefixes_space = value["add_prefix_space"].flag();
  const JsonValue use_regex = value["use_regex"];
  if (use_regex.is_null() || use_regex.flag()) step.pattern.emplace(gpt2_words);
  return step;
}

void Splitter::split(std::string_view text, bool continues, Matcher& matcher,
                     const Take& take) const {
  run(0, text, {matcher, take, continues ? text.data() : nullptr});
}

void Splitter::run(std::size_t step, std::string_view piece, const Walk& walk) const {
  if (piece.empty()) return;
  if (step == steps_.size()) return walk.take(piece);
  if (!steps_[step].prefixes_space || piece.starts_with(' ') || piece.data() == walk.continued) {
    return separate(step, piece, walk);
  }
  separate(step, " " + std::string(piece), walk);
}

void Splitter::separate(std::size_t step, std::string_view piece, const Walk& walk) const {
  const Step& rule = steps_[step];
  if (!rule.pattern) return run(step + 1, piece, walk);
  // The pending piece, which the next piece may join.
  std::size_t begin = 0;
  std::size_t end = 0;
  bool was_match = false;
  const auto joins = [&](bool is_match) {
    switch (rule.behaviour) {
      case Behaviour::merged_with_previous: return is_match && !was_match;
      case Behaviour::merged_with_next: return was_match && !is_match;
      case Behaviour::contiguous: return was_match == is_match;
      default: return false;
    }
  };
  const auto give = [&] { run(step + 1, piece.substr(begin, end - begin), walk); };
  each_piece(*rule.pattern, piece, walk.matcher,
             [&](std::size_t from, std::size_t to, bool is_found) {
               const bool is_match = is_found != rule.inverted;
               if (!joins(is_match)) {
                 give();
                 begin = from;
               }
               const bool is_removed = is_match && rule.behaviour == Behaviour::removed;
               end = is_removed ? begin : to;
               was_match = is_match;
             });
  give();
}

// Recent words with their tokens, for one thread: a table of fixed size in which a new word
// overwrites an older one.

class WordCache {
 public:
  WordCache() : entries_(places) {}

  /// The tokens of `word`; empty if the cache does not have it.
  std::span<const std::int32_t> find(std::string_view word) const {
    const Entry& entry = entries_[place_of(word)];
    const bool is_it = word.size() == entry.bytes && word.size() <= max_bytes &&
                       std::memcmp(word.data(), entry.word, word.size()) == 0;
    return {entry.tokens, is_it ? entry.count : std::size_t{0}};
  }

  /// Stores the tokens of a word, unless the word is too long or has too many tokens.
  void keep(std::string_view word, std::span<const std::int32_t> tokens) {
    if (word.size() > max_bytes || tokens.size() > max_tokens) return;
    Entry& entry = entries_[place_of(word)];
    entry.bytes = static_cast<std::uint8_t>(word.size());
    entry.count = static_cast<std::uint8_t>(tokens.size());
    std::memcpy(entry.word, word.data(), word.size());
    std::copy(tokens.begin(), tokens.end(), entry.tokens);
  }

 private:
  static constexpr std::size_t places = std::size_t{1} << 16;
  static constexpr std::size_t max_bytes = 30;
  static constexpr std::size_t max_tokens = 8;

  struct alignas(64) Entry {
    std::uint8_t bytes = 0;
    std::uint8_t count = 0;
    char word[max_bytes] = {};
    std::int32_t tokens[max_tokens] = {};
  };

  static std::size_t place_of(std::string_view word) {
    return std::hash<std::string_view>()(word) % places;
  }

  std::vector<Entry> entries_;  // 4 MiB
};

namespace {

/// Buffers that one thread needs to encode.
struct Workspace {
  Matcher matcher;
  BytePairs::Workspace pairs;
  WordCache words;
  std::vector<TextPart> raw;
  std::vector<TextPart> parts;
  std::string normal;
};

/// Workspaces that no thread is using: they stay warm from one text to the next.
class Workspaces {
 public:
  std::unique_ptr<Workspace> take() {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    auto workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void give_back(std::unique_ptr<Workspace> workspace) {
    const std::scoped_lock lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

std::filesystem::path file_of(const std::filesystem::path& path) {
  return kind_of_file(path) == FileKind::folder ? path / "tokenizer.json" : path;
}

/// Returns the document after a check of its top keys that are not parts of the tokenizer.
const JsonValue& checked(const JsonValue& root) {
  root.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer",
                   "pre_tokenizer", "post_processor", "decoder", "model"});
  const JsonValue version = root["version"];
  if (!version.is_null() && version.text() != "1.0") {
    version.refuse(in_quotes(version.text()) + ": only 1.0 is known");
  }
  for (const char* name : {"truncation", "padding"}) {
    if (!root[name].is_null()) root[name].refuse("is not built: null");
  }
  return root;
}

/// Refuses decoders other than ByteLevel, since they would change the text.
void check_decoder(const JsonValue& decoder, int depth = 0) {
  if (decoder.is_null()) decoder.refuse("expected a ByteLevel decoder, found null");
  if (depth == deepest_sequence) decoder.refuse("sequences nest more than 16 deep");
  const std::string type = decoder["type"].text();
  if (type == "ByteLevel") return;
  if (type != "Sequence") {
    decoder["type"].refuse("decoder " + in_quotes(type) + " is not built: ByteLevel");
  }
  int count = 0;
  decoder["decoders"].each_item([&](const JsonValue& item) {
    if (++count == 2) item.refuse("is not built: ByteLevel alone");
    check_decoder(item, depth + 1);
  });
  if (count == 0) decoder["decoders"].refuse("expected a ByteLevel decoder, found none");
}

/// The prefix-space flag of a lone ByteLevel: only then can tokenizer_config.json change it.
std::optional<bool> prefix_space_of(const JsonValue& pre_tokenizer) {
  const bool is_whole = pre_tokenizer["type"].text() == "ByteLevel";
  return is_whole ? std::optional(pre_tokenizer["add_prefix_space"].flag()) : std::nullopt;
}

}  // namespace

struct HfTokenizer::Impl {
  Impl(const std::filesystem::path& path, const JsonValue& root)
      : pairs(checked(root)["model"]),
        normalizer(root["normalizer"]),
        splitter(root["pre_tokenizer"]),
        added(root["added_tokens"], pairs, normalizer) {
    check_decoder(root["decoder"]);
    set_bytes();
    frame = read_post_processor(root["post_processor"], std::ssize(bytes));
    special = read_special_tokens(path.parent_path(),
                                  {.added = added.all(),
                                   .frame = frame,
                                   .id_of = [this](const std::string& name) { return id_of(name); },
                                   .vocab_size = std::ssize(bytes),
                                   .prefix_space = prefix_space_of(root["pre_tokenizer"])});
    files = special.read_from;
    files.push_back(path);
  }

  /// Sets the bytes of each token: added tokens stand for their own text, other tokens for bytes if
  /// they can. (The reference library garbles added tokens with accents by reading them as bytes.)
  void set_bytes() {
    bytes.resize(pairs.tokens().size());
    for (std::size_t id = 0; id < bytes.size(); ++id) {
      const std::string& token = pairs.tokens()[id];
      bytes[id] = bytes_of_token(token).value_or(token);
    }
    for (const AddedToken& token : added.all()) {
      const auto id = static_cast<std::size_t>(token.id);
      bytes.resize(std::max(id + 1, bytes.size()));
      bytes[id] = token.content;
    }
  }

  std::optional<std::int32_t> id_of(const std::string& name) const {
    for (const AddedToken& token : added.all()) {
      if (token.content == name) return token.id;
    }
    return pairs.id_of(name);
  }

  void encode_word(std::string_view word, Workspace& work, std::vector<std::int32_t>& out) const {
    const auto known = work.words.find(word);
    if (!known.empty()) {
      out.insert(out.end(), known.begin(), known.end());
      return;
    }
    const std::size_t before = out.size();
    pairs.encode(word, work.pairs, out);
    work.words.keep(word, std::span(out).subspan(before));
  }

  void encode_valid(std::string_view text, bool continues, Workspace& work,
                    std::vector<std::int32_t>& out) const {
    const Splitter::Take take = [&](std::string_view word) { encode_word(word, work, out); };
    work.raw.clear();
    added.cut_raw(text, work.matcher, work.raw);
    for (const TextPart& raw : work.raw) {
      if (raw.token >= 0) {
        out.push_back(raw.token);
        continue;
      }
      const bool is_first = raw.text.data() == text.data();
      const std::string_view normal = normalizer.apply(raw.text, work.normal);
      work.parts.clear();
      added.cut_normalized(normal, work.matcher, work.parts);
      for (const TextPart& part : work.parts) {
        if (part.token >= 0) {
          out.push_back(part.token);
          continue;
        }
        const bool goes_on = continues && is_first && part.text.data() == normal.data();
        splitter.split(part.text, goes_on, work.matcher, take);
      }
    }
  }

  BytePairs pairs;
  Normalizer normalizer;
  Splitter splitter;
  AddedTokens added;
  std::vector<std::string> bytes;  // bytes of each token; empty if an id has no token
  TextFrame frame;
  SpecialTokens special;
  std::vector<std::filesystem::path> files;
  mutable Workspaces workspaces;
  mutable std::atomic<bool> has_warned = false;
};

HfTokenizer::HfTokenizer(const std::filesystem::path& path) {
  const JsonFile file(file_of(path));
  impl_ = std::make_unique<Impl>(file_of(path), file.root());
}

HfTokenizer::~HfTokenizer() = default;

void HfTokenizer::encode(std::string_view text, bool continues,
                         std::vector<std::int32_t>& out) const {
  std::string replaced;
  if (valid_prefix(text) != text.size()) {
    replaced = replace_invalid(text);
    text = replaced;
    if (!impl_->has_warned.exchange(true)) {
      log_warning("text that is not valid UTF-8: each invalid sequence of bytes becomes U+FFFD");
    }
  }
  auto workspace = impl_->workspaces.take();
  impl_->encode_valid(text, continues, *workspace, out);
  impl_->workspaces.give_back(std::move(workspace));
}

std::string HfTokenizer::decode(const std::vector<std::int32_t>& tokens) const {
  std::string bytes;
  for (const std::int32_t token : tokens) bytes += bytes_of(token);
  return replace_invalid(bytes);
}

std::string_view HfTokenizer::bytes_of(std::int32_t token) const {
  const bool is_known = token >= 0 && token < vocab_size();
  return is_known ? std::string_view(impl_->bytes[static_cast<std::size_t>(token)]) : "";
}

std::int64_t HfTokenizer::vocab_size() const { return std::ssize(impl_->bytes); }
const SpecialTokens& HfTokenizer::special() const { return impl_->special; }
const TextFrame& HfTokenizer::frame() const { return impl_->frame; }
const std::vector<std::filesystem::path>& HfTokenizer::files() const { return impl_->files; }

}  // namespace trainctl::hf
