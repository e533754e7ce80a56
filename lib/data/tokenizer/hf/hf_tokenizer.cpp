#include "data/tokenizer/hf/hf_tokenizer.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "data/tokenizer/hf/byte_alphabet.h"
#include "data/tokenizer/hf/splitter.h"
#include "data/tokenizer/hf/utf8.h"
#include "data/tokenizer/hf/word_cache.h"

namespace trainctl::hf {

namespace {

/// What one thread needs to encode.
struct Workspace {
  Matcher matcher;
  BytePairs::Workspace pairs;
  WordCache words;
  std::vector<TextPart> raw;
  std::vector<TextPart> parts;
  std::string normal;
};

/// Workspaces that no thread is using: they stay warm from one text to the next.
class Workspaces {
 public:
  std::unique_ptr<Workspace> take() {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    auto workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void give_back(std::unique_ptr<Workspace> workspace) {
    const std::scoped_lock lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

std::filesystem::path file_of(const std::filesystem::path& path) {
  return kind_of_file(path) == FileKind::folder ? path / "tokenizer.json" : path;
}

/// The document, after a check of its top keys that are not parts of the tokenizer.
const JsonValue& checked(const JsonValue& root) {
  root.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer",
                   "pre_tokenizer", "post_processor", "decoder", "model"});
  const JsonValue version = root["version"];
  if (!version.is_null() && version.text() != "1.0") {
    version.refuse(in_quotes(version.text()) + ": only 1.0 is known");
  }
  for (const char* name : {"truncation", "padding"}) {
    if (!root[name].is_null()) root[name].refuse("is not built: null");
  }
  return root;
}

/// Other decoders than this one would change the text.
void check_decoder(const JsonValue& decoder, int depth = 0) {
  if (decoder.is_null()) decoder.refuse("expected a ByteLevel decoder, found null");
  if (depth == deepest_sequence) decoder.refuse("sequences nest more than 16 deep");
  const std::string type = decoder["type"].text();
  if (type == "ByteLevel") return;
  if (type != "Sequence") {
    decoder["type"].refuse("decoder " + in_quotes(type) + " is not built: ByteLevel");
  }
  int count = 0;
  decoder["decoders"].each_item([&](const JsonValue& item) {
    if (++count == 2) item.refuse("is not built: ByteLevel alone");
    check_decoder(item, depth + 1);
  });
  if (count == 0) decoder["decoders"].refuse("expected a ByteLevel decoder, found none");
}

/// Only where ByteLevel is the whole pre-tokenizer can tokenizer_config.json change it.
std::optional<bool> prefix_space_of(const JsonValue& pre_tokenizer) {
  const bool is_whole = pre_tokenizer["type"].text() == "ByteLevel";
  return is_whole ? std::optional(pre_tokenizer["add_prefix_space"].flag()) : std::nullopt;
}

}  // namespace

struct HfTokenizer::Impl {
  Impl(const std::filesystem::path& path, const JsonValue& root)
      : pairs(checked(root)["model"]),
        normalizer(root["normalizer"]),
        splitter(root["pre_tokenizer"]),
        added(root["added_tokens"], pairs, normalizer) {
    check_decoder(root["decoder"]);
    set_bytes();
    frame = read_post_processor(root["post_processor"], std::ssize(bytes));
    special = read_special_tokens(path.parent_path(),
                                  {.added = added.all(),
                                   .frame = frame,
                                   .id_of = [this](const std::string& name) { return id_of(name); },
                                   .vocab_size = std::ssize(bytes),
                                   .prefix_space = prefix_space_of(root["pre_tokenizer"])});
    files = special.read_from;
    files.push_back(path);
  }

  /// Added tokens stand for themselves, the others for bytes if they can. (The reference library
  /// reads added tokens as bytes too, and so garbles those with accents.)
  void set_bytes() {
    bytes.resize(pairs.tokens().size());
    for (std::size_t id = 0; id < bytes.size(); ++id) {
      const std::string& token = pairs.tokens()[id];
      bytes[id] = bytes_of_token(token).value_or(token);
    }
    for (const AddedToken& token : added.all()) {
      const auto id = static_cast<std::size_t>(token.id);
      bytes.resize(std::max(id + 1, bytes.size()));
      bytes[id] = token.content;
    }
  }

  std::optional<std::int32_t> id_of(const std::string& name) const {
    for (const AddedToken& token : added.all()) {
      if (token.content == name) return token.id;
    }
    return pairs.id_of(name);
  }

  void encode_word(std::string_view word, Workspace& work, std::vector<std::int32_t>& out) const {
    const auto known = work.words.find(word);
    if (!known.empty()) {
      out.insert(out.end(), known.begin(), known.end());
      return;
    }
    const std::size_t before = out.size();
    pairs.encode(word, work.pairs, out);
    work.words.keep(word, std::span(out).subspan(before));
  }

  void encode_valid(std::string_view text, bool continues, Workspace& work,
                    std::vector<std::int32_t>& out) const {
    const Splitter::Take take = [&](std::string_view word) { encode_word(word, work, out); };
    work.raw.clear();
    added.cut_raw(text, work.matcher, work.raw);
    for (const TextPart& raw : work.raw) {
      if (raw.token >= 0) {
        out.push_back(raw.token);
        continue;
      }
      const bool is_first = raw.text.data() == text.data();
      const std::string_view normal = normalizer.apply(raw.text, work.normal);
      work.parts.clear();
      added.cut_normalized(normal, work.matcher, work.parts);
      for (const TextPart& part : work.parts) {
        if (part.token >= 0) {
          out.push_back(part.token);
          continue;
        }
        const bool goes_on = continues && is_first && part.text.data() == normal.data();
        splitter.split(part.text, goes_on, work.matcher, take);
      }
    }
  }

  BytePairs pairs;
  Normalizer normalizer;
  Splitter splitter;
  AddedTokens added;
  std::vector<std::string> bytes;  // of each token; empty: no token
  TextFrame frame;
  SpecialTokens special;
  std::vector<std::filesystem::path> files;
  mutable Workspaces workspaces;
  mutable std::atomic<bool> has_warned = false;
};

HfTokenizer::HfTokenizer(const std::filesystem::path& path) {
  const JsonFile file(file_of(path));
  impl_ = std::make_unique<Impl>(file_of(path), file.root());
}

HfTokenizer::~HfTokenizer() = default;

void HfTokenizer::encode(std::string_view text, bool continues,
                         std::vector<std::int32_t>& out) const {
  std::string replaced;
  if (valid_prefix(text) != text.size()) {
    replaced = replace_invalid(text);
    text = replaced;
    if (!impl_->has_warned.exchange(true)) {
      log_warning("text that is not valid UTF-8: each invalid sequence of bytes becomes U+FFFD");
    }
  }
  auto workspace = impl_->workspaces.take();
  impl_->encode_valid(text, continues, *workspace, out);
  impl_->workspaces.give_back(std::move(workspace));
}

std::string HfTokenizer::decode(const std::vector<std::int32_t>& tokens) const {
  std::string bytes;
  for (const std::int32_t token : tokens) bytes += bytes_of(token);
  return replace_invalid(bytes);
}

std::string_view HfTokenizer::bytes_of(std::int32_t token) const {
  const bool is_known = token >= 0 && token < vocab_size();
  return is_known ? std::string_view(impl_->bytes[static_cast<std::size_t>(token)]) : "";
}

std::int64_t HfTokenizer::vocab_size() const { return std::ssize(impl_->bytes); }
const SpecialTokens& HfTokenizer::special() const { return impl_->special; }
const TextFrame& HfTokenizer::frame() const { return impl_->frame; }
const std::vector<std::filesystem::path>& HfTokenizer::files() const { return impl_->files; }

}  // namespace trainctl::hf
