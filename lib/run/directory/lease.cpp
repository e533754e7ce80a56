#include "run/directory/lease.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/folder.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t number_digits = 10;
constexpr std::int64_t kept_numbers = 20;  // a listing may be late by some
constexpr std::int64_t most_text = 1 << 16;

// File systems that know no second name for a file answer one of these.
constexpr std::array no_links{EPERM, EOPNOTSUPP, ENOSYS, EMLINK, EXDEV, EACCES};

[[noreturn]] void fail(const std::string& what, const fs::path& path, int error) {
  throw Error(ExitCode::io,
              what + " " + path.string() + ": " + std::generic_category().message(error));
}

bool is_of(const std::string& text, const std::string& token) {
  const auto owner = LeaseOwner::parse(text);
  return owner && owner->token == token;
}

}  // namespace

fs::path LeaseNumbers::of(std::int64_t number) const {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "%010lld", static_cast<long long>(number));
  return folder_ / name.data();
}

std::vector<std::int64_t> LeaseNumbers::all() const {
  std::vector<std::int64_t> numbers;
  for (const std::string& name : names_in(folder_)) {
    std::int64_t number = 0;
    const char* end = name.data() + name.size();
    const auto [stop, failure] = std::from_chars(name.data(), end, number);
    if (name.size() == number_digits && failure == std::errc() && stop == end && number >= 0) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

std::optional<std::string> LeaseNumbers::text_of(std::int64_t number) const {
  if (kind_of_file(of(number)) == FileKind::none) return std::nullopt;
  try {
    return read_beginning(of(number), most_text);
  } catch (const Error& error) {
    // Removed just now, as an owner does with old numbers.
    if (error.code() == ExitCode::io || kind_of_file(of(number)) != FileKind::none) throw;
    return std::nullopt;
  }
}

LeaseNumbers::Made LeaseNumbers::make(std::int64_t number, const fs::path& from,
                                      const std::string& text) const {
  if (from.empty()) return create(number, text);
  if (::link(from.c_str(), of(number).c_str()) == 0) return Made::mine;
  const int error = errno;
  if (std::find(no_links.begin(), no_links.end(), error) != no_links.end()) {
    return create(number, text);
  }
  return made_all_the_same(number, text, error);
}

LeaseNumbers::Made LeaseNumbers::made_all_the_same(std::int64_t number, const std::string& text,
                                                   int error) const {
  const std::optional<std::string> there = text_of(number);
  if (there && *there == text) return Made::mine;
  if (there && error == EEXIST) return Made::taken;
  if (error == ENOENT) return Made::lacking;
  fail("cannot make", of(number), error);
}

LeaseNumbers::Made LeaseNumbers::create(std::int64_t number, const std::string& text) const {
  const int file = ::open(of(number).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return made_all_the_same(number, text, errno);
  const bool whole = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool closed = ::close(file) == 0;
  return whole && closed ? Made::mine : Made::hollow;
}

Lease::Lease(Input input)
    : input_(std::move(input)),
      numbers_(input_.run),
      text_(input_.self.to_text()),
      fence_{input_.number, [this] { raise_patiently(); }},
      last_(input_.number),
      hollow_(input_.hollow),
      tried_at_(Clock::now().time_since_epoch().count()) {
  thread_ = std::thread([this] { work(); });
  pthread_setname_np(thread_.native_handle(), "lease");
}

Lease::~Lease() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (!lost_) free();
}

void Lease::free() {
  try {
    const std::string text = free_lease_text(input_.self);
    if (numbers_.make(last_ + 1, {}, text) == LeaseNumbers::Made::mine) {
      ++last_;
      remove_old();
    }
  } catch (const Error&) {  // the next start then looks whether this process lives
  }
}

void Lease::work() {
  // After the loss the process has this long to end by itself.
  const auto grace =
      std::min<std::chrono::milliseconds>(input_.timing.interval, std::chrono::milliseconds(1000));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, input_.timing.interval, [this] { return closing_; })) {
    lock.unlock();
    try_to_raise();
    lock.lock();
    if (!lost_) continue;
    const bool ended = changed_.wait_for(lock, grace, [this] { return closing_; });
    if (!ended && input_.end) {
      log_error(lost_how_);
      input_.end();
    }
    changed_.wait(lock, [this] { return closing_; });
    return;
  }
}

void Lease::try_to_raise() {
  try {
    raise();
    failing_ = false;
  } catch (const Error& error) {
    if (error.code() == ExitCode::taken || failing_) return;
    failing_ = true;
    log_warning(std::string("the lease of the run cannot be raised: ") + error.what() +
                "; if that lasts, another start may take over the run");
  }
}

void Lease::raise_patiently() {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(input_.timing.raise_seconds));
  auto pause = std::chrono::milliseconds(10);
  while (true) {
    try {
      return raise();
    } catch (const Error& error) {
      if (error.code() == ExitCode::taken || Clock::now() >= end) throw;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(1000));
  }
}

void Lease::check() {
  const auto since = Clock::now().time_since_epoch() - Clock::duration(tried_at_.load());
  if (!lost_ && since < 2 * input_.timing.interval) return;
  const std::unique_lock lock(raising_, std::try_to_lock);
  if (!lock) return;  // the thread is at it
  try {
    raise_locked();
  } catch (const Error& error) {
    if (error.code() == ExitCode::taken) throw;
  }
}

void Lease::raise() {
  const std::lock_guard lock(raising_);
  raise_locked();
}

void Lease::raise_locked() {
  if (lost_) throw Error(ExitCode::taken, lost_how_);
  tried_at_ = Clock::now().time_since_epoch().count();
  take_next();
  tried_at_ = Clock::now().time_since_epoch().count();
}

void Lease::take_next() {
  using Made = LeaseNumbers::Made;
  if (!holds_own(last_)) make_folder_again();
  const std::int64_t next = last_ + 1;
  // Of a number without text no further link is made: what it holds would never be known.
  Made made = numbers_.make(next, hollow_ ? fs::path() : numbers_.of(last_), text_);
  if (made == Made::lacking) {
    make_folder_again();
    made = numbers_.make(next, {}, text_);
    if (made == Made::lacking) fail("cannot make", numbers_.of(next), ENOENT);
  }
  if (made == Made::taken) lose("it has made " + numbers_.of(next).string());
  hollow_ = made == Made::hollow;
  last_ = next;
  // A link of a name that was replaced meanwhile would be another's.
  if (!holds_own(last_)) lose(numbers_.of(last_).string() + " is of another");
  const std::vector<std::int64_t> all = numbers_.all();
  if (!all.empty() && all.back() > last_) lose("it has made " + numbers_.of(all.back()).string());
  remove_old();
}

bool Lease::holds_own(std::int64_t number) const {
  const std::optional<std::string> text = numbers_.text_of(number);
  return text && (hollow_ ? text->empty() || is_of(*text, input_.self.token)
                          : is_of(*text, input_.self.token));
}

/// The last name is gone or replaced: another start has taken over, or somebody has removed the
/// folder.
void Lease::make_folder_again() {
  for (const std::int64_t number : numbers_.all()) {
    const std::optional<std::string> text = numbers_.text_of(number);
    if (text && !is_of(*text, input_.self.token)) {
      lose(numbers_.of(number).string() + " is of another");
    }
  }
  const std::int64_t highest = CheckpointFolder(input_.run).highest_session();
  if (highest > input_.number) {
    lose("there is a checkpoint of session " + std::to_string(highest) + ", this is " +
         std::to_string(input_.number));
  }
  std::error_code failure;
  fs::create_directories(numbers_.folder(), failure);
  if (failure) fail("cannot create the folder", numbers_.folder(), failure.value());
  log_warning("the folder " + numbers_.folder().string() +
              " was removed; it is made again, since no other start has taken over the run");
  // A start of its own number, of which the next is a link.
  const LeaseNumbers::Made made = numbers_.make(last_, {}, text_);
  if (made == LeaseNumbers::Made::taken) lose(numbers_.of(last_).string() + " is of another");
  hollow_ = made == LeaseNumbers::Made::hollow;
}

void Lease::lose(const std::string& how) {
  lost_how_ = "another start has taken over the run in " + input_.run.string() + ": " + how;
  lost_ = true;
  throw Error(ExitCode::taken, lost_how_);
}

/// What another process removes meanwhile is gone as well.
void Lease::remove_old() const {
  for (const std::int64_t number : numbers_.all()) {
    if (number <= last_ - kept_numbers) ::unlink(numbers_.of(number).c_str());
  }
}

}  // namespace trainctl
