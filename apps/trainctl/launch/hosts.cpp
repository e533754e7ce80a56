#include "launch/hosts.h"

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "comm/interfaces.h"
#include "comm/self_group.h"
#include "config/schema/most_ranks.h"
#include "execute.h"

namespace trainctl {

namespace {

/// A whole number from 1 on; 0: something else.
std::int64_t count_in(const std::string& text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end && value >= 1 && value <= most_ranks ? value
                                                                                            : 0;
}

void add_name(Hosts& hosts, const std::string& name) {
  if (std::ranges::find(hosts.names, name) == hosts.names.end()) hosts.names.push_back(name);
  hosts.several = hosts.names.size() > 1;
}

/// The line without its comment, and with "slots = 2" as "slots=2".
std::string plain_line(std::string line) {
  line.erase(std::min(line.find('#'), line.size()));
  for (std::size_t place = line.find('='); place != std::string::npos;
       place = line.find('=', place + 1)) {
    while (place > 0 && line[place - 1] == ' ') line.erase(--place, 1);
    while (place + 1 < line.size() && line[place + 1] == ' ') line.erase(place + 1, 1);
  }
  return line;
}

Hosts allocation_of_slurm() {
  Hosts hosts{.source = "the allocation of Slurm"};
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  hosts.slots = sum_of_tasks(variable("SLURM_TASKS_PER_NODE"));
  const std::string nodes = variable("SLURM_JOB_NODELIST");
  if (nodes.find('[') == std::string::npos && nodes.find(',') == std::string::npos) {
    if (!nodes.empty()) add_name(hosts, nodes);
  } else {
    std::istringstream names(output_of("scontrol", {"show", "hostnames", nodes}));
    for (std::string name; names >> name;) add_name(hosts, name);
    hosts.several = true;
  }
  return hosts;
}

/// One line for each slot.
Hosts allocation_of_pbs(const std::string& path) {
  Hosts hosts{.source = "the allocation of PBS"};
  std::ifstream file(path);
  for (std::string name; file >> name; ++hosts.slots) add_name(hosts, name);
  return hosts;
}

/// The IPv4 addresses of a name.
std::vector<std::uint32_t> addresses_of(const std::string& name) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  std::vector<std::uint32_t> found;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &first) != 0) return found;
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next) {
    sockaddr_in address{};
    std::memcpy(&address, one->ai_addr, sizeof address);
    found.push_back(ntohl(address.sin_addr.s_addr));
  }
  freeaddrinfo(first);
  return found;
}

/// Whether the addresses are this host's: its own name often leads to 127.0.1.1.
bool is_here(const std::vector<std::uint32_t>& addresses, const std::vector<Interface>& own) {
  return std::ranges::any_of(addresses, [&](std::uint32_t address) {
    return address >> 24 == 127 ||
           std::ranges::find(own, address, &Interface::address) != own.end();
  });
}

}  // namespace

std::int64_t sum_of_tasks(const std::string& per_node) {
  std::int64_t sum = 0;
  std::istringstream parts(per_node);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t times = part.find("(x");
    const std::int64_t tasks = count_in(part.substr(0, times));
    const std::int64_t nodes = times == std::string::npos
                                   ? 1
                                   : count_in(part.substr(times + 2, part.find(')') - times - 2));
    if (tasks == 0 || nodes == 0) return 0;
    sum += tasks * nodes;
  }
  return sum;
}

Hosts read_host_file(const std::string& path) {
  std::ifstream file(path);
  require(file.is_open(), ExitCode::missing_input, "cannot read the host file " + path);
  Hosts hosts{.source = "the host file " + path};
  bool all_given = true;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(plain_line(line));
    std::string name;
    if (!(words >> name)) continue;
    std::string slots;
    for (std::string word; words >> word;) {
      if (word.starts_with("slots=")) slots = word.substr(6);
    }
    const std::size_t colon = name.find(':');
    if (colon != std::string::npos) slots = name.substr(colon + 1);
    name = name.substr(0, colon);
    add_name(hosts, name.substr(name.find('@') + 1));
    const std::int64_t count = count_in(slots);
    require(slots.empty() || count > 0, ExitCode::bad_data,
            path + ":" + std::to_string(number) + ": the slots of a host are a number from 1 to " +
                std::to_string(most_ranks) + ", not '" + slots + "'");
    all_given = all_given && count > 0;
    hosts.slots += count;
  }
  require(!hosts.names.empty(), ExitCode::bad_data, "the host file " + path + " names no host");
  if (!all_given) hosts.slots = 0;
  return hosts;
}

std::optional<Hosts> allocated_hosts() {
  if (std::getenv("SLURM_JOB_ID") != nullptr) return allocation_of_slurm();
  const char* nodes = std::getenv("PBS_NODEFILE");
  if (nodes != nullptr) return allocation_of_pbs(nodes);
  if (std::getenv("PBS_JOBID") != nullptr) return Hosts{.source = "the allocation of PBS"};
  return std::nullopt;
}

std::optional<std::string> shared_subnet(const std::vector<std::string>& names) {
  const std::vector<Interface> own = interfaces();
  std::vector<std::string> shared;
  for (const Interface& one : own) {
    if (!one.loopback && std::ranges::find(shared, one.subnet()) == shared.end()) {
      shared.push_back(one.subnet());
    }
  }
  for (const std::string& name : names) {
    const std::vector<std::uint32_t> addresses = addresses_of(name);
    if (name == host_name() || is_here(addresses, own)) continue;
    std::erase_if(shared, [&](const std::string& subnet) {
      const auto net = std::ranges::find(own, subnet, &Interface::subnet);
      return std::ranges::none_of(addresses,
                                  [&](std::uint32_t address) { return net->holds(address); });
    });
  }
  return shared.size() == 1 ? std::optional(shared.front()) : std::nullopt;
}

}  // namespace trainctl
