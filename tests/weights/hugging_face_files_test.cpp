// Model directories that are refused: each message has file, tensor and place.
#include <nlohmann/json.hpp>

#include "../data/scratch_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "catch.h"
#include "reference_model.h"
#include "weights/hugging_face.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

namespace fs = std::filesystem;

/// A copy of the sharded reference directory.
struct Copy {
  Copy() { fs::copy(reference_model("llama"), folder.path()); }
  std::string index() const { return bytes_of(folder / "model.safetensors.index.json"); }
  void index(const std::string& text) const { folder.write("model.safetensors.index.json", text); }
  /// The index with the file of one tensor replaced.
  void move_tensor(const std::string& tensor, const nlohmann::json& file) const {
    auto json = nlohmann::json::parse(index());
    json["weight_map"][tensor] = file;
    index(json.dump());
  }
  std::string error() const {
    return error_of([&] { open_model_files(folder.path()); });
  }

  ScratchFolder folder;
};

}  // namespace

TEST_CASE("a sharded directory is opened through its index") {
  const Copy copy;
  CHECK(copy.error() == "");
  const auto files = open_model_files(copy.folder.path());
  CHECK(files.size() == 3);
  CHECK(files[1].path().filename() == "model-00002-of-00003.safetensors");
}

TEST_CASE("an index that leads elsewhere is refused") {
  const Copy copy;
  for (const char* file :
       {"../model.safetensors", "/etc/passwd", "sub/model.safetensors", "..", "", "a\\b"}) {
    INFO(file);
    copy.move_tensor("model.norm.weight", file);
    CHECK(missing_in(copy.error(),
                     {"65 ", "model.safetensors.index.json", "tensor 'model.norm.weight'",
                      "not a file of this directory"}) == "");
  }
  copy.move_tensor("model.norm.weight", 3);
  CHECK(missing_in(copy.error(), {"tensor 'model.norm.weight'", "name of a file"}) == "");
}

TEST_CASE("an index and its shards must name the same tensors") {
  const Copy copy;
  copy.move_tensor("model.norm.weight", "model-00001-of-00003.safetensors");
  CHECK(missing_in(copy.error(), {"model-00003-of-00003.safetensors: tensor 'model.norm.weight'",
                                  "which has it in model-00001-of-00003.safetensors"}) == "");
  const Copy more;
  more.move_tensor("model.extra", "model-00001-of-00003.safetensors");
  CHECK(missing_in(more.error(),
                   {"model-00001-of-00003.safetensors has no tensor 'model.extra'"}) == "");
  const Copy absent;
  fs::remove(absent.folder / "model-00002-of-00003.safetensors");
  CHECK(missing_in(absent.error(), {"66 ", "model-00002-of-00003.safetensors"}) == "");
}

TEST_CASE("an index of another form is refused") {
  const Copy copy;
  for (const char* text : {"", "[]", "{}", "{\"weight_map\": 3}", "{\"weight_map\": {}}", "{"}) {
    copy.index(text);
    CHECK(missing_in(copy.error(), {"65 ", "model.safetensors.index.json", "weight_map"}) == "");
  }
  copy.index(R"({"weight_map": {"a": "x", "a": "y"}})");
  CHECK(missing_in(copy.error(), {"'a' is given twice"}) == "");
  copy.index(std::string(200'000, '['));
  CHECK(missing_in(copy.error(), {"nested too deeply"}) == "");
}

TEST_CASE("links out of the directory are refused, except inside the hub's cache") {
  const ScratchFolder folder;
  const std::string bytes = bytes_of(reference_model("qwen3") / "model.safetensors");
  folder.write("models--x/blobs/abc", bytes);
  const fs::path blob = folder / "models--x/blobs/abc";
  fs::create_directories(folder / "plain");
  fs::create_symlink(blob, folder / "plain/model.safetensors");
  CHECK(missing_in(error_of([&] { open_model_files(folder / "plain"); }),
                   {"65 ", "plain/model.safetensors leads out of its directory, to",
                    "models--x/blobs/abc"}) == "");
  fs::create_directories(folder / "models--x/snapshots/1");
  fs::create_symlink("../../blobs/abc", folder / "models--x/snapshots/1/model.safetensors");
  CHECK(open_model_files(folder / "models--x/snapshots/1").size() == 1);
  folder.write("outside", bytes);
  fs::create_directories(folder / "models--x/snapshots/2");
  fs::create_symlink("../../../outside", folder / "models--x/snapshots/2/model.safetensors");
  CHECK(missing_in(error_of([&] { open_model_files(folder / "models--x/snapshots/2"); }),
                   {"leads out"}) == "");
  fs::create_directories(folder / "broken");
  fs::create_symlink("nowhere", folder / "broken/model.safetensors");
  CHECK(missing_in(error_of([&] { open_model_files(folder / "broken"); }), {"66 ", "broken"}) ==
        "");
}

TEST_CASE("a tokenizer's files go along, but not what lies elsewhere") {
  const ScratchFolder folder;
  folder.write("from/tokenizer.json", "{}");
  folder.write("from/other.json", "{}");
  fs::create_directories(folder / "to");
  CHECK(copy_tokenizer(folder / "from", folder / "to") ==
        std::vector<std::string>{"tokenizer.json"});
  CHECK(bytes_of(folder / "to/tokenizer.json") == "{}");
  CHECK_FALSE(fs::exists(folder / "to/other.json"));
  folder.write("secret", "s");
  fs::create_symlink(folder / "secret", folder / "from/vocab.json");
  CHECK(missing_in(error_of([&] { copy_tokenizer(folder / "from", folder / "to"); }),
                   {"65 ", "vocab.json leads out of its directory"}) == "");
  CHECK_FALSE(fs::exists(folder / "to/vocab.json"));
}

TEST_CASE("a tokenizer's files go into no folder that another start has taken over") {
  const ScratchFolder folder;
  folder.write("from/tokenizer.json", "{}");
  folder.write("from/merges.txt", std::string(1 << 20, 'm'));
  fs::create_directories(folder / "to");
  bool lost = false;
  const Fence fence{7, [&] {
                      if (lost) throw Error(ExitCode::taken, "lost");
                    }};
  CHECK(copy_tokenizer(folder / "from", folder / "to", &fence).size() == 2);
  CHECK(bytes_of(folder / "to/merges.txt") == std::string(1 << 20, 'm'));
  folder.write("from/tokenizer.json", "{1}");
  lost = true;
  CHECK(missing_in(error_of([&] { copy_tokenizer(folder / "from", folder / "to", &fence); }),
                   {"73 ", "lost"}) == "");
  CHECK(bytes_of(folder / "to/tokenizer.json") == "{}");
  CHECK(names_in(folder / "to") == std::vector<std::string>{"merges.txt", "tokenizer.json"});
}

TEST_CASE("pickles are never read") {
  const ScratchFolder folder;
  folder.write("pytorch_model.bin", "\x80\x02");
  CHECK(missing_in(error_of([&] { open_model_files(folder.path()); }),
                   {"66 ", "only as a pickle, pytorch_model.bin", "save_pretrained"}) == "");
  const ScratchFolder empty;
  CHECK(missing_in(error_of([&] { open_model_files(empty.path()); }),
                   {"neither model.safetensors nor"}) == "");
  CHECK(missing_in(error_of([&] { open_model_files(empty / "none"); }),
                   {"66 no model directory"}) == "");
}
