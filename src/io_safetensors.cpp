#include "qf/io/safetensors.hpp"

#include <algorithm>
#include <map>

#include "io_folder.hpp"
#include "io_posix.hpp"
#include "io_safetensors_header.hpp"
#include "qf/core/json.hpp"
#include "qf/io/convert.hpp"
#include "qf/io/mapped_file.hpp"

namespace qf::io {
namespace {

// One file or several shards; a tensor is known by its place in tensors_.
class SafetensorsSet final : public Safetensors {
 public:
  SafetensorsSet(std::string path) : path_(std::move(path)) {}

  const std::string& path() const override { return path_; }
  std::string_view format() const override { return "safetensors"; }
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  const Metadata& metadata() const override { return metadata_; }

  const TensorInfo* find(std::string_view name) const override {
    const auto at =
        std::lower_bound(by_name_.begin(), by_name_.end(), name,
                         [&](std::uint32_t i, std::string_view n) { return tensors_[i].name < n; });
    return at == by_name_.end() || tensors_[*at].name != name ? nullptr : &tensors_[*at];
  }

  std::span<const std::byte> bytes(const TensorInfo& info) const override {
    const TensorInfo* own = own_info(info);
    if (!own) return {};
    const Place& place = places_[static_cast<std::size_t>(own - tensors_.data())];
    return files_[place.file].bytes.subspan(static_cast<std::size_t>(place.begin),
                                            static_cast<std::size_t>(own->bytes));
  }

  void release(const TensorInfo& info) const override {
    const TensorInfo* own = own_info(info);
    if (own)
      files_[places_[static_cast<std::size_t>(own - tensors_.data())].file].mapping.release(bytes(*own));
  }

  Status read_f32(const TensorInfo& info, std::uint64_t first, std::span<float> out) const override {
    const TensorInfo* own = own_info(info);
    if (!own)
      return Status(Errc::invalid_argument,
                    cat({path_, ": tensor ", printable(info.name), ": not of this file"}));
    const auto type = dtype_from_name(own->type);
    if (!type) return Status(Errc::internal, cat({path_, ": tensor ", printable(own->name), ": type lost"}));
    const Status status = decode_f32(*type, bytes(*own), first, out);
    return status.ok() ? status : status.at(cat({path_, ": tensor ", printable(own->name)}));
  }

  // `bytes` outlives this or is what `mapping` maps.
  Status add(std::span<const std::byte> bytes, MappedFile mapping, const SafetensorsOptions& options) {
    QF_TRY_ASSIGN(detail::SafetensorsHeader header, detail::parse_safetensors_header(bytes, options));
    const auto file = static_cast<std::uint32_t>(files_.size());
    if (files_.empty()) {
      metadata_ = std::move(header.metadata);
      tensors_ = std::move(header.tensors);
      by_name_ = std::move(header.by_name);
    } else {
      tensors_.insert(tensors_.end(), std::move_iterator(header.tensors.begin()),
                      std::move_iterator(header.tensors.end()));
    }
    places_.reserve(tensors_.size());
    for (std::uint64_t begin : header.begin) places_.push_back({begin, file});
    files_.push_back({bytes, std::move(mapping)});
    return {};
  }

  // After the last of several files. The name of a tensor that two files hold, or empty.
  std::string sort_names() {
    by_name_.resize(tensors_.size());
    for (std::uint32_t i = 0; i < by_name_.size(); ++i) by_name_[i] = i;
    std::sort(by_name_.begin(), by_name_.end(),
              [&](std::uint32_t a, std::uint32_t b) { return tensors_[a].name < tensors_[b].name; });
    for (std::size_t i = 1; i < by_name_.size(); ++i)
      if (tensors_[by_name_[i]].name == tensors_[by_name_[i - 1]].name) return tensors_[by_name_[i]].name;
    return {};
  }

  std::uint32_t file_of(const TensorInfo& own) const {
    return places_[static_cast<std::size_t>(&own - tensors_.data())].file;
  }

 private:
  struct Place {
    std::uint64_t begin;
    std::uint32_t file;
  };
  struct File {
    std::span<const std::byte> bytes;
    MappedFile mapping;
  };

  // Callers may hold copies of what tensors() showed them.
  const TensorInfo* own_info(const TensorInfo& info) const {
    const std::less<const TensorInfo*> before;
    if (!before(&info, tensors_.data()) && before(&info, tensors_.data() + tensors_.size())) return &info;
    const TensorInfo* own = find(info.name);
    return own && *own == info ? own : nullptr;
  }

  std::string path_;
  std::vector<TensorInfo> tensors_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> by_name_;
  std::vector<File> files_;
  Metadata metadata_;
};

using Shards =
    std::map<std::string, std::vector<std::string>>;  // file -> the tensors that the index puts there

struct Index {
  Shards shards;
  std::uint64_t total_bytes = 0;
  bool has_total = false;
};

Result<Index> read_index(const std::string& path, const SafetensorsOptions& options) {
  QF_TRY_ASSIGN(const MappedFile file, MappedFile::open(path));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  QF_TRY_ASSIGN(const Json json, parse_json(text, path, {detail::kMaxSafetensorsHeader, 16}));
  const auto bad = [&](std::initializer_list<std::string_view> parts) {
    return Status(Errc::bad_format, cat({path, ": ", cat(parts)}));
  };
  if (!json.is_object()) return bad({"not an object"});
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) return bad({"'weight_map' is missing or not an object"});
  if (map->empty()) return bad({"'weight_map' is empty"});
  Index index;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) return bad({"weight_map ", printable(tensor), " is not a string"});
    index.shards[shard.get_ref<const std::string&>()].push_back(tensor);
  }
  if (const auto metadata = json.find("metadata"); metadata != json.end() && metadata->is_object()) {
    if (const auto total = metadata->find("total_size"); total != metadata->end()) {
      if (total->is_number_unsigned()) {
        index.total_bytes = total->get<std::uint64_t>(), index.has_total = true;
      } else if (!options.lenient) {
        return bad({"metadata 'total_size' is not an integer of 0 or more"});
      }
    }
  }
  return index;
}

Result<std::unique_ptr<Safetensors>> open_shards(const std::string& folder,
                                                 const SafetensorsOptions& options) {
  const std::string path = folder + "/model.safetensors.index.json";
  QF_TRY_ASSIGN(Index index, read_index(path, options));
  const auto bad = [&](std::initializer_list<std::string_view> parts) {
    return Status(Errc::bad_format, cat({path, ": ", cat(parts)}));
  };
  auto set = std::make_unique<SafetensorsSet>(folder);
  std::vector<const std::string*> names;
  std::size_t listed = 0;
  for (const auto& [shard, tensors] : index.shards) {
    auto file = detail::open_in_folder(folder, shard);
    if (!file.ok()) return file.status();
    const auto bytes = file->bytes();
    QF_TRY(set->add(bytes, std::move(*file), options).at(folder + "/" + shard));
    names.push_back(&shard);
    listed += tensors.size();
  }
  if (const std::string twice = set->sort_names(); !twice.empty())
    return bad({"tensor ", printable(twice), " is in two shards"});
  for (const auto& [shard, tensors] : index.shards)
    for (const std::string& tensor : tensors) {
      const TensorInfo* info = set->find(tensor);
      if (!info) return bad({"tensor ", printable(tensor), " is not in its shard ", printable(shard)});
      const std::string& holder = *names[set->file_of(*info)];
      if (holder != shard)
        return bad({"tensor ", printable(tensor), " is in ", printable(holder), ", the index says ",
                    printable(shard)});
    }
  std::uint64_t total = 0;
  for (const TensorInfo& info : set->tensors()) total += info.bytes;
  if (listed != set->tensors().size())
    for (const TensorInfo& info : set->tensors()) {
      const std::string& holder = *names[set->file_of(info)];
      const auto& known = index.shards[holder];
      if (std::find(known.begin(), known.end(), info.name) == known.end())
        return bad({"tensor ", printable(info.name), " of ", printable(holder), " is not in the index"});
    }
  if (index.has_total && index.total_bytes != total && !options.lenient)
    return bad({"total_size is ", num(index.total_bytes), ", the shards hold ", num(total),
                " bytes of tensors; a shard is missing or from another model"});
  return std::unique_ptr<Safetensors>(std::move(set));
}

Result<std::unique_ptr<Safetensors>> open_file(MappedFile file, const std::string& path,
                                               const SafetensorsOptions& options) {
  auto set = std::make_unique<SafetensorsSet>(path);
  const auto bytes = file.bytes();
  QF_TRY(set->add(bytes, std::move(file), options).at(path));
  return std::unique_ptr<Safetensors>(std::move(set));
}

Result<std::unique_ptr<Safetensors>> open_any(const std::string& path, const SafetensorsOptions& options) {
  if (!detail::is_folder(path)) {
    QF_TRY_ASSIGN(MappedFile file, MappedFile::open(path));
    return open_file(std::move(file), path, options);
  }
  if (detail::is_present(path + "/model.safetensors")) {
    QF_TRY_ASSIGN(MappedFile file, detail::open_in_folder(path, "model.safetensors"));
    return open_file(std::move(file), path + "/model.safetensors", options);
  }
  if (detail::is_present(path + "/model.safetensors.index.json")) return open_shards(path, options);
  return Status(Errc::not_found, cat({path, ": ", detail::no_model_text(path)}));
}

}  // namespace

Result<std::unique_ptr<Safetensors>> open_safetensors(const std::string& path,
                                                      const SafetensorsOptions& options) {
  try {
    return open_any(path, options);
  } catch (const std::bad_alloc&) {
    return detail::no_memory({path, ": no memory to open it"});
  }
}

Result<std::unique_ptr<Safetensors>> parse_safetensors(std::span<const std::byte> file,
                                                       const std::string& name,
                                                       const SafetensorsOptions& options) {
  try {
    auto set = std::make_unique<SafetensorsSet>(name);
    QF_TRY(set->add(file, MappedFile(), options).at(name));
    return std::unique_ptr<Safetensors>(std::move(set));
  } catch (const std::bad_alloc&) {
    return detail::no_memory({name, ": no memory to open it"});
  }
}

}  // namespace qf::io
