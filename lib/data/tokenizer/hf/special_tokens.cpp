#include "data/tokenizer/hf/special_tokens.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <system_error>

#include "base/file.h"

namespace trainctl::hf {

namespace {

std::int32_t read_id(const JsonValue& value, std::int64_t vocab_size) {
  return static_cast<std::int32_t>(value.whole(0, vocab_size - 1));
}

/// The ids of a piece {"SpecialToken": {"id": NAME}}.
std::vector<std::int32_t> read_piece(const JsonValue& name, const JsonValue& known,
                                     std::int64_t vocab_size) {
  const JsonValue entry = known[name.text()];
  if (entry.is_null()) name.refuse(in_quotes(name.text()) + " is not in special_tokens");
  std::vector<std::int32_t> ids;
  entry["ids"].each_item([&](const JsonValue& id) { ids.push_back(read_id(id, vocab_size)); });
  return ids;
}

/// Puts the tokens of a template around those that are there.
void read_template(const JsonValue& value, std::int64_t vocab_size, TextFrame& frame) {
  value.allow_only({"type", "single", "pair", "special_tokens"});
  TextFrame read;
  int texts = 0;
  value["single"].each_item([&](const JsonValue& piece) {
    piece.allow_only({"SpecialToken", "Sequence"});
    const JsonValue sequence = piece["Sequence"];
    if (!sequence.is_null()) {
      if (sequence["id"].text() != "A") sequence["id"].refuse("expected \"A\"");
      ++texts;
      return;
    }
    auto& side = texts == 0 ? read.before : read.after;
    const auto ids = read_piece(piece["SpecialToken"]["id"], value["special_tokens"], vocab_size);
    side.insert(side.end(), ids.begin(), ids.end());
  });
  if (texts != 1) value["single"].refuse("expected the text, Sequence A, exactly once");
  frame.before.insert(frame.before.begin(), read.before.begin(), read.before.end());
  frame.after.insert(frame.after.end(), read.after.begin(), read.after.end());
}

void read_processor(const JsonValue& value, std::int64_t vocab_size, int depth, TextFrame& frame) {
  if (depth == deepest_sequence) value.refuse("sequences nest more than 16 deep");
  const std::string type = value["type"].text();
  if (type == "Sequence") {
    value.allow_only({"type", "processors"});
    value["processors"].each_item(
        [&](const JsonValue& item) { read_processor(item, vocab_size, depth + 1, frame); });
  } else if (type == "TemplateProcessing") {
    read_template(value, vocab_size, frame);
  } else if (type != "ByteLevel") {  // which only moves the offsets of tokens
    value["type"].refuse("post-processor " + in_quotes(type) +
                         " is not built: TemplateProcessing, ByteLevel or Sequence");
  }
}

bool is_there(const std::filesystem::path& file) { return kind_of_file(file) != FileKind::none; }

/// Reads the files of a folder; what an earlier one says holds.
class Reader {
 public:
  Reader(const std::filesystem::path& folder, const KnownTokenizer& known)
      : folder_(folder), known_(known) {
    for (const AddedToken& token : known.added) added_.emplace(token.id, &token);
  }

  SpecialTokens run() {
    read("tokenizer_config.json", [&](const JsonValue& root) {
      check_added(root["added_tokens_decoder"]);
      take_names(root);
      check_flags(root);
    });
    read("special_tokens_map.json", [&](const JsonValue& root) { take_names(root); });
    read("generation_config.json", [&](const JsonValue& root) { take_ids(root); });
    read("config.json", [&](const JsonValue& root) { take_ids(root); });
    if (tokens_.eos) add_stop(*tokens_.eos);
    return std::move(tokens_);
  }

 private:
  template <class Use>
  void read(const char* name, Use use) {
    const std::filesystem::path file = folder_ / name;
    if (!is_there(file)) return;
    tokens_.read_from.push_back(file);
    use(JsonFile(file).root());
  }

  /// The reference library takes the tokens of this list over those of tokenizer.json.
  void check_added(const JsonValue& decoder) {
    if (decoder.is_null()) return;
    decoder.each_member([&](const std::string& id, const JsonValue& value) {
      std::int32_t number = -1;
      std::from_chars(id.data(), id.data() + id.size(), number);
      const auto found = added_.find(number);
      if (found == added_.end()) value.refuse("tokenizer.json adds no token with this id");
      const AddedToken& token = *found->second;
      const std::string content = value["content"].text();
      if (content != token.content) {
        value["content"].refuse(in_quotes(content) + ", but " + in_quotes(token.content) +
                                " in tokenizer.json");
      }
      const std::pair<const char*, bool> flags[] = {{"special", token.special},
                                                    {"single_word", token.single_word},
                                                    {"lstrip", token.lstrip},
                                                    {"rstrip", token.rstrip},
                                                    {"normalized", token.normalized}};
      for (const auto& [name, expected] : flags) {
        if (!value[name].is_null() && value[name].flag() != expected) {
          value[name].refuse("is otherwise in tokenizer.json");
        }
      }
    });
  }

  /// The classes of the reference library that heed these flags change what tokenizer.json says.
  void check_flags(const JsonValue& root) const {
    const auto check = [&](const char* name, bool is_so) {
      const JsonValue flag = root[name];
      if (!flag.is_null() && flag.flag() != is_so) {
        flag.refuse(std::string(is_so ? "false" : "true") +
                    ", but tokenizer.json has it otherwise");
      }
    };
    const auto has = [](const std::vector<std::int32_t>& side, std::optional<std::int32_t> token) {
      return token && std::find(side.begin(), side.end(), *token) != side.end();
    };
    check("add_bos_token", has(known_.frame.before, tokens_.bos));
    check("add_eos_token", has(known_.frame.after, tokens_.eos));
    if (known_.prefix_space) check("add_prefix_space", *known_.prefix_space);
  }

  /// "eos_token": a text, or an object with its "content".
  void take_names(const JsonValue& root) {
    const auto take = [&](const char* name, std::optional<std::int32_t>& token) {
      JsonValue value = root[name];
      if (value.is_object()) value = value["content"];
      if (token || value.is_null()) return;
      token = known_.id_of(value.text());
      if (!token) value.refuse(in_quotes(value.text()) + " is not a token of tokenizer.json");
    };
    take("bos_token", tokens_.bos);
    take("eos_token", tokens_.eos);
    take("pad_token", tokens_.pad);
  }

  /// "eos_token_id": a number, or a list of them.
  void take_ids(const JsonValue& root) {
    const auto take = [&](const char* name, std::optional<std::int32_t>& token, bool stops) {
      std::vector<std::int32_t> ids;
      const JsonValue value = root[name];
      if (value.is_list()) {
        value.each_item(
            [&](const JsonValue& id) { ids.push_back(read_id(id, known_.vocab_size)); });
      } else if (!value.is_null()) {
        ids.push_back(read_id(value, known_.vocab_size));
      }
      if (!token && !ids.empty()) token = ids.front();
      for (const std::int32_t id : ids) {
        if (stops) add_stop(id);
      }
    };
    take("bos_token_id", tokens_.bos, false);
    take("eos_token_id", tokens_.eos, true);
    take("pad_token_id", tokens_.pad, false);
  }

  void add_stop(std::int32_t id) {
    auto& stops = tokens_.stops;
    if (std::find(stops.begin(), stops.end(), id) == stops.end()) stops.push_back(id);
  }

  const std::filesystem::path& folder_;
  const KnownTokenizer& known_;
  std::map<std::int32_t, const AddedToken*> added_;
  SpecialTokens tokens_;
};

}  // namespace

TextFrame read_post_processor(const JsonValue& post_processor, std::int64_t vocab_size) {
  TextFrame frame;
  if (!post_processor.is_null()) read_processor(post_processor, vocab_size, 0, frame);
  return frame;
}

SpecialTokens read_special_tokens(const std::filesystem::path& folder,
                                  const KnownTokenizer& known) {
  return Reader(folder, known).run();
}

}  // namespace trainctl::hf
