// Resources of the compiled kernels on a device of compute capability 9.0, read from the module
// itself: registers, stack, and whether they have the instructions that make them fast. The limits
// are in cuda_kernel_limits.txt.
#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "catch.h"

namespace {

/// The greatest values over all instances of a template; an instruction counts if one instance has
/// it.
struct KernelUse {
  std::int64_t registers = 0;  // of a thread
  std::int64_t stack = 0;      // bytes of a thread: arrays by variable index, and what was spilled
  std::set<std::string> has;
};
using Kernels = std::map<std::string, KernelUse>;

template <class T>
T read(const std::string& bytes, std::size_t at) {
  T value{};
  REQUIRE(at + sizeof value <= bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// The sections of an ELF file, by name, and the symbols by number.
struct Elf {
  explicit Elf(const std::string& bytes) {
    const auto table = read<std::uint64_t>(bytes, 0x28);
    const auto count = read<std::uint16_t>(bytes, 0x3c);
    const auto place = [&](std::size_t i) { return table + 64 * i; };
    const auto content = [&](std::size_t i) {
      const auto size = read<std::uint64_t>(bytes, place(i) + 32);
      constexpr std::uint32_t no_bits = 8;
      if (read<std::uint32_t>(bytes, place(i) + 4) == no_bits) return std::string();
      return bytes.substr(read<std::uint64_t>(bytes, place(i) + 24), size);
    };
    const std::string names = content(read<std::uint16_t>(bytes, 0x3e));
    for (std::size_t i = 0; i < count; ++i) {
      sections.emplace(names.c_str() + read<std::uint32_t>(bytes, place(i)), content(i));
    }
    const std::string& strings = sections[".strtab"];
    const std::string& table_of_symbols = sections[".symtab"];
    for (std::size_t at = 0; at + 24 <= table_of_symbols.size(); at += 24) {
      symbols.emplace_back(strings.c_str() + read<std::uint32_t>(table_of_symbols, at));
    }
  }
  std::map<std::string, std::string> sections;
  std::vector<std::string> symbols;
};

/// "norm_forward_kernel" of a mangled name. No two files have kernels of one name.
std::string plain_name(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : mangled;
  std::free(text);
  const std::string hidden = "(anonymous namespace)::";
  const std::size_t begin = name.find(hidden);
  if (begin != std::string::npos) name = name.substr(begin + hidden.size());
  name = name.substr(0, name.find_first_of("<(>"));
  return name.substr(name.rfind(':') + 1);
}

/// The instructions that the limits speak of, by the low 12 bits of their 128.
std::string instruction(std::uint64_t low, std::uint64_t high) {
  const bool sixteen_bytes = (high >> 9 & 7) == 6;
  switch (low & 0xfff) {
    case 0x23c: return "tensor";                           // HMMA
    case 0x83b: return "matrix";                           // LDSM: ldmatrix
    case 0xfae: return "copy";                             // LDGSTS: cp.async
    case 0x981: return sixteen_bytes ? "wide_load" : "";   // LDG
    case 0x986: return sixteen_bytes ? "wide_store" : "";  // STG
    default: return "";
  }
}

/// Adds the kernels of one compiled file.
void add_kernels(const std::string& compiled, Kernels& kernels) {
  const Elf elf(compiled);
  for (const auto& [name, code] : elf.sections) {
    if (!name.starts_with(".text.")) continue;
    KernelUse& use = kernels[plain_name(name.substr(6))];
    for (std::size_t at = 0; at + 16 <= code.size(); at += 16) {
      const std::string found =
          instruction(read<std::uint64_t>(code, at), read<std::uint64_t>(code, at + 8));
      if (!found.empty()) use.has.insert(found);
    }
  }
  // Attributes: format, number, and for format 4 a size and the symbol and value.
  const std::string& info = elf.sections.at(".nv.info");
  constexpr std::uint8_t registers = 0x2f;
  constexpr std::uint8_t frame = 0x11;
  for (std::size_t at = 0; at + 4 <= info.size();) {
    const bool sized = info[at] == 4;
    const std::size_t size = sized ? read<std::uint16_t>(info, at + 2) : 0;
    if (sized && size == 8) {
      const auto number = static_cast<std::uint8_t>(info[at + 1]);
      const std::string& symbol = elf.symbols.at(read<std::uint32_t>(info, at + 4));
      const auto value = static_cast<std::int64_t>(read<std::uint32_t>(info, at + 8));
      const auto found = kernels.find(plain_name(symbol));
      if (found != kernels.end() && number == registers) {
        found->second.registers = std::max(found->second.registers, value);
      }
      if (found != kernels.end() && number == frame) {
        found->second.stack = std::max(found->second.stack, value);
      }
    }
    at += 4 + size;
  }
}

/// The kernels for `capability` in the module's section of device code.
Kernels kernels_of(const std::string& module, std::uint32_t capability) {
  Kernels kernels;
  const std::string code = Elf(module).sections[".nv_fatbin"];
  constexpr std::uint32_t magic = 0xba55ed50;
  for (std::size_t at = 0; at + 16 <= code.size();) {
    if (read<std::uint32_t>(code, at) != magic) {
      at += 8;
      continue;
    }
    std::size_t entry = at + read<std::uint16_t>(code, at + 6);
    const std::size_t end = entry + read<std::uint64_t>(code, at + 8);
    while (entry < end) {
      constexpr std::uint16_t machine_code = 2;
      const auto size = read<std::uint64_t>(code, entry + 8);
      const std::size_t begin = entry + read<std::uint32_t>(code, entry + 4);
      const bool wanted = read<std::uint16_t>(code, entry) == machine_code &&
                          read<std::uint32_t>(code, entry + 28) == capability;
      if (wanted) add_kernels(code.substr(begin, size), kernels);
      entry = begin + size;
    }
    at = end;
  }
  return kernels;
}

std::string text_of(const Kernels& kernels) {
  std::ostringstream text;
  for (const auto& [name, use] : kernels) {
    text << name << " " << use.registers << " " << use.stack;
    for (const std::string& one : use.has) text << " " << one;
    text << "\n";
  }
  return text.str();
}

/// "NAME REGISTERS STACK INSTRUCTION...": at most these, and with these.
Kernels limits_of(std::istream& text) {
  Kernels limits;
  for (std::string line; std::getline(text, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string name;
    words >> name;
    KernelUse& limit = limits[name];
    words >> limit.registers >> limit.stack;
    for (std::string word; words >> word;) limit.has.insert(word);
  }
  return limits;
}

std::vector<std::string> violations(const Kernels& kernels, const Kernels& limits) {
  std::vector<std::string> found;
  for (const auto& [name, use] : kernels) {
    const auto limit = limits.find(name);
    if (limit == limits.end()) {
      found.push_back(name + " has no limits");
      continue;
    }
    const auto over = [&](const char* what, std::int64_t value, std::int64_t most) {
      if (value <= most) return;
      found.push_back(name + ": " + what + " " + std::to_string(value) + ", more than " +
                      std::to_string(most));
    };
    over("registers", use.registers, limit->second.registers);
    over("bytes of stack", use.stack, limit->second.stack);
    for (const std::string& one : limit->second.has) {
      if (!use.has.contains(one)) found.push_back(name + ": no " + one);
    }
  }
  for (const auto& [name, limit] : limits) {
    if (!kernels.contains(name)) found.push_back(name + " has limits, but is not there");
  }
  return found;
}

std::string whole(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

TEST_CASE("compiled kernels keep their limits of registers and stack and have their instructions") {
  const Kernels kernels = kernels_of(whole(TRAINCTL_CUDA_FILE), 90);
  if (kernels.empty()) {
    std::cout << "skipped: the module has no code for compute capability 9.0\n";
    return;
  }
  std::ifstream file(TRAINCTL_TEST_DIR "/ops/cuda_kernel_limits.txt");
  INFO("what the module has:\n" << text_of(kernels));
  for (const std::string& violation : violations(kernels, limits_of(file))) {
    INFO(violation);
    CHECK(violation.empty());
  }
}

TEST_CASE("what exceeds a limit of a kernel is told") {
  const Kernels kernels{{"fast", {.registers = 64, .stack = 0, .has = {"tensor"}}},
                        {"spills", {.registers = 255, .stack = 96, .has = {}}},
                        {"new", {}}};
  std::istringstream limits("# a comment\nfast 64 0 tensor wide_load\nspills 200 0\ngone 10 0\n");
  CHECK(violations(kernels, limits_of(limits)) ==
        std::vector<std::string>{
            "fast: no wide_load", "new has no limits", "spills: registers 255, more than 200",
            "spills: bytes of stack 96, more than 0", "gone has limits, but is not there"});
}
