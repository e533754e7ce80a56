#include "data/tokenizer/tokenizer.h"

#include "catch.h"
#include "data/scratch_folder.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {
const std::string model = "sentencepiece:" TRAINCTL_TEST_DIR "/small.model";
}

TEST_CASE("the byte tokenizer maps bytes to their values") {
  const Tokenizer bytes = Tokenizer::open("byte");
  CHECK(bytes.vocab_size() == 256);
  CHECK(bytes.end_of_document() == -1);
  CHECK(bytes.specification() == "byte");
  std::string text;
  for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
  std::vector<std::int32_t> tokens{-5};
  bytes.encode(text, tokens);
  REQUIRE(tokens.size() == 257);
  CHECK(tokens[0] == -5);
  CHECK(tokens[256] == 255);
  tokens.erase(tokens.begin());
  CHECK(bytes.decode(tokens) == text);
  CHECK(bytes.bytes_of(0xe5) == 1);
  CHECK(bytes.decode({65, 256, -1, 66}) == "A\xef\xbf\xbd\xef\xbf\xbd\x42");
}

TEST_CASE("a SentencePiece model encodes and decodes") {
  const Tokenizer pieces = Tokenizer::open(model);
  CHECK(pieces.vocab_size() == 450);
  CHECK(pieces.end_of_document() == 2);
  std::vector<std::int32_t> tokens;
  pieces.encode("the licence of this program", tokens);
  CHECK(tokens.size() > 3);
  CHECK(tokens.size() < 20);
  CHECK(pieces.decode(tokens) == "the licence of this program");
  CHECK_NOTHROW(pieces.decode({-1, 450, 1 << 30}));
  // A space is a byte, also the first, which the decoder leaves out.
  std::int64_t bytes = std::ssize(pieces.decode({tokens[0]}));
  for (std::size_t i = 1; i < tokens.size(); ++i) bytes += pieces.bytes_of(tokens[i]);
  CHECK(bytes == std::ssize(std::string("the licence of this program")));
  CHECK(pieces.bytes_of(2) == 0);  // the end of a document
  const std::size_t before = tokens.size();
  pieces.encode("", tokens);
  CHECK(tokens.size() == before);
}

TEST_CASE("a tokenizer that cannot be had says why") {
  const ScratchFolder folder;
  const auto open_error = [](const std::string& what) {
    return error_of([&] { Tokenizer::open(what); });
  };
  CHECK(missing_in(open_error("bpe"),
                   {"2 unknown tokenizer \"bpe\"", "byte, sentencepiece:MODEL or hf:DIR"}) == "");
  CHECK(missing_in(open_error("hf:"), {"2 ", "names no model: hf:DIR"}) == "");
  CHECK(missing_in(open_error("sentencepiece:"), {"2 ", "names no model"}) == "");
  CHECK(missing_in(open_error("sentencepiece:" + (folder / "x.model").string()),
                   {"66 ", "x.model"}) == "");
  const auto empty = folder.write("e.model", "");
  CHECK(missing_in(open_error("sentencepiece:" + empty.string()),
                   {"65 ", "e.model: not a SentencePiece model"}) == "");
  const auto garbage = folder.write("g.model", "\xff\xfe this is not a protobuf message");
  CHECK(missing_in(open_error("sentencepiece:" + garbage.string()),
                   {"65 ", "g.model: not a SentencePiece model"}) == "");
}
