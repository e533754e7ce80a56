// trainctl data build | inspect: text to token files, and the contents of a token file.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "commands.h"
#include "data/build.h"
#include "data/token_file.h"
#include "data/tokenizer/tokenizer.h"
#include "formats/print/text.h"
#include "output.h"
#include "run/preflight/machine.h"

namespace trainctl {

namespace {

constexpr const char* data_examples =
    "  trainctl data build --input book.txt --output data/book\n"
    "  trainctl data build --input texts/ more.jsonl --json-key text --output data/all\n"
    "  trainctl data build --input book.txt --tokenizer hf:models/qwen --output data/book\n"
    "  trainctl data inspect data/book --tokenizer byte\n";

/// The prefix of a token file, given as PREFIX or as the name of either file of the pair.
std::filesystem::path prefix_of(const std::string& output) {
  std::filesystem::path prefix = output;
  if (prefix.extension() == ".bin" || prefix.extension() == ".idx") prefix.replace_extension();
  return prefix;
}

void make_room(const std::string& prefix, bool force) {
  for (const char* suffix : {".bin", ".idx"}) {
    if (!force) refuse_existing("trainctl data build", prefix + suffix);
  }
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  std::error_code failure;
  if (!folder.empty()) std::filesystem::create_directories(folder, failure);
  require(!failure, ExitCode::io, "cannot create " + folder.string() + ": " + failure.message());
}

/// Whether documents end with the tokenizer's end-of-document token.
bool separates(const CommandLine& line, bool append, bool leave_out, const Tokenizer& tokenizer) {
  if (append && leave_out) line.refuse("--append-eod and --no-append-eod exclude each other");
  const bool has_token = tokenizer.end_of_document() >= 0;
  if (append && !has_token) {
    line.refuse("--append-eod: " + tokenizer.specification() + " has no end-of-document token");
  }
  return has_token && !leave_out;
}

struct BuildCommand {
  std::vector<std::string> inputs;
  std::string tokenizer = "byte";
  std::string output;
  BuildOptions options;
  bool append = false;
  bool leave_out = false;
  bool force = false;
};

void add_build_options(CommandLine& line, BuildCommand& command) {
  line.add_texts("--input", command.inputs, "Text or JSONL files, or directories of them",
                 "PATH...");
  line.require("--input");
  line.add_text("--tokenizer", command.tokenizer, "byte (default), sentencepiece:MODEL or hf:DIR",
                "NAME");
  line.add_text("--output", command.output,
                "Where to write PREFIX.bin and PREFIX.idx; folders are made", "PREFIX");
  line.require("--output");
  line.add_text("--json-key", command.options.json_key,
                "The key that holds the text in *.jsonl files; default text", "KEY");
  line.add_flag("--append-eod", command.append,
                "End documents with the tokenizer's token for that; default where it has one");
  line.add_flag("--no-append-eod", command.leave_out, "Put nothing between documents");
  line.add_flag("--force", command.force, "Replace token files that are there");
  line.add_whole_number("--threads", command.options.threads, "Default: all cores", 1, 4096);
  line.add_verbosity();
}

int run_build(const Arguments& arguments) {
  CommandLine line("Turns text into a token file pair PREFIX.bin and PREFIX.idx.",
                   "trainctl data build");
  BuildCommand command;
  command.options.threads = usable_cores();
  add_build_options(line, command);
  if (!line.parse(arguments, data_examples)) return 0;

  const std::string output = prefix_of(command.output).string();
  const Tokenizer tokenizer = Tokenizer::open(command.tokenizer);
  BuildOptions& options = command.options;
  options.append_end_of_document = separates(line, command.append, command.leave_out, tokenizer);
  make_room(output, command.force);
  options.inputs.assign(command.inputs.begin(), command.inputs.end());
  options.output = output;
  BuildResult result;
  {
    ProgressBar progress("reading");
    options.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
    result = build_token_file(options, tokenizer);
  }
  const std::string ends =
      options.append_end_of_document
          ? formatted("; each document ends with token {}", tokenizer.end_of_document())
          : "; nothing separates documents";
  print(formatted("wrote {}.bin and {}.idx: {} documents, {} tokens of {} bytes, from {}{}\n",
                  output, output, format_grouped(result.documents), format_grouped(result.tokens),
                  result.token_bytes, format_bytes(result.input_bytes),
                  result.documents > 1 ? ends : ""));
  log_info("inspect it with: trainctl data inspect " + shell_word(output) + " --tokenizer " +
           shell_word(command.tokenizer));
  return 0;
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

/// A token file as one JSON document, with the contents of the text form.
nlohmann::ordered_json describe(const TokenFile& file, const std::string& tokenizer_name) {
  nlohmann::ordered_json about;
  about["format_version"] = 1;
  about["path"] = file.path().string();
  about["format"] = file.format();
  about["token_bytes"] = file.token_bytes();
  about["sequences"] = file.sequences();
  about["documents"] = file.documents();
  about["tokens"] = file.tokens();
  if (file.tokens() == 0) return about;
  const Range range = range_of(file);
  about["min_token"] = range.least;
  about["max_token"] = range.most;
  const std::vector<std::int32_t> tokens = first_tokens(file);
  about["first_tokens"] = tokens;
  if (tokenizer_name.empty()) return about;
  const Tokenizer tokenizer = Tokenizer::open(tokenizer_name);
  file.check_vocabulary(tokenizer.vocab_size());
  about["first_text"] = tokenizer.decode(tokens);
  return about;
}

/// A folder without texts: its format, and the command that shows its contents.
struct KnownFolder {
  std::string format;
  std::string see;
};

KnownFolder known_folder(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code failure;
  const auto has = [&](const char* name) { return fs::exists(folder / name, failure); };
  const std::string name = shell_word(folder.string());
  if (has("config.yaml") && (has("metrics.jsonl") || has("plan.json"))) {
    return {"run of trainctl", "trainctl watch " + name};
  }
  if (has("config.json") &&
      (has("model.safetensors") || has("model.safetensors.index.json") || has("tokenizer.json"))) {
    return {"Hugging Face model", "trainctl generate --from " + name + " --prompt 'Once'"};
  }
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    fs::path pair = entry.path();
    if (pair.extension() != ".idx" || !fs::exists(pair.replace_extension(".bin"), failure))
      continue;
    return {"folder of token files",
            "trainctl data inspect " + shell_word(pair.replace_extension().string())};
  }
  return {};
}

/// Describes text, JSON lines, a folder, or other bytes: everything except token files.
nlohmann::ordered_json describe_text(const std::string& path) {
  constexpr std::int64_t sample = 200;
  const std::vector<InputFile> files = list_inputs({path});
  nlohmann::ordered_json about;
  about["format_version"] = 1;
  about["path"] = std::filesystem::absolute(path).lexically_normal().string();
  std::int64_t bytes = 0;
  for (const InputFile& file : files) bytes += file.bytes;
  const bool is_folder = std::filesystem::is_directory(path);
  const std::string extension = std::filesystem::path(path).extension().string();
  std::string start;
  if (!files.empty()) {
    start = read_beginning(files.front().path, sample);
  }
  const bool is_text = start.find('\0') == std::string::npos;
  if (const KnownFolder known = is_folder ? known_folder(path) : KnownFolder{};
      !known.format.empty()) {
    about["format"] = known.format;
    about["files"] = files.size();
    about["bytes"] = bytes;
    about["see"] = known.see;
    return about;
  }
  about["format"] = is_folder               ? "folder of texts"
                    : !is_text              ? "neither text nor a token file"
                    : extension == ".jsonl" ? "JSON lines"
                                            : "text";
  about["files"] = files.size();
  about["bytes"] = bytes;
  if (!is_text && !is_folder) return about;
  about["first_text"] = start;
  about["to_tokens"] = "trainctl data build --input " + shell_word(path) + " --output PREFIX";
  return about;
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
                      : json_text(value, JsonText::Style::compact)) +
            "\n";
  }
  return text;
}

int run_inspect(const Arguments& arguments) {
  CommandLine line(
      "Says what a file is, and what is in it: Megatron .bin/.idx, llm.c .bin, nanoGPT .bin, text, "
      "JSON lines or a folder of texts.",
      "trainctl data inspect");
  std::string path;
  std::string tokenizer_name;
  std::string format = "text";
  line.add_text("FILE", path, "A prefix with .bin and .idx, a .bin file, text, or a folder");
  line.require("FILE");
  line.add_text("--tokenizer", tokenizer_name,
                "Show the first tokens as text, and check that every id is in its vocabulary",
                "NAME");
  line.add_format(format, {"text", "json"});
  if (!line.parse(arguments, data_examples)) return 0;
  const nlohmann::ordered_json about =
      is_text_input(path) ? describe_text(path) : describe(TokenFile::open(path), tokenizer_name);
  print(format == "json" ? json_text(about, JsonText::Style::indent_2) + "\n" : to_text(about));
  return 0;
}

}  // namespace

int run_data(const Arguments& arguments) {
  return run_subcommand("trainctl data", arguments, data_examples,
                        {{"build", "Turn text into a token file", run_build},
                         {"inspect", "Say what a file is and what is in it", run_inspect}});
}

}  // namespace trainctl
