// Documents that are refused before any key is looked at, and the YAML constructs that hide
// mistakes.
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "catch.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

struct RefusedText {
  std::string text;
  std::string code;
  int line;
  int column;
};

std::string repeat(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

}  // namespace

TEST_CASE("a configuration without mistakes has none") {
  const ReadResult result = read(good_text);
  CHECK(found(result).empty());
  CHECK(result.config.model.num_layers == 2);
  CHECK(result.config.data.train == std::vector<DataSource>{{"a.txt", 1.0}});
  CHECK(result.config.lr_schedule.max_lr == 1e-3);
}

TEST_CASE("syntax errors are reported alone, where their cause is") {
  const std::vector<RefusedText> cases{
      {"", "empty-file", 0, 0},
      {"# only a comment\n", "empty-file", 0, 0},
      {"---\n", "empty-file", 0, 0},
      {"~\n", "empty-file", 0, 0},
      {"lr:3e-4\n", "wrong-type", 1, 1},
      {"- a\n", "wrong-type", 1, 1},
      {"model:\n\tnum_layers: 2\n", "tab", 2, 1},
      {"model: {num_layers: 2}\nb:2\ntrain: {steps: 1}\n", "syntax", 2, 1},
      {"output: {dir: x}\nlog: \"x\n", "unterminated-quote", 2, 6},
      {"log: \"x", "unterminated-quote", 1, 6},
      {"log: 'x", "unterminated-quote", 1, 6},
      {"log: &a \"x\\\"", "unterminated-quote", 1, 9},
      {"model: {}\n---\ndata: {}\n", "more-documents", 2, 1},
      {"- a\nmore: 1\n", "more-documents", 2, 1},
      {"model: {}\n...\nafter\n", "more-documents", 3, 1},
      {"model: &m {x: *m}\n", "recursive-alias", 1, 15},
      {"model: *nowhere\n", "syntax", 1, 8},
      {"model: {x: 1\n", "syntax", 1, 12},
      {"model: [1, 2\n", "syntax", 1, 12},
      {"a: 1\n  b: 2\n", "syntax", 2, 4},
      {"? [a]\n: 1\n", "bad-key", 1, 3},
      {": 1\n", "bad-key", 1, 1},
      {"\"\": 1\n", "bad-key", 1, 1},
      {"model: \xff\n", "encoding", 1, 8},
      {"é: \xc0\xaf\n", "encoding", 1, 4},
      {"\xff\xfem\0o\0", "encoding", 1, 1},
      {std::string("m\0o", 3), "control-character", 1, 2},
      {"log: \xc2\x9b\n", "control-character", 1, 6},
      {"model: \x04\n", "control-character", 1, 8},
      {std::string((1 << 20) + 1, '#'), "too-large", 0, 0},
  };
  for (const RefusedText& refused : cases) {
    CAPTURE(refused.text.substr(0, 60));
    const Diagnostic diagnostic = only(read(refused.text));
    CHECK(diagnostic.code == refused.code);
    CHECK(diagnostic.place.line == refused.line);
    CHECK(diagnostic.place.column == refused.column);
  }
}

TEST_CASE("a line without a colon is the one that is shown") {
  const auto line_3 = [](const std::string& text) {
    return only(read("model:\n  family: llama\n  " + text + "\n  hidden_size: 64\n"));
  };
  for (const char* text : {"num_layers 4", "num_layers = 4", "num_layers\xEF\xBC\x9A 4"}) {
    CAPTURE(text);
    const Diagnostic found = line_3(text);
    CHECK(found.code == "syntax");
    CHECK(found.place.line == 3);
    CHECK(found.help == "write `num_layers: 4`");
  }
  CHECK(contains(line_3("num_layers\xEF\xBC\x9A 4").message, "U+FF1A"));
}

TEST_CASE("a space that is none is named, and not in the help") {
  const ReadResult result = read(
      "model:\n  family: llama\n  num_layers:\xC2\xA0"
      "4\n  hidden_size: 64\n");
  const Diagnostic& first = result.diagnostics.list().front();
  CHECK(contains(first.message, "U+00A0"));
  CHECK(first.help == "write `num_layers: 4`");
}

TEST_CASE("a missing space after a colon is named as such") {
  CHECK(only(read("model: {}\n  b:2\nc: 3\n")).help == "write `b: 2`");
  CHECK(contains(only(read("lr:3e-4\n")).help, "put a space after the colon"));
  const auto messages = found(read(good_text + "log: {every:5}\n"));
  REQUIRE(messages == std::vector<std::string>{"unknown-key log.every:5 5:7"});
  CHECK(only(read(good_text + "log: {every:5}\n")).help == "write `every: 5`");
  CHECK(only(read(good_text + "log:\n  level: info\n  every:5\n")).help == "write `every: 5`");
}

TEST_CASE("nesting is bounded without a stack") {
  for (const char* open : {"[", "{a: ", "- ", "? ", "a: ["}) {
    CAPTURE(open);
    const Diagnostic diagnostic = only(read("x: " + repeat(open, 20'000)));
    CAPTURE(diagnostic.code, diagnostic.message);
    CHECK((diagnostic.code == "too-deep" || diagnostic.code == "syntax" ||
           diagnostic.code == "bad-key"));
  }
  std::string indented;
  for (int i = 0; i < 1'000; ++i)
    indented += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  CHECK(only(read(indented)).code == "too-deep");
  CHECK(only(read("x: " + repeat("[", 20'000) + repeat("]", 20'000))).code == "too-deep");
}

TEST_CASE("aliases cannot blow the document up") {
  std::string bomb = "a0: &a0 {x: 1}\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" +
            repeat(before + ", ", 10) + "]\n";
  }
  CHECK(read(bomb).diagnostics.has_errors());
  std::string merges = "a: &a {" + repeat("x", 1) + ": 1";
  for (int i = 0; i < 1'000; ++i) merges += ", k" + std::to_string(i) + ": 1";
  merges += "}\nb: {<<: [" + repeat("*a, ", 1'000) + "]}\n";
  CHECK(only(read(merges)).code == "too-large");
  CHECK(only(read("a: [" + repeat("1,", 150'000) + "]")).code == "too-large");
}

TEST_CASE("duplicate keys are reported with both lines, and the rest is still read") {
  const ReadResult result = read(good_text + "log: {every: 5,\n  every: 6, evry: 7}\n");
  CHECK(found(result) ==
        std::vector<std::string>{"duplicate-key log.every 6:3", "unknown-key log.evry 6:13"});
  CHECK(contains(result.diagnostics.list()[0].message, "line 5"));
  CHECK(contains(result.diagnostics.list()[0].message, "line 6"));
  CHECK(found(read(good_text + "train: {}\n")) ==
        std::vector<std::string>{"duplicate-key train 5:1"});
  CHECK(found(read(good_text + "log: {\"every\": 5, every: 5}\n")) ==
        std::vector<std::string>{"duplicate-key log.every 5:19"});
}

TEST_CASE("merge keys are applied: own keys first, then the earlier source") {
  const std::string text = good_model + good_data + good_lr +
                           "log: &l {every: 3, level: debug}\n"
                           "train: &t {steps: 10, global_batch_size: 4, seed: 1}\n";
  CHECK(found(read(text)).empty());
  const ReadResult merged =
      read(good_model + good_data + good_lr +
           "train: {seed: 5, <<: [{steps: 7}, {steps: 8, seed: 9, global_batch_size: 2}]}\n");
  CHECK(found(merged).empty());
  CHECK(merged.config.train.steps == 7);
  CHECK(merged.config.train.seed == 5);
  CHECK(merged.config.train.global_batch_size == 2);
  CHECK(found(read(good_text + "log: {<<: 5}\n")) == std::vector<std::string>{"merge-key log 5:7"});
  CHECK(found(read(good_text + "log: {<<: {}, <<: {}}\n")) ==
        std::vector<std::string>{"duplicate-key log.<< 5:15"});
  CHECK(found(read(good_text + "log: {\"<<\": {}}\n")) ==
        std::vector<std::string>{"unknown-key log.<< 5:7"});
}

TEST_CASE("merged values keep their own position, through merges of merges") {
  const ReadResult result = read(good_model + good_data + good_lr +
                                 "train: {<<: [&a {<<: &b {steps: 7, seed: 3}, seed: 4}, "
                                 "{global_batch_size: 8, steps: 9}], <<x: 1}\n"
                                 "log: {every: 2}\n");
  CHECK(found(result) == std::vector<std::string>{"unknown-key train.<<x 4:91"});
  CHECK(result.config.train.steps == 7);
  CHECK(result.config.train.seed == 4);
  CHECK(result.sources.find("train.steps").to_string() == "t.yaml:4:33");
  CHECK(result.sources.find("train.global_batch_size").to_string() == "t.yaml:4:76");
  CHECK(result.replaced.at("train.steps").front().place.to_string() == "t.yaml:4:86");
  CHECK(result.replaced.at("train.seed").front().text == "3");
  const ReadResult aliased = read(good_model + good_data + good_lr +
                                  "train:\n  &t\n  <<: {steps: 5}\n  global_batch_size: 4\n"
                                  "log: {every: 2}\n");
  CHECK(found(aliased).empty());
  CHECK(aliased.config.train.steps == 5);
}

TEST_CASE("aliases stand for their value, with its position") {
  const ReadResult result = read(good_model + good_data + good_lr +
                                 "train: {steps: &n 10, global_batch_size: *n}\n"
                                 "log: {every: *n}\n");
  CHECK(found(result).empty());
  CHECK(result.config.log.every == 10);
  CHECK(found(read(good_text + "output: {dir: &d x}\nlog: {every: *d}\n")) ==
        std::vector<std::string>{"wrong-type log.every 5:18"});
}

TEST_CASE("an empty value has the place of its key, not of what follows") {
  CHECK(found(read(good_text + "log:\n  every:\n  never: 1\n")) ==
        std::vector<std::string>{"wrong-type log.every 6:3", "unknown-key log.never 7:3"});
  CHECK(found(read(good_text + "log:\n  every: null\n")) ==
        std::vector<std::string>{"wrong-type log.every 6:10"});
  CHECK(found(read(good_text + "log: {every: !x}\n")) ==
        std::vector<std::string>{"tag log.every 5:14", "wrong-type log.every 5:14"});
}

TEST_CASE("tags are refused, line ends and byte order marks are not") {
  CHECK(found(read(good_text + "log: {every: !!int 5}\n")) ==
        std::vector<std::string>{"tag log.every 5:14"});
  std::string dos = "\xEF\xBB\xBF";
  for (char c : good_text) dos += c == '\n' ? std::string("\r\n") : std::string(1, c);
  CHECK(found(read(dos)).empty());
  CHECK(found(read(dos + "log: 5\r\n")) == std::vector<std::string>{"wrong-type log 5:6"});
  CHECK(found(read("---\n" + good_text + "...\n")).empty());
}

TEST_CASE("an unreadable file is not an error of the configuration") {
  const auto folder = std::filesystem::temp_directory_path();
  for (const auto& file : {folder / "trainctl-no-such-file.yaml", folder}) {
    try {
      read_config(file, {});
      FAIL("no error for " << file);
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::missing_input);
      CHECK(contains(error.what(), file.string()));
    }
  }
}

TEST_CASE("a file is read with its own name in the messages") {
  const auto file = std::filesystem::temp_directory_path() / "trainctl-config-test.yaml";
  std::ofstream(file) << good_text << "log: {evry: 5}\n";
  const ReadResult result = read_config(file, {});
  std::ofstream(file) << std::string((1 << 20) + 1, ' ');
  CHECK(only(read_config(file, {})).code == "too-large");
  std::filesystem::remove(file);
  CHECK(only(result).place.to_string() == file.string() + ":5:7");
}

TEST_CASE("a long list of errors is cut short, with a note") {
  std::string text = good_text;
  for (int i = 0; i < 500; ++i) text += "x" + std::to_string(i) + ": 1\n";
  const ReadResult result = read(text);
  CHECK(result.diagnostics.list().size() == 201);
  CHECK(result.diagnostics.list().back().message == "300 more findings are not shown");
}

}  // namespace trainctl::test
