// The tokens of Hugging Face's `tokenizers` package, from tests/reference/make_tokenizers.py.
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/integers.h"
#include "catch.h"
#include "data/scratch_folder.h"
#include "data/tokenizer/tokenizer.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

using Json = nlohmann::json;
const std::filesystem::path folder = TRAINCTL_SOURCE_DIR "/tests/reference/tokenizers";

const Json& expected() {
  static const Json value = Json::parse(bytes_of(folder / "expected.json"));
  return value;
}

std::string text_of(const Json& made) {
  if (made.contains("text")) return made["text"];
  std::string text;
  if (made.contains("hex")) {
    const std::string hex = made["hex"];
    for (std::size_t i = 0; i < hex.size(); i += 2) {
      text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    return text;
  }
  for (int i = 0; i < made["times"]; ++i) text += made["part"];
  return text;
}

/// In the form that expected.json has them: long lists as their number and a hash.
Json listed(const std::vector<std::int32_t>& tokens) {
  if (tokens.size() <= 100) return tokens;
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx",
                static_cast<unsigned long long>(fnv1a(packed(tokens))));
  return {{"count", tokens.size()}, {"fnv1a", digits.data()}};
}

std::vector<std::int32_t> encoded(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::int32_t> tokens;
  tokenizer.encode(text, tokens);
  return tokens;
}

/// The text as `generate` would print it.
std::string streamed(const Tokenizer& tokenizer, const std::vector<std::int32_t>& tokens) {
  TextStream stream(tokenizer, 0);
  std::string text;
  for (const std::int32_t token : tokens) text += stream.add(token);
  return text + stream.finish();
}

}  // namespace

TEST_CASE("tokens are those of the reference for GPT-2, Llama 3 and Qwen2") {
  const std::string name = GENERATE("gpt2", "llama3", "qwen2");
  CAPTURE(name);
  const Tokenizer tokenizer = Tokenizer::open("hf:" + (folder / name).string());
  const bool keeps_text = name != "qwen2";  // which normalises it
  REQUIRE(expected()["texts"].size() > 50);
  for (const auto& [what, made] : expected()["texts"].items()) {
    CAPTURE(what);
    const std::string text = text_of(made);
    const auto tokens = encoded(tokenizer, text);
    CHECK(listed(tokens) == expected()["tokenizers"][name][what]);
    const bool is_valid = !made.contains("hex");
    if (keeps_text && is_valid) CHECK(tokenizer.decode(tokens) == text);
    CHECK(encoded(tokenizer, tokenizer.decode(tokens)) == tokens);
    CHECK(streamed(tokenizer, tokens) == tokenizer.decode(tokens));
  }
}

TEST_CASE("tokens are those of the reference for every step that a tokenizer.json can have",
          "[one_thread]") {
  const ScratchFolder scratch;
  const Json base = Json::parse(bytes_of(folder / "gpt2" / "tokenizer.json"));
  REQUIRE(expected()["variants"].size() > 25);
  for (const Json& variant : expected()["variants"]) {
    CAPTURE(variant["name"]);
    Json changed = base;
    changed.update(variant["change"]);
    const auto file = scratch.write("tokenizer.json", changed.dump());
    const Tokenizer tokenizer = Tokenizer::open("hf:" + file.string());
    for (const auto& [what, made] : expected()["texts"].items()) {
      CAPTURE(what);
      const Json& same = expected()["tokenizers"]["gpt2"][what];
      CHECK(listed(encoded(tokenizer, text_of(made))) == variant["tokens"].value(what, same));
    }
  }
}

TEST_CASE("special tokens come from the other files of the folder of tokenizer.json") {
  const auto open = [](const char* name) {
    return Tokenizer::open("hf:" + (folder / name).string());
  };
  using Tokens = std::vector<std::int32_t>;
  const Tokenizer gpt2 = open("gpt2");  // config.json
  CHECK(gpt2.vocab_size() == 561);
  CHECK(gpt2.begin_token() == 560);
  CHECK(gpt2.end_of_document() == 560);
  CHECK_FALSE(gpt2.padding_token());
  CHECK(gpt2.stop_tokens() == Tokens{560});
  CHECK(gpt2.before_document().empty());
  CHECK(gpt2.after_document().empty());
  CHECK(gpt2.files().size() == 3);

  const Tokenizer llama3 = open("llama3");  // names, a template, more end tokens
  CHECK(llama3.vocab_size() == 525);
  CHECK(llama3.begin_token() == 521);
  CHECK(llama3.end_of_document() == 522);
  CHECK(llama3.stop_tokens() == Tokens{522, 523});
  CHECK(llama3.before_document() == Tokens{521});
  CHECK(llama3.after_document().empty());
  CHECK(encoded(llama3, " marvellous") == Tokens{520});

  const Tokenizer qwen2 = open("qwen2");
  CHECK(qwen2.vocab_size() == 545);
  CHECK_FALSE(qwen2.begin_token());
  CHECK(qwen2.end_of_document() == 542);
  CHECK(qwen2.padding_token() == 540);
  CHECK(qwen2.stop_tokens() == Tokens{542, 540});
}

TEST_CASE("a folder, its tokenizer.json and a text in two parts are the same") {
  const Tokenizer one = Tokenizer::open("hf:" + (folder / "gpt2").string());
  const Tokenizer other = Tokenizer::open("hf:" + (folder / "gpt2" / "tokenizer.json").string());
  CHECK(one.files() == other.files());
  CHECK(one.end_of_document() == other.end_of_document());
  std::vector<std::int32_t> parts;
  one.encode("The quick brown", parts);
  one.encode("\n\nfox", parts, true);
  CHECK(parts == encoded(other, "The quick brown\n\nfox"));
}

TEST_CASE("a space is put before a text, but not before a continuation") {
  const ScratchFolder scratch;
  Json changed = Json::parse(bytes_of(folder / "gpt2" / "tokenizer.json"));
  changed["pre_tokenizer"]["add_prefix_space"] = true;
  const auto file = scratch.write("tokenizer.json", changed.dump());
  const Tokenizer tokenizer = Tokenizer::open("hf:" + file.string());
  CHECK(tokenizer.decode(encoded(tokenizer, "fox")) == " fox");
  std::vector<std::int32_t> tokens;
  tokenizer.encode("fox", tokens, true);
  CHECK(tokenizer.decode(tokens) == "fox");
  tokens.clear();
  tokenizer.encode("fox<|endoftext|>fox", tokens, true);
  CHECK(tokenizer.decode(tokens) == "fox<|endoftext|> fox");
}

TEST_CASE("a character is shown once all of its bytes are there") {
  const Tokenizer tokenizer = Tokenizer::open("hf:" + (folder / "gpt2").string());
  const auto tokens = encoded(tokenizer, "ꙮ");  // no merges: three bytes
  REQUIRE(tokens.size() == 3);
  TextStream stream(tokenizer, tokens[0]);
  CHECK(stream.add(tokens[0]) == "");
  CHECK(stream.add(tokens[1]) == "");
  CHECK(stream.add(tokens[2]) == "ꙮ");
  CHECK(stream.add(tokens[0]) == "");
  CHECK(stream.add(tokens[0]) == "\xef\xbf\xbd");
  CHECK(stream.finish() == "\xef\xbf\xbd");
  CHECK(stream.finish() == "");
  CHECK(tokenizer.decode({tokens[0], -1, 561, 1 << 30, tokens[1], tokens[2]}) == "ꙮ");
}

TEST_CASE("the bytes of tokens add up to the text, also where it is cut inside a character") {
  const Tokenizer tokenizer = Tokenizer::open("hf:" + (folder / "gpt2").string());
  const std::string text = "山高水长，日月同辉。 fox";
  const auto tokens = encoded(tokenizer, text);
  std::int64_t bytes = 0;
  for (const std::int32_t token : tokens) bytes += tokenizer.bytes_of(token);
  CHECK(bytes == std::ssize(text));
  std::int64_t decoded = 0;  // an unfinished character is shown as one of three bytes
  for (const std::int32_t token : tokens) decoded += std::ssize(tokenizer.decode({token}));
  CHECK(decoded > bytes);
  CHECK(tokenizer.bytes_of(*tokenizer.end_token()) == std::ssize(std::string("<|endoftext|>")));
  CHECK(tokenizer.bytes_of(-1) == 0);
}

TEST_CASE("a very long word takes no quadratic time", "[one_thread]") {
  // Each takes minutes where a step is quadratic in the word's length.
  const std::string name = GENERATE("gpt2", "llama3", "qwen2");
  const std::string part = GENERATE("a", "the", "xq", " ", "\n", "\u0323\u0301", "界", "!", "'s");
  CAPTURE(name, part);
  const Tokenizer tokenizer = Tokenizer::open("hf:" + (folder / name).string());
  std::string text;
  while (text.size() < 1U << 18U) text += part;
  const auto tokens = encoded(tokenizer, text);
  CHECK(tokens.size() <= text.size());
  if (name != "qwen2") CHECK(tokenizer.decode(tokens) == text);
}
