#include "run/directory/lease_owner.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

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

/// Of /proc/PID/stat, from the state on, which is the first. Empty if there is no such process, or
/// no /proc.
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

}  // namespace

std::string own_host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string start_of_process(std::int64_t process) {
  const auto fields = fields_of(process);
  return fields.size() > start_field && !has_ended(fields) ? fields[start_field] : "";
}

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
  return Json{{"host", host},        {"boot", boot},       {"processes", processes},
              {"process", process},  {"started", started}, {"token", token},
              {"launch", launch},    {"attempt", attempt}, {"job", job},
              {"restarts", restarts}}
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
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
  } catch (const Json::exception&) {  // a value of another type
    return std::nullopt;
  }
  return owner;
}

std::string free_lease_text(const LeaseOwner& owner) {
  return Json{{"free", true}, {"by", owner.token}}.dump() + "\n";
}

bool is_free_lease(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  return json.is_object() && json.contains("free");
}

std::string LeaseOwner::name() const {
  return "process " + std::to_string(process) + " on host " + host;
}

bool LeaseOwner::comes_before(const LeaseOwner& next) const {
  const bool of_launch = !launch.empty() && launch == next.launch && attempt < next.attempt;
  const bool of_job = !job.empty() && job == next.job && restarts < next.restarts;
  return of_launch || of_job;
}

LeaseOwner::Life LeaseOwner::life_seen_from(const LeaseOwner& from) const {
  const bool visible = !boot.empty() && boot == from.boot && processes != 0 &&
                       processes == from.processes && process > 0;
  if (!visible) return Life::unknown;
  if (::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH) return Life::gone;
  const auto fields = fields_of(process);
  if (fields.size() <= start_field) return Life::lives;  // the system does not say more
  const bool other = !started.empty() && fields[start_field] != started;
  return has_ended(fields) || other ? Life::gone : Life::lives;
}

}  // namespace trainctl
