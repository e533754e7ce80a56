#include "data/tokenizer/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "data/tokenizer/hf/hf_tokenizer.h"
#include "data/tokenizer/hf/unicode.h"

namespace trainctl {

// A SentencePiece model behind plain types; the library's headers stay in one source file.

class SentencePieceModel {
 public:
  /// Throws Error{missing_input | bad_data}.
  explicit SentencePieceModel(const std::filesystem::path& model);
  ~SentencePieceModel();

  /// Appends the tokens of `text`; thread-safe.
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;
  /// Tokens outside the vocabulary become the unknown token.
  std::string decode(const std::vector<std::int32_t>& tokens) const;
  /// The number of text bytes of a token: one for each mark of a space, also for a first mark that
  /// the decoder leaves out; one for a byte; none for a control token.
  std::int64_t bytes_of(std::int32_t token) const;
  std::int64_t vocab_size() const;
  /// The token's id; nothing if the model has none.
  std::optional<std::int32_t> begin_token() const;
  std::optional<std::int32_t> end_token() const;
  std::optional<std::int32_t> padding_token() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace {

std::optional<std::int32_t> known(int id) { return id >= 0 ? std::optional(id) : std::nullopt; }

}  // namespace

struct SentencePieceModel::Impl {
  std::filesystem::path path;
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceModel::SentencePieceModel(const std::filesystem::path& model)
    : impl_(std::make_unique<Impl>()) {
  impl_->path = model;
  const File file = File::open_to_read(model);
  std::string bytes(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, bytes);
  const auto status = impl_->processor.LoadFromSerializedProto(bytes);
  require(!bytes.empty() && status.ok(), ExitCode::bad_data,
          model.string() + ": not a SentencePiece model" +
              (status.ok() ? "" : " (" + status.ToString() + ")"));
}

SentencePieceModel::~SentencePieceModel() = default;

void SentencePieceModel::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  std::vector<int> ids;
  const auto status = impl_->processor.Encode(text, &ids);
  require(status.ok(), ExitCode::bad_data,
          impl_->path.string() + ": cannot encode text: " + status.ToString());
  out.insert(out.end(), ids.begin(), ids.end());
}

std::string SentencePieceModel::decode(const std::vector<std::int32_t>& tokens) const {
  std::vector<int> ids(tokens.begin(), tokens.end());
  for (int& id : ids) {
    if (id < 0 || id >= impl_->processor.GetPieceSize()) id = impl_->processor.unk_id();
  }
  std::string text;
  const auto status = impl_->processor.Decode(ids, &text);
  require(status.ok(), ExitCode::bad_data,
          impl_->path.string() + ": cannot decode tokens: " + status.ToString());
  return text;
}

std::int64_t SentencePieceModel::bytes_of(std::int32_t token) const {
  const sentencepiece::SentencePieceProcessor& processor = impl_->processor;
  if (token < 0 || token >= processor.GetPieceSize()) token = processor.unk_id();
  if (processor.IsByte(token)) return 1;
  if (processor.IsControl(token) || processor.IsUnknown(token)) return std::ssize(decode({token}));
  constexpr std::string_view space = "\u2581";
  const std::string& piece = processor.IdToPiece(token);
  auto bytes = std::ssize(piece);
  for (std::size_t at = piece.find(space); at != std::string::npos;
       at = piece.find(space, at + space.size())) {
    bytes -= std::ssize(space) - 1;
  }
  return bytes;
}

std::int64_t SentencePieceModel::vocab_size() const { return impl_->processor.GetPieceSize(); }

std::optional<std::int32_t> SentencePieceModel::begin_token() const {
  return known(impl_->processor.bos_id());
}

std::optional<std::int32_t> SentencePieceModel::end_token() const {
  return known(impl_->processor.eos_id());
}

std::optional<std::int32_t> SentencePieceModel::padding_token() const {
  return known(impl_->processor.pad_id());
}

namespace {

using hf::HfTokenizer;

struct Bytes {};

constexpr std::string_view sentencepiece_prefix = "sentencepiece:";
constexpr std::string_view hf_prefix = "hf:";

void encode_bytes(std::string_view text, std::vector<std::int32_t>& out) {
  const std::size_t before = out.size();
  out.resize(before + text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    out[before + i] = static_cast<unsigned char>(text[i]);
  }
}

std::string decode_bytes(const std::vector<std::int32_t>& tokens) {
  std::string text;
  text.reserve(tokens.size());
  for (std::int32_t token : tokens) {
    if (token >= 0 && token < 256) {
      text += static_cast<char>(token);
    } else {
      text += hf::replacement;
    }
  }
  return text;
}

/// The path behind the prefix of a specification.
std::string path_in(const std::string& specification, std::string_view prefix,
                    const std::string& form) {
  require(specification.size() > prefix.size(), ExitCode::usage,
          "tokenizer \"" + specification + "\" names no model: " + form);
  return specification.substr(prefix.size());
}

/// The folder of "hf:DIR". If it is missing, the error tells how to fetch a model of the hub.
std::string folder_of_model(const std::string& path) {
  if (kind_of_file(path) != FileKind::none) return path;
  const bool may_be_hub = path[0] != '/' && path[0] != '.' && std::ranges::count(path, '/') <= 1;
  const std::string name = std::filesystem::path(path).filename().string();
  throw Error(ExitCode::missing_input,
              "hf:" + path + ": no folder with a tokenizer.json of this name" +
                  (may_be_hub ? "; a model of the hub is fetched with: hf download " + path +
                                    " --local-dir " + name
                              : ""));
}

}  // namespace

struct Tokenizer::Impl {
  std::string specification;
  std::variant<Bytes, SentencePieceModel, HfTokenizer> kind;

  const SentencePieceModel* sentencepiece() const { return std::get_if<SentencePieceModel>(&kind); }
  const HfTokenizer* hf() const { return std::get_if<HfTokenizer>(&kind); }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::open(const std::string& specification) {
  auto impl = std::make_unique<Impl>();
  impl->specification = specification;
  if (specification.starts_with(sentencepiece_prefix)) {
    impl->kind.emplace<SentencePieceModel>(
        path_in(specification, sentencepiece_prefix, "sentencepiece:MODEL"));
  } else if (specification.starts_with(hf_prefix)) {
    impl->kind.emplace<HfTokenizer>(folder_of_model(path_in(specification, hf_prefix, "hf:DIR")));
  } else {
    require(specification == "byte", ExitCode::usage,
            "unknown tokenizer \"" + specification + "\": byte, sentencepiece:MODEL or hf:DIR");
  }
  return Tokenizer(std::move(impl));
}

void Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& out,
                       bool continues) const {
  if (const auto* model = impl_->sentencepiece()) return model->encode(text, out);
  if (const auto* model = impl_->hf()) return model->encode(text, continues, out);
  encode_bytes(text, out);
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& tokens) const {
  if (const auto* model = impl_->sentencepiece()) return model->decode(tokens);
  if (const auto* model = impl_->hf()) return model->decode(tokens);
  return decode_bytes(tokens);
}

std::int64_t Tokenizer::bytes_of(std::int32_t token) const {
  if (const auto* model = impl_->sentencepiece()) return model->bytes_of(token);
  if (const auto* model = impl_->hf()) return std::ssize(model->bytes_of(token));
  return std::ssize(decode_bytes({token}));
}

std::int64_t Tokenizer::vocab_size() const {
  if (const auto* model = impl_->sentencepiece()) return model->vocab_size();
  if (const auto* model = impl_->hf()) return model->vocab_size();
  return 256;
}

std::vector<std::int32_t> Tokenizer::before_document() const {
  const auto* model = impl_->hf();
  return model != nullptr ? model->frame().before : std::vector<std::int32_t>{};
}

std::vector<std::int32_t> Tokenizer::after_document() const {
  const auto* model = impl_->hf();
  return model != nullptr ? model->frame().after : std::vector<std::int32_t>{};
}

std::optional<std::int32_t> Tokenizer::begin_token() const {
  if (const auto* model = impl_->sentencepiece()) return model->begin_token();
  if (const auto* model = impl_->hf()) return model->special().bos;
  return std::nullopt;
}

std::optional<std::int32_t> Tokenizer::end_token() const {
  if (const auto* model = impl_->sentencepiece()) return model->end_token();
  if (const auto* model = impl_->hf()) return model->special().eos;
  return std::nullopt;
}

std::optional<std::int32_t> Tokenizer::padding_token() const {
  if (const auto* model = impl_->sentencepiece()) return model->padding_token();
  if (const auto* model = impl_->hf()) return model->special().pad;
  return std::nullopt;
}

std::vector<std::int32_t> Tokenizer::stop_tokens() const {
  if (const auto* model = impl_->hf()) return model->special().stops;
  const auto end = end_token();
  return end ? std::vector<std::int32_t>{*end} : std::vector<std::int32_t>{};
}

const std::string& Tokenizer::specification() const { return impl_->specification; }

std::vector<std::filesystem::path> Tokenizer::files() const {
  if (const auto* model = impl_->hf()) return model->files();
  if (impl_->sentencepiece() == nullptr) return {};
  return {impl_->specification.substr(sentencepiece_prefix.size())};
}

std::string TextStream::add(std::int32_t token) {
  const std::int32_t before = std::exchange(last_, token);
  if (const auto* model = tokenizer_.impl_->hf()) {
    unfinished_ += model->bytes_of(token);
    const std::size_t held = hf::unfinished_bytes(unfinished_);
    const std::string shown = unfinished_.substr(0, unfinished_.size() - held);
    unfinished_.erase(0, shown.size());
    return hf::replace_invalid(shown);
  }
  // The text of a SentencePiece token can depend on the one before: show the text that is added.
  const std::string first = tokenizer_.decode({before});
  const std::string both = tokenizer_.decode({before, token});
  return both.starts_with(first) ? both.substr(first.size()) : tokenizer_.decode({token});
}

std::string TextStream::finish() {
  return std::exchange(unfinished_, "").empty() ? "" : std::string(hf::replacement);
}

}  // namespace trainctl
