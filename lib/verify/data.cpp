#include "verify/data.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/at.h"
#include "base/error.h"
#include "base/philox.h"
#include "data/token_file.h"
#include "run/prepare.h"

namespace trainctl {

namespace {

/// Shortens the schedule so that explicitly given steps end at step `end`. An end that is not given
/// follows from the length of the run, as in training.
void shorten(LrScheduleConfig& schedule, std::int64_t end) {
  schedule.warmup_ratio.reset();  // warmup_steps already includes it
  if (schedule.style == LrStyle::constant) {
    schedule.warmup_steps = std::min(schedule.warmup_steps, end - 1);
    return;
  }
  if (schedule.decay_steps) schedule.decay_steps = std::min(*schedule.decay_steps, end);
  schedule.warmup_steps = std::min(schedule.warmup_steps, end / 2);
  if (schedule.wsd_decay_steps) {
    schedule.wsd_decay_steps = std::min(*schedule.wsd_decay_steps,
                                        schedule.decay_steps.value_or(end) - schedule.warmup_steps);
  }
}

}  // namespace

Day day_of(const Config& config, std::int64_t steps) {
  const std::int64_t prepared = std::max<std::int64_t>(1, config.data.prefetch) + 1;
  const std::int64_t all = std::max(steps, 2 * prepared + 1);
  return {all, all / 2};
}

Config config_of_day(Config config, const Day& day) {
  const std::int64_t end = day.steps - 2;
  config.train.steps = day.steps;
  config.train.tokens.reset();
  config.train.epochs.reset();
  shorten(config.lr_schedule, end);
  OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.weight_decay_incr_steps) {
    optimizer.weight_decay_incr_steps = std::min(*optimizer.weight_decay_incr_steps, end);
  }
  // Every step has at least the first batch size of a ramp, so this ends the ramp by step `end`.
  if (auto& ramp = config.train.rampup_batch_size; ramp && ramp->size() == 3) {
    (*ramp)[2] = std::min((*ramp)[2], (*ramp)[0] * end);
  }
  config.checkpoint.every = day.noon;
  config.checkpoint.asynchronous = true;
  return config;
}

Plan plan_of_day(const Config& config, const Plan& plan, const Progress& done) {
  const std::int64_t ranks = plan.mesh.world_size();
  const Site site{.world_size = ranks,
                  .ranks_per_host = ranks,
                  .cores_per_host = ranks,
                  .device = plan.device,
                  .cudnn = plan.cudnn.has_value(),
                  .done = done};
  // Prepared like a run's file, so that schedules continue from the finished steps.
  ReadResult read;
  read.config = config;
  read.complete = true;
  Plan found = prepare(read, site, Purpose::verify);
  require(!read.diagnostics.has_errors(), ExitCode::config,
          "the free run of this layout is not legal: " + render_text(read.diagnostics, false));
  return found;
}

namespace {

constexpr std::int64_t key_tokens = 8;  // tokens in the key that finds a sample in the file

void count(OrderCount& broken, std::int64_t step) {
  if (broken.samples++ == 0) broken.step = step;
}

}  // namespace

/// A sample: its inputs with labels, the number of labels, and the last label.
struct DataOrder::Row {
  const std::int32_t* tokens;
  std::int64_t labels;
  std::int32_t last;
};

DataOrder::DataOrder(const FileTokens& file, std::int64_t seq_length, bool shuffle)
    : file_(file), shuffle_(shuffle) {
  const auto count = std::ssize(file.tokens);
  if (file.documents.empty()) {
    windows_ = (count - 1) / seq_length;
    for (std::int64_t i = 0; i + seq_length < count; ++i) {
      places_.emplace(key_of(&file.tokens[static_cast<std::size_t>(i)], seq_length), i);
    }
    return;
  }
  windows_ = std::ssize(file.documents);
  for (std::int64_t i = 0; i < windows_; ++i) {
    const std::int64_t begin = at(file.documents, i);
    const std::int64_t end = i + 1 < windows_ ? at(file.documents, i + 1) : count;
    places_.emplace(key_of(&file.tokens[static_cast<std::size_t>(begin)], end - begin - 1), begin);
  }
}

std::uint64_t DataOrder::key_of(const std::int32_t* tokens, std::int64_t count) const {
  std::uint64_t key = 0;
  for (std::int64_t i = 0; i < std::min(count, key_tokens); ++i) {
    key = key * 1'000'003 + static_cast<std::uint64_t>(tokens[i]) + 1;
  }
  return key;
}

bool DataOrder::matches(const Row& row, std::int64_t place) const {
  const auto begin = file_.tokens.begin() + place;
  return place + row.labels < std::ssize(file_.tokens) &&
         std::equal(row.tokens, row.tokens + row.labels, begin) && begin[row.labels] == row.last;
}

/// The first place of this sample in the file, unused in this epoch if possible; -1 if none.
std::int64_t DataOrder::place_of(const Row& row) const {
  std::int64_t had = -1;
  std::int64_t found = -1;
  const auto [first, last] = places_.equal_range(key_of(row.tokens, row.labels));
  for (auto one = first; one != last; ++one) {
    const std::int64_t place = one->second;
    if (!matches(row, place)) continue;
    const bool again = std::ranges::find(epoch_, place) != epoch_.end();
    std::int64_t& taken = again ? had : found;
    if (taken < 0 || place < taken) taken = place;
  }
  return found < 0 ? had : found;
}

void DataOrder::add(std::int64_t step, const Batch& batch) {
  const auto rows = std::ssize(batch.real);
  for (std::int64_t row = 0; row < rows; ++row) {
    if (std::ssize(epoch_) == windows_) {
      before_ = std::move(epoch_);
      epoch_.clear();
    }
    const auto first = static_cast<std::size_t>(row * batch.length);
    const std::int64_t labels = at(batch.real, row);
    const std::int64_t place = place_of(
        {&batch.tokens[first], labels, batch.labels[first + static_cast<std::size_t>(labels) - 1]});
    if (place < 0) count(missing_, step);
    if (place >= 0 && std::ranges::find(epoch_, place) != epoch_.end()) count(twice_, step);
    if (!shuffle_ && !epoch_.empty() && place <= epoch_.back()) count(other_, step);
    if (!before_.empty()) {
      ++repeated_;
      if (at(before_, std::ssize(epoch_)) == place) count(alike_, step);
    }
    epoch_.push_back(place);
  }
}

std::vector<OrderCount> DataOrder::broken() const {
  std::vector<OrderCount> all{missing_, twice_, other_};
  // Some samples keep their place by chance.
  constexpr std::int64_t enough = 8;
  if (shuffle_ && repeated_ >= enough && 2 * alike_.samples > repeated_) all.push_back(alike_);
  std::erase_if(all, [](const OrderCount& one) { return one.samples == 0; });
  return all;
}

namespace {

constexpr std::uint64_t token_stream = 0x746F6B656E73;
constexpr std::uint64_t end_stream = 0x656E6473;
constexpr std::uint64_t weight_stream = 0x77656967687473;

void put_sample(const Config& config, std::int64_t sample, std::size_t row, Batch& batch) {
  const std::int64_t length = config.model.seq_length;
  const Philox tokens(config.train.seed, token_stream);
  const Philox weights(config.train.seed, weight_stream);
  const auto vocabulary = static_cast<std::uint32_t>(config.model.vocab_size);
  const auto first = static_cast<std::uint64_t>(sample * (length + 1));
  const auto token = [&](std::int64_t place) {
    const std::uint32_t bits = tokens.bits(first + static_cast<std::uint64_t>(place));
    return static_cast<std::int32_t>(bits % vocabulary);
  };
  // A sequence may end early with padding, as without packing and in a validation's last windows.
  const std::uint32_t drawn =
      Philox(config.train.seed, end_stream).bits(static_cast<std::uint64_t>(sample));
  const bool ends = !config.data.packing || (drawn >> 16) % 4 == 0;
  const std::int64_t end = ends ? 1 + static_cast<std::int64_t>(drawn) % length : length;
  batch.real[row] = end;
  std::int32_t document = 0;
  std::int32_t position = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const std::uint32_t bits = weights.bits(first + static_cast<std::uint64_t>(i));
    if (i > 0 && (bits >> 8) % 8 == 0) {
      ++document;
      if (config.data.reset_position_ids) position = 0;
    }
    const float weight = i >= end || bits % 8 == 0 ? 0.0F : bits % 8 == 1 ? 0.25F : 1.0F;
    const std::size_t at = row * static_cast<std::size_t>(length) + static_cast<std::size_t>(i);
    batch.tokens[at] = token(i);
    batch.labels[at] = token(i + 1);
    batch.loss_weight[at] = weight;
    batch.position[at] = position++;
    batch.document[at] = document;
    batch.global_token[at] = sample * length + i;
    batch.weight_sum += static_cast<double>(weight);
  }
}

constexpr std::uint64_t file_stream = 0x66696C6573;

std::int32_t end_token(const Config& config) {
  return static_cast<std::int32_t>(config.data.eod_token.value_or(config.model.vocab_size - 1));
}

/// Makes enough joined documents for `samples` sequences.
FileTokens joined_documents(const Config& config, const Philox& random, std::int64_t samples) {
  const auto vocabulary = static_cast<std::uint32_t>(config.model.vocab_size);
  const std::int64_t count = samples * config.model.seq_length + 1;
  FileTokens file;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = random.bits(static_cast<std::uint64_t>(i));
    const auto token = static_cast<std::int32_t>((bits >> 3) % vocabulary);
    file.tokens.push_back(bits % 8 == 0 ? end_token(config) : token);
  }
  return file;
}

/// Makes one separate document per sample, each no longer than a sequence.
FileTokens documents_of_rows(const Config& config, const Philox& random, std::int64_t samples) {
  const auto vocabulary = static_cast<std::uint32_t>(config.model.vocab_size);
  const auto length = static_cast<std::uint32_t>(config.model.seq_length);
  FileTokens file;
  std::uint64_t draw = 0;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    file.documents.push_back(std::ssize(file.tokens));
    const std::uint32_t labels = 1 + random.bits(draw++) % length;
    for (std::uint32_t i = 0; i < labels; ++i) {
      file.tokens.push_back(static_cast<std::int32_t>(random.bits(draw++) % vocabulary));
    }
    file.tokens.push_back(end_token(config));
  }
  return file;
}

FileTokens write_tokens(const Config& config, const std::filesystem::path& prefix,
                        std::int64_t samples, std::uint64_t part) {
  const Philox random(config.train.seed, file_stream + part);
  FileTokens file =
      (config.data.packing ? joined_documents : documents_of_rows)(config, random, samples);
  TokenWriter writer(prefix, config.model.vocab_size);
  const std::int32_t end = end_token(config);
  std::size_t next = 1;  // the next document's index
  for (std::int64_t i = 0; i < std::ssize(file.tokens); ++i) {
    const bool starts = next < file.documents.size() && file.documents[next] == i;
    if (starts) ++next;
    if (starts) writer.end_document(-1);
    const std::int32_t token = file.tokens[static_cast<std::size_t>(i)];
    writer.append({&token, 1});
    if (file.documents.empty() && token == end) writer.end_document(-1);
  }
  writer.end_document(-1);
  writer.commit();
  return file;
}

}  // namespace

TemporaryFolder verify_folder() {
  return TemporaryFolder(std::filesystem::temp_directory_path() / "trainctl-verify",
                         "; TMPDIR may name another place");
}

FreeData::FreeData(const Config& config, std::int64_t samples) : end_token_(end_token(config)) {
  training_ = write_tokens(config, folder_.path() / "train", (samples - 1) / 2, 0);
  const std::int64_t windows = config.train.global_batch_size / 2 + 1;
  write_tokens(config, folder_.path() / "validation", windows, 1);
}

DataConfig FreeData::section(DataConfig data) const {
  const std::int64_t counted = data.validation.max_sequences;
  data.train = {{(folder_.path() / "train").string(), 1.0}};
  data.validation = {.path = (folder_.path() / "validation").string(), .max_sequences = counted};
  data.eod_token = end_token_;
  return data;
}

Corpus FreeData::open(const Config& config, const ModelShape& model, Group& everyone) {
  const bool first = everyone.rank() == 0;
  return open_corpus(config.data, Tokenizer::open("byte"), model, config.train.seed, everyone,
                     first);
}

std::int64_t first_sequence(const Plan& plan, std::int64_t data_rank, std::int64_t microbatch) {
  return (microbatch * plan.mesh.dp + data_rank) * plan.micro_batch_size;
}

std::vector<Batch> made_up_batches(const Config& config, const Plan& plan, std::int64_t data_rank,
                                   std::int64_t first_sample) {
  std::vector<Batch> batches(static_cast<std::size_t>(plan.microbatches));
  std::int64_t microbatch = 0;
  for (Batch& batch : batches) {
    resize(batch, plan.fed_sequences(), plan.model.seq_length);
    const std::int64_t first =
        first_sample + first_sequence(plan, plan.full_batch ? 0 : data_rank, microbatch++);
    for (std::int64_t row = 0; row < plan.fed_sequences(); ++row) {
      put_sample(config, first + row, static_cast<std::size_t>(row), batch);
    }
    if (plan.length_step > 0) shorten(batch, plan.length_step);
  }
  return batches;
}

}  // namespace trainctl
