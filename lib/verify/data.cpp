#include "verify/data.h"

#include <filesystem>
#include <string>

#include "base/philox.h"
#include "data/token_file.h"

namespace trainctl {

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
  // The rest of a sequence is padding: without packing, and in a validation's last windows.
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

/// Documents that are joined: what `samples` sequences need.
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

/// Documents of one row each.
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
  std::size_t next = 1;  // document
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
