#include "run/directory/lease_start.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "checkpoint/folder.h"
#include "run/directory/old_lock.h"
#include "run/directory/unfinished.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int unchanged_looks = 4;                 // after the first
constexpr auto moment = std::chrono::seconds(10);  // for which a folder that fails is made again
constexpr auto silence = std::chrono::seconds(1);  // at its beginning

/// What a look finds.
struct Look {
  std::int64_t number = 0;  // the highest; 0: none
  std::string text;
  std::int64_t session = 0;  // the highest in the manifests
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
  /// A disk that fails for a moment is asked again.
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

  /// Of the lease alone.
  Look look() const {
    Look found;
    const std::vector<std::int64_t> all = numbers_.all();
    if (all.empty()) return found;
    found.number = all.back();
    found.text = numbers_.text_of(found.number).value_or("");
    return found;
  }

  /// look(), tried again at each interval while the folder of the lease cannot be read. Manifests
  /// that cannot be read end the start: without them nothing can go on.
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
      if (failed >= request_.timing.longest_seconds) throw;
      return std::nullopt;
    }
  }

  enum class Verdict { take, refuse, wait };

  Verdict first_verdict(const Look& found) const {
    const OldLock old = read_old_lock(request_.run);
    if (old.kind == OldLock::Kind::taken) refuse_for(old);
    if (found.number == 0) {
      const bool was_given_back = old.kind != OldLock::Kind::none;
      return was_given_back || !found.has_manifest ? Verdict::take : Verdict::wait;
    }
    if (is_free_lease(found.text)) return Verdict::take;
    const auto owner = LeaseOwner::parse(found.text);
    if (!owner) return Verdict::wait;
    if (owner->comes_before(request_.self)) return Verdict::take;
    switch (owner->life_seen_from(request_.self)) {
      case LeaseOwner::Life::gone: return Verdict::take;
      case LeaseOwner::Life::lives: return Verdict::refuse;
      case LeaseOwner::Life::unknown: break;
    }
    return Verdict::wait;
  }

  /// Returns the number that may be followed. Throws if the run is another's.
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
      std::this_thread::sleep_for(request_.timing.interval);
    }
  }

  static std::int64_t base_of(const Look& found) { return std::max(found.number, found.session); }

  static std::string owner_of(const Look& found) {
    const auto owner = LeaseOwner::parse(found.text);
    return owner ? owner->name() : "an unknown process";
  }

  void tell_wait(const Look& found) const {
    const double seconds =
        unchanged_looks * std::chrono::duration<double>(request_.timing.interval).count();
    log_info("the output folder " + request_.run.string() + " is that of " + owner_of(found) +
             ", which cannot be seen from here; this start looks for " + format_seconds(seconds) +
             " whether it still runs");
  }

  [[noreturn]] void refuse(const Look& found) const {
    throw Error(ExitCode::taken, owner_of(found) + " owns the run in " + request_.run.string() +
                                     "; wait for its end, or set another output.dir");
  }

  [[noreturn]] void refuse_for(const OldLock& old) const {
    const std::string process =
        "process " + std::to_string(old.process) + " on host " + old.host + ", ";
    throw Error(ExitCode::taken,
                "the output folder " + request_.run.string() + " is locked by " + process +
                    "of an earlier version of trainctl; wait for its end, or if it has ended, "
                    "remove " +
                    (request_.run / old_lock_name).string() + " and start again");
  }

  /// None if another start was faster.
  std::unique_ptr<Lease> take_number(std::int64_t number) {
    using Made = LeaseNumbers::Made;
    const Made made = make(number);
    if (made == Made::lacking) make_folder();
    if (made == Made::taken || made == Made::lacking) return nullptr;
    const std::vector<std::int64_t> all = numbers_.all();
    if (!all.empty() && all.back() > number) return nullptr;
    auto lease = std::make_unique<Lease>(Lease::Input{.run = request_.run,
                                                      .self = request_.self,
                                                      .number = number,
                                                      .hollow = made == Made::hollow,
                                                      .timing = request_.timing,
                                                      .end = request_.end});
    remove_old_lock(request_.run);
    remove_unfinished(request_.run, number);
    return lease;
  }

  /// By a link of a whole file, so that nobody sees a part of it.
  LeaseNumbers::Made make(std::int64_t number) const {
    const fs::path whole = numbers_.folder() / request_.self.token;
    try {
      File::create(whole).write(text_);
    } catch (const Error&) {  // a full disk: the number alone must do
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

LeaseState state_of_old(const OldLock& old) {
  using Kind = LeaseState::Kind;
  switch (old.kind) {
    case OldLock::Kind::none: return {};
    case OldLock::Kind::free: return {Kind::free, 0, ""};
    case OldLock::Kind::gone: return {Kind::gone, old.process, old.host};
    case OldLock::Kind::taken: break;
  }
  return {Kind::taken, old.process, old.host};
}

}  // namespace

std::unique_ptr<Lease> take_lease(const LeaseRequest& request) {
  return LeaseStart(request).take();
}

LeaseState lease_state(const fs::path& run) {
  using Kind = LeaseState::Kind;
  const LeaseNumbers numbers(run);
  const std::vector<std::int64_t> all = numbers.all();
  if (all.empty()) return state_of_old(read_old_lock(run));
  const std::string text = numbers.text_of(all.back()).value_or("");
  if (is_free_lease(text)) return {Kind::free, 0, ""};
  const auto owner = LeaseOwner::parse(text);
  if (!owner) return {Kind::taken, 0, ""};
  const bool gone = owner->life_seen_from(LeaseOwner::here()) == LeaseOwner::Life::gone;
  return {gone ? Kind::gone : Kind::taken, owner->process, owner->host};
}

}  // namespace trainctl
