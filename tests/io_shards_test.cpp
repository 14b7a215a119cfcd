#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "io_files.hpp"
#include "qf/io/safetensors.hpp"
#include "qf/io/safetensors_writer.hpp"

using namespace qf;
using namespace io_test;
namespace fs = std::filesystem;

namespace {

std::string tensor_file(std::string_view name, std::string_view data = "1234") {
  return safetensors(cat({R"({")", name, R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})"}), data);
}

// Two shards: x and y, of 4 bytes each.
class Model {
 public:
  Model() {
    put(folder_ / "1.safetensors", tensor_file("x", "xxxx"));
    put(folder_ / "2.safetensors", tensor_file("y", "yyyy"));
    index(R"("x":"1.safetensors","y":"2.safetensors")");
  }
  void index(std::string_view map, std::string_view metadata = R"({"total_size":8})") {
    text(cat({R"({"metadata":)", metadata, R"(,"weight_map":{)", map, "}}"}));
  }
  void text(std::string_view json) { put(folder_ / "model.safetensors.index.json", json); }
  // The error, with the folder left out of it.
  std::string error(io::SafetensorsOptions options = {}) const {
    const auto opened = io::open_safetensors(folder_.path(), options);
    std::string text = opened.ok() ? "ok" : opened.status().text();
    while (text.find(folder_.path()) != text.npos)
      text.erase(text.find(folder_.path()), folder_.path().size());
    return text;
  }
  const TempFolder& folder() const { return folder_; }

 private:
  TempFolder folder_;
};

const std::string kIndex = "/model.safetensors.index.json: ";

}  // namespace

TEST_CASE("shards: tensors of all files, in the order of the files") {
  Model model;
  const auto opened = io::open_checkpoint(model.folder().path());
  REQUIRE(opened.ok());
  const io::Checkpoint& c = **opened;
  REQUIRE(c.tensors().size() == 2);
  CHECK(c.path() == model.folder().path());
  CHECK(c.tensors()[0].name == "x");
  CHECK(std::to_integer<char>(c.bytes(*c.find("y"))[3]) == 'y');
  float v = 0;
  c.release(*c.find("y"));
  REQUIRE(c.read_f32(*c.find("y"), 3, std::span(&v, 1)).ok());
  CHECK(v == 'y');
  CHECK(io::open_checkpoint(model.folder() / "model.safetensors.index.json").ok());
  // A whole file beside the index comes first.
  put(model.folder() / "model.safetensors", tensor_file("z"));
  const auto whole = io::open_checkpoint(model.folder().path());
  REQUIRE(whole.ok());
  CHECK((*whole)->tensors()[0].name == "z");
}

TEST_CASE("shards: indices that don't fit their files are refused") {
  const auto map_error = [](std::string_view map, std::string_view metadata = R"({"total_size":8})") {
    Model model;
    model.index(map, metadata);
    return model.error();
  };
  const auto text_error = [](std::string_view text) {
    Model model;
    model.text(text);
    return model.error();
  };
  const std::string both = R"("x":"1.safetensors","y":"2.safetensors")";
  CHECK(map_error(both) == "ok");
  CHECK(map_error(both, "{}") == "ok");
  CHECK(map_error(both, R"({"total_size":9})") ==
        kIndex +
            "total_size is 9, the shards hold 8 bytes of tensors; a shard is missing or from another model");
  CHECK(map_error(both, R"({"total_size":"8"})") ==
        kIndex + "metadata 'total_size' is not an integer of 0 or more");
  CHECK(map_error(both, R"({"total_size":-8})") ==
        kIndex + "metadata 'total_size' is not an integer of 0 or more");
  CHECK(map_error(R"("x":"1.safetensors")", "{}") == "ok");  // a shard that nobody names is not looked at
  CHECK(map_error(R"("x":"1.safetensors","y":"1.safetensors")") ==
        kIndex + "tensor 'y' is not in its shard '1.safetensors'");
  CHECK(map_error(R"("x":"2.safetensors","y":"1.safetensors")") ==
        kIndex + "tensor 'y' is in '2.safetensors', the index says '1.safetensors'");
  CHECK(map_error(R"("z":"1.safetensors","y":"2.safetensors")") ==
        kIndex + "tensor 'z' is not in its shard '1.safetensors'");
  CHECK(map_error(R"("x":"3.safetensors")") == "/3.safetensors: cannot be opened: No such file or directory");
  CHECK(map_error(R"("x":1)") == kIndex + "weight_map 'x' is not a string");
  CHECK(map_error("") == kIndex + "'weight_map' is empty");
  CHECK(map_error(R"("x":"1.safetensors","x":"2.safetensors")") ==
        kIndex + "the key 'x' stands twice in one object");
  CHECK(text_error("[]") == kIndex + "not an object");
  CHECK(text_error("{}") == kIndex + "'weight_map' is missing or not an object");
  CHECK(text_error(R"({"weight_map":[]})") == kIndex + "'weight_map' is missing or not an object");
  CHECK(text_error("{").starts_with(kIndex + "not valid JSON"));
  CHECK(text_error("") == "/model.safetensors.index.json: the file is empty");
  CHECK(text_error(std::string(100, '[')) == kIndex + "JSON nested deeper than 16");

  Model model;
  put(model.folder() / "2.safetensors", tensor_file("x"));
  CHECK(model.error() == kIndex + "tensor 'x' is in two shards");
  put(model.folder() / "2.safetensors", tensor_file("y", "yyy"));
  CHECK(model.error() == "/2.safetensors: tensor 'y': ends 1 bytes beyond the file's end (" +
                             num(tensor_file("y", "yyy").size()) + " bytes): a truncated download?");
  put(model.folder() / "2.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  CHECK(model.error() ==
        "/2.safetensors: a Git-LFS pointer, not the file itself; run 'git lfs pull' in its folder");

  Model extra;
  put(extra.folder() / "1.safetensors",
      safetensors(
          R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"w":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
          "xxxx"));
  CHECK(extra.error() == kIndex + "tensor 'w' of '1.safetensors' is not in the index");

  Model loose;
  loose.index(both, R"({"total_size":1.5})");
  CHECK(loose.error({.lenient = true}) == "ok");
}

TEST_CASE("shards: names and links that lead out of the folder are refused") {
  TempFolder outside;
  put(outside / "o.safetensors", tensor_file("x"));
  const auto error = [](std::string_view shard, auto prepare) {
    Model model;
    model.index(cat({R"("x":")", shard, R"(")"}), "{}");
    prepare(model.folder());
    return model.error();
  };
  const auto nothing = [](const TempFolder&) {};
  for (const char* name :
       {"../o.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\\\\..\\\\b", "1.safetensors\\u0000"}) {
    INFO(name);
    CHECK(error(name, nothing).find("is not that of a file in the folder") != std::string::npos);
  }
  const auto link = [&](const std::string& target) {
    return error("l.safetensors",
                 [&](const TempFolder& f) { fs::create_symlink(target, f / "l.safetensors"); });
  };
  CHECK(link(outside / "o.safetensors") == "/l.safetensors: a symbolic link out of its folder");
  CHECK(link("/dev/zero") == "/l.safetensors: a symbolic link out of its folder");
  CHECK(link("1.safetensors") == "ok");
  CHECK(link("./../" + fs::path(outside.path()).filename().string() + "/o.safetensors") ==
        "/l.safetensors: a symbolic link out of its folder");
  CHECK(link("nowhere") == "/l.safetensors: the link leads nowhere: No such file or directory");
  CHECK(link("l.safetensors") == "/l.safetensors: the link leads nowhere: Too many levels of symbolic links");
  CHECK(error("p", [](const TempFolder& f) { ::mkfifo((f / "p").c_str(), 0600); }) ==
        "/p: a pipe, socket or device, expected a file");
  CHECK(error("d", [](const TempFolder& f) { fs::create_directory(f / "d"); }) ==
        "/d: a folder, expected a file");
}

TEST_CASE("shards: links into the blobs of a cache are followed, and only there") {
  TempFolder cache;
  fs::create_directories(cache / "m/blobs");
  fs::create_directories(cache / "m/snapshots/r");
  put(cache / "m/blobs/b", tensor_file("x"));
  put(cache / "m/secret", tensor_file("x"));
  fs::create_symlink("../../blobs/b", cache / "m/snapshots/r/model.safetensors");
  CHECK(io::open_checkpoint(cache / "m/snapshots/r").ok());
  fs::remove(cache / "m/snapshots/r/model.safetensors");
  fs::create_symlink("../../secret", cache / "m/snapshots/r/model.safetensors");
  CHECK(io::open_checkpoint(cache / "m/snapshots/r").status().text() ==
        (cache / "m/snapshots/r/model.safetensors") + ": a symbolic link out of its folder");
}

TEST_CASE("folders without a model say what they hold instead") {
  TempFolder folder;
  const auto error = [&] {
    return io::open_checkpoint(folder.path()).status().text().substr(folder.path().size() + 2);
  };
  const std::string neither = "the folder holds neither model.safetensors nor model.safetensors.index.json";
  CHECK(error() == neither);
  put(folder / "pytorch_model.bin", "PK");
  CHECK(error() ==
        neither +
            ", but 'pytorch_model.bin'; pickles can run code and are never read, save the model as "
            "safetensors");
  put(folder / "m.gguf", "GGUF");
  CHECK(error() == neither + ", but 'm.gguf'; name that file to open it");
}

TEST_CASE("shard index: what is written is read") {
  TempFolder folder;
  std::map<std::string, std::string> files;
  std::uint64_t total = 0;
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::string name = io::shard_name(i, 3);
    const std::vector<io::TensorSpec> specs{{"t" + num(i), DType::f32, {i + 1}}};
    auto writer = io::SafetensorsWriter::create(folder / name, specs);
    REQUIRE(writer.ok());
    REQUIRE(writer->write_f32(specs[0].name, std::vector<float>(static_cast<std::size_t>(i + 1), 0.5f)).ok());
    REQUIRE(writer->commit().ok());
    total += writer->data_bytes();
    files[specs[0].name] = name;
  }
  CHECK(files["t2"] == "model-00003-of-00003.safetensors");
  REQUIRE(io::write_shard_index(folder.path(), files, total, {{"made", "here"}}).ok());
  const auto opened = io::open_checkpoint(folder.path());
  REQUIRE((opened.ok() ? "" : opened.status().text()) == "");
  CHECK((*opened)->tensors().size() == 3);
  REQUIRE(io::write_shard_index(folder.path(), files, total + 1).ok());
  CHECK(!io::open_checkpoint(folder.path()).ok());
}
