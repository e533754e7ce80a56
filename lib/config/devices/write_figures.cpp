#include <map>
#include <string>

#include "base/units.h"
#include "config/devices/read_figures.h"
#include "config/schema/values.h"

namespace trainctl {

namespace {

/// With six digits, as YAML of every version reads a number.
std::string figure(double value) { return write_value(std::stod(printed("%.6g", value))); }

std::string listed(const std::vector<double>& values, double factor) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + figure(value * factor);
  return "[" + text + "]";
}

std::string product_line(const std::string& type, const ProductFigures& of) {
  std::string tiles;
  for (const ProductTile& tile : of.tiles) {
    tiles += (tiles.empty() ? "" : ", ") + std::to_string(tile.rows) + "x" +
             std::to_string(tile.columns) + ": " + figure(tile.quality);
  }
  std::string table;
  for (const ProductTime& one : of.table) {
    table += (table.empty() ? "" : ", ") + std::to_string(one.rows) + "x" +
             std::to_string(one.columns) + "x" + std::to_string(one.inner) +
             (one.accumulates ? "+" : "") + ": " + figure(one.seconds * 1e6);
  }
  if (!table.empty()) table = ", table: {" + table + "}";
  return "  " + type + ": {peak: " + figure(of.peak) + ", reached: " + figure(of.reached) +
         ", wave: " + figure(of.wave) + ", half: " + figure(of.half) +
         ", launch: " + figure(of.launch) + ", tiles: {" + tiles + "}" + table + "}\n";
}

std::string attention_line(const std::string& kernel, const AttentionFigures& of) {
  std::string table;
  for (const AttentionTime& one : of.table) {
    table += (table.empty() ? "" : ", ") + std::to_string(one.keys) + "x" +
             std::to_string(one.heads) + "x" + std::to_string(one.head_dim) +
             (one.backward ? "b" : "") + ": " + figure(one.seconds * 1e6);
  }
  if (!table.empty()) table = ", table: {" + table + "}";
  return "  " + kernel + ": {forward: " + figure(of.forward) +
         ", half_length: " + figure(of.half_length) + ", head_64: " + figure(of.head_64) +
         ", launch: " + figure(of.launch) + ", backward: " + figure(of.backward) + table + "}\n";
}

std::string collective_lines(const DeviceFigures& device) {
  std::string text = "collectives:\n  link: " + figure(device.link) +
                     "\n  latency: " + figure(device.link_latency) + "\n";
  if (device.collectives.empty()) return text;
  // All tables have the same sizes.
  const CollectiveTable& any = device.collectives.begin()->second.begin()->second;
  text += "  bytes: " + listed(any.bytes, 1) + "\n  microseconds:\n";
  for (const auto& [operation, tables] : device.collectives) {
    text += std::string("    ") + name_of(operation) + ":\n";
    for (const auto& [ranks, table] : tables) {
      text += "      " + std::to_string(ranks) + ": " + listed(table.seconds, 1e6) + "\n";
    }
  }
  return text;
}

}  // namespace

std::string write_device(const DeviceFigures& device) {
  std::string text = "name: " + write_value(device.name) + "\n" +
                     "kind: " + (device.cuda ? "cuda" : "cpu") + "\n" +
                     "trust: " + name_of(device.trust) + "\n" +
                     "memory: {gib: " + figure(device.memory_gib) +
                     ", bandwidth: " + figure(device.memory_bandwidth) +
                     ", reached: " + figure(device.memory_reached) + "}\n" +
                     "processors: " + std::to_string(device.processors) + "\nproducts:\n";
  for (const auto& [type, figures] : device.products) {
    if (!figures.guessed) text += product_line(type, figures);
  }
  if (!device.attention.empty()) text += "attention:\n";
  for (const auto& [kernel, figures] : device.attention) text += attention_line(kernel, figures);
  text += "sustained: " + figure(device.sustained) + "\ncontention: " + figure(device.contention) +
          "\n" + collective_lines(device);
  text += "network: {bandwidth: " + figure(device.network.bandwidth) +
          ", latency: " + figure(device.network.latency) +
          ", links: " + std::to_string(device.network.links) + "}\n";
  text += "host: {ranks: " + std::to_string(device.host_ranks) +
          ", bandwidth: " + figure(device.host_bandwidth) + "}\n";
  if (device.hours_between_failures) {
    text += "hours_between_failures: " + figure(*device.hours_between_failures) + "\n";
  }
  text += "sources:\n";
  std::map<std::string, std::string> sources = device.sources;
  for (const char* key : {"processors", "sustained", "contention"}) {
    sources.try_emplace(key, "the default of the program");
  }
  for (const auto& [key, source] : sources) {
    text += "  " + key + ": " + write_value(source) + "\n";
  }
  return text;
}

}  // namespace trainctl
