#include "data/text_reader.h"

#include <algorithm>
#include <cctype>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace trainctl {

namespace {

constexpr std::size_t probed_bytes = 4096;
constexpr std::size_t longest_line = std::size_t{1} << 30;

/// 0 for what has no size, such as a pipe, in the progress.
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

/// Length of the UTF-8 character that `lead` begins; 1 for what begins none.
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
/// `bytes`; 0 without one.
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
      input.path.string() + ": not text: offset " + std::to_string(nul) + " holds a NUL byte";
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
              file_->path().string() + ":" + std::to_string(line_) + ": longer than 1 GiB");
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

}  // namespace trainctl
