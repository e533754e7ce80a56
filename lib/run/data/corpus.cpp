#include "run/data/corpus.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "comm/others_wait.h"
#include "data/build.h"
#include "run/data/going_on.h"
#include "run/preflight/machine.h"

namespace trainctl {

namespace {

/// Tokenises a text first, unless the cache has it.
TokenFile open_source(const std::string& path, const Tokenizer& tokenizer, const DataConfig& data) {
  if (!is_text_input(path)) return TokenFile::open(path);
  return TokenFile::open(cached_token_file(path, tokenizer, data.cache_dir, usable_cores()));
}

SplitRule split_rule(const DataConfig& data) {
  const ValidationConfig& validation = data.validation;
  return {.fraction = validation.path ? 0.0 : validation.fraction,
          .blocks = validation.split == SplitStyle::blocks,
          .documents = !data.packing};
}

bool has_text(const DataConfig& data) {
  const auto is_text = [](const DataSource& source) { return is_text_input(source.path); };
  return std::any_of(data.train.begin(), data.train.end(), is_text) ||
         (data.validation.path && is_text_input(*data.validation.path));
}

/// A model whose output layer is mostly unused learns slowly for its size.
void warn_about_vocabulary(const Tokenizer& tokenizer, const ModelShape& model) {
  const std::int64_t known = tokenizer.vocab_size();
  if (model.vocab <= 2 * known) return;
  log_warning("model.vocab_size is " + std::to_string(model.vocab) + ", but the tokenizer " +
              tokenizer.specification() + " has only " + std::to_string(known) +
              " tokens: the text never has the others");
}

}  // namespace

Tokenizer open_tokenizer(const ReadResult& read, const ModelShape& model) {
  const DataConfig& data = read.config.data;
  const std::string place = read.sources.find("data.tokenizer").to_string() + ": data.tokenizer: ";
  const auto open = [&] {
    try {
      return Tokenizer::open(data.tokenizer);
    } catch (const Error& error) {
      throw Error(error.code(), place + error.what());
    }
  };
  Tokenizer tokenizer = open();
  if (has_text(data) && tokenizer.vocab_size() > model.vocab) {
    throw Error(ExitCode::config, place + data.tokenizer + " has " +
                                      std::to_string(tokenizer.vocab_size()) +
                                      " tokens, but model.vocab_size is " +
                                      std::to_string(model.vocab) + ": raise it");
  }
  return tokenizer;
}

Dataset open_train_data(const DataConfig& data, std::int64_t seq_length, std::uint64_t seed) {
  const Tokenizer tokenizer = Tokenizer::open(data.tokenizer);
  std::vector<SourceFile> files;
  for (const DataSource& source : data.train) {
    files.push_back({open_source(source.path, tokenizer, data), source.weight});
  }
  return {std::move(files), split_rule(data), Split::train, seq_length, seed, data.shuffle};
}

std::vector<SourceIdentity> identify_sources(const DataConfig& data) {
  const Tokenizer tokenizer = Tokenizer::open(data.tokenizer);
  std::vector<SourceIdentity> identities;
  const auto add = [&](const std::string& path) {
    identities.push_back(identity_of(open_source(path, tokenizer, data)));
  };
  for (const DataSource& source : data.train) add(source.path);
  if (data.validation.path) add(*data.validation.path);
  return identities;
}

Corpus open_corpus(const DataConfig& data, const Tokenizer& tokenizer, const ModelShape& model,
                   std::uint64_t seed, Group& world, bool first_on_host) {
  if (has_text(data) && world.rank() == 0) warn_about_vocabulary(tokenizer, model);
  const auto open = [&](const std::string& path) {
    while_others_wait(world, path.c_str(), first_on_host,
                      [&] { open_source(path, tokenizer, data).check_vocabulary(model.vocab); });
    return open_source(path, tokenizer, data);
  };
  const auto sources = [&] {
    std::vector<SourceFile> files;
    for (const DataSource& source : data.train) files.push_back({open(source.path), source.weight});
    return files;
  };
  const ValidationConfig& validation = data.validation;
  const SplitRule rule = split_rule(data);
  Corpus corpus{Dataset(sources(), rule, Split::train, model.seq_length, seed, data.shuffle),
                std::nullopt,
                {.sequences = 0,
                 .reset_position_ids = data.reset_position_ids,
                 .eod_mask_loss = data.eod_mask_loss,
                 .eod_token = data.eod_token.value_or(tokenizer.end_of_document())}};
  if (validation.path) {
    std::vector<SourceFile> files;
    files.push_back({open(*validation.path), 1.0});
    corpus.validation.emplace(std::move(files), rule, Split::train, model.seq_length, seed, false);
  } else if (validation.fraction > 0) {
    corpus.validation.emplace(sources(), rule, Split::validation, model.seq_length, seed, false);
  }
  return corpus;
}

SpecialTokens special_tokens(const Config& config, const Corpus& corpus) {
  SpecialTokens tokens;
  if (config.model.from) tokens = read_special_tokens(*config.model.from);
  const std::int32_t eod = corpus.rule.eod_token;
  if (tokens.end.empty() && eod >= 0) tokens.end.push_back(eod);
  return tokens;
}

}  // namespace trainctl
