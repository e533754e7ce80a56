#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "any_text.h"
#include "catch.h"
#include "thorough.h"

namespace trainctl::test {
namespace {

std::vector<std::string> seeds() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(TRAINCTL_TEST_DIR "/seeds")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> texts;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  texts.push_back(texts.front() + std::string("\0train.steps=5\0data.train=[a, {path: b}]", 40));
  const std::string parts[] = {
      "include: [a, b]\ntrain: {steps: !override ${A}}\n",
      "@a\nmodel: {preset: gpt2-124m}\ntrain:\n  steps: 3\n  global_batch_size: ${B:-4}\n",
      "@b\ninclude: c\ndata: {train: \"${TEXT}\"}\n",
      "@c\nlr_schedule: {max_lr: 1.0e-3}\nparallel_config: {model_parallel: 2}\n",
      "parallel.model_parallel=4"};
  std::string composed;
  for (const std::string& part : parts) {
    composed += (composed.empty() ? std::string() : std::string(1, '\0')) + part;
  }
  texts.push_back(composed);
  return texts;
}

constexpr std::array words{"<<: ",
                           "*a",
                           "&a ",
                           "~",
                           "\"",
                           "'",
                           "[",
                           "]",
                           "{",
                           "}",
                           ": ",
                           ":",
                           "\n",
                           "\n  ",
                           "- ",
                           "? ",
                           "# ",
                           "\t",
                           "---\n",
                           "...\n",
                           "!!str ",
                           "| \n",
                           "> \n",
                           "\\",
                           "1e999",
                           "-0",
                           "010",
                           "true",
                           "null",
                           "0x1F",
                           "\xff",
                           "\xc3\xa9",
                           "steps",
                           "train",
                           "model",
                           "preset: ",
                           "gpt2-124m",
                           "moe",
                           "\r\n",
                           ",",
                           "parallel_config:",
                           "recompute: ",
                           "((1, 2),)",
                           "[3, 1]",
                           "model_parallel: 2",
                           "full_batch: ",
                           "seed: 1\n",
                           "include: b\n",
                           "!override ",
                           "${A}",
                           "${A:-",
                           "${EMPTY}",
                           "${NONE}",
                           "${TEXT}",
                           "$$",
                           " # note\n",
                           "steps: ${A}\n"};

/// One small change, as a pure function of the generator's state.
std::string mutate(std::string text, const std::vector<std::string>& others, std::mt19937& random) {
  const auto below = [&](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  const std::size_t at = below(text.size() + 1);
  const std::size_t length = below(20);
  switch (below(5)) {
    case 0: return text.insert(at, words[below(words.size())]);
    case 1: return text.erase(at, length);
    case 2: return text.insert(at, text.substr(below(text.size() + 1), length));
    case 3:
      if (at < text.size()) text[at] = static_cast<char>(below(256));
      return text;
    default: {
      const std::string& other = others[below(others.size())];
      return text.substr(0, at) + other.substr(below(other.size() + 1));
    }
  }
}

}  // namespace

TEST_CASE("any text gets an answer: unchanged seeds") {
  for (const std::string& seed : seeds()) CHECK(broken_promise(seed) == "");
}

TEST_CASE("any text gets an answer: changed seeds") {
  const std::vector<std::string> texts = seeds();
  std::mt19937 random(20240607);
  std::string text;
  for (int round = 0; round < tries(400, 2000); ++round) {
    // Every few rounds from a seed again, so that many inputs stay nearly valid.
    if (round % 4 == 0) text = texts[random() % texts.size()];
    text = mutate(std::move(text), texts, random);
    const std::string wrong = broken_promise(text);
    if (!wrong.empty()) {
      CAPTURE(round, text);
      FAIL(wrong);
    }
  }
}

}  // namespace trainctl::test
