// include, !override, and how files meet --set, presets and upstream spellings.
#include <filesystem>
#include <fstream>
#include <map>

#include "catch.h"
#include "config_text.h"
#include "thorough.h"

namespace trainctl::test {
namespace {

using Files = std::map<std::string, std::string>;

ReadResult read_files(const std::string& text, const Files& files,
                      const std::vector<std::string>& set = {}) {
  Surroundings around;
  around.load = [&files](const std::string& path) -> Surroundings::Loaded {
    const auto found = files.find(path);
    if (found == files.end()) return {std::nullopt, "no such file"};
    return {found->second, ""};
  };
  return read_config_text(text, "dir/t.yaml", set, around);
}

const std::string rest = good_data + good_train + good_lr;

}  // namespace

TEST_CASE("an included file gives what the file itself does not") {
  const ReadResult result = read_files(
      "include: base.yaml\ntrain: {steps: 10}\n",
      {{"dir/base.yaml", good_model + good_data + good_lr + "train: {global_batch_size: 4}\n"}});
  CHECK(found(result).empty());
  CHECK(result.complete);
  CHECK(result.config.train.steps == 10);
  CHECK(result.config.train.global_batch_size == 4);
  CHECK(result.sources.find("train.steps").to_string() == "dir/t.yaml:2:16");
  CHECK(result.sources.find("train.global_batch_size").to_string() == "dir/base.yaml:4:28");
  CHECK(result.included_by.at("dir/base.yaml").position() == "dir/t.yaml:1:10");
}

TEST_CASE("paths are relative to the file that includes, lists and nesting work") {
  const Files files{{"dir/a/model.yaml", "include: ../../b.yaml\n" + good_model},
                    {"b.yaml", good_data},
                    {"/c.yaml", good_lr}};
  const ReadResult result = read_files("include: [a/model.yaml, /c.yaml]\n" + good_train, files);
  CHECK(found(result).empty());
  CHECK(result.sources.find("data.train").file == "b.yaml");
  CHECK(result.sources.find("lr_schedule.max_lr").file == "/c.yaml");
}

TEST_CASE("a file that is included on two ways counts once") {
  const Files files{{"dir/a.yaml", "include: d.yaml\n"},
                    {"dir/b.yaml", "include: d.yaml\n"},
                    {"dir/d.yaml", good_text}};
  CHECK(found(read_files("include: [a.yaml, b.yaml]\n", files)).empty());
}

TEST_CASE("a key given in two files is an error that names both") {
  const ReadResult result =
      read_files("include: b.yaml\n" + good_model + rest, {{"dir/b.yaml", "train:\n  steps: 5\n"}});
  const Diagnostic diagnostic = only(result);
  CHECK(diagnostic.code == "given-twice");
  CHECK(diagnostic.path == "train.steps");
  CHECK(diagnostic.message == "given twice: first in dir/b.yaml:2:3, again in dir/t.yaml:4:9");
  CHECK(diagnostic.help ==
        "remove one of the two, or write `steps: !override ...` for the value that wins");
  CHECK(diagnostic.place.to_string() == "dir/t.yaml:4:9");
}

TEST_CASE("a section in one file and a value in the other are given twice") {
  CHECK(only(read_files("include: b.yaml\n" + good_text + "log: {every: 5}\n",
                        {{"dir/b.yaml", "log: 5\n"}}))
            .code == "given-twice");
  CHECK(found(read_files("include: b.yaml\n" + good_text + "log:\n",
                         {{"dir/b.yaml", "log: {every: 5}\n"}}))
            .empty());
  CHECK(
      read_files("include: b.yaml\n" + good_text + "log: {every: 5}\n", {{"dir/b.yaml", "log:\n"}})
          .config.log.every == 5);
}

TEST_CASE("!override lets the including file win, and the loser is remembered") {
  const ReadResult result =
      read_files("include: b.yaml\ntrain: {steps: !override 10, seed: !override \"7\"}\n",
                 {{"dir/b.yaml", good_text}, {"dir/x.yaml", ""}});
  CHECK(result.config.train.steps == 10);
  CHECK(found(result) == std::vector<std::string>{"nothing-overridden train.seed 2:46",
                                                  "wrong-type train.seed 2:46"});
  const std::vector<ReplacedValue>& replaced = result.replaced.at("train.steps");
  REQUIRE(replaced.size() == 1);
  CHECK(replaced[0].text == "10");
  CHECK(replaced[0].place.to_string() == "dir/b.yaml:3:16");
}

TEST_CASE("a map marked !override replaces the whole map") {
  const std::string base = good_model + rest + "log: {every: 5, color: false}\n";
  const ReadResult merged =
      read_files("include: b.yaml\nlog: {level: debug}\n", {{"dir/b.yaml", base}});
  CHECK(merged.config.log.every == 5);
  CHECK_FALSE(merged.config.log.color);
  const ReadResult replaced =
      read_files("include: b.yaml\nlog: !override {level: debug}\n", {{"dir/b.yaml", base}});
  CHECK(found(replaced).empty());
  CHECK(replaced.config.log.every == 10);
  CHECK(replaced.config.log.color);
  CHECK(replaced.replaced.at("log.every").front().text == "5");
}

TEST_CASE("an !override without anything to override is a warning") {
  const ReadResult result = read(good_text + "log: {every: !override 5}\n");
  const Diagnostic diagnostic = only(result);
  CHECK(diagnostic.severity == Severity::warning);
  CHECK(diagnostic.code == "nothing-overridden");
  CHECK(diagnostic.message == "!override has no effect: no included file gives this value");
  CHECK(diagnostic.place.column == 24);
  CHECK(result.config.log.every == 5);
}

TEST_CASE("!override before nothing and before null is null") {
  for (const char* null : {"", " ~", " null"}) {
    const ReadResult result =
        read_files("include: b.yaml\nmodel:\n  kv_channels: !override" + std::string(null) + "\n",
                   {{"dir/b.yaml", good_text}});
    CAPTURE(null);
    CHECK(found(result) ==
          std::vector<std::string>{
              "nothing-overridden model.kv_channels 3:" + std::to_string(*null == 0 ? 16 : 26),
              "wrong-type model.kv_channels 3:" + std::to_string(*null == 0 ? 16 : 26)});
  }
}

TEST_CASE("one concept under two names in two files is given twice") {
  const ReadResult result =
      read_files("include: b.yaml\n" + good_text + "parallel: {tensor_parallel: 4}\n",
                 {{"dir/b.yaml", "parallel_config: {model_parallel: 2}\n"}});
  const Diagnostic diagnostic = only(result);
  CHECK(diagnostic.code == "given-twice");
  CHECK(diagnostic.path == "parallel.tensor_parallel");
  CHECK(read_files("include: b.yaml\n" + good_text + "parallel: {tensor_parallel: !override 4}\n",
                   {{"dir/b.yaml", "parallel_config: {model_parallel: 2}\n"}})
            .config.parallel.tensor_parallel == 4);
}

TEST_CASE("a file that cannot be included is the only complaint about what it would have given") {
  const ReadResult result = read_files("include: b.yaml\nlog: {evry: 5}\n", {});
  CHECK(found(result) ==
        std::vector<std::string>{"include-missing include 1:10", "unknown-key log.evry 2:7"});
  CHECK(result.diagnostics.list()[0].message == "dir/b.yaml cannot be included: no such file");
  CHECK(result.diagnostics.list()[0].help == "the path is relative to the file that includes it");
  CHECK_FALSE(result.complete);
}

TEST_CASE("files that include themselves") {
  const Files files{{"dir/a.yaml", "include: b.yaml\n"}, {"dir/b.yaml", "include: ./a.yaml\n"}};
  const Diagnostic two = only(read_files("include: a.yaml\n", files));
  CHECK(two.code == "include-cycle");
  CHECK(two.message ==
        "the file includes itself: dir/t.yaml > dir/a.yaml > dir/b.yaml > dir/a.yaml");
  CHECK(two.place.to_string() == "dir/b.yaml:1:10");
  CHECK(only(read_files("include: t.yaml\n", files)).code == "include-cycle");
}

TEST_CASE("includes are bounded in depth and size") {
  Files files;
  for (int i = 1; i <= 40; ++i) {
    files["dir/" + std::to_string(i)] = "include: " + std::to_string(i + 1) + "\n";
  }
  const Diagnostic deep = only(read_files("include: 1\n", files));
  CHECK(deep.code == "include-depth");
  CHECK(deep.message == "files include each other more than 16 levels deep");
  CHECK(deep.place.file == "dir/16");
  const std::string big = "#" + std::string(700'000, ' ') + "\nlog: {every: 5}\n";
  const Diagnostic large =
      only(read_files("include: [a, b]\n" + good_text, {{"dir/a", big}, {"dir/b", big}}));
  CHECK(large.code == "include-size");
  CHECK(large.message == "together with dir/b the files are larger than 1 MiB");
}

TEST_CASE("what include takes, and what an included file may be") {
  CHECK(found(read_files("include: {a: b}\n", {})) ==
        std::vector<std::string>{"wrong-type include 1:10"});
  CHECK(found(read_files("include: [[a], ]\n", {})) ==
        std::vector<std::string>{"wrong-type include 1:11"});
  CHECK(found(read_files("include:\n" + good_text, {})) ==
        std::vector<std::string>{"wrong-type include 1:1"});
  const Diagnostic list = only(read_files("include: a\n", {{"dir/a", "- x\n"}}));
  CHECK(list.code == "wrong-type");
  CHECK(list.place.to_string() == "dir/a:1:1");
  const Diagnostic syntax = only(read_files("include: a\n", {{"dir/a", "log: \"x\n"}}));
  CHECK(syntax.code == "unterminated-quote");
  CHECK(syntax.place.file == "dir/a");
  CHECK(contains(
      render_text(read_files("include: a\n", {{"dir/a", "log: \"x\n"}}).diagnostics, false),
      "   1 | log: \"x\n"));
}

TEST_CASE("only files can include others") {
  const Diagnostic diagnostic = only(read("include: a.yaml\n"));
  CHECK(diagnostic.code == "include-refused");
  CHECK(diagnostic.message == "include is supported only in files");
}

TEST_CASE("--set and presets come after all files") {
  const ReadResult result =
      read_files("include: b.yaml\nmodel: {preset: gpt2-124m, num_layers: 2}\n",
                 {{"dir/b.yaml", rest + "log: {every: 5}\n"}}, {"log.every=7", "train.steps=3"});
  CHECK(found(result).empty());
  CHECK(result.config.log.every == 7);
  CHECK(result.replaced.at("log.every").front().place.to_string() == "dir/b.yaml:4:14");
  CHECK(result.replaced.at("train.steps").front().text == "10");
  CHECK(result.replaced.at("model.num_layers").front().place.to_string() == "preset gpt2-124m");
}

TEST_CASE("maps of aliases on both sides do not multiply") {
  std::string bomb = "a0: &a0 {x: 1}\n";
  const int doublings = brief() ? 14 : 30;  // 16,384 times 16,384 would not end either
  for (int i = 1; i < doublings; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " {l: " + before +
            ", r: " + before + "}\n";
  }
  CHECK(read_files("include: b.yaml\n" + bomb, {{"dir/b.yaml", bomb}}).diagnostics.has_errors());
}

TEST_CASE("files on disk include each other") {
  const auto folder = std::filesystem::temp_directory_path() / "trainctl-include-test";
  std::filesystem::create_directories(folder / "parts");
  std::ofstream(folder / "t.yaml") << "include: parts/m.yaml\n" << rest;
  std::ofstream(folder / "parts" / "m.yaml") << good_model;
  const ReadResult result = read_config(folder / "t.yaml", {});
  std::filesystem::remove_all(folder / "parts");
  const ReadResult gone = read_config(folder / "t.yaml", {});
  std::filesystem::remove_all(folder);
  CHECK(found(result).empty());
  CHECK(result.sources.find("model.num_layers").file == (folder / "parts/m.yaml").string());
  CHECK(only(gone).code == "include-missing");
}

}  // namespace trainctl::test
