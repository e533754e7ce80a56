// data build and data inspect, from text to what the file holds.
#include <nlohmann/json.hpp>

#include "catch.h"
#include "process.h"

namespace {

nlohmann::json inspect(const std::string& path, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"data", "inspect", path, "--format", "json"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = trainctl(words);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return nlohmann::json::parse(outcome.out);
}

}  // namespace

TEST_CASE("text becomes tokens that inspect shows again") {
  const TempDir dir;
  const std::string one = dir.write("one.txt", "hello world");
  const std::string two = dir.write("two.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"d\\u00e9\"}\n");
  const std::string prefix = dir / "tokens";
  const Outcome built = trainctl({"data", "build", "--input", one, two, "--output", prefix});
  INFO(built.err);
  REQUIRE(built.exit_code == 0);
  CHECK(contains(built.out, "3 documents, 17 tokens"));

  const auto about = inspect(prefix, {"--tokenizer", "byte"});
  CHECK(about["format"] == "megatron");
  CHECK(about["documents"] == 3);
  CHECK(about["tokens"] == 17);
  CHECK(about["min_token"] == 32);
  CHECK(about["max_token"] == 0xc3);
  CHECK(about["first_text"].get<std::string>().starts_with("hello worldabcd"));

  const Outcome text = trainctl({"data", "inspect", prefix});
  CHECK(text.exit_code == 0);
  CHECK(contains(text.out, "megatron"));
  CHECK_FALSE(contains(text.out, "first text"));
}

TEST_CASE("the number of threads changes nothing") {
  const TempDir dir;
  const std::vector<std::string> base = {"data", "build", "--input", "/usr/share/common-licenses"};
  for (const char* threads : {"1", "3"}) {
    std::vector<std::string> words = base;
    words.insert(words.end(), {"--threads", threads, "--output", dir / threads});
    REQUIRE(trainctl(words).exit_code == 0);
  }
  CHECK(read_file(dir / "1.bin") == read_file(dir / "3.bin"));
  CHECK(read_file(dir / "1.idx") == read_file(dir / "3.idx"));
  CHECK(read_file(dir / "1.bin").size() > 100000);
}

TEST_CASE("input that is not there, or not what its name says") {
  const TempDir dir;
  const Outcome absent =
      trainctl({"data", "build", "--input", dir / "absent.txt", "--output", dir / "x"});
  CHECK(absent.exit_code == exits::missing_input);
  CHECK(contains(absent.err, "absent.txt"));

  const std::string broken = dir.write("broken.jsonl", "{\"text\": \"a\"}\n{\"text\": \n");
  const Outcome json = trainctl({"data", "build", "--input", broken, "--output", dir / "x"});
  CHECK(json.exit_code == exits::bad_data);
  CHECK(contains(json.err, "broken.jsonl:2"));
  CHECK_FALSE(std::filesystem::exists(dir / "x.bin"));
  CHECK_FALSE(std::filesystem::exists(dir / "x.idx"));

  const std::string text = dir.write("a.txt", "abc");
  CHECK(trainctl({"data", "build", "--input", text, "--output", text + "/x"}).exit_code == 74);
  const Outcome tokenizer =
      trainctl({"data", "build", "--input", text, "--output", dir / "x", "--tokenizer", "bytes"});
  CHECK(tokenizer.exit_code == 2);
  CHECK(contains(tokenizer.err, "bytes"));
  CHECK(trainctl({"data", "build", "--input", text, "--output", dir / "x", "--tokenizer",
                  "sentencepiece:" + (dir / "none.model")})
            .exit_code == exits::missing_input);
}

TEST_CASE("text that is not UTF-8 gives one warning with a tokenizer of Hugging Face") {
  const TempDir dir;
  const std::string text = dir.write("a.txt", "Latin-1: caf\xe9\nna\xefve\n");
  const std::string tokenizer = "hf:" TRAINCTL_SOURCE_DIR "/tests/reference/tokenizers/gpt2";
  const Outcome built =
      trainctl({"data", "build", "--input", text, "--output", dir / "x", "--tokenizer", tokenizer});
  INFO(built.err);
  CHECK(built.exit_code == 0);
  const std::string warning = "warning: text that is not valid UTF-8";
  const std::size_t first = built.err.find(warning);
  REQUIRE(first != std::string::npos);
  CHECK(built.err.find(warning, first + 1) == std::string::npos);
  const auto about = inspect(dir / "x", {"--tokenizer", tokenizer});
  CHECK(about["first_text"] == "Latin-1: caf\xef\xbf\xbd\nna\xef\xbf\xbdve\n<|endoftext|>");
}

TEST_CASE("token files that are damaged") {
  const TempDir dir;
  CHECK(trainctl({"data", "inspect", dir / "absent"}).exit_code == exits::missing_input);

  const std::string text = dir.write("a.txt", std::string(1000, 'a'));
  REQUIRE(trainctl({"data", "build", "--input", text, "--output", dir / "x"}).exit_code == 0);
  std::filesystem::resize_file(dir / "x.bin", 500);
  const Outcome truncated = trainctl({"data", "inspect", dir / "x"});
  CHECK(truncated.exit_code == exits::bad_data);
  CHECK(contains(truncated.err, "x.bin"));

  REQUIRE(trainctl({"data", "build", "--input", text, "--output", dir / "y"}).exit_code == 0);
  std::string index = read_file(dir / "y.idx");
  index[0] = 'X';
  dir.write("y.idx", index);
  const Outcome magic = trainctl({"data", "inspect", dir / "y"});
  CHECK(magic.exit_code == exits::bad_data);
  CHECK(contains(magic.err, "y.idx"));

  // nanoGPT's files have no header: ids of 16 bits, here one past what bytes allow.
  dir.write("n.bin", std::string("\x01\x00\x00\x01", 4));
  const Outcome range = trainctl({"data", "inspect", dir / "n.bin", "--tokenizer", "byte"});
  CHECK(range.exit_code == exits::bad_data);
  CHECK(contains(range.err, "256"));
}

TEST_CASE("a file in nanoGPT's format") {
  const TempDir dir;
  dir.write("n.bin", std::string("h\0i\0", 4));
  const auto about = inspect(dir / "n.bin", {"--tokenizer", "byte"});
  CHECK(about["format"] == "nanogpt");
  CHECK(about["tokens"] == 2);
  CHECK(about["first_text"] == "hi");
}

TEST_CASE("data build makes folders, takes the files' names and replaces nothing unasked") {
  const TempDir dir;
  const std::string text = dir.write("a.txt", "abc");
  const std::string prefix = dir / "new/folder/x";
  const Outcome built =
      trainctl({"data", "build", "--input", text, "--output", prefix + ".bin", "--quiet"});
  INFO(built.err);
  CHECK(built.exit_code == 0);
  CHECK(built.err.empty());
  CHECK(inspect(prefix)["tokens"] == 3);
  const std::string longer = dir.write("b.txt", "abcdef");
  const Outcome again = trainctl({"data", "build", "--input", longer, "--output", prefix});
  CHECK(again.exit_code == 2);
  CHECK(contains(again.err, "x.bin is there already; --force replaces it"));
  CHECK(inspect(prefix)["tokens"] == 3);
  CHECK(trainctl({"data", "build", "--input", longer, "--output", prefix, "--force"}).exit_code ==
        0);
  CHECK(inspect(prefix)["tokens"] == 6);
}

TEST_CASE("documents are separated where the tokenizer can") {
  const TempDir dir;
  const std::string text = dir.write("a.jsonl", "{\"body\": \"a\"}\n{\"body\": \"b\"}\n");
  const std::string gpt2 = "hf:" TRAINCTL_SOURCE_DIR "/tests/reference/tokenizers/gpt2";
  const auto build = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"data",     "build",   "--input", text,
                                      "--output", dir / "x", "--force"};
    words.insert(words.end(), more.begin(), more.end());
    return trainctl(words);
  };
  const Outcome other = build({});
  CHECK(other.exit_code == exits::bad_data);
  CHECK(contains(other.err, "no key \"text\"; trainctl data build --json-key KEY"));
  const Outcome apart = build({"--json-key", "body", "--tokenizer", gpt2});
  CHECK(contains(apart.out, "2 documents, 4 tokens"));
  CHECK(contains(apart.out, "each document ends with token "));
  const Outcome joined = build({"--json-key", "body", "--tokenizer", gpt2, "--no-append-eod"});
  CHECK(contains(joined.out, "2 documents, 2 tokens"));
  CHECK(contains(joined.out, "nothing separates documents"));
  const Outcome bytes = build({"--json-key", "body", "--append-eod"});
  CHECK(bytes.exit_code == 2);
  CHECK(contains(bytes.err, "byte has no end-of-document token"));
}

TEST_CASE("inspect says what anything is") {
  const TempDir dir;
  dir.write("a.txt", "hello");
  dir.write("b.jsonl", "{\"text\": \"a\"}\n");
  dir.write("c.dat", std::string("\x7f"
                                 "ELF\0\0",
                                 6));
  CHECK(inspect(dir / "a.txt")["format"] == "text");
  CHECK(inspect(dir / "a.txt")["first_text"] == "hello");
  CHECK(inspect(dir / "b.jsonl")["format"] == "JSON lines");
  CHECK(inspect(dir / "c.dat")["format"] == "neither text nor a token file");
  const auto folder = inspect(dir.path().string());
  CHECK(folder["format"] == "folder of texts");
  CHECK(folder["files"] == 3);
  const auto made_folder = [&](const std::string& name, const std::vector<std::string>& files) {
    std::filesystem::create_directory(dir / name);
    for (const std::string& file : files) dir.write(name + "/" + file, "{}");
    return inspect(dir / name);
  };
  const auto run = made_folder("a run", {"config.yaml", "metrics.jsonl", "model.safetensors"});
  CHECK(run["format"] == "run of trainctl");
  CHECK(run["see"] == "trainctl watch '" + (dir / "a run") + "'");
  CHECK_FALSE(run.contains("to_tokens"));
  const auto model = made_folder("model", {"config.json", "model.safetensors"});
  CHECK(model["format"] == "Hugging Face model");
  const auto tokens = made_folder("tokens", {"b.bin", "b.idx", "notes.txt"});
  CHECK(tokens["format"] == "folder of token files");
  CHECK(tokens["see"] == "trainctl data inspect " + (dir / "tokens/b"));
  const Outcome absent = trainctl({"data", "inspect", dir / "none.txt"});
  CHECK(absent.exit_code == exits::missing_input);
  CHECK(contains(absent.err, "no text file or folder " + (dir / "none.txt")));
}
