#include "data/build.h"

#include <sys/stat.h>

#include "catch.h"
#include "data/token_file.h"
#include "scratch_folder.h"
#include "thorough.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

const std::string small_model = "sentencepiece:" TRAINCTL_TEST_DIR "/small.model";

BuildResult build(const ScratchFolder& folder, std::vector<std::filesystem::path> inputs,
                  const std::string& tokenizer = "byte", int threads = 2) {
  BuildOptions options;
  options.inputs = std::move(inputs);
  options.output = folder / "out";
  options.threads = threads;
  return build_token_file(options, Tokenizer::open(tokenizer));
}

std::string build_error(const ScratchFolder& folder, std::vector<std::filesystem::path> inputs) {
  return error_of([&] { build(folder, std::move(inputs)); });
}

/// Documents of the built file as text.
std::vector<std::string> documents_of(const ScratchFolder& folder,
                                      const std::string& tokenizer = "byte") {
  const TokenFile file = TokenFile::open(folder / "out");
  const Tokenizer decoder = Tokenizer::open(tokenizer);
  std::vector<std::string> documents;
  for (std::int64_t i = 0; i < file.documents(); ++i) {
    const std::int64_t first = file.document_start(i);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.document_start(i + 1) - first));
    file.read(first, tokens);
    documents.push_back(decoder.decode(tokens));
  }
  return documents;
}

std::string long_text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += "line " + std::to_string(i * 7919) + " of the text\n";
  return text;
}

/// All chunks that the reader makes of one file.
std::vector<TextChunk> chunks_of(const std::filesystem::path& file) {
  TextReader reader(list_inputs({file}), 5000);
  std::vector<TextChunk> chunks;
  TextChunk chunk;
  while (reader.next(chunk)) chunks.push_back(chunk);
  return chunks;
}

}  // namespace

TEST_CASE("a text file becomes one document") {
  const ScratchFolder folder;
  const auto result = build(folder, {folder.write("a.txt", "hello\n\xc3\xa9")});
  CHECK(result.documents == 1);
  CHECK(result.tokens == 8);
  CHECK(result.input_bytes == 8);
  CHECK(result.token_bytes == 2);
  CHECK(documents_of(folder) == std::vector<std::string>{"hello\n\xc3\xa9"});
  CHECK(folder.names() == std::vector<std::string>{"a.txt", "out.bin", "out.idx"});
}

TEST_CASE("a folder is walked in name order; links, binaries and empty files are left out") {
  const ScratchFolder folder;
  folder.write("in/b.txt", "second");
  folder.write("in/a/z.txt", "first");
  folder.write("in/c/1.txt", "third");
  folder.write("in/c/2.txt", "");
  folder.write("in/c/3.bin", std::string("ab\0c", 4));
  std::filesystem::create_symlink(folder / "in/b.txt", folder / "in/c/4.txt");
  std::filesystem::create_directory_symlink(folder / "in/a", folder / "in/d");
  REQUIRE(::mkfifo((folder / "in/e").c_str(), 0600) == 0);
  build(folder, {folder / "in", folder / "in/c/4.txt"});
  CHECK(documents_of(folder) == std::vector<std::string>{"first", "second", "third", "second"});
}

TEST_CASE("each line of a .jsonl is a document") {
  const ScratchFolder folder;
  const auto result =
      build(folder,
            {folder.write("a.jsonl",
                          "{\"id\": 1, \"text\": \"one \\u00e9\", \"more\": {\"text\": 5}}\n"
                          "\n"
                          "{\"text\": \"first\", \"a\": [1, {\"b\": null}], \"text\": \"two\"}\r\n"
                          "{\"text\": \"\"}\n"
                          "{\"text\": \"three\"}")});
  CHECK(result.documents == 3);
  CHECK(documents_of(folder) == std::vector<std::string>{"one \xc3\xa9", "two", "three"});
}

TEST_CASE("another key can be chosen") {
  const ScratchFolder folder;
  BuildOptions options;
  options.inputs = {folder.write("a.jsonl", "{\"text\": \"no\", \"content\": \"yes\"}\n")};
  options.output = folder / "out";
  options.json_key = "content";
  build_token_file(options, Tokenizer::open("byte"));
  CHECK(documents_of(folder) == std::vector<std::string>{"yes"});
}

TEST_CASE("a bad line of JSON is named by file and line and leaves nothing") {
  const ScratchFolder folder;
  const std::string good = "{\"text\": \"fine\"}\n";
  const auto with = [&](const std::string& line) {
    const auto file = folder.write("a.jsonl", good + "\n" + line + "\n" + good);
    const std::string error = build_error(folder, {file});
    CHECK(folder.names() == std::vector<std::string>{"a.jsonl"});
    return missing_in(error, {"65 ", "a.jsonl:3: "}).empty() ? error : "wrong place: " + error;
  };
  CHECK(missing_in(with("{\"text\": \"fi"), {"not valid JSON at column"}) == "");
  CHECK(missing_in(with("{\"text\": \"x\"} y"), {"not valid JSON at column 15"}) == "");
  CHECK(missing_in(with("plain"), {"not valid JSON at column 1"}) == "");
  CHECK(missing_in(with("{\"text\": \"\xff\"}"), {"ill-formed UTF-8"}) == "");
  CHECK(missing_in(with("[\"text\"]"), {"expected a JSON object, found an array"}) == "");
  CHECK(missing_in(with("3"), {"expected a JSON object, found a number"}) == "");
  CHECK(missing_in(with("{\"body\": \"x\"}"), {"the object has no key \"text\""}) == "");
  CHECK(missing_in(with("{\"a\": {\"text\": \"x\"}}"), {"has no key"}) == "");
  CHECK(missing_in(with("{\"text\": 5}"), {"\"text\" is a number, not a string"}) == "");
  CHECK(missing_in(with("{\"text\": [\"x\"]}"), {"\"text\" is an array"}) == "");
  CHECK(missing_in(with("{\"text\": null}"), {"\"text\" is null"}) == "");
}

TEST_CASE("line numbers count across chunks, and the first bad line is the one reported") {
  const ScratchFolder folder;
  std::string text;
  for (int i = 1; i <= 60000; ++i) {
    text += i == 50001 || i == 59000 ? "{}\n" : "{\"text\": \"some words here\"}\n";
  }
  const auto file = folder.write("a.jsonl", text);
  const std::string error = error_of([&] { build(folder, {file}, "byte", 4); });
  CHECK(missing_in(error, {"a.jsonl:50001: the object has no key"}) == "");
}

TEST_CASE("deep nesting in JSON does no harm") {
  const ScratchFolder folder;
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  build(folder, {folder.write("a.jsonl", "{\"a\": " + deep + ", \"text\": \"ok\"}")});
  CHECK(documents_of(folder) == std::vector<std::string>{"ok"});
}

TEST_CASE("bad inputs are errors that name them and leave nothing") {
  const ScratchFolder folder;
  CHECK(missing_in(build_error(folder, {folder / "none"}), {"66 ", "none", "No such file"}) == "");
  CHECK(missing_in(build_error(folder, {folder.write("e", "")}), {"65 no text in ", "/e"}) == "");
  const auto binary = folder.write("b", std::string("abc\0", 4));
  CHECK(missing_in(build_error(folder, {binary}), {"65 ", "/b: not text: offset 3", "NUL"}) == "");
  CHECK(folder.names() == std::vector<std::string>{"b", "e"});
}

TEST_CASE("the number of threads does not change a byte") {
  const ScratchFolder folder;
  folder.write("in/a.txt", long_text(40000));
  folder.write("in/b.txt", "short");
  std::string lines;
  const int documents = brief() ? 4000 : 20000;
  for (int i = 0; i < documents; ++i) {
    lines += "{\"text\": \"document " + std::to_string(i * 31) + "\"}\n";
  }
  folder.write("in/c.jsonl", lines);
  const std::string hf = "hf:" TRAINCTL_SOURCE_DIR "/tests/reference/tokenizers/llama3";
  const std::string tokenizer = GENERATE_COPY(std::string("byte"), small_model, hf);
  build(folder, {folder / "in"}, tokenizer, 1);
  const std::string bin = bytes_of(folder / "out.bin");
  const std::string idx = bytes_of(folder / "out.idx");
  const auto result = build(folder, {folder / "in"}, tokenizer, 4);
  CHECK(result.documents == documents + 2);
  CHECK(bytes_of(folder / "out.bin") == bin);
  CHECK(bytes_of(folder / "out.idx") == idx);
}

TEST_CASE("documents end with the tokenizer's end token unless that is not wanted") {
  const ScratchFolder folder;
  const auto file = folder.write("a.jsonl", "{\"text\": \"the\"}\n{\"text\": \"the\"}\n");
  const auto with = build(folder, {file}, small_model);
  const TokenFile tokens = TokenFile::open(folder / "out");
  std::vector<std::int32_t> last(1);
  tokens.read(tokens.document_start(1) - 1, last);
  CHECK(last[0] == Tokenizer::open(small_model).end_of_document());
  BuildOptions options;
  options.inputs = {file};
  options.output = folder / "out";
  options.append_end_of_document = false;
  const auto without = build_token_file(options, Tokenizer::open(small_model));
  CHECK(with.tokens == without.tokens + 2);
}

TEST_CASE("progress counts the input's bytes") {
  const ScratchFolder folder;
  const std::string text = long_text(30000);
  BuildOptions options;
  options.inputs = {folder.write("a.txt", text)};
  options.output = folder / "out";
  std::vector<std::int64_t> seen;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    CHECK(total == static_cast<std::int64_t>(text.size()));
    seen.push_back(done);
  };
  build_token_file(options, Tokenizer::open("byte"));
  CHECK(seen.size() >= 2);
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  CHECK(seen.back() == static_cast<std::int64_t>(text.size()));
}

TEST_CASE("a text in chunks has the tokens of the whole text for the known tokenizers") {
  const ScratchFolder folder;
  const std::string name = GENERATE("gpt2", "llama3", "qwen2");
  const std::string tokenizer = "hf:" TRAINCTL_SOURCE_DIR "/tests/reference/tokenizers/" + name;
  std::string text;
  for (int i = 0; i < 30000; ++i) {
    text += i % 3 == 0 ? "They'll see\n\n\n" : i % 3 == 1 ? "  it, or\r\nnot!\n \n" : "été.\n\n";
  }
  folder.write("in/a.txt", text);
  CHECK(build(folder, {folder / "in"}, tokenizer).documents == 1);
  const Tokenizer whole = Tokenizer::open(tokenizer);
  std::vector<std::int32_t> expected = whole.before_document();
  whole.encode(text, expected);
  expected.push_back(whole.end_of_document());
  const TokenFile file = TokenFile::open(folder / "out");
  REQUIRE(file.tokens() == std::ssize(expected));
  std::vector<std::int32_t> tokens(expected.size());
  file.read(0, tokens);
  CHECK(tokens == expected);
}

TEST_CASE("each document has the begin and end tokens of its tokenizer") {
  const ScratchFolder folder;
  const std::string tokenizer = "hf:" TRAINCTL_SOURCE_DIR "/tests/reference/tokenizers/llama3";
  folder.write("in/a.jsonl", "{\"text\": \"\"}\n{\"text\": \"a\"}\n\n{\"text\": \"b\"}\n");
  const auto result = build(folder, {folder / "in"}, tokenizer);
  CHECK(result.documents == 2);
  const TokenFile file = TokenFile::open(folder / "out");
  REQUIRE(file.tokens() == 6);
  std::vector<std::int32_t> tokens(6);
  file.read(0, tokens);
  CHECK(Tokenizer::open(tokenizer).decode(tokens) ==
        "<|begin_of_text|>a<|end_of_text|><|begin_of_text|>b<|end_of_text|>");
}

TEST_CASE("chunks end at newlines or between characters and lose nothing") {
  const ScratchFolder folder;
  std::string text = long_text(1000);
  SECTION("lines") {}
  SECTION("lines that end with a full stop") {
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) {
      text.insert(at, ".");
    }
  }
  SECTION("no newline, three-byte characters") {
    text.clear();
    for (int i = 0; i < 10000; ++i) text += "\xe2\x82\xac";
    text.insert(0, "x");
  }
  SECTION("no characters at all") { text.assign(30000, '\x80'); }
  SECTION("exactly one chunk") { text.assign(5000, 'a'); }
  const auto chunks = chunks_of(folder.write("a.txt", text));
  REQUIRE(chunks.size() >= 2);
  std::string joined;
  for (const TextChunk& chunk : chunks) {
    joined += chunk.bytes;
    CHECK(chunk.begins_document == (&chunk == &chunks.front()));
    CHECK(chunk.ends_document == (&chunk == &chunks.back()));
  }
  CHECK(joined == text);
  const bool has_stops = text.find(".\n") != std::string::npos;
  if (text[0] == 'l') CHECK((chunks[0].bytes.back() == '\n') == has_stops);
  if (text[0] == 'l') CHECK((chunks[1].bytes.front() == '\n') != has_stops);
  if (text[0] == 'x') CHECK(chunks[0].bytes.size() % 3 == 1);
}

TEST_CASE("a line of JSON is never cut") {
  const ScratchFolder folder;
  const std::string line = "{\"text\": \"" + std::string(50000, 'a') + "\"}\n";
  const auto chunks = chunks_of(folder.write("a.jsonl", line + line + "{}\n"));
  REQUIRE(chunks.size() >= 2);
  CHECK(chunks[0].bytes == line);
  CHECK(chunks[1].first_line == 2);
}
