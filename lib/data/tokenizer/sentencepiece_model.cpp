#include "data/tokenizer/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include "base/error.h"
#include "base/file.h"

namespace trainctl {

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

}  // namespace trainctl
