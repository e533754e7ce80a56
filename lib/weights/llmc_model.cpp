#include "weights/llmc_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/integers.h"
#include "base/text.h"
#include "weights/hugging_face.h"
#include "weights/stored_weights.h"

namespace trainctl {

namespace {

constexpr std::int32_t magic = 20240326;
constexpr std::int32_t fp32_version = 3;
constexpr std::int32_t bf16_version = 5;
constexpr std::size_t header_numbers = 256;
constexpr std::int64_t vocabulary_multiple = 128;
constexpr std::int64_t max_of_a_size = std::int64_t{1} << 24;

/// One stored tensor of the file, or one layer's part of it.
struct Stored {
  std::vector<std::string> ours;  // stacked parameters
  std::int64_t rows = 0;          // rows of each parameter, without padding
  std::int64_t columns = 1;
  std::int64_t padding = 0;  // rows of zeros after them
  std::int64_t elements() const { return (std::ssize(ours) * rows + padding) * columns; }
};

/// A kind of tensor in a layer: "attention.q.weight" for each stacked part.
struct Kind {
  std::vector<const char*> ours;
  std::int64_t rows;
  std::int64_t columns;
};

/// All tensors, in the order of the file.
std::vector<Stored> layout_of(const ModelShape& m, std::int64_t padded_vocab) {
  const std::int64_t c = m.hidden;
  const std::vector<Kind> kinds{
      {{"norm1.weight"}, c, 1},
      {{"norm1.bias"}, c, 1},
      {{"attention.q.weight", "attention.k.weight", "attention.v.weight"}, c, c},
      {{"attention.q.bias", "attention.k.bias", "attention.v.bias"}, c, 1},
      {{"attention.out.weight"}, c, c},
      {{"attention.out.bias"}, c, 1},
      {{"norm2.weight"}, c, 1},
      {{"norm2.bias"}, c, 1},
      {{"mlp.up.weight"}, 4 * c, c},
      {{"mlp.up.bias"}, 4 * c, 1},
      {{"mlp.down.weight"}, c, 4 * c},
      {{"mlp.down.bias"}, c, 1}};
  std::vector<Stored> all{{{"embedding.token.weight"}, m.vocab, c, padded_vocab - m.vocab},
                          {{"embedding.position.weight"}, m.positions, c, 0}};
  for (const Kind& kind : kinds) {
    for (std::int64_t layer = 0; layer < m.layers; ++layer) {
      Stored stored{{}, kind.rows, kind.columns, 0};
      for (const char* name : kind.ours) {
        stored.ours.push_back("layers." + std::to_string(layer) + "." + name);
      }
      all.push_back(std::move(stored));
    }
  }
  all.push_back({{"final_norm.weight"}, c, 1, 0});
  all.push_back({{"final_norm.bias"}, c, 1, 0});
  return all;
}

std::int64_t elements_of(const ModelShape& m, std::int64_t padded_vocab) {
  std::int64_t sum = 0;
  for (const Stored& stored : layout_of(m, padded_vocab)) sum += stored.elements();
  return sum;
}

using Header = std::array<std::int32_t, header_numbers>;

Header read_header(const File& file) {
  Header header{};
  require(file.size() >= static_cast<std::int64_t>(sizeof header), ExitCode::bad_data,
          formatted("{} has {} bytes, too few for the header of llm.c's model file",
                    file.path().string(), file.size()));
  file.read_at(0, {reinterpret_cast<char*>(header.data()), sizeof header});
  require(header[0] == magic, ExitCode::bad_data,
          formatted("{}: the first number is {}, llm.c's model file begins with {}",
                    file.path().string(), header[0], magic));
  require(header[1] == fp32_version || header[1] == bf16_version, ExitCode::bad_data,
          formatted("{}: version {} is not read; expected 3 (fp32) or 5 (bf16)",
                    file.path().string(), header[1]));
  const char* const names[] = {"positions", "tokens",   "layers",
                               "heads",     "channels", "padded tokens"};
  for (std::size_t i = 2; i <= 7; ++i) {
    require(header[i] >= 1 && header[i] <= max_of_a_size, ExitCode::bad_data,
            formatted("{}: header number {} ({}) is {}, expected 1 to {}", file.path().string(), i,
                      names[i - 2], header[i], max_of_a_size));
  }
  require(header[4] <= 10'000, ExitCode::bad_data,
          formatted("{} gives {} layers", file.path().string(), header[4]));
  require(header[6] % header[5] == 0 && header[7] >= header[3], ExitCode::bad_data,
          file.path().string() + ": the header's channels, heads and tokens do not fit together");
  return header;
}

}  // namespace

LlmcWeights::LlmcWeights(const std::filesystem::path& path) : file_(File::open_to_read(path)) {
  const Header header = read_header(file_);
  dtype_ = header[1] == fp32_version ? DType::f32 : DType::bf16;
  shape_.positions = header[2];
  shape_.vocab = header[3];
  shape_.layers = header[4];
  shape_.heads = header[5];
  shape_.hidden = header[6];
  padded_vocab_ = header[7];
  const double width = static_cast<double>(shape_.hidden);
  const double estimate = 12.0 * static_cast<double>(shape_.layers) * width * width;
  require(estimate < 1e15, ExitCode::bad_data,
          path.string() + " describes a model that is too large");
  const std::int64_t expected = static_cast<std::int64_t>(sizeof header) +
                                elements_of(shape_, padded_vocab_) * size_of(dtype_);
  require(
      file_.size() == expected, ExitCode::bad_data,
      formatted("{} has {} bytes, its header describes {}", path.string(), file_.size(), expected));
}

void LlmcWeights::read(const std::string& name, const MatrixBox& box, float* out) const {
  std::int64_t before = 0;  // elements before the parameter in the file
  for (const Stored& stored : layout_of(shape_, padded_vocab_)) {
    const auto found = std::find(stored.ours.begin(), stored.ours.end(), name);
    if (found == stored.ours.end()) {
      before += stored.elements();
      continue;
    }
    before += (found - stored.ours.begin()) * stored.rows * stored.columns;
    const std::int64_t start = static_cast<std::int64_t>(sizeof(Header)) + before * size_of(dtype_);
    return read_box(
        {dtype_, stored.columns,
         [&](std::int64_t begin, std::span<char> bytes) { file_.read_at(start + begin, bytes); }},
        box, false, out);
  }
  throw Error(ExitCode::internal, "no stored tensor for " + name);
}

ModelConfig LlmcWeights::model() const {
  ModelConfig model;
  model.family = "gpt2";
  model.num_layers = shape_.layers;
  model.hidden_size = shape_.hidden;
  model.num_attention_heads = shape_.heads;
  model.seq_length = shape_.positions;
  model.vocab_size = shape_.vocab;
  model.ffn_hidden_size = 4 * shape_.hidden;
  model.max_position_embeddings = shape_.positions;
  model.tie_word_embeddings = true;
  model.add_bias_linear = true;
  model.add_qkv_bias = true;
  model.norm_epsilon = 1e-5;
  return model;
}

std::string unknown_to_llmc(const ModelShape& model) {
  if (model.family != "gpt2") return "llm.c's file holds GPT-2 only";
  const std::string form = unusual_form(model);
  if (!form.empty()) return "llm.c has no model." + form;
  if (model.experts > 1) return "llm.c has no experts";
  if (!model.tied) return "llm.c ties the output layer to the token embedding";
  if (!model.out_bias || !model.mlp_bias || !model.qkv_bias) {
    return "llm.c has biases in every linear layer";
  }
  if (model.kind(0).ffn != 4 * model.hidden) return "llm.c has an MLP of 4 x the width";
  if (model.kind(0).kv_heads != model.heads) return "llm.c has one key head per query head";
  if (model.q_features() != model.hidden) return "llm.c has heads of width / heads";
  if (model.norm_epsilon != 1e-5) return "llm.c adds 1e-5 to the variance in norms";
  return "";
}

void write_llmc_model(const std::filesystem::path& path, const ModelShape& model,
                      const StoredWeights& weights, DType stored) {
  const std::int64_t padded = round_up(model.vocab, vocabulary_multiple);
  const auto number = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  Header header{magic,
                stored == DType::f32 ? fp32_version : bf16_version,
                number(model.positions),
                number(model.vocab),
                number(model.layers),
                number(model.heads),
                number(model.hidden),
                number(padded)};
  WholeFile file(path);
  file.write({reinterpret_cast<const char*>(header.data()), sizeof header});
  std::vector<float> values;
  std::vector<char> bytes;
  for (const Stored& part : layout_of(model, padded)) {
    const std::int64_t at_a_time = std::max<std::int64_t>(1, elements_at_a_time / part.columns);
    for (const std::string& name : part.ours) {
      for (std::int64_t row = 0; row < part.rows; row += at_a_time) {
        const std::int64_t rows = std::min(at_a_time, part.rows - row);
        values.resize(static_cast<std::size_t>(rows * part.columns));
        weights.read(name, {.row = row, .rows = rows, .columns = part.columns}, values.data());
        bytes.resize(values.size() * static_cast<std::size_t>(size_of(stored)));
        store_values(stored, values.data(), std::ssize(values), bytes.data());
        file.write(bytes);
      }
    }
    bytes.assign(static_cast<std::size_t>(part.padding * part.columns * size_of(stored)), '\0');
    file.write(bytes);
  }
  file.publish();
}

}  // namespace trainctl
