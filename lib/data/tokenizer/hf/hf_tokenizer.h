// Hugging Face's tokenizer.json: byte pairs, added and special tokens, and the tokenizer itself.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/hf/json_value.h"
#include "data/tokenizer/hf/pattern.h"
#include "data/tokenizer/hf/unicode.h"

namespace trainctl::hf {

/// The largest id that is accepted: a table has a place for each id.
inline constexpr std::int64_t max_token_id = (std::int64_t{1} << 22) - 1;

/// Byte-pair encoding of words: the "model" of a tokenizer.json. A word starts as one token per
/// byte; then the pair of neighbours that comes first in the list of merges becomes one token,
/// until no neighbours are in the list.
class BytePairs {
 public:
  /// Throws Error{bad_data} with the file and the path of a value that is wrong or not supported.
  explicit BytePairs(const JsonValue& model);

  /// Working memory of `encode`, for one thread.
  struct Workspace {
    struct Symbol {
      std::int32_t token;  // -1 if merged into the symbol before
      std::int32_t before;
      std::int32_t after;
    };
    struct Candidate {
      std::uint64_t order;  // (rank, place): the lowest is merged first
      std::int32_t token;   // the merged token
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;
  };

  /// Appends the tokens of a word. Takes O(n log n) time for n bytes.
  void encode(std::string_view word, Workspace& workspace, std::vector<std::int32_t>& out) const;

  /// Tokens by id; empty where no token has the id.
  const std::vector<std::string>& tokens() const { return tokens_; }
  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }
  std::optional<std::int32_t> id_of(const std::string& token) const;

 private:
  struct Merge {
    std::uint32_t rank;
    std::int32_t token;
  };
  static constexpr std::int32_t dropped = -1;  // a byte without a token
  static constexpr std::int32_t unknown = -2;  // a byte that the unknown token stands for

  void read_options(const JsonValue& model);
  void read_vocabulary(const JsonValue& vocabulary);
  void read_merges(const JsonValue& merges);
  void add_merge(const JsonValue& merge, const std::string& left, const std::string& right);
  void read_bytes(const JsonValue& model);
  void start(std::string_view word, Workspace& workspace) const;
  void propose(std::int32_t place, Workspace& workspace) const;
  const Merge* merge_at(std::int32_t place, const Workspace& workspace) const;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_map<std::uint64_t, Merge> merges_;  // the merge of each pair of tokens
  std::uint32_t ranks_ = 0;
  std::array<std::int32_t, 256> bytes_{};  // the token of each byte, dropped or unknown
  std::int32_t unknown_token_ = -1;
  bool fuses_unknown_ = false;
  bool ignores_merges_ = false;
  std::unordered_map<std::string, std::int32_t> words_;  // by the word; if merges are ignored
};

// Tokens that are found in text as they are, before it is split into words: the "added_tokens" of a
// tokenizer.json.

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;
  bool single_word = false;  // only where no word character adjoins it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // looked for in normalised text
};

/// A part of a text: an added token, or text without one (token -1).
struct TextPart {
  std::string_view text;
  std::int32_t token = -1;
};

class AddedTokens {
 public:
  /// Throws Error{bad_data}, also where the reference library would give a token another id than
  /// the file does.
  AddedTokens(const JsonValue& list, const BytePairs& model, const Normalizer& normalizer);

  /// Appends the parts of `text`: cut_raw for a raw text, then cut_normalized for each part of it
  /// without a token, once normalised.
  void cut_raw(std::string_view text, Matcher& matcher, std::vector<TextPart>& out) const {
    cut(raw_, text, matcher, out);
  }
  void cut_normalized(std::string_view text, Matcher& matcher, std::vector<TextPart>& out) const {
    cut(normalized_, text, matcher, out);
  }
  const std::vector<AddedToken>& all() const { return all_; }

 private:
  /// The texts to search for, sorted, with the index in all_.
  struct Set {
    std::vector<std::pair<std::string, std::size_t>> contents;
    std::array<bool, 256> begins{};  // the first bytes of the contents
  };
  static AddedToken read(const JsonValue& value);
  void read_all(const JsonValue& list, const BytePairs& model);
  void build(Set& set, bool normalized, const Normalizer& normalizer) const;
  static const std::pair<std::string, std::size_t>* longest(const Set& set, std::string_view text);
  void cut(const Set& set, std::string_view text, Matcher& matcher,
           std::vector<TextPart>& out) const;
  bool is_single_word(std::string_view before, std::string_view after, Matcher& matcher) const;

  std::vector<AddedToken> all_;
  Set raw_;
  Set normalized_;
  Pattern word_character_;
};

// The tokens that begin, end and pad texts: the "post_processor" of a tokenizer.json, and the other
// files of its folder.

/// The tokens that the reference library puts around one text when it adds special tokens.
struct TextFrame {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
};

/// Accepts null, ByteLevel, TemplateProcessing or a Sequence of those, with tokens below
/// `vocab_size`. Throws Error{bad_data}.
TextFrame read_post_processor(const JsonValue& post_processor, std::int64_t vocab_size);

struct SpecialTokens {
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> eos;
  std::optional<std::int32_t> pad;
  std::vector<std::int32_t> stops;               // tokens that end generation
  std::vector<std::filesystem::path> read_from;  // the files that exist
};

/// Special tokens by tokenizer.json, for comparison with the other files of its folder.
struct KnownTokenizer {
  const std::vector<AddedToken>& added;
  const TextFrame& frame;
  std::function<std::optional<std::int32_t>(const std::string& token)> id_of;
  std::int64_t vocab_size;
  std::optional<bool> prefix_space;  // set if the pre-tokenizer is ByteLevel alone
};

/// Takes bos, eos and pad each from the first of these files of the folder that has it:
/// tokenizer_config.json, special_tokens_map.json, generation_config.json, config.json. The end
/// tokens of the last two stop generation too. Throws Error{bad_data}, also where
/// tokenizer_config.json contradicts tokenizer.json.
SpecialTokens read_special_tokens(const std::filesystem::path& folder, const KnownTokenizer& known);

// A byte-level BPE tokenizer as Hugging Face's tokenizer.json describes it: GPT-2, Llama 3, Qwen
// and others of their kind. Gives the tokens that the `tokenizers` library gives.

class HfTokenizer {
 public:
  /// Reads a tokenizer.json, given as a file or by its folder, and the files of the folder that
  /// name special tokens. Throws Error{missing_input | bad_data}: a step that the file requires but
  /// is not supported is refused with its path in the file.
  explicit HfTokenizer(const std::filesystem::path& path);
  ~HfTokenizer();

  /// Appends the tokens of `text`, without special tokens around them; thread-safe. With
  /// `continues`, the text continues an earlier one, so no space is put before it. Invalid UTF-8
  /// becomes U+FFFD, with one warning.
  void encode(std::string_view text, bool continues, std::vector<std::int32_t>& out) const;
  /// Special tokens appear as they are written; ids without a token give nothing; bytes that make
  /// no character become U+FFFD.
  std::string decode(const std::vector<std::int32_t>& tokens) const;
  /// The bytes of one token, which may be part of a character.
  std::string_view bytes_of(std::int32_t token) const;

  /// One more than the largest id.
  std::int64_t vocab_size() const;
  const SpecialTokens& special() const;
  const TextFrame& frame() const;
  /// The files that determine this tokenizer.
  const std::vector<std::filesystem::path>& files() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl::hf
