#include "config/mindformers/file_report.h"

namespace trainctl {

void MindformersFile::ignore(const std::string& path, const std::string& why, const Span& where) {
  diagnostics.add(
      {Severity::warning, "not-carried", path, "ignored: " + why, "", edit.tree().place(where)});
}

void MindformersFile::refuse(const std::string& path, const std::string& what,
                             const std::string& help, const Span& where) {
  diagnostics.add({Severity::error, "no-counterpart", path, what, help, edit.tree().place(where)});
}

void MindformersFile::move(const std::string& from, const std::string& to,
                           const std::string& text) {
  const YamlEntry entry = *edit.find(from);
  const int value = edit.scalar(text, edit.tree().node(entry.value).span);
  edit.remove(from);
  edit.put(to, entry.key_span, value);
  spellings[to] = from;
}

void MindformersFile::give(const std::string& to, const std::string& text, const Span& where) {
  if (!edit.has(to)) edit.put(to, where, edit.scalar(text, where));
}

}  // namespace trainctl
