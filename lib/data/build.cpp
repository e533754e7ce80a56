// Tokenised text, kept in the user's cache folder: one folder per (text, tokenizer), put in place
// by a rename, so that it is complete or absent.

#include "data/build.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/integers.h"
#include "base/log.h"
#include "base/text.h"
#include "data/token_file.h"

namespace trainctl {

// The text of one document in a line of JSON.

namespace {

/// The reason in a message of the parser, without the quoted text, which may be long.
std::string reason_in(const std::string& message) {
  const std::size_t begin = message.find(" - ");
  const std::size_t end = message.find("; last read");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  return ": " + message.substr(begin + 3, end - begin - 3);
}

/// Receives the parser's events and keeps one string of the outermost object.
class TextOfKey : public nlohmann::json_sax<nlohmann::json> {
 public:
  TextOfKey(std::string_view key, std::string& text) : key_(key), text_(text) {}

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number"); }
  bool binary(binary_t&) override { return value("binary"); }
  bool string(string_t& text) override {
    if (is_wanted()) {
      text_.swap(text);
      kind_ = "text";
    }
    return value("a string");
  }
  bool start_object(std::size_t) override {
    value("an object");
    ++depth_;
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override {
    value("an array");
    ++depth_;
    return true;
  }
  bool end_array() override { return leave(); }
  bool key(string_t& name) override {
    if (depth_ == 1) is_key_ = name == key_;
    return true;
  }
  bool parse_error(std::size_t place, const std::string&,
                   const nlohmann::json::exception& failure) override {
    problem_ = formatted("not valid JSON at column {}{}", place, reason_in(failure.what()));
    return false;
  }

  std::string problem() const {
    if (!problem_.empty()) return problem_;
    if (outermost_ != "an object") return "expected a JSON object, found " + outermost_;
    if (kind_.empty()) {
      return "the object has no key \"" + std::string(key_) +
             "\"; trainctl data build --json-key KEY takes the text from another";
    }
    if (kind_ != "text") return "\"" + std::string(key_) + "\" is " + kind_ + ", not a string";
    return "";
  }

 private:
  bool is_wanted() const { return depth_ == 1 && is_key_ && outermost_ == "an object"; }
  bool value(const char* kind) {
    if (depth_ == 0) outermost_ = kind;
    if (is_wanted() && kind != std::string_view("a string")) kind_ = kind;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  std::string_view key_;
  std::string& text_;
  int depth_ = 0;
  bool is_key_ = false;
  std::string outermost_;
  std::string kind_;  // kind of the key's value; "text" for a string
  std::string problem_;
};

/// Puts the string under `key` of the JSON object `line` into `text`, reading the whole line but
/// building nothing else. Returns the problem, or "".
std::string read_json_text(std::string_view line, std::string_view key, std::string& text) {
  TextOfKey listener(key, text);
  nlohmann::json::sax_parse(line.begin(), line.end(), &listener);
  return listener.problem();
}

constexpr std::size_t probed_bytes = 4096;
constexpr std::size_t longest_line = std::size_t{1} << 30;

/// The size as counted in the progress: 0 for files without a size, such as pipes.
std::int64_t input_bytes(const std::filesystem::path& path, FileKind kind) {
  return kind == FileKind::regular ? File::open_to_read(path).size() : 0;
}

void list_folder(const std::filesystem::path& folder, std::vector<InputFile>& out) {
  for (const std::string& name : names_in(folder)) {
    const std::filesystem::path path = folder / name;
    std::error_code failure;
    if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, failure))) continue;
    require(!failure || failure == std::errc::no_such_file_or_directory, ExitCode::io,
            "cannot examine " + path.string() + ": " + failure.message());
    const FileKind kind = kind_of_file(path);
    if (kind == FileKind::folder) list_folder(path, out);
    if (kind == FileKind::regular) out.push_back({path, input_bytes(path, kind), false});
  }
}

/// Length of the UTF-8 character that begins with `lead`; 1 if none begins with it.
std::size_t character_bytes(unsigned char lead) {
  if (lead >= 0xf0) return 4;
  if (lead >= 0xe0) return 3;
  return lead >= 0xc0 ? 2 : 1;
}

/// The end of the last whole character of `bytes`.
std::size_t character_end(const std::string& bytes) {
  const std::size_t size = bytes.size();
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, size); ++back) {
    const auto byte = static_cast<unsigned char>(bytes[size - back]);
    if ((byte & 0xc0U) == 0x80U) continue;
    return character_bytes(byte) > back && back < size ? size - back : size;
  }
  return size;
}

/// The place of the last newline that follows an ASCII letter or digit, in the second half of
/// `bytes`; 0 if there is none.
std::size_t word_end(const std::string& bytes) {
  for (std::size_t place = bytes.size(); place-- > bytes.size() / 2 + 1;) {
    if (bytes[place] != '\n') continue;
    const auto before = static_cast<unsigned char>(bytes[place - 1]);
    if (before < 0x80 && std::isalnum(before) != 0) return place;
  }
  return 0;
}

}  // namespace

std::vector<InputFile> list_inputs(const std::vector<std::filesystem::path>& inputs) {
  std::vector<InputFile> files;
  for (const auto& path : inputs) {
    const FileKind kind = kind_of_file(path);
    require(kind != FileKind::none, ExitCode::missing_input,
            "cannot read the text " + std::filesystem::absolute(path).lexically_normal().string() +
                ": No such file or directory");
    if (kind == FileKind::folder) {
      list_folder(path, files);
    } else {
      files.push_back({path, input_bytes(path, kind), true});
    }
  }
  return files;
}

TextReader::TextReader(std::vector<InputFile> files, std::int64_t chunk_bytes)
    : files_(std::move(files)), chunk_bytes_(static_cast<std::size_t>(chunk_bytes)) {}

void TextReader::open_next() {
  const InputFile& input = files_[next_file_++];
  file_ = File::open_to_read(input.path);
  is_jsonl_ = input.path.extension() == ".jsonl";
  is_at_start_ = true;
  line_ = 1;
  carry_.clear();
}

bool TextReader::fill(std::string& bytes, std::size_t size) {
  std::size_t have = bytes.size();
  bytes.resize(std::max(have, size));
  while (have < size) {
    const std::int64_t got = file_->read(std::span(bytes).subspan(have));
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return have >= size;
}

bool TextReader::is_binary(const std::string& beginning) const {
  const std::size_t nul = beginning.substr(0, probed_bytes).find('\0');
  if (nul == std::string::npos) return false;
  const InputFile& input = files_[next_file_ - 1];
  const std::string message =
      formatted("{}: not text: offset {} holds a NUL byte", input.path.string(), nul);
  require(!input.is_named, ExitCode::bad_data, message);
  log_warning(message + "; skipped");
  return true;
}

std::size_t TextReader::cut(const std::string& bytes) const {
  if (!is_jsonl_) {
    if (const std::size_t end = word_end(bytes); end > 0) return end;
  }
  const std::size_t newline = bytes.rfind('\n');
  if (newline != std::string::npos) return newline + 1;
  return is_jsonl_ ? 0 : character_end(bytes);
}

bool TextReader::next(TextChunk& out) {
  for (;;) {
    if (!file_) {
      if (next_file_ == files_.size()) return false;
      open_next();
    }
    out.bytes.swap(carry_);
    carry_.clear();
    bool has_more = fill(out.bytes, std::max(chunk_bytes_, probed_bytes));
    std::size_t size = has_more ? cut(out.bytes) : out.bytes.size();
    while (has_more && size == 0) {
      require(out.bytes.size() < longest_line, ExitCode::bad_data,
              formatted("{}:{}: longer than 1 GiB", file_->path().string(), line_));
      has_more = fill(out.bytes, 2 * out.bytes.size());
      size = has_more ? cut(out.bytes) : out.bytes.size();
    }
    out.begins_document = std::exchange(is_at_start_, false);
    if (out.begins_document && is_binary(out.bytes)) {
      file_.reset();
      carry_.clear();
      continue;
    }
    carry_.assign(out.bytes, size);
    out.bytes.resize(size);
    out.file = &files_[next_file_ - 1];
    out.is_jsonl = is_jsonl_;
    out.first_line = line_;
    out.ends_document = !has_more;
    if (is_jsonl_) line_ += std::count(out.bytes.begin(), out.bytes.end(), '\n');
    if (!has_more) file_.reset();
    return true;
  }
}

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
                  formatted("{}:{}: {}", chunk.file->path.string(), line, problem));
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
  tokenizer.encode(chunk.bytes, out.tokens, !chunk.begins_document);
  if (chunk.ends_document) out.ends.push_back(out.tokens.size());
}

/// One reader thread, several encoding threads, and the caller, which takes the results in input
/// order. They share a ring of slots, which bounds the memory. The first failure in input order is
/// the one reported, whatever the order in which threads ran.
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

  /// Waits for the condition; false when the pipeline is being torn down.
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
  TextReader reader_;  // used by the reader thread only
  int encoders_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t filled_ = 0;  // chunks that the reader has delivered
  std::int64_t taken_ = 0;   // chunks that an encoder has begun
  std::int64_t end_ = -1;    // number of chunks, once known
  bool is_stopped_ = false;
  std::vector<std::jthread> threads_;  // last: joined before the other members are destroyed
};

/// Writes documents, each with the tokens that the tokenizer puts before and after it.
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

  /// Ends the document. A document without tokens is left out.
  void end() {
    if (std::exchange(is_open_, false)) writer_.append(after_);
    writer_.end_document(end_);
  }

 private:
  TokenWriter& writer_;
  std::vector<std::int32_t> before_;
  std::vector<std::int32_t> after_;
  std::int32_t end_;  // written after each document; nothing if -1
  bool is_open_ = false;
};

std::string names_of(const std::vector<std::filesystem::path>& paths) {
  return joined(paths, ", ", [](const std::filesystem::path& path) { return path.string(); });
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

namespace {

namespace fs = std::filesystem;

/// Part of the cache key: raise it whenever the same text would give other tokens.
constexpr std::string_view cache_version = "2";

/// Adds the path, size and time of the last change of a file to the hash.
std::uint64_t hash_file(const fs::path& path, std::uint64_t state) {
  std::error_code failure;
  const std::string name = fs::canonical(path, failure).string();
  struct stat status {};
  require(!failure && ::stat(name.c_str(), &status) == 0, ExitCode::missing_input,
          "cannot read " + path.string());
  state = fnv1a(name, state);
  state = fnv1a("|" + std::to_string(status.st_size), state);
  state = fnv1a("|" + std::to_string(status.st_mtim.tv_sec), state);
  return fnv1a("|" + std::to_string(status.st_mtim.tv_nsec) + "\n", state);
}

std::string key_of(const fs::path& text, const Tokenizer& tokenizer) {
  std::uint64_t state = fnv1a(cache_version);
  state = fnv1a(tokenizer.specification() + "\n", state);
  for (const fs::path& file : tokenizer.files()) state = hash_file(file, state);
  for (const InputFile& file : list_inputs({text})) state = hash_file(file.path, state);
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(state));
  return digits.data();
}

/// Whether `folder` exists or can be created, and belongs to this user.
bool is_usable(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder.parent_path(), failure);
  ::mkdir(folder.c_str(), 0700);
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid() && ::access(folder.c_str(), W_OK) == 0;
}

fs::path default_cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/') {
    if (is_usable(fs::path(cache) / "trainctl")) return fs::path(cache) / "trainctl";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') {
    const fs::path folder = fs::path(home) / ".cache" / "trainctl";
    if (is_usable(folder)) return folder;
  }
  const fs::path folder = formatted("/tmp/trainctl-{}", ::geteuid());
  require(is_usable(folder), ExitCode::io,
          "no cache folder for tokenised text: none of $XDG_CACHE_HOME/trainctl, "
          "$HOME/.cache/trainctl and " +
              folder.string() + " can be written");
  return folder;
}

/// Held while one process tokenises, so that other processes wait for the result instead of
/// repeating the work. The system releases it when the process ends. If locks do not work, the work
/// is merely done twice.
class BuildLock {
 public:
  explicit BuildLock(const fs::path& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (descriptor_ >= 0) wait(path);
  }
  ~BuildLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;

 private:
  /// Polls the lock, so that ranks which wait for this process see that it still runs.
  void wait(const fs::path& path) const {
    constexpr std::chrono::milliseconds pause{50};
    constexpr int silent_looks = 20;
    for (int look = 0; ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0; ++look) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;
      if (look == silent_looks) {
        log_info("waiting: another rank or start tokenises the same text, and holds " +
                 path.string());
      }
      std::this_thread::sleep_for(pause);
    }
  }

  int descriptor_;
};

bool is_complete(const fs::path& prefix) {
  return kind_of_file(prefix.string() + ".bin") != FileKind::none &&
         kind_of_file(prefix.string() + ".idx") != FileKind::none;
}

}  // namespace

bool is_text_input(const fs::path& path) {
  if (path.extension() == ".bin" || path.extension() == ".idx") return false;
  return !is_complete(path) && kind_of_file(path) != FileKind::none;
}

fs::path cached_token_file(const fs::path& text, const Tokenizer& tokenizer,
                           const fs::path& cache_dir, int threads) {
  const std::string key = key_of(text, tokenizer);
  const fs::path root = cache_dir.empty() ? default_cache_folder() : cache_dir;
  std::error_code failure;
  fs::create_directories(root, failure);
  require(!failure, ExitCode::io, "cannot create " + root.string() + ": " + failure.message());
  const fs::path folder = root / (fs::weakly_canonical(text).stem().string() + "-" + key);
  const fs::path prefix = folder / "tokens";
  if (is_complete(prefix)) return prefix;

  const BuildLock lock(folder.string() + ".lock");
  if (is_complete(prefix)) return prefix;
  log_info("tokenising " + text.string() + " (" + tokenizer.specification() + ") into " +
           folder.string());
  const TemporaryFolder temporary(folder.string() + ".tmp");
  BuildOptions options;
  options.inputs = {text};
  options.output = temporary.path() / "tokens";
  options.threads = threads;
  build_token_file(options, tokenizer);
  fs::rename(temporary.path(), folder, failure);
  require(!failure || is_complete(prefix), ExitCode::io,
          "cannot write " + folder.string() + ": " + failure.message());
  return prefix;
}

}  // namespace trainctl
