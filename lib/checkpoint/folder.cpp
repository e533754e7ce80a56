#include "checkpoint/folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <system_error>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/manifest.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "step-";

std::string name_of(std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return name;
}

std::string name_of(std::int64_t step, std::int64_t session) {
  return formatted("{}.{}", name_of(step), session);
}

/// The number in `text`: only digits, without sign or leading zeros; otherwise nothing.
std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  const bool good = failure == std::errc() && stop == end && std::to_string(number) == text;
  return good ? std::optional(number) : std::nullopt;
}

/// The step in names such as "step-00000500" and "step-00000500.813".
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::size_t dot = std::min(name.find('.'), name.size());
  if (dot < name.size() && !number_of(std::string_view(name).substr(dot + 1))) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + dot;
  const auto [stop, failure] = std::from_chars(name.data() + prefix.size(), end, step);
  if (failure != std::errc() || stop != end || name.substr(0, dot) != name_of(step)) {
    return std::nullopt;
  }
  return step;
}

bool has_manifest(const fs::path& checkpoint) {
  return kind_of_file(checkpoint / manifest_name) != FileKind::none;
}

/// Renames; no error if `to` is then the directory, even where the system reports an error.
std::error_code rename_whole(const fs::path& from, const fs::path& to, std::int64_t session) {
  std::error_code failure;
  fs::rename(from, to, failure);
  if (!failure || session == 0 || kind_of_file(from) != FileKind::none) return failure;
  const bool done = has_manifest(to) && session_of(to) == session;
  return done ? std::error_code() : failure;
}

}  // namespace

fs::path CheckpointFolder::of(std::int64_t step) const { return path_ / name_of(step); }

fs::path CheckpointFolder::partial(std::int64_t step, std::int64_t session) const {
  return Fence{session, {}}.partial(of(step));
}

std::vector<CheckpointFolder::Entry> CheckpointFolder::complete() const {
  std::vector<Entry> entries;
  for (const std::string& name : names_in(path_)) {
    const auto step = step_of(name);
    if (!step || !has_manifest(path_ / name)) continue;
    try {
      entries.push_back({session_of(path_ / name), *step, path_ / name});
    } catch (const Error& error) {
      // Skips a checkpoint that its run removed after the folder was listed.
      if (error.code() == ExitCode::io || has_manifest(path_ / name)) throw;
    }
  }
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::tie(a.session, a.step, a.path) > std::tie(b.session, b.step, b.path);
  });
  return entries;
}

std::vector<fs::path> CheckpointFolder::incomplete() const {
  std::vector<fs::path> paths;
  for (const std::string& name : names_in(path_)) {
    const bool begun = name.starts_with(prefix) && name.ends_with(".partial");
    if (begun || (step_of(name) && !has_manifest(path_ / name))) paths.push_back(path_ / name);
  }
  return paths;
}

std::int64_t CheckpointFolder::highest_session() const {
  const std::vector<Entry> entries = complete();
  return entries.empty() ? 0 : entries.front().session;
}

fs::path CheckpointFolder::publish(std::int64_t step, const Fence& fence) const {
  const fs::path from = partial(step, fence.session);
  sync_directory(from);
  if (fence.pass) fence.pass();
  fs::path to = of(step);
  std::error_code failure = std::make_error_code(std::errc::file_exists);
  if (!fs::exists(fs::symlink_status(to))) failure = rename_whole(from, to, fence.session);
  if (failure == std::errc::file_exists || failure == std::errc::directory_not_empty) {
    to = path_ / name_of(step, fence.session);
    failure = rename_whole(from, to, fence.session);
  }
  require(failure != std::errc::no_such_file_or_directory, ExitCode::taken,
          "another start has taken over the run: it has removed " + from.string());
  require(!failure, ExitCode::io,
          "cannot rename " + from.string() + " to " + to.string() + ": " + failure.message());
  sync_directory(path_);
  return to;
}

fs::path CheckpointFolder::retire(const fs::path& checkpoint, const Fence& fence) {
  // Unlike the name under which this session may be writing the same step.
  const fs::path to = fence.partial(checkpoint.string() + ".retired");
  if (fence.pass) fence.pass();
  std::error_code failure;
  fs::rename(checkpoint, to, failure);
  require(!failure, ExitCode::io,
          "cannot rename " + checkpoint.string() + " to " + to.string() + ": " + failure.message());
  return to;
}

std::string remove_directory(const fs::path& directory) {
  std::error_code failure;
  fs::remove_all(directory, failure);
  return failure ? "cannot remove " + directory.string() + ": " + failure.message() : "";
}

void sync_directory(const fs::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const std::string reason = std::generic_category().message(errno);
  if (descriptor >= 0) ::close(descriptor);
  require(synced, ExitCode::io, "cannot write " + directory.string() + ": " + reason);
}

std::vector<fs::path> to_remove(const CheckpointConfig& rule,
                                const std::vector<CheckpointFolder::Entry>& all) {
  if (rule.keep == 0) return {};
  const CheckpointFolder::Entry* best = nullptr;
  for (const CheckpointFolder::Entry& one : all) {
    if (one.val_loss && (best == nullptr || *one.val_loss < *best->val_loss)) best = &one;
  }
  std::vector<fs::path> removed;
  for (std::size_t i = static_cast<std::size_t>(rule.keep); i < all.size(); ++i) {
    const bool is_multiple = rule.keep_every > 0 && all[i].step % rule.keep_every == 0;
    const bool is_best = rule.keep_best && &all[i] == best;
    if (!is_multiple && !is_best) removed.push_back(all[i].path);
  }
  return removed;
}

}  // namespace trainctl
