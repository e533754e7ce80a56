#include "source_rules.h"

#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace {

using Lines = std::vector<std::string>;

/// Which folders of lib/ each folder may include from, besides itself.
const std::map<std::string, std::set<std::string>> allowed_folders = [] {
  std::map<std::string, std::set<std::string>> allowed = {
      {"base", {}},
      {"config", {"base"}},
      {"plan", {"base", "config"}},
      {"device", {"base"}},
      {"ops", {"base", "device"}},
      {"comm", {"base", "device"}},
      {"data", {"base"}},
      {"formats", {"base", "config", "plan"}},
      {"nn", {"base", "plan", "device", "ops", "comm"}},
  };
  std::set<std::string> below = {"base", "config", "plan", "formats", "device",
                                 "ops",  "comm",   "data", "nn"};
  for (const char* folder : {"engine", "weights", "checkpoint", "run", "verify", "bench"}) {
    allowed[folder] = below;
    below.insert(folder);
  }
  return allowed;
}();

/// The rooms of a folder, lowest first: each may include from those before it. "": the folder's own
/// files.
const std::map<std::string, std::vector<std::string>> rooms = {
    {"config",
     {"report", "yaml", "schema", "devices", "support", "upstream", "mindformers", "read",
      "explain", "migrate"}},
    {"plan",
     {"tables", "model", "rules", "remedies", "search", "gradients", "schedule", "generators", "",
      "ownership", "prices", "cost", "prepare"}},
    {"ops",
     {"", "plain", "cpu/vector", "cpu/attention", "cpu/matmul", "cpu", "cuda/cublas", "cuda",
      "cuda/cudnn"}},
    {"comm", {"", "host", "threads", "mpi", "nccl"}},
    {"data", {"tokenizer/hf", "tokenizer", ""}},
    {"formats", {"print", "web", "json", "strategy"}},
    {"engine", {"memory", "groups", "parameters", ""}},
    {"run",
     {"directory", "records", "views", "preflight", "data", "products", "search", "", "calibration",
      "layouts", "models"}},
    {"verify", {"own", "switches", "", "selection"}},
    {"bench", {"", "ops", "comm", "device"}},
};

/// Rooms that may include less than their folder: what verify computes apart from the engine shares
/// only data types with it.
const std::map<std::string, std::vector<std::string>> narrow_rooms = {
    {"lib/verify/own/", {"base/", "config/schema/", "plan/tables/", "verify/own/"}},
};

/// Headers and the only files that may include them: third-party ones, and what run/prepare.h is
/// the one gate to.
struct HeaderRule {
  HeaderRule(const char* header_pattern, const char* files_pattern)
      : header(header_pattern), files(files_pattern), places(files_pattern) {}
  std::regex header;
  std::string files;
  std::regex places;  // the same
};
const HeaderRule header_rules[] = {
    {"mpi\\.h|mpi-ext\\.h", "lib/comm/mpi/.*"},
    {"nccl\\.h", "lib/comm/nccl/.*"},
    {"yaml-cpp/.*", "lib/config/yaml/.*\\.cpp"},
    {"CLI/.*", "apps/.*"},
    {"(cuda|cublas|cudnn|nvtx|nvml).*", "lib/device/.*cuda.*|lib/ops/cuda/.*|lib/comm/nccl/.*"},
    {"(oneapi/)?dnnl.*", "lib/ops/cpu/matmul/.*"},
    {"xxhash\\.h", "lib/checkpoint/hash_bytes\\.cpp"},
    {"sentencepiece.*", "lib/data/tokenizer/tokenizer\\.cpp"},
    {"pcre2\\.h", "lib/data/tokenizer/hf/pattern\\.cpp"},
    {"utf8proc\\.h", "lib/data/tokenizer/hf/unicode\\.cpp"},
    {"spdlog/.*", "lib/base/.*\\.cpp"},
    {"fmt/core\\.h", "lib/base/.*"},
    {"fmt/(?!core\\.h).*", "lib/base/.*\\.cpp"},
    {"nlohmann/.*",
     "(lib|apps)/.*\\.cpp|lib/config/upstream/hugging_face_reader\\.h|lib/base/json_text\\.h"},
    {"omp\\.h", "lib/ops/cpu/matmul/library\\.cpp"},
    {"plan/prepare/.*", "lib/plan/prepare/.*|lib/run/prepare\\.cpp"},
};

/// Headers and sources of one room.
constexpr int max_files = 40;

bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_match(text, std::regex(pattern));
}

std::string folder_of(const std::string& path) {
  static const std::regex pattern("lib/([^/]+)/.*");
  std::smatch found;
  return std::regex_match(path, found, pattern) ? found[1].str() : "";
}

bool is_header(const std::string& path) { return path.ends_with(".h") || path.ends_with(".cuh"); }

bool is_kernel(const std::string& path) { return matches(path, "lib/ops/(plain|cpu|cuda)/.*"); }

/// "yaml" of "config/yaml/tree.h", "" of "config/a.h".
std::string room_in_folder(const std::string& path) {
  const std::size_t first = path.find('/');
  const std::size_t last = path.rfind('/');
  return first == last ? "" : path.substr(first + 1, last - first - 1);
}

/// Place of a room in its folder's order, -1: the folder has no such room.
std::ptrdiff_t room_order(const std::string& folder, const std::string& room) {
  const auto found = rooms.find(folder);
  if (found == rooms.end()) return room.empty() ? 0 : -1;
  const auto place = std::find(found->second.begin(), found->second.end(), room);
  return place == found->second.end() ? -1 : place - found->second.begin();
}

Lines split(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Lines codes_of(const Lines& lines) {
  Lines codes;
  for (const std::string& line : lines) codes.push_back(code_of(line));
  return codes;
}

/// A pattern of whole lines, each of which has one of some words: other lines, nearly all, need no
/// regular expression.
class LinePattern {
 public:
  LinePattern(std::vector<std::string> words, const char* pattern)
      : words_(std::move(words)), pattern_(pattern) {}

  bool matches(const std::string& line) const {
    return may_match(line) && std::regex_match(line, pattern_);
  }
  bool matches(const std::string& line, std::smatch& parts) const {
    return may_match(line) && std::regex_match(line, parts, pattern_);
  }

 private:
  bool may_match(const std::string& line) const {
    return std::any_of(words_.begin(), words_.end(), [&](const std::string& word) {
      return line.find(word) != std::string::npos;
    });
  }

  std::vector<std::string> words_;
  std::regex pattern_;
};

/// Captures " or <, and the name of the header.
const LinePattern include_pattern({"include"}, "\\s*#\\s*include\\s*([<\"])([^>\"]+)[>\"].*");

std::string at(const std::string& path, std::size_t line) {
  return path + ":" + std::to_string(line + 1) + ": ";
}

void check_include(const std::string& path, std::size_t line, const std::string& header,
                   Lines& found) {
  const std::string folder = folder_of(path);
  const std::string target = header.substr(0, header.find('/'));
  if (!folder.empty() && allowed_folders.contains(target) && target != folder &&
      header.find('/') != std::string::npos) {
    const auto allowed = allowed_folders.find(folder);
    if (allowed == allowed_folders.end() || !allowed->second.contains(target)) {
      found.push_back(at(path, line) + folder + "/ may not include " + header);
    }
  }
  if (!folder.empty() && target == folder) {
    const std::string room = room_in_folder(path.substr(4));
    const std::string other = room_in_folder(header);
    if (room_order(folder, other) < 0 ||
        (room != other && room_order(folder, room) < room_order(folder, other))) {
      found.push_back(at(path, line) + folder + "/" + room + " may not include " + header);
    }
  }
  for (const auto& [room, places] : narrow_rooms) {
    const auto begins = [&](const std::string& place) { return header.starts_with(place); };
    const bool ours = header.find('/') != std::string::npos;
    if (path.starts_with(room) && ours && std::ranges::none_of(places, begins)) {
      found.push_back(at(path, line) + room + " may not include " + header);
    }
  }
  for (const HeaderRule& rule : header_rules) {
    if (std::regex_match(header, rule.header) && !std::regex_match(path, rule.places)) {
      found.push_back(at(path, line) + header + " belongs in " + rule.files);
    }
  }
}

void check_includes(const std::string& path, const Lines& lines, Lines& found) {
  std::smatch parts;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (include_pattern.matches(lines[i], parts)) check_include(path, i, parts[2].str(), found);
  }
}

std::size_t width_of(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char byte) { return (byte & 0xc0) != 0x80; }));
}

void check_sizes(const std::string& path, const Lines& lines, Lines& found) {
  const std::size_t most = is_header(path) ? 250 : 800;
  if (lines.size() > most) {
    found.push_back(at(path, most) + std::to_string(lines.size()) + " lines, more than " +
                    std::to_string(most));
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (width_of(lines[i]) > 100) found.push_back(at(path, i) + "wider than 100 columns");
  }
}

/// Functions start and end in the first column, as clang-format leaves them.
void check_functions(const std::string& path, const Lines& lines, Lines& found) {
  const std::size_t most = is_kernel(path) ? 120 : 80;
  static const std::regex type("(template.*)?\\s*(struct|class|enum|union|namespace)\\b.*");
  std::size_t start = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.starts_with("}") && line.size() == 1 && i - start + 1 > most &&
        !std::regex_match(lines[start], type)) {
      found.push_back(at(path, start) + "function of " + std::to_string(i - start + 1) +
                      " lines, more than " + std::to_string(most));
    }
    const bool opens = !line.empty() && std::string(" }#/*)").find(line[0]) == std::string::npos;
    if (opens && (i == 0 || !lines[i - 1].starts_with("template"))) start = i;
  }
}

void check_opening(const std::string& path, const Lines& lines, Lines& found) {
  if (!is_header(path)) return;
  std::size_t comment = 0;
  while (comment < lines.size() && lines[comment].starts_with("//")) ++comment;
  if (comment < 1 || comment > 6) {
    found.push_back(at(path, 0) + "a header opens with 1 to 6 lines that say what it is");
  }
  if (comment >= lines.size() || lines[comment] != "#pragma once") {
    found.push_back(at(path, comment) + "#pragma once follows the opening comment");
  }
}

/// Whether a macro is KERNEL for the list of kernels, which the next lines include, and no more.
bool lists_kernels(const Lines& lines, std::size_t i) {
  while (i + 1 < lines.size() && lines[i].ends_with('\\')) ++i;
  return i + 2 < lines.size() && lines[i + 1] == "#include \"ops/kernels.def\"" &&
         lines[i + 2] == "#undef KERNEL";
}

void check_words(const std::string& path, const Lines& lines, const Lines& codes, Lines& found) {
  static const LinePattern vague(
      {"Manager", "Registry", "Factory", "Strategy", "Helper", "Utils"},
      ".*\\b(class|struct)\\s+\\w*(Manager|Registry|Factory|Strategy|Helper|Utils)\\b.*");
  static const LinePattern promise({"TODO", "FIXME", "XXX", "HACK"},
                                   ".*\\b(TODO|FIXME|XXX|HACK)\\b.*");
  static const LinePattern shared({"shared_ptr"}, ".*\\bshared_ptr\\b.*");
  static const LinePattern macro({"define"}, "\\s*#\\s*define\\s+(\\w+)\\(.*");
  // Code that a host's compiler cannot read: tests/cuda_on_host has twins of the two files with it.
  static const LinePattern device({"<<<", "__shared__", "asm"}, ".*(<<<|__shared__|\\basm\\b).*");
  const bool kernel = path.starts_with("lib/ops/cuda/") && path != "lib/ops/cuda/block.cuh" &&
                      path != "lib/ops/cuda/conversions.cuh";
  const bool in_lib = path.starts_with("lib/");
  const bool logger = path == "lib/base/log.cpp";  // spdlog takes its sinks as shared_ptr
  std::smatch name;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& code = codes[i];
    if (vague.matches(code)) found.push_back(at(path, i) + "a vague type name");
    if (promise.matches(lines[i])) found.push_back(at(path, i) + "a promise for later");
    if (!in_lib) continue;
    if (kernel && device.matches(code)) {
      found.push_back(at(path, i) + "belongs in lib/ops/cuda/block.cuh or conversions.cuh");
    }
    if (!logger && shared.matches(code)) found.push_back(at(path, i) + "shared_ptr");
    if (macro.matches(code, name) && !matches(name[1].str(), "(CUDA|CUBLAS|NCCL|MPI)_CHECK") &&
        !lists_kernels(lines, i)) {
      found.push_back(at(path, i) + "a function-like macro, " + name[1].str());
    }
  }
}

/// Conditional compilation may choose between functions, never between lines of one.
void check_conditions(const std::string& path, const Lines& codes, Lines& found) {
  static const LinePattern condition({"#"}, "\\s*#\\s*if.*");
  std::vector<bool> inside_code;  // for each open brace: whether it is more than a namespace
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::string& code = codes[i];
    if (condition.matches(code) && !inside_code.empty() && inside_code.back()) {
      found.push_back(at(path, i) + "conditional compilation inside a function");
    }
    const bool is_outer = code.starts_with("namespace") || code.starts_with("extern");
    for (const char letter : code) {
      if (letter == '{') inside_code.push_back(!is_outer);
      if (letter == '}' && !inside_code.empty()) inside_code.pop_back();
    }
  }
}

void check_room(const std::string& path, Lines& found) {
  const std::string folder = folder_of(path);
  if (folder.empty() || !allowed_folders.contains(folder)) return;
  const std::string room = room_in_folder(path.substr(4));
  if (room_order(folder, room) < 0) found.push_back(path + ": not a room of lib/" + folder);
}

void check_file_name(const std::string& path, Lines& found) {
  if (matches(path, ".*(manager|registry|factory|strategy|helper|utils?)[^/]*")) {
    found.push_back(path + ": a vague file name");
  }
}

}  // namespace

std::string code_of(const std::string& line) {
  std::string code;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line.compare(i, 2, "//") == 0) break;
    code += line[i];
    if (line[i] != '"' || line.compare(i - (i > 0 ? 1 : 0), 3, "'\"'") == 0) continue;
    std::size_t end = i + 1;
    while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
    if (end >= line.size()) continue;
    code += '"';
    i = end;
  }
  return code;
}

std::vector<std::string> rule_violations(const std::string& path, const std::string& text) {
  Lines found;
  const Lines lines = split(text);
  const Lines codes = codes_of(lines);
  check_file_name(path, found);
  check_room(path, found);
  check_opening(path, lines, found);
  check_includes(path, lines, found);
  check_sizes(path, lines, found);
  check_functions(path, lines, found);
  check_words(path, lines, codes, found);
  if (path.starts_with("lib/")) check_conditions(path, codes, found);
  return found;
}

std::vector<std::string> structure_violations(const std::map<std::string, std::string>& texts) {
  Lines found;
  std::map<std::string, Lines> includes;
  for (const auto& [path, text] : texts) {
    std::smatch parts;
    for (const std::string& line : split(text)) {
      if (include_pattern.matches(line, parts) && parts[1] == "\"") {
        includes[path].push_back("lib/" + parts[2].str());
      }
    }
  }
  std::map<std::string, int> state;  // 1: being visited, 2: done
  const std::function<void(const std::string&)> visit = [&](const std::string& path) {
    state[path] = 1;
    for (const std::string& header : includes[path]) {
      if (state[header] == 1) found.push_back(path + ": includes " + header + " in a circle");
      if (state[header] == 0) visit(header);
    }
    state[path] = 2;
  };
  for (const auto& [path, text] : texts) {
    if (state[path] == 0) visit(path);
  }
  return found;
}
