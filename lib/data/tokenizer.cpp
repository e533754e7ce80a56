#include "data/tokenizer.h"

#include <utility>

#include "base/error.h"
#include "data/tokenizer_sentencepiece.h"

namespace trainctl {

struct Tokenizer::Impl {
  std::string specification;
  std::unique_ptr<SentencePieceModel> model;  // null: bytes
};

namespace {

constexpr std::string_view sentencepiece_prefix = "sentencepiece:";

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
      text += "\xef\xbf\xbd";  // U+FFFD, the replacement character
    }
  }
  return text;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::open(const std::string& specification) {
  auto impl = std::make_unique<Impl>();
  impl->specification = specification;
  if (specification.starts_with(sentencepiece_prefix)) {
    const std::string model = specification.substr(sentencepiece_prefix.size());
    require(!model.empty(), ExitCode::usage,
            "tokenizer \"" + specification + "\" names no model: sentencepiece:MODEL");
    impl->model = std::make_unique<SentencePieceModel>(model);
  } else {
    require(specification == "byte", ExitCode::usage,
            "unknown tokenizer \"" + specification + "\": byte or sentencepiece:MODEL");
  }
  return Tokenizer(std::move(impl));
}

void Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  if (impl_->model) return impl_->model->encode(text, out);
  encode_bytes(text, out);
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& tokens) const {
  return impl_->model ? impl_->model->decode(tokens) : decode_bytes(tokens);
}

std::int64_t Tokenizer::vocab_size() const {
  return impl_->model ? impl_->model->vocab_size() : 256;
}

std::int32_t Tokenizer::end_of_document() const {
  return impl_->model ? impl_->model->end_of_sentence() : -1;
}

const std::string& Tokenizer::specification() const { return impl_->specification; }

}  // namespace trainctl
