#include <fcntl.h>
#include <sys/stat.h>

#include <thread>

#include "catch.h"
#include "data/build.h"
#include "data/token_file.h"
#include "scratch_folder.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

std::int64_t cached_tokens(const std::filesystem::path& text, const std::filesystem::path& cache,
                           const std::string& tokenizer = "byte") {
  return TokenFile::open(cached_token_file(text, Tokenizer::open(tokenizer), cache)).tokens();
}

/// An environment variable for the time of a test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    const char* old = std::getenv(name);
    had_ = old != nullptr;
    if (had_) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (had_) {
      ::setenv(name_, old_.c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }

 private:
  const char* name_;
  bool had_ = false;
  std::string old_;
};

}  // namespace

TEST_CASE("text is told from token files") {
  const ScratchFolder folder;
  CHECK(is_text_input(folder.write("a.txt", "x")));
  CHECK(is_text_input(folder.path()));
  CHECK_FALSE(is_text_input(folder / "none"));
  CHECK_FALSE(is_text_input(folder.write("t.bin", "xx")));
  CHECK_FALSE(is_text_input(folder.write("t.idx", "xx")));
  CHECK_FALSE(is_text_input(folder / "t"));
}

TEST_CASE("text is tokenised once and again when it or the tokenizer changes") {
  const ScratchFolder folder;
  const auto text = folder.write("some.txt", "hello there");
  const auto cache = folder / "cache";
  const auto bytes = Tokenizer::open("byte");
  const auto first = cached_token_file(text, bytes, cache);
  CHECK(first.parent_path().filename().string().starts_with("some-"));
  CHECK(TokenFile::open(first).tokens() == 11);
  const auto written = std::filesystem::last_write_time(first.string() + ".bin");
  CHECK(cached_token_file(text, bytes, cache) == first);
  CHECK(cached_token_file(folder / "./some.txt", bytes, cache) == first);
  CHECK(std::filesystem::last_write_time(first.string() + ".bin") == written);

  folder.write("some.txt", "hello there!");
  CHECK(cached_tokens(text, cache) == 12);
  const timespec times[2] = {{0, 0}, {0, 0}};
  REQUIRE(::utimensat(AT_FDCWD, text.c_str(), times, 0) == 0);
  CHECK(cached_token_file(text, bytes, cache) != first);
  CHECK(cached_tokens(text, cache, "sentencepiece:" TRAINCTL_TEST_DIR "/small.model") < 12);
  CHECK_FALSE(std::filesystem::exists(first.string() + ".tmp"));
}

TEST_CASE("text is tokenised again when a file of a Hugging Face tokenizer changes") {
  const ScratchFolder folder;
  const auto text = folder.write("some.txt", "hello there");
  std::filesystem::copy(TRAINCTL_SOURCE_DIR "/tests/reference/tokenizers/gpt2", folder / "gpt2");
  const std::string name = "hf:" + (folder / "gpt2").string();
  const auto cache = folder / "cache";
  const auto first = cached_token_file(text, Tokenizer::open(name), cache);
  CHECK(cached_token_file(text, Tokenizer::open(name), cache) == first);
  folder.write("gpt2/config.json", "{}");  // no end token any more
  const auto second = cached_token_file(text, Tokenizer::open(name), cache);
  CHECK(TokenFile::open(second).tokens() + 1 == TokenFile::open(first).tokens());
}

TEST_CASE("a folder's key depends on each of its files") {
  const ScratchFolder folder;
  folder.write("in/a", "one");
  const auto cache = folder / "cache";
  CHECK(cached_tokens(folder / "in", cache) == 3);
  folder.write("in/b/c", "three");
  CHECK(cached_tokens(folder / "in", cache) == 8);
}

TEST_CASE("several that ask at once get one complete file") {
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "some words ";
  const auto file = folder.write("a.txt", text);
  std::vector<std::int64_t> tokens(6, 0);
  {
    std::vector<std::jthread> threads;
    for (auto& count : tokens) {
      threads.emplace_back([&] { count = cached_tokens(file, folder / "cache"); });
    }
  }
  CHECK(tokens == std::vector<std::int64_t>(6, 1'100'000));
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "cache")) {
    folders += entry.is_directory() ? 1 : 0;
  }
  CHECK(folders == 1);
}

TEST_CASE("a text that cannot be tokenised leaves no folder") {
  const ScratchFolder folder;
  const auto cache = folder / "cache";
  CHECK(missing_in(error_of([&] { cached_tokens(folder / "none", cache); }), {"66 ", "none"}) ==
        "");
  const auto empty = folder.write("e.txt", "");
  CHECK(missing_in(error_of([&] { cached_tokens(empty, cache); }), {"65 no text"}) == "");
  for (const auto& entry : std::filesystem::directory_iterator(cache)) {
    CHECK(entry.path().extension() == ".lock");
  }
  folder.write("file", "x");
  const auto text = folder.write("a.txt", "x");
  CHECK(missing_in(error_of([&] { cached_tokens(text, folder / "file/c"); }), {"74 ", "file"}) ==
        "");
}

TEST_CASE("the user's cache folder is used unless one is given") {
  const ScratchFolder folder;
  const auto text = folder.write("a.txt", "x");
  const auto bytes = Tokenizer::open("byte");
  const Variable home("HOME", (folder / "home").string());
  {
    const Variable cache("XDG_CACHE_HOME", (folder / "xdg").string());
    CHECK(cached_token_file(text, bytes, {})
              .string()
              .starts_with((folder / "xdg/trainctl/a-").string()));
  }
  const Variable cache("XDG_CACHE_HOME", "relative/is/ignored");
  CHECK(cached_token_file(text, bytes, {})
            .string()
            .starts_with((folder / "home/.cache/trainctl/a-").string()));
  folder.write("file", "x");
  const Variable unusable("HOME", (folder / "file").string());
  const auto last = cached_token_file(text, bytes, {}).parent_path();
  CHECK(last.string().starts_with("/tmp/trainctl-"));
  std::filesystem::remove_all(last);
  std::filesystem::remove(last.string() + ".lock");
}
