// Which tokens begin, end and pad texts: the "post_processor" of a tokenizer.json, and the files
// that lie beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/hf/added_tokens.h"
#include "data/tokenizer/hf/json_value.h"

namespace trainctl::hf {

/// What the reference library puts around one text when it adds special tokens.
struct TextFrame {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
};

/// null, ByteLevel, TemplateProcessing or a Sequence of those; tokens below `vocab_size`. Throws
/// Error{bad_data}.
TextFrame read_post_processor(const JsonValue& post_processor, std::int64_t vocab_size);

struct SpecialTokens {
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> eos;
  std::optional<std::int32_t> pad;
  std::vector<std::int32_t> stops;               // each of them ends what a model writes
  std::vector<std::filesystem::path> read_from;  // the files that were there
};

/// What tokenizer.json says, for comparison with the files beside it.
struct KnownTokenizer {
  const std::vector<AddedToken>& added;
  const TextFrame& frame;
  std::function<std::optional<std::int32_t>(const std::string& token)> id_of;
  std::int64_t vocab_size;
  std::optional<bool> prefix_space;  // of a pre-tokenizer that is ByteLevel alone
};

/// bos, eos and pad are the first that is found in tokenizer_config.json, special_tokens_map.json,
/// generation_config.json and config.json of the folder. The end tokens of the last two stop
/// generation too. Throws Error{bad_data}, also where tokenizer_config.json contradicts
/// tokenizer.json.
SpecialTokens read_special_tokens(const std::filesystem::path& folder, const KnownTokenizer& known);

}  // namespace trainctl::hf
