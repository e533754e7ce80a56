#include "checkpoint/folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <limits>
#include <system_error>

#include "base/error.h"
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

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, failure] = std::from_chars(name.data() + prefix.size(), end, step);
  if (failure != std::errc() || stop != end || name != name_of(step)) return std::nullopt;
  return step;
}

void give_name(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::rename(from, to, failure);
  require(!failure, ExitCode::io,
          "cannot rename " + from.string() + " to " + to.string() + ": " + failure.message());
}

}  // namespace

fs::path CheckpointFolder::of(std::int64_t step) const { return path_ / name_of(step); }

fs::path CheckpointFolder::partial(std::int64_t step) const {
  return path_ / (name_of(step) + ".partial");
}

std::vector<CheckpointFolder::Entry> CheckpointFolder::complete() const {
  std::vector<Entry> entries;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(path_, failure)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && fs::exists(entry.path() / manifest_name, failure)) {
      entries.push_back({*step, entry.path()});
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.step > b.step; });
  return entries;
}

std::vector<fs::path> CheckpointFolder::incomplete() const {
  std::vector<fs::path> paths;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(path_, failure)) {
    const std::string name = entry.path().filename().string();
    const bool begun = name.starts_with(prefix) && name.ends_with(".partial");
    const bool empty = step_of(name) && !fs::exists(entry.path() / manifest_name, failure);
    if (begun || empty) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

void CheckpointFolder::publish(std::int64_t step) const {
  sync_directory(partial(step));
  give_name(partial(step), of(step));
  sync_directory(path_);
}

fs::path CheckpointFolder::retire(std::int64_t step) const {
  give_name(of(step), partial(step));
  return partial(step);
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

std::vector<std::int64_t> steps_to_remove(const KeepRule& rule, std::vector<Kept> all) {
  if (rule.last == 0) return {};
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) { return a.step > b.step; });
  const Kept* best = nullptr;
  for (const Kept& one : all) {
    if (one.val_loss && (best == nullptr || *one.val_loss < *best->val_loss)) best = &one;
  }
  std::vector<std::int64_t> removed;
  for (std::size_t i = static_cast<std::size_t>(rule.last); i < all.size(); ++i) {
    const bool is_multiple = rule.every > 0 && all[i].step % rule.every == 0;
    const bool is_best = rule.best && &all[i] == best;
    if (!is_multiple && !is_best) removed.push_back(all[i].step);
  }
  return removed;
}

}  // namespace trainctl
