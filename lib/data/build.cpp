#include "data/build.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "base/error.h"
#include "data/jsonl.h"
#include "data/text_reader.h"
#include "data/token_writer.h"

namespace trainctl {

namespace {

/// A chunk's tokens; documents end after the tokens counted in `ends`.
struct Encoded {
  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> ends;
};

void encode_lines(const TextChunk& chunk, const std::string& key, const Tokenizer& tokenizer,
                  Encoded& out) {
  std::string_view rest = chunk.bytes;
  std::string text;
  for (std::int64_t line = chunk.first_line; !rest.empty(); ++line) {
    const std::size_t size = std::min(rest.find('\n'), rest.size());
    const std::string_view content = rest.substr(0, size);
    rest.remove_prefix(std::min(size + 1, rest.size()));
    if (content.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string problem = read_json_text(content, key, text);
    if (!problem.empty()) {
      throw Error(ExitCode::bad_data,
                  chunk.file->path.string() + ":" + std::to_string(line) + ": " + problem);
    }
    tokenizer.encode(text, out.tokens);
    out.ends.push_back(out.tokens.size());
  }
}

void encode_chunk(const TextChunk& chunk, const std::string& key, const Tokenizer& tokenizer,
                  Encoded& out) {
  out.tokens.clear();
  out.ends.clear();
  if (chunk.is_jsonl) return encode_lines(chunk, key, tokenizer, out);
  const TextKind kind = chunk.begins_document ? TextKind::whole : TextKind::continued;
  tokenizer.encode(chunk.bytes, out.tokens, kind);
  if (chunk.ends_document) out.ends.push_back(out.tokens.size());
}

/// One reader thread, several encoding threads and the caller, who takes the results in input
/// order, around a ring of slots: that bounds the memory, and the first failure in input order is
/// the one reported, whatever the threads did.
class EncodingPipeline {
 public:
  EncodingPipeline(const BuildOptions& options, const Tokenizer& tokenizer,
                   std::vector<InputFile> files)
      : options_(options),
        tokenizer_(tokenizer),
        reader_(std::move(files)),
        encoders_(std::max(options.threads, 1)),
        slots_(static_cast<std::size_t>(4 * encoders_)) {}

  ~EncodingPipeline() {
    const std::scoped_lock lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }

  /// Calls take(chunk, encoded) for each chunk in order.
  template <class Take>
  void run(Take take) {
    threads_.emplace_back([this] { read_all(); });
    for (int i = 0; i < encoders_; ++i) threads_.emplace_back([this] { encode_all(); });
    for (std::int64_t number = 0;; ++number) {
      Slot& slot = slot_of(number);
      wait([&] { return slot.state == State::encoded || number == end_; });
      if (slot.state != State::encoded) return;
      if (slot.failure) std::rethrow_exception(slot.failure);
      take(slot.chunk, slot.encoded);
      set(slot, State::free);
    }
  }

 private:
  enum class State { free, filled, encoded };
  struct Slot {
    State state = State::free;
    TextChunk chunk;
    Encoded encoded;
    std::exception_ptr failure;
  };

  Slot& slot_of(std::int64_t number) {
    return slots_[static_cast<std::size_t>(number) % slots_.size()];
  }

  /// False when the pipeline is being torn down.
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_stopped_ || condition(); });
    return !is_stopped_;
  }

  void set(Slot& slot, State state) {
    const std::scoped_lock lock(mutex_);
    slot.state = state;
    changed_.notify_all();
  }

  void set_end(std::int64_t number) {
    const std::scoped_lock lock(mutex_);
    end_ = number;
    changed_.notify_all();
  }

  void read_all() {
    for (std::int64_t number = 0;; ++number) {
      Slot& slot = slot_of(number);
      if (!wait([&] { return slot.state == State::free; })) return;
      try {
        if (!reader_.next(slot.chunk)) return set_end(number);
      } catch (...) {
        slot.failure = std::current_exception();
        return set(slot, State::encoded);
      }
      const std::scoped_lock lock(mutex_);
      slot.state = State::filled;
      ++filled_;
      changed_.notify_all();
    }
  }

  void encode_all() {
    for (;;) {
      std::int64_t number = 0;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return is_stopped_ || taken_ < filled_ || filled_ == end_; });
        if (is_stopped_ || taken_ == filled_) return;
        number = taken_++;
      }
      Slot& slot = slot_of(number);
      try {
        encode_chunk(slot.chunk, options_.json_key, tokenizer_, slot.encoded);
      } catch (...) {
        slot.failure = std::current_exception();
      }
      set(slot, State::encoded);
    }
  }

  const BuildOptions& options_;
  const Tokenizer& tokenizer_;
  TextReader reader_;  // of the reader thread only
  int encoders_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t filled_ = 0;  // chunks that the reader has delivered
  std::int64_t taken_ = 0;   // chunks that an encoder has begun
  std::int64_t end_ = -1;    // number of chunks, once known
  bool is_stopped_ = false;
  std::vector<std::jthread> threads_;  // last: joined before the rest goes
};

/// Puts around each document what the tokenizer wants there.
class DocumentWriter {
 public:
  DocumentWriter(TokenWriter& writer, const Tokenizer& tokenizer, bool append_end)
      : writer_(writer),
        before_(tokenizer.before_document()),
        after_(tokenizer.after_document()),
        end_(append_end ? tokenizer.end_of_document() : -1) {
    if (!after_.empty() && after_.back() == end_) end_ = -1;
  }

  void append(std::span<const std::int32_t> tokens) {
    if (tokens.empty()) return;
    if (!std::exchange(is_open_, true)) writer_.append(before_);
    writer_.append(tokens);
  }

  /// A document without tokens is left out.
  void end() {
    if (std::exchange(is_open_, false)) writer_.append(after_);
    writer_.end_document(end_);
  }

 private:
  TokenWriter& writer_;
  std::vector<std::int32_t> before_;
  std::vector<std::int32_t> after_;
  std::int32_t end_;  // -1: none
  bool is_open_ = false;
};

std::string names_of(const std::vector<std::filesystem::path>& paths) {
  std::string names;
  for (const auto& path : paths) names += (names.empty() ? "" : ", ") + path.string();
  return names;
}

}  // namespace

BuildResult build_token_file(const BuildOptions& options, const Tokenizer& tokenizer) {
  std::vector<InputFile> files = list_inputs(options.inputs);
  std::int64_t total = 0;
  for (const InputFile& file : files) total += file.bytes;

  BuildResult result;
  TokenWriter writer(options.output, tokenizer.vocab_size());
  DocumentWriter documents(writer, tokenizer, options.append_end_of_document);
  EncodingPipeline pipeline(options, tokenizer, std::move(files));
  pipeline.run([&](const TextChunk& chunk, const Encoded& encoded) {
    std::size_t begin = 0;
    for (std::size_t end : encoded.ends) {
      documents.append(std::span(encoded.tokens).subspan(begin, end - begin));
      documents.end();
      begin = end;
    }
    documents.append(std::span(encoded.tokens).subspan(begin));
    result.input_bytes += std::ssize(chunk.bytes);
    if (options.progress) options.progress(result.input_bytes, std::max(total, result.input_bytes));
  });
  require(writer.tokens() > 0, ExitCode::bad_data,
          "no text in " + names_of(options.inputs) + ": nothing to tokenise");
  writer.commit();
  result.documents = writer.documents();
  result.tokens = writer.tokens();
  result.token_bytes = writer.token_bytes();
  return result;
}

}  // namespace trainctl
