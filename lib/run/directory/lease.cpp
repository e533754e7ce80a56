#include "run/directory/lease.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "checkpoint/folder.h"

namespace trainctl {

namespace {

using Json = nlohmann::json;

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::int64_t number_in(const std::string& text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::uint64_t process_numbers() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

std::string new_token() {
  std::random_device source;
  std::ostringstream text;
  for (int i = 0; i < 4; ++i) text << std::hex << source();
  return text.str();
}

/// The fields of /proc/PID/stat, beginning with the process state. Empty if there is no such
/// process, or no /proc.
std::vector<std::string> fields_of(std::int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(") ");
  std::vector<std::string> fields;
  if (name_end == std::string::npos) return fields;
  std::istringstream rest(text.substr(name_end + 2));
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

constexpr std::size_t state_field = 0;
constexpr std::size_t start_field = 19;

bool has_ended(const std::vector<std::string>& fields) {
  return fields[state_field] == "Z" || fields[state_field] == "X";
}

std::string own_host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// The start time of a process in clock ticks since the boot, which tells it from later processes
/// with its number. Empty if the process does not exist or has ended, or if the time is unknown.
std::string start_of_process(std::int64_t process) {
  const auto fields = fields_of(process);
  return fields.size() > start_field && !has_ended(fields) ? fields[start_field] : "";
}

}  // namespace

LeaseOwner LeaseOwner::here() {
  LeaseOwner self{.host = own_host_name(),
                  .boot = first_line("/proc/sys/kernel/random/boot_id"),
                  .processes = process_numbers(),
                  .process = ::getpid(),
                  .started = start_of_process(::getpid()),
                  .token = new_token(),
                  .launch = variable("TRAINCTL_LAUNCH"),
                  .attempt = number_in(variable("TRAINCTL_ATTEMPT")),
                  .job = "",
                  .restarts = number_in(variable("SLURM_RESTART_COUNT"))};
  const std::string job = variable("SLURM_JOB_ID");
  if (!job.empty()) self.job = variable("SLURM_CLUSTER_NAME") + "/" + job;
  return self;
}

std::string LeaseOwner::to_text() const {
  const Json owner{{"host", host},        {"boot", boot},       {"processes", processes},
                   {"process", process},  {"started", started}, {"token", token},
                   {"launch", launch},    {"attempt", attempt}, {"job", job},
                   {"restarts", restarts}};
  return json_text(owner, JsonText::Style::compact) + "\n";
}

std::optional<LeaseOwner> LeaseOwner::parse(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("token")) return std::nullopt;
  LeaseOwner owner;
  try {
    owner = {.host = json.value("host", ""),
             .boot = json.value("boot", ""),
             .processes = json.value("processes", std::uint64_t{0}),
             .process = json.value("process", std::int64_t{0}),
             .started = json.value("started", ""),
             .token = json.value("token", ""),
             .launch = json.value("launch", ""),
             .attempt = json.value("attempt", std::int64_t{0}),
             .job = json.value("job", ""),
             .restarts = json.value("restarts", std::int64_t{0})};
  } catch (const Json::exception&) {  // a value has another type
    return std::nullopt;
  }
  return owner;
}

namespace {

/// The text of the last number, written by an owner that ends in order.
std::string free_lease_text(const LeaseOwner& owner) {
  return json_text(Json{{"free", true}, {"by", owner.token}}, JsonText::Style::compact) + "\n";
}

bool is_free_lease(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  return json.is_object() && json.contains("free");
}

}  // namespace

std::string LeaseOwner::name() const {
  return "process " + std::to_string(process) + " on host " + host;
}

bool LeaseOwner::comes_before(const LeaseOwner& next) const {
  const bool of_launch = !launch.empty() && launch == next.launch && attempt < next.attempt;
  const bool of_job = !job.empty() && job == next.job && restarts < next.restarts;
  return of_launch || of_job;
}

std::optional<bool> LeaseOwner::lives_seen_from(const LeaseOwner& from) const {
  const bool visible = !boot.empty() && boot == from.boot && processes != 0 &&
                       processes == from.processes && process > 0;
  if (!visible) return std::nullopt;
  if (::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH) return false;
  const auto fields = fields_of(process);
  if (fields.size() <= start_field) return true;  // the system does not say more
  const bool other = !started.empty() && fields[start_field] != started;
  return !has_ended(fields) && !other;
}

namespace {

namespace fs = std::filesystem;

constexpr std::size_t number_digits = 10;
constexpr std::int64_t kept_numbers = 20;  // old numbers kept, since listings may be late
constexpr std::int64_t max_text = 1 << 16;

// Errors of link() on file systems without hard links.
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
  return folder_ / formatted("{:010}", number);
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
    return read_beginning(of(number), max_text);
  } catch (const Error& error) {
    // The owner has just removed this old number.
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

Lease::Lease(LeaseRequest request, std::int64_t number, bool hollow)
    : request_(std::move(request)),
      number_(number),
      numbers_(request_.run),
      text_(request_.self.to_text()),
      fence_{number, [this] { raise_patiently(); }},
      last_(number),
      hollow_(hollow),
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
    const std::string text = free_lease_text(request_.self);
    if (numbers_.make(last_ + 1, {}, text) == LeaseNumbers::Made::mine) {
      ++last_;
      remove_old();
    }
  } catch (const Error&) {  // the next start then checks whether this process lives
  }
}

void Lease::work() {
  // Time for the process to end by itself after the lease is lost.
  const auto grace =
      std::min<std::chrono::milliseconds>(request_.interval, std::chrono::milliseconds(1000));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, request_.interval, [this] { return closing_; })) {
    lock.unlock();
    try_to_raise();
    lock.lock();
    if (!lost_) continue;
    const bool ended = changed_.wait_for(lock, grace, [this] { return closing_; });
    if (!ended && request_.end) {
      log_error(lost_how_);
      request_.end();
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
                                      std::chrono::duration<double>(request_.raise_seconds));
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
  if (!lost_ && since < 2 * request_.interval) return;
  const std::unique_lock lock(raising_, std::try_to_lock);
  if (!lock) return;  // the thread is raising the lease
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
  // A number whose text is missing gets no link: its owner would never be known.
  Made made = numbers_.make(next, hollow_ ? fs::path() : numbers_.of(last_), text_);
  if (made == Made::lacking) {
    make_folder_again();
    made = numbers_.make(next, {}, text_);
    if (made == Made::lacking) fail("cannot make", numbers_.of(next), ENOENT);
  }
  if (made == Made::taken) lose("it has made " + numbers_.of(next).string());
  hollow_ = made == Made::hollow;
  last_ = next;
  // The name may have been replaced by another start before it was linked.
  if (!holds_own(last_)) lose(numbers_.of(last_).string() + " is of another");
  const std::vector<std::int64_t> all = numbers_.all();
  if (!all.empty() && all.back() > last_) lose("it has made " + numbers_.of(all.back()).string());
  remove_old();
}

bool Lease::holds_own(std::int64_t number) const {
  const std::optional<std::string> text = numbers_.text_of(number);
  return text && (hollow_ ? text->empty() || is_of(*text, request_.self.token)
                          : is_of(*text, request_.self.token));
}

/// Called when the last name is gone or replaced: either another start has taken over, or somebody
/// has removed the folder.
void Lease::make_folder_again() {
  for (const std::int64_t number : numbers_.all()) {
    const std::optional<std::string> text = numbers_.text_of(number);
    if (text && !is_of(*text, request_.self.token)) {
      lose(numbers_.of(number).string() + " is of another");
    }
  }
  const std::int64_t highest = CheckpointFolder(request_.run).highest_session();
  if (highest > number_) {
    lose("there is a checkpoint of session " + std::to_string(highest) + ", this is " +
         std::to_string(number_));
  }
  std::error_code failure;
  fs::create_directories(numbers_.folder(), failure);
  if (failure) fail("cannot create the folder", numbers_.folder(), failure.value());
  log_warning("the folder " + numbers_.folder().string() +
              " was removed; it is created again, since no other start has taken over the run");
  // A new file for the last number, to which the next number can be linked.
  const LeaseNumbers::Made made = numbers_.make(last_, {}, text_);
  if (made == LeaseNumbers::Made::taken) lose(numbers_.of(last_).string() + " is of another");
  hollow_ = made == LeaseNumbers::Made::hollow;
}

void Lease::lose(const std::string& how) {
  lost_how_ = "another start has taken over the run in " + request_.run.string() + ": " + how;
  lost_ = true;
  throw Error(ExitCode::taken, lost_how_);
}

/// Removes old numbers. Ignores files that another process removes at the same time.
void Lease::remove_old() const {
  for (const std::int64_t number : numbers_.all()) {
    if (number <= last_ - kept_numbers) ::unlink(numbers_.of(number).c_str());
  }
}

namespace {

/// Whether a process holds the lock, on file systems that have such locks.
bool is_held(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return false;
  const bool held = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return held;
}

/// The owner by the lock file of an earlier version; unknown without one. Changes nothing.
LeaseState read_old_lock(const fs::path& run) {
  using Kind = LeaseState::Kind;
  const fs::path path = run / old_lock_name;
  std::error_code failure;
  if (!fs::is_regular_file(fs::symlink_status(path, failure))) return {};
  constexpr std::int64_t most = 4096;
  std::istringstream text(read_beginning(path, most));
  LeaseState lock{.kind = Kind::taken};
  std::string started;
  const bool held = is_held(path);
  if (!(text >> lock.host >> lock.process >> started)) {
    return held ? lock : LeaseState{.kind = Kind::free};
  }
  const bool gone =
      !held && lock.host == own_host_name() && start_of_process(lock.process) != started;
  if (gone) lock.kind = Kind::gone;
  return lock;
}

/// Whether an earlier version used this name for an incomplete file of a run.
bool is_old_temporary(const std::string& name) {
  const std::size_t at = name.find(".tmp-");
  if (at == std::string::npos) return false;
  const std::string file = name.substr(0, at);
  return file == "metrics.jsonl" || file == "config.yaml" || file == "plan.json" ||
         file == "measured.json" || file == "report.html" || file.starts_with("model");
}

void take_away(const fs::path& path, const Fence& fence) {
  const fs::path own = fence.partial(path);
  std::error_code failure;
  fs::rename(path, own, failure);
  if (failure == std::errc::no_such_file_or_directory) return;
  require(!failure, ExitCode::io, "cannot rename " + path.string() + ": " + failure.message());
  const std::string reason = remove_directory(own);
  require(reason.empty(), ExitCode::io, reason);
}

}  // namespace

void remove_unfinished(const fs::path& run, std::int64_t session) {
  const Fence fence{session, {}};
  for (const fs::path& folder : {run, CheckpointFolder(run).path()}) {
    for (const std::string& name : names_in(folder)) {
      if (Fence::is_partial(name, session) || is_old_temporary(name)) {
        take_away(folder / name, fence);
      }
    }
  }
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr int unchanged_looks = 4;                 // looks after the first
constexpr auto moment = std::chrono::seconds(10);  // time for which a failing folder is recreated
constexpr auto silence = std::chrono::seconds(1);  // time of failures before a warning

/// The result of one look at the folder.
struct Look {
  std::int64_t number = 0;  // the highest number; 0 if there is none
  std::string text;
  std::int64_t session = 0;  // the highest session in the manifests
  bool has_manifest = false;
  friend bool operator==(const Look&, const Look&) = default;
};

class LeaseStart {
 public:
  explicit LeaseStart(const LeaseRequest& request)
      : request_(request), numbers_(request.run), text_(request.self.to_text()) {}

  std::unique_ptr<Lease> take() {
    make_folder();
    while (true) {
      const std::int64_t judged = judge();
      if (auto lease = take_number(judged + 1)) return lease;
    }
  }

 private:
  /// Creates the folder of the lease; retries while a disk fails for a moment.
  void make_folder() const {
    const auto begin = Clock::now();
    bool told = false;
    while (true) {
      std::error_code failure;
      fs::create_directories(numbers_.folder(), failure);
      if (!failure) return;
      const bool refused =
          failure == std::errc::permission_denied || failure == std::errc::not_a_directory ||
          failure == std::errc::read_only_file_system || failure == std::errc::no_space_on_device;
      const auto waited = Clock::now() - begin;
      const std::string what =
          "cannot create the output folder " + request_.run.string() + ": " + failure.message();
      require(!refused && waited < moment, ExitCode::io, what);
      if (!told && waited >= silence) {
        told = true;
        log_warning(what + "; trying again for " + std::to_string(moment.count()) + " s");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  /// Looks only at the lease, not at the manifests.
  Look look() const {
    Look found;
    const std::vector<std::int64_t> all = numbers_.all();
    if (all.empty()) return found;
    found.number = all.back();
    found.text = numbers_.text_of(found.number).value_or("");
    return found;
  }

  /// look() and the manifests; none if the folder of the lease cannot be read, until that has
  /// lasted too long. Unreadable manifests end the start, which needs them.
  std::optional<Look> patient_look() {
    const auto complete = CheckpointFolder(request_.run).complete();
    try {
      Look found = look();
      found.has_manifest = !complete.empty();
      found.session = complete.empty() ? 0 : complete.front().session;
      failing_since_.reset();
      return found;
    } catch (const Error& error) {
      const auto now = Clock::now();
      if (!failing_since_) failing_since_ = now;
      const double failed = std::chrono::duration<double>(now - *failing_since_).count();
      if (failed >= request_.longest_seconds) throw;
      return std::nullopt;
    }
  }

  enum class Verdict { take, refuse, wait };

  Verdict first_verdict(const Look& found) const {
    const LeaseState old = read_old_lock(request_.run);
    if (old.kind == LeaseState::Kind::taken) refuse_for(old);
    if (found.number == 0) {
      const bool was_given_back = old.kind != LeaseState::Kind::unknown;
      return was_given_back || !found.has_manifest ? Verdict::take : Verdict::wait;
    }
    if (is_free_lease(found.text)) return Verdict::take;
    const auto owner = LeaseOwner::parse(found.text);
    if (!owner) return Verdict::wait;
    if (owner->comes_before(request_.self)) return Verdict::take;
    const std::optional<bool> lives = owner->lives_seen_from(request_.self);
    if (!lives) return Verdict::wait;
    return *lives ? Verdict::refuse : Verdict::take;
  }

  /// Returns the number after which this start may take the next. Throws if another owns the run.
  std::int64_t judge() {
    std::optional<Look> first;
    int unchanged = 0;
    while (true) {
      const std::optional<Look> found = patient_look();
      if (found && !first) {
        const Verdict verdict = first_verdict(*found);
        if (verdict == Verdict::refuse) refuse(*found);
        if (verdict == Verdict::take) return base_of(*found);
        first = found;
        tell_wait(*found);
      } else if (found && is_free_lease(found->text)) {
        return base_of(*found);
      } else if (found && found->number != first->number) {
        refuse(*found);
      } else {
        unchanged = found ? unchanged + 1 : 0;
      }
      if (first && unchanged == unchanged_looks) {
        log_info("took over the run from " + owner_of(*first) + ", whose lease did not rise");
        return base_of(*first);
      }
      std::this_thread::sleep_for(request_.interval);
    }
  }

  static std::int64_t base_of(const Look& found) { return std::max(found.number, found.session); }

  static std::string owner_of(const Look& found) {
    const auto owner = LeaseOwner::parse(found.text);
    return owner ? owner->name() : "an unknown process";
  }

  void tell_wait(const Look& found) const {
    const double seconds =
        unchanged_looks * std::chrono::duration<double>(request_.interval).count();
    log_info("the output folder " + request_.run.string() + " is that of " + owner_of(found) +
             ", which cannot be seen from here; this start looks for " + format_seconds(seconds) +
             " whether it still runs");
  }

  [[noreturn]] void refuse(const Look& found) const {
    throw Error(ExitCode::taken, owner_of(found) + " owns the run in " + request_.run.string() +
                                     "; wait for its end, or set another output.dir");
  }

  [[noreturn]] void refuse_for(const LeaseState& old) const {
    const std::string process =
        "process " + std::to_string(old.process) + " on host " + old.host + ", ";
    throw Error(ExitCode::taken,
                "the output folder " + request_.run.string() + " is locked by " + process +
                    "of an earlier version of trainctl; wait for its end, or if it has ended, "
                    "remove " +
                    (request_.run / old_lock_name).string() + " and start again");
  }

  /// Takes the lease with this number; none if another start was faster.
  std::unique_ptr<Lease> take_number(std::int64_t number) {
    using Made = LeaseNumbers::Made;
    const Made made = make(number);
    if (made == Made::lacking) make_folder();
    if (made == Made::taken || made == Made::lacking) return nullptr;
    const std::vector<std::int64_t> all = numbers_.all();
    if (!all.empty() && all.back() > number) return nullptr;
    auto lease = std::make_unique<Lease>(request_, number, made == Made::hollow);
    ::unlink((request_.run / old_lock_name).c_str());
    remove_unfinished(request_.run, number);
    return lease;
  }

  /// Creates the number as a link to a complete file, so that nobody reads a partial text.
  LeaseNumbers::Made make(std::int64_t number) const {
    const fs::path whole = numbers_.folder() / request_.self.token;
    try {
      File::create(whole).write(text_);
    } catch (const Error&) {  // on a full disk, the number alone must do
      ::unlink(whole.c_str());
      return numbers_.make(number, {}, text_);
    }
    try {
      const LeaseNumbers::Made made = numbers_.make(number, whole, text_);
      ::unlink(whole.c_str());
      return made;
    } catch (const Error&) {
      ::unlink(whole.c_str());
      throw;
    }
  }

  const LeaseRequest& request_;
  const LeaseNumbers numbers_;
  const std::string text_;
  std::optional<Clock::time_point> failing_since_;
};

}  // namespace

std::unique_ptr<Lease> take_lease(const LeaseRequest& request) {
  return LeaseStart(request).take();
}

LeaseState lease_state(const fs::path& run) {
  using Kind = LeaseState::Kind;
  const LeaseNumbers numbers(run);
  const std::vector<std::int64_t> all = numbers.all();
  if (all.empty()) return read_old_lock(run);
  const std::string text = numbers.text_of(all.back()).value_or("");
  if (is_free_lease(text)) return {Kind::free, 0, ""};
  const auto owner = LeaseOwner::parse(text);
  if (!owner) return {Kind::taken, 0, ""};
  const bool gone = !owner->lives_seen_from(LeaseOwner::here()).value_or(true);
  return {gone ? Kind::gone : Kind::taken, owner->process, owner->host};
}

}  // namespace trainctl
