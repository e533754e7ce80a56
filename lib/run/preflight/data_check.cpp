#include "run/preflight/data_check.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/units.h"
#include "config/report/diagnostics.h"
#include "data/build.h"
#include "data/text_reader.h"
#include "data/token_file.h"
#include "data/tokenizer/tokenizer.h"

namespace trainctl {

namespace {

using Level = Finding::Level;

/// What `look` says, or the error that it throws, which is about `path`.
template <class Look>
Finding found(const std::string& what, const std::string& path, const Look& look) {
  try {
    return {what + look()};
  } catch (const Error& error) {
    return {what + error.what(), Level::error, error.code(), path};
  }
}

/// What to write instead of a file that is not there: the nearest name beside it, or where names
/// are looked up.
std::string help_for_missing(const std::filesystem::path& path) {
  std::error_code failure;
  const std::filesystem::path folder =
      path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    names.push_back(entry.path().filename().string());
    if (entry.path().extension() == ".idx") names.push_back(entry.path().stem().string());
  }
  const std::string near = nearest(path.filename().string(), names);
  if (!near.empty()) return "write " + (path.parent_path() / near).string();
  if (path.is_absolute()) return "write the path of a text, of a folder or of a token file";
  return "relative paths are looked up in " + std::filesystem::current_path(failure).string() +
         "; write the full path";
}

/// Of joined documents: as many tokens as a file has, or a text can have at most. Sources of weight
/// 0 need none.
void require_sample(const PreflightInput& input, const std::string& what, std::int64_t most) {
  const DataConfig& data = input.read.config.data;
  const std::int64_t needed = input.plan.model.seq_length + 1;
  const bool used =
      std::ranges::none_of(data.train, [](const auto& one) { return one.weight == 0; });
  if (most >= needed || !data.packing || !used) return;
  throw Error(ExitCode::bad_data, what + "; model.seq_length " + std::to_string(needed - 1) +
                                      " needs at least " + std::to_string(needed) + " tokens");
}

std::string text_line(const std::string& path, const PreflightInput& input) {
  constexpr std::int64_t most_extra = 2;  // tokens of a file beside those of its bytes
  const std::vector<InputFile> files = list_inputs({path});
  std::int64_t bytes = 0;
  for (const InputFile& file : files) {
    File::open_to_read(file.path);  // an Error names the one that this user may not read
    bytes += file.bytes;
  }
  const std::string text = path + ": text, " + format_grouped(std::ssize(files)) +
                           (files.size() == 1 ? " file, " : " files, ") + format_bytes(bytes);
  require_sample(input, text, bytes + most_extra * std::ssize(files));
  return text;
}

std::string token_line(const std::string& path, const PreflightInput& input) {
  const TokenFile file = TokenFile::open(path);
  const std::string counts = path + ": " + format_grouped(file.tokens()) + " tokens in " +
                             format_grouped(file.documents()) +
                             (file.documents() == 1 ? " document" : " documents");
  require_sample(input, counts, file.tokens());
  if (!input.whole_data) return counts;
  file.check_vocabulary(input.plan.model.vocab);
  return counts + ", all below model.vocab_size " + format_grouped(input.plan.model.vocab);
}

Finding check_tokenizer(const PreflightInput& input) {
  const std::string& name = input.read.config.data.tokenizer;
  const std::int64_t vocabulary = input.plan.model.vocab;
  std::string help;
  Finding finding = found("", "data.tokenizer", [&] {
    const std::int64_t tokens = Tokenizer::open(name).vocab_size();
    const std::string text = name + " has " + format_grouped(tokens) + " tokens, ";
    const std::string size = "model.vocab_size is " + format_grouped(vocabulary);
    if (tokens > vocabulary) help = "set model.vocab_size to " + std::to_string(tokens);
    require(tokens <= vocabulary, ExitCode::config, text + "but " + size);
    return text + size;
  });
  const bool fine = finding.level == Level::fine;
  finding.text = (fine ? "tokenizer: " : "data.tokenizer: ") + finding.text;
  finding.help = help;
  return finding;
}

}  // namespace

std::vector<Finding> check_data(const PreflightInput& input) {
  const DataConfig& data = input.read.config.data;
  std::vector<Finding> findings;
  bool any_text = false;
  const auto check = [&](const std::string& name, const std::string& key, const std::string& path) {
    Finding finding = found("", key, [&] {
      if (!is_text_input(path)) return token_line(path, input);
      any_text = true;
      return text_line(path, input);
    });
    const bool fine = finding.level != Level::error;
    finding.text = (fine ? name : key.substr(0, key.find_last_not_of("0123456789.") + 1)) + ": " +
                   finding.text;
    if (finding.code == ExitCode::missing_input) finding.help = help_for_missing(path);
    findings.push_back(std::move(finding));
  };
  for (std::size_t i = 0; i < data.train.size(); ++i) {
    check("data", "data.train." + std::to_string(i), data.train[i].path);
  }
  if (data.validation.path) {
    check("validation data", "data.validation.path", *data.validation.path);
  }
  if (any_text) findings.insert(findings.begin(), check_tokenizer(input));
  return findings;
}

}  // namespace trainctl
