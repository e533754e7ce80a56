// Byte-pair encoding of words: the "model" of a tokenizer.json. A word's bytes are tokens at first;
// then the pair of neighbours that comes first in the list of merges becomes one token, until no
// neighbours are in the list.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/hf/json_value.h"

namespace trainctl::hf {

/// Ids above this are refused: a table has a place for each.
inline constexpr std::int64_t most_token_id = (std::int64_t{1} << 22) - 1;

class BytePairs {
 public:
  /// Throws Error{bad_data} with the file and the path of what is wrong or not built.
  explicit BytePairs(const JsonValue& model);

  /// Working memory of `encode`, for one thread.
  struct Workspace {
    struct Symbol {
      std::int32_t token;  // -1: merged into the one before
      std::int32_t before;
      std::int32_t after;
    };
    struct Candidate {
      std::uint64_t order;  // (rank, place): the least is merged first
      std::int32_t token;   // what it makes
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
  std::unordered_map<std::uint64_t, Merge> merges_;  // by the two tokens
  std::uint32_t ranks_ = 0;
  std::array<std::int32_t, 256> bytes_{};  // the token of each byte, dropped or unknown
  std::int32_t unknown_token_ = -1;
  bool fuses_unknown_ = false;
  bool ignores_merges_ = false;
  std::unordered_map<std::string, std::int32_t> words_;  // by their bytes; if merges are ignored
};

}  // namespace trainctl::hf
