// The files of devices and software that are part of the program, and mistakes in one's own.
#include <string>

#include "catch.h"
#include "config/devices/figures.h"
#include "contains.h"

using namespace trainctl;

namespace {

std::string text_of(std::string_view device) {
  return std::string(find_known(known_devices(), device)->text);
}

std::string with(std::string text, const std::string& old, const std::string& made) {
  const std::size_t at = text.find(old);
  REQUIRE(at != std::string::npos);
  return text.replace(at, old.size(), made);
}

/// The mistakes of a device's text, one a line: "file:line:column: path: message".
std::string mistake_of(const std::string& text) {
  Diagnostics mistakes;
  read_device(text, "own.yaml", mistakes);
  std::string lines = mistakes.list().empty() ? "none" : "";
  for (const Diagnostic& one : mistakes.list()) {
    lines += one.place.to_string() + ": " + one.path + ": " + one.message + "\n";
  }
  return lines;
}

}  // namespace

TEST_CASE("every shipped file of a device can be read, and says where its figures are from") {
  CHECK(known_devices().size() >= 10);
  for (const KnownFile& file : known_devices()) {
    INFO(file.name);
    Diagnostics mistakes;
    const DeviceFigures device = read_device(file.text, std::string(file.name), mistakes);
    INFO(render_text(mistakes, false));
    CHECK(mistakes.list().empty());
    for (const char* figure : {"memory", "products", "collectives", "network", "host"}) {
      CHECK(device.sources.contains(figure));
    }
    CHECK_FALSE(device.attention.empty());
  }
}

TEST_CASE("every shipped file of software can be read, and extends what it shares") {
  Diagnostics mistakes;
  const SoftwareFigures shared = read_software(shared_software().text, "shared", mistakes);
  for (const KnownFile& file : known_software()) {
    INFO(file.name);
    const SoftwareFigures software = read_software(file.text, std::string(file.name), mistakes);
    INFO(render_text(mistakes, false));
    CHECK(mistakes.list().empty());
    CHECK_FALSE(software.attention.empty());
    if (file.name != "trainctl") CHECK(software.network_share == shared.network_share);
  }
}

TEST_CASE("what is written of a device reads back") {
  for (const KnownFile& file : known_devices()) {
    INFO(file.name);
    Diagnostics mistakes;
    const std::string first = write_device(read_device(file.text, "shipped", mistakes));
    const std::string second = write_device(read_device(first, "written", mistakes));
    INFO(render_text(mistakes, false));
    CHECK(mistakes.list().empty());
    CHECK(first == second);
    CHECK(contains(first, "peak: "));
  }
}

TEST_CASE("a mistake in a file of figures has its place, its key and the rule") {
  const std::string good = text_of("h100-sxm");
  CHECK(mistake_of(good) == "none");
  CHECK(contains(mistake_of(with(good, "gib: 80", "gib: -80")), "memory.gib: "));
  CHECK(contains(mistake_of(with(good, "gib: 80", "gib: -80")), "own.yaml:4:"));
  CHECK(contains(mistake_of(with(good, "trust: device table", "trust: a feeling")),
                 "trust: must be"));
  CHECK(contains(mistake_of(with(good, "processors: 132", "procesors: 132")),
                 "procesors: unknown key"));
  CHECK(contains(mistake_of(with(good, "  memory: size and bandwidth of", "  memry: of")),
                 "sources.memory: the figure is missing"));
  CHECK(contains(mistake_of(with(good, "    all_gather:", "    gather:")), "is no collective"));
  CHECK(contains(mistake_of(with(good, "[512, 1024, ", "[1024, ")), "times for 20 sizes"));
  CHECK(contains(mistake_of(with(good, "128x256: 1.0", "large: 1.0")), "ROWSxCOLUMNS"));
  CHECK(contains(mistake_of("[1, 2]"), "a map of figures"));
  CHECK(contains(mistake_of("a: [1"), "own.yaml:1:"));
}
