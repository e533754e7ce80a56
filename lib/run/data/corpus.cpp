#include "run/data/corpus.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "checkpoint/hash_bytes.h"
#include "comm/group.h"
#include "comm/values.h"
#include "config/schema/words.h"
#include "data/build.h"
#include "formats/print/text.h"
#include "run/preflight/machine.h"

namespace trainctl {

namespace {

constexpr std::int64_t header_bytes = 1024;  // the longest header of a token file, llm.c's
constexpr std::int64_t block_bytes = 4096;
constexpr std::int64_t block_count = 64;
constexpr std::int64_t piece_bytes = std::int64_t{4} << 20;

/// Adds the hash of a part of a file, up to the file's end.
void add_hash(const File& file, std::int64_t offset, std::int64_t bytes, std::string& buffer,
              std::vector<std::uint64_t>& hashes) {
  const std::int64_t there = std::clamp<std::int64_t>(file.size() - offset, 0, bytes);
  buffer.resize(static_cast<std::size_t>(there));
  file.read_at(offset, buffer);
  hashes.push_back(hash_bytes(buffer));
}

std::string text_of(const SourceIdentity& identity) {
  return format_grouped(identity.bytes) + " bytes with hash " + hex_text(identity.hash);
}

bool has_begun(const SourcePosition& position) {
  return position.windows > 0 || position.labels > 0;
}

/// Text for SavedData::windows. Two runs with equal texts cut a file into the same windows.
std::string windows_text(const DataConfig& data) {
  std::string text = data.packing ? "joined" : "documents apart";
  const double fraction = data.validation.path ? 0 : data.validation.fraction;
  if (fraction == 0) return text + ", nothing held out";
  return text + ", " + printed("%.17g", fraction) + " held out by " +
         std::string(word_of(data.validation.split));
}

/// The facts about the present data that decide where in its sources a run continues.
struct PresentData {
  const DataConfig& data;
  const std::vector<SourceIdentity>& identities;
  std::int64_t seq_length = 0;
  std::uint64_t seed = 0;
};

class Continuing {
 public:
  Continuing(const SavedData& saved, const PresentData& now)
      : saved_(saved), now_(now), taken_(saved.sources.size(), false) {}

  DataPlace make(std::int64_t samples) {
    const std::vector<DataSource>& sources = now_.data.train;
    const std::vector<std::optional<std::size_t>> matches = match();
    same_windows_ = saved_.windows == windows_text(now_.data);
    if (!same_windows_) {
      place_.notes.push_back("data: what is held out or how documents are joined has changed (" +
                             saved_.windows + " in the checkpoint, " + windows_text(now_.data) +
                             " now): a new epoch of each source begins");
    }
    for (std::size_t i = 0; i < sources.size(); ++i) {
      place_.position.sources.push_back(matches[i] ? go_on(i, saved_.sources[*matches[i]])
                                                   : begin(new_order(), 0));
    }
    check_validation();
    place_.position.sample = samples;
    place_.position.pattern = same_blend(matches) ? saved_.pattern : 0;
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      if (!taken_[i]) place_.absent.push_back(saved_.sources[i]);
    }
    return std::move(place_);
  }

 private:
  template <class Same>
  std::optional<std::size_t> take(const Same& same) {
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      if (taken_[i] || !same(saved_.sources[i])) continue;
      taken_[i] = true;
      return i;
    }
    return std::nullopt;
  }

  /// Finds the saved source of each present source: preferably the same file at the same path, else
  /// the same file at another path, else another file at the same path.
  std::vector<std::optional<std::size_t>> match() {
    const std::size_t count = now_.data.train.size();
    std::vector<std::optional<std::size_t>> matches(count);
    const auto pass = [&](bool by_path, bool by_identity) {
      for (std::size_t i = 0; i < count; ++i) {
        if (matches[i]) continue;
        const std::string name = storable_name(now_.data.train[i].path);
        matches[i] = take([&](const SavedSource& one) {
          return (!by_path || one.path == name) &&
                 (!by_identity || one.identity == now_.identities[i]);
        });
      }
    };
    pass(true, true);
    pass(false, true);
    pass(true, false);
    return matches;
  }

  SourcePosition begin(std::int64_t order, std::int64_t epoch) const {
    return {.order = order,
            .epoch = epoch,
            .seq_length = now_.seq_length,
            .seed = now_.seed,
            .shuffle = now_.data.shuffle};
  }

  SourcePosition go_on(std::size_t index, const SavedSource& saved) {
    const SourcePosition& position = saved.position;
    const std::string& path = now_.data.train[index].path;
    const bool changed = saved.identity != now_.identities[index];
    if (changed) {
      const std::string what =
          path + " is not what the checkpoint's run read: " + text_of(now_.identities[index]) +
          " now, " + text_of(saved.identity) + " then";
      require(now_.data.changed == "allow", ExitCode::bad_data,
              "data.train: " + what +
                  ". Its windows and their order would be others; bring the data back, or set "
                  "data.changed=allow to begin a new epoch of it");
      place_.notes.push_back("data: " + what + "; a new epoch of it begins");
    }
    const bool goes_on = has_begun(position) && !changed && same_windows_;
    if (goes_on) return position;
    return begin(position.order, position.epoch + (has_begun(position) ? 1 : 0));
  }

  /// Refuses another file under the same path. A new path is a user's choice of other data.
  void check_validation() {
    const auto& path = now_.data.validation.path;
    const auto& saved = saved_.validation;
    if (!path || !saved || saved->path != storable_name(*path)) return;
    const SourceIdentity& now = now_.identities.back();
    if (saved->identity == now) return;
    const std::string what = *path +
                             " is not what the checkpoint's run was validated on: " + text_of(now) +
                             " now, " + text_of(saved->identity) + " then";
    require(now_.data.changed == "allow", ExitCode::bad_data,
            "data.validation.path: " + what +
                ". Its losses could not be compared with those before; bring the data back, name "
                "the new data by another path, or set data.changed=allow");
    place_.notes.push_back("data: " + what + "; validation losses before and after do not compare");
  }

  std::int64_t new_order() {
    std::int64_t order = 0;
    for (const SavedSource& one : saved_.sources) order = std::max(order, one.position.order + 1);
    return order + new_sources_++;
  }

  /// Sources of weight 0 are not part of the blend.
  bool same_blend(const std::vector<std::optional<std::size_t>>& matches) const {
    const auto blended = std::ranges::count_if(
        saved_.sources, [](const SavedSource& one) { return one.weight > 0; });
    if (blended != std::ssize(matches)) return false;
    for (std::size_t i = 0; i < matches.size(); ++i) {
      if (matches[i] != i || saved_.sources[i].weight != now_.data.train[i].weight) return false;
    }
    return true;
  }

  const SavedData& saved_;
  PresentData now_;
  std::vector<bool> taken_;
  bool same_windows_ = false;
  std::int64_t new_sources_ = 0;
  DataPlace place_;
};

}  // namespace

SourceIdentity identity_of(const TokenFile& file) {
  std::vector<std::uint64_t> hashes;
  std::string buffer;
  const File tokens = File::open_to_read(file.path());
  const std::int64_t size = tokens.size();
  add_hash(tokens, 0, header_bytes, buffer, hashes);
  for (std::int64_t i = 0; i < block_count; ++i) {
    const std::int64_t last = std::max<std::int64_t>(0, size - block_bytes);
    add_hash(tokens, last * i / (block_count - 1), block_bytes, buffer, hashes);
  }
  if (file.format() == "megatron") {
    const File index =
        File::open_to_read(std::filesystem::path(file.path()).replace_extension(".idx"));
    for (std::int64_t at = 0; at < index.size(); at += piece_bytes) {
      add_hash(index, at, piece_bytes, buffer, hashes);
    }
  }
  return {size, hash_bytes(std::as_bytes(std::span(hashes)))};
}

std::string storable_name(const std::string& path) {
  std::string name;
  for (const char letter : path) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte >= 0x20 && byte < 0x7f && letter != '%') {
      name += letter;
      continue;
    }
    name += formatted("%{:02x}", byte);
  }
  return name;
}

DataPlace go_on_in_data(const SavedData& saved, std::int64_t samples, const DataConfig& data,
                        const std::vector<SourceIdentity>& identities, std::int64_t seq_length,
                        std::uint64_t seed) {
  return Continuing(saved, {data, identities, seq_length, seed}).make(samples);
}

SavedData saved_data(const DataConfig& data, const std::vector<SourceIdentity>& identities,
                     const DataPosition& position, const std::vector<SavedSource>& absent) {
  SavedData saved{windows_text(data), position.pattern, {}, {}};
  if (data.validation.path) {
    saved.validation =
        SavedSource{.path = storable_name(*data.validation.path), .identity = identities.back()};
  }
  for (std::size_t i = 0; i < data.train.size(); ++i) {
    saved.sources.push_back({storable_name(data.train[i].path), data.train[i].weight, identities[i],
                             position.sources[i]});
  }
  for (SavedSource one : absent) {
    one.weight = 0;
    saved.sources.push_back(std::move(one));
  }
  return saved;
}

namespace {

/// Opens a token file; tokenises a text first unless its tokens are in the cache.
TokenFile open_source(const std::string& path, const Tokenizer& tokenizer, const DataConfig& data) {
  if (!is_text_input(path)) return TokenFile::open(path);
  return TokenFile::open(cached_token_file(path, tokenizer, data.cache_dir, usable_cores()));
}

SplitRule split_rule(const DataConfig& data) {
  const ValidationConfig& validation = data.validation;
  return {.fraction = validation.path ? 0.0 : validation.fraction,
          .blocks = validation.split == "blocks",
          .documents = !data.packing};
}

bool has_text(const DataConfig& data) {
  const auto is_text = [](const DataSource& source) { return is_text_input(source.path); };
  return std::any_of(data.train.begin(), data.train.end(), is_text) ||
         (data.validation.path && is_text_input(*data.validation.path));
}

/// Warns of a model whose output layer is mostly unused: it learns slowly for its size.
void warn_about_vocabulary(const Tokenizer& tokenizer, const ModelShape& model) {
  const std::int64_t known = tokenizer.vocab_size();
  if (model.vocab <= 2 * known) return;
  log_warning(
      formatted("model.vocab_size is {}, but the tokenizer {} has only {} tokens: the text "
                "never has the others",
                model.vocab, tokenizer.specification(), known));
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
    throw Error(ExitCode::config,
                formatted("{}{} has {} tokens, but model.vocab_size is {}: raise it", place,
                          data.tokenizer, tokenizer.vocab_size(), model.vocab));
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

constexpr auto members_of(const SourceIdentity*) {
  return std::tuple(&SourceIdentity::bytes, &SourceIdentity::hash);
}

namespace {

/// Rank 0 computes a value with `make` and sends it to all ranks.
template <class Make>
auto made_by_first(Group& everyone, const char* what, const Make& make) {
  decltype(make()) value;
  while_others_wait(everyone, what, everyone.rank() == 0, [&] { value = make(); });
  broadcast(everyone, value);
  return value;
}

Progress progress_of(const Manifest& manifest) {
  const TrainState& state = manifest.state;
  return {.steps = state.step,
          .samples = state.samples,
          .positions = state.positions,
          .updates = state.updates,
          .planned_steps = manifest.steps,
          .planned = manifest.length};
}

}  // namespace

Continuation read_continuation(const std::filesystem::path& checkpoint, Group& everyone) {
  const std::string text =
      made_by_first(everyone, "the checkpoint", [&] { return read_manifest_text(checkpoint); });
  Continuation continuation;
  continuation.manifest = parse_manifest(text, (checkpoint / manifest_name).string());
  continuation.progress = progress_of(continuation.manifest);
  return continuation;
}

void find_data_place(Continuation& continuation, const Config& config, Group& everyone) {
  continuation.identities =
      made_by_first(everyone, "data.train", [&] { return identify_sources(config.data); });
  const Manifest& manifest = continuation.manifest;
  if (!manifest.data) {
    if (everyone.rank() != 0) return;
    log_info(
        "the checkpoint does not say what its data was: it is taken to be the same, read in "
        "the same blend and seq_length");
    return;
  }
  continuation.data =
      go_on_in_data(*manifest.data, manifest.state.samples, config.data, continuation.identities,
                    config.model.seq_length, config.train.seed);
  if (everyone.rank() != 0) return;
  for (const std::string& note : continuation.data->notes) log_info(note);
}

std::int64_t windows_behind(const Continuation& continuation, const Config& config) {
  Dataset data = open_train_data(config.data, config.model.seq_length, config.train.seed);
  const DataPosition position = continuation.data ? continuation.data->position
                                                  : data.position(continuation.progress.samples);
  data.go_on(position);
  return data.windows_behind();
}

namespace {

void tell_rests(const Dataset& train, const Config& config, const DataPosition& position) {
  for (std::size_t i = 0; i < position.sources.size(); ++i) {
    const std::int64_t rest = train.rest(i);
    if (rest == 0) continue;
    log_info(
        formatted("data: {}: the last {} labels of epoch {} are left out, since they are "
                  "fewer than seq_length {}",
                  config.data.train[i].path, format_grouped(rest), position.sources[i].epoch + 1,
                  train.seq_length()));
  }
}

}  // namespace

TrainingData::TrainingData(Corpus corpus, const Config& config, const Continuation* continuation,
                           Group& everyone)
    : corpus_(std::move(corpus)), config_(config) {
  if (continuation == nullptr) {
    while_others_wait(everyone, "data.train", everyone.rank() == 0,
                      [&] { identities_ = identify_sources(config.data); });
    return;
  }
  if (everyone.rank() == 0) identities_ = continuation->identities;
  if (!continuation->data) return;
  const DataPlace& place = *continuation->data;
  absent_ = place.absent;
  corpus_.train.go_on(place.position);
  if (everyone.rank() == 0) tell_rests(corpus_.train, config, place.position);
}

SavedData TrainingData::saved(std::int64_t samples) const {
  if (identities_.empty()) return {};
  return saved_data(config_.data, identities_, corpus_.train.position(samples), absent_);
}

}  // namespace trainctl
