// The fuzz target and its replay in the unit tests use a text as a tokenizer.json. Only an Error
// may come of it.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "data/scratch_folder.h"
#include "data/tokenizer/tokenizer.h"

namespace trainctl::testing {

/// Returns whether the file opened.
inline bool use_tokenizer(const ScratchFolder& folder, const std::string& content) {
  set_log_level(LogLevel::error);  // the text is not valid UTF-8
  const auto file = folder.write("tokenizer.json", content);
  try {
    const Tokenizer tokenizer = Tokenizer::open("hf:" + file.string());
    std::vector<std::int32_t> tokens;
    try {
      tokenizer.encode("It's <|endoftext|> 12 e\u0301\xff  the\n\nfox<both> ", tokens);
    } catch (const Error&) {  // a pattern that takes too many steps
    }
    for (const std::int32_t token : tokens) {
      if (token < 0 || token >= tokenizer.vocab_size()) std::abort();
    }
    TextStream stream(tokenizer, 0);
    std::string text;
    for (const std::int32_t token : tokens) text += stream.add(token);
    if (text + stream.finish() != tokenizer.decode(tokens)) std::abort();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace trainctl::testing
