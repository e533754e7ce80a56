#include <nlohmann/json.hpp>

#include "base/philox.h"
#include "catch.h"
#include "hf_body.h"
#include "thorough.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

using Json = nlohmann::json;

/// The smallest file that opens, with all kinds of steps.
Json sample() {
  return Json::parse(R"json({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 4, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
                      "rstrip": false, "normalized": false, "special": true},
                     {"id": 5, "content": "<both>", "single_word": true, "lstrip": true,
                      "rstrip": true, "normalized": true, "special": false}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+(?!\\S)"}, "behavior": "Isolated",
       "invert": false},
      {"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": false}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "x", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"x": {"id": "x", "ids": [4], "tokens": ["<|endoftext|>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": null,
              "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false,
              "ignore_merges": false, "vocab": {"?": 0, "t": 1, "h": 2, "th": 3},
              "merges": ["t h"]}
  })json");
}

/// The message of opening the sample when the value at `pointer` is another one.
std::string error_with(const ScratchFolder& folder, const std::string& pointer, const Json& value) {
  Json changed = sample();
  changed[Json::json_pointer(pointer)] = value;
  const auto file = folder.write("tokenizer.json", changed.dump());
  return error_of([&] { Tokenizer::open("hf:" + file.string()); });
}

}  // namespace

TEST_CASE("what a tokenizer.json asks for and is not built is refused by its path") {
  const ScratchFolder folder;
  CHECK(use_tokenizer(folder, sample().dump()));
  const struct {
    std::string pointer;
    Json value;
    std::string message;
  } cases[] = {
      {"/version", "2.0", "version: \"2.0\": only 1.0 is known"},
      {"/truncation", Json::object(), "truncation: is not built: null"},
      {"/padding", Json::object(), "padding: is not built"},
      {"/chat", 1, "chat: not a known key"},
      {"/normalizer/type", "Lowercase",
       "normalizer.type: normalizer \"Lowercase\" is not built: NFC, NFD"},
      {"/normalizer/normalizers/0",
       {{"type", "Replace"}},
       "normalizer.normalizers[0].type: normalizer \"Replace\" is not built"},
      {"/normalizer/normalizers/0/left", true, "normalizer.normalizers[0].left: not a known key"},
      {"/pre_tokenizer", nullptr, "pre_tokenizer: has no ByteLevel step: only byte-level"},
      {"/pre_tokenizer/pretokenizers/2",
       {{"type", "Metaspace"}},
       "pretokenizers[2].type: pre-tokenizer \"Metaspace\" is not built: ByteLevel, Split"},
      {"/pre_tokenizer/pretokenizers/2", {{"type", "Digits"}}, "has no ByteLevel step"},
      {"/pre_tokenizer/pretokenizers/0",
       {{"type", "ByteLevel"}},
       "pretokenizers[1]: follows ByteLevel, which must be last"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Joined",
       "pretokenizers[0].behavior: \"Joined\": expected Isolated, Removed"},
      {"/pre_tokenizer/pretokenizers/0/pattern", Json::object(),
       "pretokenizers[0].pattern: expected a Regex or a String"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "a(b",
       "pattern.Regex: not a pattern: missing closing parenthesis"},
      {"/post_processor/type", "RobertaProcessing",
       "post_processor.type: post-processor \"RobertaProcessing\" is not built"},
      {"/post_processor/single/1/Sequence/id", "B", "single[1].Sequence.id: expected \"A\""},
      {"/post_processor/single/1",
       {{"SpecialToken", {{"id", "x"}}}},
       "post_processor.single: expected the text, Sequence A, exactly once"},
      {"/post_processor/single/0/SpecialToken/id", "y",
       "single[0].SpecialToken.id: \"y\" is not in special_tokens"},
      {"/post_processor/special_tokens/x/ids/0", 6,
       "special_tokens.x.ids[0]: expected a whole number from 0 to 5, found 6"},
      {"/decoder", nullptr, "decoder: expected a ByteLevel decoder, found null"},
      {"/decoder/type", "WordPiece", "decoder.type: decoder \"WordPiece\" is not built: ByteLevel"},
      {"/model/type", "Unigram", "model.type: model \"Unigram\" is not built: BPE"},
      {"/model/dropout", 0.1, "model.dropout: is not built: null"},
      {"/model/continuing_subword_prefix", "##", "model.continuing_subword_prefix: is not built"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix: is not built"},
      {"/model/byte_fallback", true,
       "model.byte_fallback: model.vocab has no token for byte 0, and tokens like <0x00>"},
      {"/model/unk_token", "??",
       "model.unk_token: model.vocab has no token for byte 0, and \"??\""},
      {"/model/vocab", Json::object(), "model.vocab: is empty"},
      {"/model/vocab/a", 3, "the id 3 is also that of"},
      {"/model/vocab/\x1b[31m", -1, "model.vocab[\"\\u001b[31m\"]: expected a whole number"},
      {"/model/vocab/\x1b[31m", 3, "model.vocab.th: the id 3 is also that of \"\\u001b[31m\""},
      {"/model/merges/0", "\x1b t", "model.merges[0]: \"\\u001b\" is not in model.vocab"},
      {"/model/merges/0", std::string(100, 'x'), std::string(60, 'x') + "\"..."},
      {"/model/vocab/a", -1, "model.vocab.a: expected a whole number from 0 to 4194303, found -1"},
      {"/model/vocab/a", 5000000, "found 5000000"},
      {"/model/vocab/a", 18446744073709551615U, "found 18446744073709551615"},
      {"/model/vocab/a", "b", "model.vocab.a: expected a whole number"},
      {"/model/merges/0", "th", "model.merges[0]: expected two tokens with a space between them"},
      {"/model/merges/0", "t h h", "model.merges[0]: expected two tokens with a space"},
      {"/model/merges/0", {"t", "h", "h"}, "model.merges[0]: expected two tokens, found 3"},
      {"/model/merges/0", "h t", "model.merges[0]: \"ht\" is not in model.vocab"},
      {"/model/merges/0", {"t", "x"}, "model.merges[0]: \"x\" is not in model.vocab"},
      {"/model/merges", 7, "model.merges: expected a list, found 7"},
      {"/added_tokens/0/id", 6, "added_tokens[0].id: expected 4, the id that the Hugging Face"},
      {"/added_tokens/1/content", "<|endoftext|>", "added_tokens[1].content: is there twice"},
      {"/added_tokens/1/content", "", "added_tokens[1].content: is empty"},
      {"/added_tokens/0/special", "yes", "special: expected true or false, found \"yes\""},
      {"/added_tokens/0/lost", 1, "added_tokens[0].lost: not a known key"},
  };
  for (const auto& [pointer, value, message] : cases) {
    const std::string error = error_with(folder, pointer, value);
    CHECK(missing_in(error, {"65 ", "/tokenizer.json: ", message}) == "");
  }
}

TEST_CASE("parts of patterns that mean another thing in PCRE2 are refused") {
  const ScratchFolder folder;
  const char* const refused[][2] = {
      {"a$", "$"},        {"^a", "^"},        {"\\bx", "\\b"},
      {"\\hx", "\\h"},    {"(a)\\1", "\\1"},  {"\\p{N}{1,3}+", "{1,3}+"},
      {"a{,3}", "{"},     {"a{", "{"},        {"[a[b]]", "["},
      {"[a&&b]", "&&"},   {"[]a]", "]"},      {"[\\W]", "\\W"},
      {"(?m:a)", "(?m"},  {"(*F)", "(*F"},    {"(?<n>a)", "(?<"},
      {"\\xe9", "\\xe9"}, {"\\x{}", "\\x{}"}, {"\\u12", "\\u12"},
      {"\\pL", "\\pL"},   {"\\p{L", "\\p{"},  {"(?i:\\p{Lu})", "\\p{Lu}"},
      {"a\\", "\\"},      {"\\p{}", "\\p{}"},
  };
  for (const auto& [pattern, part] : refused) {
    const std::string error =
        error_with(folder, "/pre_tokenizer/pretokenizers/0/pattern/Regex", pattern);
    const std::string message =
        "pattern.Regex: " + Json(part).dump() + " is not supported in a pattern";
    CHECK(missing_in(error, {message}) == "");
  }
  for (const char* unknown :
       {"\\p{Alphabetic}", "\\p{Letter}", "[b-a]", "[a", "a**", "(?<=a+)b", "a)"}) {
    const std::string error =
        error_with(folder, "/pre_tokenizer/pretokenizers/0/pattern/Regex", unknown);
    CHECK(missing_in(error, {"pattern.Regex: not a pattern: "}) == "");
  }
}

TEST_CASE("a tokenizer.json that cannot be read says where") {
  const ScratchFolder folder;
  const auto open_error = [&](const std::string& content) {
    const auto file = folder.write("tokenizer.json", content);
    return error_of([&] { Tokenizer::open("hf:" + file.string()); });
  };
  CHECK(missing_in(open_error("{\n  \"version\": nul\n}"),
                   {"65 ", "/tokenizer.json:2:17: not valid JSON: invalid literal"}) == "");
  CHECK(missing_in(open_error(""),
                   {"65 ", "/tokenizer.json:1:1: not valid JSON: unexpected end"}) == "");
  CHECK(missing_in(open_error("[]"),
                   {"65 ", "/tokenizer.json: expected an object, found a list"}) == "");
  CHECK(missing_in(open_error("{\"version\": 1e999}"), {"65 ", "not valid JSON"}) == "");
  CHECK(missing_in(open_error("\"\xff\""), {"65 ", "not valid JSON: invalid string"}) == "");
  std::string deep = R"({"model": {"vocab": {"a": 0}, "merges": []}, "normalizer": )";
  for (int i = 0; i < 20000; ++i) deep += R"({"type": "Sequence", "normalizers": [)";
  for (int i = 0; i < 20000; ++i) deep += "]}";
  CHECK(missing_in(open_error(deep + "}"), {"65 ", "sequences nest more than 16 deep"}) == "");
  const auto none = error_of([&] { Tokenizer::open("hf:" + (folder / "none").string()); });
  CHECK(missing_in(none, {"66 ", "none"}) == "");
  const auto hub = error_of([&] { Tokenizer::open("hf:openai-community/gpt2"); });
  CHECK(missing_in(hub, {"66 ", "hf download openai-community/gpt2 --local-dir gpt2"}) == "");
  std::filesystem::create_directory(folder / "empty");
  const auto empty = error_of([&] { Tokenizer::open("hf:" + (folder / "empty").string()); });
  CHECK(missing_in(empty, {"66 ", "empty/tokenizer.json"}) == "");
}

TEST_CASE("files in the folder of tokenizer.json that contradict it are refused") {
  const ScratchFolder folder;
  const auto file = folder.write("tokenizer.json", sample().dump());
  const auto error_beside = [&](const std::string& name, const std::string& content) {
    const auto other = folder.write(name, content);
    const std::string error = error_of([&] { Tokenizer::open("hf:" + file.string()); });
    std::filesystem::remove(other);
    return error;
  };
  const std::string config = "tokenizer_config.json";
  CHECK(missing_in(error_beside(config, R"({"eos_token": "</s>"})"),
                   {"65 ", "tokenizer_config.json: eos_token: \"</s>\" is not a token of"}) == "");
  CHECK(missing_in(error_beside(config, R"({"eos_token": {"content": 5}})"),
                   {"eos_token.content: expected a text, found 5"}) == "");
  CHECK(missing_in(error_beside(config, R"({"added_tokens_decoder": {"7": {"content": "x"}}})"),
                   {"added_tokens_decoder.7: tokenizer.json adds no token with this id"}) == "");
  CHECK(missing_in(error_beside(config, R"({"added_tokens_decoder": {"4": {"content": "x"}}})"),
                   {"decoder.4.content: \"x\", but \"<|endoftext|>\" in tokenizer.json"}) == "");
  CHECK(missing_in(error_beside(config, R"({"added_tokens_decoder":
                                           {"4": {"content": "<|endoftext|>", "lstrip": true}}})"),
                   {"added_tokens_decoder.4.lstrip: is otherwise in tokenizer.json"}) == "");
  CHECK(missing_in(error_beside("config.json", R"({"eos_token_id": 6})"),
                   {"config.json: eos_token_id: expected a whole number from 0 to 5, found 6"}) ==
        "");
  CHECK(missing_in(error_beside("generation_config.json", R"({"eos_token_id": [1, null]})"),
                   {"generation_config.json: eos_token_id[1]: expected", "found null"}) == "");
  CHECK(missing_in(error_beside("special_tokens_map.json", "{"),
                   {"special_tokens_map.json:1:2: not valid JSON"}) == "");
  CHECK(error_beside(config, R"({"eos_token": "th"})") == "");
  CHECK(missing_in(error_beside(config, R"({"bos_token": "th", "add_bos_token": true})"),
                   {"add_bos_token: true, but tokenizer.json has it otherwise"}) == "");
  CHECK(
      missing_in(error_beside(config, R"({"bos_token": "<|endoftext|>", "add_bos_token": false})"),
                 {"add_bos_token: false, but tokenizer.json has it otherwise"}) == "");
  CHECK(missing_in(error_beside(config, R"({"eos_token": "th", "add_eos_token": true})"),
                   {"add_eos_token: true, but tokenizer.json has it otherwise"}) == "");
  CHECK(error_beside(config, R"({"bos_token": "<|endoftext|>", "eos_token": "th",
                                 "add_bos_token": true, "add_eos_token": false,
                                 "add_prefix_space": false})") == "");
  Json alone = sample();
  alone["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  folder.write("tokenizer.json", alone.dump());
  CHECK(missing_in(error_beside(config, R"({"add_prefix_space": false})"),
                   {"add_prefix_space: false, but tokenizer.json has it otherwise"}) == "");
}

TEST_CASE("mutated tokenizer files give an Error or tokens, never worse") {
  const ScratchFolder folder;
  const std::string seed = sample().dump();
  const std::vector<std::string> words{"null", "true", "-1", "5", "\"\"", "[]", "{}",
                                       "1e9",  "\\",   "\"", "]", "}",    "*",  "\xff"};
  int opened = 0;
  const int rounds = tries(1500, 20000);
  for (int i = 0; i < rounds; ++i) {
    const Philox random(2, static_cast<std::uint64_t>(i));
    std::string content = seed;
    for (std::uint32_t change = 0; change <= random.bits(0) % 2; ++change) {
      const std::size_t at = random.bits(4 * change + 1) % content.size();
      const std::string& word = words[random.bits(4 * change + 2) % words.size()];
      switch (random.bits(4 * change + 3) % 4) {
        case 0: content.erase(at, 1 + random.bits(100 + change) % 8); break;
        case 1: content.insert(at, word); break;
        case 2: content.replace(at, 1, word); break;
        default: content[at] = static_cast<char>(random.bits(100 + change)); break;
      }
    }
    opened += use_tokenizer(folder, content) ? 1 : 0;
  }
  CHECK(opened > rounds / 50);
  CHECK(opened < rounds);
}
