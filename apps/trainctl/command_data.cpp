// trainctl data build | inspect: text to token files, and the contents of a token file.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "commands.h"
#include "data/build.h"
#include "data/token_file.h"
#include "data/tokenizer/tokenizer.h"
#include "output.h"
#include "progress_bar.h"

namespace trainctl {

namespace {

constexpr const char* examples =
    "  trainctl data build --input book.txt --output data/book\n"
    "  trainctl data build --input texts/ more.jsonl --json-key text --output data/all\n"
    "  trainctl data build --input book.txt --tokenizer hf:models/qwen --output data/book\n"
    "  trainctl data inspect data/book --tokenizer byte\n";

int run_build(const Arguments& arguments) {
  CommandLine line("Turns text into a token file pair PREFIX.bin and PREFIX.idx.",
                   "trainctl data build");
  std::vector<std::string> inputs;
  std::string tokenizer_name = "byte";
  std::string output;
  BuildOptions options;
  std::int64_t threads = std::max(1U, std::thread::hardware_concurrency());
  line.add_texts("--input", inputs, "Text or JSONL files, or directories of them", "PATH...");
  line.require("--input");
  line.add_text("--tokenizer", tokenizer_name, "byte (default), sentencepiece:MODEL or hf:DIR",
                "NAME");
  line.add_text("--output", output, "Where to write PREFIX.bin and PREFIX.idx", "PREFIX");
  line.require("--output");
  line.add_text("--json-key", options.json_key, "The key that holds the text in *.jsonl files",
                "KEY");
  line.add_whole_number("--threads", threads, "Default: all cores", 1, 4096);
  if (!line.parse(arguments, examples)) return 0;

  const Tokenizer tokenizer = Tokenizer::open(tokenizer_name);
  options.inputs.assign(inputs.begin(), inputs.end());
  options.output = output;
  options.threads = static_cast<int>(threads);
  BuildResult result;
  {
    ProgressBar progress("reading");
    options.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
    result = build_token_file(options, tokenizer);
  }
  print("wrote " + output + ".bin and " + output + ".idx: " + format_grouped(result.documents) +
        " documents, " + format_grouped(result.tokens) + " tokens of " +
        std::to_string(result.token_bytes) + " bytes, from " + format_bytes(result.input_bytes) +
        "\n");
  log_info("inspect it with: trainctl data inspect " + output + " --tokenizer " + tokenizer_name);
  return 0;
}

const char* name_of(TokenFormat format) {
  switch (format) {
    case TokenFormat::megatron: return "megatron";
    case TokenFormat::llmc: return "llm.c";
    case TokenFormat::nanogpt: return "nanogpt";
  }
  return "?";
}

struct Range {
  std::int32_t least = std::numeric_limits<std::int32_t>::max();
  std::int32_t most = std::numeric_limits<std::int32_t>::min();
};

Range range_of(const TokenFile& file) {
  constexpr std::int64_t block = 1 << 20;
  Range range;
  std::vector<std::int32_t> tokens;
  for (std::int64_t first = 0; first < file.tokens(); first += block) {
    tokens.resize(static_cast<std::size_t>(std::min(block, file.tokens() - first)));
    file.read(first, tokens);
    const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
    range = {std::min(range.least, *least), std::max(range.most, *most)};
  }
  return range;
}

std::vector<std::int32_t> first_tokens(const TokenFile& file) {
  constexpr std::int64_t sample = 64;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(sample, file.tokens())));
  file.read(0, tokens);
  return tokens;
}

/// One JSON document, with the contents of the text form.
nlohmann::ordered_json describe(const TokenFile& file, const std::string& tokenizer_name) {
  nlohmann::ordered_json about;
  about["format_version"] = 1;
  about["path"] = file.path().string();
  about["format"] = name_of(file.format());
  about["token_bytes"] = file.token_bytes();
  about["sequences"] = file.sequences();
  about["documents"] = file.documents();
  about["tokens"] = file.tokens();
  if (file.tokens() == 0) return about;
  const Range range = range_of(file);
  about["least_token"] = range.least;
  about["most_token"] = range.most;
  const std::vector<std::int32_t> tokens = first_tokens(file);
  about["first_tokens"] = tokens;
  if (tokenizer_name.empty()) return about;
  const Tokenizer tokenizer = Tokenizer::open(tokenizer_name);
  file.check_vocabulary(tokenizer.vocab_size());
  about["first_text"] = tokenizer.decode(tokens);
  return about;
}

std::string to_json(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string to_text(const nlohmann::ordered_json& about) {
  std::string text;
  for (const auto& [key, value] : about.items()) {
    if (key == "format_version") continue;
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', ' ');
    name.resize(14, ' ');
    const bool plain = value.is_string() && key != "first_text";
    const bool number = value.is_number_integer();
    text += name +
            (plain    ? value.get<std::string>()
             : number ? format_grouped(value.get<std::int64_t>())
                      : to_json(value, -1)) +
            "\n";
  }
  return text;
}

int run_inspect(const Arguments& arguments) {
  CommandLine line(
      "Prints the contents of a token file: Megatron .bin/.idx, llm.c .bin or nanoGPT .bin.",
      "trainctl data inspect");
  std::string path;
  std::string tokenizer_name;
  std::string format = "text";
  line.add_text("FILE", path, "A prefix with .bin and .idx, or a .bin file");
  line.require("FILE");
  line.add_text("--tokenizer", tokenizer_name,
                "Show the first tokens as text, and check that every id is in its vocabulary",
                "NAME");
  line.add_format(format, {"text", "json"});
  if (!line.parse(arguments, examples)) return 0;
  const nlohmann::ordered_json about = describe(TokenFile::open(path), tokenizer_name);
  print(format == "json" ? to_json(about, 2) + "\n" : to_text(about));
  return 0;
}

}  // namespace

int run_data(const Arguments& arguments) {
  return run_subcommand("trainctl data", arguments, examples,
                        {{"build", "Turn text into a token file", run_build},
                         {"inspect", "Print the contents of a token file", run_inspect}});
}

}  // namespace trainctl
